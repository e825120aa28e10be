"""How shard tasks are spread: an executor takes tasks and gives a status for each, in whatever order they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

import pyarrow as pa

from toolkit.audit.on_processes import UnitProcesses
from toolkit.audit.shard_facts import ShardStatus, ShardTask, Unit, facts_of_shard, measure_unit
from toolkit.audit.workers import as_they_end, cores, in_order, threads
from toolkit.errors import StoreError
from toolkit.vocabulary import Vocabulary


class Executor(Protocol):
    """Runs `facts_of_shard` somewhere."""

    def run(self, tasks: Sequence[ShardTask]) -> Generator[ShardStatus, None, None]:
        """One status for each task, as they end. Closing it stops the work.

        Raises:
            StoreError: facts cannot be written.
            ConfigError: the vocabulary cannot be loaded.
        """
        ...


class LocalExecutor:
    """All cores of this machine: shards side by side, and the units of each side by side, so that one large shard is
    spread as many small ones are. At most `workers` units are in memory at a time.

    Args:
        load_vocabulary: Vocabulary of the tasks' contract.
        workers: How many units; None: as many as there are cores.
        before_writing: Called before facts of a shard are written; what it raises ends the work.
        processes: What measures units, and is ended where the work breaks off; None: threads of this process.
    """

    def __init__(
        self,
        load_vocabulary: Callable[[], Vocabulary],
        workers: int | None = None,
        before_writing: Callable[[], object] = lambda: None,
        processes: UnitProcesses | None = None,
    ):
        self.workers = processes.count if processes is not None else workers or cores()
        self._load = load_vocabulary
        self._before_writing = before_writing
        self._processes = processes
        self._loading = threading.Lock()

    def run(self, tasks: Sequence[ShardTask]) -> Generator[ShardStatus, None, None]:
        """See `Executor`."""
        stopped = threading.Event()
        with threads(self.workers) as units, threads(min(self.workers, len(tasks))) as shards:

            def run_units(task: ShardTask, found: Iterable[Unit]) -> Iterator[pa.Table]:
                for table in in_order(self._begin_with(task, units), found, ahead=2 * self.workers):
                    self._before_writing()
                    if stopped.is_set():
                        raise StoreError("interrupted")
                    yield table
                self._before_writing()  # a shard without rows has facts too

            try:
                waiting = [shards.submit(facts_of_shard, task, self._vocabulary, run_units) for task in tasks]
                for ended in as_they_end(waiting):
                    yield ended.result()
            except BaseException:
                if self._processes is not None:
                    self._processes.close()  # so that nobody waits for what they are at
                raise
            finally:
                stopped.set()

    def _begin_with(self, task: ShardTask, pool: ThreadPoolExecutor) -> Callable[[Unit], Future[pa.Table]]:
        """What begins to measure a unit."""
        if self._processes is not None:
            return partial(self._processes.submit, task)
        vocabulary = self._vocabulary()
        return lambda unit: pool.submit(measure_unit, task, unit, vocabulary)

    def _vocabulary(self) -> Vocabulary:
        """The vocabulary with its engines: made once, before several threads need it at once."""
        with self._loading:
            vocabulary = self._load()
            vocabulary.make_engines()
            return vocabulary
