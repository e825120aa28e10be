"""Budgets against the simulated server and its books: where they end, and what a plain loop throws away there."""

from __future__ import annotations

import pytest

from scripts.bench_budget import MAX_TOKENS, Limits, Spent, compare
from toolkit.contract import Contract
from toolkit.vocabulary import Vocabulary

IN_FLIGHT = 40
MOST_USD = MAX_TOKENS * 2.4e-6 + 600 * 0.5e-6
"""What one request can come to at most: the dearest provider's prices, and the bytes of a request for its tokens."""


def check_nothing_is_thrown_away(ours: Spent, plain: Spent) -> None:
    print("generate", ours)
    print("cancel at the limit", plain)
    assert (ours.thrown_away, ours.refused) == (0, 0)
    assert ours.kept == ours.requests > 0
    assert (ours.kept_tokens, ours.kept_usd) == (ours.billed_tokens, pytest.approx(ours.billed_usd))
    # The plain loop pays for about all that was in flight, and has nothing of it.
    assert plain.thrown_away >= IN_FLIGHT / 2
    assert plain.billed_tokens > plain.kept_tokens


@pytest.mark.parametrize("budget", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_budget_of_tokens_ends_within_one_answer_of_it(kimi: Contract, vocabulary: Vocabulary, budget: int):
    ours, plain = compare(Limits(tokens=budget), IN_FLIGHT, kimi, vocabulary)
    check_nothing_is_thrown_away(ours, plain)
    assert budget - MAX_TOKENS <= ours.kept_tokens <= budget
    assert plain.billed_tokens > budget + MAX_TOKENS


def test_a_budget_in_dollars_ends_within_one_answer_of_it(kimi: Contract, vocabulary: Vocabulary):
    budget = 0.05
    ours, plain = compare(Limits(dollars=budget), IN_FLIGHT, kimi, vocabulary)
    check_nothing_is_thrown_away(ours, plain)
    assert budget - MOST_USD <= ours.kept_usd <= budget
    assert plain.billed_usd > budget + MOST_USD


@pytest.mark.parametrize("dollars", [None, 1.0])
def test_a_key_that_runs_dry_ends_the_run_within_one_answer_of_it_and_is_never_refused(
    kimi: Contract, vocabulary: Vocabulary, dollars: float | None
):
    ours, plain = compare(Limits(key_usd=0.05, dollars=dollars), IN_FLIGHT, kimi, vocabulary)
    check_nothing_is_thrown_away(ours, plain)
    assert 0.05 - MOST_USD <= ours.kept_usd <= 0.05
    assert plain.refused > 0
