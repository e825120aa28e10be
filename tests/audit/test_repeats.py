"""What stands twice is found in one bucket as in many."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from toolkit.audit import repeats
from toolkit.audit.repeats import repeated, shared


@pytest.fixture
def rows() -> pl.LazyFrame:
    """1,000 rows whose hashes, of both signs and at both ends too, stand once, twice or often, or are missing."""
    draw = np.random.default_rng(7)
    values = draw.integers(-(1 << 63), (1 << 63) - 1, 400, dtype=np.int64)
    values[:4] = [-(1 << 63), (1 << 63) - 1, -1, 0]
    chosen: list[int | None] = [int(value) for value in values[draw.integers(0, 400, 990)]]
    frame = pl.DataFrame({"hash": [*chosen, *[None] * 10], "other": draw.integers(0, 2, 1_000)})
    return frame.with_columns(pl.col("hash").cast(pl.Int64)).lazy()


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt64])
def test_buckets_change_nothing(rows: pl.LazyFrame, dtype: type[pl.DataType]) -> None:
    value = pl.col("hash").cast(dtype, wrap_numerical=True)
    counted = rows.select(value.alias("_value")).drop_nulls().group_by("_value").len().filter(pl.col("len") > 1)
    expected = counted.collect()["_value"].sort()
    assert len(expected) > 200
    for buckets in (1, 2, 3, 16):
        assert repeated(rows, value, buckets=buckets).equals(expected, check_dtypes=True)


def test_a_bucket_holds_its_own_rows_alone(rows: pl.LazyFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [repeated(rows, pl.col("hash")), shared(rows, pl.col("hash"), pl.col("other"))]
    assert 0 < len(whole[1]) < len(whole[0])
    held: list[int] = []

    def collected(frame: pl.LazyFrame) -> pl.DataFrame:
        found = frame.collect()
        held.append(len(found) if found.columns == ["_value"] else 0)
        return found

    monkeypatch.setattr(repeats, "collected", collected)
    monkeypatch.setattr(repeats, "ROWS_OF_A_BUCKET", 100)
    assert repeated(rows, pl.col("hash")).equals(whole[0])
    assert max(held) < 200
    assert sum(held) == 990
    assert shared(rows, pl.col("hash"), pl.col("other")).equals(whole[1])


def test_no_rows_have_nothing_twice(rows: pl.LazyFrame) -> None:
    assert repeated(rows.head(0), pl.col("hash")).equals(pl.Series("_value", [], pl.Int64), check_dtypes=True)
