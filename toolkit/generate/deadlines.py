"""One time limit for many things at once, with one timer for all of them; `asyncio.timeout` has one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Running:
    """What is being done, by whom, until when; how often its task had been asked to end before."""

    task: asyncio.Task[Any]
    until: float
    cancelling: int
    is_late: bool = False


class TimeLimit:
    """Ends what takes longer than `seconds`. All of it must run in one loop."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        # Who began first is first to be late, so only the first needs to be looked after.
        self._running: dict[_Running, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def bound(self, doing: Awaitable[Result]) -> Result:
        """What `doing` gives.

        Raises:
            TimeoutError: it took too long, and was cancelled.
        """
        task = asyncio.current_task(self._loop)
        assert task is not None
        running = _Running(task, self._loop.time() + self._seconds, task.cancelling())
        self._running[running] = None
        if self._timer is None:
            self._timer = self._loop.call_at(running.until, self._look)
        try:
            return await doing
        except BaseException as error:
            # Whoever else asked the task to end meanwhile means all of it, not only this.
            if running.is_late and task.uncancel() <= running.cancelling and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from None
            raise
        finally:
            self._running.pop(running, None)

    def _look(self) -> None:
        self._timer = None
        for running in list(self._running):
            if running.until > self._loop.time():
                self._timer = self._loop.call_at(running.until, self._look)
                return
            del self._running[running]
            running.is_late = True
            running.task.cancel()
