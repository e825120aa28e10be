"""Processes that measure units of shards for another one: what `python -m toolkit.audit.unit_worker FD...` runs.

It loads a contract's vocabulary, and then becomes as many processes as there are sockets. They share the memory of all
that was loaded, and load it once. Each is asked over its socket, one unit after the other, and ends as soon as the
other end is closed, whatever it is at. None of them writes a file: what was found goes back as a table.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import polars as pl
import pyarrow as pa

from toolkit.audit.shard_facts import ShardTask, Unit, measure_unit, unthought_of
from toolkit.errors import ShardError, TokenproofError
from toolkit.store.shards import open_shard
from toolkit.vocabulary import Vocabulary, load_vocabulary


def main() -> None:
    """Serve whoever holds the other ends of the sockets that the arguments name."""
    pa.set_cpu_count(1)
    connections = [Connection(int(fd)) for fd in sys.argv[1:]]
    try:
        _serve(connections)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # nobody is left to be answered


def _serve(connections: Sequence[Connection]) -> None:
    """Take a contract from the first connection, say on each whether units can be measured under it (the process's id,
    or the error), and answer each (task, unit) that comes then with its facts or an error.

    Raises:
        EOFError, OSError: the other end is closed.
    """
    try:
        vocabulary = load_vocabulary(connections[0].recv())
        vocabulary.make_shared()
    except TokenproofError as error:
        for connection in connections:
            connection.send(error)
        return
    own = _one_of(connections)
    came: SimpleQueue[Any] = SimpleQueue()
    # What comes is taken at once: the other end may send and not read while it does.
    threading.Thread(target=_take_all, args=(own, came), daemon=True).start()
    try:
        vocabulary.make_engines()
    except TokenproofError as error:
        own.send(error)
        return
    _begin_threads(vocabulary)
    own.send(os.getpid())
    shard = _LastShard()
    while True:
        task, unit = came.get()
        own.send(shard.measured(task, unit, vocabulary))


def _one_of(connections: Sequence[Connection]) -> Connection:
    """Become as many processes as there are connections; in each, its own, the others closed."""
    # What is there already is not looked through again, which would copy it.
    gc.collect()
    gc.freeze()
    own = connections[0]
    for connection in connections[1:]:
        if os.fork() == 0:
            own = connection
            break
    for other in connections:
        if other is not own:
            other.close()
    return own


def _begin_threads(vocabulary: Vocabulary) -> None:
    """Have the libraries begin their threads, so that who waits for a sign of this process waits for them, too."""
    vocabulary.encode_batch(["A few words. " * 1_000] * 8)
    pl.DataFrame({"text": ["a", "b"]}).lazy().filter(pl.col("text").str.contains("a")).collect()


def _take_all(connection: Connection, came: SimpleQueue[Any]) -> None:
    try:
        while True:
            came.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # nobody is left to be answered


class _LastShard:
    """What was read of the shard that was last asked for: neighbouring units are mostly of one."""

    def __init__(self) -> None:
        self._sha256 = ""

    def measured(self, task: ShardTask, unit: Unit, vocabulary: Vocabulary) -> pa.Table | TokenproofError:
        """Facts of a unit, or why there are none."""
        try:
            if task.shard.sha256 != self._sha256:
                self._metadata = open_shard(task.dataset, task.shard).metadata
                self._sha256 = task.shard.sha256
            return measure_unit(task, replace(unit, metadata=self._metadata), vocabulary)
        except TokenproofError as error:
            return error
        except BaseException as error:  # noqa: BLE001 (panics of engines have no other base)
            return ShardError(unthought_of(task, error))


if __name__ == "__main__":
    main()
