"""Models of servers that limit what they take, and a play of the limiter against one, on a clock that only it moves."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from toolkit.generate.limiter import Limiter


class Server(Protocol):
    """Takes a request or not."""

    def __call__(self, now: float, busy: int) -> bool:
        """Whether it takes one more, with so many in flight."""


class Bucket:
    """Takes `per_s` requests a second, and `burst` at once."""

    def __init__(self, per_s: float, burst: float):
        self.per_s, self.burst = per_s, burst
        self._tokens, self._at = burst, 0.0

    def __call__(self, now: float, busy: int = 0) -> bool:
        self.turn_to(now, self.per_s)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def turn_to(self, now: float, per_s: float) -> None:
        """From now on, another rate."""
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.per_s)
        self.per_s, self._at = per_s, now

    def ready_s(self, _: float) -> float:
        """Seconds until it takes the next, after a refusal."""
        return (1 - self._tokens) / self.per_s


class Window:
    """Takes `per_s` × `window_s` requests in each window, whenever they come; windows begin anew at 0.63, 1.63 …"""

    def __init__(self, per_s: float, window_s: float):
        self.per_s, self.window_s = per_s, window_s
        self._number, self._taken = -1, 0

    def __call__(self, now: float, busy: int = 0) -> bool:
        number = self._number_at(now)
        if number != self._number:
            self._number, self._taken = number, 0
        if self._taken >= round(self.per_s * self.window_s):
            return False
        self._taken += 1
        return True

    def turn_to(self, _: float, per_s: float) -> None:
        """From now on, another rate."""
        self.per_s = per_s

    def ready_s(self, now: float) -> float:
        """Seconds until it takes the next, after a refusal."""
        return (self._number_at(now) + 1 - 0.37) * self.window_s - now

    def _number_at(self, now: float) -> int:
        return math.floor(now / self.window_s + 0.37)


Wish = Callable[[float, float], float | None]
"""(moment, seconds until the next is taken) → what Retry-After asks for, in seconds."""

WISHES: dict[str, Wish] = {
    "none": lambda _now, _ready: None,
    "exact": lambda _now, ready: ready,
    "whole seconds": lambda _now, ready: float(max(1, math.ceil(ready))),
    "two seconds": lambda _now, _ready: 2.0,
    "a date": lambda now, ready: max(0.0, math.ceil(now + ready) - now),
    "now and then": lambda now, ready: float(max(1, math.ceil(ready))) if int(now * 1e6) % 2 else None,
}

LIMITS: dict[str, Callable[[float], Bucket | Window]] = {
    "bucket of 0.1 s": lambda per_s: Bucket(per_s, max(1.0, 0.1 * per_s)),
    "bucket of 1 s": lambda per_s: Bucket(per_s, per_s),
    "bucket of 10 s": lambda per_s: Bucket(per_s, 10 * per_s),
    "window of 1 s": lambda per_s: Window(per_s, 1),
    "window of 10 s": lambda per_s: Window(per_s, 10),
    "window of 60 s": lambda per_s: Window(per_s, 60),
}

LATENCIES_S = {"0.05 s": (0.05, 0.05), "0.05 to 0.5 s": (0.05, 0.5), "4 to 6 s": (4.0, 6.0)}
CEILING = 2000


@dataclass
class Played:
    """What came of a play; the limiter as it was in the end. Counts are of requests that were sent in each second."""

    limiter: Limiter
    taken: Counter[int] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    sent_at: list[float] = field(default_factory=list)

    def per_s(self, begin: float, end: float) -> float:
        """Requests a second that were taken, from a whole second on and until another."""
        return sum(count for second, count in self.taken.items() if begin <= second < end) / (end - begin)

    def refused_share(self, begin: float, end: float) -> float:
        """Refused ones among all that were sent in between, 0 to 1."""
        refused = sum(count for second, count in self.refused.items() if begin <= second < end)
        return refused / max(1.0, refused + (end - begin) * self.per_s(begin, end))


def play(
    server: Server,
    *,
    seconds: float,
    ceiling: int = CEILING,
    latency_s: tuple[float, float] = (0.05, 0.5),
    refusal_s: float = 0.02,
    wish: Callable[[float], float | None] = lambda _: None,
    turns: Callable[[float], None] | None = None,
) -> Played:
    """Send as much as the limiter lets go.

    Args:
        server: What takes or refuses.
        seconds: How long.
        ceiling: Most in flight.
        latency_s: The fastest and the slowest answer.
        refusal_s: What a refusal takes, give or take a half.
        wish: What a refusal asks to wait, in seconds.
        turns: Called with the moment before each request: the server may change.
    """
    draw = random.Random(1)
    played = Played(Limiter(ceiling, now=0.0))
    limiter = played.limiter
    now, busy = 0.0, 0
    events: list[tuple[float, int, bool, float, float | None]] = []
    while now < seconds:
        while (wait_s := limiter.wait_s(now)) == 0:
            if turns is not None:
                turns(now)
            limiter.sent(now)
            played.sent_at.append(now)
            taken = server(now, busy)
            busy += taken
            (played.taken if taken else played.refused)[int(now)] += 1
            took_s = draw.uniform(*latency_s) if taken else refusal_s * draw.uniform(0.5, 1.5)
            heapq.heappush(events, (now + took_s, len(played.sent_at), taken, now, None if taken else wish(now)))
        until = now + min(max(wait_s, 0.0002), 0.1)
        if not events or events[0][0] > until:
            now = until
            continue
        now, _, taken, sent_at, wished_s = heapq.heappop(events)
        if taken:
            busy -= 1
            limiter.answered(now, sent_at=sent_at)
        else:
            limiter.refused(now, sent_at=sent_at, retry_after_s=wished_s)
    return played


@dataclass(frozen=True)
class Storm:
    """One server of the grid, and what is asked of it."""

    per_s: float
    limit: str
    wish: str
    latency: str

    @property
    def settles_s(self) -> int:
        """When it must have settled: after four windows of a minute, two minutes with windows of 10 s, else one."""
        return {"window of 60 s": 278, "window of 10 s": 126}.get(self.limit, 60)

    @property
    def lasts_s(self) -> int:
        """How much longer is looked at: whole windows."""
        return 240 if self.limit == "window of 60 s" else 120

    @property
    def borne_per_s(self) -> float:
        """What it takes in a second, of what can be in flight."""
        fastest, slowest = LATENCIES_S[self.latency]
        return min(self.per_s, CEILING / ((fastest + slowest) / 2))

    def measure(self) -> tuple[float, float]:
        """(goodput as a share of what is allowed, share of requests refused), once settled."""
        server = LIMITS[self.limit](self.per_s)
        begin, end = self.settles_s, self.settles_s + self.lasts_s
        played = play(
            server, seconds=end, latency_s=LATENCIES_S[self.latency],
            wish=lambda now: WISHES[self.wish](now, server.ready_s(now)),
        )  # fmt: skip
        return played.per_s(begin, end) / self.borne_per_s, played.refused_share(begin, end)
