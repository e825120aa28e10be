"""Estimates as a table: what is known, and the range that follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toolkit.generate.budget import Price
from toolkit.generate.preflight.checks import Result
from toolkit.generate.preflight.estimate import Estimate, Known, Range, Seen, completion_tokens, estimate
from toolkit.generate.preflight.money import money_checks

KNOWN = Known(
    dataset="B3", asks=1000, prompt_ids=np.full(200, 50.0), prompt_bytes=300.0, sampled_all=False,
    shares_history=False, max_tokens=8192, expected_tokens=None, row_tokens=np.empty(0), row_latencies_s=np.empty(0),
    seen=(), prices={}, concurrency=100, is_free=False,
)  # fmt: skip
ROWS = np.tile([900.0, 1100.0], 50)


@pytest.mark.parametrize(
    ("changes", "low", "high", "basis"),
    [
        ({}, 0, 8192, "nothing but max_tokens"),
        ({"expected_tokens": 3000, "row_tokens": ROWS}, 2000, 4500, "expected_tokens = 3,000"),
        ({"expected_tokens": 8000}, 8000 / 1.5, 8192, "expected_tokens"),
        ({"row_tokens": ROWS}, 980, 1020, "100 rows that are there"),
        ({"row_tokens": ROWS[:20]}, 0, 8192, "nothing but max_tokens"),
        ({"seen": (Seen(tokens=300, latency_s=3.0), Seen(tokens=900, latency_s=6.0))}, 100, 2700, "2 replies"),
        ({"seen": (Seen(tokens=8192, latency_s=3.0),)}, 8192 / 3, 8192, "1 reply of"),
    ],
)
def test_completion_tokens_of_one_answer(changes: dict[str, Any], low: float, high: float, basis: str):
    found, why = completion_tokens(replace(KNOWN, **changes))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert why.startswith(basis)


def test_dollars_lie_between_the_cheapest_and_the_dearest():
    prices = {"A": Price(1e-6, 2e-6), "B": Price(2e-6, 4e-6)}
    found = estimate(replace(KNOWN, row_tokens=ROWS, prices=prices))
    assert (found.prompt_tokens.low, found.prompt_tokens.high) == (50_000, 50_000)
    assert found.usd_by_provider["A"].low == pytest.approx(0.05 + 980_000 * 2e-6)
    assert found.usd == Range(found.usd_by_provider["A"].low, found.usd_by_provider["B"].high)
    assert estimate(KNOWN).usd is None
    assert estimate(replace(KNOWN, is_free=True)).usd == Range(0.0, 0.0)


def test_prompts_that_cannot_be_rendered_have_no_more_ids_than_bytes():
    assert estimate(replace(KNOWN, prompt_ids=np.empty(0))).prompt_tokens == Range(0.0, 300_000.0)
    assert estimate(replace(KNOWN, shares_history=True)).prompt_tokens == Range(0.0, 50_000.0)


def test_time_follows_from_latency_and_concurrency():
    assert estimate(KNOWN).seconds is None
    rows = estimate(replace(KNOWN, row_latencies_s=np.full(50, 20.0))).seconds
    assert rows == Range(200.0, 200.0)
    seen = estimate(replace(KNOWN, seen=(Seen(tokens=300, latency_s=3.0),))).seconds
    assert seen == Range(30.0, pytest.approx(90.0))
    one = estimate(replace(KNOWN, asks=1, row_latencies_s=np.full(50, 20.0))).seconds
    assert one == Range(20.0, 20.0)


@pytest.mark.parametrize(
    ("dollars", "credit", "expected"),
    [
        (None, None, ["ok"]),
        (None, 5.0, ["ok", "fail"]),
        (None, 15.0, ["ok", "warn"]),
        (None, 25.0, ["ok", "ok"]),
        (30.0, 15.0, ["ok", "warn"]),
        (4.0, 5.0, ["warn", "ok"]),
        (15.0, 12.0, ["warn", "warn"]),
        (8.0, 5.0, ["warn", "fail"]),
    ],
)
def test_budget_and_credit(dollars: float | None, credit: float | None, expected: list[str]):
    found = Estimate(
        dataset="B3", asks=5, prompt_tokens=Range(0, 0), completion_tokens=Range(0, 0), completion_basis="",
        usd=Range(10.0, 20.0), usd_by_provider={}, seconds=None,
    )  # fmt: skip
    checks = list(money_checks("B3", [found], dollars=dollars, credit_usd=credit))
    assert [str(check.result) for check in checks] == expected
    unpriced = list(money_checks("B3", [replace(found, usd=None)], dollars=dollars, credit_usd=credit))
    assert [check.result for check in unpriced] == [Result.UNKNOWN]
