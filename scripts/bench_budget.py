"""Where a budget ends: `generate` beside a plain loop that cancels at the limit, against the same simulated server.

python scripts/bench_budget.py [--tokens 1000000] [--dollars 0.5] [--in-flight 200]

The server's ledger says what was billed. What was billed and is not kept was thrown away: a request that is dropped
goes on, and is paid for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit.config import DatasetSettings, parse_settings
from toolkit.contract import Contract, read_contract
from toolkit.generate.run import generate
from toolkit.simulate.account import AccountSettings
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import Running, simulating
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary, load_vocabulary

KEY = "sk-or-v1-0123456789abcdef-a-key-for-benches"
KEY_ENV = "BENCH_KEY"
MODEL = "moonshotai/kimi-k2.5"
MAX_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may be spent; None: no limit of that kind. `key_usd` is the key's own, which the server holds."""

    tokens: int | None = None
    dollars: float | None = None
    key_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one way of asking came to: replies, completion tokens and US dollars, billed and kept."""

    requests: int
    refused: int
    billed: int
    kept: int
    billed_tokens: int
    kept_tokens: int
    billed_usd: float
    kept_usd: float

    @property
    def thrown_away(self) -> int:
        """Replies that were paid for and are not there."""
        return self.billed - self.kept


def scenario(limits: Limits) -> Scenario:
    """Nothing goes wrong; answers have some 300 tokens and come after 0.05 to 0.3 s."""
    account = AccountSettings(key_limit_usd=limits.key_usd)
    return Scenario(latency_s=(0.05, 0.3), faults={}, canned_bytes=2_500, account=account)


Way = Callable[[str], Awaitable[tuple[int, int, float]]]
"""Asks the server at a URL until the limit; gives replies, tokens and dollars that are kept."""


async def spent_by(way: Way, limits: Limits, contract: Contract, vocabulary: Vocabulary) -> Spent:
    """Ask a fresh server in one way, and read its ledger once everything has ended there."""
    async with simulating(contract, vocabulary, scenario(limits)) as running:
        kept, tokens, usd = await way(running.url)
        await _ended(running)
        entries = running.simulation.ledger.entries
        billed = list(running.simulation.ledger.billed())
        return Spent(
            requests=len(entries), refused=sum((entry.status or 0) >= 400 for entry in entries), billed=len(billed),
            kept=kept, billed_tokens=sum(entry.completion_tokens for entry in billed), kept_tokens=tokens,
            billed_usd=sum(entry.cost_usd for entry in billed), kept_usd=usd,
        )  # fmt: skip


async def _ended(running: Running) -> None:
    async with asyncio.timeout(30):
        while any(entry.ended is None for entry in running.simulation.ledger.entries):
            await asyncio.sleep(0.05)


# --- the two ways -------------------------------------------------------------------------------------


def cancelling_at_the_limit(limits: Limits, in_flight: int) -> Way:
    """What one writes first: ask, add up what replies report, and cancel everything once it is enough."""
    import aiohttp  # noqa: TID251 - the yardstick

    async def way(url: str) -> tuple[int, int, float]:
        replies, tokens, usd = 0, 0, 0.0
        enough = asyncio.Event()
        numbers = iter(range(10**9))

        async def worker(session: aiohttp.ClientSession) -> None:
            nonlocal replies, tokens, usd
            for i in numbers:
                body = {"model": MODEL, "messages": question(i), "max_tokens": MAX_TOKENS}
                async with session.post(f"{url}/api/v1/chat/completions", json=body) as response:
                    reply = await response.json()
                if response.status != 200:
                    enough.set()  # no credit: nothing more will come
                    return
                replies += 1
                tokens += reply["usage"]["completion_tokens"]
                usd += reply["usage"]["cost"]
                if tokens >= (limits.tokens or 10**12) or usd >= (limits.dollars or 1e12):
                    enough.set()

        headers = {"Authorization": f"Bearer {KEY}"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:
            workers = [asyncio.create_task(worker(session)) for _ in range(in_flight)]
            await enough.wait()
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return replies, tokens, usd

    return way


def generating(limits: Limits, in_flight: int, folder: Path, contract: Contract, vocabulary: Vocabulary) -> Way:
    """`generate` in a thread of its own, over more prompts than the limit has room for."""
    dataset = Workspace(folder).dataset_named("BENCH")
    dataset.folder.mkdir(parents=True)
    lines = [json.dumps({"id": f"q{i}", "messages": question(i)}) for i in range(_prompts(limits))]
    dataset.prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = DatasetSettings(max_tokens=MAX_TOKENS, max_total_tokens=limits.tokens)

    async def way(url: str) -> tuple[int, int, float]:
        table = f'[endpoints.openrouter]\nurl = "{url}/api/v1"\nconcurrency = {in_flight}\nkey_env = "{KEY_ENV}"\n'
        endpoint = parse_settings(table.encode(), "bench").endpoint("openrouter")
        await asyncio.to_thread(
            generate, dataset, settings, endpoint, contract, vocabulary, dollars=limits.dollars
        )  # fmt: skip
        return kept_in(dataset)

    return way


def question(i: int) -> list[dict[str, str]]:
    """The i-th prompt."""
    return [{"role": "user", "content": f"Write part {i} of a module for the standard library, and explain it."}]


def kept_in(dataset: Dataset) -> tuple[int, int, float]:
    """Rows of a dataset, their tokens and dollars."""
    columns = ["completion_tokens", "cost_usd"]
    rows = [row for shard in read_live(dataset).shards for row in read_shard(dataset, shard, columns).to_pylist()]
    return len(rows), sum(row["completion_tokens"] for row in rows), sum(row["cost_usd"] for row in rows)


def _prompts(limits: Limits) -> int:
    return (limits.tokens or 0) // 100 + int(4_000 * ((limits.dollars or 0.0) + (limits.key_usd or 0.0))) + 100


def compare(limits: Limits, in_flight: int, contract: Contract, vocabulary: Vocabulary) -> tuple[Spent, Spent]:
    """(ours, the plain loop), each against a fresh server of the same scenario."""
    with _key_in_the_environment(), tempfile.TemporaryDirectory() as folder:
        ours = generating(limits, in_flight, Path(folder), contract, vocabulary)
        one = asyncio.run(spent_by(ours, limits, contract, vocabulary))
    two = asyncio.run(spent_by(cancelling_at_the_limit(limits, in_flight), limits, contract, vocabulary))
    return one, two


@contextmanager
def _key_in_the_environment() -> Iterator[None]:
    before = os.environ.get(KEY_ENV)
    os.environ[KEY_ENV] = KEY
    try:
        yield
    finally:
        os.environ.pop(KEY_ENV)
        if before is not None:
            os.environ[KEY_ENV] = before


def shown(name: str, spent: Spent) -> dict[str, Any]:
    """Figures of one way, for printing."""
    figures = {key: round(value, 6) for key, value in asdict(spent).items()}
    return {"way": name, **figures, "thrown_away": spent.thrown_away}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--dollars", type=float, default=0.5)
    parser.add_argument("--in-flight", type=int, default=200)
    options = parser.parse_args()
    contract = read_contract("kimi-k2.5")
    vocabulary = load_vocabulary(contract)
    for limits in (Limits(tokens=options.tokens), Limits(dollars=options.dollars), Limits(key_usd=options.dollars)):
        print({name: value for name, value in asdict(limits).items() if value is not None})
        ours, plain = compare(limits, options.in_flight, contract, vocabulary)
        for name, spent in (("generate", ours), ("cancel at the limit", plain)):
            print(" ", json.dumps(shown(name, spent)))


if __name__ == "__main__":
    main()
