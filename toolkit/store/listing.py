"""Rows become shards that are listed: written whole, named, and switched to all at once.

Whoever calls anything here holds the dataset's lock. After a crash at any point the live shards are the old ones or the
new ones, and what is not listed is removed or set aside by the next who writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from toolkit.errors import StoreError
from toolkit.records import LiveShard
from toolkit.store.files import sha256_of, sync_folder, write_whole
from toolkit.store.shard_writer import batches_of, shards_of, without_rows, write_parquet
from toolkit.store.shards import LiveShards, iter_shard, read_live, unlisted_shards, write_live
from toolkit.store.workspace import Dataset


def seal_rows(
    dataset: Dataset,
    rows: Iterable[Mapping[str, Any]],
    *,
    contract: str,
    replaced: Mapping[str, Collection[int]] | None = None,
    before_listing: Callable[[], None] = lambda: None,
) -> LiveShards:
    """`seal_batches` of rows that come one by one, a value for every column of `SHARD_SCHEMA` each."""
    return seal_batches(dataset, batches_of(rows), contract=contract, replaced=replaced, before_listing=before_listing)


def seal_batches(
    dataset: Dataset,
    batches: Iterator[pa.RecordBatch],
    *,
    contract: str,
    replaced: Mapping[str, Collection[int]] | None = None,
    before_listing: Callable[[], None] = lambda: None,
) -> LiveShards:
    """Write rows to new shards, then list them all at once. Nothing changes where there are no rows.

    The caller holds the dataset's lock. Rows are written as they come: memory holds a row group, never a shard.

    Args:
        dataset: Where the shards go.
        batches: Rows of `SHARD_SCHEMA`.
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
    added = [_write_shard(dataset, next(numbers), part) for part in shards_of(batches)]
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


def list_files(
    dataset: Dataset,
    files: Sequence[tuple[Path, int]],
    *,
    contract: str,
    before_listing: Callable[[], None] = lambda: None,
) -> LiveShards:
    """Make shards of files in shards/ that are whole and on the disk, and list them all at once.

    The caller holds the dataset's lock.

    Args:
        dataset: Whose shards.
        files: Path and number of rows each; they are renamed.
        contract: Contract of their rows.
        before_listing: Called when all have their names and none of them is listed yet.

    Raises:
        StoreError: a file cannot be renamed or read; the live shards stay as they were.
    """
    live = read_live(dataset)
    _set_unlisted_aside(dataset, live)
    numbers = count(_next_number(live))
    added = [_name_shard(dataset, next(numbers), path, rows) for path, rows in files]
    before_listing()
    if not added:
        return live
    now = LiveShards(contract, (*live.shards, *added))
    write_live(dataset, now)
    return now


def _name_shard(dataset: Dataset, number: int, written: Path, rows: int) -> LiveShard:
    path = dataset.shards / f"part-{number:05d}.parquet"
    try:
        written.chmod(0o644)
        written.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from None
    return LiveShard(path=f"shards/{path.name}", sha256=sha256_of(path), rows=rows)


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
