"""Everything that can go wrong, and kill -9 in between: our books against the server's.

Five seeds and one that is drawn anew; TOKENPROOF_CHAOS_SEEDS=50 takes the first fifty, TOKENPROOF_CHAOS_SEED=7 only 7.
`make chaos` runs fifty and prints a table.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.records import Failure
from toolkit.simulate.behaviours import BEHAVIOURS, FAULTS, HABITS
from toolkit.simulate.ledger import Entry
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import simulating
from toolkit.store.journal import count_entries, journal_files, read_failures
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

from .conftest import KEY, write_prompts
from .forks import Forked, Forker, forking
from .server import in_thread
from .test_crash import key_of, wait_for

PROMPTS = 80
CONCURRENCY = 12
KILLS = 5
MOST_RUNS = 60

STOPS = {"http_401", "credits_402", "key_limit_402"}
"""Each ends a run: a few of a hundred requests would end all."""
UNREADABLE = {"empty_body", "whitespace_body", "cut_before_headers", "cut_body", "cut_stream"}
"""Charged, and of what was paid for nobody ever gets enough to use it."""

UNENDED = ({"finish_missing", "finish_null"}, {"usage_missing", "usage_zero"})
"""One of each together: nothing says that the answer is whole, nor what it cost."""

Events = list[list[Any]]


def seeds() -> list[int | None]:
    """None is drawn when the test runs: workers must agree on what there is to run."""
    one = os.environ.get("TOKENPROOF_CHAOS_SEED")
    if one is not None:
        return [int(one)]
    many = os.environ.get("TOKENPROOF_CHAOS_SEEDS")
    return [*range(5), None] if many is None else list(range(int(many)))


def every_fault(seed: int) -> Scenario:
    """Everything that OpenRouter's face can play, streamed or not."""
    here = [name for name in (*FAULTS, *HABITS) if "openrouter" in BEHAVIOURS[name].faces]
    rates = {name: 0.003 if name in STOPS else 0.012 if name in FAULTS else 0.02 for name in here}
    return Scenario(
        seed=seed, latency_s=(0.02, 0.2), retry_after_share=0.5, faults=rates | {"blank_lines": 0.3, "comments": 0.3}
    )


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with forking(KEY) as opened:
        yield opened


@dataclass(slots=True, kw_only=True)
class Ran:
    """One run: its pid, the number of requests before it, when it was killed, and what it said."""

    pid: int
    first: int
    killed_at: float | None = None
    events: Events = field(default_factory=list)

    def said(self, about: str) -> list[Any]:
        """Its events of one kind."""
        return [event[1:] if len(event) > 2 else event[1] for event in self.events if event[0] == about]

    @property
    def counted(self) -> set[str]:
        """Request ids of the replies that it had counted."""
        return {request_id for _, request_id in self.said("kept")}

    @property
    def complete(self) -> bool:
        """Whether it came to its end, and nothing is left."""
        return any(summary["complete"] for summary in self.said("end"))


@dataclass(slots=True, kw_only=True)
class Figures:
    """What one seed came to; billed = kept + noted + cut + lost.

    Attributes:
        noted: Billed, and a failure on file that holds what came.
        cut: Billed, and of the reply too little came for anybody to use.
        lost: Billed, in flight when the run was killed, and not counted.
        counted_lost: Counted by a run, and on no disk.
        unreadable: Live shards that cannot be read.
    """

    seed: int
    kills: int
    runs: int
    requests: int
    replies: int
    failed_for_good: int
    billed: int
    kept: int
    noted: int
    cut: int
    lost: int
    counted_lost: int
    unreadable: int
    oldest_lost_s: float
    took_s: float = 0.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_each_prompt_is_answered_once_and_everything_billed_is_kept_or_was_in_flight_at_a_kill(
    dataset: Dataset, forker: Forker, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path, seed: int | None
):
    seed = random.randrange(10**6, 10**9) if seed is None else seed
    print(f"TOKENPROOF_CHAOS_SEED={seed}")  # shown where the test fails
    began = time.monotonic()
    write_prompts(dataset, [text_of(i) for i in range(PROMPTS)])
    with books_of_server(kimi, vocabulary, every_fault(seed)) as (url, entries):
        ran = run_until_done(forker, tmp_path, url, entries, random.Random(seed))
        wait_for(lambda: all(entry.ended is not None for entry in entries))
    unreadable = unreadable_shards(dataset)
    assert unreadable == []
    rows = rows_of(dataset)
    failures = list(read_failures(dataset.failures))
    check_prompts_answered_once(rows, failures, entries)
    check_counted(dataset, ran, rows, failures)
    figures = check_money(ran, rows, failures, entries, seed)
    figures.unreadable = len(unreadable)
    assert len(rows) + figures.failed_for_good == PROMPTS
    assert figures.billed == figures.kept + figures.noted + figures.cut + figures.lost
    assert (figures.counted_lost, figures.unreadable) == (0, 0)
    figures.took_s = round(time.monotonic() - began, 1)
    print("chaos", json.dumps(asdict(figures)))


# --- the runs -------------------------------------------------------------------------------------


def text_of(i: int) -> str:
    return f"What comes after {i}?"


@contextmanager
def books_of_server(kimi: Contract, vocabulary: Vocabulary, scenario: Scenario) -> Iterator[tuple[str, list[Entry]]]:
    opened: list[list[Entry]] = []

    @asynccontextmanager
    async def server():
        async with simulating(kimi, vocabulary, scenario) as running:
            opened.append(running.simulation.ledger.entries)
            yield running.url

    with in_thread(server()) as url:
        yield url, opened[0]


def run_until_done(forker: Forker, root: Path, url: str, entries: list[Entry], draw: random.Random) -> list[Ran]:
    """Runs one after the other, the first ones killed at random moments, until nothing is left."""
    routing = {"ignore": ["inceptron"]}
    endpoint = {"concurrency": CONCURRENCY, "max_tries": 6, "provider": routing, "stream": draw.random() < 0.5}
    ran: list[Ran] = []
    kills = 0
    while not (ran and ran[-1].complete):
        assert len(ran) < MOST_RUNS
        order = {"root": str(root), "url": url, "log": str(root / f"run-{len(ran)}.log"), "endpoint": endpoint}
        first = len(entries)
        with forker.run(order) as forked:
            one = Ran(pid=forked.pid, first=first)
            if kills < KILLS:
                await_moment(forked, entries, draw)
                forked.kill()
                one.killed_at = time.time()
            code = forker.wait(forked)
        one.events = forked.events()
        if code != -signal.SIGKILL:
            assert code == 0
            one.killed_at = None  # it had ended before
        kills += one.killed_at is not None
        ran.append(one)
        time.sleep(0.03)  # what is on its way to the server belongs to this run
    return ran


def await_moment(forked: Forked, entries: list[Entry], draw: random.Random) -> None:
    """A moment to kill: by requests, by time (while it starts, too), or around the sealing of its shards."""

    def phase(name: str) -> bool:
        events = forked.events()
        return ["phase", name] in events or any(event[0] == "end" for event in events)

    kind = draw.choice(["requests", "requests", "time", "sealing"])
    if kind == "requests":
        target = len(entries) + draw.randrange(1, 50)
        wait_for(lambda: len(entries) >= target or phase("sealing"))
    elif kind == "sealing":
        wait_for(lambda: phase("sealing"))
    time.sleep(draw.uniform(0.0, 0.8 if kind == "time" else 0.03))


# --- what must hold -------------------------------------------------------------------------------


def unreadable_shards(dataset: Dataset) -> list[str]:
    """Live shards that cannot be read, or are not the bytes that were listed."""
    unreadable = []
    for shard in read_live(dataset).shards:
        try:
            read_shard(dataset, shard)
        except StoreError as error:
            unreadable.append(str(error))
    return unreadable


def rows_of(dataset: Dataset) -> list[dict[str, Any]]:
    """Every row of every live shard, hashes checked; nothing is left in the journal."""
    assert journal_files(dataset.journal) == [] or count_entries(dataset.journal) == 0
    live = read_live(dataset).shards
    assert {shard.path for shard in live} >= {f"shards/{path.name}" for path in dataset.shards.glob("part-*.parquet")}
    return [row for shard in live for row in read_shard(dataset, shard).to_pylist()]


def check_prompts_answered_once(rows: list[dict[str, Any]], failures: list[Failure], entries: list[Entry]) -> None:
    """Each prompt has one row or one failure for good, and was not asked again after it."""
    answered = Counter(row["sample_id"] for row in rows)
    failed = Counter(failure.sample_id for failure in failures if failure.final)
    assert Counter(f"p{i}" for i in range(PROMPTS)) == answered + failed
    assert max(Counter(row["row_key"] for row in rows).values()) == 1
    last = {entry.prompt_key: entry for entry in entries}
    for row in rows:
        assert last[key_of(text_of(int(row["sample_id"][1:])))].id == row["request_id"]
    for name in failed:
        entry = last[key_of(text_of(int(name[1:])))]
        # A reply that came again, of another model then and now, has none of the habits of its first time.
        assert entry.fault in {"http_400", "http_403"} or "other_model" in entry.habits or entry.repeats


def check_counted(dataset: Dataset, ran: list[Ran], rows: list[dict[str, Any]], failures: list[Failure]) -> None:
    """What a run had counted is on the disk, whatever became of it; and a run that ended counts what it said."""
    assert counted_lost(ran, rows) == set()
    for one in ran:
        told = Counter(tuple(event) for event in one.said("failure"))
        paths = dataset.failures.glob(f"*-{one.pid}.jsonl")
        lines = [json.loads(line) for path in paths for line in path.read_bytes().splitlines(keepends=True)
                 if line.endswith(b"\n")]  # fmt: skip
        written = Counter((line["sample_id"], line["reason"]) for line in lines)
        assert told <= written
        for summary in one.said("end"):
            assert told == written
            assert summary["answered"] == len(one.said("kept"))
            assert sum(summary["failures"].values()) == len(one.said("gave_up"))
            assert summary["failed_final"] + summary["failed_transient"] == len(one.said("gave_up"))
    assert sum(len(one.said("kept")) for one in ran) <= len(rows)
    assert len(failures) >= sum(len(one.said("failure")) for one in ran)


def counted_lost(ran: list[Ran], rows: list[dict[str, Any]]) -> set[str]:
    """Request ids of replies that a run had counted, and that have no row."""
    return {name for one in ran for name in one.counted} - {row["request_id"] for row in rows}


def check_money(
    ran: list[Ran], rows: list[dict[str, Any]], failures: list[Failure], entries: list[Entry], seed: int
) -> Figures:
    """Whatever was billed is a row, or a failure with its cost, or could not be read, or was in flight at a kill."""
    billed = {entry.id: entry for entry in entries if entry.billed}
    assert len(billed) == sum(entry.billed for entry in entries)
    kept = {row["request_id"]: row for row in rows}
    assert len(kept) == len(rows)
    assert set(kept) <= set(billed)
    for name, row in kept.items():
        assert row["cost_usd"] in (None, billed[name].cost_usd)
    bodies = [(failure.body or "", failure.cost_usd) for failure in failures]
    noted = {name for name in set(billed) - set(kept) if any(f'"{name}"' in body for body, _ in bodies)}
    for name in noted:
        # None where a reply did not tell what it cost.
        assert {cost for body, cost in bodies if f'"{name}"' in body} <= {billed[name].cost_usd, None}
    cut = {name for name, entry in billed.items() if is_unreadable(entry)} - set(kept) - noted
    lost = set(billed) - set(kept) - noted - cut
    ages = check_lost(ran, entries, lost)
    parts = [set(kept), noted, cut, lost]
    assert sum(len(part) for part in parts) == len(billed)
    total = sum(entry.cost_usd for entry in entries)
    assert sum(billed[name].cost_usd for part in parts for name in part) == pytest.approx(total)
    return Figures(
        seed=seed, kills=sum(one.killed_at is not None for one in ran), runs=len(ran), requests=len(entries),
        replies=len(rows), failed_for_good=PROMPTS - len(rows), billed=len(billed), kept=len(kept), noted=len(noted),
        cut=len(cut), lost=len(lost), counted_lost=len(counted_lost(ran, rows)), unreadable=0,
        oldest_lost_s=round(max(ages, default=0.0), 3),
    )  # fmt: skip


def is_unreadable(entry: Entry) -> bool:
    """Whether what came of an answer is no answer, through no doing of ours."""
    return entry.fault in UNREADABLE or all(kind & set(entry.habits) for kind in UNENDED)


def check_lost(ran: list[Ran], entries: list[Entry], lost: set[str | None]) -> list[float]:
    """Each was asked for by a run that was killed before it counted it; their ages at the kill, in seconds."""
    ages = []
    ends = [one.first for one in ran[1:]] + [len(entries)]
    for one, end in zip(ran, ends, strict=True):
        # A reply that comes again bears the id of its first time, and is not billed again.
        gone = [entry for entry in entries[one.first : end] if entry.billed and entry.id in lost]
        assert one.killed_at is not None or not gone, [(e.id, e.fault, e.habits, e.attempt) for e in gone]
        # Replies wait for the disk after their slot is free: asks that are worked at are at most twice the slots.
        assert len(gone) <= 2 * CONCURRENCY
        for entry in gone:
            assert entry.id not in one.counted
            assert entry.answered is not None
            assert one.killed_at is not None
            ages.append(max(0.0, one.killed_at - entry.answered))
    return ages


def test_a_lost_reply_that_no_kill_explains_is_found():
    entry = Entry(number=0, face="openrouter", received=1.0, body_sha256="", id="gen-1", billed=True, answered=1.5)
    check: Callable[[Ran], list[float]] = lambda one: check_lost([one], [entry], {"gen-1"})  # noqa: E731
    assert check(Ran(pid=1, first=0, killed_at=2.0)) == [0.5]
    with pytest.raises(AssertionError):
        check(Ran(pid=1, first=0))
    with pytest.raises(AssertionError):
        check(Ran(pid=1, first=0, killed_at=2.0, events=[["kept", "p0", "gen-1"]]))
