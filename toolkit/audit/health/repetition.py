"""Repetition, from ids: how much of an answer it has said before, and its longest loop.

Both work on stretches of rows that fit a processor's cache. A loop is a run of ids that equal those `period` places
before: such runs are rare, so a stretch is compared with itself at each period eight ids at a time, and only where
eight in a row are equal is a run followed to its ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from toolkit.audit.blocks import Block, Ids32, Ints

GRAM = 4
"""Ids of one n-gram."""
LONGEST_PERIOD = 32
"""Ids of the longest phrase whose repetition is a loop."""
SHORTEST_RUN = 15
"""Ids in a row that must equal those one period before: so many hold eight that are looked at together."""
FEWEST_CYCLES = 3
"""Whole cycles of a loop."""

_STRETCH_IDS = 1 << 17
_STRETCH_ROWS = 4_096
_ROW_BITS = np.uint64(52)
_MIX = tuple(np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Repetition:
    """Shape (rows,) each.

    Attributes:
        distinct_grams: Different n-grams of `GRAM` ids.
        loop_ids: Ids that the longest loop covers, in whole cycles; 0 where there is none.
        loop_period: Ids of one cycle of it; 0 where there is none.
    """

    distinct_grams: Ints
    loop_ids: Ints
    loop_period: Ints


def find_repetition(block: Block) -> Repetition:
    """Repetition of each row of ids."""
    rows = len(block.lengths)
    found = Repetition(*(np.zeros(rows, dtype=np.int64) for _ in range(3)))
    for first, last, ids in stretches(block):
        lengths = block.lengths[first:last]
        found.distinct_grams[first:last] = _distinct_grams(ids, lengths)
        found.loop_ids[first:last], found.loop_period[first:last] = _longest_loops(ids, lengths)
    return found


def stretches(block: Block) -> Iterator[tuple[int, int, Ids32]]:
    """(first row, row after the last, their ids): whole rows, of so many ids as a cache holds."""
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(block.lengths)])
    first = 0
    while first < len(block.lengths):
        last = int(np.searchsorted(edges, edges[first] + _STRETCH_IDS, side="right")) - 1
        last = min(max(last, first + 1), first + _STRETCH_ROWS, len(block.lengths))
        yield first, last, block.ids[edges[first] : edges[last]]
        first = last


def _distinct_grams(ids: Ids32, lengths: Ints) -> Ints:
    """Different n-grams of each row: equal ones lie side by side when hashes are sorted within their rows."""
    counts = np.maximum(lengths - (GRAM - 1), 0)
    if not counts.any():
        return np.zeros(len(lengths), dtype=np.int64)
    row = np.repeat(np.arange(len(lengths), dtype=np.uint64), lengths)
    inside = row[: 1 - GRAM] == row[GRAM - 1 :]
    keys = (gram_hashes(ids) >> (np.uint64(64) - _ROW_BITS)) | (row[: 1 - GRAM] << _ROW_BITS)
    keys = np.sort(keys[inside])
    new = np.empty(len(keys) + 1, dtype=np.int64)
    new[0] = 0
    new[1] = 1
    np.cumsum(keys[1:] != keys[:-1], out=new[2:])
    new[2:] += 1
    ends = np.cumsum(counts)
    distinct: Ints = new[ends] - new[ends - counts]
    return distinct


def gram_hashes(ids: Ids32) -> Words:
    """A 64-bit hash of each `GRAM` neighbouring ids; shape (len(ids) − GRAM + 1,)."""
    words = ids.astype(np.uint64)
    pairs: Words = words[:-1] * _MIX[0] + words[1:] * _MIX[1]
    np.bitwise_xor(pairs, pairs >> np.uint64(29), out=pairs)
    grams: Words = pairs[:-2] * _MIX[2] + pairs[2:] * _MIX[3]
    np.bitwise_xor(grams, grams >> np.uint64(31), out=grams)
    np.multiply(grams, _MIX[0], out=grams)
    return grams


def _longest_loops(ids: Ids32, lengths: Ints) -> tuple[Ints, Ints]:
    """(ids that the longest loop of each row covers, its period)."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    longest = np.zeros(len(lengths), dtype=np.int64)
    period_of = np.zeros(len(lengths), dtype=np.int64)
    for period in range(1, min(LONGEST_PERIOD, len(ids) - 1) + 1):
        first, run = _runs(ids, starts, period)
        if not len(first):
            continue
        covered = (run + period) // period * period
        kept = (run >= SHORTEST_RUN) & (covered >= FEWEST_CYCLES * period)
        row = np.searchsorted(ends, first[kept], side="right")
        best = np.zeros(len(lengths), dtype=np.int64)
        np.maximum.at(best, row, covered[kept])
        longer = best > longest
        longest[longer] = best[longer]
        period_of[longer] = period
    return longest, period_of


def _runs(ids: Ids32, starts: Ints, period: int) -> tuple[Ints, Ints]:
    """(where ids begin that equal those one period later, how many do): at least all runs of `SHORTEST_RUN`."""
    equal = ids[period:] == ids[:-period]
    # An id and one of the next row are no repetition.
    across = (starts[starts > 0, None] - np.arange(1, period + 1)).ravel()
    equal[across[(across >= 0) & (across < len(equal))]] = False
    packed = np.packbits(equal)
    full = np.flatnonzero(packed == 0xFF)
    if not len(full):
        return full, full
    begins = np.flatnonzero(np.append(True, np.diff(full) > 1))
    first = full[begins]
    last = full[np.append(begins[1:] - 1, len(full) - 1)]
    before = _TRAILING[np.where(first > 0, packed[first - 1], 0)]
    after = _LEADING[np.where(last + 1 < len(packed), packed[np.minimum(last + 1, len(packed) - 1)], 0)]
    return first * 8 - before, (last - first + 1) * 8 + before + after


def _ones(order: Literal["big", "little"]) -> Ints:
    """How many ones stand at the high ("big") or low ("little") end of each byte."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder=order)
    counts: Ints = np.cumprod(bits, axis=1).sum(axis=1).astype(np.int64)
    return counts


_LEADING = _ones("big")
_TRAILING = _ones("little")
