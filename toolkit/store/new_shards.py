"""Shards that are written while their rows come, and have no name that a reader looks for until all are listed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from toolkit.store.arrays import Columns
from toolkit.store.listing import list_files, remove_leftovers
from toolkit.store.shard_writer import Batches, ShardFile, fills_shard
from toolkit.store.shards import LiveShards
from toolkit.store.workspace import Dataset


class NewShards:
    """Takes rows as they come; what it writes of them is what `listing.seal_rows` would write, byte for byte.

    The caller holds the dataset's lock all the while. After a crash the files are leftovers, which the next writer
    removes.
    """

    def __init__(self, dataset: Dataset):
        remove_leftovers(dataset)
        self._dataset = dataset
        self._batches = Batches()
        self._file: ShardFile | None = None
        self._written: list[tuple[Path, int]] = []

    def add(self, rows: Columns) -> None:
        """Take some rows: the values of every column of `SHARD_SCHEMA`.

        Raises:
            TypeError: a value is not of its column's type.
            OSError: a file cannot be written.
        """
        for batch in self._batches.add(rows):
            self._write(batch)

    def list_all(self, *, contract: str, before_listing: Callable[[], None] = lambda: None) -> LiveShards:
        """Write what is left, and list all shards at once.

        Raises:
            TypeError, OSError: as `add`.
            StoreError: a file cannot be renamed or listed; the live shards stay as they were.
        """
        batch = self._batches.rest()
        if batch is not None:
            self._write(batch)
        self._close_file()
        return list_files(self._dataset, self._written, contract=contract, before_listing=before_listing)

    def abandon(self) -> None:
        """Remove what was written, and is not listed."""
        if self._file is not None:
            self._file.abandon()
            self._file = None
        for path, _ in self._written:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        self._written = []

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._file is None:
            self._file = self._open_file()
        self._file.add(batch)
        if fills_shard(self._file.rows, self._file.size):
            self._close_file()

    def _open_file(self) -> ShardFile:
        self._dataset.shards.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._dataset.shards, prefix=".part-new.parquet.", suffix=".tmp")
        os.close(handle)
        self._written.append((Path(name), 0))
        return ShardFile(Path(name))

    def _close_file(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        path, _ = self._written[-1]
        file.finish()
        with path.open("rb") as written:
            os.fsync(written.fileno())
        self._written[-1] = (path, file.rows)
