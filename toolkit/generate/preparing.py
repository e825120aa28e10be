"""Before anything is sent: the lock, what an earlier run left, and what there is to ask."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow.compute as pc
from msgspec import structs

from toolkit.config import DatasetSettings, EndpointSettings
from toolkit.contract import Contract
from toolkit.errors import ConfigError, StoreError
from toolkit.generate.books import Books
from toolkit.generate.budget import Budget
from toolkit.generate.commit import GroupCommit
from toolkit.generate.conversation import Conversation, Said
from toolkit.generate.engine import Work
from toolkit.generate.lanes import Asker
from toolkit.generate.outcome import Answered as Answer
from toolkit.generate.plan import Identity, Plan, Planned, final_failures, plan_of
from toolkit.generate.status import Rate, cost_of_runs
from toolkit.generate.summary import RunSummary
from toolkit.generate.turns import TurnPlan, plan_turns
from toolkit.rebuild import rebuild
from toolkit.records import Ask
from toolkit.rows import RowBuilder
from toolkit.sealing import Alongside, check_contract, seal_held
from toolkit.store.answered import Answered, read_answered
from toolkit.store.discards import discard_held, settle_discards
from toolkit.store.files import remove_empty, sole_writer
from toolkit.store.journal import LineWriter, read_failures
from toolkit.store.prompts import check_prompts
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A share of answered prompts that is asked again, of another endpoint, for comparison.

    Attributes:
        percent: How many of a hundred; which ones follows from their row_key.
    """

    percent: float
    endpoint: EndpointSettings

    def chooses(self, row_key: str) -> bool:
        """Whether this ask is one of them: the same answer each time."""
        drawn = int.from_bytes(hashlib.sha256(f"probe {row_key}".encode()).digest()[:8], "big")
        return drawn < self.percent / 100.0 * 2.0**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One dataset of a run: what to ask, and of whom.

    Attributes:
        options: What was given for this run alone, and stands in no file: `("--tokens", "5000")`.
    """

    dataset: Dataset
    settings: DatasetSettings
    endpoint: EndpointSettings
    contract: Contract
    vocabulary: Vocabulary
    probe: Probe | None = None
    options: tuple[str, ...] = ()

    @property
    def endpoints(self) -> list[EndpointSettings]:
        """Everybody whom it asks."""
        return [self.endpoint] if self.probe is None else [self.endpoint, self.probe.endpoint]

    @property
    def model(self) -> str:
        """The model that it asks for."""
        return self.settings.model or self.contract.default_model


@dataclass(slots=True, kw_only=True)
class Prepared:
    """A dataset under its lock, with what there is to ask."""

    job: Job
    builder: RowBuilder
    plan: Plan | TurnPlan
    answered: Answered
    summary: RunSummary
    hopeless: set[tuple[Identity, str]]
    kept_probes: set[Identity] = field(default_factory=set)
    writers: list[LineWriter] = field(default_factory=list)
    rows: Alongside = field(init=False)
    journal: LineWriter | None = None

    def __post_init__(self) -> None:
        self.rows = Alongside(self.job.dataset, self.builder)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to ask."""
        return self.plan.open > 0 or self.job.probe is not None

    def open_writers(self, now: float) -> tuple[LineWriter, LineWriter]:
        """The run's journal and its failures.

        Raises:
            StoreError: they cannot be written.
        """
        dataset = self.job.dataset
        name = f"generate-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S%fZ}-{os.getpid()}.jsonl"
        for folder in (dataset.journal, dataset.failures):
            self.writers.append(LineWriter(folder / name))
        self.journal = self.writers[0]
        return self.writers[0], self.writers[1]

    def close_writers(self) -> None:
        """Flush and close both files; empty ones are removed."""
        while self.writers:
            writer = self.writers.pop()
            writer.close()
            remove_empty(writer.path)

    def seal(self) -> int:
        """Turn the run's journal, which is closed, into shards; the number of new rows.

        Raises:
            ConfigError, StoreError: as `sealing.seal_held`.
        """
        if self.journal is None:
            return seal_held(self.job.dataset, self.builder)
        return self.rows.seal(self.journal.path, self.journal.size)

    def work(self, asker: Asker, prober: Asker | None, commit: GroupCommit, *, began: float, now: float) -> Work:
        """What the engine is to do."""
        settings = self.job.settings
        books = Books(
            summary=self.summary, journal=self.writers[0], failures=self.writers[1], commit=commit, rows=self.rows,
            began=began, rate=Rate(now), options=self.job.options,
            cost_before_usd=cost_of_runs(self.job.dataset.folder),
            tokens=Budget(limit=settings.max_total_tokens, kept=self.summary.tokens_before),
        )  # fmt: skip
        turns = self.plan if isinstance(self.plan, TurnPlan) else None
        return Work(
            books=books,
            asker=asker,
            asks=self.plan if isinstance(self.plan, Plan) else (),
            conversations=turns if turns is not None else (),
            hear=self._hear,
            earlier=turns.earlier if turns is not None else lambda _: None,
            is_hopeless=lambda ask: (ask.identity, ask.row_key) in self.hopeless,
            prober=prober,
            probes=self._probes,
            kept=self._note_kept,
        )

    def _hear(self, came: Answer) -> Said:
        """What an answer says, as its row will have it."""
        entry, contract = came.entry, self.job.contract
        ask = Ask(mode=entry.mode, max_tokens=entry.max_tokens, stop=entry.stop)
        said = rebuild(came.reply, ask, contract, self.job.vocabulary)
        return Said(reasoning=said.reasoning, content=said.content, calls=said.tool_calls, status=str(said.status))

    # --- probes -------------------------------------------------------------------------------------

    def _note_kept(self, ask: Planned) -> None:
        probe = self.job.probe
        if probe is not None and ask.turn == 0 and not ask.probe and probe.chooses(ask.row_key):
            self.kept_probes.add(ask.identity)

    def _probes(self) -> Iterator[Planned]:
        """First turns that have an answer, are among the chosen, and were not probed yet."""
        probe = self.job.probe
        assert probe is not None
        for prompt in self.plan.prompts:
            for ask in self.plan.way.asks_of(prompt):
                first = self._first_turn(ask)
                if probe.chooses(first.row_key) and self._is_answered(first) and not self._is_probed(first):
                    yield structs.replace(first, probe=True)

    def _first_turn(self, ask: Planned) -> Planned:
        return Conversation(ask, self.job.contract).next_ask() if isinstance(self.plan, TurnPlan) else ask

    def _is_answered(self, ask: Planned) -> bool:
        if ask.identity in self.kept_probes:
            return True
        found = self.answered.find(ask.sample_id, ask.turn, ask.sample_index)
        return found is not None and self.answered.answers(found.position, ask.row_key)

    def _is_probed(self, ask: Planned) -> bool:
        return self.answered.find(ask.sample_id, ask.turn, ask.sample_index, probe=True) is not None


@contextmanager
def prepare(job: Job, *, now: float) -> Iterator[Prepared]:
    """Hold a dataset's lock, seal what an earlier run left, and see what there is to ask.

    Raises:
        ConfigError: prompts or settings will not do, or a key is missing; nothing was sent.
        StoreError: the dataset cannot be read or written.
    """
    dataset, contract = job.dataset, job.contract
    index = check_prompts(dataset.prompts, modes=contract.modes)
    builder = RowBuilder(contract, job.vocabulary)
    summary = RunSummary(dataset=dataset.name)
    with sole_writer(dataset.lock):
        check_contract(dataset, read_live(dataset).contract, contract.name)
        settle_discards(dataset)
        summary.rows_sealed = seal_held(dataset, builder)
        answered = read_answered(dataset)
        hopeless: set[tuple[Identity, str]] = set()
        plan: Plan | TurnPlan
        if job.settings.turns == "every":
            plan = plan_turns(index, job.settings, contract, answered)
            hopeless = final_failures(read_failures(dataset.failures))
        else:
            plan = plan_of(index, job.settings, contract, answered, read_failures(dataset.failures))
            summary.failed_before = plan.failed_before
        summary.asked, summary.answered_before, summary.left = plan.asked, plan.answered_before, plan.open
        summary.prompts, summary.samples = len(index), job.settings.samples
        prepared = Prepared(job=job, builder=builder, plan=plan, answered=answered, summary=summary, hopeless=hopeless)
        if prepared.has_work:
            # Before anything is changed: without its key a run sends nothing, and should leave no trace.
            for endpoint in job.endpoints:
                endpoint.key()
            _check_budget(job, plan)
            _check_writable(dataset)
        if plan.changed:
            summary.set_aside = discard_held(
                dataset, plan.changed_rows(), by="settings_changed",
                reason="prompts.jsonl and tokenproof.toml ask otherwise now than when these rows were asked for",
            ).rows  # fmt: skip
        if isinstance(plan, TurnPlan):
            plan.read_earlier(dataset)
        summary.tokens_before = _tokens_held(dataset, job.settings.max_tokens)
        try:
            yield prepared
        finally:
            prepared.close_writers()
            prepared.rows.give_up()


def _check_budget(job: Job, plan: Plan | TurnPlan) -> None:
    """Refuse a budget of tokens that the first answer of a dataset may exceed: nothing would ever be sent."""
    limit = job.settings.max_total_tokens
    if limit is None or plan.answered_before:
        return
    if isinstance(plan, TurnPlan):
        most = next((talk.as_written(0).max_tokens for talk in plan), 0)
    else:
        most = next((ask.max_tokens for ask in plan), 0)
    if most > limit:
        raise ConfigError(
            f"{job.dataset.name}: the budget of {limit:,} tokens is smaller than one answer may be (max_tokens is "
            f"{most:,}), so nothing was sent: raise --tokens (max_total_tokens) or lower max_tokens"
        )


def _check_writable(dataset: Dataset) -> None:
    """Fail before anything is paid for, not after."""
    for folder in (dataset.journal, dataset.failures):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written: {error.strerror}") from None


def _tokens_held(dataset: Dataset, most: int) -> int:
    """Completion tokens of all rows but probes; where a row states none its ids count, else the most it may have."""
    total = 0
    for shard in read_live(dataset).shards:
        table = read_shard(dataset, shard, ["completion_tokens", "probe"], verify=False)
        counts = table["completion_tokens"]
        if counts.null_count:
            ids = read_shard(dataset, shard, ["output_ids"], verify=False)["output_ids"]
            counts = pc.fill_null(pc.coalesce(counts, pc.list_value_length(ids)), most)
        total += pc.sum(counts.filter(pc.invert(table["probe"]))).as_py() or 0
    return total


def check_percent(percent: float) -> None:
    """Refuse a share of probes that is none.

    Raises:
        ConfigError: it is not above 0 and at most 100.
    """
    if not 0 < percent <= 100:
        raise ConfigError(f"--probe: expected a percentage above 0 and at most 100, found {percent:g}")
