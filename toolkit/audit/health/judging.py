"""What only other rows of the dataset show: the same answer to another prompt, the same prompt again, odd lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from toolkit.audit.fact_files import FactSource, FactTable, collected
from toolkit.audit.repeats import shared, weighted_median

FEWEST_IDS = 32
"""Ids of an answer that two prompts do not have in common by chance."""
FEWEST_ROWS = 30
"""Rows of a mode whose lengths say what is usual."""
LEAST_SCALE = 0.25
"""Of the logarithm of lengths: where all answers are about as long, one a little longer is no outlier."""

_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class HealthLessons:
    """What a dataset shows beside its single rows.

    Attributes:
        answers: Values of `answer_hash` that rows with different prompts share.
        prompts: Values of `prompt_hash` that different samples share.
        lengths: One line for each mode: `mode`, `_rows` with ids, `_median` of the logarithm of their number, `_scale`
            of what lies off it.
    """

    answers: pl.Series
    prompts: pl.Series
    lengths: pl.DataFrame


def learn_health(facts: FactSource) -> HealthLessons:
    """Look over a dataset: its hashes are held as 8 bytes a row, everything else is summed up."""
    sample = pl.col("sample_id").hash()
    # A prompt that is not known is as good as its sample's name.
    prompt = pl.coalesce(pl.col("prompt_hash").cast(pl.UInt64, wrap_numerical=True), sample)
    return HealthLessons(
        answers=shared(facts.scan(), pl.col("answer_hash"), prompt),
        prompts=shared(facts.scan(), pl.col("prompt_hash"), sample),
        lengths=_lengths(facts),
    )


def judge_health(rows: pl.DataFrame, lessons: HealthLessons | None = None) -> pl.DataFrame:
    """The facts with `duplicate_answer`, `duplicate_prompt` and `length_z`, rows in the same order.

    Args:
        rows: Frame of `FACT_COLUMNS` at least.
        lessons: What the dataset that they belong to shows; None: these are all of its rows.
    """
    lessons = learn_health(FactTable(rows)) if lessons is None else lessons
    known = pl.col("answer_hash").is_not_null() & pl.col("n_ids").is_not_null()
    # All rows that share an answer are told: which of them has its own is not known.
    answer = pl.col("answer_hash").is_in(lessons.answers.implode()) & (pl.col("n_ids") >= FEWEST_IDS)
    prompt = pl.when(pl.col("prompt_hash").is_not_null()).then(pl.col("prompt_hash").is_in(lessons.prompts.implode()))
    off = (pl.when(pl.col("n_ids") > 0).then(pl.col("n_ids")).log() - pl.col("_median")) / pl.col("_scale")
    # Where text health is off, lengths are not judged either.
    judged = pl.col("loop_ids").is_not_null() & (pl.col("_rows") >= FEWEST_ROWS)
    return (
        rows.join(lessons.lengths, on="mode", how="left", maintain_order="left")
        .with_columns(
            pl.when(known).then(answer).alias("duplicate_answer"),
            prompt.alias("duplicate_prompt"),
            pl.when(judged).then(off).alias("length_z"),
        )
        .drop("_rows", "_median", "_scale")
    )


def _lengths(facts: FactSource) -> pl.DataFrame:
    """See `HealthLessons.lengths`: exact, from how many rows have each length."""
    counted = collected(facts.scan().filter(pl.col("n_ids") > 0).group_by("mode", "n_ids").len())
    counted = counted.with_columns(pl.col("n_ids").log().alias("_log"))
    lines = []
    for (mode,), rows in counted.sort("n_ids").group_by("mode", maintain_order=True):
        logs, weights = rows["_log"].to_numpy(), rows["len"].to_numpy().astype(np.int64)
        median = weighted_median(logs, weights)
        off = np.abs(logs - median)
        order = np.argsort(off, kind="stable")
        scale = max(weighted_median(off[order], weights[order]) * _MAD_TO_SIGMA, LEAST_SCALE)
        lines.append((mode, int(weights.sum()), median, scale))
    types = {"mode": pl.String, "_rows": pl.Int64, "_median": pl.Float64, "_scale": pl.Float64}
    return pl.DataFrame(lines, schema=types, orient="row")
