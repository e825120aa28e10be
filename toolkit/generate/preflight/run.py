"""`preflight`: look at everything that a run depends on, cheapest first, and stop at what forbids the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from toolkit.config import check_endpoint, is_loopback
from toolkit.errors import ConfigError
from toolkit.generate.budget import Budget, Price
from toolkit.generate.loop import run_async
from toolkit.generate.preflight.checks import Check, Report, Result, has_failed
from toolkit.generate.preflight.estimate import Estimate
from toolkit.generate.preflight.findings import seen_in, trial_checks
from toolkit.generate.preflight.money import estimate_of, holds_check, money_checks, token_checks
from toolkit.generate.preflight.offers import Offer, Wanted, parameters_of, slugs_to_ask
from toolkit.generate.preflight.side import Side, look_aside
from toolkit.generate.preflight.survey import Survey, look
from toolkit.generate.preflight.trial import Around, Tried, Turn, try_providers
from toolkit.generate.preparing import Job
from toolkit.generate.run import Surroundings
from toolkit.generate.secrecy import KeyWatch
from toolkit.generate.summary import shown
from toolkit.generate.transport import Transport
from toolkit.records import SOURCES_WITH_PROVIDERS

MOST_PROVIDERS = 8
"""Providers that are asked for a real answer, unless it is said otherwise."""
_TEXT_LIMIT = 600
_WITHHELD = "(withheld: the key stands in it)"


def preflight(
    jobs: Sequence[Job],
    *,
    dollars: float | None = None,
    requests: bool = True,
    most_providers: int = MOST_PROVIDERS,
    advance: Callable[[int], None] = lambda _: None,
    surroundings: Surroundings | None = None,
) -> Report:
    """Everything that a run of these datasets depends on.

    Answers to its requests are kept as rows of their datasets. Nothing else is changed.

    Args:
        jobs: What would be asked, and of whom.
        dollars: The budget of the run, its requests included; None: no limit.
        requests: Send one real request to each provider that may answer; else only what costs nothing.
        most_providers: To how many providers of a dataset at most.
        advance: Called with 1 for each request that is over.
        surroundings: The network and the clocks.

    Raises:
        StoreError: files of a dataset cannot be read, or another process writes to it.
    """
    around = surroundings or Surroundings()
    run = _Preflight(around=around, dollars=dollars, requests=requests, most=most_providers, advance=advance)
    for job in jobs:
        run.look(job)
    if not has_failed(run.checks) and any(survey.left for survey in run.surveys):
        run_async(run.go())
    return run.report(jobs)


def check_endpoints(jobs: Sequence[Job], *, surroundings: Surroundings | None = None) -> Report:
    """What endpoints say of themselves, for nothing, against the routing alone: prompts are not looked at."""
    run = _Preflight(
        around=surroundings or Surroundings(), dollars=None, requests=False, most=0, advance=lambda _: None
    )
    run_async(run.go_aside(jobs))
    return run.report(jobs)


@dataclass(slots=True, kw_only=True)
class _Preflight:
    around: Surroundings
    dollars: float | None
    requests: bool
    most: int
    advance: Callable[[int], None]
    checks: list[Check] = field(default_factory=list)
    surveys: list[Survey] = field(default_factory=list)
    estimates: list[Estimate] = field(default_factory=list)
    sides: dict[str, Side] = field(default_factory=dict)
    tried: dict[str, Tried] = field(default_factory=dict)

    def look(self, job: Job) -> None:
        """What the disk says."""
        try:
            check_endpoint(job.endpoint)
        except ConfigError as error:
            name = job.dataset.name
            self.checks.append(Check(about=name, what="endpoint", result=Result.FAIL, found=str(error), of_input=True))
            return
        found = look(job, most_candidates=max(self.most, 1))
        self.checks += found.checks
        if found.survey is not None:
            self.surveys.append(found.survey)

    async def go(self) -> None:
        """What endpoints say, and what providers answer."""
        async with self._transport([survey.job for survey in self.surveys]) as transport:
            for survey in self.surveys:
                await self._look_aside(survey.job, wanted_of(survey), transport)
            money = Budget(limit=self.dollars, credit=self._credit_usd())
            for survey in self.surveys:
                if self.requests and survey.left and not has_failed(self.checks):
                    await self._try(survey, transport, money)
        self._count()

    async def go_aside(self, jobs: Sequence[Job]) -> None:
        """What endpoints say."""
        async with self._transport(jobs) as transport:
            for job in jobs:
                await self._look_aside(job, Wanted(routing=job.endpoint.provider), transport)

    async def _look_aside(self, job: Job, wanted: Wanted, transport: Transport) -> None:
        side = await look_aside(job, wanted, transport, self.around.clock())
        self.sides[job.dataset.name] = side
        # Datasets that ask the same endpoint hear the same of it.
        self.checks += [check for check in side.checks if check not in self.checks]

    async def _try(self, survey: Survey, transport: Transport, money: Budget) -> None:
        job = survey.job
        turns, checks = turns_of(survey, self.sides[job.dataset.name].allowed, self.most)
        self.checks += checks
        around = Around(
            transport=transport, sleep=self.around.sleep, clock=self.around.clock, chance=self.around.chance
        )
        tokens = Budget(limit=job.settings.max_total_tokens, kept=survey.held.total_tokens)
        tried = await try_providers(job, turns, around, money=money, tokens=tokens, advance=self.advance)
        self.tried[job.dataset.name] = tried
        self.checks += trial_checks(job, tried.heard)

    def _count(self) -> None:
        """What is left, against budgets and credit. What was spent here is spent."""
        spent = sum(tried.cost_usd for tried in self.tried.values())
        for survey in self.surveys:
            name = survey.job.dataset.name
            tried, side = self.tried.get(name), self.sides[name]
            heard = () if tried is None else tried.heard
            seen = seen_in(heard)
            found = estimate_of(survey, side.allowed, seen, asked=len(seen))
            self.estimates.append(found)
            self.checks += token_checks(survey, found)
            self.checks += holds_check(survey, side.allowed or (), side.credit_usd)
        names = ", ".join(survey.job.dataset.name for survey in self.surveys)
        dollars = None if self.dollars is None else max(self.dollars - spent, 0.0)
        credit = self._credit_usd()
        credit = None if credit is None else max(credit - spent, 0.0)
        self.checks += money_checks(names, self.estimates, dollars=dollars, credit_usd=credit)

    def _credit_usd(self) -> float | None:
        known = [side.credit_usd for side in self.sides.values() if side.credit_usd is not None]
        return min(known, default=None)

    def report(self, jobs: Sequence[Job]) -> Report:
        """Everything, without any key."""
        show = _shower(jobs)
        return Report(
            checks=tuple(check.with_texts(show) for check in self.checks),
            estimates=tuple(self.estimates),
            requests=sum(tried.requests for tried in self.tried.values()),
            cost_usd=sum(tried.cost_usd for tried in self.tried.values()),
            rows_sealed=sum(tried.rows_sealed for tried in self.tried.values()),
        )

    @asynccontextmanager
    async def _transport(self, jobs: Sequence[Job]) -> AsyncIterator[Transport]:
        if self.around.transport is not None:
            yield self.around.transport
            return
        from toolkit.generate.client import connected  # aiohttp takes 0.1 s: only who sends pays

        remote = any(not is_loopback(urlsplit(job.endpoint.url)) for job in jobs)
        async with connected(concurrency=max(self.most, 4), use_proxies=remote) as opened:
            yield opened


def wanted_of(survey: Survey) -> Wanted:
    """What of the asks decides who may answer."""
    return Wanted(
        routing=survey.job.endpoint.provider,
        parameters=parameters_of(dict.fromkeys(survey.body_fields)),
        max_tokens=survey.max_tokens,
        longest_ids=survey.longest_ids,
        longest_total=survey.longest_total,
    )


def turns_of(survey: Survey, allowed: Sequence[Offer] | None, most: int) -> tuple[list[Turn], list[Check]]:
    """Whom to ask what: a provider each, and an ask each. Without a list, whom the routing names."""
    job = survey.job
    routing = job.endpoint.provider
    slugs: list[str | None] = list(
        slugs_to_ask(allowed, routing) if allowed is not None else routing.only or routing.order or (None,)
    )
    room = min(most, len(survey.candidates))
    checks = []
    if len(slugs) > room:
        rest = ", ".join(str(slug) for slug in slugs[room:])
        why = f"only {most} are asked" if room == most else "there is no further unanswered prompt"
        checks.append(Check(about=job.dataset.name, what="not asked", result=Result.UNKNOWN, found=f"{rest}: {why}"))
    is_free = job.endpoint.source not in SOURCES_WITH_PROVIDERS
    turns = [
        Turn(slug=slug, ask=ask, price=_dearest(slug, allowed, is_free=is_free))
        for slug, ask in zip(slugs[:room], survey.candidates, strict=False)
    ]
    return turns, checks


def _dearest(slug: str | None, allowed: Sequence[Offer] | None, *, is_free: bool) -> Price | None:
    """The most that whoever answers may cost; None where nobody says."""
    prices = [offer.price for offer in allowed or () if slug is None or offer.is_meant_by(slug)]
    known = [price for price in prices if price is not None]
    if not known or len(known) < len(prices):
        return Price(0.0, 0.0) if is_free else None
    return Price(max(price.prompt for price in known), max(price.completion for price in known))


def _shower(jobs: Sequence[Job]) -> Callable[[str], str]:
    """Makes a text fit to be shown: no key, one line, no escapes, not too long."""
    watches = []
    for job in jobs:
        try:
            watches.append(KeyWatch(job.endpoint.key()))
        except ConfigError:
            continue

    def show(text: str) -> str:
        for watch in watches:
            text = watch.hide_in(text)
            if watch.finds_in(text):
                return _WITHHELD
        return shown(text, _TEXT_LIMIT)

    return show
