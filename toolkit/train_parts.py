"""One part of a train set, measured: facts of its rows, their order, whose they are. Pure; no file is read here.

Merge measures the rows that it hands to the Parquet writer, `verify` those that it reads back: the same function.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.contract import Contract
from toolkit.masks import MaskForm
from toolkit.split import openings_of
from toolkit.train_facts import measure_train

TRAIN, VALIDATION = "train", "validation"
"""The sides of the split, as facts name them."""

MEASURED_COLUMNS = ["id", "row_key", "dataset", "shard", "source", "provider", "mode", "contract", "ids_source",
                    "finish_reason", "input_ids", "loss_mask", "prompt_len", "seq_len", "n_supervised"]  # fmt: skip
"""What is measured of a train set. Of the texts only messages are needed, and only where there is a split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """What parts are measured by.

    Attributes:
        seed: Of the order.
        split: Whether the set has a validation side, so that openings must be known.
    """

    contract: Contract
    form: MaskForm
    seed: int
    split: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPart:
    """One part.

    Attributes:
        path: Relative to the train set's folder.
        side: `TRAIN` or `VALIDATION`.
        facts: A table of `TRAIN_FACTS_SCHEMA`.
        owners: Each (dataset, shard, contract) of its rows once, sorted.
        first: The hash that its first row stands by; `last` likewise.
        ascending: Whether all rows stand in the order of their hashes.
        openings: Of its rows where there is a split.
    """

    path: str
    side: str
    facts: pa.Table
    owners: tuple[tuple[str, str, str], ...]
    first: bytes
    last: bytes
    ascending: bool
    openings: npt.NDArray[np.uint64] | None


def measure_part(train: pa.Table, path: str, side: str, measuring: Measuring) -> MeasuredPart:
    """Measure rows of a train set, at least one.

    Args:
        train: Columns of `MEASURED_COLUMNS`, and messages where there is a split.
        path: Of its file, relative to the train set's folder.
        side: `TRAIN` or `VALIDATION`.
        measuring: What it is measured by.

    Raises:
        StoreError: messages are not a JSON list of objects.
    """
    digests = _digests(train["row_key"], measuring.seed)
    owners = pl.DataFrame(pl.from_arrow(train.select(["dataset", "shard", "contract"]))).unique()
    return MeasuredPart(
        path=path,
        side=side,
        facts=measure_train(train, measuring.contract, measuring.form, side),
        owners=tuple(owners.sort(owners.columns).iter_rows()),
        first=digests[0],
        last=digests[-1],
        ascending=all(map(bytes.__le__, digests, digests[1:])),
        openings=openings_of(train["messages"], _prompts(train), path) if measuring.split else None,
    )


def _digests(row_keys: pa.ChunkedArray, seed: int) -> list[bytes]:
    start = str(seed).encode()
    return [hashlib.sha256(start + key.encode()).digest() for key in row_keys.to_pylist()]


def _prompts(train: pa.Table) -> pa.ListArray:
    """Prompt ids of each row."""
    ids = train["input_ids"].combine_chunks()
    lengths = np.asarray(pc.list_value_length(ids), np.int64)
    prompt_len = np.clip(np.asarray(train["prompt_len"], np.int64), 0, lengths)
    starts = np.cumsum(lengths) - lengths
    offsets = np.stack([starts, starts + prompt_len], axis=1).ravel()
    pieces = pa.ListArray.from_arrays(pa.array(np.append(offsets, lengths.sum()).astype(np.int32)), ids.flatten())
    return pieces.take(pa.array(np.arange(0, 2 * len(lengths), 2)))
