"""Units on processes: the same facts as on threads, and nothing is lost, left over or passed over when one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

import toolkit.audit.gather as gathering
import toolkit.audit.on_processes as processes_module
from toolkit.audit.gather import gather
from toolkit.audit.on_processes import ATTEMPTS, UnitProcesses, affordable, unit_processes
from toolkit.audit.shard_facts import Unit, measure_unit, units_of
from toolkit.audit.spread import LocalExecutor
from toolkit.contract import Contract
from toolkit.errors import ConfigError, ContractError, ShardError, StoreError
from toolkit.rows import RowBuilder
from toolkit.store.shards import read_live
from toolkit.vocabulary import Vocabulary

from .test_spread import bench_of, said, task_of
from .workspace import Bench, answers, make_bench

ROWS = 70


@pytest.fixture(scope="module")
def processes(kimi: Contract) -> Iterator[UnitProcesses]:
    with unit_processes(kimi, 2) as made:
        yield made


@pytest.fixture
def bench(tmp_path: Path, vocabulary: Vocabulary) -> Bench:
    return make_bench(tmp_path, vocabulary)


@pytest.fixture
def shards(tmp_path: Path, vocabulary: Vocabulary) -> Bench:
    """70 rows in four shards of row groups of 7."""
    builder = RowBuilder(vocabulary.contract, vocabulary)
    return bench_of(tmp_path / "shards", vocabulary, (30, 31, 50), answers(builder, ROWS, bad=range(0, ROWS, 9)))


def gathered(bench: Bench, processes: UnitProcesses | None, **how: Any) -> Any:
    shards = read_live(bench.dataset).shards
    how = {"believed": {}, "unit_bytes": 9_000, **how}
    executor = None if processes is None else LocalExecutor(bench.load, processes=processes)
    return gather(bench.dataset, shards, bench.contract, bench.load, seed="", executor=executor, **how)


def units(bench: Bench) -> list[Unit]:
    return list(units_of(task_of(bench, unit_bytes=1)))


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not yet taken note of does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


# --- the same facts -------------------------------------------------------------------------------


@pytest.mark.parametrize("text_health", [True, False])
def test_facts_are_those_of_threads_byte_for_byte(
    shards: Bench, processes: UnitProcesses, *, text_health: bool
) -> None:
    on_threads = gathered(shards, None, text_health=text_health, workers=2)
    on_processes = gathered(shards, processes, text_health=text_health)
    assert on_processes.files == on_threads.files
    assert len(on_processes.files) == on_processes.measured_shards == 4
    assert on_processes.unreadable == ()


def test_the_verdict_is_that_of_threads(
    shards: Bench, processes: UnitProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_threads = shards.audit(workers=2)
    for path in shards.dataset.facts.iterdir():
        path.unlink()
    started = as_for_much(monkeypatch, processes)
    on_processes = shards.audit(workers=2)
    assert started == [2]
    assert on_processes.measured_shards == 4
    assert said(on_processes, shards=True) == said(on_threads, shards=True)


def as_for_much(monkeypatch: pytest.MonkeyPatch, processes: UnitProcesses) -> list[int]:
    """Take everything for much to measure, and `processes` for those that are begun; how many were asked for."""
    started: list[int] = []

    def begun(contract: Contract, count: int) -> Any:
        started.append(count)
        return nullcontext(processes)

    monkeypatch.setattr(gathering, "_MUCH_BYTES", 1)
    monkeypatch.setattr(gathering, "affordable", lambda count: count)
    monkeypatch.setattr(gathering, "unit_processes", begun)
    return started


def test_processes_are_begun_where_there_is_much_to_measure(
    shards: Bench, processes: UnitProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = as_for_much(monkeypatch, processes)
    gathered(shards, None, workers=3)
    assert started == [3]
    gathered(shards, None, workers=1)
    gathered(shards, None, workers=3, believed=None)  # kept facts hold
    assert started == [3]
    gathered(shards, None, workers=3, believed={}, scratch=shards.dataset.folder)  # none of them is taken
    assert started == [3, 3]
    monkeypatch.setattr(gathering, "affordable", lambda _: 1)
    gathered(shards, None, workers=3)
    monkeypatch.setattr(gathering, "_MUCH_BYTES", 1 << 40)
    gathered(shards, None, workers=3)
    assert started == [3, 3]


def test_what_memory_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 <= affordable(1_000_000) < 1_000_000
    assert affordable(0) == 0
    monkeypatch.setattr(processes_module, "_GROUP", tmp_path)
    monkeypatch.setattr(processes_module, "_BYTES_EACH", 1 << 20)
    (tmp_path / "memory.current").write_text(f"{1 << 20}\n")
    (tmp_path / "memory.stat").write_text(f"anon 7\nactive_file {1 << 18}\ninactive_file {1 << 18}\n")
    for most, allowed in ((3 << 20, 2), (1 << 19, 0), (5 << 19, 2)):
        (tmp_path / "memory.max").write_text(f"{most}\n")
        assert affordable(1_000) == allowed
    (tmp_path / "memory.max").write_text("max\n")
    assert affordable(3) == 3


# --- what goes wrong --------------------------------------------------------------------------------


def test_a_process_that_is_killed_is_replaced_and_nothing_is_lost(
    shards: Bench, processes: UnitProcesses, vocabulary: Vocabulary
) -> None:
    until(lambda: len(processes.pids()) == 2)
    task, found = task_of(shards), units(shards)
    waiting = [processes.submit(task, unit) for unit in found * 40]
    killed = processes.pids()[1]
    waiting[3].result(timeout=60)
    os.kill(killed, signal.SIGKILL)
    expected = [measure_unit(task, unit, vocabulary) for unit in found]
    for number, future in enumerate(waiting):
        assert future.result(timeout=60).equals(expected[number % len(found)])
    assert not is_alive(killed)
    until(lambda: len(processes.pids()) == 2)
    assert killed not in processes.pids()


def test_a_unit_that_takes_its_process_with_it_is_a_fault_of_its_shard(bench: Bench, processes: UnitProcesses) -> None:
    unit = units(bench)[0]
    deadly: Any = map(os._exit, [9])  # to whoever asks for the row groups
    lost = processes.submit(task_of(bench), replace(unit, groups=deadly))
    others = [processes.submit(task_of(bench), unit) for _ in range(6)]
    with pytest.raises(ShardError, match=rf"cannot be measured: the process that was at it died, {ATTEMPTS} times"):
        lost.result(timeout=120)
    assert [future.result(timeout=120).num_rows for future in others] == [1] * 6


def test_faults_of_shards_are_named_and_the_others_measured(shards: Bench, processes: UnitProcesses) -> None:
    live = read_live(shards.dataset).shards
    paths = [shards.dataset.folder / shard.path for shard in live]
    paths[0].write_bytes(paths[0].read_bytes()[:-100])
    paths[1].unlink()
    content = bytearray(paths[2].read_bytes())
    content[len(content) // 3] ^= 1
    paths[2].write_bytes(content)
    found = gathered(shards, processes, verify=True)
    assert found.measured_shards == 1
    assert [Path(fault.partition(":")[0]).name for fault in found.unreadable] == [path.name for path in paths[:3]]
    # Where nobody holds the bytes against shards.json, the process says what it cannot read.
    unheld = gathered(shards, processes, verify=False)
    assert [Path(fault.partition(":")[0]).name for fault in unheld.unreadable][:2] == [path.name for path in paths[:2]]


def test_what_nobody_thought_of_is_a_fault_of_the_shard(bench: Bench, processes: UnitProcesses) -> None:
    broken: Any = replace(units(bench)[0], groups=None)
    with pytest.raises(ShardError, match=r"part-00000.parquet: cannot be measured: TypeError: "):
        processes.submit(task_of(bench), broken).result(timeout=60)
    assert processes.submit(task_of(bench), units(bench)[0]).result(timeout=60).num_rows == 1


def test_a_vocabulary_that_cannot_be_loaded(bench: Bench, kimi: Contract, tmp_path: Path) -> None:
    spec = structs.replace(kimi.vocabulary, source=f"folder:{tmp_path}/none")
    with (
        unit_processes(structs.replace(kimi, vocabulary=spec), 2) as made,
        pytest.raises(ContractError, match=r"expected tiktoken.model"),
    ):
        gathered(bench, made)
    assert issubclass(ContractError, ConfigError)


@pytest.mark.parametrize("program", ["/bin/false", "/nonexistent/python"])
def test_processes_that_do_not_begin(bench: Bench, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(processes_module.sys, "executable", program)
    with (
        pytest.raises(StoreError, match=r"process.*; --workers 1 needs none"),
        unit_processes(bench.contract, 2) as made,
    ):
        gathered(bench, made)


def test_a_process_that_is_never_ready(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    idle = tmp_path / "idle"
    idle.write_text("#!/bin/sh\nexec sleep 600\n")
    idle.chmod(0o755)
    monkeypatch.setattr(processes_module.sys, "executable", str(idle))
    monkeypatch.setattr(processes_module, "_READY_S", 0.5)
    with (
        unit_processes(bench.contract, 1) as made,
        pytest.raises(StoreError, match=r"not ready within 0.5 s"),
    ):
        gathered(bench, made)


# --- nothing stays behind ---------------------------------------------------------------------------


def test_all_are_gone_when_the_block_is_left(bench: Bench, kimi: Contract) -> None:
    pids: list[int] = []

    def leave() -> None:
        with unit_processes(kimi, 2) as made:
            until(lambda: len(made.pids()) == 2)
            pids.extend(made.pids())
            waiting = [made.submit(task_of(bench), unit) for unit in units(bench) * 50]
            waiting[0].result(timeout=60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    until(lambda: not any(map(is_alive, pids)), 10)


def test_an_interrupt_does_not_wait_for_them(bench: Bench, kimi: Contract) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with unit_processes(kimi, 2) as made:
        with pytest.raises(KeyboardInterrupt):
            gathered(bench, made, advance=stop)
        with pytest.raises(StoreError, match="interrupted"):
            made.submit(task_of(bench), units(bench)[0]).result(timeout=10)
        assert made.pids() == []


ABANDONED = """
import sys, time
from toolkit.audit.on_processes import unit_processes
from toolkit.contract import read_contract

with unit_processes(read_contract("kimi-k2.5"), 2) as made:
    while len(made.pids()) < 2:
        time.sleep(0.02)
    print(*made.pids(), flush=True)
    time.sleep(600)
"""


def test_they_end_with_the_process_that_began_them() -> None:
    with subprocess.Popen([sys.executable, "-c", ABANDONED], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        try:
            assert len(pids) == 2
            assert all(map(is_alive, pids))
        finally:
            parent.kill()
    until(lambda: not any(map(is_alive, pids)), 10)


def test_facts_come_as_a_table(bench: Bench, processes: UnitProcesses) -> None:
    assert isinstance(processes.submit(task_of(bench), units(bench)[0]).result(timeout=60), pa.Table)
