"""From a conclusion to a verdict: what was found, counted by source, provider, status and reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl
import pyarrow.compute as pc

from toolkit import __version__
from toolkit.audit.conclude import Conclusion
from toolkit.audit.evidence import Convention
from toolkit.audit.fact_files import AT, collected
from toolkit.audit.gather import Gathered
from toolkit.audit.learned import learned_from
from toolkit.audit.repeats import weighted_median
from toolkit.audit.tally import left_out_of_merge, standing_of_contract
from toolkit.contract import Contract
from toolkit.gate import closing_reasons
from toolkit.records import KERNEL_VERSION, Accounting, Evidence, Json, ProviderSummary, Verdict, storable_text
from toolkit.store.shards import LiveShards, unlisted_shards
from toolkit.store.workspace import Dataset

_REPORTED_NULLS = (
    "model", "finish_reason", "completion_tokens", "prompt_tokens", "reasoning_tokens", "n_ids", "n_prompt_ids",
)  # fmt: skip

_DIFFERENCES_NAMED = 12


def describe(
    dataset: Dataset,
    live: LiveShards,
    contract: Contract,
    gathered: Gathered,
    conclusion: Conclusion,
    accounting: Accounting,
    *,
    allowed_providers: tuple[str, ...],
    prompts_sha256: str | None,
    quarantine_sha256: str,
) -> Verdict:
    """The verdict on a dataset. All but the moment follows from the arguments.

    Args:
        dataset: What was audited.
        live: Its shards.
        contract: What they were measured under.
        gathered: Their facts.
        conclusion: What the facts say.
        accounting: What was asked and what became of it.
        allowed_providers: The allow list that the facts were judged by.
        prompts_sha256: Of prompts.jsonl; None where there is none.
        quarantine_sha256: Of the file that holds the conclusion's quarantine.
    """
    judged = conclusion.judged.facts
    gone = pl.Series(AT, conclusion.quarantined).cast(pl.UInt32)
    marked = judged.with_row_index(AT).with_columns((~pl.col(AT).is_in(gone.implode())).alias("_kept"))
    reasons = Counter(pc.list_flatten(conclusion.quarantine["reasons"]).to_pylist())
    summaries = _summaries(marked, conclusion.judged.conventions)
    evidence = _count(judged, "evidence")
    nulls = collected(judged.select(pl.col(name).null_count() for name in _REPORTED_NULLS))
    strays = tuple(storable_text(file.name) for file in unlisted_shards(dataset, live))
    verdict = Verdict(
        dataset=dataset.name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        tool_version=__version__,
        kernel_version=KERNEL_VERSION,
        contract=contract.name,
        contract_sha256=contract.sha256,
        contract_standing=standing_of_contract(contract),
        allowed_providers=allowed_providers,
        prompts_sha256=prompts_sha256,
        shards=live.shards,
        facts=dict(gathered.files),
        suites=conclusion.runs,
        rows=conclusion.judged.rows,
        ids=sum(summary.ids for summary in summaries),
        accounting=accounting,
        sources=_count(judged, "source"),
        origins=_count(judged, "origin"),
        providers=tuple(summaries),
        evidence={str(e): evidence[e] for e in Evidence if e in evidence},
        evidence_reasons=_count(judged, "evidence_reason"),
        statuses=_count(judged, "rebuild_status"),
        notes=_count(judged.select(pl.col("notes").explode(keep_nulls=False, empty_as_null=False)), "notes"),
        nulls={name: n for name, n in nulls.row(0, named=True).items() if n},
        quarantined=conclusion.quarantine.num_rows,
        quarantined_by_reason=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        quarantine_sha256=quarantine_sha256,
        left_out=left_out_of_merge(marked),
        learned=learned_from(conclusion.judged, conclusion.drift, conclusion.providers, gathered.probes),
        unreadable=gathered.unreadable,
        has_renderer=contract.prompt.renderer is not None,
        strays=strays,
        complete=accounting.complete and not gathered.unreadable and not strays,
        passed=False,
        reasons=(),
        measured_shards=gathered.measured_shards,
    )
    closing = closing_reasons(
        rows=verdict.rows, quarantined=verdict.quarantined, suites=verdict.suites, unreadable=verdict.unreadable
    )
    return replace(verdict, passed=not closing, reasons=closing)


def _count(rows: pl.LazyFrame, column: str) -> dict[str, int]:
    """Value → rows, most frequent first; nulls are left out."""
    return _counted(collected(rows.select(column).drop_nulls().group_by(column).len()), column)


def _counted(counts: pl.DataFrame, column: str) -> dict[str, int]:
    ordered = counts.select(column, "len").sort(["len", column], descending=[True, False])
    return {str(value): int(count) for value, count in ordered.iter_rows()}


_LINE = ("source", "provider")
_TOLD_APART = ("evidence", "evidence_reason", "prompt_difference", "count_difference", "n_ids")


def _summaries(rows: pl.LazyFrame, conventions: Sequence[Convention]) -> list[ProviderSummary]:
    """One line for each source and provider, largest first; `rows` bear `_kept`."""
    learned: dict[tuple[str, str | None], list[Convention]] = {}
    for convention in conventions:
        learned.setdefault((convention.source, convention.provider), []).append(convention)
    added = collected(
        rows.group_by(*_LINE).agg(
            pl.len().cast(pl.Int64).alias("rows"),
            (~pl.col("_kept")).sum().cast(pl.Int64).alias("quarantined"),
            pl.col("n_ids").cast(pl.Int64).sum().alias("ids"),
            pl.col("completion_tokens").cast(pl.Int64).sum(),
            pl.col("truncated").sum().cast(pl.Int64),
        )
    )
    values = {
        column: collected(rows.select(*_LINE, column).drop_nulls(column).group_by(*_LINE, column).len()).partition_by(
            *_LINE, as_dict=True
        )
        for column in _TOLD_APART
    }
    costs = collected(rows.select(*_LINE, "cost_usd").drop_nulls("cost_usd")).partition_by(*_LINE, as_dict=True)
    summaries = []
    for line in added.iter_rows(named=True):
        key = (line["source"], line["provider"])
        own = {column: parts[key] for column, parts in values.items() if key in parts}
        cost = costs[key]["cost_usd"] if key in costs else pl.Series(dtype=pl.Float64)
        summaries.append(_summary(line, own, cost, learned[key]))
    return sorted(summaries, key=lambda s: (-s.rows, s.source, s.provider or ""))


def _summary(
    line: Mapping[str, Json], values: Mapping[str, pl.DataFrame], cost: pl.Series, conventions: Sequence[Convention]
) -> ProviderSummary:
    """One line of sums, with how often each value occurs there."""
    counts = {column: _counted(values[column], column) if column in values else {} for column in _TOLD_APART[:-1]}
    names = sorted({c.completion for c in conventions})
    offsets = counts["prompt_difference"]
    return ProviderSummary(
        **line,
        # Exact, so that the sum does not depend on how the rows lie in memory.
        cost_usd=math.fsum(cost),
        evidence=counts["evidence"],
        evidence_reasons=counts["evidence_reason"],
        convention=names[0] if len(names) == 1 else "differs by model: " + "; ".join(names),
        convention_support=sum(c.completion_support for c in conventions),
        prompt_offset=int(next(iter(offsets))) if offsets else None,
        difference_counts=dict(list(counts["count_difference"].items())[:_DIFFERENCES_NAMED]),
        median_ids=_median(values.get("n_ids")),
    )


def _median(lengths: pl.DataFrame | None) -> float | None:
    if lengths is None:
        return None
    ordered = lengths.sort("n_ids")
    return weighted_median(ordered["n_ids"].cast(pl.Float64).to_numpy(), ordered["len"].cast(pl.Int64).to_numpy())
