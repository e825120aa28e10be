"""Ctrl-C: once drains, twice stops at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts(*, first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Call `first` at the first SIGINT or SIGTERM, and `second` at each further one, inside a running loop.

    Outside of the main thread nothing is done: Python hands signals to that thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    came = False

    def interrupt() -> None:
        nonlocal came
        (second if came else first)()
        came = True

    for number in _NUMBERS:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)
