"""Sealed shards and the list of live ones: reading them, and what is wrong with them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.columns import SHARD_SCHEMA
from toolkit.errors import ShardError, StoreError
from toolkit.records import SCHEMA_VERSION, LiveShard
from toolkit.store.files import read_bytes, sha256_of, write_atomic
from toolkit.store.shard_writer import ROWS_PER_BATCH
from toolkit.store.workspace import Dataset

_SHARD_PATH = re.compile(r"shards/part-[A-Za-z0-9_.-]+\.parquet")
"""What shards.json may name: nothing outside shards/, and no digit that only looks like one."""

_MAGIC = b"PAR1"
"""A whole Parquet file begins and ends with it."""

_CHANGED = "its bytes were changed after it was sealed"


class _LiveFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dataset: str
    contract: str
    schema_version: int
    shards: tuple[LiveShard, ...]


@dataclass(frozen=True, slots=True)
class LiveShards:
    """What shards.json says. An empty one belongs to a dataset without rows."""

    contract: str | None
    shards: tuple[LiveShard, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all live shards."""
        return sum(shard.rows for shard in self.shards)


def read_live(dataset: Dataset) -> LiveShards:
    """The live shards of a dataset.

    Raises:
        StoreError: shards.json cannot be read, or is not one.
    """
    if not dataset.live.exists():
        return LiveShards(None)
    try:
        live = msgspec.json.decode(read_bytes(dataset.live), type=_LiveFile)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(f"{dataset.live}: expected a list of shards: {error}") from None
    if live.dataset != dataset.name:
        raise StoreError(f"{dataset.live}: expected dataset {dataset.name!r}, found {live.dataset!r}")
    for shard in live.shards:
        if not _SHARD_PATH.fullmatch(shard.path):
            raise StoreError(f"{dataset.live}: expected shards/part-*.parquet, found {shard.path!r}")
    paths = [shard.path for shard in live.shards]
    if len(set(paths)) != len(paths):
        raise StoreError(f"{dataset.live}: a shard is listed twice")
    return LiveShards(live.contract, live.shards)


def write_live(dataset: Dataset, live: LiveShards) -> None:
    """Switch to another set of live shards, at once."""
    content = _LiveFile(
        dataset=dataset.name, contract=live.contract or "", schema_version=SCHEMA_VERSION, shards=live.shards
    )
    write_atomic(dataset.live, msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def unlisted_shards(dataset: Dataset, live: LiveShards) -> list[Path]:
    """Shard files that shards.json does not name: left by a killed writer, or put there by hand."""
    listed = {Path(shard.path).name for shard in live.shards}
    return sorted(path for path in dataset.shards.glob("*.parquet") if path.name not in listed)


def read_shard(
    dataset: Dataset, shard: LiveShard, columns: list[str] | None = None, *, verify: bool = True
) -> pa.Table:
    """Rows of one live shard. A byte that differs from what was sealed is an error, never silence.

    Args:
        dataset: Whose shard it is.
        shard: The line of shards.json.
        columns: Which columns; all when None.
        verify: Hold the file's sha256 against shards.json first. Readers of altered pages get wrong
            values without a word, so only skip this where it was just done.

    Raises:
        ShardError: missing, cut, altered, of another schema, or with another number of rows.
    """
    where = f"{dataset.name}/{shard.path}"
    if verify and shard.schema_version == SCHEMA_VERSION:
        check_shard(dataset, shard)
    try:
        table = open_shard(dataset, shard).read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{where}: cannot be read as Parquet: {_first_line(error)}") from None
    if table.num_rows != shard.rows:
        raise ShardError(f"{where}: expected {shard.rows} rows, found {table.num_rows}")
    return table


def open_shard(dataset: Dataset, shard: LiveShard, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """One live shard, to be read row group by row group; its bytes are not held against its sha256. `metadata` is what
    an earlier opening read of it.

    Raises:
        ShardError: missing, no Parquet file, or of another schema.
    """
    where = f"{dataset.name}/{shard.path}"
    if shard.schema_version != SCHEMA_VERSION:
        raise ShardError(f"{where}: expected schema version {SCHEMA_VERSION}, found {shard.schema_version}")
    try:
        # What is read of an object comes in a few large requests, not in one for each column of each row group.
        source, remote = source_of(dataset, shard), dataset.place is not None
        file = pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True, pre_buffer=remote)
    except FileNotFoundError:
        raise ShardError(f"{where}: missing; shards.json lists it with {shard.rows} rows") from None
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{where}: cannot be read as Parquet: {_first_line(error)}") from None
    _check_schema(file.schema_arrow, where)
    return file


def source_of(dataset: Dataset, shard: LiveShard) -> Any:
    """What a reader of Parquet opens: the shard's file, or where only object storage has it the object, of which no
    more is fetched than is read.

    Raises:
        FileNotFoundError: there is neither.
        UnreachableError: the storage does not answer.
    """
    path = dataset.folder / shard.path
    if path.is_file():
        return path
    if dataset.place is None:
        raise FileNotFoundError(path)
    from toolkit.store.remote import Bucket, place_of

    return Bucket(place_of(dataset.place)).open(f"datasets/{dataset.name}/{shard.path}")


def iter_shard(dataset: Dataset, shard: LiveShard, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """`read_shard` in small batches, for whoever goes through all rows once; its bytes are verified first.

    Raises:
        ShardError: as `read_shard`.
    """
    where = f"{dataset.name}/{shard.path}"
    if shard.schema_version != SCHEMA_VERSION:
        raise ShardError(f"{where}: expected schema version {SCHEMA_VERSION}, found {shard.schema_version}")
    check_shard(dataset, shard)
    schema = SHARD_SCHEMA if columns is None else pa.schema([SHARD_SCHEMA.field(name) for name in columns])
    rows = 0
    try:
        file = pq.ParquetFile(dataset.folder / shard.path, page_checksum_verification=True)
        _check_schema(file.schema_arrow, where)
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
            rows += batch.num_rows
            yield batch.select(schema.names).cast(schema)
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{where}: cannot be read as Parquet: {_first_line(error)}") from None
    if rows != shard.rows:
        raise ShardError(f"{where}: expected {shard.rows} rows, found {rows}")


def iter_shard_parts(
    dataset: Dataset,
    shard: LiveShard,
    columns: list[str],
    *,
    max_bytes: int = 64 << 20,
    dictionaries: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """`read_shard` a few row groups at a time, for whoever works on columns and must not hold a large shard whole.

    Args:
        dataset: Whose shard it is.
        shard: The line of shards.json; the file's bytes are held against its sha256 first.
        columns: Which columns.
        max_bytes: Bytes of a part, uncompressed and with all columns; a row group that is larger is a part of its own.
        dictionaries: Columns of texts that come dictionary-encoded, as they lie in the file.

    Raises:
        ShardError: as `read_shard`.
    """
    where = f"{dataset.name}/{shard.path}"
    if shard.schema_version != SCHEMA_VERSION:
        raise ShardError(f"{where}: expected schema version {SCHEMA_VERSION}, found {shard.schema_version}")
    check_shard(dataset, shard)
    rows = 0
    try:
        path = dataset.folder / shard.path
        file = pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=list(dictionaries))
        _check_schema(pq.ParquetFile(path).schema_arrow if dictionaries else file.schema_arrow, where)
        for groups in _groups_of(file.metadata, max_bytes):
            table = file.read_row_groups(groups, columns=columns)
            rows += table.num_rows
            yield table
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{where}: cannot be read as Parquet: {_first_line(error)}") from None
    if rows != shard.rows:
        raise ShardError(f"{where}: expected {shard.rows} rows, found {rows}")


def _groups_of(metadata: pq.FileMetaData, max_bytes: int) -> Iterator[list[int]]:
    """Neighbouring row groups that together are not larger than `max_bytes`."""
    chosen: list[int] = []
    size = 0
    for number in range(metadata.num_row_groups):
        here = metadata.row_group(number).total_byte_size
        if chosen and size + here > max_bytes:
            yield chosen
            chosen, size = [], 0
        chosen.append(number)
        size += here
    if chosen:
        yield chosen


def check_shard(dataset: Dataset, shard: LiveShard) -> None:
    """Hold one live shard's bytes against shards.json.

    Raises:
        ShardError: missing or altered.
    """
    path = dataset.folder / shard.path
    where = f"{dataset.name}/{shard.path}"
    if not path.is_file():
        raise ShardError(f"{where}: missing; shards.json lists it with {shard.rows} rows")
    found = sha256_of(path)
    if found != shard.sha256:
        raise ShardError(f"{where}: expected sha256 {shard.sha256[:16]}…, found {found[:16]}…: {_diagnose(path)}")


def _diagnose(path: Path) -> str:
    """What is wrong with an altered shard, in words."""
    try:
        file = pq.ParquetFile(path)
        _check_schema(file.schema_arrow, path.name)
    except ShardError as error:
        return str(error).partition(": ")[2]
    except (pa.ArrowException, OSError, ValueError):
        return _CHANGED if _is_framed(path) else "the file is cut short or is no Parquet file"
    return _CHANGED


def _is_framed(path: Path) -> bool:
    """Whether a file begins and ends as Parquet does, and so is whole though its footer cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
            file.seek(-len(_MAGIC), os.SEEK_END)
            return start == _MAGIC == file.read()
    except OSError:
        return False


def _check_schema(found: pa.Schema, where: str) -> None:
    for expected in SHARD_SCHEMA:
        index = found.get_field_index(expected.name)
        if index < 0:
            raise ShardError(f"{where}: column {expected.name} is missing; expected {expected.type}")
        if not _same_type(found.field(index).type, expected.type):
            raise ShardError(
                f"{where}: column {expected.name}: expected {expected.type}, found {found.field(index).type}"
            )
    extra = set(found.names) - set(SHARD_SCHEMA.names)
    if extra:
        raise ShardError(f"{where}: unexpected columns {', '.join(sorted(extra))}")


def _same_type(found: pa.DataType, expected: pa.DataType) -> bool:
    """Equal but for the name of a list's item, which Parquet writers differ in."""
    if pa.types.is_list(expected):
        return bool(pa.types.is_list(found) and found.value_type == expected.value_type)
    return bool(found == expected)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
