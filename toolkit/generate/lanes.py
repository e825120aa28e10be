"""One endpoint as a run sees it: how it is asked, how much it bears, who behind it rests, what it costs."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from toolkit.config import EndpointSettings, Secret
from toolkit.contract import Contract
from toolkit.generate.budget import Prices, ceiling_of
from toolkit.generate.halt import Halt, Sleep
from toolkit.generate.limiter import Limiter
from toolkit.generate.outcome import Answered, Judge, Refused
from toolkit.generate.plan import Planned
from toolkit.generate.request import WireFormat, headers_of, wire_format
from toolkit.generate.rests import Rests
from toolkit.generate.transport import Request
from toolkit.records import SOURCES_WITH_PROVIDERS
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary

_LOAD = frozenset({429, 503, 529})
"""Statuses by which a server says that it is asked too much."""
_LOOK_AGAIN_S = 0.1
"""How often the window is looked at while nothing ends."""


@dataclass(slots=True)
class Lane:
    """What may be sent to one endpoint, and when.

    Attributes:
        capacity: Bounds the asks that are being worked at, those included that wait for another try.
        failures: Asks that failed for the endpoint's sake.
        answers: Replies that were kept.
        strangers: Replies of providers that were not allowed.
    """

    endpoint: EndpointSettings
    key: Secret | None
    ticks: Callable[[], float]
    sleep: Sleep
    limiter: Limiter = field(init=False)
    rests: Rests = field(init=False)
    prices: Prices = field(init=False)
    headers: dict[str, str] = field(init=False)
    capacity: asyncio.Semaphore = field(init=False)
    failures: int = 0
    answers: int = 0
    strangers: int = 0
    _waiting: tuple[deque[_Waiter], deque[_Waiter]] = field(default_factory=lambda: (deque(), deque()))
    _timer: asyncio.Task[None] | None = None
    _timer_at: float = math.inf

    def __post_init__(self) -> None:
        self.limiter = Limiter(self.endpoint.concurrency, now=self.ticks())
        self.rests = Rests(self.endpoint.provider)
        self.headers = headers_of(self.endpoint, self.key)
        self.capacity = asyncio.Semaphore(2 * self.endpoint.concurrency)
        self.prices = Prices(
            ceiling=ceiling_of(self.endpoint.provider.max_price),
            is_free=self.endpoint.source not in SOURCES_WITH_PROVIDERS,
        )

    # --- leave to send ----------------------------------------------------------------------------

    async def enter(self, halt: Halt, *, again: bool) -> float | None:
        """Wait for leave to send one request; the moment at which it is sent, or None: nothing more is to be sent.

        Who asks again goes before who asks first: the asks that were begun come to an end.
        """
        if halt:
            return None
        now = self.ticks()
        if not any(self._waiting) and self.limiter.wait_s(now) == 0:
            self.limiter.sent(now)
            return now
        waiter = _Waiter(asyncio.get_running_loop().create_future(), halt)
        self._waiting[0 if again else 1].append(waiter)
        self.wake()
        try:
            return await waiter.leave
        except asyncio.CancelledError:
            if waiter.leave.done() and not waiter.leave.cancelled() and waiter.leave.result() is not None:
                self.limiter.ended(self.ticks())
            raise

    def wake(self) -> None:
        """Let go whoever may go now, and see to it that this is called again in time."""
        for queue in self._waiting:
            while queue:
                waiter = queue[0]
                if waiter.leave.done():
                    queue.popleft()
                elif waiter.halt:
                    queue.popleft().leave.set_result(None)
                elif (wait_s := self.limiter.wait_s(now := self.ticks())) > 0:
                    self._call_back(wait_s)
                    break
                else:
                    self.limiter.sent(now)
                    queue.popleft().leave.set_result(now)

    def halted(self) -> None:
        """Some asks are to stop: those of them that wait here, too."""
        for queue in self._waiting:
            for waiter in queue:
                if waiter.halt and not waiter.leave.done():
                    waiter.leave.set_result(None)
        self.wake()

    def close(self) -> None:
        """End what waits in here."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call_back(self, wait_s: float) -> None:
        idle = math.isinf(wait_s)
        at = self.ticks() + (_LOOK_AGAIN_S if idle else wait_s)
        if self._timer is not None and self._timer_at <= at:
            return
        self.close()
        self._timer_at = at
        self._timer = asyncio.ensure_future(self._later(_LOOK_AGAIN_S if idle else wait_s, idle))

    async def _later(self, seconds: float, idle: bool) -> None:
        # While the window is full it is replies that are waited for, which come in their own time.
        await (asyncio.sleep(seconds) if idle else self.sleep(seconds))
        self._timer, self._timer_at = None, math.inf
        self.wake()

    # --- what came ---------------------------------------------------------------------------------

    def ended(self, came: Answered | Refused | None, sent_at: float) -> None:
        """Learn from what came of a request; None: nobody waited for it."""
        now = self.ticks()
        if isinstance(came, Answered):
            self._answered(came, now, sent_at)
        elif came is None:
            self.limiter.ended(now)
        else:
            self._refused(came, now, sent_at)
        self.wake()

    def _answered(self, came: Answered, now: float, sent_at: float) -> None:
        self.limiter.answered(now, sent_at=sent_at)
        self.answers += 1
        reply = came.reply
        if reply.provider is not None:
            self.rests.answered(reply.provider)
        if reply.cost_usd is not None:
            self.prices.learn(
                reply.provider or "",
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=reply.completion_tokens,
                cost_usd=reply.cost_usd,
            )

    def _refused(self, came: Refused, now: float, sent_at: float) -> None:
        failure = came.failure
        if failure.reason == "provider_not_allowed":
            self.strangers += 1
        if came.shrink:
            self.limiter.shrink(now, retry_after_s=came.retry_after_s)
            return
        rested = came.provider is not None and self.rests.failed(came.provider, now)
        if failure.status in _LOAD and came.again and not rested:
            # A named provider's wish is its own: it holds for the ask that it refused, not for everybody.
            wish = came.retry_after_s if came.provider is None else None
            self.limiter.refused(now, sent_at=sent_at, retry_after_s=wish)
        else:
            self.limiter.ended(now)


@dataclass(slots=True)
class _Waiter:
    leave: asyncio.Future[float | None]
    halt: Halt


class Asker:
    """Asks one lane in the words of one dataset's contract, and reads what comes."""

    def __init__(self, lane: Lane, contract: Contract, vocabulary: Vocabulary, builder: RowBuilder):
        self.lane = lane
        self.judge = Judge(endpoint=lane.endpoint, builder=builder, key=lane.key)
        self._make: Callable[[EndpointSettings], WireFormat] = lambda at: wire_format(at, contract, vocabulary)
        self._rested: tuple[str, ...] = ()
        self._wire = self._make(lane.endpoint)

    def request_of(self, ask: Planned) -> Request:
        """The request of an ask; providers that rest now are asked not to answer.

        Raises:
            PermanentError: it cannot be asked of this endpoint.
        """
        now = self.lane.ticks()
        rested = self.lane.rests.resting(now)
        if rested != self._rested:
            changes: dict[str, Any] = {"provider": self.lane.rests.routing(now)}
            self._wire = self._make(replace(self.lane.endpoint, **changes))
            self._rested = rested
        return self._wire.request_of(ask)
