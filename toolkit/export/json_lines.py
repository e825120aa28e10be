"""Rows of ids as JSON lines, put together from Arrow's buffers: no number passes through Python."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.export.window import Ints, Rows

_IDS_AT_ONCE = 4_000_000
"""Their text, at most eight bytes an id, stays far below what an Arrow string array holds."""

_COMMA, _BRACKET, _ZERO = ord(","), ord("]"), ord("0")


class JsonLines:
    """One file of `{"id": …, "input_ids": […], "loss_mask": […]}` lines.

    Args:
        path: The file; made anew.
    """

    def __init__(self, path: Path):
        self._file: BinaryIO = path.open("wb")
        self._words = pa.array([], pa.string())

    def add(self, rows: Rows) -> None:
        """Write rows."""
        for piece in rows.pieces(_IDS_AT_ONCE):
            largest = int(piece.ids.max(initial=0))
            if largest >= len(self._words):
                self._words = words_below(largest + 1)
            self._file.write(lines_of(piece, self._words))

    def finish(self, data_sha256: str) -> None:
        """Nothing more comes."""
        del data_sha256
        self.close()

    def close(self) -> None:
        """Let the file go, whole or not."""
        self._file.close()


def words_below(end: int) -> pa.StringArray:
    """The numbers from 0 as text."""
    return pa.array(np.arange(end)).cast(pa.string())


def lines_of(rows: Rows, words: pa.StringArray) -> memoryview:
    """Rows as lines, each with its end; `words` are the ids' numbers as text."""
    lines = pc.binary_join_element_wise(
        _openings(rows.names), _numbers(rows, words), ',"loss_mask":[', _bits(rows.mask, rows.offsets), "}\n", ""
    )
    return text_of(lines)


def text_of(texts: pa.StringArray) -> memoryview:
    """All texts behind each other."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])]


def _openings(names: list[str]) -> pa.StringArray:
    """`{"id":"…","input_ids":[` of each row; Polars escapes what JSON demands."""
    named = pl.DataFrame({"id": names}, schema={"id": pl.String}).select(pl.struct("id").struct.json_encode())
    return (named.to_series().str.strip_suffix("}") + ',"input_ids":[').to_arrow().cast(pa.string())


def _numbers(rows: Rows, words: pa.StringArray) -> pa.StringArray:
    """`1,2,3]` of each row."""
    lists = pa.ListArray.from_arrays(pa.array(rows.offsets.astype(np.int32)), words.take(pa.array(rows.ids)))
    return pc.binary_join_element_wise(pc.binary_join(lists, ","), "]", "")


def _bits(mask: npt.NDArray[np.int8], offsets: Ints) -> pa.StringArray:
    """`0,0,1]` of each row: two bytes for each id."""
    text = np.empty(2 * len(mask), np.uint8)
    text[0::2] = mask + _ZERO
    text[1::2] = _COMMA
    text[2 * offsets[1:] - 1] = _BRACKET
    ends = (2 * offsets).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])
