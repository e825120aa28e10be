"""Lists of ids as stretches of bytes: rows are moved by one copy each, where lists of numbers go through an index for
every id."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.masks import Ints

_WIDTH = np.dtype(np.int32).itemsize


def plain_lists(lists: pa.ChunkedArray) -> pa.ListArray:
    """Lists without nulls, in one piece that begins at its buffer's start; a null list becomes an empty one."""
    array = lists.combine_chunks()
    return pa.ListArray.from_arrays(pa.array(_offsets(lengths_of(array)).astype(np.int32)), array.flatten())


def lengths_of(lists: pa.ListArray | pa.ChunkedArray) -> Ints:
    """Items of each list; 0 for null."""
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)


def as_bytes(lists: pa.ListArray) -> pl.Series:
    """Lists of `plain_lists` as texts of bytes, nothing copied but where they begin."""
    offsets = lists.offsets.to_numpy().astype(np.int64) * _WIDTH
    buffers = [None, pa.py_buffer(offsets), _buffer_of(lists.values)]
    return as_series(pa.Array.from_buffers(pa.large_binary(), len(lists), buffers))


def as_lists(ids: pa.LargeBinaryArray) -> pa.ListArray:
    """Lists again, from texts of bytes without nulls that begin at their buffer's start."""
    _, offsets, values = ids.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(ids) + 1] // _WIDTH
    # Elsewhere they would be other rows' ids.
    assert (ids.offset, ends[0], ids.null_count) == (0, 0, 0)
    flat = pa.Array.from_buffers(pa.int32(), int(ends[-1]), [None, values])
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), flat)


def _buffer_of(values: pa.Array) -> pa.Buffer:
    return pa.py_buffer(values.to_numpy())


def hashes_of(ids: pl.Series) -> npt.NDArray[np.uint64]:
    """Of ids as bytes; equal for equal ids, within this process; nothing of it is kept."""
    return np.asarray(ids.hash().to_numpy(), np.uint64)


def joined(prompts: pl.Series, outputs: pl.Series, rows: Ints) -> pa.LargeBinaryArray:
    """Prompt and output ids of each of `rows`, as one text of bytes: taken side by side, then every second border is
    dropped.

    Args:
        prompts: Ids as bytes.
        outputs: Likewise, as many.
        rows: Which rows, in which order.
    """
    both = pl.concat([prompts, outputs], rechunk=True)
    taken = in_one_piece(both.gather(np.stack([rows, rows + len(prompts)], axis=1).ravel()))
    _, offsets, values = taken.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(taken) + 1]
    return pa.Array.from_buffers(pa.large_binary(), len(rows), [None, pa.py_buffer(ends[::2].copy()), values])


def as_series(values: pa.Array | pa.ChunkedArray) -> pl.Series:
    """A column whose rows can be chosen and put in order without their texts being moved. In one piece: no text is
    moved for that either, and choosing from several takes ten times as long."""
    return pl.Series(pl.from_arrow(values, rechunk=True))


def in_one_piece(values: pl.Series) -> pa.Array:
    """A column of `as_series` for Arrow, its texts in one buffer, with long offsets: here they are moved, once."""
    return values.to_arrow(compat_level=pl.CompatLevel.oldest())


def order_of_keys(row_keys: pa.ChunkedArray, seed: int) -> npt.NDArray[np.uint64]:
    """The first 128 bits of sha256(seed + row_key), as two numbers that sort as the hash does."""
    start, sha256 = str(seed).encode(), hashlib.sha256
    # A loop over rows: 0.5 µs each; nothing vectorised here knows sha256.
    digests = b"".join([sha256(start + key.encode()).digest() for key in row_keys.to_pylist()])
    return np.frombuffer(digests, ">u8").reshape(-1, 4)[:, :2].astype(np.uint64)


def _offsets(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
