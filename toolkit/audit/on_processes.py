"""Units of shards on processes of this machine, one core each.

Threads of one process share its interpreter, too, for which each of them waits a fifth of the time on two cores and
most of it on many. Processes need two seconds before they can begin, so that they are for datasets of which there is
much to measure. One is started, and becomes all of them when it has loaded what they need (`unit_worker`).

A process that dies is replaced, and what it was at is tried again; a unit that is lost with its process several times
is a fault of its shard. Who dies before any was ready is not replaced: what it died of is there for the next one, too.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

import toolkit
from toolkit.audit.shard_facts import ShardTask, Unit
from toolkit.contract import Contract
from toolkit.errors import ShardError, StoreError, TokenproofError

ATTEMPTS = 3
"""How often a unit is tried that takes its process with it, and how many processes in a row may die at nothing."""

_AHEAD = 2
"""Units that a process is given before it has answered: so it need not wait for the next one."""

_BYTES_EACH = 1 << 30
"""Memory that is to be free for each process: two thirds of it are taken where rows are as usual, and 1.2 GB by one
that meets a text of 50 MB or a row of 10 million ids."""

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
            with suppress(InvalidStateError):  # given up since then
                self.facts.set_exception(error)


@contextmanager
def unit_processes(contract: Contract, count: int) -> Iterator[UnitProcesses]:
    """So many processes that measure units under a contract, for as long as the block runs."""
    processes = UnitProcesses(contract, count)
    try:
        processes.start()
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
        self._any_was_ready = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin; `close` must be called in the end, whatever comes of it.

        Raises:
            StoreError: the processes cannot be started.
        """
        for process in self._start(self.count):
            thread = threading.Thread(target=self._tend, args=(process,), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise _not_started(str(error)) from None
            self._threads.append(thread)

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
        """End all processes at once, whatever they are at. May be called again."""
        self._end(StoreError("interrupted"))
        for thread in self._threads:
            thread.join()
        with self._changed:
            untended = list(self._running)
        for process in untended:
            self._forget(process)

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
        idle_deaths = 0
        try:
            while process is not None:
                try:
                    self._welcome(process)
                    self._feed(process, under_way)
                except (EOFError, OSError):
                    idle_deaths = 0 if under_way else idle_deaths + 1
                    self._mourn(under_way, idle_deaths)
                finally:
                    self._forget(process)
                process = next(iter(self._start(1)), None)
        except TokenproofError as error:
            self._end(error)
        except BaseException as error:  # noqa: BLE001 (whoever waits for facts must hear of it)
            self._end(StoreError(f"processes that measure: {type(error).__name__}: {str(error)[:200]}; {_NONE}"))
        finally:
            self._put_back(under_way)

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
                raise _not_started(error.strerror or str(error)) from None
            self._running.update(started)
            return started

    def _forget(self, process: _Process) -> None:
        with self._changed:
            if process not in self._running:
                return
            self._running.remove(process)
        process.end()

    def _welcome(self, process: _Process) -> None:
        """Wait until a process is ready.

        Raises:
            EOFError, OSError: it has died.
            TokenproofError: why it cannot measure.
        """
        process.wait_until_ready()
        with self._changed:
            self._any_was_ready = True

    def _feed(self, process: _Process, under_way: deque[_Job]) -> None:
        """Give a process units and take their facts, until no more will come.

        Raises:
            EOFError, OSError: it has died.
        """
        while True:
            while len(under_way) < _AHEAD and (job := self._next(wait=not under_way)) is not None:
                try:
                    process.connection.send((job.task, job.unit.without_metadata()))
                except BaseException:
                    self._put_back([job])  # it was never begun
                    raise
                under_way.append(job)
            if not under_way:
                return
            found = process.connection.recv()
            if isinstance(found, pa.Table):
                under_way[0].facts.set_result(found)
            else:
                under_way[0].fail(found)
            under_way.popleft()

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

    def _mourn(self, under_way: deque[_Job], idle_deaths: int) -> None:
        """Have what was under way tried again; the first of it is what the process was at when it died.

        Raises:
            StoreError: it died at nothing, as so many before it: the next one would, too.
        """
        if not under_way:
            if idle_deaths >= ATTEMPTS or not self._any_was_ready:
                raise StoreError(f"a process that should measure died while nothing was asked of it; {_NONE}")
            return
        first = under_way[0]
        first.lost += 1
        if first.lost >= ATTEMPTS and self._ended is None:
            under_way.popleft()
            why = f"cannot be measured: the process that was at it died, {ATTEMPTS} times"
            first.fail(ShardError(f"{first.task.where}: {why}"))
        self._put_back(under_way)
        under_way.clear()

    def _put_back(self, jobs: Sequence[_Job]) -> None:
        """Have jobs done by another process before all others; where there are none any more, fail them."""
        with self._changed:
            if self._ended is None:
                self._jobs.extendleft(reversed(jobs))
                self._changed.notify_all()
                return
            for job in jobs:
                job.fail(self._ended)


_NONE = "--workers 1 needs none"


def _not_started(why: str) -> StoreError:
    return StoreError(f"processes that measure cannot be started: {why}; {_NONE}")


class _Family:
    """The process that was started, and those that were forked from it: one group.

    It is waited for when none of them is of use any more. Until then its id, which is the group's, is nobody else's, so
    that the group can be killed, with those of it that were stopped or do not hear.
    """

    def __init__(self, root: subprocess.Popen[bytes], members: int):
        self._root = root
        self._members = members
        self._counting = threading.Lock()

    def leave(self) -> None:
        """One of them is of no use any more; the last one ends all."""
        with self._counting:
            self._members -= 1
            if self._members:
                return
        with suppress(ProcessLookupError, PermissionError):  # none of them is left
            os.killpg(self._root.pid, signal.SIGKILL)
        self._root.wait()


class _Process:
    """One process, and our end of the sockets between us; it ends when that is closed.

    Attributes:
        pid: Its id, once it is ready.
    """

    def __init__(self, family: _Family, ours: socket.socket, connection: Connection):
        self.pid: int | None = None
        self._family = family
        self._socket = ours
        self.connection = connection

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
        self._family.leave()


def start_processes(contract: Contract, count: int) -> list[_Process]:
    """Start one process, which becomes so many.

    Raises:
        OSError: it cannot be started.
    """
    with ExitStack() as undo, ExitStack() as theirs_here:
        ours, theirs, connections = [], [], []
        for _ in range(count):
            our, their = (undo.enter_context(end) for end in socket.socketpair())
            connections.append(undo.enter_context(Connection(os.dup(our.fileno()))))
            ours.append(our)
            # 0, 1 and 2 are free where the standard streams are closed, and would be these in the other process.
            theirs.append(fcntl.fcntl(their.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
            theirs_here.callback(os.close, theirs[-1])
            their.close()
        # In a session of its own: an interrupt at the terminal is for the process that was started there.
        root = subprocess.Popen(  # noqa: S603 (a module of our own)
            [*_interpreter(), *map(str, theirs)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=theirs,
            env={**os.environ, **_ONE_CORE}, start_new_session=True,
        )  # fmt: skip
        undo.pop_all()
    family = _Family(root, count)
    processes = [_Process(family, *ends) for ends in zip(ours, connections, strict=True)]
    with suppress(OSError):  # whoever waits for its word is told
        connections[0].send(contract)
    return processes


_BEGIN = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
sys.path[:] = {path}
from toolkit.audit.unit_worker import main
main()
"""
"""What a process begins with. An interrupt is for the process that started it, and that ends it; it is kept from all
threads, since polars has a handler of its own where it is ignored."""


def _interpreter() -> list[str]:
    """What runs Python there. It finds modules where this process does: not in the folder that it is started in, nor in
    one that an isolated interpreter leaves aside."""
    letters = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    own = str(Path(toolkit.__file__).parents[1])
    path = [folder for folder in sys.path if isinstance(folder, str)]
    code = _BEGIN.format(path=ascii(path if own in path else [own, *path]))
    flags = [letter for letter, is_set in letters.items() if is_set]
    return [sys.executable, *flags, "-P", "-W", "ignore::DeprecationWarning", "-c", code]
