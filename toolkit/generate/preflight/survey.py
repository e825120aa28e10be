"""What the disk says of a dataset before a run: prompts, settings, what is answered, a sample of what is left.

Nothing is changed and no lock is taken: another process may be writing meanwhile, and counts are of this moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from toolkit.errors import ConfigError, PermanentError, PromptsError, ShardError
from toolkit.generate.conversation import Conversation
from toolkit.generate.plan import Identity, Plan, Planned, final_failures, plan_of
from toolkit.generate.preflight.checks import Check, Result
from toolkit.generate.preparing import Job
from toolkit.generate.request import wire_format
from toolkit.generate.turns import TurnPlan, plan_turns
from toolkit.prompt import PromptRenderer
from toolkit.sealing import check_contract
from toolkit.store.answered import Answered, read_answered
from toolkit.store.journal import journal_files, read_entries, read_failures
from toolkit.store.prompts import PromptIndex, check_prompts
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset

SAMPLED = 200
"""Prompts that are rendered to know how long they are."""
_LONGEST = 5
"""Of the longest lines, so many are rendered: the most bytes are mostly, not always, the most ids."""
_CANDIDATES = 256
"""Of the shortest lines, so many are looked at for asks to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What rows that are there teach: of all but probes.

    Attributes:
        tokens: completion_tokens of each row that states them.
        latencies_s: Of each row that was timed.
        total_tokens: Sum of `tokens`.
    """

    tokens: npt.NDArray[np.float64]
    latencies_s: npt.NDArray[np.float64]

    @property
    def total_tokens(self) -> int:
        """Completion tokens that the dataset holds, as far as rows state them."""
        return int(self.tokens.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """One dataset before a run.

    Attributes:
        asked, left: Asks in all, and those without an answer.
        prompt_ids: Lengths of a sample of prompts, in ids; rendered as the server does.
        prompt_bytes: Bytes of a line of prompts.jsonl, on average.
        sampled_all: Whether the sample is all prompts.
        unrendered: Prompts of the sample that have no ids.
        longest_ids: The most ids of any prompt that was rendered, the longest lines among them.
        longest_total: The most that any of these and its cap come to.
        max_tokens: The largest cap among them.
        has_tools: Whether any prompt that was looked at declares tools.
        candidates: Open asks of short prompts, those with tools first where there are any; what may be sent.
        body_fields: Fields of a request's body.
    """

    job: Job
    asked: int
    left: int
    prompt_ids: npt.NDArray[np.float64]
    prompt_bytes: float
    sampled_all: bool
    unrendered: int
    longest_ids: int | None
    longest_total: int | None
    max_tokens: int
    has_tools: bool
    candidates: tuple[Planned, ...]
    body_fields: frozenset[str]
    held: Held


@dataclass(slots=True)
class Look:
    """What came of looking: checks, and a survey where there is one."""

    checks: list[Check] = field(default_factory=list)
    survey: Survey | None = None


def look(job: Job, *, most_candidates: int) -> Look:
    """Check prompts and settings of a dataset, and survey it.

    Raises:
        StoreError: files of the dataset cannot be read.
    """
    found = Look()
    name = job.dataset.name
    try:
        index = check_prompts(job.dataset.prompts, modes=job.contract.modes)
    except PromptsError as error:
        found.checks += [_input_fault(name, "prompts", fault) for fault in error.faults or (str(error),)]
    else:
        found.checks.append(
            Check(about=name, what="prompts", result=Result.OK, found=f"{len(index):,} without a fault")
        )
    for endpoint in job.endpoints:
        found.checks.append(_key_check(job, endpoint.name))
    try:
        check_contract(job.dataset, read_live(job.dataset).contract, job.contract.name)
        if not any(check.result is Result.FAIL for check in found.checks):
            found.survey = _survey(job, index, most_candidates, found.checks)
    except ConfigError as error:
        found.checks.append(_input_fault(name, "settings", str(error)))
    except PermanentError as error:
        found.checks.append(_input_fault(name, "request", str(error)))
    return found


def _input_fault(name: str, what: str, fault: str) -> Check:
    return Check(about=name, what=what, result=Result.FAIL, found=fault, of_input=True)


def _key_check(job: Job, name: str) -> Check:
    endpoint = next(endpoint for endpoint in job.endpoints if endpoint.name == name)
    try:
        key = endpoint.key()
    except ConfigError as error:
        return _input_fault(name, "key", str(error))
    found = "none is sent" if key is None else f"set in {endpoint.key_env}"
    return Check(about=name, what="key", result=Result.OK, found=found)


def _survey(job: Job, index: PromptIndex, most_candidates: int, checks: list[Check]) -> Survey:
    """Survey a dataset whose prompts are sound.

    Raises:
        ConfigError: its settings will not do.
        PermanentError: its asks cannot be asked of the endpoint.
    """
    answered = read_answered(job.dataset, tolerant=True)
    plan = _plan_of(job, index, answered)
    waiting = _waiting(job.dataset)
    fresh = {identity for identity in waiting if answered.find(*identity) is None}
    left = max(plan.open - len(fresh), 0)
    checks.append(_left_check(job, plan.asked, left))
    if plan.changed:
        rows, them = ("row was", "it") if plan.changed == 1 else ("rows were", "them")
        found = f"{plan.changed:,} {rows} asked with other prompts or settings: a run sets {them} aside and asks anew"
        checks.append(Check(about=job.dataset.name, what="rows", result=Result.WARN, found=found))
    pick = _Pick(job, index, plan, answered, waiting)
    lengths = _Lengths(job)
    sample = _spread(len(index), SAMPLED)
    for _, ask in pick.asks_at(sample):
        lengths.add(ask, sampled=True)
    for _, ask in pick.asks_at(pick.by_size()[::-1][:_LONGEST]):
        lengths.add(ask, sampled=False)
    candidates = pick.open_asks(most_candidates)
    wire = wire_format(job.endpoint, job.contract, job.vocabulary)
    return Survey(
        job=job, asked=plan.asked, left=left, prompt_ids=np.array(lengths.sampled, np.float64),
        prompt_bytes=index.size / len(index), sampled_all=len(sample) == len(index), unrendered=lengths.unrendered,
        longest_ids=lengths.longest, longest_total=lengths.longest_total, max_tokens=lengths.max_tokens,
        has_tools=lengths.has_tools or any(ask.tools for ask in candidates), candidates=candidates,
        body_fields=frozenset(wire.request_of(candidates[0]).sent) if candidates else frozenset(),
        held=_held(job.dataset),
    )  # fmt: skip


def _plan_of(job: Job, index: PromptIndex, answered: Answered) -> Plan | TurnPlan:
    if job.settings.turns == "every":
        return plan_turns(index, job.settings, job.contract, answered)
    return plan_of(index, job.settings, job.contract, answered, read_failures(job.dataset.failures))


def _waiting(dataset: Dataset) -> set[Identity]:
    """Identities that have an answer in the journal."""
    return {
        (entry.sample_id, entry.turn, entry.sample_index)
        for path in journal_files(dataset.journal)
        for entry in read_entries(path)
        if not entry.probe
    }


def _left_check(job: Job, asked: int, left: int) -> Check:
    answers = "answer" if asked == 1 else "answers"
    all_told = "its one ask is" if asked == 1 else f"all {asked:,} are"
    found = f"{left:,} of {asked:,} {answers} to ask for" if left else f"{all_told} answered: nothing is left to ask"
    return Check(about=job.dataset.name, what="left", result=Result.OK, found=found)


def _spread(count: int, most: int) -> list[int]:
    """Up to `most` positions of `count`, evenly spread, the same each time."""
    if count <= most:
        return list(range(count))
    return [count * at // most for at in range(most)]


@dataclass(slots=True)
class _Pick:
    """Finds asks in a checked file without reading all of it."""

    job: Job
    index: PromptIndex
    plan: Plan | TurnPlan
    answered: Answered
    waiting: set[Identity]

    def by_size(self) -> list[int]:
        """Positions of prompts, the shortest line first."""
        ends = np.append(self.index.offsets[1:], np.uint64(self.index.size))
        return [int(at) for at in np.argsort(ends - self.index.offsets, kind="stable")]

    def asks_at(self, positions: list[int]) -> Iterator[tuple[int, Planned]]:
        """The first ask of each of these prompts, in the file's order."""
        wanted = np.zeros(len(self.index), np.bool_)
        wanted[positions] = True
        for position, prompt in self.index.among(wanted):
            yield position, next(self.plan.way.asks_of(prompt))

    def open_asks(self, most: int) -> tuple[Planned, ...]:
        """Open asks of the shortest prompts, one each; with tools first, for their replies show more."""
        shortest = self.by_size()[:_CANDIDATES]
        rank = {position: at for at, position in enumerate(shortest)}
        hopeless = final_failures(read_failures(self.job.dataset.failures))
        found = [(rank[at], ask) for at, first in self.asks_at(shortest) if (ask := self._open(first, hopeless))]
        if not found:
            found = [(at, ask) for at, ask in enumerate(islice(self._left(hopeless), most))]
        found.sort(key=lambda one: (not one[1].tools, one[0]))
        return tuple(ask for _, ask in found[:most])

    def _left(self, hopeless: set[tuple[Identity, str]]) -> Iterator[Planned]:
        """Open asks wherever they stand, in the file's order."""
        for one in self.plan:
            first = one.next_ask() if isinstance(one, Conversation) else one
            ask = self._open(first, hopeless)
            if ask is not None:
                yield ask

    def _open(self, ask: Planned, hopeless: set[tuple[Identity, str]]) -> Planned | None:
        """The ask as it would be sent, if it has no row of any kind, no reply in the journal, and is not hopeless."""
        if isinstance(self.plan, TurnPlan):
            ask = Conversation(ask, self.job.contract).next_ask()
        if ask.turn or ask.identity in self.waiting or self.answered.find(*ask.identity) is not None:
            return None
        return None if (ask.identity, ask.row_key) in hopeless else ask


@dataclass(slots=True)
class _Lengths:
    """Renders prompts, and keeps how long they are."""

    job: Job
    sampled: list[int] = field(default_factory=list)
    unrendered: int = 0
    longest: int | None = None
    longest_total: int | None = None
    max_tokens: int = 0
    has_tools: bool = False
    _renderer: PromptRenderer = field(init=False)

    def __post_init__(self) -> None:
        self._renderer = PromptRenderer(self.job.contract, self.job.vocabulary)

    def add(self, ask: Planned, *, sampled: bool) -> None:
        """Take note of one prompt; `sampled`: it stands for others."""
        self.max_tokens = max(self.max_tokens, ask.max_tokens)
        self.has_tools |= bool(ask.tools)
        ids = self._renderer.render(ask.messages, ask.tools, ask.mode).ids
        if ids is None:
            self.unrendered += sampled
            return
        if sampled:
            self.sampled.append(len(ids))
        self.longest = max(self.longest or 0, len(ids))
        self.longest_total = max(self.longest_total or 0, len(ids) + ask.max_tokens)


def _held(dataset: Dataset) -> Held:
    """Counts and times of the live rows, probes left out. What cannot be read is left out, too: the audit judges it."""
    tokens, latencies = [], []
    for shard in read_live(dataset).shards:
        try:
            table = read_shard(dataset, shard, ["completion_tokens", "latency_s", "probe"], verify=False)
        except ShardError:
            continue
        rows = table.filter(pc.invert(table["probe"]))
        tokens.append(pc.drop_null(rows["completion_tokens"]).to_numpy().astype(np.float64))
        latencies.append(pc.drop_null(rows["latency_s"]).to_numpy().astype(np.float64))
    empty = np.empty(0, np.float64)
    return Held(tokens=np.concatenate([empty, *tokens]), latencies_s=np.concatenate([empty, *latencies]))
