"""Many things at once on the cores of one machine: in order, bounded, and with nothing left behind by an interrupt.

Threads: what takes time (encoding, hashing, decompression, arrays) leaves the interpreter to others, and threads share
one vocabulary. Where there is much to measure they give it to processes (`on_processes`).
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""What a container may use of all processors in a period, and the period."""

_LOOK_S = 0.2
"""How often whoever waits looks up. Once polars is imported, a signal does not end a wait of the main thread: who waits
without end would obey an interrupt only when what it waits for is there."""


def cores() -> int:
    """Processors that this process may use, or as many as a container's share of them comes to."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError, ZeroDivisionError):  # no control group, or "max": no limit
        microseconds, of_so_many = map(int, _QUOTA.read_text(encoding="ascii").split())
        return max(1, min(allowed, math.ceil(microseconds / of_so_many)))
    return allowed


@contextmanager
def threads(workers: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that gives up what has not begun when its block is left, by an error or an interrupt too."""
    pool = ThreadPoolExecutor(max_workers=max(workers, 1))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def in_order(begin: Callable[[Item], Future[Result]], items: Iterable[Item], *, ahead: int) -> Iterator[Result]:
    """Results in the order of the items, of which at most `ahead` are begun and not fetched yet."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(begin(item))
            if len(waiting) >= ahead:
                yield _result_of(waiting.popleft())
        while waiting:
            yield _result_of(waiting.popleft())
    finally:
        for future in waiting:
            future.cancel()


def as_they_end(futures: Iterable[Future[Result]]) -> Iterator[Future[Result]]:
    """Futures, each when it is done."""
    left = set(futures)
    while left:
        done, left = wait(left, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        yield from done


def _result_of(future: Future[Result]) -> Result:
    _wait_for(future)
    return future.result()


def _wait_for(future: Future[Result]) -> None:
    while not wait([future], timeout=_LOOK_S).done:
        pass


class Meanwhile(Generic[Result]):
    """Something that is begun now, on a thread of its own, and asked for later. A process that ends does not wait for
    it."""

    def __init__(self, do: Callable[[], Result]):
        self._future: Future[Result] = Future()
        threading.Thread(target=self._run, args=(do,), daemon=True).start()

    def _run(self, do: Callable[[], Result]) -> None:
        try:
            self._future.set_result(do())
        except BaseException as error:  # noqa: BLE001 (whoever asks for the result gets it)
            self._future.set_exception(error)

    def result(self) -> Result:
        """What came of it, or what it raised; waits until it is there."""
        return _result_of(self._future)

    def join(self) -> None:
        """Wait until it is over, whatever came of it."""
        _wait_for(self._future)
