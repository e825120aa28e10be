"""`generate`: ask what is not answered yet, keep every reply, seal them as rows."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from toolkit.config import DatasetSettings, EndpointSettings, Secret, check_endpoint, is_loopback
from toolkit.contract import Contract
from toolkit.errors import StoreError, TransientError
from toolkit.generate.commit import GroupCommit, group_commit
from toolkit.generate.openrouter import body_of, chat_url, headers_of
from toolkit.generate.outcome import Answered, Judge, Refused
from toolkit.generate.plan import Planned, final_failures, plan_asks, split_answered
from toolkit.generate.retry import Backoff
from toolkit.generate.seal import check_contract, rows_there, seal_held
from toolkit.generate.summary import RunSummary, shown
from toolkit.generate.transport import Transport
from toolkit.rows import RowBuilder
from toolkit.store.files import sole_writer
from toolkit.store.journal import LineWriter, read_failures
from toolkit.store.prompts import read_prompts
from toolkit.store.shards import read_live
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary
from toolkit.wire import dump_json

_HOPELESS_AFTER = 16
"""Asks that fail for the endpoint's sake before a run that has no answer yet gives up."""


def generate(
    dataset: Dataset,
    settings: DatasetSettings,
    endpoint: EndpointSettings,
    contract: Contract,
    vocabulary: Vocabulary,
    *,
    advance: Callable[[int], None] = lambda _: None,
    transport: Transport | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
) -> RunSummary:
    """Ask for everything in prompts.jsonl that has no row, and seal the answers.

    Args:
        dataset: Where prompts are read and rows are written.
        settings: What to ask for.
        endpoint: Whom to ask.
        contract: The model's contract.
        vocabulary: The contract's vocabulary.
        advance: Called with the number of asks that have just been answered or given up.
        transport: Sends requests; its owner closes it. A client of our own when None.
        sleep: Waits between tries, in seconds.
        clock: Seconds since 1970.
        chance: A random number from 0 to 1.

    Raises:
        ConfigError: prompts, settings or key will not do, or rows were asked for with other settings; nothing was sent.
        StoreError: the dataset cannot be read or written; every reply that was counted is in its journal.
    """
    check_endpoint(endpoint)
    asks = plan_asks(read_prompts(dataset.prompts, modes=contract.modes), settings, contract)
    summary = RunSummary(dataset=dataset.name, asked=len(asks))
    builder = RowBuilder(contract, vocabulary)
    with sole_writer(dataset.lock):
        check_contract(dataset, read_live(dataset).contract, contract.name)
        summary.rows_sealed = seal_held(dataset, builder)
        open_asks, summary.answered_before = split_answered(asks, rows_there(dataset), dataset.name)
        hopeless = final_failures(read_failures(dataset.failures))
        to_send = [ask for ask in open_asks if (ask.identity, ask.row_key) not in hopeless]
        summary.failed_before = len(open_asks) - len(to_send)
        summary.left = len(to_send)
        if not to_send:
            return summary
        key = endpoint.key()
        with _writers(dataset, clock()) as (journal, failures):
            run = _Run(
                endpoint=endpoint, contract=contract, judge=Judge(endpoint=endpoint, builder=builder, key=key), key=key,
                journal=journal, failures=failures, summary=summary, advance=advance, sleep=sleep, clock=clock,
                chance=chance,
            )  # fmt: skip
            cancelled = asyncio.run(run.send(to_send, transport))
        if not cancelled:
            summary.rows_sealed += seal_held(dataset, builder)
    return summary


@contextmanager
def _writers(dataset: Dataset, now: float) -> Iterator[tuple[LineWriter, LineWriter]]:
    """The run's journal and its failures, opened before anything is sent; empty files are removed."""
    name = f"generate-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S%fZ}-{os.getpid()}.jsonl"
    paths = (dataset.journal / name, dataset.failures / name)
    try:
        with LineWriter(paths[0]) as journal, LineWriter(paths[1]) as failures:
            yield journal, failures
    finally:
        for path in paths:
            _remove_empty(path)


def _remove_empty(path: Path) -> None:
    try:
        if path.exists() and path.stat().st_size == 0:
            path.unlink()
    except OSError as error:
        raise StoreError(f"{path}: cannot be removed: {error.strerror}") from None


@dataclass(slots=True, kw_only=True)
class _Run:
    """The asynchronous part: sends, retries, journals, counts."""

    endpoint: EndpointSettings
    contract: Contract
    judge: Judge
    key: Secret | None
    journal: LineWriter
    failures: LineWriter
    summary: RunSummary
    advance: Callable[[int], None]
    sleep: Callable[[float], Awaitable[None]]
    clock: Callable[[], float]
    chance: Callable[[], float]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    endpoint_failures: int = 0
    cancelled: bool = False

    async def send(self, asks: Sequence[Planned], transport: Transport | None) -> bool:
        """Send all asks; whether it was cancelled rather than drained.

        Raises:
            StoreError: a reply cannot be written.
        """
        with self._signals():
            try:
                async with self._transport(transport) as opened, group_commit(self.journal, self.failures) as commit:
                    await self._send_all(asks, opened, commit)
            except BaseExceptionGroup as group:
                broken, other = group.split(StoreError)
                if broken is None or other is not None:
                    raise
                raise _first(broken) from None
            except asyncio.CancelledError:
                if not self.cancelled:
                    raise
        return self.cancelled

    async def _send_all(self, asks: Sequence[Planned], transport: Transport, commit: GroupCommit) -> None:
        slots = asyncio.Semaphore(self.endpoint.concurrency)
        # Asks that wait for another try hold no slot, so that others go on; but not all of a dataset may wait at once.
        admitted = asyncio.Semaphore(2 * self.endpoint.concurrency)
        async with asyncio.TaskGroup() as group:
            for ask in asks:
                await admitted.acquire()
                if self.stop.is_set():
                    break
                task = group.create_task(self._ask(ask, transport, slots, commit))
                task.add_done_callback(lambda _: admitted.release())

    async def _ask(self, ask: Planned, transport: Transport, slots: asyncio.Semaphore, commit: GroupCommit) -> None:
        """One ask, from its first request to its last."""
        request = body_of(ask, self.endpoint, self.contract)
        backoff = Backoff(max_tries=self.endpoint.max_tries)
        tries = 0
        outcome: Refused | None = None
        while True:
            async with slots:
                if self.stop.is_set():
                    break
                came = await self._request(ask, request, transport)
            tries += 1
            if isinstance(came, Answered):
                await self._keep(came, commit)
                return
            outcome = came
            if outcome.stops_run is not None:
                self._stop(f"{outcome.failure.reason}: {outcome.stops_run}")
            wait_s = backoff.wait_s(tries, chance=self.chance(), wished_s=outcome.retry_after_s)
            if not outcome.again or wait_s is None or self.stop.is_set():
                break
            if outcome.failure.cost_usd:
                # Paid for: it stays on file, though the ask goes on.
                await commit.write(self.failures, outcome.failure)
                self.summary.cost_usd += outcome.failure.cost_usd
                outcome = replace(outcome, failure=replace(outcome.failure, cost_usd=None))
            await self._pause(wait_s)
        if outcome is not None:
            await self._give_up(outcome, commit)

    async def _request(self, ask: Planned, request: dict[str, object], transport: Transport) -> Answered | Refused:
        self.summary.requests += 1
        try:
            response = await transport.post(
                chat_url(self.endpoint),
                body=dump_json(request).encode(),
                headers=headers_of(self.key),
                timeout_s=self.endpoint.timeout_s,
            )
        except TransientError as error:
            return self.judge.of_error(ask, request, error, at=self.clock())
        return self.judge.of_response(ask, request, response, at=self.clock())

    async def _keep(self, outcome: Answered, commit: GroupCommit) -> None:
        """An answer is on the disk before it is counted."""
        await commit.write(self.journal, outcome.entry)
        reply = outcome.reply
        self.summary.answered += 1
        self.summary.left -= 1
        self.summary.tokens += reply.completion_tokens or 0
        self.summary.cost_usd += reply.cost_usd or 0.0
        self.summary.providers[shown(reply.provider or self.endpoint.source, 80)] += 1
        self.advance(1)

    async def _give_up(self, outcome: Refused, commit: GroupCommit) -> None:
        failure = outcome.failure
        await commit.write(self.failures, failure)
        if failure.final:
            self.summary.failed_final += 1
        else:
            self.summary.failed_transient += 1
        self.summary.left -= 1
        self.summary.cost_usd += failure.cost_usd or 0.0
        self.summary.failures[failure.reason] += 1
        self._watch(outcome)
        self.advance(1)

    def _watch(self, outcome: Refused) -> None:
        """Stop where no answer has come and every further ask would fail like this one."""
        self.endpoint_failures += outcome.about_endpoint
        if self.endpoint_failures >= _HOPELESS_AFTER and self.summary.answered == 0:
            self._stop(
                f"{self.endpoint.url}: {self.endpoint_failures} asks failed and none was answered; the last: "
                f"{outcome.failure.reason}: {outcome.failure.detail}"
            )

    def _stop(self, why: str) -> None:
        if self.summary.stopped is None:
            self.summary.stopped = shown(why, 400)
        self.stop.set()

    async def _pause(self, seconds: float) -> None:
        """Wait, but not when the run stops."""
        waits = [asyncio.ensure_future(self.sleep(seconds)), asyncio.ensure_future(self.stop.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    @asynccontextmanager
    async def _transport(self, given: Transport | None) -> AsyncIterator[Transport]:
        if given is not None:
            yield given
            return
        from toolkit.generate.client import connected  # aiohttp takes 0.1 s: only who sends pays

        remote = not is_loopback(urlsplit(self.endpoint.url))
        async with connected(concurrency=self.endpoint.concurrency, use_proxies=remote) as opened:
            yield opened

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM stops sending and drains; the second cancels what is in flight."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        numbers = (signal.SIGINT, signal.SIGTERM)

        def interrupt() -> None:
            if self.summary.interrupted and task is not None:
                self.cancelled = True
                task.cancel()
            self.summary.interrupted = True
            self._stop("interrupted")

        for number in numbers:
            loop.add_signal_handler(number, interrupt)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


def _first(group: BaseExceptionGroup[StoreError]) -> StoreError:
    """One of the errors of a group: they all say the same."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
