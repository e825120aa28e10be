"""Near duplicates of answers, by MinHash over 5-grams of ids: opt-in, since it reads every id once more.

Sketches come from `rensa`; what is kept of a row are its band keys and one byte of each slot, `BYTES_A_ROW` in all, so
memory grows with rows and not with text. Sketches estimate: pairs near the threshold may be missed or told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.audit.blocks import Block, Ints, block_of_lists
from toolkit.audit.health.repetition import gram_hashes
from toolkit.errors import ConfigError

SLOTS, BANDS = 128, 16
"""Slots of a sketch, and bands that they are cut into: two rows are compared where all slots of a band are equal."""
THRESHOLD = 0.8
"""Estimated share of 5-grams in common from which two answers are near duplicates."""
FEWEST_IDS = 32
"""Answers with fewer ids are not compared."""
BYTES_A_ROW = SLOTS + BANDS * 8

_SEED = 42
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

NEAR_SCHEMA = pa.schema(
    [
        pa.field("row_key", pa.string(), nullable=False),
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("turn", pa.int32(), nullable=False),
        pa.field("sample_index", pa.int32(), nullable=False),
        pa.field("near_duplicate_of", pa.string(), nullable=False),
        pa.field("similarity", pa.float64(), nullable=False),
        pa.field("same_prompt", pa.bool_(), nullable=False),
    ]
)
"""One row for each near duplicate: who it is, the row_key of an earlier row that it is like, their estimated share of
5-grams in common (0 to 1), and whether both answer the same prompt (equal sample_id)."""

_IDENTITY = ("row_key", "sample_id", "turn", "sample_index")

Sketches = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class NearDuplicates:
    """Near duplicates of a dataset.

    Attributes:
        table: A table of `NEAR_SCHEMA`, in the order of the rows.
        compared: Rows that were long enough to compare.
    """

    table: pa.Table
    compared: int

    @property
    def share(self) -> float:
        """Near duplicates of answers to other prompts, as a share of the rows compared, 0 to 1."""
        others = self.table.num_rows - sum(self.table["same_prompt"].to_pylist())
        return others / self.compared if self.compared else 0.0


def find_near_duplicates(tables: Iterable[pa.Table], *, threshold: float = THRESHOLD) -> NearDuplicates:
    """Rows whose answer is nearly that of an earlier row.

    Args:
        tables: Rows in the columns row_key, sample_id, turn, sample_index and output_ids; each a shard or part of one.
        threshold: Estimated share of 5-grams in common from which two rows are told, 0 to 1.

    Raises:
        ConfigError: `rensa`, which is an optional dependency, is not installed.
    """
    identities: list[pa.Table] = []
    keys: list[npt.NDArray[np.uint64]] = []
    slots: list[npt.NDArray[np.uint8]] = []
    for table in tables:
        chosen = np.flatnonzero(_lengths(table) >= FEWEST_IDS)
        part = table.take(pa.array(chosen))
        sketches = sketch(block_of_lists(part["output_ids"].combine_chunks()))
        identities.append(part.select(_IDENTITY))
        keys.append(_band_keys(sketches))
        slots.append(sketches.astype(np.uint8))
    if not identities:
        return NearDuplicates(table=NEAR_SCHEMA.empty_table(), compared=0)
    rows = pa.concat_tables(identities).combine_chunks()
    earlier, similarity = _best_earlier(np.concatenate(keys), np.concatenate(slots), threshold)
    return NearDuplicates(table=_table(rows, earlier, similarity), compared=rows.num_rows)


def sketch(block: Block) -> Sketches:
    """MinHash sketches of the 5-grams of each row of ids. Shape (rows, SLOTS).

    Raises:
        ConfigError: `rensa` is not installed.
    """
    try:
        from rensa import RMinHash
    except ImportError:
        raise ConfigError(
            "near duplicates: expected the package rensa, found none; pip install 'tokenproof[near-duplicates]'"
        ) from None
    grams = np.maximum(block.lengths - 4, 0)
    if not grams.any():
        return np.zeros((len(block.lengths), SLOTS), dtype=np.uint32)
    fours = gram_hashes(block.ids)
    fives = (fours[:-1] * _SPREAD) ^ fours[1:]
    row = np.repeat(np.arange(len(block.lengths)), block.lengths)
    hashes = fives[row[:-4] == row[4:]]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(grams)])
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(hashes, offsets.astype(np.uint64), SLOTS, _SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32).reshape(-1, SLOTS)


def _lengths(table: pa.Table) -> Ints:
    return block_of_lists(table["output_ids"].combine_chunks()).lengths


def _band_keys(sketches: Sketches) -> npt.NDArray[np.uint64]:
    """One key for each band of each row. Shape (rows, BANDS)."""
    bands = sketches.reshape(len(sketches), BANDS, SLOTS // BANDS).astype(np.uint64)
    keys = np.zeros(bands.shape[:2], dtype=np.uint64)
    for place in range(bands.shape[2]):
        keys = (keys ^ bands[:, :, place]) * _SPREAD
        keys ^= keys >> np.uint64(29)
    return keys


def _best_earlier(
    keys: npt.NDArray[np.uint64], slots: npt.NDArray[np.uint8], threshold: float
) -> tuple[Ints, npt.NDArray[np.float64]]:
    """(the earlier row that each is most like, how much); −1 where there is none.

    Of the rows that share a band's key, each is compared with the first and with the one before it.
    """
    earlier = np.full(len(keys), -1, dtype=np.int64)
    best = np.zeros(len(keys), dtype=np.float64)
    for band in range(keys.shape[1]):
        order = np.argsort(keys[:, band], kind="stable")
        ordered = keys[order, band]
        new = np.append(True, ordered[1:] != ordered[:-1])
        at = np.flatnonzero(~new)
        first_of = np.flatnonzero(new)[np.cumsum(new) - 1]
        for other in (order[first_of[at]], order[at - 1]):
            row = order[at]
            # A byte of two slots is equal by chance once in 256 times.
            same = (slots[row] == slots[other]).mean(axis=1)
            similar = (same - 1 / 256) / (1 - 1 / 256)
            better = (similar >= threshold) & (similar > best[row])
            earlier[row[better]], best[row[better]] = other[better], similar[better]
    return earlier, best


def _table(rows: pa.Table, earlier: Ints, similarity: npt.NDArray[np.float64]) -> pa.Table:
    chosen = np.flatnonzero(earlier >= 0)
    found, others = rows.take(pa.array(chosen)), rows.take(pa.array(earlier[chosen]))
    same = np.array(found["sample_id"].to_pylist(), dtype=object) == np.array(
        others["sample_id"].to_pylist(), dtype=object
    )
    columns = [*found.columns, others["row_key"], pa.array(similarity[chosen]), pa.array(same.astype(bool))]
    return pa.table(columns, names=NEAR_SCHEMA.names).cast(NEAR_SCHEMA)
