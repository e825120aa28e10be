from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import ConfigError
from toolkit.generate.budget import Budget, Price, Prices, ceiling_of


@given(
    limit=st.integers(1, 5_000),
    most=st.integers(1, 500),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=200),
    ends=st.randoms(),
    kept=st.integers(0, 5_000),
)
def test_what_is_kept_ends_within_one_answer_of_the_limit_and_never_above(limit, most, shares, ends, kept):
    budget = Budget(limit=limit, kept=kept)
    flights: list[int] = []
    answers = iter([int(share * most) for share in shares])
    for _ in range(10_000):
        if budget.is_spent(most):
            break
        if budget.admits(most) and ends.random() < 0.7:
            came = next(answers, None)
            if came is None:
                break
            budget.reserve(most)
            flights.append(came)
        elif flights:
            budget.settle(most, flights.pop(ends.randrange(len(flights))))
        assert budget.kept + budget.reserved <= max(limit, kept)
    for came in flights:
        budget.settle(most, came)
    assert budget.reserved == 0
    assert budget.kept <= max(limit, kept)
    if budget.is_spent(most):
        assert budget.kept > limit - most


def test_a_budget_is_not_spent_while_something_in_flight_may_come_to_less():
    budget = Budget(limit=100)
    budget.reserve(60)
    assert not budget.admits(60)
    assert not budget.is_spent(60)
    budget.settle(60, 10)
    assert budget.admits(60)
    budget.reserve(60)
    budget.settle(60, 60)
    assert budget.is_spent(60)
    assert not budget.is_spent(30)


def test_the_credit_bounds_what_the_limit_allows():
    budget = Budget(limit=10.0, credit=2.0)
    assert budget.most == 2.0
    assert budget.admits(2.0)
    assert not budget.admits(2.5)
    assert math.isinf(Budget(limit=None).most)


@given(
    prices=st.lists(st.tuples(st.floats(1e-8, 1e-4), st.floats(1e-8, 1e-4)).map(sorted), min_size=1, max_size=4),
    replies=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9999), st.integers(0, 9999)), min_size=1, max_size=60),
    prompt=st.integers(1, 99_999),
    completion=st.integers(1, 99_999),
)
def test_the_most_that_a_request_can_cost_is_never_below_what_a_known_provider_charges(
    prices, replies, prompt, completion
):
    known = Prices()
    seen = set()
    for number, prompt_tokens, completion_tokens in replies:
        which = number % len(prices)
        cost = Price(*prices[which]).of(prompt_tokens, completion_tokens)
        known.learn(str(which), prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, cost_usd=cost)
        if completion_tokens:
            seen.add(which)
    most = known.most_usd(prompt, completion)
    if not seen:
        assert most is None
    else:
        assert most >= max(Price(*prices[which]).of(prompt, completion) for which in seen) * (1 - 1e-9)


def test_prices_close_in_from_above():
    prices = Prices()
    prices.learn("a", prompt_tokens=100, completion_tokens=100, cost_usd=0.03)
    assert prices.most_usd(100, 100) == pytest.approx(0.06)
    prices.learn("a", prompt_tokens=1, completion_tokens=1000, cost_usd=0.2001)
    assert prices.most_usd(100, 100) == pytest.approx(0.02001 * 2)


def test_a_price_ceiling_is_known_before_anything_was_asked_and_bounds_the_list():
    ceiling = ceiling_of({"prompt": 1, "completion": "3.0"})
    assert ceiling == Price(1e-6, 3e-6)
    assert Prices(ceiling=ceiling).most_usd(0, 1_000_000) == pytest.approx(3.0)
    assert Prices(ceiling=ceiling, listed=Price(5e-6, 2e-6)).most_usd(1_000_000, 1_000_000) == pytest.approx(3.0)
    assert ceiling_of({"completion": 3}) is None
    with pytest.raises(ConfigError, match="max_price"):
        ceiling_of({"prompt": "cheap", "completion": 1})


def test_who_charges_more_than_is_listed_is_believed():
    prices = Prices(listed=Price(1e-6, 1e-6))
    prices.learn("a", prompt_tokens=10, completion_tokens=10, cost_usd=20e-6)
    assert prices.most_usd(10, 10) == pytest.approx(20e-6)
    prices.learn("b", prompt_tokens=10, completion_tokens=10, cost_usd=40e-6)
    assert prices.most_usd(10, 10) == pytest.approx(80e-6)


def test_an_engine_of_ones_own_is_free_until_it_says_otherwise():
    own = Prices(is_free=True)
    assert own.most_usd(10, 10) == 0.0
    own.learn("", prompt_tokens=10, completion_tokens=10, cost_usd=0.1)
    assert own.most_usd(10, 10) == pytest.approx(0.2)


def test_prices_of_names_that_a_server_invents_are_not_all_remembered():
    prices = Prices()
    prices.learn("Chutes", prompt_tokens=10, completion_tokens=100, cost_usd=0.01)
    before = prices.most_usd(10, 100)
    for number in range(5_000):
        prices.learn(f"invented {number}", prompt_tokens=10, completion_tokens=100, cost_usd=0.001)
    assert len(prices._observed) == 256
    prices.learn("Chutes", prompt_tokens=10, completion_tokens=200, cost_usd=0.01)
    assert before is not None
    assert prices.most_usd(10, 100) < before
