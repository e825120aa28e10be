"""Sealed shards and the list of live ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.errors import ShardError, StoreError
from toolkit.records import SCHEMA_VERSION, SHARD_SCHEMA, LiveShard
from toolkit.store.files import read_bytes, sha256_of, write_atomic, write_whole
from toolkit.store.workspace import Dataset

ROWS_PER_SHARD = 16_384
_TEXT_PER_SHARD = 256 << 20
_ROWS_PER_GROUP = 4_096

_REPEATED = [
    "source", "origin", "provider", "model", "mode", "contract", "contract_sha256", "tools",
    "finish_reason", "native_finish_reason", "ids_source", "prompt_ids_source", "rebuild_status",
]  # fmt: skip
"""Columns with few values: the only ones that gain from a dictionary."""


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
        if Path(shard.path).parent != Path("shards") or not Path(shard.path).name.startswith("part-"):
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


def write_shard(path: Path, table: pa.Table) -> None:
    """Write rows of `SHARD_SCHEMA` as one shard: complete once it has its name.

    Raises:
        StoreError: it cannot be written.
    """
    table = table.cast(SHARD_SCHEMA)
    write_whole(path, lambda temporary: _write_parquet(temporary, table))


def _write_parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(
        table.replace_schema_metadata({"tokenproof.schema_version": str(SCHEMA_VERSION)}),
        path,
        compression="zstd",
        compression_level=3,
        use_dictionary=_REPEATED,
        row_group_size=_ROWS_PER_GROUP,
        write_page_checksum=True,
    )


def seal_rows(dataset: Dataset, rows: Iterable[dict[str, Any]], *, contract: str) -> LiveShards:
    """Write rows to new shards, then list them all at once. Nothing changes where there are no rows.

    The caller holds the dataset's lock.

    Raises:
        StoreError: a file cannot be written; the live shards stay as they were.
    """
    live = read_live(dataset)
    _set_unlisted_aside(dataset, live)
    number = _next_number(live)
    added: list[LiveShard] = []
    for batch in _batches(rows):
        path = dataset.shards / f"part-{number + len(added):05d}.parquet"
        write_shard(path, pa.Table.from_pylist(batch, schema=SHARD_SCHEMA))
        added.append(LiveShard(path=f"shards/{path.name}", sha256=sha256_of(path), rows=len(batch)))
    if not added:
        return live
    live = LiveShards(contract, (*live.shards, *added))
    write_live(dataset, live)
    return live


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row["payload"])
        if len(batch) >= ROWS_PER_SHARD or size >= _TEXT_PER_SHARD:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _next_number(live: LiveShards) -> int:
    numbers = [int(stem) for s in live.shards if (stem := Path(s.path).stem.removeprefix("part-")).isdigit()]
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
    except (pa.ArrowException, OSError):
        return "the file is cut short or is no Parquet file"
    return "its bytes were changed after it was sealed"


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
