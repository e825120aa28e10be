"""Rows counted by which conventions explain them: all that learning needs of a dataset, in a few lines a group.

Two rows with the same hits teach the same, so a shard becomes one line for each set of hits, and shards are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from toolkit.audit.fact_files import AT

EXAMPLES = 3
"""Rows that each line names: the first ones."""

Key = tuple[str, int, int]
"""(sample_id, turn, sample_index)"""

_IDENTITY = ("sample_id", "turn", "sample_index")
_MASKS = ("_hits", "_differ")


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What a count may leave out.

    Attributes:
        name: Words for a report.
        difference: Our number − the reported one, as this convention predicts it for a row; null where it cannot.
    """

    name: str
    difference: pl.Expr


def tally(rows: pl.DataFrame, keys: Sequence[str], observed: str, hypotheses: Sequence[Hypothesis]) -> pl.DataFrame:
    """Lines of keys, hits, differing hypotheses, rows and the first of these rows.

    Args:
        rows: Rows with `_at`, the identity columns, `keys`, `observed` and what the hypotheses read.
        keys: Columns of which lines are made.
        observed: The difference that was found; rows where it is null are left out.
        hypotheses: At most 32. Bit i of `_hits` says that the i-th explains the row, of `_differ` that it predicts
            something else than the first.
    """
    first = hypotheses[0].difference
    return (
        rows.lazy()
        .filter(pl.col(observed).is_not_null())
        .select(
            *keys,
            mask_of([pl.col(observed) == h.difference for h in hypotheses]).alias("_hits"),
            mask_of([h.difference != first for h in hypotheses]).alias("_differ"),
            pl.struct(AT, *_IDENTITY).alias("_named"),
        )
        .group_by(*keys, *_MASKS)
        .agg(pl.len().cast(pl.Int64).alias("_rows"), pl.col("_named").head(EXAMPLES))
        .collect()
    )


def add_up(tallies: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """Tallies of shards, in the shards' order, as one, by first appearance."""
    joined = pl.concat(tallies)
    return (
        joined.group_by(*keys, *_MASKS)
        .agg(pl.col("_rows").sum(), pl.col("_named").explode(empty_as_null=False, keep_nulls=False).head(EXAMPLES))
        .with_columns(pl.col("_named").list.first().struct.field(AT).alias("_first"))
        .sort("_first")
    )


def mask_of(flags: Sequence[pl.Expr]) -> pl.Expr:
    """Flags as bits of one number, the first the lowest; a null is no hit."""
    bits = [flag.fill_null(False).cast(pl.UInt32) * pl.lit(1 << i, dtype=pl.UInt32) for i, flag in enumerate(flags)]
    return pl.sum_horizontal(*bits).cast(pl.UInt32)


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one group.

    Attributes:
        hits: Bits of the hypotheses that explain the rows of each line.
        differ: Bits of those that do not predict what the first one does.
        rows: How many rows.
        frame: The lines, with the names of their first rows.
    """

    hits: npt.NDArray[np.uint32]
    differ: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.int64]
    frame: pl.DataFrame

    @classmethod
    def of(cls, tally: pl.DataFrame) -> Lines:
        """Lines of `add_up`."""
        hits, differ, rows = (tally[name].to_numpy() for name in (*_MASKS, "_rows"))
        return cls(hits, differ, rows, tally)

    def hit(self, i: int) -> npt.NDArray[np.bool_]:
        """Which lines hypothesis i explains."""
        return _bit(self.hits, i)

    def differs(self, i: int) -> npt.NDArray[np.bool_]:
        """On which lines hypothesis i predicts something else than the first."""
        return _bit(self.differ, i)

    def count(self, lines: npt.NDArray[np.bool_]) -> int:
        """Rows of these lines."""
        return int(self.rows[lines].sum())

    def named(self, lines: npt.NDArray[np.bool_]) -> tuple[Key, ...]:
        """The first rows of these lines."""
        some = self.frame.filter(pl.Series(lines))["_named"].explode().struct.unnest()
        return tuple(some.sort(AT).head(EXAMPLES).select(_IDENTITY).iter_rows())


def _bit(masks: npt.NDArray[np.uint32], i: int) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = masks >> np.uint32(i) & np.uint32(1) != 0
    return flags
