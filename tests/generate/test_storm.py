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

MEASURED_S = 20.0


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
@pytest.mark.alone
@pytest.mark.parametrize(
    ("limit", "settled_s"),
    [
        (Limit(per_s=100, burst=10), 15.0),
        (Limit(per_s=40, burst=4), 20.0),
        (Limit(per_s=40, burst=4, retry_after_s=2), 45.0),
        (Limit(per_s=200, burst=20, retry_after_s=0, retry_after_share=0.5), 25.0),
        (Limit(per_s=50, window_s=5, retry_after_s=0, retry_after_date=True), 40.0),
    ],
    ids=["no wish", "slower", "two seconds", "an exact wish now and then", "windows and dates"],
)
def test_nine_tenths_of_what_is_allowed_is_used_and_one_in_twenty_refused_at_most(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, limit: Limit, settled_s: float
):
    assert limit.per_s is not None
    per_s = int(limit.per_s)
    prompts = int(per_s * (settled_s + MEASURED_S))
    write_prompts(dataset, [f"q{i}" for i in range(prompts)])
    with limited(kimi, vocabulary, limit) as (simulation, url):
        endpoint = endpoint_at(url, concurrency=2_000, max_tries=12)
        summary = generate(dataset, DatasetSettings(max_tokens=8192), endpoint, kimi, vocabulary)
        entries = simulation.ledger.entries
    assert summary.answered == prompts
    begin = entries[0].received + settled_s
    # The last asks wait for their turn to be asked again, while there is nothing else to send.
    end = sorted(entry.received for entry in entries)[-3 * per_s // 2]
    late = [entry for entry in entries if begin < entry.received < end]
    answered = sum(entry.status == 200 for entry in late)
    goodput = answered / (end - begin) / per_s
    print(f"goodput {goodput:.1%}, refused {1 - answered / len(late):.1%} of {len(late)} requests")
    assert goodput >= 0.9
    assert 1 - answered / len(late) <= 0.05
