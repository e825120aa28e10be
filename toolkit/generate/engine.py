"""The asynchronous part of a run: admits, sends, tries again, keeps, and ends by draining.

Nothing here grows with the number of prompts: asks are read when there is room for them, and each that is being
worked at is one task.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from toolkit.errors import PermanentError, TransientError
from toolkit.generate.books import Books
from toolkit.generate.budget import Budget
from toolkit.generate.conversation import Conversation, Ended, Said
from toolkit.generate.halt import Sleep
from toolkit.generate.lanes import Asker, Lane
from toolkit.generate.outcome import Answered, Refused
from toolkit.generate.plan import Planned
from toolkit.generate.retry import Backoff
from toolkit.generate.spent import Spent
from toolkit.generate.transport import Request, Transport
from toolkit.records import Failure

_HOPELESS_AFTER = 16
"""Asks that fail for the endpoint's sake before a run that has no answer yet gives up."""
_STRANGERS = 8
_STRANGERS_SHARE = 0.2
"""Replies of providers that were not allowed, and their share, at which a run stops paying for more."""
_PRICELESS_REPLIES = 8
"""Replies without a cost before a run with a budget in dollars, and no other word about prices, gives up."""
_NEVER_BILLED = frozenset(
    {"connection_failed", "connection_refused", "dns_failed", "tls_failed", "host_unknown", "prompt_unrenderable"}
)
"""Failures of requests that cannot have reached anybody who bills."""


@dataclass(slots=True, kw_only=True)
class Work:
    """One dataset's part of a run.

    Attributes:
        asks: What is asked once each.
        conversations: What is asked turn by turn.
        hear: What an answer says, as its row will have it; for conversations.
        earlier: What was said in a turn that has a row; None where it has none.
        is_hopeless: Whether an ask failed for good in an earlier run.
        probes: Called when all else is done; gives what is asked again of `prober`.
        kept: Called with each answer that was kept.
    """

    books: Books
    asker: Asker
    asks: Iterable[Planned] = ()
    conversations: Iterable[Conversation] = ()
    hear: Callable[[Answered], Said] | None = None
    earlier: Callable[[Planned], Said | None] = lambda _: None
    is_hopeless: Callable[[Planned], bool] = lambda _: False
    prober: Asker | None = None
    probes: Callable[[], Iterator[Planned]] = lambda: iter(())
    kept: Callable[[Planned], None] = lambda _: None


@dataclass(slots=True, kw_only=True)
class Engine:
    """Sends what several datasets ask, over one transport and within one budget."""

    transport: Transport
    money: Budget
    sleep: Sleep
    clock: Callable[[], float]
    chance: Callable[[], float]
    advance: Callable[[int], None]
    works: list[Work] = field(default_factory=list)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)
    _priceless: int = 0

    async def run(self, works: list[Work]) -> None:
        """Work at everything until nothing is left or everything is halted, and drained.

        Raises:
            StoreError: a reply cannot be written; what was counted is on the disk.
            PromptsError: a file of prompts was changed since it was checked.
        """
        self.works = works
        for work in works:
            work.books.halt.tell(self._freed.set)
            for lane in self._lanes(work):
                work.books.halt.tell(lane.halted)
        try:
            async with asyncio.TaskGroup() as group:
                for work in works:
                    group.create_task(self._work(work))
        finally:
            for work in works:
                for lane in self._lanes(work):
                    lane.close()

    def stop(self, why: str, *, spent: Spent = "") -> None:
        """Send nothing more, for any dataset."""
        for work in self.works:
            work.books.halt.stop(why, spent=spent)

    @staticmethod
    def _lanes(work: Work) -> list[Lane]:
        return [work.asker.lane] if work.prober is None else [work.asker.lane, work.prober.lane]

    # --- what is worked at --------------------------------------------------------------------------

    async def _work(self, work: Work) -> None:
        halt = work.books.halt
        async with asyncio.TaskGroup() as group:
            for ask in work.asks:
                if halt:
                    break
                await self._begin(group, work.asker.lane, self._single(work, work.asker, ask))
            for conversation in work.conversations:
                if halt:
                    break
                await self._begin(group, work.asker.lane, self._converse(work, conversation))
        if work.prober is None:
            return
        async with asyncio.TaskGroup() as group:
            for ask in work.probes():
                # Those that are not sent any more are counted all the same: a run that lacks them is not complete.
                work.books.summary.probes_asked += 1
                if not halt:
                    await self._begin(group, work.prober.lane, self._single(work, work.prober, ask))

    @staticmethod
    async def _begin(group: asyncio.TaskGroup, lane: Lane, task: Coroutine[Any, Any, None]) -> None:
        """Begin a task once there is room. Tasks that wait for another try hold no slot, but not all may wait."""
        try:
            await lane.capacity.acquire()
        except asyncio.CancelledError:
            task.close()
            raise
        group.create_task(task).add_done_callback(lambda _: lane.capacity.release())

    async def _single(self, work: Work, asker: Asker, ask: Planned) -> None:
        if not work.books.halt:
            await self._ask(work, asker, ask, is_heard=False)

    async def _converse(self, work: Work, conversation: Conversation) -> None:
        """One conversation, turn by turn: the next is asked once this one is answered, complete and on the disk."""
        books = work.books
        while not conversation.is_over and not books.halt:
            ask = conversation.next_ask()
            said = work.earlier(ask)
            if said is None:
                if work.is_hopeless(ask) or work.is_hopeless(conversation.as_written(conversation.turn)):
                    books.pass_over(conversation.turns - conversation.turn)
                    return
                came = await self._ask(work, work.asker, ask)
                if isinstance(came, Failure) and came.final:
                    await self._end(work, conversation, Ended("turn_failed", f"turn {ask.turn}: {came.reason}"))
                if not isinstance(came, Answered) or work.hear is None:
                    return
                said = work.hear(came)
            ended = conversation.hear(said)
            if ended is not None:
                await self._end(work, conversation, ended)
                return

    async def _end(self, work: Work, conversation: Conversation, ended: Ended) -> None:
        """Put on file that no turn after this one will be asked."""
        rest = [conversation.as_written(turn) for turn in range(conversation.turn + 1, conversation.turns)]
        unsaid = [ask for ask in rest if not work.is_hopeless(ask)]
        work.books.pass_over(len(rest) - len(unsaid))
        await work.books.end(unsaid, ended, work.asker.lane.endpoint.name, self.clock())
        self.advance(len(rest))

    async def _ask(self, work: Work, asker: Asker, ask: Planned, *, is_heard: bool = True) -> Answered | Failure | None:
        """One ask, from its first request to its last; None: it was not asked, for nothing more is to be sent, or what
        was answered is not to be heard."""
        books, lane = work.books, asker.lane
        backoff = Backoff(max_tries=lane.endpoint.max_tries)
        refused: Refused | None = None
        tries = 0
        while True:
            came = await self._try(books, asker, ask, again=tries > 0)
            if came is None:
                break
            tries += 1
            if isinstance(came, Answered):
                keeping = books.keep(came, lane.endpoint.source)
                came = came if is_heard else None  # not to be held while the disk is waited for
                await keeping
                work.kept(ask)
                self.advance(0 if ask.probe else 1)  # probes are none of the answers that are asked for
                return came
            refused = came
            wait_s = backoff.wait_s(tries, chance=self.chance(), wished_s=refused.retry_after_s)
            if not refused.again or wait_s is None or books.halt:
                break
            refused = await books.note_cost(refused)
            await books.halt.pause(wait_s, self.sleep)
        if refused is None:
            return None
        await books.give_up(refused)
        self._despair(lane, refused)
        self.advance(0 if ask.probe else 1)
        return refused.failure

    # --- one request ----------------------------------------------------------------------------------

    async def _try(self, books: Books, asker: Asker, ask: Planned, *, again: bool) -> Answered | Refused | None:
        """One request, once there is leave to send it; None: nothing more is to be sent."""
        lane = asker.lane
        try:
            request = asker.request_of(ask)
        except PermanentError as error:
            return asker.judge.of_unsent(ask, error, at=self.clock())
        tokens = 0 if ask.probe else ask.max_tokens
        most_usd = await self._reserve(books, tokens, lambda: lane.prices.most_usd(len(request.body), ask.max_tokens))
        if most_usd is None:
            return None
        came: Answered | Refused | None = None
        sent = False
        try:
            sent_at = await lane.enter(books.halt, again=again)
            if sent_at is not None:
                sent = True
                came = await self._send(books, asker, ask, request, sent_at)
        finally:
            kept_tokens, usd = _came_to(came, ask, most_usd, is_free=lane.prices.is_free) if sent else (0, 0.0)
            books.tokens.settle(tokens, 0 if ask.probe else kept_tokens)
            self.money.settle(most_usd, usd)
            self._freed.set()
        self._watch_prices(lane, came)
        return came

    async def _send(
        self, books: Books, asker: Asker, ask: Planned, request: Request, sent_at: float
    ) -> Answered | Refused:
        lane = asker.lane
        books.summary.requests += 1
        came: Answered | Refused | None = None
        try:
            try:
                response = await self.transport.post(
                    request.url, body=request.body, headers=lane.headers, timeout_s=lane.endpoint.timeout_s
                )
            except TransientError as error:
                came = asker.judge.of_error(ask, request, error, at=self.clock())
            else:
                came = asker.judge.of_response(ask, request, response, at=self.clock())
        except asyncio.CancelledError:
            books.unanswered.append(ask)
            raise
        finally:
            if isinstance(came, Refused):
                # Before its slot is free: nothing more should be sent where nothing can be answered.
                self._heed(lane, came)
            lane.ended(came, sent_at)
        return came

    async def _reserve(self, books: Books, tokens: int, price: Callable[[], float | None]) -> float | None:
        """Wait until one more request fits into both budgets.

        Returns:
            The US dollars that were reserved; None: nothing more is to be sent.
        """
        while not books.halt:
            most_usd = price()
            affordable = self.money.admits(most_usd or 0.0)
            if most_usd is None and self._must_know_prices():
                # Nobody knows yet what a request costs: one at a time, until the first has said it.
                affordable = self.money.in_flight == 0 and self.money.kept < self.money.most
            if affordable and books.tokens.admits(tokens):
                books.tokens.reserve(tokens)
                self.money.reserve(most_usd or 0.0)
                return most_usd or 0.0
            if books.tokens.is_spent(tokens):
                books.halt.stop(
                    f"the budget of {books.tokens.limit:,.0f} tokens is spent: {books.tokens.kept:,.0f} are kept, and "
                    f"one more answer may have {tokens:,}",
                    spent="tokens",
                )
            elif self.money.in_flight == 0 and not affordable:
                is_budget = self.money.most == self.money.limit
                self.stop(
                    f"{'the budget' if is_budget else 'the credit'} of "
                    f"${self.money.most:.4f} is spent: replies came to ${self.money.kept:.4f}, and one more may cost "
                    f"${most_usd or 0.0:.4f}",
                    spent="dollars" if is_budget else "credit",
                )
            else:
                self._freed.clear()
                await self._freed.wait()
        return None

    def _must_know_prices(self) -> bool:
        """Whether a request that nobody can price may come to more than there is.

        Where only the account's credit is known, and replies say nothing of their cost, nothing can be held against it.
        """
        return self.money.limit is not None or (not math.isinf(self.money.most) and not self._priceless)

    # --- when to stop ---------------------------------------------------------------------------------

    def _heed(self, lane: Lane, refused: Refused) -> None:
        """Stop where the reply says that all further requests would fail alike, or strangers answer."""
        if refused.stops_run is not None:
            self.stop(f"{refused.failure.reason}: {refused.stops_run}")
        if lane.strangers >= _STRANGERS and lane.strangers >= _STRANGERS_SHARE * (lane.strangers + lane.answers):
            self.stop(
                f"{lane.endpoint.url}: {lane.strangers} replies came from providers that are not allowed and were paid "
                f"for in vain; the last: {refused.failure.detail}"
            )

    def _despair(self, lane: Lane, refused: Refused) -> None:
        """Stop where no answer has come and every further ask would fail like this one."""
        lane.failures += refused.about_endpoint
        if lane.failures >= _HOPELESS_AFTER and lane.answers == 0:
            self.stop(
                f"{lane.endpoint.url}: {lane.failures} asks failed and none was answered; the last: "
                f"{refused.failure.reason}: {refused.failure.detail}"
            )

    def _watch_prices(self, lane: Lane, came: Answered | Refused | None) -> None:
        """A budget in dollars that nothing can be held against stops the run."""
        if not isinstance(came, Answered) or lane.prices.is_free:
            return
        self._priceless += came.reply.cost_usd is None
        given_up = self.money.limit is not None and self._priceless >= _PRICELESS_REPLIES
        if given_up and lane.prices.most_usd(1, 1) is None:
            self.stop(
                f"{lane.endpoint.url}: expected replies to state their cost, since there is a budget in dollars; "
                f"found {self._priceless} that do not"
            )


def _came_to(came: Answered | Refused | None, ask: Planned, most_usd: float, *, is_free: bool) -> tuple[int, float]:
    """(completion tokens kept, US dollars) of a request that was sent. What nobody says is taken for the most."""
    unknown_usd = 0.0 if is_free else most_usd
    if isinstance(came, Answered):
        tokens = came.reply.completion_tokens
        usd = came.reply.cost_usd
        return (ask.max_tokens if tokens is None else tokens), (unknown_usd if usd is None else usd)
    if came is None:
        return 0, unknown_usd
    failure = came.failure
    if failure.cost_usd is not None:
        return 0, failure.cost_usd
    # A whole reply that is an error costs nothing; where none came, generation may have gone on and been billed.
    replied = bool(failure.body) or failure.reason in _NEVER_BILLED or (failure.status or 0) >= 400
    return 0, 0.0 if replied else unknown_usd
