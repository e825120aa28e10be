"""Sort rows by a hash without holding them all: deal them into buckets, then sort one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ORDER = "order"
"""The column that rows are sorted by: binary, its first byte evenly spread (a hash)."""

ROWS_PER_PART = 16_384
BYTES_PER_PART = 128 << 20

_MAX_BITS = 7
"""At most 128 buckets: so many files are open at once."""

_COMPRESSED_PER_BUCKET = 32 << 20

Ints = npt.NDArray[np.int64]


def bucket_bits(rows: int, compressed_bytes: int) -> int:
    """So many buckets, as a power of two, that one fits into memory. It does not change what comes out."""
    wanted = max(rows // ROWS_PER_PART, compressed_bytes // _COMPRESSED_PER_BUCKET)
    return min(wanted.bit_length(), _MAX_BITS)


class Buckets:
    """Rows in temporary files, by the first bits of `ORDER`: all of one file come before all of the next.

    Enter, `add` in any order, leave; then `drain` once.

    Args:
        folder: An empty folder.
        schema: The rows' schema; has `ORDER`.
        bits: There are 2 ** bits files.
        then_by: Columns that decide between rows of the same order.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, bits: int, then_by: Sequence[str]):
        self._schema = schema
        self._bits = bits
        self._keys = [(name, "ascending") for name in (ORDER, *then_by)]
        self._paths = [folder / f"{number:03d}.arrow" for number in range(1 << bits)]
        self._writers: list[pa.RecordBatchStreamWriter] = []
        self._open = ExitStack()

    def __enter__(self) -> Buckets:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        for path in self._paths:
            file = self._open.enter_context(pa.OSFile(str(path), "wb"))
            writer = pa.ipc.new_stream(file, self._schema, options=options)
            self._writers.append(self._open.enter_context(writer))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def add(self, rows: pa.Table) -> None:
        """Deal rows into their buckets."""
        first_bytes = np.array([order[0] for order in rows[ORDER].to_pylist()], np.int64)
        buckets = first_bytes >> (8 - self._bits)
        dealt = rows.take(pa.array(np.argsort(buckets, kind="stable")))
        ends = np.cumsum(np.bincount(buckets, minlength=len(self._paths)))
        for writer, start, end in zip(self._writers, [0, *ends[:-1]], ends, strict=True):
            if end > start:
                writer.write_table(dealt.slice(start, end - start))

    def drain(self) -> Iterator[pa.Table]:
        """One sorted bucket after the other, empty ones left out; a file is removed once it is read."""
        for path in self._paths:
            with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
                rows = reader.read_all()
            path.unlink()
            if rows.num_rows:
                yield rows.take(pc.sort_indices(rows, sort_keys=self._keys))


def cut_parts(
    tables: Iterable[pa.Table],
    weigh: Callable[[pa.Table], Ints],
    *,
    max_rows: int = ROWS_PER_PART,
    max_bytes: int = BYTES_PER_PART,
) -> Iterator[pa.Table]:
    """Cut a sequence of rows into parts. Where the cuts fall depends on the rows, not on how they are dealt.

    Args:
        tables: Rows in their order.
        weigh: Bytes of each row.
        max_rows: Rows of a part.
        max_bytes: Bytes of a part; a row that is larger has a part of its own.
    """
    pending: pa.Table | None = None
    for table in tables:
        pending = table if pending is None else pa.concat_tables([pending, table])
        while (count := _rows_of_part(weigh(pending), max_rows, max_bytes)) < pending.num_rows:
            yield pending.slice(0, count)
            pending = pending.slice(count)
    if pending is not None and pending.num_rows:
        yield pending


def _rows_of_part(sizes: Ints, max_rows: int, max_bytes: int) -> int:
    fitting = int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right"))
    return min(max(fitting, 1), max_rows, len(sizes))
