"""The audit: shards → facts → evidence → suites → verdict and quarantine."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from toolkit import __version__
from toolkit.audit.evidence import Convention, judge
from toolkit.audit.measure import measure
from toolkit.audit.suite import Suite
from toolkit.contract import Contract
from toolkit.errors import ShardError, StoreError
from toolkit.gate import closing_reasons
from toolkit.records import (
    FACTS_SCHEMA,
    JUDGED_SCHEMA,
    KERNEL_VERSION,
    QUARANTINE_SCHEMA,
    SHARD_SCHEMA,
    Accounting,
    Evidence,
    LiveShard,
    ProviderSummary,
    Severity,
    SuiteRun,
    Verdict,
)
from toolkit.store.facts import read_facts, write_facts
from toolkit.store.shards import LiveShards, check_shard, read_live, read_shard
from toolkit.store.verdicts import write_quarantine, write_verdict
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

Positions = npt.NDArray[np.int64]

_REPORTED_NULLS = (
    "model", "finish_reason", "completion_tokens", "prompt_tokens", "reasoning_tokens", "n_ids", "n_prompt_ids",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """Facts of all readable shards, how many shards had to be measured, and what could not be read."""

    facts: pa.Table
    measured_shards: int
    unreadable: tuple[str, ...]


def audit(
    dataset: Dataset,
    contract: Contract,
    load_vocabulary: Callable[[], Vocabulary],
    suites: Sequence[tuple[Suite, Path]],
    accounting: Accounting,
    *,
    allowed_providers: tuple[str, ...] = (),
    advance: Callable[[int], None] = lambda _: None,
) -> Verdict:
    """Audit every row of a dataset, and write verdict.json and quarantine.parquet.

    Args:
        dataset: Whose live shards are audited.
        contract: What its rows are held against.
        load_vocabulary: Called only if a shard has to be measured.
        suites: Each suite with the file that it was read from.
        accounting: What was asked and what became of it.
        allowed_providers: Display names; empty = any.
        advance: Told the number of rows of each shard that is done.

    Raises:
        StoreError: there are no live shards, or a file cannot be read or written.
        SuiteError: a suite cannot be checked as written.
    """
    started = time.monotonic()
    live = read_live(dataset)
    if not live.shards:
        raise StoreError(f"dataset {dataset.name}: no shards in {dataset.live}; generate or import answers first")
    importing = _import_meanwhile()
    measured = measure_shards(dataset, live, contract, load_vocabulary, advance)
    importing.join()
    from toolkit.audit.gx.evaluate import check_suite

    for suite, _ in suites:
        check_suite(suite)
    judged, conventions = judge(_frame(measured.facts), contract, allowed_providers=allowed_providers)
    table = judged.to_arrow().select(JUDGED_SCHEMA.names).cast(JUDGED_SCHEMA)
    runs, failing = _evaluate(suites, table)
    reasons_of_row = _quarantine_reasons(runs, failing)
    quarantine = _quarantine_table(table, reasons_of_row)
    keep = np.ones(table.num_rows, dtype=bool)
    keep[np.fromiter(reasons_of_row.keys(), dtype=np.int64, count=len(reasons_of_row))] = False
    runs = _evaluate_remaining(suites, runs, table.filter(pa.array(keep)))
    verdict = _verdict(
        dataset, live, contract, runs, judged.with_columns(pl.Series("_kept", keep)), conventions, accounting, measured
    )
    verdict = replace(
        verdict,
        quarantined=quarantine.num_rows,
        quarantined_by_reason=dict(Counter(r for reasons in reasons_of_row.values() for r in reasons).most_common()),
        quarantine_sha256=write_quarantine(dataset.quarantine, quarantine),
        elapsed_s=round(time.monotonic() - started, 3),
    )
    verdict = _conclude(verdict)
    write_verdict(dataset.verdict, verdict)
    return verdict


def measure_shards(
    dataset: Dataset,
    live: LiveShards,
    contract: Contract,
    load_vocabulary: Callable[[], Vocabulary],
    advance: Callable[[int], None] = lambda _: None,
) -> Measured:
    """Facts of every live shard, from the cache where its bytes and the contract are unchanged."""
    tables: list[pa.Table] = []
    unreadable: list[str] = []
    vocabulary: Vocabulary | None = None
    measured = 0
    for shard in live.shards:
        try:
            check_shard(dataset, shard)
            facts = read_facts(dataset, shard, contract)
            if facts is None:
                vocabulary = vocabulary or load_vocabulary()
                facts = _measure(dataset, shard, contract, vocabulary)
                measured += 1
            tables.append(facts)
        except ShardError as error:
            unreadable.append(str(error))
        advance(shard.rows)
    facts = pa.concat_tables(tables) if tables else FACTS_SCHEMA.empty_table()
    return Measured(facts, measured, tuple(unreadable))


def _measure(dataset: Dataset, shard: LiveShard, contract: Contract, vocabulary: Vocabulary) -> pa.Table:
    rows = read_shard(dataset, shard, _MEASURED_FROM, verify=False)
    facts = measure(rows, contract, vocabulary, shard_sha256=shard.sha256)
    write_facts(dataset, shard, contract, facts)
    return facts


_MEASURED_FROM = [
    *(name for name in FACTS_SCHEMA.names if name in SHARD_SCHEMA.names),
    *("reasoning", "content", "tool_calls", "output_ids", "prompt_ids"),
]
"""Columns that the kernel reads: not the payload, which is most of a shard."""


def _import_meanwhile() -> threading.Thread:
    """Great Expectations takes seconds to import: let it, while shards are measured."""

    def load() -> None:
        from toolkit.audit.gx.build import load_gx

        load_gx()

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    return thread


def _frame(facts: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(facts)
    assert isinstance(frame, pl.DataFrame)
    return frame


# --- suites ------------------------------------------------------------------------------------


def _evaluate(
    suites: Sequence[tuple[Suite, Path]], table: pa.Table
) -> tuple[list[SuiteRun], list[Mapping[str, Positions]]]:
    from toolkit.audit.gx.evaluate import evaluate

    runs, failing = [], []
    for suite, path in suites:
        evaluation = evaluate(suite, table)
        runs.append(
            SuiteRun(
                name=suite.name,
                path=path.name,
                sha256=suite.sha256,
                max_quarantined_share=suite.max_quarantined_share,
                results=evaluation.results,
            )
        )
        failing.append(evaluation.failing)
    return runs, failing


def _quarantine_reasons(runs: Sequence[SuiteRun], failing: Sequence[Mapping[str, Positions]]) -> dict[int, list[str]]:
    """Row position → ids of the critical expectations that it fails, in the suites' order."""
    reasons: dict[int, list[str]] = {}
    for run, positions in zip(runs, failing, strict=True):
        for result in run.results:
            if result.severity is Severity.CRITICAL and result.scope == "row":
                for position in positions[result.id].tolist():
                    reasons.setdefault(position, []).append(result.id)
    return dict(sorted(reasons.items()))


def _quarantine_table(table: pa.Table, reasons: Mapping[int, Sequence[str]]) -> pa.Table:
    names = [name for name in QUARANTINE_SCHEMA.names if name != "reasons"]
    rows = table.select(names).take(pa.array(list(reasons), pa.int64()))
    column = pa.array([list(r) for r in reasons.values()], pa.list_(pa.string()))
    return rows.append_column("reasons", column).cast(QUARANTINE_SCHEMA)


def _evaluate_remaining(
    suites: Sequence[tuple[Suite, Path]], runs: Sequence[SuiteRun], remaining: pa.Table
) -> list[SuiteRun]:
    """Dataset expectations once more, on the rows that would be merged."""
    from toolkit.audit.gx.evaluate import evaluate

    again = []
    for (suite, _), run in zip(suites, runs, strict=True):
        of_dataset = tuple(e for e in suite.expectations if e.scope == "dataset")
        if not of_dataset:
            again.append(run)
            continue
        results = {r.id: r for r in evaluate(replace(suite, expectations=of_dataset), remaining).results}
        again.append(
            replace(
                run,
                results=tuple(
                    replace(r, success_after_quarantine=results[r.id].success) if r.id in results else r
                    for r in run.results
                ),
            )
        )
    return again


# --- the verdict -------------------------------------------------------------------------------


def _verdict(
    dataset: Dataset,
    live: LiveShards,
    contract: Contract,
    runs: Sequence[SuiteRun],
    judged: pl.DataFrame,
    conventions: Sequence[Convention],
    accounting: Accounting,
    measured: Measured,
) -> Verdict:
    return Verdict(
        dataset=dataset.name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        tool_version=__version__,
        kernel_version=KERNEL_VERSION,
        contract=contract.name,
        contract_sha256=contract.sha256,
        shards=live.shards,
        suites=tuple(runs),
        rows=len(judged),
        ids=int(judged["n_ids"].cast(pl.Int64).sum() or 0),
        accounting=accounting,
        sources=_count(judged, "source"),
        origins=_count(judged, "origin"),
        providers=tuple(_summaries(judged, conventions)),
        evidence={str(e): n for e in Evidence if (n := int((judged["evidence"] == str(e)).sum()))},
        statuses=_count(judged, "rebuild_status"),
        notes=_count(judged.select(pl.col("notes").explode(keep_nulls=False, empty_as_null=False)), "notes"),
        nulls={name: n for name in _REPORTED_NULLS if (n := judged[name].null_count())},
        quarantined=0,
        quarantined_by_reason={},
        quarantine_sha256="",
        unreadable=measured.unreadable,
        complete=accounting.complete and not measured.unreadable,
        passed=False,
        reasons=(),
        measured_shards=measured.measured_shards,
    )


def _conclude(verdict: Verdict) -> Verdict:
    """Whether it passes, and why not: by the same function that merge asks."""
    reasons = closing_reasons(
        rows=verdict.rows, quarantined=verdict.quarantined, suites=verdict.suites, unreadable=verdict.unreadable
    )
    return replace(verdict, passed=not reasons, reasons=reasons)


def _count(frame: pl.DataFrame, column: str) -> dict[str, int]:
    """Value → rows, most frequent first; nulls are left out."""
    counts = frame.drop_nulls(column).group_by(column).len().sort(["len", column], descending=[True, False])
    return {str(value): int(count) for value, count in counts.iter_rows()}


def _summaries(judged: pl.DataFrame, conventions: Sequence[Convention]) -> list[ProviderSummary]:
    """One line for each source and provider, largest first."""
    learned: dict[tuple[str, str | None], list[Convention]] = {}
    for convention in conventions:
        learned.setdefault((convention.source, convention.provider), []).append(convention)
    summaries = [
        _summary(str(source), None if provider is None else str(provider), group, learned[(source, provider)])
        for (source, provider), group in judged.group_by("source", "provider", maintain_order=True)
    ]
    return sorted(summaries, key=lambda s: (-s.rows, s.source, s.provider or ""))


def _summary(
    source: str, provider: str | None, group: pl.DataFrame, conventions: Sequence[Convention]
) -> ProviderSummary:
    names = sorted({c.completion for c in conventions})
    offsets = group["prompt_difference"].drop_nulls().value_counts(sort=True)
    differences = group["count_difference"].drop_nulls().value_counts(sort=True).head(12)
    median = group["n_ids"].median()
    return ProviderSummary(
        source=source,
        provider=provider,
        rows=len(group),
        quarantined=int((~group["_kept"]).sum()),
        ids=int(group["n_ids"].cast(pl.Int64).sum() or 0),
        completion_tokens=int(group["completion_tokens"].cast(pl.Int64).sum() or 0),
        cost_usd=float(group["cost_usd"].sum() or 0.0),
        truncated=int(group["truncated"].sum()),
        evidence=_count(group, "evidence"),
        convention=names[0] if len(names) == 1 else "differs by model: " + "; ".join(names),
        convention_support=sum(c.completion_support for c in conventions),
        prompt_offset=int(offsets["prompt_difference"][0]) if len(offsets) else None,
        difference_counts={str(value): int(count) for value, count in differences.iter_rows()},
        median_ids=float(median) if isinstance(median, int | float) else None,
    )
