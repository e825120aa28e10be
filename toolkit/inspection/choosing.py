"""Which failing rows are shown: some of each expectation, spread evenly over all that fail it. Pure but for frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from toolkit.inspection.files import RowPlace
from toolkit.inspection.model import Identity
from toolkit.records import ExpectationResult, Severity, Verdict

PER_EXPECTATION = 20
MOST = 200
"""Rows on one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Rows to show.

    Attributes:
        places: Row → ids of the critical expectations that it fails, as quarantine.parquet says.
        named: Identity of rows that only the verdict's examples name → ids of the expectations.
        failing: Expectation → rows of quarantine.parquet that fail it.
    """

    places: Mapping[RowPlace, tuple[str, ...]]
    named: Mapping[Identity, tuple[str, ...]]
    failing: Mapping[str, int]


def row_results(verdict: Verdict) -> list[ExpectationResult]:
    """Expectations on rows that some row fails, critical ones first."""
    results = [r for run in verdict.suites for r in run.results if r.scope == "row" and r.unexpected_count]
    return sorted(results, key=lambda r: list(Severity).index(r.severity))


def closing_ids(verdict: Verdict) -> frozenset[str]:
    """Expectations on rows that close the gate; all that fill the quarantine where only its share does."""
    critical = [r for r in row_results(verdict) if r.severity is Severity.CRITICAL]
    return frozenset(r.id for r in critical if not r.success) or frozenset(r.id for r in critical)


def choose(quarantine: pl.LazyFrame, verdict: Verdict, *, each: int = PER_EXPECTATION, most: int = MOST) -> Chosen:
    """Choose failing rows.

    Args:
        quarantine: quarantine.parquet.
        verdict: The audit's.
        each: Rows for each expectation.
        most: Rows in all.
    """
    results = row_results(verdict)
    one_each = quarantine.select("shard", "row_index", "reasons").explode("reasons").drop_nulls("reasons")
    ranked = one_each.with_columns(
        pl.int_range(pl.len()).over("reasons").alias("_rank"), pl.len().over("reasons").alias("_all")
    )
    # The n-th of `each` equal stretches begins where this quotient steps.
    stretch = pl.col("_rank") * each // pl.max_horizontal("_all", pl.lit(each))
    spread = ranked.filter(stretch != (pl.col("_rank") - 1) * each // pl.max_horizontal("_all", pl.lit(each)))
    chosen, counts = pl.collect_all([spread, one_each.group_by("reasons").len()])
    failing = {str(reason): int(rows) for reason, rows in counts.iter_rows()}
    candidates: dict[str, list[RowPlace]] = {}
    for shard, row_index, reason in chosen.select("shard", "row_index", "reasons").iter_rows():
        candidates.setdefault(str(reason), []).append(RowPlace(str(shard), int(row_index)))
    picked = _in_turns([candidates.get(result.id, []) for result in results], most)
    named: dict[Identity, list[str]] = {}
    for result in results:
        if result.id not in failing:
            for example in result.examples[:each]:
                if (identity := _identity(example)) is not None and len(named) + len(picked) < most:
                    named.setdefault(identity, []).append(result.id)
    return Chosen(
        places=_with_reasons(quarantine, picked),
        named={identity: tuple(reasons) for identity, reasons in named.items()},
        failing=failing,
    )


def _in_turns(lists: Sequence[Sequence[RowPlace]], most: int) -> list[RowPlace]:
    """One of each list after the other, each row once, so that no expectation takes the room of all others."""
    picked: dict[RowPlace, None] = {}
    for turn in range(max(map(len, lists), default=0)):
        for places in lists:
            if turn < len(places) and len(picked) < most:
                picked[places[turn]] = None
    return list(picked)


def _with_reasons(quarantine: pl.LazyFrame, picked: Sequence[RowPlace]) -> dict[RowPlace, tuple[str, ...]]:
    frame = pl.LazyFrame(
        {"shard": [p.shard for p in picked], "row_index": [p.row_index for p in picked]},
        schema={"shard": pl.String, "row_index": pl.Int32},
    )
    rows = quarantine.join(frame, on=["shard", "row_index"], how="semi").collect()
    return {
        RowPlace(str(shard), int(row_index)): tuple(reasons)
        for shard, row_index, reasons in rows.select("shard", "row_index", "reasons").iter_rows()
    }


def _identity(example: Mapping[str, object]) -> Identity | None:
    sample_id, turn, index = example.get("sample_id"), example.get("turn"), example.get("sample_index")
    if isinstance(sample_id, str) and isinstance(turn, int) and isinstance(index, int):
        return (sample_id, turn, index)
    return None
