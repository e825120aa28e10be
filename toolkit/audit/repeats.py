"""What stands in more than one row of a dataset, found with 8 bytes in memory for each row of a bucket.

Equal hashes begin with the same bits, so rows of different buckets need never meet: the buckets are looked through one
after the other, and memory is bounded by the largest, not by the dataset.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from toolkit.audit.fact_files import collected

_VALUES_AT_ONCE = 1 << 22

ROWS_OF_A_BUCKET = 1 << 24
"""About how many rows are held at a time: 128 MB of hashes. Each bucket is one more pass over the column."""


def repeated(rows: pl.LazyFrame, value: pl.Expr, *, buckets: int | None = None) -> pl.Series:
    """64-bit values that several rows have, sorted; nulls are none.

    Args:
        rows: All rows.
        value: What is compared: whole numbers of 64 bits, such as a hash.
        buckets: In how many parts, by the first bits of the values; None: as many as `ROWS_OF_A_BUCKET` asks for. The
            result does not depend on it.
    """
    if buckets is None:
        buckets = -(-int(collected(rows.select(pl.len())).item()) // ROWS_OF_A_BUCKET)
    named = rows.select(value.alias("_value"))
    if buckets <= 1:
        return _repeated_in(named)
    return pl.concat([_repeated_in(named.filter(_falls(number, buckets))) for number in range(buckets)]).sort()


def _falls(bucket: int, buckets: int) -> pl.Expr:
    """Whether a value lies in one of equal stretches of all numbers of 64 bits."""
    bits = pl.col("_value").cast(pl.UInt64, wrap_numerical=True)
    first, last = ((1 << 64) * number // buckets for number in (bucket, bucket + 1))
    return bits.is_between(pl.lit(first, pl.UInt64), pl.lit(last - 1, pl.UInt64))


def _repeated_in(named: pl.LazyFrame) -> pl.Series:
    """`repeated` in the column `_value`, all of which is held."""
    found = collected(named.drop_nulls())["_value"]
    values = np.array(found.to_numpy())
    values.sort()
    return pl.Series("_value", np.unique(values[1:][values[1:] == values[:-1]]), dtype=found.dtype)


def shared(rows: pl.LazyFrame, value: pl.Expr, other: pl.Expr) -> pl.Series:
    """Of the values that several rows have, those that stand beside different values of `other`, sorted."""
    again = repeated(rows, value)
    pairs = rows.select(value.alias("_value"), other.alias("_other"))
    found = [again.clear()]
    for some in _stretches(again):
        mine = pairs.filter(pl.col("_value").is_in(some.implode())).unique()
        found.append(collected(mine.group_by("_value").len().filter(pl.col("len") > 1).select("_value"))["_value"])
    return pl.concat(found).sort()


def _stretches(values: pl.Series) -> Iterator[pl.Series]:
    for first in range(0, len(values), _VALUES_AT_ONCE):
        yield values.slice(first, _VALUES_AT_ONCE)


def weighted_median(values: npt.NDArray[np.float64], weights: npt.NDArray[np.int64]) -> float:
    """The median of sorted values, each as often as its weight says: the mean of the two in the middle."""
    ends = np.cumsum(weights)
    total = int(ends[-1])
    low, high = np.searchsorted(ends, [(total - 1) // 2, total // 2], side="right")
    return float((values[low] + values[high]) / 2)
