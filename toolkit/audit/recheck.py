"""Whether a verdict follows from the shards that it speaks of: the audit's own steps once more, from the facts on.

Facts are taken from the files that the verdict names, after a sample of rows, chosen by the verdict's own content,
was measured again; facts that do not hold are measured anew. What is concluded from them must be what the verdict says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa

from toolkit.audit.conclude import conclude, import_meanwhile
from toolkit.audit.describe import describe
from toolkit.audit.gather import gather
from toolkit.audit.scratch import scratch_folder
from toolkit.audit.suite import Suite, read_suite
from toolkit.contract import Contract
from toolkit.records import Accounting, Evidence, ExpectationResult, Json, SuiteRun, Verdict, canonical_json
from toolkit.store.shards import LiveShards
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

_OF_THE_MOMENT = frozenset(
    {"created_at", "elapsed_s", "tool_version", "measured_shards", "facts", "accounting", "version"}
)
"""Fields of a verdict that another audit of the same may say otherwise. What counts as complete is asked again."""

_HELD_BY_BYTES = frozenset({"allowed_providers", "prompts_sha256", "quarantine_sha256", "shards"})
"""Fields that the gate holds against the files and settings themselves."""

_TOLD_APART = frozenset({"suites", "complete", "passed", "reasons", "quarantined", "quarantined_by_reason"})
"""Fields that get reasons of their own, or follow from those that do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rechecker:
    """Holds verdicts of one dataset against its shards; an instance is the gate's `recheck`.

    Attributes:
        suites: Files of the suites that the gate demands.
        load_vocabulary: The contract's vocabulary.
        text_health: Whether the audit measured text health.
        account: What was asked and what became of it, as it is now.
        workers: Units of rows that are measured side by side; None: as many as there are cores.
        tell: Told in a sentence of facts that did not hold.
        advance: Told the number of rows of each shard whose facts are there.
        contradicted: Told of the rows whose prompt evidence is contradicted: `shard` (sha256) and `row_index`.
    """

    dataset: Dataset
    contract: Contract
    suites: Sequence[Path]
    allowed_providers: tuple[str, ...]
    load_vocabulary: Callable[[], Vocabulary]
    account: Callable[[], Accounting]
    text_health: bool = True
    workers: int | None = None
    tell: Callable[[str], None] = lambda _: None
    advance: Callable[[int], None] = lambda _: None
    contradicted: Callable[[pa.Table], None] = lambda _: None

    def __call__(self, verdict: Verdict, live: LiveShards, quarantine: pa.Table) -> list[str]:
        """Why the verdict and its quarantine do not follow from the shards, whose bytes were just checked.

        Raises:
            SuiteError: a suite cannot be checked as written.
            ConfigError: prompts.jsonl or the vocabulary has faults.
            StoreError: a file cannot be read.
        """
        with scratch_folder(self.dataset) as scratch:
            return self._reasons(verdict, live, quarantine, scratch)

    def _reasons(self, verdict: Verdict, live: LiveShards, quarantine: pa.Table, scratch: Path) -> list[str]:
        doubts: list[str] = []
        importing = import_meanwhile()
        gathered = gather(
            self.dataset,
            live.shards,
            self.contract,
            self.load_vocabulary,
            seed=hashlib.sha256(_as_json(verdict)).hexdigest(),
            scratch=scratch,
            believed=verdict.facts,
            text_health=self.text_health,
            workers=self.workers,
            verify=False,
            tell=doubts.append,
            advance=self.advance,
        )
        for doubt in doubts:
            self.tell(doubt)
        accounting = self.account()
        conclusion = conclude(
            gathered.facts,
            self.contract,
            self._suites_as_in(verdict),
            root=self.dataset.folder.parents[1],
            scratch=scratch,
            workers=self.workers,
            allowed_providers=self.allowed_providers,
            before_evaluating=importing.result,
        )
        self.contradicted(contradicted_prompts(conclusion.judged.facts))
        found = describe(
            self.dataset,
            live,
            self.contract,
            gathered,
            conclusion,
            accounting,
            allowed_providers=self.allowed_providers,
            prompts_sha256=verdict.prompts_sha256,
            quarantine_sha256=verdict.quarantine_sha256,
        )
        reasons = [*differences(verdict, found), *_quarantine_difference(quarantine, conclusion.quarantine)]
        return [f"{reason}; audit again" for reason in (*doubts, *reasons)] if reasons else []

    def _suites_as_in(self, verdict: Verdict) -> list[tuple[Suite, Path]]:
        """The suites in the order in which they were evaluated: it decides that of the quarantine's reasons."""
        order = {run.sha256: place for place, run in enumerate(verdict.suites)}
        suites = [(read_suite(path), path) for path in self.suites]
        return sorted(suites, key=lambda suite: order.get(suite[0].sha256, len(order)))


def contradicted_prompts(judged: pl.LazyFrame) -> pa.Table:
    """Rows of judged facts whose prompt evidence is contradicted: `shard` and `row_index`."""
    rows = judged.filter(pl.col("prompt_evidence") == str(Evidence.CONTRADICTED)).select("shard", "row_index")
    return rows.collect().to_arrow()


def differences(verdict: Verdict, found: Verdict) -> Iterator[str]:
    """What a verdict says otherwise than the same audit does now, a sentence each."""
    yield from (sentence for sentence in found.unreadable if sentence not in verdict.unreadable)
    yield from _suite_differences(verdict.suites, found.suites)
    if verdict.complete and not found.accounting.complete:
        yield f"the verdict says complete, but {_open(found.accounting)}"
    if verdict.passed != found.passed:
        yield f"the verdict says passed: {_plain(verdict.passed)}, its facts say {_plain(found.passed)}"
    if verdict.quarantined_by_reason != found.quarantined_by_reason:
        yield "the verdict counts the quarantine's reasons otherwise than its facts do"
    passed_over = _OF_THE_MOMENT | _HELD_BY_BYTES | _TOLD_APART | {"unreadable"}
    for name in (field.name for field in fields(Verdict)):
        if name not in passed_over and _as_json(getattr(verdict, name)) != _as_json(getattr(found, name)):
            yield f"the verdict's {name} are not what its facts give"


def _open(accounting: Accounting) -> str:
    """What keeps a dataset from being complete, in words."""
    if accounting.at_work:
        return "a run over the dataset is at work"
    if changed := accounting.changed + accounting.changed_imports:
        return f"{changed:,} answers are to another prompt than prompts.jsonl holds"
    unanswered, unsealed = accounting.unanswered or 0, accounting.unsealed or accounting.journaled
    return f"{unanswered:,} prompts have no answer and {unsealed:,} replies no shard"


def _suite_differences(said: Sequence[SuiteRun], found: Sequence[SuiteRun]) -> Iterator[str]:
    if len(said) != len(found):
        yield f"the verdict lists {len(said)} suites, expected {len(found)}"
    for theirs, ours in zip(said, found, strict=False):
        # Where a suite's file lies is no result.
        if _as_json(replace(theirs, path="", standing=None)) == _as_json(replace(ours, path="", standing=None)):
            continue
        if [r.id for r in theirs.results] != [r.id for r in ours.results]:
            yield f"suite {ours.name}: the verdict's results are not those of its expectations, one by one"
            continue
        same_share = theirs.max_quarantined_share == ours.max_quarantined_share
        if not same_share:
            said_share, share = theirs.max_quarantined_share, ours.max_quarantined_share
            yield f"suite {ours.name}: the verdict allows {said_share:.2%} of rows in quarantine, its file {share:.2%}"
        changed = [(a, b) for a, b in zip(theirs.results, ours.results, strict=True) if _as_json(a) != _as_json(b)]
        for a, b in changed:
            if _told(a) != _told(b):
                yield f"{b.id}: the verdict says that {_told(a)}, by its facts {_told(b)}"
            else:
                yield f"{b.id}: the verdict describes it otherwise than the suite and the facts"
        if same_share and not changed:
            yield f"suite {ours.name}: the verdict describes another suite"


def _told(result: ExpectationResult) -> str:
    """What decides of a result, in words."""
    parts = ["holds" if result.success else "fails"]
    if result.error is not None:
        parts.append(f"could not be evaluated: {result.error}")
    if result.unexpected_count is not None and result.element_count is not None:
        parts.append(f"{result.unexpected_count:,} of {result.element_count:,} rows fail")
    if result.observed is not None:
        parts.append(f"found {result.observed}")
    if result.success_after_quarantine is not None:
        parts.append(f"after quarantine {'holds' if result.success_after_quarantine else 'fails'}")
    return f"it {parts[0]} ({', '.join(parts[1:])})" if parts[1:] else f"it {parts[0]}"


def _quarantine_difference(said: pa.Table, found: pa.Table) -> Iterator[str]:
    if said.num_rows != found.num_rows:
        yield f"quarantine.parquet lists {said.num_rows:,} rows, by the facts there are {found.num_rows:,}"
    elif not said.cast(found.schema).combine_chunks().equals(found.combine_chunks()):
        yield "quarantine.parquet lists other rows or reasons than the facts give"


def _plain(value: bool) -> str:
    return str(value).lower()


def _as_json(value: Json) -> bytes:
    return canonical_json(msgspec.to_builtins(value))
