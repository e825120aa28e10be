"""Many things at once on the cores of one machine: in order, bounded, and with nothing left behind by an interrupt.

Threads, not processes: what takes time (encoding, hashing, decompression, arrays) leaves the interpreter to others,
and threads share one vocabulary.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def threads(workers: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that gives up what has not begun when its block is left, by an error or an interrupt too."""
    pool = ThreadPoolExecutor(max_workers=max(workers, 1))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def in_order(pool: Executor, do: Callable[[Item], Result], items: Iterable[Item], *, ahead: int) -> Iterator[Result]:
    """Results in the order of the items, of which at most `ahead` are under way or waiting to be fetched."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(do, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
