"""From a conclusion to a verdict: what was found, counted by source, provider, status and reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl
import pyarrow.compute as pc

from toolkit import __version__
from toolkit.audit.conclude import Conclusion
from toolkit.audit.evidence import Convention
from toolkit.audit.gather import Gathered
from toolkit.audit.learned import learned_from
from toolkit.audit.tally import left_out_of_merge, standing_of_contract
from toolkit.contract import Contract
from toolkit.gate import closing_reasons
from toolkit.records import KERNEL_VERSION, Accounting, Evidence, ProviderSummary, Verdict, storable_text
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
    judged = conclusion.judged.facts.with_columns(pl.Series("_kept", conclusion.kept))
    reasons = Counter(pc.list_flatten(conclusion.quarantine["reasons"]).to_pylist())
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
        rows=len(judged),
        ids=int(judged["n_ids"].cast(pl.Int64).sum() or 0),
        accounting=accounting,
        sources=_count(judged, "source"),
        origins=_count(judged, "origin"),
        providers=tuple(_summaries(judged, conclusion.judged.conventions)),
        evidence={str(e): n for e in Evidence if (n := int((judged["evidence"] == str(e)).sum()))},
        evidence_reasons=_count(judged, "evidence_reason"),
        statuses=_count(judged, "rebuild_status"),
        notes=_count(judged.select(pl.col("notes").explode(keep_nulls=False, empty_as_null=False)), "notes"),
        nulls={name: n for name in _REPORTED_NULLS if (n := judged[name].null_count())},
        quarantined=conclusion.quarantine.num_rows,
        quarantined_by_reason=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        quarantine_sha256=quarantine_sha256,
        left_out=left_out_of_merge(judged),
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
    offsets, differences = _count(group, "prompt_difference"), _count(group, "count_difference")
    median = group["n_ids"].median()
    return ProviderSummary(
        source=source,
        provider=provider,
        rows=len(group),
        quarantined=int((~group["_kept"]).sum()),
        ids=int(group["n_ids"].cast(pl.Int64).sum() or 0),
        completion_tokens=int(group["completion_tokens"].cast(pl.Int64).sum() or 0),
        # Exact, so that the sum does not depend on how the rows lie in memory.
        cost_usd=math.fsum(group["cost_usd"].drop_nulls()),
        truncated=int(group["truncated"].sum()),
        evidence=_count(group, "evidence"),
        evidence_reasons=_count(group, "evidence_reason"),
        convention=names[0] if len(names) == 1 else "differs by model: " + "; ".join(names),
        convention_support=sum(c.completion_support for c in conventions),
        prompt_offset=int(next(iter(offsets))) if offsets else None,
        difference_counts=dict(list(differences.items())[:_DIFFERENCES_NAMED]),
        median_ids=float(median) if isinstance(median, int | float) else None,
    )
