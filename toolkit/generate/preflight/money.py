"""The estimate of a dataset against budget and credit. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.generate.preflight.checks import Check, Result
from toolkit.generate.preflight.estimate import Estimate, Known, Seen, estimate
from toolkit.generate.preflight.offers import Offer
from toolkit.generate.preflight.survey import Survey
from toolkit.records import SOURCES_WITH_PROVIDERS


def estimate_of(survey: Survey, allowed: Sequence[Offer] | None, seen: Sequence[Seen], *, asked: int) -> Estimate:
    """What is left of one dataset, after `asked` of its asks were answered here."""
    job = survey.job
    prices = {offer.name: offer.price for offer in allowed or () if offer.price is not None}
    return estimate(
        Known(
            dataset=job.dataset.name, asks=max(survey.left - asked, 0), prompt_ids=survey.prompt_ids,
            prompt_bytes=survey.prompt_bytes, sampled_all=survey.sampled_all,
            shares_history=job.settings.turns == "every", max_tokens=max(survey.max_tokens, 1),
            expected_tokens=job.settings.expected_tokens, row_tokens=survey.held.tokens,
            row_latencies_s=survey.held.latencies_s, seen=seen, prices=prices, concurrency=job.endpoint.concurrency,
            is_free=job.endpoint.source not in SOURCES_WITH_PROVIDERS,
        )
    )  # fmt: skip


def token_checks(survey: Survey, found: Estimate) -> Iterator[Check]:
    """Whether the dataset's own limit of tokens leaves room for what is left."""
    limit = survey.job.settings.max_total_tokens
    if limit is None or not found.asks:
        return
    free = limit - survey.held.total_tokens
    result = Result.WARN if found.completion_tokens.high > free else Result.OK
    told = f"{max(free, 0):,} of {limit:,} left; the rest takes {_tokens(found)}"
    if result is Result.WARN:
        told += ": the run may stop before the end"
    yield Check(about=found.dataset, what="token budget", result=result, found=told)


def money_checks(
    about: str, estimates: Sequence[Estimate], *, dollars: float | None, credit_usd: float | None
) -> Iterator[Check]:
    """Whether budget and credit are enough for what is left of all datasets.

    A budget that is too small is somebody's wish: the run ends there, with all that it paid for kept. Credit that ends
    before a budget does is none.
    """
    left = [one for one in estimates if one.asks]
    if not left:
        return
    costs = [one.usd for one in left if one.usd is not None]
    if len(costs) < len(left):
        yield Check(about=about, what="cost", result=Result.UNKNOWN, found="no price is known")
        return
    low, high = sum(cost.low for cost in costs), sum(cost.high for cost in costs)
    if not high:
        return
    told = f"${low:,.2f} to ${high:,.2f}"
    if dollars is None:
        yield Check(about=about, what="budget", result=Result.OK, found=f"no limit is set; the rest costs {told}")
    else:
        result = Result.OK if high <= dollars else Result.WARN
        end = "" if result is Result.OK else ": the run may stop before the end"
        yield Check(about=about, what="budget", result=result, found=f"${dollars:,.2f}; the rest costs {told}{end}")
    if credit_usd is not None:
        yield _credit_check(about, low, high, told, dollars, credit_usd)


def _credit_check(about: str, low: float, high: float, told: str, dollars: float | None, credit: float) -> Check:
    wanted_low, wanted_high = (min(cost, dollars) if dollars is not None else cost for cost in (low, high))
    result = Result.FAIL if wanted_low > credit else Result.WARN if wanted_high > credit else Result.OK
    found = f"${credit:,.2f} may still be spent; the rest costs {told}"
    if result is Result.FAIL:
        found += "; a budget of at most that much lets a run go as far as it reaches"
    return Check(
        about=about, what="credit", result=result, found=found,
        expected="enough for what is left, or for the budget" if result is not Result.OK else "",
    )  # fmt: skip


def holds_check(survey: Survey, allowed: Sequence[Offer], credit_usd: float | None) -> Iterator[Check]:
    """What requests in flight may reserve of a small credit: input and max_tokens of each."""
    job = survey.job
    prices = [offer.price for offer in allowed if offer.price is not None]
    if credit_usd is None or not prices or not survey.left:
        return
    in_flight = min(job.endpoint.concurrency, survey.left)
    prompt = survey.longest_ids or int(survey.prompt_bytes)
    reserved = in_flight * max(price.of(prompt, survey.max_tokens) for price in prices)
    if reserved > credit_usd:
        found = (
            f"{in_flight:,} in flight with max_tokens {survey.max_tokens:,} may come to ${reserved:,.2f}, "
            f"${credit_usd:,.2f} may still be spent: some accounts are refused (402), and fewer will be in flight"
        )
        yield Check(about=job.endpoint.name, what="in flight", result=Result.WARN, found=found)


def _tokens(found: Estimate) -> str:
    return f"{found.completion_tokens.low:,.0f} to {found.completion_tokens.high:,.0f} completion tokens"
