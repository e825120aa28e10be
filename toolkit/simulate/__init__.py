"""A server on this machine that behaves like OpenRouter in front of a few providers, faults included.

`asked` reads a request, `answers` makes the model's answer in ids (`phrases`, `arguments`, `draws`), `providers`
shapes it into the body that one provider would send, `scenario` says who answers and what goes wrong, `simulation`
remembers what was billed, and `server` (the only one that imports aiohttp) carries all that over HTTP.
"""
