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
        except asyncio.CancelledError:
            if self._end(running):
                raise TimeoutError from None
            raise
        finally:
            self._end(running)

    def _end(self, running: _Running) -> bool:
        """Take back what the timer asked of the task, however it went on; whether nobody else asked it: whoever else
        did means all of the task, not only this."""
        self._running.pop(running, None)
        was_late, running.is_late = running.is_late, False
        return was_late and running.task.uncancel() <= running.cancelling

    def _look(self) -> None:
        self._timer = None
        for running in list(self._running):
            if running.until > self._loop.time():
                self._timer = self._loop.call_at(running.until, self._look)
                return
            del self._running[running]
            running.is_late = True
            running.task.cancel()
