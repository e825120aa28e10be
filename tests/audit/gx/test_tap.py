"""What stands in the stream of rows keeps what is asked for and no more, however the rows are cut into stretches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from toolkit.audit.gx.passing import answer
from toolkit.audit.gx.questions import ROW, AboutRows, Distinct, Found, Repeated, Rows
from toolkit.audit.gx.tap import DistinctCollector, HashCollector, MaskCollector, RepeatCollector, compact

ROWS = 40_000


def found_of(frame: pl.DataFrame, rows: Rows, *, columns: Sequence[str] = ()) -> Found:
    question = AboutRows(rows, lambda found: found, columns=tuple(columns), limit=5, positions=True)
    (found,) = answer(frame.lazy(), [question]).values
    assert isinstance(found, Found)
    return found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series([3, None, 1, 3, 1, None]), {1, 3}),
        (pl.Series(["a", "b", None, "a" * 40, "b"]), {"a", "b", "a" * 40}),
        (pl.Series([True, None, True]), {True}),
        (pl.Series([None, None], dtype=pl.Null), set()),
        (pl.Series([], dtype=pl.String), set()),
        (pl.Series([b"\x00", b"\x00\x00"]), {b"\x00", b"\x00\x00"}),
    ],
)
def test_distinct_values_come_once_and_without_null(values: pl.Series, expected: set[object]) -> None:
    found = found_of(pl.DataFrame({"x": values}), Distinct(pl.col("x")))
    assert (found.count, len(found.first)) == (len(expected), len(expected))
    assert set(found.first.to_series().to_list()) == expected


def test_distinct_values_of_many_stretches_are_put_together_as_they_come() -> None:
    collector = DistinctCollector("x")
    for first in range(50):
        collector.look(
            pl.DataFrame({"x": [f"value {n % 20_000}" for n in range(first * 1_000, first * 1_000 + 2_000)]})
        )
        assert sum(map(len, collector._values)) <= 2 * 20_000 + 2_000
    assert collector.found.count == 20_000


def test_repeated_values_are_found_across_stretches() -> None:
    texts = [f"{n:064}" for n in range(ROWS)]
    texts[ROWS - 1] = texts[7]
    found = found_of(pl.DataFrame({"x": texts}), Repeated((pl.col("x"),), None), columns=["x"])
    assert found.positions is not None
    assert found.positions.tolist() == [7, ROWS - 1]
    assert found.first["x"].to_list() == [texts[7]] * 2


def test_rows_that_share_first_bits_of_a_hash_alone_do_not_repeat() -> None:
    hashes = np.array([5 << 40, (5 << 40) + 1, 9 << 60, 1 << 63, 0], dtype=np.uint64)
    seen = HashCollector("h")
    for part in (hashes[:1], hashes[1:]):
        seen.look(pl.DataFrame({"h": part}))
    twice = seen.twice()
    assert twice.tolist() == [(5 << 40) >> 26]
    rows = pl.DataFrame({ROW: range(5), "h": hashes, "k": ["a", "b", "c", "d", "e"]})
    repeats = RepeatCollector("h", (), 5, True, ["k"], twice)
    repeats.look(rows)
    assert repeats.found.count == 0
    again = RepeatCollector("h", (), 5, True, ["k"], twice)
    again.look(rows.with_columns(pl.lit("a").alias("k")))
    assert again.found.count == 2, "the two whose hashes begin alike, and whose values are equal"


def test_the_first_bits_that_stand_twice_are_ascending() -> None:
    hashes = np.random.default_rng(3).integers(0, 1 << 63, 5_000, dtype=np.uint64) * np.uint64(2)
    seen = HashCollector("h")
    for part in (hashes, hashes[1_000:2_500]):
        seen.look(pl.DataFrame({"h": part}))
    assert seen.twice().tolist() == sorted(set((hashes[1_000:2_500] >> np.uint64(26)).tolist()))
    assert seen.twice().tolist() == [], "what was kept is let go"


def held_bytes(values: pl.Series) -> int:
    """Bytes of the buffers that a series of strings keeps, its views left out."""
    array = values.to_arrow(compat_level=pl.CompatLevel.newest())
    return sum(buffer.size for buffer in array.buffers()[2:] if buffer is not None)


def test_shown_rows_do_not_hold_the_memory_of_their_stretch() -> None:
    stretch = pl.DataFrame({ROW: range(ROWS), "x": [f"{n:064}" for n in range(ROWS)]})
    stretch = stretch.with_columns(pl.col(ROW).eq(17).alias("m"))
    collector = MaskCollector("m", ["x"], 5, positions=False)
    collector.look(stretch)
    (part,) = collector._parts
    assert part["x"].to_list() == [f"{17:064}"]
    assert held_bytes(part["x"]) < 1_000


@pytest.mark.parametrize("dtype", [pl.String, pl.Binary, pl.Int64, pl.List(pl.String), pl.Categorical])
def test_compacted_values_are_the_same(dtype: pl.DataType) -> None:
    values = {
        pl.Int64: [1, None],
        pl.Binary: [b"\x00\xff", None],
        pl.List(pl.String): [["a"], None],
    }.get(dtype, ["a" * 30, None])
    series = pl.Series("x", values, dtype=dtype)
    assert compact(series).equals(series, check_dtypes=True, check_names=True)
