"""Shards and their parts are measured side by side: what comes out is the same, and every shard is accounted for."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import toolkit.audit.workers as cores_module
from tests.conftest import ROOT
from toolkit.audit.gather import gather
from toolkit.audit.scratch import scratch_folder
from toolkit.audit.shard_facts import ShardStatus, ShardTask, facts_of_shard, units_of
from toolkit.audit.spread import LocalExecutor
from toolkit.audit.workers import Meanwhile, as_they_end, in_order, threads
from toolkit.columns import SHARD_SCHEMA
from toolkit.errors import ShardError, StoreError, SuiteError
from toolkit.phrases import SHIPPED
from toolkit.records import LiveShard, Verdict
from toolkit.rows import RowBuilder
from toolkit.store.files import sha256_of
from toolkit.store.listing import seal_rows
from toolkit.store.shards import LiveShards, read_live, write_live
from toolkit.store.workspace import Workspace
from toolkit.vocabulary import Vocabulary

from .workspace import Bench, answers, make_bench

ROWS = 70
OF_THE_MOMENT = frozenset({"created_at", "elapsed_s", "shards", "facts", "measured_shards"})


@pytest.fixture
def bench(tmp_path: Path, vocabulary: Vocabulary) -> Bench:
    return make_bench(tmp_path, vocabulary)


def bench_of(root: Path, vocabulary: Vocabulary, cuts: Sequence[int], rows: list[dict[str, Any]]) -> Bench:
    """The same rows, cut into shards of row groups of 7 rows."""
    bench = make_bench(root, vocabulary, rows=0, bad=())
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        seal_rows(bench.dataset, rows[first:last], contract=bench.contract.name)
    live = []
    for shard in read_live(bench.dataset).shards:
        path = bench.dataset.folder / shard.path
        pq.write_table(pq.read_table(path), path, row_group_size=7)
        live.append(LiveShard(path=shard.path, sha256=sha256_of(path), rows=shard.rows))
    write_live(bench.dataset, LiveShards(bench.contract.name, tuple(live)))
    return bench


def said(verdict: Verdict, shards: bool) -> bytes:
    """A verdict without what may differ; with other shards, their names in findings too."""
    plain = {name: value for name, value in msgspec.to_builtins(verdict).items() if name not in OF_THE_MOMENT}
    if not shards:
        plain = {name: value for name, value in plain.items() if name not in ("quarantine_sha256", "learned")}
    return msgspec.json.encode(plain)


@pytest.fixture
def rows(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    builder = RowBuilder(vocabulary.contract, vocabulary)
    made = answers(builder, ROWS, bad=range(0, ROWS, 9))
    for number, row in enumerate(made):
        row["provider"] = ("Chutes", "Inceptron")[number % 2]
        row["completion_tokens"] = len(row["output_ids"]) - number % 2
    return made


@pytest.mark.parametrize("cuts", [(), (30, 31, 50)])
def test_workers_and_units_change_nothing(
    tmp_path: Path, vocabulary: Vocabulary, rows: list[dict[str, Any]], cuts: tuple[int, ...]
) -> None:
    verdicts, quarantines, facts = set(), set(), set()
    bench = bench_of(tmp_path, vocabulary, cuts, rows)
    for workers in (1, 4):
        for unit_bytes in (9_000, 1 << 30):
            found = gather(
                bench.dataset, read_live(bench.dataset).shards, bench.contract, bench.load, seed="", believed={},
                workers=workers, unit_bytes=unit_bytes,
            )  # fmt: skip
            facts.add(tuple(found.files.items()))
        verdicts.add(said(bench.audit(workers=workers), shards=True))
        quarantines.add(bench.dataset.quarantine.read_bytes())
    assert (len(facts), len(verdicts), len(quarantines)) == (1, 1, 1)


def test_one_shard_or_many_say_the_same(tmp_path: Path, vocabulary: Vocabulary, rows: list[dict[str, Any]]) -> None:
    found = []
    for number, cuts in enumerate([(), (1, 20, 21, 60)]):
        bench = bench_of(tmp_path / str(number), vocabulary, cuts, rows)
        verdict = bench.audit()
        quarantine = pq.read_table(bench.dataset.quarantine).drop(["shard", "row_index"])
        found.append((said(verdict, shards=False), quarantine))
        assert verdict.quarantined > 0
        assert {c.completion.name for c in verdict.learned.conventions} == {
            "counts every id",
            "leaves out the terminal",
        }
    assert found[0][0] == found[1][0]
    assert found[0][1].equals(found[1][1])


def task_of(bench: Bench, **changes: Any) -> ShardTask:
    shard = read_live(bench.dataset).shards[0]
    task = ShardTask(
        dataset=bench.dataset, shard=shard, contract=bench.contract, phrases=SHIPPED, believed=None, seed="",
        sampled_rows=64,
    )  # fmt: skip
    return replace(task, **changes)


def test_a_task_and_its_status_travel(bench: Bench) -> None:
    task = pickle.loads(pickle.dumps(task_of(bench)))
    status = pickle.loads(pickle.dumps(facts_of_shard(task, bench.load)))
    assert (status.measured, status.kept, status.fault, status.facts.rows) == (True, True, None, 10)
    assert facts_of_shard(task, bench.load).measured is False


def test_units_cover_a_shard_once(tmp_path: Path, vocabulary: Vocabulary, rows: list[dict[str, Any]]) -> None:
    bench = bench_of(tmp_path, vocabulary, (), rows)
    for unit_bytes in (1, 700, 20_000, 1 << 30):
        units = list(units_of(task_of(bench, unit_bytes=unit_bytes)))
        assert [unit.first for unit in units] == [sum(u.rows for u in units[:i]) for i in range(len(units))]
        assert sum(unit.rows for unit in units) == ROWS
        assert all(unit.first == 7 * unit.groups.start + unit.skipped for unit in units)
    assert len(list(units_of(task_of(bench, unit_bytes=1)))) == ROWS
    assert len(list(units_of(task_of(bench, unit_bytes=1 << 30)))) == 1


def test_a_kernel_of_another_version_is_refused(bench: Bench) -> None:
    with pytest.raises(StoreError, match=r"B3/shards/part-00000\.parquet: expected kernel version 1, this one is"):
        facts_of_shard(task_of(bench, kernel_version=1), bench.load)


def test_a_shard_whose_bytes_changed_is_named(bench: Bench) -> None:
    path = bench.dataset.folder / read_live(bench.dataset).shards[0].path
    path.write_bytes(path.read_bytes()[:-9])
    status = facts_of_shard(task_of(bench), bench.load)
    assert (status.fault or "").startswith("B3/shards/part-00000.parquet: expected sha256")
    found = gather(bench.dataset, read_live(bench.dataset).shards, bench.contract, bench.load, seed="")
    assert (found.measured_shards, found.unreadable) == (1, (status.fault,))


def test_what_nobody_thought_of_is_a_fault_of_the_shard_that_it_met(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> pa.Table:
        raise ValueError("no such thing")

    monkeypatch.setattr("toolkit.audit.shard_facts.measure_slice", measure)
    verdict = bench.audit()
    assert verdict.unreadable == tuple(
        f"B3/shards/part-0000{i}.parquet: cannot be measured: ValueError: no such thing" for i in range(2)
    )
    assert not verdict.passed
    assert not list(bench.dataset.facts.glob("*"))


def test_a_shard_without_a_status_is_no_shard_that_was_read(bench: Bench) -> None:
    class Forgetful:
        def run(self, tasks: Sequence[ShardTask]) -> Generator[ShardStatus, None, None]:
            yield from LocalExecutor(bench.load, 1).run(tasks[1:])

    verdict = bench.audit(executor=Forgetful())
    assert verdict.unreadable == ("shards/part-00000.parquet: its measuring gave no status",)
    assert (verdict.rows, verdict.complete) == (10, False)


@pytest.mark.parametrize("error", [KeyboardInterrupt, StoreError])
def test_an_interrupt_leaves_nothing(bench: Bench, error: type[BaseException]) -> None:
    def interrupt(_: int) -> None:
        raise error("stop")

    before = set(threading.enumerate())
    with pytest.raises(error, match="stop"):
        bench.audit(advance=interrupt)
    assert not [path for path in bench.dataset.folder.rglob("*") if path.name.startswith(".") and path.name != ".lock"]
    assert not bench.dataset.verdict.exists()
    assert {thread for thread in set(threading.enumerate()) - before if not thread.daemon} == set()


def test_scratch_of_a_killed_audit_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    dataset = Workspace(tmp_path).dataset_named("B3")
    dataset.folder.mkdir(parents=True)
    dead = dataset.folder / ".audit-dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "judged-000000.parquet").write_bytes(b"x")
    with scratch_folder(dataset) as one:
        (one / "facts.parquet").write_bytes(b"x")
        assert not dead.exists()
        with scratch_folder(dataset) as other:
            assert one.exists()
            assert one != other
        assert [path.name for path in dataset.folder.iterdir()] == [one.name]
    assert list(dataset.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("quota", "expected"),
    [(None, 8), ("max 100000\n", 8), ("250000 100000\n", 3), ("50000 100000\n", 1), ("9900000 100000\n", 8), ("?", 8)],
)
def test_a_container_has_the_processors_of_its_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, expected: int
) -> None:
    monkeypatch.setattr(cores_module.os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cores_module, "_QUOTA", tmp_path / "cpu.max")
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    assert cores_module.cores() == expected


def test_results_come_in_order_and_few_are_under_way() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def double(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return 2 * number

    begun: list[int] = []

    def items() -> Iterable[int]:
        for number in range(50):
            begun.append(number)
            yield number

    with threads(3) as pool:
        found = in_order(lambda number: pool.submit(double, number), items(), ahead=4)
        assert next(found) == 0
        assert len(begun) == 4
        assert list(found) == [2 * number for number in range(1, 50)]
    assert most <= 3


def test_an_error_of_one_ends_all() -> None:
    def fail(number: int) -> int:
        if number == 3:
            raise ShardError("the third")
        return number

    with threads(2) as pool, pytest.raises(ShardError, match="the third"):
        list(in_order(lambda number: pool.submit(fail, number), range(10), ahead=2))


def test_what_is_begun_meanwhile_gives_its_result_or_what_it_raised() -> None:
    began, may_end = threading.Event(), threading.Event()

    def answer() -> int:
        began.set()
        may_end.wait(10)
        return 42

    asked = Meanwhile(answer)
    assert began.wait(10), "it runs before anybody asks"
    may_end.set()
    assert (asked.result(), asked.result()) == (42, 42)

    def fail() -> None:
        raise ShardError("it went wrong")

    failed = Meanwhile(fail)
    failed.join()
    for _ in range(2):
        with pytest.raises(ShardError, match="it went wrong"):
            failed.result()


@pytest.mark.parametrize(
    "waiting",
    [
        "Meanwhile(Event().wait).result()",
        "Meanwhile(Event().wait).join()",
        "list(as_they_end([Future()]))",
        "list(in_order(lambda _: Future(), range(1), ahead=1))",
    ],
)
def test_an_interrupt_ends_waiting_at_once(waiting: str) -> None:
    # Importing polars is enough to keep signals from a main thread that waits without end.
    script = f"""
import polars
from concurrent.futures import Future
from threading import Event
from toolkit.audit.workers import Meanwhile, as_they_end, in_order

try:
    print("waiting", flush=True)
    {waiting}
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    assert (said, process.returncode) == ("interrupted\n", 0)


def test_what_ends_first_comes_first_and_an_error_of_time_is_none_of_waiting() -> None:
    late: Future[int] = Future()
    early: Future[int] = Future()
    early.set_result(1)
    ended = as_they_end([late, early])
    assert next(ended) is early
    late.set_exception(TimeoutError("its own"))
    assert next(ended) is late
    assert list(ended) == []
    failed = Meanwhile(late.result)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="its own"):
            failed.result()


@pytest.mark.parametrize("by_another", [False, True])
@pytest.mark.parametrize("rows", [0, 10])
def test_what_speaks_against_writing_ends_the_work_without_facts(
    tmp_path: Path, vocabulary: Vocabulary, rows: int, by_another: bool
) -> None:
    bench = make_bench(tmp_path, vocabulary, rows=0, bad=())
    made = answers(RowBuilder(vocabulary.contract, vocabulary), 10)[:rows]
    path = bench.dataset.shards / "part-00000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(made, schema=SHARD_SCHEMA), path)
    live = LiveShard(path="shards/part-00000.parquet", sha256=sha256_of(path), rows=rows)
    write_live(bench.dataset, LiveShards(bench.contract.name, (live,)))

    def refuse() -> None:
        raise SuiteError("no such expectation")

    executor = LocalExecutor(bench.load, 1) if by_another else None
    with pytest.raises(SuiteError, match="no such expectation"):
        gather(bench.dataset, [live], bench.contract, bench.load, seed="", executor=executor, before_writing=refuse)
    assert not list(bench.dataset.facts.glob("*"))


def test_the_vocabulary_is_loaded_once(bench: Bench, tmp_path: Path) -> None:
    gather(
        bench.dataset, read_live(bench.dataset).shards, bench.contract, bench.load, seed="", workers=4, scratch=tmp_path
    )
    assert bench.loaded == 1
