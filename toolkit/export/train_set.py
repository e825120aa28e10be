"""Reads a train set, part by part, and believes none of it: every byte is held against the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolkit.columns import TRAIN_SCHEMA
from toolkit.errors import StoreError
from toolkit.export.readers import Split
from toolkit.export.window import Rows
from toolkit.manifest import MANIFEST_NAME, Manifest, OutputFile, read_manifest
from toolkit.store.files import open_regular, sha256_of, unreadable

_READ = ["id", "input_ids", "loss_mask", "prompt_len", "seq_len", "n_supervised", "mode"]
_TEXTS = ["messages", "tools", "reasoning", "content", "tool_calls", "finish_reason"]
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSet:
    """A train set as its manifest describes it.

    Attributes:
        split: Which side of it is read.
        vocab_size: Ids are below it; None where the contract is not at hand.
    """

    folder: Path
    manifest: Manifest
    manifest_sha256: str
    split: Split = Split.TRAIN
    vocab_size: int | None = None

    @property
    def outputs(self) -> tuple[OutputFile, ...]:
        """Its parts, in the order of their rows."""
        return self.manifest.validation_outputs if self.split is Split.VALIDATION else self.manifest.outputs

    @property
    def rows(self) -> int:
        """Rows of all its parts."""
        return sum(output.rows for output in self.outputs)

    def read(self) -> Iterator[Rows]:
        """All rows in their order; never more of them in memory than a part's row group.

        Raises:
            StoreError: a part is missing, has other bytes than the manifest states, or rows that cannot be.
        """
        for table, where in self._tables(_READ):
            yield _rows_of(table, where, self.vocab_size)

    def read_texts(self) -> Iterator[tuple[Rows, pa.Table]]:
        """The same, with the columns messages, tools, reasoning, content and tool_calls."""
        for table, where in self._tables([*_READ, *_TEXTS]):
            yield _rows_of(table, where, self.vocab_size), table.select(_TEXTS)

    def _tables(self, names: list[str]) -> Iterator[tuple[pa.Table, str]]:
        for output in self.outputs:
            path = self.folder / output.path
            try:
                with open_regular(path) as file:
                    _check_bytes(file, output, path)
                    yield from _row_groups(file, names, output, path)
            except OSError as error:
                raise unreadable(path, error) from None


def open_train_set(folder: Path, vocab_size: int | None = None, split: Split = Split.TRAIN) -> TrainSet:
    """The train set in a folder; its parts are looked at when they are read.

    Raises:
        StoreError: there is no manifest of ours, or it states no row on that side of the split.
    """
    train_set = TrainSet(
        folder=folder,
        manifest=read_manifest(folder),
        manifest_sha256=sha256_of(folder / MANIFEST_NAME),
        split=split,
        vocab_size=vocab_size,
    )
    if not train_set.rows:
        raise StoreError(f"{folder / MANIFEST_NAME}: expected {split} rows to export, found none")
    return train_set


def _check_bytes(file: BinaryIO, output: OutputFile, path: Path) -> None:
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    if digest.hexdigest() != output.sha256:
        raise StoreError(
            f"{path}: expected the bytes that {MANIFEST_NAME} states (sha256 {output.sha256[:16]}…), "
            f"found others ({digest.hexdigest()[:16]}…); merge again"
        )
    file.seek(0)


def _row_groups(file: BinaryIO, names: list[str], output: OutputFile, path: Path) -> Iterator[tuple[pa.Table, str]]:
    try:
        parquet = pq.ParquetFile(file)
        _check_columns(parquet.schema_arrow, names, path)
        if parquet.metadata.num_rows != output.rows:
            raise StoreError(f"{path}: expected {output.rows:,} rows, found {parquet.metadata.num_rows:,}")
        first = 0
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group, columns=names)
            yield table, f"{path}: rows from {first:,}"
            first += table.num_rows
    except pa.ArrowException as error:
        raise StoreError(f"{path}: cannot be read as Parquet: {str(error)[:200]}") from None


def _check_columns(schema: pa.Schema, names: list[str], path: Path) -> None:
    for name in names:
        expected = TRAIN_SCHEMA.field(name).type
        found = schema.field(name).type if name in schema.names else None
        if found is None or not found.equals(expected):
            raise StoreError(f"{path}: column {name}: expected {expected}, found {found or 'none'}")


def _rows_of(table: pa.Table, where: str, vocab_size: int | None) -> Rows:
    """Rows whose columns agree with each other.

    Raises:
        StoreError: they do not.
    """
    for name in _READ:
        if table[name].null_count:
            raise StoreError(f"{where}: column {name}: expected a value in every row, found a null")
    ids, mask = (table[name].combine_chunks() for name in ("input_ids", "loss_mask"))
    if isinstance(ids, pa.ChunkedArray):
        raise StoreError(f"{where}: expected fewer than 2³¹ ids in a row group")
    flat_ids, flat_mask = ids.flatten(), mask.flatten()
    if flat_ids.null_count or flat_mask.null_count:
        raise StoreError(f"{where}: expected ids and masks, found a null within a list")
    lengths = np.asarray(pc.list_value_length(ids).to_numpy(), np.int64)
    rows = Rows(
        names=table["id"].to_pylist(),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        ids=flat_ids.to_numpy(),
        mask=flat_mask.to_numpy(),
        prompt_len=table["prompt_len"].to_numpy().astype(np.int64),
        modes=table["mode"].to_pylist(),
    )
    _check_rows(rows, table, np.asarray(pc.list_value_length(mask).to_numpy(), np.int64), where, vocab_size)
    return rows


def _check_rows(rows: Rows, table: pa.Table, mask_lengths: np.ndarray, where: str, vocab_size: int | None) -> None:
    lengths = rows.lengths
    found = ""
    if not np.array_equal(lengths, mask_lengths):
        found = "a mask of another length than its ids"
    elif not np.array_equal(lengths, table["seq_len"].to_numpy()):
        found = "a seq_len that is not the number of ids"
    elif len(lengths) and not (lengths.min() > 0 and (rows.prompt_len <= lengths).all() and rows.prompt_len.min() >= 0):
        found = "a row without ids, or a prompt_len beyond them"
    elif len(rows.mask) and rows.mask.view(np.uint8).max() > 1:
        found = "a mask that is neither 0 nor 1"
    elif not np.array_equal(rows.supervised(), table["n_supervised"].to_numpy()):
        found = "an n_supervised that is not the number of ones in loss_mask"
    elif len(rows.ids) and (rows.ids.min() < 0 or (vocab_size is not None and rows.ids.max() >= vocab_size)):
        found = f"an id outside the vocabulary: {rows.ids.min()} to {rows.ids.max()}"
    if found:
        raise StoreError(f"{where}: the columns do not agree: found {found}; merge again")
