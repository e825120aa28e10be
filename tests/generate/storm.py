"""A run against the simulated server while that limits what it takes: by the real clock, or one that skips waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace

import pytest

from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.generate.run import Surroundings, generate
from toolkit.simulate.ledger import Entry
from toolkit.simulate.limits import Limit
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import Running, simulating
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

from .conftest import endpoint_at, write_prompts
from .server import in_thread
from .virtual_time import VirtualLoop

SETTLED_S = MEASURED_S = 60.0
"""When a run must have settled, and how long it is looked at then: several of the refusals by which it learns."""
_READS_CLOCKS = ("simulation", "openrouter", "engine", "side")

LIMITS = {
    "no wish": Limit(per_s=50, burst=5),
    "slower": Limit(per_s=40, burst=4),
    "two seconds": Limit(per_s=40, burst=4, retry_after_s=2),
    "an exact wish now and then": Limit(per_s=50, burst=5, retry_after_s=0, retry_after_share=0.5),
    "windows and dates": Limit(per_s=50, window_s=5, retry_after_s=0, retry_after_date=True),
}


def weather(
    dataset: Dataset,
    contract: Contract,
    vocabulary: Vocabulary,
    limit: Limit,
    patch: pytest.MonkeyPatch | None = None,
) -> tuple[float, float]:
    """(goodput as a share of what is allowed, share of requests refused), once settled.

    Args:
        dataset: Empty; gets prompts, and rows of them.
        contract, vocabulary: Of run and server.
        limit: What the server lets through, at so many requests a second.
        patch: Puts the server on the clock that skips waiting; None: the real clock, the server in a thread of its own.
    """
    assert limit.per_s is not None
    write_prompts(dataset, [f"q{i}" for i in range(int(limit.per_s * (SETTLED_S + MEASURED_S)))])
    scenario = Scenario(latency_s=(0.05, 0.3), faults={}, canned_bytes=2_000, limit=limit)
    with _serving(contract, vocabulary, scenario, patch) as (running, around):
        endpoint = endpoint_at(running.url, concurrency=2_000, max_tries=12)
        summary = generate(
            dataset, DatasetSettings(max_tokens=8192), endpoint, contract, vocabulary, surroundings=around
        )
        entries = running.simulation.ledger.entries
    assert summary.complete, summary
    return _measured(entries, limit.per_s)


def _measured(entries: list[Entry], per_s: float) -> tuple[float, float]:
    begin = entries[0].received + SETTLED_S
    # The last asks wait for their turn to be asked again, while there is nothing else to send.
    end = sorted(entry.received for entry in entries)[-round(1.5 * per_s)]
    late = [entry for entry in entries if begin < entry.received < end]
    answered = sum(entry.status == 200 for entry in late)
    return answered / (end - begin) / per_s, 1 - answered / len(late)


@contextmanager
def _serving(
    contract: Contract, vocabulary: Vocabulary, scenario: Scenario, patch: pytest.MonkeyPatch | None
) -> Iterator[tuple[Running, Surroundings]]:
    opened: list[Running] = []

    @asynccontextmanager
    async def server():
        async with simulating(contract, vocabulary, scenario) as running:
            opened.append(running)
            yield running.url

    if patch is None:
        with in_thread(server()):
            yield opened[0], Surroundings()
        return
    loop = VirtualLoop()
    clocks = SimpleNamespace(time=loop.since_1970, monotonic=loop.time)
    for name in _READS_CLOCKS:
        patch.setattr(f"toolkit.simulate.{name}.time", clocks)
    patch.setattr("toolkit.generate.run.run_async", loop.run_until_complete)
    app = server()
    loop.run_until_complete(app.__aenter__())
    try:
        yield opened[0], Surroundings(clock=loop.since_1970, ticks=loop.time)
    finally:
        loop.run_until_complete(app.__aexit__(None, None, None))
        loop.close()
