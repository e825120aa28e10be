"""Sort rows without holding them all: deal them into buckets by the first bits of a hash, and take these in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ROWS_PER_PART = 16_384
BYTES_PER_PART = 128 << 20

_MAX_BITS = 9
"""At most 512 buckets: so many files are open at once, of the 1,024 that systems allow."""

_COMPRESSED_PER_BUCKET = 32 << 20

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


def bucket_bits(rows: int, compressed_bytes: int) -> int:
    """So many buckets, as a power of two, that one fits into memory. It does not change what comes out."""
    wanted = max(rows // ROWS_PER_PART, compressed_bytes // _COMPRESSED_PER_BUCKET)
    return min(wanted.bit_length(), _MAX_BITS)


class Buckets:
    """Rows in temporary files, by the first bits of a hash: all of one file come before all of the next.

    Enter, `add` in any order, leave; then `drain` once. One thread at a time.

    Args:
        folder: An empty folder.
        schema: The rows' schema.
        bits: There are 2 ** bits files.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, bits: int):
        self._schema = schema
        self._bits = bits
        self._paths = [folder / f"{number:03d}.arrow" for number in range(1 << bits)]
        self._writers: list[pa.RecordBatchStreamWriter] = []
        self._open = ExitStack()

    def __enter__(self) -> Buckets:
        # Not compressed: ids gain little from it, and the processor is what a merge waits for.
        for path in self._paths:
            file = self._open.enter_context(pa.OSFile(str(path), "wb"))
            writer = pa.ipc.new_stream(file, self._schema)
            self._writers.append(self._open.enter_context(writer))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def bucket_of(self, order: Hashes) -> Ints:
        """The bucket of each hash."""
        if not self._bits:
            return np.zeros(len(order), np.int64)
        return (order >> np.uint64(64 - self._bits)).astype(np.int64)

    def add(self, rows: pa.Table, buckets: Ints) -> None:
        """Append rows to their buckets; they stand in ascending order of these."""
        edges = np.searchsorted(buckets, np.arange(len(self._paths) + 1))
        for writer, start, end in zip(self._writers, edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if end > start:
                writer.write_table(rows.slice(start, end - start))

    def drain(self) -> Iterator[pa.Table]:
        """One bucket after the other, its rows as they were added, empty ones left out; read files are removed."""
        for path in self._paths:
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
                rows = reader.read_all()
            path.unlink()
            if rows.num_rows:
                yield rows


class PartCutter:
    """Cuts a sequence of rows into parts. Where the cuts fall depends on the rows, not on how they arrive.

    Args:
        weigh: Bytes of each row.
        max_rows: Rows of a part.
        max_bytes: Bytes of a part; a row that is larger has a part of its own.
    """

    def __init__(
        self,
        weigh: Callable[[pa.Table], Ints],
        *,
        max_rows: int = ROWS_PER_PART,
        max_bytes: int = BYTES_PER_PART,
    ):
        self._weigh = weigh
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._pending: pa.Table | None = None

    def add(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The parts that are whole once these rows have come."""
        pending = rows if self._pending is None else pa.concat_tables([self._pending, rows])
        sizes = self._weigh(pending)
        start = 0
        while (count := self._rows_of_part(sizes[start:])) < len(sizes) - start:
            yield pending.slice(start, count)
            start += count
        self._pending = pending.slice(start)

    def rest(self) -> Iterator[pa.Table]:
        """What is left when all rows have come."""
        if self._pending is not None and self._pending.num_rows:
            yield self._pending
        self._pending = None

    def _rows_of_part(self, sizes: Ints) -> int:
        fitting = int(np.searchsorted(np.cumsum(sizes), self._max_bytes, side="right"))
        return min(max(fitting, 1), self._max_rows, len(sizes))


def cut_parts(tables: Iterable[pa.Table], cutter: PartCutter) -> Iterator[pa.Table]:
    """All parts of a sequence of rows."""
    for table in tables:
        yield from cutter.add(table)
    yield from cutter.rest()
