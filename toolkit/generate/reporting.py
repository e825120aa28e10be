"""Says once a second how a run is doing: to its file, and to whoever watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from toolkit.errors import StoreError
from toolkit.generate.books import WholeRun
from toolkit.generate.budget import Budget
from toolkit.generate.engine import Work
from toolkit.generate.status import RunStatus, write_status

_EVERY_S = 1.0


class Reporter:
    """Writes the status of each dataset of a run. The file is news: a failure to write it stops nothing."""

    def __init__(
        self,
        works: Sequence[Work],
        money: Budget,
        watch: Callable[[RunStatus], None],
        clock: Callable[[], float],
        ticks: Callable[[], float],
    ):
        self._works = {work.books.summary.dataset: work for work in works}
        self._money, self._watch, self._clock, self._ticks = money, watch, clock, ticks
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Report from now on; the state of each dataset is told once before this returns."""
        self._tell()
        self._task = asyncio.ensure_future(self._go_on())

    async def close(self) -> None:
        """Report no more by itself."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def report(self, dataset: str, phase: str) -> None:
        """Write this moment of one dataset."""
        status = self._status(self._works[dataset], phase)
        self._watch(status)
        _write(self._folder(dataset), status)

    async def _go_on(self) -> None:
        while True:
            for status in self._tell():
                # In a thread: the disk must not hold up two thousand connections.
                await asyncio.to_thread(_write, self._folder(status.dataset), status)
            await asyncio.sleep(_EVERY_S)

    def _tell(self) -> list[RunStatus]:
        statuses = [self._status(work, "draining" if work.books.halt else "asking") for work in self._works.values()]
        for status in statuses:
            self._watch(status)
        return statuses

    def _status(self, work: Work, phase: str) -> RunStatus:
        costs = [one.books.summary.cost_usd for one in self._works.values()]
        whole = WholeRun(datasets=len(costs), cost_usd=sum(costs))
        return work.books.status(work.asker.lane, self._money, whole, phase=phase, at=self._clock(), now=self._ticks())

    def _folder(self, dataset: str) -> Path:
        # journal/ lies in the dataset's folder.
        return self._works[dataset].books.journal.path.parent.parent


def _write(folder: Path, status: RunStatus) -> None:
    with suppress(StoreError):
        write_status(folder, status)
