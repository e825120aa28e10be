"""Ragged arrays of ids, and the few operations that the kernel needs. No loop over rows or ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Ids32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Block:
    """One stretch of ids per row: all ids in a row, and each row's length.

    Attributes:
        ids: Shape (sum of lengths,).
        lengths: Shape (rows,).
    """

    ids: Ids32
    lengths: Ints

    @property
    def starts(self) -> Ints:
        """Where each row begins in `ids`."""
        return np.cumsum(self.lengths) - self.lengths

    def rows_at(self, positions: Ints) -> Ints:
        """The row of each position in `ids`."""
        return np.searchsorted(np.cumsum(self.lengths), positions, side="right").astype(np.int64)


def block_of_lists(lists: pa.ListArray) -> Block:
    """A list<int32> array as a block; null rows are empty."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return Block(lists.flatten().to_numpy(zero_copy_only=False), lengths)


def constant_block(token_id: int, present: Bools) -> Block:
    """One id in each row where `present`."""
    lengths = present.astype(np.int64)
    return Block(np.full(int(lengths.sum()), token_id, dtype=np.int32), lengths)


def side_by_side(blocks: Sequence[Block]) -> Block:
    """For each row, the ids of all blocks one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    lengths: Ints = np.sum([block.lengths for block in blocks], axis=0)
    joined = pc.binary_join_element_wise(*map(_row_bytes, blocks), pa.scalar(b"", pa.large_binary()))
    return Block(_ids_in(joined), lengths)


def gather_rows(block: Block, groups: Ints, rows: int) -> Block:
    """Join neighbouring rows: row i goes to row `groups[i]` (ascending) of `rows` rows."""
    return Block(block.ids, np.bincount(groups, weights=block.lengths, minlength=rows).astype(np.int64))


def take_rows(block: Block, rows: Ints) -> Block:
    """The given rows, in the given order."""
    if len(rows) == len(block.lengths) and bool((rows == np.arange(len(rows))).all()):
        return block
    return Block(_ids_in(_row_bytes(block).take(pa.array(rows))), block.lengths[rows])


def equal_rows(one: Block, other: Block) -> Bools:
    """Whether each row holds the same ids in both."""
    equal: Bools = pc.equal(_row_bytes(one), _row_bytes(other)).to_numpy(zero_copy_only=False).astype(bool)
    return equal


def _row_bytes(block: Block) -> pa.LargeBinaryArray:
    """The same rows, not copied, as strings of bytes: Arrow joins, takes and compares those a row at a time, where
    numpy would need an index for each id."""
    edges = np.zeros(len(block.lengths) + 1, dtype=np.int64)
    np.cumsum(block.lengths, out=edges[1:])
    edges *= block.ids.itemsize
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(block.ids))]
    return pa.Array.from_buffers(pa.large_binary(), len(block.lengths), buffers)


def _ids_in(rows: pa.LargeBinaryArray) -> Ids32:
    """All ids of rows that Arrow has just made, and that so begin where their bytes begin."""
    _, offsets, data = rows.buffers()
    if data is None or not len(rows):
        return np.zeros(0, dtype=np.int32)
    end = int(np.frombuffer(offsets, dtype=np.int64, count=len(rows) + 1)[-1])
    return np.frombuffer(data, dtype=np.int32, count=end // 4)


def joined_bytes(block: Block, token_bytes: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The bytes that each row stands for. Ids outside the vocabulary stand for nothing."""
    inside = (block.ids >= 0) & (block.ids < len(token_bytes))
    indices = np.where(inside, block.ids, 0).astype(np.int64)
    taken = token_bytes.take(pa.array(indices, mask=~inside))
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(block.lengths)])
    # Row i of the joined array runs from the first byte of its first id to that of the next row's first.
    at = np.frombuffer(taken.buffers()[1], dtype=np.int64)[taken.offset : taken.offset + len(taken) + 1]
    offsets = pa.py_buffer(np.ascontiguousarray(at[edges]))
    return pa.Array.from_buffers(pa.large_binary(), len(block.lengths), [None, offsets, taken.buffers()[2]])
