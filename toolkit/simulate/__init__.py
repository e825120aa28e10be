"""Servers on this machine that behave like OpenRouter, SGLang and vLLM, faults included. docs/simulator.md has it all.

`scenario` (files: `scenario_file`) says what is played: `behaviours` by name, `providers`, `limits`, an `account`.
`asked` and `routing` read a request, `fate` draws what becomes of it, `answers` makes the model's answer in ids
(`phrases`, `arguments`, `draws`; `canned` once for all). Three faces make a reply of it, `openrouter`, `chat` and
`native` (`engine` is what the last two share): `shown` and `defects` are what a provider lets through, `bodies` and
`refusals` its shape, `sending` how it goes out. `simulation` remembers, `ledger` keeps the books, `side` tells them.
`faces` ties that together without a socket, and `server` (the only one that imports aiohttp) carries it over HTTP.
"""
