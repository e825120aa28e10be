"""Rows to a Parquet shard, a row group at a time: what is held in memory does not grow with the shard.

Ids leave their Python lists as soon as a row arrives: a list costs some 40 bytes an id, an Arrow buffer 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.columns import SHARD_SCHEMA
from toolkit.records import SCHEMA_VERSION
from toolkit.store.arrays import Columns, array_of, encoded_array, ids_array, list_array

ROWS_PER_SHARD = 16_384
ROWS_PER_GROUP = 4_096
ROWS_PER_BATCH = 256
BYTES_PER_SHARD = 512 << 20
BYTES_PER_GROUP = 8 << 20
"""A batch, a row group and a shard end at the first of their limits: rows, or bytes of text and ids before
compression. A batch is what becomes Arrow at once, and so never runs over a shard's rows."""

_BYTES_PER_BATCH = 4 << 20

_REPEATED = [
    "source", "origin", "provider", "model", "mode", "contract", "contract_sha256", "tools",
    "finish_reason", "native_finish_reason", "ids_source", "prompt_ids_source", "rebuild_status",
]  # fmt: skip
"""Columns with few values: the only ones that gain from a dictionary."""

_LONG_TEXTS = ("reasoning", "content", "messages")
_ID_COLUMNS = tuple(field.name for field in SHARD_SCHEMA if field.type == pa.list_(pa.int32()))

_FIELDS = tuple((field.name, field.type) for field in SHARD_SCHEMA)

_COMPRESSION_LEVEL = 1
"""Level 3 makes shards an eighth smaller and writing them half as dear again."""

_IDS = pa.list_(pa.field("element", pa.int32(), nullable=False))
"""Lists of ids as they are written: what holds no null is read in a quarter less time. Readers take both."""

_WRITTEN_SCHEMA = pa.schema(
    [field.with_type(_IDS) if field.name in _ID_COLUMNS else field for field in SHARD_SCHEMA],
    {"tokenproof.schema_version": str(SCHEMA_VERSION)},
)

_BYTES_PER_ID = 4


class Batches:
    """Rows that gather to record batches of at most `ROWS_PER_BATCH`."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name, _ in _FIELDS}
        self._rows = self._size = 0

    def add(self, rows: Columns) -> list[pa.RecordBatch]:
        """Take some rows; the batches that they complete.

        Args:
            rows: Their columns. Ids may be packed (4 bytes each, as they lie in memory), a payload may be UTF-8.

        Raises:
            TypeError: ids that are no 32-bit whole numbers, or another value that is not of its column's type.
        """
        packed = {**rows, **{name: [*map(_packed, rows[name])] for name in _ID_COLUMNS}}
        packed["payload"] = [*map(_encoded, rows["payload"])]
        batches = []
        begin = 0
        for end, size in enumerate(_sizes(packed), 1):
            self._rows, self._size = self._rows + 1, self._size + size
            if self._rows >= ROWS_PER_BATCH or self._size >= _BYTES_PER_BATCH:
                self._take(packed, begin, end)
                batches.append(self._batch())
                begin = end
        self._take(packed, begin, None)
        return batches

    def rest(self) -> pa.RecordBatch | None:
        """What has gathered so far; None where that is nothing."""
        return self._batch() if self._rows else None

    def _take(self, rows: Columns, begin: int, end: int | None) -> None:
        for name, column in self._columns.items():
            column += rows[name][begin:end]

    def _batch(self) -> pa.RecordBatch:
        columns = self._columns
        self._begin()
        arrays = [_array(columns[name], name, kind) for name, kind in _FIELDS]
        return pa.RecordBatch.from_arrays(arrays, schema=SHARD_SCHEMA)


def gathered(rows: Iterable[Columns]) -> Iterator[pa.RecordBatch]:
    """Rows as the batches that they gather to.

    Raises:
        TypeError: as `Batches.add`.
    """
    batches = Batches()
    for some in rows:
        yield from batches.add(some)
    batch = batches.rest()
    if batch is not None:
        yield batch


def batches_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """The same of rows that come one by one, a value for every column of `SHARD_SCHEMA` each."""
    return gathered({name: [row[name]] for name, _ in _FIELDS} for row in rows)


def _sizes(rows: Columns) -> Iterator[int]:
    """Of each row the letters of its long texts and the bytes of its ids."""
    letters = [[len(text) if text else 0 for text in rows[name]] for name in _LONG_TEXTS]
    payloads = [len(text) if text.isascii() else len(text.decode()) for text in rows["payload"]]
    return map(sum, zip(payloads, *letters, *([*map(_bytes_of, rows[name])] for name in _ID_COLUMNS), strict=True))


def _bytes_of(ids: bytes | None) -> int:
    return 0 if ids is None else len(ids)


def _encoded(payload: str | bytes) -> bytes:
    """A payload as UTF-8.

    Raises:
        TypeError: it is no text.
        UnicodeEncodeError: it holds a lone surrogate.
    """
    if isinstance(payload, bytes):
        return payload
    if not isinstance(payload, str):
        raise TypeError(f"expected a text, found {payload!r:.80}")
    return payload.encode()


def _array(values: Sequence[Any], name: str, kind: pa.DataType) -> pa.Array:
    if name in _ID_COLUMNS:
        return _lists(values, kind)
    return encoded_array(values) if name == "payload" else array_of(values, kind)


def _packed(ids: bytes | Sequence[int] | None) -> bytes | None:
    """Ids as 4 bytes each.

    Raises:
        TypeError: anything in it is no whole number of 32 bits.
    """
    if ids is None or (isinstance(ids, bytes) and len(ids) % _BYTES_PER_ID == 0):
        return ids
    array = np.asarray(ids)
    if array.ndim == 1 and array.dtype == np.int32:
        return array.tobytes()
    if array.ndim == 1 and array.size and array.dtype.kind in "iu" and -(2**31) <= array.min() <= array.max() < 2**31:
        return array.astype(np.int32).tobytes()
    if not isinstance(ids, list | tuple | np.ndarray) or any(type(i) is not int for i in ids):
        raise TypeError(f"expected a list of 32-bit ids, found {ids!r:.80}")
    try:
        return np.array(ids, dtype=np.int32).tobytes()
    except OverflowError as error:
        raise TypeError(f"expected a list of 32-bit ids: {error}") from None


def _lists(lists: Sequence[bytes | None], kind: pa.DataType) -> pa.ListArray:
    flat = ids_array(b"".join(ids for ids in lists if ids is not None))
    return list_array([ids if ids is None else len(ids) // _BYTES_PER_ID for ids in lists], flat, kind)


def shards_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Iterator[pa.RecordBatch]]:
    """The batches of one shard after the other. Each must be read to its end before the next is asked for."""
    for first in batches:
        yield _one_shard(first, batches)


def _one_shard(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    rows, size = first.num_rows, first.nbytes
    while not fills_shard(rows, size):
        batch = next(rest, None)
        if batch is None:
            return
        rows, size = rows + batch.num_rows, size + batch.nbytes
        yield batch


def fills_shard(rows: int, size: int) -> bool:
    """Whether a shard of so many rows, and bytes before compression, is not to grow further."""
    return rows >= ROWS_PER_SHARD or size >= BYTES_PER_SHARD


class ShardFile:
    """One Parquet file of batches of `SHARD_SCHEMA`, which are written a row group at a time.

    Attributes:
        rows: How many it was given.
        size: Bytes of them before compression.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path):
        self.rows = self.size = 0
        self._held: list[pa.RecordBatch] = []
        self._writer = pq.ParquetWriter(
            path,
            _WRITTEN_SCHEMA,
            compression="zstd",
            compression_level=_COMPRESSION_LEVEL,
            use_dictionary=_REPEATED,
            write_page_checksum=True,
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch; what was held before is written once it would be too much with it."""
        if self._held and _is_full([*self._held, batch]):
            self._write_group()
        self._held.append(batch)
        self.rows, self.size = self.rows + batch.num_rows, self.size + batch.nbytes

    def _write_group(self) -> None:
        group = pa.Table.from_batches(self._held)
        self._held = []
        # `Table.cast` would look at other columns too, and call a null among them by another name than the writer.
        columns = [group[name].cast(_IDS) if name in _ID_COLUMNS else group[name] for name in group.column_names]
        written = pa.Table.from_arrays(columns, schema=_WRITTEN_SCHEMA)
        self._writer.write_table(written, row_group_size=written.num_rows)

    def finish(self) -> None:
        """Write what is left, and close the file."""
        if self._held:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Close the file, which is worth nothing: so it is no matter if its end cannot be written."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()


def write_parquet(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches of `SHARD_SCHEMA` as one Parquet file; the number of rows.

    Raises:
        OSError: it cannot be written.
    """
    file = ShardFile(path)
    with ExitStack() as undo:
        undo.callback(file.abandon)
        for batch in batches:
            file.add(batch)
        file.finish()
        undo.pop_all()
    return file.rows


def _is_full(held: Sequence[pa.RecordBatch]) -> bool:
    """Whether these are more than a row group takes."""
    rows, size = sum(int(batch.num_rows) for batch in held), sum(int(batch.nbytes) for batch in held)
    return rows > ROWS_PER_GROUP or size > BYTES_PER_GROUP


def without_rows(batches: Iterable[pa.RecordBatch], left_out: frozenset[int]) -> Iterator[pa.RecordBatch]:
    """The batches of a shard less the rows at some positions (from 0, over all batches)."""
    at = 0
    for batch in batches:
        keep = np.fromiter(
            (at + i not in left_out for i in range(batch.num_rows)), dtype=np.bool_, count=batch.num_rows
        )
        at += batch.num_rows
        if keep.any():
            yield batch.filter(pa.array(keep))
