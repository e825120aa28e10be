"""Limits that count what they allow and refuse: a token bucket or fixed windows, and a cap on what is in flight."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime

from toolkit.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What a server, or one provider, lets through.

    Attributes:
        per_s: Requests a second, as a token bucket, or on average where there are windows; None: as many as come.
        burst: Size of the bucket in requests; None: one second's worth, at least one.
        window_s: Length of fixed windows in seconds, in place of the bucket: each lets `per_s` × `window_s` requests
            through, whenever they come in it; None: a bucket.
        in_flight: Requests at a time; None: any number.
        retry_after_s: The wish that a refusal states, in whole seconds; None: it states none; 0: the time until the
            next request is let through, rounded up.
        retry_after_date: State it as an HTTP date.
        retry_after_share: Share of the refusals that state it, 0 to 1.

    Raises:
        ConfigError: a number out of range.
    """

    per_s: float | None = None
    burst: int | None = None
    window_s: float | None = None
    in_flight: int | None = None
    retry_after_s: int | None = None
    retry_after_share: float = 1.0
    retry_after_date: bool = False

    def __post_init__(self) -> None:
        positive = (
            ("per_s", self.per_s), ("burst", self.burst), ("window_s", self.window_s), ("in_flight", self.in_flight),
        )  # fmt: skip
        for name, value in positive:
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"scenario: limit.{name}: expected a number above 0, found {value}")
        if self.window_s is not None and (self.per_s is None or self.burst is not None):
            raise ConfigError("scenario: limit.window_s: expected per_s with it, and no burst")
        if self.retry_after_s is not None and self.retry_after_s < 0:
            raise ConfigError(f"scenario: limit.retry_after_s: expected 0 or more, found {self.retry_after_s}")
        if not 0 <= self.retry_after_share <= 1:
            raise ConfigError(f"scenario: limit.retry_after_share: expected 0 to 1, found {self.retry_after_share}")

    @property
    def size(self) -> float:
        """Requests that a full bucket holds, or that a window lets through."""
        if self.window_s is not None:
            return max(1.0, float(round((self.per_s or 1.0) * self.window_s)))
        return float(self.burst) if self.burst is not None else max(1.0, self.per_s or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What a limiter let through over `seconds` whole seconds."""

    seconds: int
    allowed: int
    refused: int

    @property
    def goodput_per_s(self) -> float:
        """Allowed requests a second."""
        return self.allowed / self.seconds if self.seconds else 0.0

    @property
    def refused_share(self) -> float:
        """Refused ones among all, 0 to 1."""
        total = self.allowed + self.refused
        return self.refused / total if total else 0.0


@dataclass(slots=True)
class Limiter:
    """One limit at work. Times are seconds of one clock that never goes back."""

    limit: Limit
    in_flight: int = 0
    allowed_by_s: Counter[int] = field(default_factory=Counter)
    refused_by_s: Counter[int] = field(default_factory=Counter)
    _level: float = -1.0
    _at: float = 0.0
    _began: float = 0.0

    def admit(self, now: float) -> bool:
        """Let one request in, or not; whoever was let in must `leave`."""
        self._fill(now)
        limit = self.limit
        full = limit.in_flight is not None and self.in_flight >= limit.in_flight
        dry = limit.per_s is not None and self._level < 1
        second = int(now - self._began)
        if full or dry:
            self.refused_by_s[second] += 1
            return False
        if limit.per_s is not None:
            self._level -= 1
        self.in_flight += 1
        self.allowed_by_s[second] += 1
        return True

    def leave(self) -> None:
        """One request that was let in has been answered."""
        self.in_flight -= 1

    def wish_s(self) -> int | None:
        """What a refusal's Retry-After says, in whole seconds; None where the limit states none."""
        stated, per_s = self.limit.retry_after_s, self.limit.per_s
        if stated != 0 or per_s is None:
            return 1 if stated == 0 else stated
        window_s = self.limit.window_s
        if window_s is None:
            return max(1, math.ceil((1 - self._level) / per_s))
        return max(1, math.ceil(window_s - (self._at - self._began) % window_s))

    def header(self, wish_s: int, at: float) -> str:
        """Retry-After of a wish in whole seconds, at a moment in seconds since 1970. Dates are of whole seconds, too:
        the moment is rounded up.
        """
        if not self.limit.retry_after_date:
            return str(wish_s)
        return format_datetime(datetime.fromtimestamp(math.ceil(at) + wish_s, UTC), usegmt=True)

    @property
    def remaining(self) -> int:
        """Requests that the bucket holds now, or that the window still lets through."""
        return max(0, int(self._level))

    def tally(self, *, after_s: int = 0) -> Tally:
        """Counts of the whole seconds that began at least `after_s` after the first request; the last one is left out
        unless it is the only one, since it may still be running.
        """
        last = max((*self.allowed_by_s, *self.refused_by_s), default=-1)
        seconds = range(after_s, last if last > after_s else last + 1)
        return Tally(
            seconds=len(seconds),
            allowed=sum(self.allowed_by_s[s] for s in seconds),
            refused=sum(self.refused_by_s[s] for s in seconds),
        )

    def _fill(self, now: float) -> None:
        if self._level < 0:
            self._level, self._began, self._at = self.limit.size, now, now
        window_s = self.limit.window_s
        if window_s is not None:
            if (now - self._began) // window_s > (self._at - self._began) // window_s:
                self._level = self.limit.size
        elif self.limit.per_s is not None:
            self._level = min(self.limit.size, self._level + (now - self._at) * self.limit.per_s)
        self._at = now
