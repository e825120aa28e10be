"""`generate`: ask what is not answered yet, keep every reply, seal them as rows."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from msgspec.structs import replace

from toolkit.config import DatasetSettings, EndpointSettings, check_endpoint, is_loopback
from toolkit.contract import Contract
from toolkit.errors import ConfigError, PromptsError, StoreError
from toolkit.generate.budget import Budget
from toolkit.generate.commit import group_commit
from toolkit.generate.engine import Engine, Work
from toolkit.generate.halt import Sleep
from toolkit.generate.lanes import Asker, Lane
from toolkit.generate.loop import run_async
from toolkit.generate.memory import rare_collections
from toolkit.generate.preparing import Job, Prepared, prepare
from toolkit.generate.reporting import Reporter
from toolkit.generate.signals import interrupts
from toolkit.generate.status import RunStatus, read_status, write_status
from toolkit.generate.summary import RunSummary
from toolkit.generate.transport import Transport
from toolkit.generate.watching import AccountWatch
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a run needs of the world; tests bring their own.

    Attributes:
        transport: Sends requests; its owner closes it. A client of our own when None.
        sleep: Waits, in seconds.
        clock: Seconds since 1970.
        ticks: Seconds from any start, that never go back.
        chance: A random number from 0 to 1.
    """

    transport: Transport | None = None
    sleep: Sleep = asyncio.sleep
    clock: Callable[[], float] = time.time
    ticks: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


def generate(
    dataset: Dataset,
    settings: DatasetSettings,
    endpoint: EndpointSettings,
    contract: Contract,
    vocabulary: Vocabulary,
    *,
    dollars: float | None = None,
    advance: Callable[[int], None] = lambda _: None,
    watch: Callable[[RunStatus], None] = lambda _: None,
    surroundings: Surroundings | None = None,
) -> RunSummary:
    """Ask for everything in prompts.jsonl that has no row, and seal the answers; see `generate_all`."""
    job = Job(dataset=dataset, settings=settings, endpoint=endpoint, contract=contract, vocabulary=vocabulary)
    return generate_all([job], dollars=dollars, advance=advance, watch=watch, surroundings=surroundings)[0]


def generate_all(
    jobs: Sequence[Job],
    *,
    dollars: float | None = None,
    before: Callable[[], None] = lambda: None,
    advance: Callable[[int], None] = lambda _: None,
    watch: Callable[[RunStatus], None] = lambda _: None,
    surroundings: Surroundings | None = None,
) -> list[RunSummary]:
    """Ask for everything of several datasets that has no row, and seal the answers; a summary each.

    They share the budget in dollars, and the connections where they ask the same endpoint. The first in the list go
    first; the next begins as soon as there is room.

    Args:
        jobs: What to ask, and of whom.
        dollars: What replies may come to, all together; None: no limit.
        before: Called once before the first request, if there is anything to ask; what it raises ends the run.
        advance: Called with the number of asks that have just been answered or given up.
        watch: Called about once a second with the state of each dataset.
        surroundings: The network and the clocks.

    Raises:
        ConfigError: prompts, settings or key will not do; nothing was sent.
        StoreError: a dataset cannot be read or written; every reply that was counted is in its journal.
    """
    around = surroundings or Surroundings()
    names = [job.dataset.name for job in jobs]
    if len(set(names)) < len(names):
        raise ConfigError(f"datasets {', '.join(names)}: expected each of them once")
    for job in jobs:
        check_endpoint(job.endpoint)
    with ExitStack() as stack:
        prepared = [stack.enter_context(prepare(job, now=around.clock())) for job in jobs]
        to_do = [one for one in prepared if one.has_work]
        for one in prepared:
            if not one.has_work:
                _note_samples(one)
        if to_do:
            before()
            for one in to_do:
                one.job.vocabulary.forget_referee()
            run = _Run(around=around, money=Budget(limit=dollars), advance=advance, watch=watch)
            with rare_collections():
                run_async(run.go(to_do))
                run.seal(to_do)
    return [one.summary for one in prepared]


def _note_samples(one: Prepared) -> None:
    """Remember that fewer samples than before are wanted now, where that leaves nothing to ask."""
    folder, summary = one.job.dataset.folder, one.summary
    status = None
    with suppress(StoreError):  # what cannot be read is told by whoever needs it
        status = read_status(folder)
    if status is not None and status.samples != summary.samples:
        answered, failed = summary.answered_before, summary.failed_before
        counts = {"asked": summary.asked, "answered": answered, "failed": failed, "left": summary.left}
        write_status(folder, replace(status, phase="done", samples=summary.samples, **counts))


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run over the datasets that have something to ask."""

    around: Surroundings
    money: Budget
    advance: Callable[[int], None]
    watch: Callable[[RunStatus], None]
    at_once: bool = False
    lanes: dict[tuple[str, str], Lane] = field(default_factory=dict)
    reporter: Reporter | None = None

    async def go(self, prepared: Sequence[Prepared]) -> None:
        """Send everything; ends when it is drained, or at once when it is interrupted twice.

        Raises:
            StoreError: a reply cannot be written.
            PromptsError: a file of prompts was changed since it was checked.
        """
        async with AsyncExitStack() as stack:
            transport = await stack.enter_async_context(self._transport(prepared))
            works = [await self._work_of(one, stack) for one in prepared]
            engine = Engine(
                transport=transport, money=self.money, sleep=self.around.sleep, clock=self.around.clock,
                chance=self.around.chance, advance=self.advance, works=works,
            )  # fmt: skip
            self.reporter = Reporter(works, self.money, self.watch, self.around.clock, self.around.ticks)
            account = AccountWatch(engine, transport, self.around.sleep)
            task = asyncio.current_task()
            stack.enter_context(
                interrupts(
                    first=lambda: self._interrupt(engine, prepared), second=lambda: self._stop_at_once(task),
                )
            )  # fmt: skip
            stack.push_async_callback(self.reporter.close)
            stack.push_async_callback(account.close)
            await account.begin(works, [one.job.model for one in prepared])
            self.reporter.begin()
            try:
                await engine.run(works)
            except BaseExceptionGroup as group:
                raise _plain(group) from None
            except asyncio.CancelledError:
                if not self.at_once:
                    raise
                for work in works:
                    work.books.write_unanswered(work.asker.lane.endpoint.name, self.around.clock())

    def seal(self, prepared: Sequence[Prepared]) -> None:
        """Turn journals into shards; left to the next run where this one was stopped at once."""
        for one in prepared:
            one.close_writers()
            if not self.at_once:
                self._report(one, "sealing")
                one.summary.rows_sealed += one.seal()
            self._report(one, "done" if one.summary.complete else "stopped")

    def _report(self, one: Prepared, phase: str) -> None:
        if self.reporter is not None:
            self.reporter.report(one.summary.dataset, phase)

    async def _work_of(self, one: Prepared, stack: AsyncExitStack) -> Work:
        job = one.job
        journal, failures = one.open_writers(self.around.clock())
        commit = await stack.enter_async_context(group_commit(journal, failures))
        asker = self._asker(one, job.endpoint)
        prober = None if job.probe is None else self._asker(one, job.probe.endpoint)
        return one.work(asker, prober, commit, began=self.around.clock(), now=self.around.ticks())

    def _asker(self, one: Prepared, endpoint: EndpointSettings) -> Asker:
        """Who asks for a dataset; datasets that ask the same endpoint share what is known of it."""
        lane = self.lanes.get((endpoint.name, endpoint.url))
        if lane is None:
            lane = Lane(endpoint=endpoint, key=endpoint.key(), ticks=self.around.ticks, sleep=self.around.sleep)
            self.lanes[endpoint.name, endpoint.url] = lane
        return Asker(lane, one.job.contract, one.job.vocabulary, one.builder)

    def _interrupt(self, engine: Engine, prepared: Sequence[Prepared]) -> None:
        for one in prepared:
            one.summary.interrupted = True
        engine.stop("interrupted")

    def _stop_at_once(self, task: asyncio.Task[object] | None) -> None:
        self.at_once = True
        if task is not None:
            task.cancel()

    @asynccontextmanager
    async def _transport(self, prepared: Sequence[Prepared]) -> AsyncIterator[Transport]:
        if self.around.transport is not None:
            yield self.around.transport
            return
        from toolkit.generate.client import connected  # aiohttp takes 0.1 s: only who sends pays

        endpoints = {(at.name, at.url): at for one in prepared for at in one.job.endpoints}
        remote = any(not is_loopback(urlsplit(at.url)) for at in endpoints.values())
        total = sum(at.concurrency for at in endpoints.values())
        async with connected(concurrency=total, use_proxies=remote) as opened:
            yield opened


def _plain(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error for people of a group that holds nothing else: they all say the same. Else the group."""
    known, other = group.split((StoreError, PromptsError))
    if known is None or other is not None:
        return group
    error: BaseException = known
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
