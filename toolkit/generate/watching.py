"""Keeps an eye on the account while a run spends: what is left of it, and what the endpoints charge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from toolkit.errors import RequestError
from toolkit.generate.account import listing_of, remaining_usd
from toolkit.generate.engine import Engine, Work
from toolkit.generate.halt import Sleep
from toolkit.generate.lanes import Lane
from toolkit.generate.transport import Transport
from toolkit.generate.unechoed import unechoed
from toolkit.records import Source

_EVERY_S = 30.0
_TIMEOUT_S = 20.0
_PATIENCE_S = 5.0
"""How long a run without a budget in dollars waits for the first word about credit and prices."""


@dataclass(slots=True)
class AccountWatch:
    """Asks OpenRouter's side endpoints, which cost nothing. One that does not answer changes nothing."""

    engine: Engine
    transport: Transport
    sleep: Sleep
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def begin(self, works: Sequence[Work], models: Sequence[str]) -> None:
        """Learn prices and watch credits.

        Nothing is sent before both were asked for, or what is in flight first could come to more than there is. With
        a budget in dollars that is waited for in any case.
        """
        lanes = {id(work.asker.lane): (work.asker.lane, model) for work, model in zip(works, models, strict=True)}
        first = []
        for lane, model in lanes.values():
            if lane.endpoint.source == Source.OPENROUTER:
                looked = asyncio.ensure_future(self._look(lane))
                first += [asyncio.ensure_future(self._list(lane, model)), looked]
                self._tasks.append(asyncio.ensure_future(self._watch(lane, looked)))
        self._tasks += first
        if first:
            await asyncio.wait(first, timeout=_PATIENCE_S if self.engine.money.limit is None else None)

    async def close(self) -> None:
        """Watch no longer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _list(self, lane: Lane, model: str) -> None:
        listing = listing_of(await self._get(lane, f"/models/{model}/endpoints"), lane.endpoint.provider)
        lane.prices.listed = listing.price
        lane.rests.name_slugs(listing.slugs)

    async def _watch(self, lane: Lane, looked: asyncio.Future[None]) -> None:
        await looked
        while True:
            await asyncio.sleep(_EVERY_S)
            await self._look(lane)

    async def _look(self, lane: Lane) -> None:
        kept = self.engine.money.kept
        left = remaining_usd(await self._get(lane, "/key"), await self._get(lane, "/credits"))
        if left is not None:
            self._heed(lane, left, kept)

    def _heed(self, lane: Lane, left: float, kept: float) -> None:
        """What is left bounds the budget from the moment it was asked for."""
        if left <= 0:
            self.engine.stop(
                f"{lane.endpoint.url}: the key's limit or the account's credit is used up: ${left:.4f} left",
                spent="credit",
            )
            return
        self.engine.money.credit = kept + left

    async def _get(self, lane: Lane, path: str) -> bytes | None:
        with suppress(RequestError):
            response = await self.transport.get(
                f"{lane.endpoint.url}{path}", headers=lane.headers, timeout_s=_TIMEOUT_S
            )
            if response.status == 200:
                return unechoed(response.body, lane.key)
        return None
