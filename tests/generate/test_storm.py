"""Against a server that lets through less than we would send: how much of it is used, and how often it says no."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.generate.run import generate
from toolkit.simulate.limits import Limit
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import simulating
from toolkit.simulate.simulation import Simulation
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

from .conftest import endpoint_at, write_prompts
from .server import in_thread

PROMPTS_S = 30
"""Seconds that the prompts last at the allowed rate."""
SETTLED_S = 18.0


@contextmanager
def limited(kimi: Contract, vocabulary: Vocabulary, limit: Limit) -> Iterator[tuple[Simulation, str]]:
    opened: list[Simulation] = []
    scenario = Scenario(latency_s=(0.05, 0.3), faults={}, canned_bytes=2_000, limit=limit)

    @asynccontextmanager
    async def server():
        async with simulating(kimi, vocabulary, scenario) as running:
            opened.append(running.simulation)
            yield running.url

    with in_thread(server()) as url:
        yield opened[0], url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("per_s", "retry_after_s", "stating"),
    [(100, None, 1.0), (100, 1, 1.0), (60, None, 1.0), (100, 0, 0.5)],
    ids=["no wish", "one second", "slower", "an exact wish now and then"],
)
def test_nine_tenths_of_what_is_allowed_is_used_and_one_in_twenty_refused_at_most(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, per_s: int, retry_after_s: int | None, stating: float
):
    prompts = PROMPTS_S * per_s
    write_prompts(dataset, [f"q{i}" for i in range(prompts)])
    limit = Limit(per_s=per_s, burst=per_s // 10, retry_after_s=retry_after_s, retry_after_share=stating)
    with limited(kimi, vocabulary, limit) as (simulation, url):
        endpoint = endpoint_at(url, concurrency=2_000, max_tries=12)
        summary = generate(dataset, DatasetSettings(max_tokens=8192), endpoint, kimi, vocabulary)
        entries = simulation.ledger.entries
    assert summary.answered == prompts
    begin = entries[0].received + SETTLED_S
    # The last asks wait for their turn to be asked again, while there is nothing else to send.
    end = sorted(entry.received for entry in entries)[-3 * per_s // 2]
    late = [entry for entry in entries if begin < entry.received < end]
    answered = sum(entry.status == 200 for entry in late)
    goodput = answered / (end - begin) / per_s
    print(f"goodput {goodput:.1%}, refused {1 - answered / len(late):.1%} of {len(late)} requests")
    assert goodput >= 0.9
    assert 1 - answered / len(late) <= 0.05
