"""Units on processes: the same facts as on threads, and nothing is lost, left over or passed over when one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

import toolkit.audit.gather as gathering
import toolkit.audit.on_processes as processes_module
from toolkit.audit import unit_worker
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


def test_modules_that_lie_in_the_working_folder_are_not_taken(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json.py", "queue.py", "toolkit/__init__.py"):
        path = tmp_path / "foreign" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path / "foreign")
    with unit_processes(bench.contract, 1) as made:
        assert made.submit(task_of(bench), units(bench)[0]).result(timeout=60).num_rows == 1


BEGUN = """
import os, sys, time
sys.path.insert(0, {path!r})
from toolkit.audit.on_processes import unit_processes
from toolkit.contract import read_contract

for fd in (0, 1, 2):
    os.close(fd)
with unit_processes(read_contract("kimi-k2.5"), 2) as made:
    ends = time.monotonic() + 60
    while len(made.pids()) < 2 and time.monotonic() < ends and made._ended is None:
        time.sleep(0.02)
    os._exit(len(made.pids()))
"""


def test_standard_streams_that_are_closed_are_not_mistaken_for_sockets() -> None:
    code = BEGUN.format(path=str(Path(processes_module.__file__).parents[2]))
    assert subprocess.run([sys.executable, "-I", "-c", code], check=False, timeout=120).returncode == 2


def test_an_interrupt_that_reaches_them_ends_none_and_is_no_fault_of_a_shard(
    shards: Bench, processes: UnitProcesses
) -> None:
    until(lambda: len(processes.pids()) == 2)
    pids = processes.pids()
    waiting = [processes.submit(task_of(shards), unit) for unit in units(shards) * 20]
    for future in waiting:
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        assert future.result(timeout=60).num_rows > 0
    assert processes.pids() == pids


def test_who_dies_with_nothing_to_do_takes_no_unit_with_it(
    bench: Bench, processes: UnitProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes_module, "ATTEMPTS", 2)
    until(lambda: len(processes.pids()) == 2)
    killed = processes.pids()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(is_alive, killed)))
    for _ in range(4):
        assert processes.submit(task_of(bench), units(bench)[0]).result(timeout=60).num_rows == 1


def test_one_that_is_killed_before_it_is_ready_again_is_replaced(bench: Bench, kimi: Contract) -> None:
    with unit_processes(kimi, 1) as made:
        until(lambda: len(made.pids()) == 1)
        os.kill(made.pids()[0], signal.SIGKILL)
        for _ in range(ATTEMPTS - 1):
            waiting = made.submit(task_of(bench), units(bench)[0])
            until(lambda: bool(children()) and not made.pids())
            seen = children()
            for pid in seen:
                os.kill(pid, signal.SIGKILL)
            until(lambda seen=seen: not seen & children())  # type: ignore[misc]
        assert waiting.result(timeout=60).num_rows == 1


def children() -> set[int]:
    """Processes that this one began and that have not ended."""
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for pid in " ".join(lists).split() if is_alive(int(pid))}


def test_what_cannot_be_read_ends_a_process_and_is_not_waited_for(bench: Bench, processes: UnitProcesses) -> None:
    unreadable: Any = replace(units(bench)[0], groups=_Unreadable())
    with pytest.raises(ShardError, match="the process that was at it died"):
        processes.submit(task_of(bench), unreadable).result(timeout=60)


class _Unreadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_nobody_thought_of_here_ends_all_and_nobody_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def recv() -> object:
        raise MemoryError

    with unit_processes(bench.contract, 2) as made:
        until(lambda: len(made.pids()) == 2)
        for process in made._running:
            monkeypatch.setattr(process.connection, "recv", recv)
        waiting = [made.submit(task_of(bench), units(bench)[0]) for _ in range(9)]
        for future in waiting:
            with pytest.raises(StoreError, match=r"processes that measure: MemoryError"):
                future.result(timeout=60)


def test_a_future_that_is_given_up_while_it_fails(bench: Bench) -> None:
    class GivenUpMeanwhile(Future[pa.Table]):
        def done(self) -> bool:
            was = super().done()
            self.cancel()
            return was

    job = processes_module._Job(task_of(bench), units(bench)[0], GivenUpMeanwhile())
    job.fail(StoreError("interrupted"))
    assert job.facts.cancelled()


@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "Input/output error"), StoreError("no")])
def test_why_a_process_cannot_begin_is_told_on_every_socket(
    kimi: Contract, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fork() -> int:
        raise error

    monkeypatch.setattr(unit_worker.os, "fork", fork)
    monkeypatch.setattr(unit_worker.gc, "freeze", lambda: None)
    monkeypatch.setattr(unit_worker.signal, "signal", lambda *_: None)
    pairs = [Pipe() for _ in range(3)]
    pairs[0][0].send(kimi)
    unit_worker._serve([theirs for _, theirs in pairs])
    for ours, theirs in pairs:
        said = ours.recv()
        assert isinstance(said, StoreError)
        assert str(error) in str(said)
        assert type(error).__name__ in f"{said} StoreError"
        ours.close()
        theirs.close()


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


def test_one_that_was_stopped_is_ended_too(kimi: Contract) -> None:
    with unit_processes(kimi, 3) as made:
        until(lambda: len(made.pids()) == 3)
        pids = made.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        assert all(map(is_alive, pids))
    until(lambda: not any(map(is_alive, pids)), 10)
    assert made.pids() == []


def test_one_that_died_is_no_zombie(kimi: Contract) -> None:
    with unit_processes(kimi, 3) as made:
        until(lambda: len(made.pids()) == 3)
        killed = made.pids()[1:]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in killed), 10)
        assert not any(map(is_alive, killed))
        assert is_alive(min(set(made.pids()) - set(killed)))


@pytest.mark.parametrize("at", range(1, 8))
def test_nothing_is_left_of_processes_that_could_not_be_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    held, calls = held_here(), iter(range(1, 100))

    def scarce(real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if next(calls) == at:
                raise OSError(24, "Too many open files")
            return real(*arguments, **named)

        return call

    monkeypatch.setattr(processes_module.socket, "socketpair", scarce(processes_module.socket.socketpair))
    monkeypatch.setattr(processes_module.os, "dup", scarce(os.dup))
    monkeypatch.setattr(processes_module.subprocess, "Popen", scarce(subprocess.Popen))
    with (
        pytest.raises(StoreError, match=r"cannot be started: Too many open files; --workers 1 needs none"),
        unit_processes(bench.contract, 3),
    ):
        raise AssertionError
    assert held_here() == held


def test_nothing_is_left_where_threads_cannot_be_started(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    held, real, calls = held_here(), threading.Thread.start, iter(range(100))

    def start(thread: threading.Thread) -> None:
        if next(calls) == 1:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(StoreError, match=r"can't start new thread; --workers 1"), unit_processes(bench.contract, 3):
        raise AssertionError
    assert held_here() == held


def test_many_audits_leave_nothing_here(bench: Bench, kimi: Contract) -> None:
    held = held_here()
    for number in range(4):
        with unit_processes(kimi, 2) as made:
            if number % 2:
                made.submit(task_of(bench), units(bench)[0]).result(timeout=60)
            made.close()
    assert held_here() == held


def held_here() -> tuple[set[str], int, set[int]]:
    """Open sockets, how many threads, and children of this process, zombies too."""
    files = {str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()}
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    sockets = {name for name in files if "socket:" in name}
    return sockets, threading.active_count(), {int(pid) for pid in " ".join(lists).split()}


def test_facts_come_as_a_table(bench: Bench, processes: UnitProcesses) -> None:
    assert isinstance(processes.submit(task_of(bench), units(bench)[0]).result(timeout=60), pa.Table)
