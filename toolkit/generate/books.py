"""The books of one dataset in a run: what is written, what is counted, and how it stands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from toolkit.generate.budget import Budget
from toolkit.generate.commit import GroupCommit
from toolkit.generate.conversation import Ended
from toolkit.generate.halt import Halt
from toolkit.generate.lanes import Lane
from toolkit.generate.outcome import Answered, Refused
from toolkit.generate.plan import Planned
from toolkit.generate.processes import host_name, mark_of
from toolkit.generate.status import Rate, RunStatus
from toolkit.generate.summary import RunSummary, shown
from toolkit.records import Failure
from toolkit.sealing import Alongside
from toolkit.store.journal import LineWriter, spelled

_NAME_LETTERS = 80
_NAMES_REMEMBERED = 256
_OTHERS = "(other names)"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """All datasets of a run together: how many there are, and what their replies say they cost."""

    datasets: int
    cost_usd: float


@dataclass(slots=True, kw_only=True)
class Books:
    """Writes and counts what becomes of one dataset's asks.

    Attributes:
        tokens: Completion tokens that the dataset holds, against its limit.
        rows: Makes rows of the answers while the run goes on.
        cost_before_usd: What the replies of earlier runs said they cost.
        options: What was given to this run and must be given again to go on in the same way.
        halt: Says when nothing more is to be sent for it.
        unanswered: Asks in flight whose reply nobody waited for: stopped at once.
    """

    summary: RunSummary
    tokens: Budget
    journal: LineWriter
    failures: LineWriter
    commit: GroupCommit
    rows: Alongside
    began: float
    rate: Rate
    cost_before_usd: float = 0.0
    options: tuple[str, ...] = ()
    halt: Halt = field(default_factory=Halt)
    unanswered: list[Planned] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.halt.tell(self._note_halt)

    def _note_halt(self) -> None:
        self.summary.stopped, self.summary.spent = self.halt.why, self.halt.spent

    async def keep(self, came: Answered, source: str) -> None:
        """An answer is on the disk before it is counted."""
        body = spelled(came.entry.body)
        written = self.commit.begin(self.journal, came.entry, body)
        # In the order of the journal's lines, and while the disk is at work.
        self.rows.add(came.entry, came.reply, body)
        reply, is_probe = came.reply, came.entry.probe
        cost_usd, tokens, name = reply.cost_usd or 0.0, reply.completion_tokens or 0, reply.provider or source
        # Bodies and texts are not to be held by the thousand while the disk is waited for.
        del body, came, reply
        await written
        summary = self.summary
        summary.cost_usd += cost_usd
        if is_probe:
            summary.probes_answered += 1
            return
        summary.answered += 1
        summary.left -= 1
        summary.tokens += tokens
        summary.providers[counted_as(self._name_of(name), summary.providers)] += 1

    def _name_of(self, provider: str) -> str:
        """Who answered, as it is shown: one of a few names, almost always."""
        name = self._names.get(provider)
        if name is None:
            name = shown(provider, _NAME_LETTERS)
            if len(provider) <= _NAME_LETTERS and len(self._names) < _NAMES_REMEMBERED:
                self._names[provider] = name
        return name

    async def note_cost(self, refused: Refused) -> Refused:
        """Put a try that was paid for on file, though its ask goes on; the refusal without its cost."""
        if not refused.failure.cost_usd:
            return refused
        await self.commit.write(self.failures, refused.failure)
        self.summary.cost_usd += refused.failure.cost_usd
        return replace(refused, failure=replace(refused.failure, cost_usd=None))

    async def give_up(self, refused: Refused) -> None:
        """No answer in this run."""
        failure = refused.failure
        await self.commit.write(self.failures, failure)
        self.summary.cost_usd += failure.cost_usd or 0.0
        self._count_failure(failure)

    async def end(self, asks: list[Planned], ended: Ended, where: str, at: float) -> None:
        """Turns that will not be reached, since their conversation has ended."""
        for ask in asks:
            failure = failure_about_ask(ask, ended.reason, ended.detail, final=True, where=where, at=at)
            await self.commit.write(self.failures, failure)
            self._count_failure(failure)

    def pass_over(self, asks: int) -> None:
        """Asks that turn out to have failed for good in an earlier run."""
        self.summary.left -= asks
        self.summary.failed_before += asks

    def _count_failure(self, failure: Failure) -> None:
        self.summary.failures[failure.reason] += 1
        if failure.probe:
            self.summary.probes_failed += 1
            return
        if failure.final:
            self.summary.failed_final += 1
        else:
            self.summary.failed_transient += 1
        self.summary.left -= 1

    def write_unanswered(self, where: str, at: float) -> None:
        """Put on file what was in flight when the run was stopped at once: it may have been billed."""
        for ask in self.unanswered:
            detail = "nobody waited for the reply: the run was stopped at once; it may have been billed"
            self.failures.write(
                failure_about_ask(ask, "in_flight_when_stopped", detail, final=False, where=where, at=at)
            )
        self.summary.lost += len(self.unanswered)
        self.unanswered.clear()

    def status(self, lane: Lane, money: Budget, whole: WholeRun, *, phase: str, at: float, now: float) -> RunStatus:
        """This moment. `at` in seconds since 1970, `now` by the run's own clock."""
        summary = self.summary
        per_s = self.rate.count(now, summary.answered)
        return RunStatus(
            dataset=summary.dataset, phase=phase, pid=os.getpid(), started=self.began, updated=at, asked=summary.asked,
            answered=summary.answered + summary.answered_before,
            failed=summary.failed_final + summary.failed_transient + summary.failed_before, left=summary.left,
            lost=summary.lost, probes=summary.probes_answered, samples=summary.samples,
            tokens=summary.tokens + summary.tokens_before, run_tokens=summary.tokens,
            tokens_budget=None if self.tokens.limit is None else int(self.tokens.limit), cost_usd=summary.cost_usd,
            cost_before_usd=self.cost_before_usd, options=self.options, run_cost_usd=whole.cost_usd,
            run_datasets=whole.datasets, dollars_held=money.kept, dollars_budget=money.limit, per_s=per_s,
            eta_s=summary.left / per_s if per_s > 0 else None, in_flight=lane.limiter.in_flight,
            limit=int(lane.limiter.window), per_s_limit=lane.limiter.pace_or_none, paused_s=lane.limiter.paused_s(now),
            resting=lane.rests.resting(now), providers=dict(summary.providers), failures=dict(summary.failures),
            stopped=self.halt.why, spent=self.halt.spent, host=host_name(), mark=mark_of(os.getpid()) or "",
        )  # fmt: skip


def counted_as(name: str, counts: Mapping[str, int]) -> str:
    """The name under which one more is counted: a server may invent another for each reply, and every status tells
    all of them."""
    return name if name in counts or len(counts) < _NAMES_REMEMBERED else _OTHERS


def failure_about_ask(ask: Planned, reason: str, detail: str, *, final: bool, where: str, at: float) -> Failure:
    """The record of an ask that no reply came to."""
    return Failure(
        reason=reason, detail=detail, final=final, where=where, sample_id=ask.sample_id, turn=ask.turn,
        sample_index=ask.sample_index, probe=ask.probe, row_key=ask.row_key, at=at,
    )  # fmt: skip
