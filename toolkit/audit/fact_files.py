"""Facts that stay on disk: a file for each shard, read whole one after the other, or scanned in a few columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl
import pyarrow as pa

from toolkit.columns import FACTS_SCHEMA
from toolkit.store.facts import FactsFile

Frame = pl.DataFrame | pl.LazyFrame


class FactSource(Protocol):
    """Facts of a dataset, shard after shard."""

    def scan(self) -> pl.LazyFrame:
        """All rows, in order; nothing is read yet."""
        ...

    def each(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """(position of the first row, rows) of one part after the other."""
        ...


AT = "_at"
"""Position of a row among all rows of a dataset, shard after shard."""


@dataclass(frozen=True, slots=True)
class FactFiles:
    """Facts of shards, in the shards' order."""

    files: tuple[FactsFile, ...]

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    def scan(self) -> pl.LazyFrame:
        """All rows, in order; nothing is read yet."""
        return scan_files([file.path for file in self.files], FACTS_SCHEMA)

    def each(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """(position of the first row, rows) of one file after the other."""
        first = 0
        for file in self.files:
            yield first, pl.read_parquet(file.path, columns=list(columns), glob=False)
            first += file.rows


@dataclass(frozen=True, slots=True)
class FactTable:
    """Facts that are in memory."""

    frame: pl.DataFrame

    def scan(self) -> pl.LazyFrame:
        """See `FactSource`."""
        return self.frame.lazy()

    def each(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """See `FactSource`."""
        yield 0, self.frame.select(columns)


def scan_files(paths: Sequence[Path], schema: pa.Schema) -> pl.LazyFrame:
    """Parquet files of one schema as one frame, in order; without files a frame without rows."""
    if not paths:
        empty = pl.from_arrow(schema.empty_table())
        assert isinstance(empty, pl.DataFrame)
        return empty.lazy()
    return pl.scan_parquet(list(paths), glob=False)


def collected(frame: Frame) -> pl.DataFrame:
    """What a lazy frame gives, computed in pieces; an eager one as it is."""
    return frame if isinstance(frame, pl.DataFrame) else frame.collect(engine="streaming")
