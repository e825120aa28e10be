"""An event loop whose clock moves only while nothing is left to do: real sockets, and no waiting.

What takes the processor takes none of the loop's time, so what is measured by its clock is the same on every machine,
however busy. Server and client must run in the one loop.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

_WORK_S = 0.05
"""Real seconds after which work in other threads is looked after again."""
_LATE_S = 1e-6
"""How much later than its moment a timer goes off: as with real clocks, never too early; nor does time stand still."""


class _Skipping(selectors.BaseSelector):
    """Asks the real selector what is ready now; where nothing is, the time that was to be waited is skipped."""

    def __init__(self, skip: Callable[[float], bool]):
        self._real = selectors.DefaultSelector()
        self._skip = skip

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return self._real.select(None)
        for _ in range(3):
            if found := self._real.select(0):
                return found
            if timeout <= 0:
                return []
            os.sched_yield()  # what a socket was given arrives in the kernel's own time
        return [] if self._skip(timeout) else self._real.select(min(timeout, _WORK_S))

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop of its own time, which begins at 0."""

    def __init__(self, *, began: float = 1_700_000_000.25) -> None:
        self._began, self._passed = began, 0.0
        self._working = 0
        super().__init__(_Skipping(self._pass))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._passed

    def since_1970(self) -> float:
        """Seconds since 1970, as if the loop had been made at `began`."""
        return self._began + self._passed

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """As usual; no time passes meanwhile."""
        future = super().run_in_executor(executor, func, *args)
        self._working += 1
        future.add_done_callback(self._done)
        return future

    def _pass(self, seconds: float) -> bool:
        if self._working:
            return False
        self._passed += seconds + _LATE_S
        return True

    def _done(self, _: object) -> None:
        self._working -= 1
