"""Units of shards on processes of this machine, one core each.

Threads of one process share its interpreter, too, for which each of them waits a fifth of the time on two cores and
most of it on many. Processes need two seconds before they can begin, so that they are for datasets of which there is
much to measure. One is started, and becomes all of them when it has loaded what they need (`unit_worker`).

A process that dies is replaced, and what it was at is tried again; a unit that is lost with its process several times
is a fault of its shard.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

import toolkit
from toolkit.audit.shard_facts import ShardTask, Unit
from toolkit.contract import Contract
from toolkit.errors import ShardError, StoreError, TokenproofError

ATTEMPTS = 3
"""How often a unit is tried that takes its process with it."""

_AHEAD = 2
"""Units that a process is given before it has answered: so it need not wait for the next one."""

_BYTES_EACH = 1 << 30
"""Memory that a process may come to take, at most."""

_GROUP = Path("/sys/fs/cgroup")
"""Where a container finds the limits that it was given."""

_READY_S = 300.0
"""How long processes may take to be ready, however busy the machine is."""

_ONE_CORE = {
    "POLARS_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip


@dataclass(slots=True)
class _Job:
    """One unit to be measured; `lost` is how many processes died while they were at it."""

    task: ShardTask
    unit: Unit
    facts: Future[pa.Table]
    lost: int = 0

    def fail(self, error: BaseException) -> None:
        """Say why there are no facts, if anybody is still to be told."""
        if not self.facts.done():
            self.facts.set_exception(error)


@contextmanager
def unit_processes(contract: Contract, count: int) -> Iterator[UnitProcesses]:
    """So many processes that measure units under a contract, for as long as the block runs."""
    processes = UnitProcesses(contract, count)
    try:
        yield processes
    finally:
        processes.close()


def affordable(count: int) -> int:
    """How many of so many processes there is memory for now; 0 where nobody says how much there is."""
    return min(count, max(0, min(_free_bytes(), default=0)) // _BYTES_EACH)


def _free_bytes() -> Iterator[int]:
    """What the machine has left, and what the control group of a container has."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        yield from (int(line.split()[1]) * 1_024 for line in lines if line.startswith("MemAvailable:"))
    with suppress(OSError, ValueError):  # "max", or no group
        most, held = (int((_GROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines())
        # What was read of files counts as held, and is given up for anything else.
        yield most - held + int(stat.get("active_file", 0)) + int(stat.get("inactive_file", 0))


class UnitProcesses:
    """Processes that measure units of shards; see `unit_processes`. Each has a thread here that keeps it busy."""

    def __init__(self, contract: Contract, count: int):
        self.count = count
        self._contract = contract
        self._changed = threading.Condition()
        # All below is touched with `_changed` held.
        self._jobs: deque[_Job] = deque()
        self._running: set[_Process] = set()
        self._ended: TokenproofError | None = None
        self._threads = [
            threading.Thread(target=self._tend, args=(process,), daemon=True) for process in self._start(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: ShardTask, unit: Unit) -> Future[pa.Table]:
        """Have a unit measured. Instead of its facts there may come ShardError, where its shard is at fault, or
        ConfigError or StoreError where no process can measure."""
        job = _Job(task, unit, Future())
        with self._changed:
            if self._ended is not None:
                job.fail(self._ended)
            else:
                self._jobs.append(job)
                self._changed.notify()
        return job.facts

    def pids(self) -> list[int]:
        """The processes that are ready at this moment."""
        with self._changed:
            return sorted(process.pid for process in self._running if process.pid is not None)

    def close(self) -> None:
        """End all processes at once, whatever they are at."""
        self._end(StoreError("interrupted"))
        for thread in self._threads:
            thread.join()

    def _end(self, why: TokenproofError) -> None:
        """Begin nothing more. Whatever is waited for fails."""
        with self._changed:
            self._ended = self._ended or why
            for process in self._running:
                process.stop()
            for job in self._jobs:
                job.fail(self._ended)
            self._jobs.clear()
            self._changed.notify_all()

    # --- one thread for each process ------------------------------------------------------------------

    def _tend(self, process: _Process | None) -> None:
        """Keep a process busy, and another where it dies, until nothing more is to be measured."""
        under_way: deque[_Job] = deque()
        try:
            while process is not None:
                try:
                    process.wait_until_ready()
                    self._feed(process, under_way)
                except (EOFError, OSError):
                    self._mourn(under_way)
                finally:
                    self._forget(process)
                process = next(iter(self._start(1)), None)
        except TokenproofError as error:
            self._end(error)
        finally:
            for job in under_way:
                job.fail(self._ended or StoreError("interrupted"))

    def _start(self, count: int) -> list[_Process]:
        """So many processes more; none, if none are wanted any more.

        Raises:
            StoreError: they cannot be started.
        """
        with self._changed:
            if self._ended is not None:
                return []
            try:
                started = start_processes(self._contract, count)
            except OSError as error:
                raise StoreError(f"processes that measure cannot be started: {error.strerror}; {_NONE}") from None
            self._running.update(started)
            return started

    def _forget(self, process: _Process) -> None:
        process.end()
        with self._changed:
            self._running.discard(process)

    def _feed(self, process: _Process, under_way: deque[_Job]) -> None:
        """Give a process units and take their facts, until no more will come.

        Raises:
            EOFError, OSError: it has died.
        """
        while True:
            while len(under_way) < _AHEAD and (job := self._next(wait=not under_way)) is not None:
                under_way.append(job)
                process.connection.send((job.task, job.unit.without_metadata()))
            if not under_way:
                return
            found = process.connection.recv()
            job = under_way.popleft()
            if isinstance(found, pa.Table):
                job.facts.set_result(found)
            else:
                job.fail(found)

    def _next(self, *, wait: bool) -> _Job | None:
        """The next unit that is still waited for; None: there is none now or, where it is waited for, ever."""
        with self._changed:
            while self._ended is None:
                while self._jobs:
                    job = self._jobs.popleft()
                    if job.facts.running() or job.facts.set_running_or_notify_cancel():
                        return job
                if not wait:
                    return None
                self._changed.wait()
        return None

    def _mourn(self, under_way: deque[_Job]) -> None:
        """Have what was under way tried again; the first of it is what the process was at when it died.

        Raises:
            StoreError: it died at nothing: the next one would, too.
        """
        with self._changed:
            if self._ended is not None:
                return
        if not under_way:
            raise StoreError(f"a process that should measure died while nothing was asked of it; {_NONE}")
        first = under_way[0]
        first.lost += 1
        if first.lost >= ATTEMPTS:
            under_way.popleft()
            why = f"cannot be measured: the process that was at it died, {ATTEMPTS} times"
            first.fail(ShardError(f"{first.task.where}: {why}"))
        with self._changed:
            self._jobs.extendleft(reversed(under_way))
            under_way.clear()
            self._changed.notify_all()


_NONE = "--workers 1 needs none"


class _Process:
    """One process, and our end of the sockets between us; it ends when that is closed.

    Attributes:
        root: The process that it was, or was forked from.
        pid: Its own id, once it is ready.
    """

    def __init__(self, root: subprocess.Popen[bytes], ours: socket.socket):
        self.root = root
        self.pid: int | None = None
        self._socket = ours
        self.connection = Connection(os.dup(ours.fileno()))

    def wait_until_ready(self) -> None:
        """Wait for its word.

        Raises:
            EOFError, OSError: it has died.
            TokenproofError: why it cannot measure.
        """
        if not self.connection.poll(_READY_S):
            raise StoreError(f"a process that should measure was not ready within {_READY_S:g} s; {_NONE}")
        word = self.connection.recv()
        if isinstance(word, TokenproofError):
            raise word
        self.pid = word

    def stop(self) -> None:
        """End it at once; a thread that waits for it is told so by its socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """See that it ends, and leave nothing of it here."""
        self.stop()
        self.connection.close()
        self._socket.close()
        if self.pid in (None, self.root.pid):
            self.root.kill()
            self.root.wait()


def start_processes(contract: Contract, count: int) -> list[_Process]:
    """Start one process, which becomes so many.

    Raises:
        OSError: it cannot be started.
    """
    with ExitStack() as undo:
        pairs = [socket.socketpair() for _ in range(count)]
        for one in chain.from_iterable(pairs):
            undo.callback(one.close)
        theirs = [their.fileno() for _, their in pairs]
        # In a session of its own: an interrupt at the terminal is for the process that was started there.
        root = subprocess.Popen(  # noqa: S603 (a module of our own)
            [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "toolkit.audit.unit_worker", *map(str, theirs)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=theirs,
            env={**os.environ, **_ONE_CORE, "PYTHONPATH": _search_path()}, start_new_session=True,
        )  # fmt: skip
        undo.pop_all()
    for _, their in pairs:
        their.close()
    processes = [_Process(root, ours) for ours, _ in pairs]
    with suppress(OSError):  # whoever waits for its word is told
        processes[0].connection.send(contract)
    return processes


def _search_path() -> str:
    """Where the other process finds this package: wherever this one did, first of all."""
    own = str(Path(toolkit.__file__).parents[1])
    return os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])
