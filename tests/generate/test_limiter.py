"""The limiter against models of servers, on a clock that only the model moves."""

from __future__ import annotations

import math
import random

import pytest

from toolkit.generate.limiter import Limiter

from .played import LATENCIES_S, LIMITS, WISHES, Bucket, Storm, play


def test_without_refusals_the_ceiling_is_reached_and_never_passed():
    most = 0

    def takes(_: float, busy: int) -> bool:
        nonlocal most
        most = max(most, busy + 1)
        return True

    played = play(takes, seconds=10, ceiling=500)
    assert most == 500
    assert played.per_s(5, 10) == pytest.approx(500 / 0.275, rel=0.05)
    assert math.isinf(played.limiter.pace)


def test_slow_replies_do_not_make_a_slow_start():
    played = play(lambda _now, _busy: True, seconds=31, latency_s=(60, 90))
    assert len(played.sent_at) == 2000


def is_used_well(storm: Storm) -> bool:
    """Nine tenths of what is allowed, and not more than that, with one in twenty refused at most."""
    goodput, refused = storm.measure()
    return 0.9 <= goodput <= 1.05 and refused <= 0.05


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("wish", WISHES)
def test_a_rate_limit_is_used_to_nine_tenths_and_hardly_ever_run_into(limit: str, wish: str):
    assert is_used_well(Storm(10, limit, wish, "0.05 to 0.5 s"))
    assert is_used_well(Storm(40, limit, wish, "4 to 6 s"))


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("wish", WISHES)
def test_a_rate_limit_of_any_size_is_used_to_nine_tenths(limit: str, wish: str):
    for latency in LATENCIES_S:
        assert is_used_well(Storm(200, limit, wish, latency))
    if wish in ("none", "two seconds") and limit != "window of 60 s":
        assert is_used_well(Storm(1000, limit, wish, "0.05 to 0.5 s"))


@pytest.mark.parametrize("refusal_s", [0.002, 0.3, 1.0])
@pytest.mark.parametrize("wish", ["none", "whole seconds"])
def test_refusals_may_come_fast_or_slowly(refusal_s: float, wish: str):
    server = Bucket(100, 20)
    played = play(
        server, seconds=180, refusal_s=refusal_s, wish=lambda now: WISHES[wish](now, server.ready_s(now)),
    )  # fmt: skip
    assert 90 <= played.per_s(60, 180) <= 101
    assert played.refused_share(60, 180) <= 0.05


@pytest.mark.parametrize("limit", ["bucket of 0.1 s", "bucket of 1 s", "window of 1 s"])
@pytest.mark.parametrize(("wish", "settles_s"), [("none", 60), ("exact", 60), ("whole seconds", 90), ("a date", 90)])
@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_limit_that_changes_is_followed(limit: str, wish: str, settles_s: int, factor: float):
    server = LIMITS[limit](40)
    changed = 120
    played = play(
        server, seconds=changed + settles_s + 60,
        wish=lambda now: WISHES[wish](now, server.ready_s(now)),
        turns=lambda now: server.turn_to(now, 40 if now < changed else 40 * factor),
    )  # fmt: skip
    begin = changed + settles_s
    assert played.per_s(begin, begin + 60) >= 0.9 * 40 * factor
    assert played.refused_share(begin, begin + 60) <= 0.05


def test_a_limit_of_requests_in_flight_is_used_and_hardly_ever_run_into():
    played = play(lambda _, busy: busy < 100, seconds=60)
    assert played.per_s(20, 60) >= 0.85 * 100 / 0.275
    assert played.refused_share(20, 60) <= 0.05


def test_refusals_that_have_nothing_to_do_with_load_do_not_throttle_for_ever():
    draw = random.Random(2)
    played = play(lambda _now, _busy: draw.random() >= 0.07, seconds=60, ceiling=100)
    assert played.per_s(20, 60) >= 0.8 * 100 / 0.275


def test_nothing_is_sent_while_the_server_asked_for_peace():
    limiter = Limiter(10, now=0.0)
    limiter.sent(0.0)
    limiter.refused(0.1, sent_at=0.0, retry_after_s=7.0)
    assert limiter.paused_s(1.1) == pytest.approx(6.0)
    assert limiter.wait_s(1.1) == pytest.approx(6.0)
    assert limiter.wait_s(7.2) == 0
    limiter.pause(8.0, 1e9)
    assert limiter.paused_s(8.0) == 600.0


def test_after_a_pause_one_goes_ahead_and_the_rest_follows_once_it_is_not_refused():
    limiter = Limiter(100, now=0.0)
    for _ in range(20):
        limiter.sent(0.0)
    for _ in range(20):
        limiter.refused(0.1, sent_at=0.0, retry_after_s=2.0)
    assert limiter.wait_s(2.2) == 0
    limiter.sent(2.2)
    assert limiter.wait_s(2.2) > 0.0
    limiter.refused(2.3, sent_at=2.2, retry_after_s=2.0)
    assert limiter.wait_s(2.4) == pytest.approx(1.9)
    assert limiter.wait_s(4.4) == 0
    limiter.sent(4.4)
    assert limiter.wait_s(4.45) > 0.0
    limiter.answered(4.5, sent_at=4.4)
    assert limiter.wait_s(5.5) == 0


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
