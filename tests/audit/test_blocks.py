"""Ragged arrays, against lists of lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.audit.blocks import (
    Block,
    block_of_lists,
    constant_block,
    equal_rows,
    gather_rows,
    joined_bytes,
    side_by_side,
    take_rows,
)

ROWS = st.lists(st.lists(st.integers(-3, 9), max_size=4), max_size=8)


def block(rows: list[list[int]]) -> Block:
    return Block(
        np.array([i for r in rows for i in r], dtype=np.int32), np.array([len(r) for r in rows], dtype=np.int64)
    )


def rows_of(found: Block) -> list[list[int]]:
    assert len(found.ids) == found.lengths.sum()
    return [found.ids[a : a + n].tolist() for a, n in zip(found.starts, found.lengths, strict=True)]


@given(rows=ROWS)
def test_a_position_knows_its_row(rows: list[list[int]]) -> None:
    expected = [row for row, ids in enumerate(rows) for _ in ids]
    assert block(rows).rows_at(np.arange(len(expected))).tolist() == expected


@given(rows=st.lists(st.none() | st.lists(st.integers(-3, 9), max_size=4), max_size=8), skip=st.integers(0, 3))
def test_lists_with_nulls_and_an_offset(rows: list[list[int] | None], skip: int) -> None:
    lists = pa.array(rows, pa.list_(pa.int32())).slice(skip)
    assert rows_of(block_of_lists(lists)) == [row or [] for row in rows[skip:]]


def test_ids_behind_a_null_list_do_not_count() -> None:
    """Arrow may keep values behind a null."""
    values, mask = pa.array([1, 2, 3, 4], pa.int32()), pa.array([False, True, False])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), values, mask=mask)
    assert rows_of(block_of_lists(lists)) == [[1], [], [4]]


@pytest.mark.parametrize("present", [[], [True], [False, True, True, False]])
def test_one_id_where_it_is_present(present: list[bool]) -> None:
    assert rows_of(constant_block(7, np.array(present, dtype=bool))) == [[7] if there else [] for there in present]


@given(rows=st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=3, max_size=3), max_size=6))
def test_side_by_side(rows: list[list[list[int]]]) -> None:
    blocks = [block([row[column] for row in rows]) for column in range(3)]
    assert rows_of(side_by_side(blocks)) == [a + b + c for a, b, c in rows]


@given(rows=ROWS, data=st.data())
def test_take_and_gather(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6)) if rows else []
    assert rows_of(take_rows(block(rows), np.array(chosen, dtype=np.int64))) == [rows[i] for i in chosen]
    groups = sorted(data.draw(st.lists(st.integers(0, 4), min_size=len(rows), max_size=len(rows))))
    joined = [[i for g, row in zip(groups, rows, strict=True) if g == group for i in row] for group in range(5)]
    assert rows_of(gather_rows(block(rows), np.array(groups, dtype=np.int64), 5)) == joined


BITS = st.lists(st.integers(0, 1), max_size=3)


@given(pairs=st.lists(st.tuples(BITS, BITS), max_size=9))
def test_equal_rows(pairs: list[tuple[list[int], list[int]]]) -> None:
    equal = equal_rows(block([a for a, _ in pairs]), block([b for _, b in pairs]))
    assert equal.tolist() == [a == b for a, b in pairs]


@given(rows=ROWS, skip=st.integers(0, 2))
def test_joined_bytes(rows: list[list[int]], skip: int) -> None:
    """Ids outside the table (−3 to −1, and those at its end) stand for nothing."""
    table = pa.array([b"", b"a", b"bc", b"\xff\xfe", b"", b"d", b"e"], pa.large_binary()).slice(skip)
    words = table.to_pylist()
    expected = [b"".join(words[i] for i in row if 0 <= i < len(words)) for row in rows]
    assert joined_bytes(block(rows), table).to_pylist() == expected
