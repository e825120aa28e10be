"""When nothing more is to be sent, and why. What is in flight is drained all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from toolkit.generate.spent import Spent
from toolkit.generate.summary import shown

Sleep = Callable[[float], Awaitable[None]]


class Halt:
    """Tells the asks of one dataset to send nothing more.

    Attributes:
        why: The first reason that was given; None while it goes on.
        spent: What ran out, where that is the reason: `tokens`, `dollars` or `credit`; empty for any other.
    """

    def __init__(self) -> None:
        self.why: str | None = None
        self.spent: Spent = ""
        self._event = asyncio.Event()
        self._told: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return self._event.is_set()

    def tell(self, call: Callable[[], None]) -> None:
        """Have `call` called when it comes to that."""
        self._told.append(call)

    def stop(self, why: str, *, spent: Spent = "") -> None:
        """Send nothing more. The words may be a server's: they are made fit for a terminal."""
        if self.why is not None:
            return
        self.why = shown(why, 400)
        self.spent = spent
        self._event.set()
        for call in self._told:
            call()

    async def pause(self, seconds: float, sleep: Sleep) -> None:
        """Wait, but not beyond the halt."""
        waits = [asyncio.ensure_future(sleep(seconds)), asyncio.ensure_future(self._event.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
