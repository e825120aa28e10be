"""Single characters of a column of texts, looked up in its bytes: a regular expression would read every text whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.blocks import Bools, Ints

_WHITE = np.isin(np.arange(256), np.frombuffer(b"\t\n\f\r ", dtype=np.uint8))
"""What `\\s` means to RE2: all of it ASCII, so a byte tells."""


def white_edges(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Whether each text begins, and whether it ends, in white space (bool); null where it is absent or empty."""
    text, edges = _buffers(column)
    some = np.diff(edges) > 0
    known: Bools = some & np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=bool)
    begins, ends = np.zeros(len(some), dtype=bool), np.zeros(len(some), dtype=bool)
    begins[some] = _WHITE[text[edges[:-1][some]]]
    ends[some] = _WHITE[text[edges[1:][some] - 1]]
    return pa.array(begins, mask=~known), pa.array(ends, mask=~known)


def count_replaced(column: pa.Array) -> Ints:
    """How many U+FFFD each text holds; 0 where there is none."""
    text, edges = _buffers(column)
    at = np.flatnonzero(text[edges[0] : edges[-1]] == 0xEF) + edges[0]
    at = at[at + 2 < len(text)]
    at = at[(text[at + 1] == 0xBF) & (text[at + 2] == 0xBD)]
    counts: Ints = np.diff(np.searchsorted(at, edges)).astype(np.int64)
    return counts


def _buffers(column: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints]:
    """All bytes of a column, and where each text begins and ends in them; a null has none."""
    array = column.cast(pa.large_string())
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None:
        return np.zeros(0, dtype=np.uint8), np.zeros(len(array) + 1, dtype=np.int64)
    edges = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    text = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    return text, edges
