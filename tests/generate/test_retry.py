from __future__ import annotations

import pytest

from toolkit.generate.retry import Backoff, parse_retry_after

NOW = 1_767_225_600.0  # 2026-01-01 00:00:00 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("٣", None),
        ("9" * 400, None),
        ("Thu, 01 Jan 2026 00:01:30 GMT", 90.0),
        ("Thu, 01 Jan 2026 00:01:30", 90.0),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0.0),
        ("Thu, 99 Jan 2026 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None):
    assert parse_retry_after(value, now=NOW) == seconds


@pytest.mark.parametrize(
    ("tries", "chance", "wished_s", "wait_s"),
    [
        (1, 0.0, None, 0.0),
        (1, 1.0, None, 1.0),
        (2, 1.0, None, 2.0),
        (4, 0.5, None, 4.0),
        (9, 1.0, None, 60.0),
        (10, 0.5, None, None),
        (1, 0.0, 30.0, 30.0),
        (3, 0.5, 30.0, 32.0),
        (1, 0.0, 601.0, None),
        (10, 0.0, 1.0, None),
    ],
)
def test_waits_are_jittered_bounded_and_never_below_the_wish(
    tries: int, chance: float, wished_s: float | None, wait_s: float | None
):
    assert Backoff(max_tries=10).wait_s(tries, chance=chance, wished_s=wished_s) == wait_s
