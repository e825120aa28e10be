"""Processes that measure units of shards for another one: what `python -c … FD...` of `on_processes` runs.

It loads a contract's vocabulary, and then becomes as many processes as there are sockets. They share the memory of all
that was loaded, and load it once. Each is asked over its socket, one unit after the other, and ends as soon as the
other end is closed, whatever it is at. None of them writes a file: what was found goes back as a table.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn

import polars as pl
import pyarrow as pa

from toolkit.audit.shard_facts import ShardTask, Unit, measure_unit, unthought_of
from toolkit.errors import ShardError, StoreError, TokenproofError
from toolkit.store.shards import open_shard
from toolkit.vocabulary import Vocabulary, load_vocabulary


def main() -> NoReturn:
    """Serve whoever holds the other ends of the sockets that the arguments name."""
    try:
        pa.set_cpu_count(1)
        _serve([Connection(int(fd)) for fd in sys.argv[1:]])
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # nobody is left to be answered
    except BaseException:  # noqa: BLE001 (told, and then the end)
        traceback.print_exc()
        os._exit(1)
    # Nothing is to be put in order, and threads of libraries might be waited for: whose socket is open is waited for.
    os._exit(0)


def _serve(connections: Sequence[Connection]) -> None:
    """Take a contract from the first connection, say on each whether units can be measured under it (the process's id,
    or the error), and answer each (task, unit) that comes then with its facts or an error.

    Raises:
        EOFError, OSError: the other end is closed.
    """
    contract = connections[0].recv()
    try:
        with _told():
            vocabulary = load_vocabulary(contract)
            vocabulary.make_shared()
            own = _one_of(connections)
    except TokenproofError as error:
        for connection in connections:
            with suppress(OSError):  # closed here, or nobody is left there
                connection.send(error)
        return
    came: SimpleQueue[Any] = SimpleQueue()
    try:
        with _told():
            # What comes is taken at once: the other end may send and not read while it does.
            threading.Thread(target=_take_all, args=(own, came), daemon=True).start()
            vocabulary.make_engines()
            _begin_threads(vocabulary)
    except TokenproofError as error:
        own.send(error)
        return
    own.send(os.getpid())
    shard = _LastShard()
    while True:
        task, unit = came.get()
        own.send(shard.measured(task, unit, vocabulary))


@contextmanager
def _told() -> Iterator[None]:
    """Whatever is raised in the block, as an error that can be told.

    Raises:
        TokenproofError: the error, or one that names it.
    """
    try:
        yield
    except TokenproofError:
        raise
    except BaseException as error:  # noqa: BLE001 (panics of engines have no other base)
        said = (str(error).splitlines() or [""])[0][:200]
        why = f"a process that should measure cannot begin: {type(error).__name__}: {said}; --workers 1 needs none"
        raise StoreError(why) from None


def _one_of(connections: Sequence[Connection]) -> Connection:
    """Become as many processes as there are connections; in each, its own, the others closed.

    Raises:
        OSError: there cannot be so many.
    """
    # What is there already is not looked through again, which would copy it.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing stays of one that dies
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
    except BaseException:  # noqa: BLE001 (whoever waits for an answer hears of the end)
        traceback.print_exc()
        os._exit(1)


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
