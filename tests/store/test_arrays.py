"""Arrow arrays put together by hand are those that pyarrow makes, and pandas stays out of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from toolkit.store.arrays import array_of, encoded_array, ids_array, list_array, offsets_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.list_(pa.string()): st.lists(TEXTS, max_size=4),
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_arrays_are_those_of_pyarrow(kind: pa.DataType) -> None:
    @given(st.lists(st.none() | VALUES[kind], max_size=20))
    @settings(max_examples=100, deadline=None)
    def holds(values: list[Any]) -> None:
        made = array_of(values, kind)
        made.validate(full=True)
        assert made.equals(pa.array(values, kind))
        assert made.null_count == values.count(None)

    holds()


@given(st.lists(st.none() | st.sampled_from(["", "a", "é", "日\x00"]), max_size=4), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_texts_that_are_all_the_same(values: list[str | None], times: int) -> None:
    for column in ([value] * times for value in values):
        array_of(column, pa.string()).validate(full=True)
        assert array_of(column, pa.string()).equals(pa.array(column, pa.string()))
    assert array_of(values, pa.string()).equals(pa.array(values, pa.string()))


@given(st.lists(TEXTS, max_size=20))
@settings(max_examples=100, deadline=None)
def test_texts_that_are_utf8_already(texts: list[str]) -> None:
    made = encoded_array([text.encode() for text in texts])
    made.validate(full=True)
    assert made.equals(pa.array(texts, pa.string()))


@given(st.lists(st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=4), max_size=20))
@settings(max_examples=100, deadline=None)
def test_lists_of_ids(lists: list[list[int] | None]) -> None:
    kind = pa.list_(pa.int32())
    ids = np.array([i for ids in lists for i in ids or ()], dtype=np.int32)
    flat = ids_array(ids)
    assert flat.equals(ids_array(ids.tobytes()))
    made = list_array([None if ids is None else len(ids) for ids in lists], flat, kind)
    made.validate(full=True)
    assert made.equals(pa.array(lists, kind))


@pytest.mark.parametrize(
    ("values", "kind", "error"),
    [
        (["a", 1], pa.string(), TypeError),
        ([b"a"], pa.string(), TypeError),
        (["\ud800"], pa.string(), UnicodeEncodeError),
        (["a", "\ud800"], pa.string(), UnicodeEncodeError),
        ([None, 1], pa.string(), TypeError),
        ([1, 1], pa.string(), TypeError),
        ([b"a", b"a"], pa.string(), TypeError),
        ([1], pa.bool_(), TypeError),
        ([1.5], pa.int32(), TypeError),
        (["1"], pa.int64(), TypeError),
        ([2**31], pa.int32(), OverflowError),
        (["1"], pa.float64(), TypeError),
        (["ab"], pa.list_(pa.string()), TypeError),
        ([["a", None]], pa.list_(pa.string()), None),
        ([[1]], pa.list_(pa.string()), TypeError),
        ([[1]], pa.list_(pa.int32()), TypeError),
    ],
)
def test_values_of_another_kind_are_never_written(
    values: list[Any], kind: pa.DataType, error: type[Exception] | None
) -> None:
    if error is None:
        assert array_of(values, kind).equals(pa.array(values, kind))
        return
    with pytest.raises(error):
        array_of(values, kind)


def test_more_than_offsets_can_count_is_refused() -> None:
    with pytest.raises(OverflowError, match=r"expected at most 2,147,483,647 .*, found 2,147,483,648"):
        offsets_of([2**30, 2**30])
    assert offsets_of([2**30, 2**30 - 1]).tolist() == [0, 2**30, 2**31 - 1]


def test_sealing_imports_no_pandas() -> None:
    code = (
        "import pathlib, sys, tempfile\n"
        "from tests.rows import add_dataset, row\n"
        "from toolkit.store.workspace import Workspace\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    add_dataset(Workspace(pathlib.Path(folder)), 'B3', [row('a'), row('b', output_ids=None, notes=['x'])])\n"
        "print('pandas' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
