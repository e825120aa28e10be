"""Opcodes that unpickle to what was meant. Tensors are unpickled by torch itself, in tests/trainers."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolkit.export.torch_file import opcodes, opcodes_of_counts, opcodes_of_list, write_torch


def loaded(content: bytes) -> Any:
    return pickle.loads(b"\x80\x02" + content + b".")


NUMBERS = [0, 1, -1, 255, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**63, 10**30, -(10**30)]


@pytest.mark.parametrize(
    "value",
    [None, "", "a\nü\U0001f600", *NUMBERS, {}, {"a": 1, "b": {"c": None}}, {5: 6}, [], [1, ["x"], {}]],
    ids=repr,
)
def test_plain_values(value: Any) -> None:
    assert loaded(opcodes(value)) == value


def test_lists_item_by_item() -> None:
    assert loaded(b"".join(opcodes_of_list(iter([{"a": 1}, "x"])))) == [{"a": 1}, "x"]


@pytest.mark.parametrize("count", [1, 2**31 - 1, 2**31, 2**40])
def test_counts(count: int) -> None:
    keys, counts = np.array([0, 7, 163_839]), np.array([3, count, 1])
    assert loaded(opcodes_of_counts(keys, counts)) == {0: 3, 7: count, 163_839: 1}
    assert loaded(opcodes_of_counts(keys[:0], counts[:0])) == {}


def test_the_container_is_stored_and_has_no_date(tmp_path: Path) -> None:
    write_torch(tmp_path / "x.pt", [opcodes({"a": 1})], {"0": np.arange(3)})
    with zipfile.ZipFile(tmp_path / "x.pt") as file:
        assert {i.filename for i in file.infolist()} == {
            "archive/data.pkl", "archive/byteorder", "archive/version", "archive/data/0",
        }  # fmt: skip
        assert all(i.compress_type == zipfile.ZIP_STORED and i.date_time[0] == 1980 for i in file.infolist())
        assert file.read("archive/data/0") == np.arange(3).astype("<i8").tobytes()
