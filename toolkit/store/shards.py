"""Sealed shards and the list of live ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.columns import SHARD_SCHEMA
from toolkit.errors import ShardError, StoreError
from toolkit.records import SCHEMA_VERSION, LiveShard
from toolkit.store.files import read_bytes, sha256_of, write_atomic, write_whole
from toolkit.store.shard_writer import ROWS_PER_BATCH, batches_of, shards_of, without_rows, write_parquet
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


def seal_rows(
    dataset: Dataset,
    rows: Iterable[Mapping[str, Any]],
    *,
    contract: str,
    replaced: Mapping[str, Collection[int]] | None = None,
    before_listing: Callable[[], None] = lambda: None,
) -> LiveShards:
    """Write rows to new shards, then list them all at once. Nothing changes where there are no rows.

    The caller holds the dataset's lock. Rows are written as they come: memory holds a row group, never a shard.

    Args:
        dataset: Where the shards go.
        rows: A value for every column of `SHARD_SCHEMA` each.
        contract: Their contract's name.
        replaced: Path of a live shard → positions of its rows whose place the new ones take. It is read when all rows
            are written, so that whoever makes them may fill it meanwhile. Their shards are written anew without them.
        before_listing: Called when all shards are on the disk and none of them is listed yet: what must be there
            before its rows are.

    Raises:
        StoreError: a file cannot be written; the live shards stay as they were.
        ShardError: a shard that rows are to be taken out of cannot be read.
    """
    live = read_live(dataset)
    remove_leftovers(dataset)
    _set_unlisted_aside(dataset, live)
    numbers = count(_next_number(live))
    added = [_write_shard(dataset, next(numbers), batches) for batches in shards_of(batches_of(rows))]
    kept = list(live.shards)
    for shard in live.shards:
        gone = frozenset((replaced or {}).get(shard.path, ()))
        if gone:
            rest = shards_of(without_rows(iter_shard(dataset, shard), gone))
            kept.remove(shard)
            added += [_write_shard(dataset, next(numbers), batches) for batches in rest]
    before_listing()
    if not added:
        return live
    now = LiveShards(contract, (*kept, *added))
    write_live(dataset, now)
    _set_unlisted_aside(dataset, now)
    return now


def replace_shards(
    dataset: Dataset,
    gone: Collection[str],
    batches: Iterator[pa.RecordBatch],
    *,
    contract: str,
    keep_files: Callable[[], bool] = lambda: False,
    before_listing: Callable[[tuple[LiveShard, ...]], None] = lambda _: None,
) -> LiveShards:
    """Write batches of `SHARD_SCHEMA` to new shards, and list them at once in the place of some that are live.

    The caller holds the dataset's lock.

    Args:
        dataset: Whose shards.
        gone: sha256 of the live shards that are not listed any more.
        batches: What the new shards hold.
        contract: Contract of the dataset from now on.
        keep_files: Whether the files of the shards that went are moved to set_aside/, instead of removed; asked when
            all batches are written.
        before_listing: Called with the new shards when they are on the disk and not listed yet.

    Raises:
        StoreError: a file cannot be written; the live shards stay as they were.
    """
    live = read_live(dataset)
    remove_leftovers(dataset)
    _set_unlisted_aside(dataset, live)
    numbers = count(_next_number(live))
    added = tuple(_write_shard(dataset, next(numbers), part) for part in shards_of(batches))
    before_listing(added)
    now = LiveShards(contract, (*(shard for shard in live.shards if shard.sha256 not in gone), *added))
    write_live(dataset, now)
    if not keep_files():
        for path in unlisted_shards(dataset, now):
            try:
                path.unlink()
            except OSError as error:
                raise StoreError(f"{path}: is not live any more, cannot be removed: {error.strerror}") from None
    _set_unlisted_aside(dataset, now)
    return now


def _write_shard(dataset: Dataset, number: int, batches: Iterable[pa.RecordBatch]) -> LiveShard:
    path = dataset.shards / f"part-{number:05d}.parquet"
    rows = 0

    def write(temporary: Path) -> None:
        nonlocal rows
        rows = write_parquet(temporary, batches)

    write_whole(path, write)
    return LiveShard(path=f"shards/{path.name}", sha256=sha256_of(path), rows=rows)


def remove_leftovers(dataset: Dataset) -> None:
    """Remove the half-written files of killed writers; the caller holds the dataset's lock.

    Raises:
        StoreError: one cannot be removed.
    """
    written = ((dataset.shards, "part-*.parquet"), (dataset.failures, "*.jsonl"), (dataset.folder, dataset.live.name))
    for folder, name in written:
        for path in folder.glob(f".{name}.*.tmp"):
            try:
                path.unlink()
            except OSError as error:
                raise StoreError(f"{path}: left by a killed writer, cannot be removed: {error.strerror}") from None


def _next_number(live: LiveShards) -> int:
    stems = (Path(shard.path).stem.removeprefix("part-") for shard in live.shards)
    numbers = [int(stem) for stem in stems if stem.isascii() and stem.isdigit()]
    return max(numbers, default=-1) + 1


def _set_unlisted_aside(dataset: Dataset, live: LiveShards) -> None:
    """A shard that a killed writer left is still in the journal or the imported file: move it out of the way."""
    for path in unlisted_shards(dataset, live):
        aside = dataset.folder / "set_aside"
        try:
            aside.mkdir(exist_ok=True)
            path.replace(aside / f"{sha256_of(path)[:16]}-{path.name}")
        except OSError as error:
            raise StoreError(f"{path}: cannot be moved to {aside}: {error.strerror}") from None


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
    path = dataset.folder / shard.path
    where = f"{dataset.name}/{shard.path}"
    if shard.schema_version != SCHEMA_VERSION:
        raise ShardError(f"{where}: expected schema version {SCHEMA_VERSION}, found {shard.schema_version}")
    if not path.is_file():
        raise ShardError(f"{where}: missing; shards.json lists it with {shard.rows} rows")
    if verify:
        found = sha256_of(path)
        if found != shard.sha256:
            raise ShardError(f"{where}: expected sha256 {shard.sha256[:16]}…, found {found[:16]}…: {_diagnose(path)}")
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        _check_schema(file.schema_arrow, where)
        table = file.read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{where}: cannot be read as Parquet: {_first_line(error)}") from None
    if table.num_rows != shard.rows:
        raise ShardError(f"{where}: expected {shard.rows} rows, found {table.num_rows}")
    return table


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
