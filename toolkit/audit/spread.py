"""How shard tasks are spread: an executor takes tasks and gives a status for each, in whatever order they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from typing import Protocol

import pyarrow as pa

from toolkit.audit.shard_facts import ShardStatus, ShardTask, Unit, facts_of_shard
from toolkit.audit.workers import cores, in_order, threads
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
    spread as many small ones are. At most `workers` units are in memory at a time."""

    def __init__(self, load_vocabulary: Callable[[], Vocabulary], workers: int | None = None):
        self.workers = workers or cores()
        self._load = load_vocabulary
        self._loading = threading.Lock()

    def run(self, tasks: Sequence[ShardTask]) -> Generator[ShardStatus, None, None]:
        """See `Executor`."""
        stopped = threading.Event()
        with threads(self.workers) as units, threads(min(self.workers, len(tasks))) as shards:

            def run_units(measure: Callable[[Unit], pa.Table], found: Iterable[Unit]) -> Iterator[pa.Table]:
                for table in in_order(units, measure, found, ahead=self.workers + 1):
                    if stopped.is_set():
                        raise StoreError("interrupted")
                    yield table

            try:
                waiting = [shards.submit(facts_of_shard, task, self._vocabulary, run_units) for task in tasks]
                for ended in as_completed(waiting):
                    yield ended.result()
            finally:
                stopped.set()

    def _vocabulary(self) -> Vocabulary:
        """The vocabulary with its engines: made once, before several threads need it at once."""
        with self._loading:
            vocabulary = self._load()
            vocabulary.make_engines()
            return vocabulary
