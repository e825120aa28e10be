"""What only other rows of the dataset show: the same answer to another prompt, the same prompt again, odd lengths."""

from __future__ import annotations

import polars as pl

FEWEST_IDS = 32
"""Ids of an answer that two prompts do not have in common by chance."""
FEWEST_ROWS = 30
"""Rows of a mode whose lengths say what is usual."""
LEAST_SCALE = 0.25
"""Of the logarithm of lengths: where all answers are about as long, one a little longer is no outlier."""

_MAD_TO_SIGMA = 1.4826


def judge_health(facts: pl.DataFrame) -> pl.DataFrame:
    """The facts with `duplicate_answer`, `duplicate_prompt` and `length_z`, rows in the same order.

    Args:
        facts: Frame of `FACT_COLUMNS` at least, all shards of a dataset.
    """
    return (
        facts.with_columns(
            # A prompt that is not known is as good as its sample's name.
            pl.coalesce(pl.col("prompt_hash").cast(pl.String), pl.col("sample_id")).alias("_prompt"),
            pl.when(pl.col("n_ids") > 0).then(pl.col("n_ids")).log().alias("_log"),
        )
        .with_columns(_duplicate_answer(), _duplicate_prompt(), (pl.col("_log") - _median("_log")).alias("_off"))
        .with_columns(_length_z())
        .drop("_prompt", "_log", "_off")
    )


def _duplicate_answer() -> pl.Expr:
    """All rows that share an answer are told: which of them has its own is not known."""
    shared = pl.col("_prompt").n_unique().over("answer_hash") > 1
    known = pl.col("answer_hash").is_not_null() & pl.col("n_ids").is_not_null()
    return pl.when(known).then(shared & (pl.col("n_ids") >= FEWEST_IDS)).alias("duplicate_answer")


def _duplicate_prompt() -> pl.Expr:
    shared = pl.col("sample_id").n_unique().over("prompt_hash") > 1
    return pl.when(pl.col("prompt_hash").is_not_null()).then(shared).alias("duplicate_prompt")


def _length_z() -> pl.Expr:
    # Where text health is off, lengths are not judged either.
    judged = pl.col("loop_ids").is_not_null() & (pl.col("_log").count().over("mode") >= FEWEST_ROWS)
    scale = (pl.col("_off").abs().median().over("mode") * _MAD_TO_SIGMA).clip(lower_bound=LEAST_SCALE)
    return pl.when(judged).then(pl.col("_off") / scale).alias("length_z")


def _median(column: str) -> pl.Expr:
    return pl.col(column).median().over("mode")
