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
    lengths = np.sum([block.lengths for block in blocks], axis=0)
    ids = np.empty(int(lengths.sum()), dtype=np.int32)
    target = np.cumsum(lengths) - lengths
    for block in blocks:
        if len(block.ids):
            # Slices are small: 32 bits address them, and half the memory is moved.
            at = np.repeat((target - block.starts).astype(np.int32), block.lengths)
            at += np.arange(len(block.ids), dtype=np.int32)
            ids[at] = block.ids
        target = target + block.lengths
    return Block(ids, lengths)


def gather_rows(block: Block, groups: Ints, rows: int) -> Block:
    """Join neighbouring rows: row i goes to row `groups[i]` (ascending) of `rows` rows."""
    return Block(block.ids, np.bincount(groups, weights=block.lengths, minlength=rows).astype(np.int64))


def take_rows(block: Block, rows: Ints) -> Block:
    """The given rows, in the given order."""
    if len(rows) == len(block.lengths) and bool((rows == np.arange(len(rows))).all()):
        return block
    lengths = block.lengths[rows]
    shift = np.repeat(block.starts[rows] - (np.cumsum(lengths) - lengths), lengths)
    return Block(block.ids[shift + np.arange(int(lengths.sum()))], lengths)


def equal_rows(one: Block, other: Block) -> Bools:
    """Whether each row holds the same ids in both."""
    equal: Bools = one.lengths == other.lengths
    left = one.ids[np.repeat(equal, one.lengths)]
    right = other.ids[np.repeat(equal, other.lengths)]
    differing = np.flatnonzero(left != right)
    if len(differing):
        same = np.flatnonzero(equal)
        ends = np.cumsum(one.lengths[same])
        equal[same[np.searchsorted(ends, differing, side="right")]] = False
    return equal


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
