"""The facts of a dataset, counted in one lazy pass: lengths, reasons and differences by provider, and over time.

"Time" is the order in which rows were written: shards as shards.json lists them, rows as they lie there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import polars as pl

from toolkit.audit.conventions import UNKNOWN, completion_hypotheses
from toolkit.contract import Contract
from toolkit.findings import ConventionFound
from toolkit.inspection.choosing import closing_ids
from toolkit.inspection.model import Distributions, Group, Slice
from toolkit.records import LiveShard, Verdict

BINS = tuple(round(2 ** (half / 2)) for half in range(2, 37))
"""Smallest length of each bin, two bins an octave: 2, 3, 4, 6, 8 …, 262,144; shorter ones stand in the first."""

_GROUPS = 12
_SLICES = 40
_ROWS_PER_SLICE = 5
_DIFFERENCES = 9
_REASONS = 6
_LENGTHS = ("lengths", "reasoning", "answers", "prompts")
_BY = ["source", "provider"]


def distributions_of(
    facts: pl.LazyFrame, quarantine: pl.LazyFrame, verdict: Verdict, contract: Contract | None
) -> Distributions | None:
    """Counts of facts; None where there is no row.

    Args:
        facts: Columns `FACTS_READ` of all shards.
        quarantine: quarantine.parquet.
        verdict: Whose facts they are.
        contract: The verdict's; None where it is not at hand: then no count is held against a convention.
    """
    rows = sum(shard.rows for shard in verdict.shards)
    if not rows:
        return None
    slices = max(min(_SLICES, rows // _ROWS_PER_SLICE), 1)
    marked = _marked(facts, quarantine, verdict, contract, rows, slices)
    queries = [
        *(_binned(marked, name).group_by(*_BY, "bin").len() for name in _LENGTHS),
        *(marked.drop_nulls(name).group_by(*_BY, name).len() for name in ("count_difference", "prompt_difference")),
        marked.group_by(*_BY, "finish_reason").len(),
        marked.group_by("slice", *_BY).agg(pl.len(), pl.col("_closing").sum()),
        marked.group_by("slice").agg(
            pl.len(),
            pl.col("_quarantined").sum(),
            pl.col("_closing").sum(),
            pl.col("truncated").sum(),
            (pl.col("_off") != 0).sum().alias("uncounted"),
            pl.col("n_ids").median(),
        ),
    ]
    *lengths, counts, prompts, finish, by_slice, over_time = pl.collect_all(queries)
    names = by_slice.group_by(*_BY).agg(pl.col("len").sum()).sort(["len", *_BY], descending=[True, False, False])
    chosen = [(str(s), p) for s, p, _ in names.head(_GROUPS).iter_rows()]
    groups = [
        Group(
            source=source,
            provider=provider,
            rows=int(_of(by_slice, source, provider)["len"].sum()),
            closing=int(_of(by_slice, source, provider)["_closing"].sum()),
            counts=_ends(_of(counts, source, provider), "count_difference"),
            prompt_counts=_ends(_of(prompts, source, provider), "prompt_difference"),
            finish=_reasons(_of(finish, source, provider)),
            **{name: _filled(_of(frame, source, provider)) for name, frame in zip(_LENGTHS, lengths, strict=True)},
        )
        for source, provider in chosen
    ]
    starts = list(accumulate((shard.rows for shard in verdict.shards), initial=0))
    return Distributions(
        bins=BINS,
        groups=tuple(groups),
        groups_left_off=max(len(names) - len(chosen), 0),
        slices=tuple(_slices(over_time, by_slice, chosen, verdict.shards, starts, slices)),
        shard_starts=tuple(sorted({start * slices // rows for start in starts[1:-1]})),
    )


def _marked(
    facts: pl.LazyFrame,
    quarantine: pl.LazyFrame,
    verdict: Verdict,
    contract: Contract | None,
    rows: int,
    slices: int,
) -> pl.LazyFrame:
    """The facts with the slice of each row, whether it is in quarantine, and how far its count is off."""
    starts = list(accumulate((shard.rows for shard in verdict.shards), initial=0))[:-1]
    offsets = pl.LazyFrame(
        {"shard": [shard.sha256 for shard in verdict.shards], "_start": starts},
        schema={"shard": pl.String, "_start": pl.Int64},
    )
    closing = pl.Series(sorted(closing_ids(verdict)), dtype=pl.String)
    closes = pl.col("reasons").list.eval(pl.element().is_in(closing.implode())).list.any()
    bad = quarantine.select("shard", "row_index", pl.lit(True).alias("_quarantined"), closes.alias("_closing"))
    marked = (
        facts.join(offsets, on="shard", how="left")
        .join(bad, on=["shard", "row_index"], how="left")
        .with_columns(
            ((pl.col("_start") + pl.col("row_index")) * slices // rows).alias("slice"),
            pl.col("_quarantined", "_closing").fill_null(False),
            pl.col("n_ids").alias("lengths"),
            pl.col("end_think_at").alias("reasoning"),
            (pl.col("n_ids") - pl.col("end_think_at").fill_null(-1) - 1).alias("answers"),
            pl.col("n_prompt_ids").alias("prompts"),
        )
    )
    return _with_offs(marked, verdict.learned.conventions, contract)


def _with_offs(rows: pl.LazyFrame, conventions: Sequence[ConventionFound], contract: Contract | None) -> pl.LazyFrame:
    """Column `_off`: count_difference beyond what the learned way of counting predicts; null where none is known."""
    if contract is None:
        return rows.with_columns(pl.lit(None, dtype=pl.Int64).alias("_off"))
    key: dict[str, Any] = {"source": pl.String, "provider": pl.String, "model": pl.String, "streamed": pl.Boolean}
    shape: dict[str, Any] = {"mode": pl.String, "truncated": pl.Boolean, "_calls": pl.Boolean}
    whole = pl.LazyFrame(
        [(c.source, c.provider, c.model, c.streamed, c.completion.name) for c in conventions],
        schema={**key, "_whole": pl.String},
        orient="row",
    )
    shapes = pl.LazyFrame(
        [(c.source, c.provider, c.model, c.streamed, s.mode, s.truncated, s.calls, s.count.name)
         for c in conventions for s in c.shapes],
        schema={**key, **shape, "_shape": pl.String},
        orient="row",
    )  # fmt: skip
    named = (
        rows.with_columns((pl.col("n_tool_markers").fill_null(0) > 0).alias("_calls"))
        .join(whole, on=list(key), how="left", nulls_equal=True)
        .join(shapes, on=[*key, *shape], how="left", nulls_equal=True)
        .with_columns(pl.coalesce("_shape", "_whole", pl.lit(UNKNOWN)).alias("_count"))
    )
    predicted = pl.lit(None, dtype=pl.Int64)
    used = {c.completion.name for c in conventions} | {s.count.name for c in conventions for s in c.shapes}
    for hypothesis in completion_hypotheses(contract):
        if hypothesis.name in used:
            hit = pl.col("_count") == hypothesis.name
            predicted = pl.when(hit).then(hypothesis.difference.cast(pl.Int64)).otherwise(predicted)
    return named.with_columns((pl.col("count_difference") - predicted).alias("_off"))


def _binned(rows: pl.LazyFrame, name: str) -> pl.LazyFrame:
    """Rows with a length, and its bin."""
    length = pl.col(name).clip(lower_bound=2).cast(pl.Float64)
    # A whole power must not fall below its own bin by the rounding of a logarithm.
    half = (length.log(2) * 2 + 1e-9).floor().cast(pl.Int32) - 2
    return rows.drop_nulls(name).with_columns(half.clip(0, len(BINS) - 1).alias("bin"))


def _of(frame: pl.DataFrame, source: str, provider: str | None) -> pl.DataFrame:
    return frame.filter((pl.col("source") == source) & pl.col("provider").eq_missing(pl.lit(provider, dtype=pl.String)))


def _filled(counts: pl.DataFrame) -> tuple[int, ...]:
    found = {int(place): int(rows) for place, rows in counts.select("bin", "len").iter_rows()}
    return tuple(found.get(place, 0) for place in range(len(BINS)))


def _ends(counts: pl.DataFrame, name: str) -> tuple[tuple[int, int], ...]:
    """The most frequent differences, ascending."""
    most = counts.sort(["len", name], descending=[True, False]).head(_DIFFERENCES).sort(name)
    return tuple((int(value), int(rows)) for value, rows in most.select(name, "len").iter_rows())


def _reasons(counts: pl.DataFrame) -> tuple[tuple[str | None, int], ...]:
    most = counts.sort(["len", "finish_reason"], descending=[True, False]).head(_REASONS)
    return tuple((None if reason is None else str(reason), int(rows))
                 for reason, rows in most.select("finish_reason", "len").iter_rows())  # fmt: skip


def _slices(
    over_time: pl.DataFrame,
    by_slice: pl.DataFrame,
    groups: Sequence[tuple[str, str | None]],
    shards: Sequence[LiveShard],
    starts: Sequence[int],
    count: int,
) -> list[Slice]:
    found = {int(row["slice"]): row for row in over_time.drop_nulls("slice").iter_rows(named=True)}
    rows_of: dict[tuple[int, str, str | None], int] = {
        (int(number), str(source), provider): int(rows)
        for number, source, provider, rows in by_slice.drop_nulls("slice")
        .select("slice", *_BY, "len").iter_rows()
    }  # fmt: skip
    total = starts[-1]
    slices = []
    for number in range(count):
        row = found.get(number)
        first = math.ceil(number * total / count)
        shard = max(i for i, start in enumerate(starts[:-1]) if start <= first)
        slices.append(
            Slice(
                shard=shards[shard].path,
                row_index=first - starts[shard],
                rows=0 if row is None else int(row["len"]),
                quarantined=0 if row is None else int(row["_quarantined"]),
                closing=0 if row is None else int(row["_closing"]),
                cut=0 if row is None else int(row["truncated"]),
                uncounted=0 if row is None else int(row["uncounted"] or 0),
                median_ids=None if row is None or row["n_ids"] is None else float(row["n_ids"]),
                by_group=tuple(rows_of.get((number, *group), 0) for group in groups),
            )
        )
    return slices
