"""One real request to each provider that may answer, with the parameters of the dataset.

The asks are asks of the run: their answers go to the journal and become rows, so that nothing paid for is thrown away
and a run asks none of them again. What a provider refuses says nothing about the ask, so no failure here is final.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace as replaced

from toolkit.config import EndpointSettings, Secret
from toolkit.errors import PermanentError, StoreError, TransientError
from toolkit.generate.budget import Budget, Price
from toolkit.generate.halt import Sleep
from toolkit.generate.outcome import Answered, Judge, Refused
from toolkit.generate.plan import Planned
from toolkit.generate.preparing import Job
from toolkit.generate.request import headers_of, wire_format
from toolkit.generate.retry import Backoff
from toolkit.generate.transport import Request, Transport
from toolkit.rows import RowBuilder
from toolkit.sealing import seal_held
from toolkit.store.answered import read_answered
from toolkit.store.discards import settle_discards
from toolkit.store.files import remove_empty, sole_writer
from toolkit.store.journal import LineWriter

_MOST_TRIES = 3
_LONGEST_WISH_S = 30.0
_UNREFUSED = 400
"""Statuses from here on are refusals, which are not billed; without one, an answer may have been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One provider's turn.

    Attributes:
        slug: What it is asked by; None: whoever answers.
        price: The dearest that it may be; None where nobody says.
    """

    slug: str | None
    ask: Planned
    price: Price | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came of a turn; `came` is None where it was not sent, and `unsent` says why."""

    turn: Turn
    came: Answered | Refused | None
    requests: int = 0
    unsent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What all turns of a dataset came to."""

    heard: tuple[Heard, ...]
    rows_sealed: int

    @property
    def requests(self) -> int:
        """Requests sent."""
        return sum(heard.requests for heard in self.heard)

    @property
    def cost_usd(self) -> float:
        """What replies say they cost, those that are no answers included."""
        return sum(_cost_of(heard.came) for heard in self.heard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What sending needs of the world: see `run.Surroundings`."""

    transport: Transport
    sleep: Sleep
    clock: Callable[[], float]
    chance: Callable[[], float]


async def try_providers(
    job: Job, turns: Sequence[Turn], around: Around, *, money: Budget, tokens: Budget,
    advance: Callable[[int], None] = lambda _: None,
) -> Tried:  # fmt: skip
    """Ask all at the same time; answers are on the disk before this returns, and sealed.

    Args:
        job: The dataset.
        turns: Whom to ask what; the asks differ.
        around: The network and the clocks.
        money: What replies may come to, in US dollars.
        tokens: What completions may come to.
        advance: Called with 1 whenever a turn is over.

    Raises:
        StoreError: another process writes to this dataset, or a reply cannot be kept.
    """
    builder = RowBuilder(job.contract, job.vocabulary)
    with sole_writer(job.dataset.lock):
        settle_discards(job.dataset)
        sealed = seal_held(job.dataset, builder)
        # Since they were chosen, somebody else may have asked.
        answered = read_answered(job.dataset)
        open_turns = [turn for turn in turns if answered.find(*turn.ask.identity) is None]
        heard = await _all(job, open_turns, around, builder, money, tokens, advance)
        sealed += seal_held(job.dataset, builder)
    return Tried(heard=tuple(heard), rows_sealed=sealed)


async def _all(
    job: Job, turns: Sequence[Turn], around: Around, builder: RowBuilder, money: Budget, tokens: Budget,
    advance: Callable[[int], None],
) -> list[Heard]:  # fmt: skip
    name = f"preflight-{datetime.fromtimestamp(around.clock(), UTC):%Y%m%dT%H%M%S%fZ}-{os.getpid()}.jsonl"
    journal, failures = LineWriter(job.dataset.journal / name), LineWriter(job.dataset.failures / name)
    trial = _Trial(job, around, builder, job.endpoint.key(), money, tokens, journal, failures)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(trial.take(turn)) for turn in turns]
            for task in tasks:
                task.add_done_callback(lambda _: advance(1))
    except BaseExceptionGroup as group_of_errors:
        raise _plain(group_of_errors) from None
    finally:
        for writer in (journal, failures):
            writer.close()
            remove_empty(writer.path)
    return [task.result() for task in tasks]


def only_one(endpoint: EndpointSettings, slug: str | None) -> EndpointSettings:
    """The endpoint with one provider who may answer, all else of its routing as it is."""
    if slug is None:
        return endpoint
    routing = replaced(endpoint.provider, only=(slug,), order=None, allow_fallbacks=False)
    return replaced(endpoint, provider=routing)


@dataclass(slots=True)
class _Trial:
    job: Job
    around: Around
    builder: RowBuilder
    key: Secret | None
    money: Budget
    tokens: Budget
    journal: LineWriter
    failures: LineWriter

    async def take(self, turn: Turn) -> Heard:
        """One provider's turn."""
        endpoint = only_one(self.job.endpoint, turn.slug)
        judge = Judge(endpoint=endpoint, builder=self.builder, key=self.key)
        try:
            request = wire_format(endpoint, self.job.contract, self.job.vocabulary).request_of(turn.ask)
        except PermanentError as error:
            return Heard(turn=turn, came=None, unsent=str(error))
        most_usd = 0.0 if turn.price is None else turn.price.of(len(request.body), turn.ask.max_tokens)
        if unsent := self._unaffordable(turn, most_usd):
            return Heard(turn=turn, came=None, unsent=unsent)
        self.money.reserve(most_usd)
        self.tokens.reserve(turn.ask.max_tokens)
        came: Answered | Refused | None = None
        requests = 0
        try:
            came, requests = await self._ask(turn, request, judge)
        finally:
            self.money.settle(most_usd, _cost_of(came) if came is not None else most_usd)
            self.tokens.settle(turn.ask.max_tokens, _tokens_of(came, turn.ask.max_tokens))
        return Heard(turn=turn, came=came, requests=requests)

    def _unaffordable(self, turn: Turn, most_usd: float) -> str:
        """Why the budgets leave no room for one more request; empty where they do."""
        if not self.tokens.admits(turn.ask.max_tokens):
            return f"the budget of {self.tokens.most:,.0f} tokens leaves no room for one more answer"
        if not self.money.admits(most_usd):
            return f"it may cost ${most_usd:.4f}, and budget or credit leaves ${self._free_usd():.4f}"
        if turn.price is None and self.money.limit is not None:
            return "nobody says what it costs, and there is a budget in dollars"
        return ""

    def _free_usd(self) -> float:
        return max(0.0, self.money.most - self.money.kept - self.money.reserved)

    async def _ask(self, turn: Turn, request: Request, judge: Judge) -> tuple[Answered | Refused, int]:
        """Ask, and again where a refusal is said to pass; what came last is on the disk."""
        backoff = Backoff(max_tries=min(_MOST_TRIES, judge.endpoint.max_tries), longest_wish_s=_LONGEST_WISH_S)
        headers = headers_of(judge.endpoint, self.key)
        tries = 0
        while True:
            tries += 1
            came = await self._send(turn, request, judge, headers)
            self._keep(came)
            if isinstance(came, Answered) or not came.again or (came.failure.status or 0) < _UNREFUSED:
                return came, tries
            wait_s = backoff.wait_s(tries, chance=self.around.chance(), wished_s=came.retry_after_s)
            if wait_s is None:
                return came, tries
            await self.around.sleep(wait_s)

    async def _send(self, turn: Turn, request: Request, judge: Judge, headers: dict[str, str]) -> Answered | Refused:
        timeout_s = judge.endpoint.timeout_s
        try:
            response = await self.around.transport.post(
                request.url, body=request.body, headers=headers, timeout_s=timeout_s
            )
        except TransientError as error:
            return judge.of_error(turn.ask, request, error, at=self.around.clock())
        return judge.of_response(turn.ask, request, response, at=self.around.clock())

    def _keep(self, came: Answered | Refused) -> None:
        """On the disk before anything else happens: there are few, and each may have been paid for."""
        writer = self.journal if isinstance(came, Answered) else self.failures
        record: Any = came.entry if isinstance(came, Answered) else replace(came.failure, final=False)
        writer.write(record)
        writer.flush()


def _cost_of(came: Answered | Refused | None) -> float:
    if came is None:
        return 0.0
    return (came.reply.cost_usd if isinstance(came, Answered) else came.failure.cost_usd) or 0.0


def _tokens_of(came: Answered | Refused | None, most: int) -> int:
    if not isinstance(came, Answered):
        return 0
    return most if came.reply.completion_tokens is None else came.reply.completion_tokens


def _plain(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error for people where a reply could not be kept; else the group."""
    known = group.subgroup(StoreError)
    return group if known is None else known.exceptions[0]
