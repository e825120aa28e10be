"""The limiter against models of servers, on a clock that only the model moves."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from toolkit.generate.limiter import Limiter

Accepts = Callable[[float, int], bool]
"""Whether a server takes one more request now, with so many in flight."""


class Bucket:
    """Takes `per_s` requests a second, and `burst` at once."""

    def __init__(self, per_s: float, burst: float):
        self.per_s, self.burst = per_s, burst
        self._tokens, self._at = burst, 0.0

    def __call__(self, now: float, _: int) -> bool:
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.per_s)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@dataclass
class Played:
    """What came of a play, after it had settled; the limiter as it was in the end."""

    limiter: Limiter
    answered_per_s: float
    refused_share: float
    sent_at: list[float] = field(default_factory=list)


def play(
    accepts: Accepts,
    *,
    seconds: float = 60.0,
    settled_s: float = 20.0,
    ceiling: int = 2000,
    latency_s: tuple[float, float] = (0.05, 0.5),
    refusal_s: float = 0.02,
    retry_after_s: float | None = None,
) -> Played:
    """Send as much as the limiter lets go, and count what came after `settled_s`."""
    draw = random.Random(1)
    limiter = Limiter(ceiling, now=0.0)
    now, busy, number = 0.0, 0, 0
    events: list[tuple[float, int, bool, float]] = []
    answered = refused = 0
    sent: list[float] = []
    while now < seconds:
        while (wait_s := limiter.wait_s(now)) == 0:
            limiter.sent(now)
            sent.append(now)
            number += 1
            taken = accepts(now, busy)
            busy += taken
            heapq.heappush(events, (now + (draw.uniform(*latency_s) if taken else refusal_s), number, taken, now))
        until = now + min(max(wait_s, 0.0005), 0.1)
        if not events or events[0][0] > until:
            now = until
            continue
        now, _, taken, sent_at = heapq.heappop(events)
        if taken:
            busy -= 1
            limiter.answered(now, sent_at=sent_at)
            answered += now > settled_s
        else:
            limiter.refused(now, sent_at=sent_at, retry_after_s=retry_after_s)
            refused += now > settled_s
    return Played(limiter, answered / (seconds - settled_s), refused / max(1, answered + refused), sent)


def test_without_refusals_the_ceiling_is_reached_and_never_passed():
    most = 0

    def takes(_: float, busy: int) -> bool:
        nonlocal most
        most = max(most, busy + 1)
        return True

    played = play(takes, seconds=10, settled_s=5, ceiling=500)
    assert most == 500
    assert played.answered_per_s == pytest.approx(500 / 0.275, rel=0.05)
    assert math.isinf(played.limiter.pace)


def test_slow_replies_do_not_make_a_slow_start():
    played = play(lambda _now, _busy: True, seconds=31, settled_s=30, latency_s=(60, 90))
    assert len(played.sent_at) == 2000


@pytest.mark.parametrize(
    ("per_s", "burst", "changes"),
    [
        (100, 10, {}),
        (100, 100, {}),
        (100, 10, {"retry_after_s": 1.0}),
        (100, 10, {"retry_after_s": 1.0, "refusal_s": 0.3}),
        (1000, 100, {"retry_after_s": 1.0}),
        (10, 5, {"retry_after_s": 1.0, "seconds": 120.0}),
    ],
)
def test_a_rate_limit_is_used_to_nine_tenths_and_hardly_ever_run_into(per_s: float, burst: float, changes: dict):
    played = play(Bucket(per_s, burst), **{"seconds": 90.0, "settled_s": 40.0, **changes})
    assert 0.9 * per_s <= played.answered_per_s <= 1.01 * per_s
    assert played.refused_share <= 0.05


def test_a_limit_of_requests_in_flight_is_used_and_hardly_ever_run_into():
    played = play(lambda _, busy: busy < 100)
    assert played.answered_per_s >= 0.85 * 100 / 0.275
    assert played.refused_share <= 0.05


def test_a_limit_that_falls_is_followed():
    server = Bucket(100, 10)

    def falls(now: float, busy: int) -> bool:
        server.per_s = 100 if now < 40 else 20
        return server(now, busy)

    played = play(falls, seconds=90, settled_s=55)
    assert played.answered_per_s >= 18
    assert played.refused_share <= 0.05


def test_a_limit_that_is_lifted_is_found_out():
    server = Bucket(20, 10)

    def rises(now: float, busy: int) -> bool:
        server.per_s = 20 if now < 40 else 100
        return server(now, busy)

    assert play(rises, seconds=160, settled_s=120).answered_per_s >= 85


def test_refusals_that_have_nothing_to_do_with_load_do_not_throttle_for_ever():
    draw = random.Random(2)
    played = play(lambda _now, _busy: draw.random() >= 0.07, ceiling=100)
    assert played.answered_per_s >= 0.8 * 100 / 0.275


def test_nothing_is_sent_while_the_server_asked_for_peace():
    limiter = Limiter(10, now=0.0)
    limiter.sent(0.0)
    limiter.refused(0.1, sent_at=0.0, retry_after_s=7.0)
    assert limiter.paused_s(1.1) == pytest.approx(6.0)
    assert limiter.wait_s(1.1) == pytest.approx(6.0)
    assert limiter.wait_s(7.2) == 0
    limiter.pause(8.0, 1e9)
    assert limiter.paused_s(8.0) == 600.0


def test_too_much_money_in_flight_narrows_the_window():
    limiter = Limiter(100, now=0.0)
    for _ in range(50):
        limiter.sent(0.0)
    limiter.shrink(1.0, retry_after_s=7.0)
    assert limiter.window == 40.0
    assert limiter.paused_s(1.0) == 7.0
    assert limiter.wait_s(1.0) == math.inf


def test_a_slot_that_was_refused_is_closed():
    limiter = Limiter(100, now=0.0)
    for _ in range(64):
        limiter.sent(0.0)
    for _ in range(24):
        limiter.refused(0.1, sent_at=0.0)
    assert (limiter.in_flight, int(limiter.window)) == (40, 40)
    assert limiter.wait_s(0.1) == math.inf
