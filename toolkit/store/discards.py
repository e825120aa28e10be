"""Rows that were taken out of a dataset: kept beside it with the reason, and put back on demand.

A row is either live or discarded, whenever a writer is killed. `discards.jsonl` says first what is about to happen,
then the discarded rows are written, then the live shards change at once, then `discards.jsonl` says that it happened.
Whoever writes next settles what was left in between.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.errors import ConfigError, StoreError
from toolkit.records import LiveShard, storable_text
from toolkit.store.answered import identities_in
from toolkit.store.files import open_regular, sha256_of, sole_writer, stands, unreadable, write_atomic, write_whole
from toolkit.store.identities import IdentityIndex, hash_texts
from toolkit.store.journal import count_entries
from toolkit.store.listing import replace_shards
from toolkit.store.shard_writer import shards_of, write_parquet
from toolkit.store.shards import iter_shard, read_live
from toolkit.store.workspace import Dataset

By = Literal["user", "settings_changed"]
State = Literal["preparing", "discarding", "discarded", "restoring", "restored"]

Masks = Mapping[str, npt.NDArray[np.bool_]]
"""sha256 of a live shard → which of its rows."""

_SLOT = ["sample_id", "turn", "sample_index", "probe"]
_ID = re.compile(r"d[1-9][0-9]{0,8}")


class Discarded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of discards.jsonl: rows that were taken out together.

    Attributes:
        id: Its name, `d1` and so on, and that of its folder below discarded/.
        at: When, ISO 8601 in UTC.
        reason: Why, in the user's words.
        where: The expression that chose the rows; None where none did.
        by: Who: the user, or a run whose settings ask otherwise than those of the rows.
        contract: The dataset's contract at that time.
        rows: How many.
        state: `discarded`, `restored`, or what was about to happen when a writer was killed.
        parts: Files with the rows, with paths below the dataset's folder.
    """

    id: str
    at: str
    reason: str
    where: str | None
    by: By
    contract: str
    rows: int
    state: State
    parts: tuple[LiveShard, ...] = ()


def read_discards(dataset: Dataset) -> tuple[Discarded, ...]:
    """All discards of a dataset, oldest first.

    Raises:
        StoreError: discards.jsonl cannot be read, or a line is no record.
    """
    path = _records(dataset)
    if not stands(path):
        return ()
    decoder = msgspec.json.Decoder(Discarded)
    records: list[Discarded] = []
    try:
        with open_regular(path) as file:
            for number, line in enumerate(file, 1):
                record = decoder.decode(line)
                if not _ID.fullmatch(record.id) or any(Path(p.path).parent != _parts(record.id) for p in record.parts):
                    raise StoreError(f"{path}: line {number}: expected parts in discarded/dN, found {record.id!r}")
                records.append(record)
    except OSError as error:
        raise unreadable(path, error) from None
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(f"{path}: line {len(records) + 1}: expected a discard: {error}") from None
    return tuple(records)


def discard_rows(
    dataset: Dataset, masks: Masks, *, reason: str, where: str | None = None, by: By = "user"
) -> Discarded:
    """`discard_held` for a caller that does not hold the dataset's lock."""
    with sole_writer(dataset.lock):
        return discard_held(dataset, masks, reason=reason, where=where, by=by)


def discard_held(
    dataset: Dataset, masks: Masks, *, reason: str, where: str | None = None, by: By = "user"
) -> Discarded:
    """Take rows out of the live shards; the caller holds the dataset's lock.

    Shards without such a row keep their files, and with them their facts.

    Args:
        dataset: Whose rows.
        masks: Which rows; at least one.
        reason: Why.
        where: The expression that chose them.
        by: Who chose them.

    Raises:
        ConfigError: no reason.
        StoreError: a reply is not sealed yet, the shards are not those of the masks any more, or a file cannot be
            read or written; then all rows are live.
    """
    if not reason.strip():
        raise ConfigError("reason: expected some words, found none")
    refuse_unsealed(dataset)
    settle_discards(dataset)
    live = read_live(dataset)
    chosen = {sha256: mask for sha256, mask in masks.items() if mask.any()}
    shards = [shard for shard in live.shards if shard.sha256 in chosen]
    if len(shards) != len(chosen):
        raise StoreError(f"dataset {dataset.name}: its shards changed since the rows were chosen; choose them anew")
    if not shards:
        raise ValueError("no row to discard")
    record = Discarded(
        id=_next_id(dataset), at=datetime.now(UTC).isoformat(timespec="seconds"), reason=storable_text(reason),
        where=where, by=by, contract=live.contract or "", rows=int(sum(mask.sum() for mask in chosen.values())),
        state="preparing",
    )  # fmt: skip
    _write(dataset, record)
    gone = chain.from_iterable(_filtered(dataset, shard, chosen[shard.sha256]) for shard in shards)
    record = _with(record, state="discarding", parts=_write_parts(dataset, record.id, gone))
    if sum(part.rows for part in record.parts) != record.rows:
        raise StoreError(f"dataset {dataset.name}: expected {record.rows} rows to discard, found another number")
    _write(dataset, record)
    kept = chain.from_iterable(_filtered(dataset, shard, ~chosen[shard.sha256]) for shard in shards)
    replace_shards(dataset, set(chosen), kept, contract=record.contract)
    record = _with(record, state="discarded")
    _write(dataset, record)
    return record


def undo_discard(dataset: Dataset, name: str) -> Discarded:
    """Put discarded rows back, as a shard of their own.

    Raises:
        ConfigError: there is no such discard, or it was undone before.
        StoreError: the dataset is under another contract now, one of the rows has been answered anew, a reply is not
            sealed yet, or a file cannot be read or written; then nothing was put back.
    """
    with sole_writer(dataset.lock):
        refuse_unsealed(dataset)
        settle_discards(dataset)
        records = {record.id: record for record in read_discards(dataset)}
        if name not in records:
            known = ", ".join(records) or "none"
            raise ConfigError(f"dataset {dataset.name}: discard {name[:80]!r}: expected one of {known}")
        record = records[name]
        if record.state == "restored":
            raise ConfigError(f"dataset {dataset.name}: discard {name}: its rows were put back before")
        live = read_live(dataset)
        if live.contract is not None and live.contract != record.contract:
            raise StoreError(
                f"dataset {dataset.name}: discard {name}: expected contract {record.contract}, found {live.contract}; "
                "its rows were rebuilt under another one"
            )
        _refuse_answered(dataset, record)
        _write(dataset, _with(record, state="restoring"))
        rows = chain.from_iterable(iter_shard(dataset, part) for part in record.parts)
        replace_shards(dataset, (), rows, contract=record.contract)
        return _finish_restoring(dataset, record)


def refuse_unsealed(dataset: Dataset) -> None:
    """Refuse to change rows while the journal holds some: sealing it would bring rows back that are live already.

    Raises:
        StoreError: it holds something.
    """
    unsealed = count_entries(dataset.journal)
    if unsealed:
        raise StoreError(
            f"dataset {dataset.name}: {unsealed:,} replies in the journal are not sealed; let generate seal them first"
        )


def settle_discards(dataset: Dataset) -> None:
    """Finish or forget what a killed writer had begun; the caller holds the dataset's lock.

    Raises:
        StoreError: a file cannot be read or written.
    """
    for record in read_discards(dataset):
        if record.state == "preparing" or (record.state == "discarding" and _is_live(dataset, record)):
            _remove_parts(dataset, record.id)
            _write(dataset, record, forget=True)
        elif record.state == "discarding" or (record.state == "restoring" and not _is_live(dataset, record)):
            _write(dataset, _with(record, state="discarded"))
        elif record.state == "restoring" or (
            record.state == "restored" and (dataset.folder / _parts(record.id)).exists()
        ):
            _finish_restoring(dataset, record)


# --- parts --------------------------------------------------------------------------------------


def _write_parts(dataset: Dataset, name: str, batches: Iterator[pa.RecordBatch]) -> tuple[LiveShard, ...]:
    parts = []
    for number, part in enumerate(shards_of(batches)):
        path = _parts(name) / f"part-{number:05d}.parquet"
        rows = _write_part(dataset.folder / path, part)
        parts.append(LiveShard(path=str(path), sha256=sha256_of(dataset.folder / path), rows=rows))
    return tuple(parts)


def _write_part(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    rows = 0

    def write(temporary: Path) -> None:
        nonlocal rows
        rows = write_parquet(temporary, batches)

    write_whole(path, write)
    return rows


def _filtered(dataset: Dataset, shard: LiveShard, mask: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    """The rows of a shard for which `mask` is true."""
    if len(mask) != shard.rows:
        raise ValueError(f"{shard.path}: expected a mask of {shard.rows}, found {len(mask)}")
    if not mask.any():
        return
    at = 0
    for batch in iter_shard(dataset, shard):
        part = mask[at : at + batch.num_rows]
        at += batch.num_rows
        if part.any():
            yield batch.filter(pa.array(part))


def _remove_parts(dataset: Dataset, name: str) -> None:
    folder = dataset.folder / _parts(name)
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be removed: {error.strerror}") from None


def _finish_restoring(dataset: Dataset, record: Discarded) -> Discarded:
    record = _with(record, state="restored")
    _write(dataset, record)
    _remove_parts(dataset, record.id)
    return record


# --- which rows are there -----------------------------------------------------------------------


def _refuse_answered(dataset: Dataset, record: Discarded) -> None:
    rows = _table(dataset, record, _SLOT)
    index = IdentityIndex(identities_in(rows))
    for shard in read_live(dataset).shards:
        for batch in iter_shard(dataset, shard, _SLOT):
            found = index.positions(identities_in(pa.Table.from_batches([batch])))
            if (found >= 0).any():
                name = rows["sample_id"][int(found[found >= 0][0])].as_py()
                raise StoreError(
                    f"dataset {dataset.name}: discard {record.id}: {name!r:.200} has been answered anew; "
                    "discard the new rows first"
                )


def _is_live(dataset: Dataset, record: Discarded) -> bool:
    """Whether the very rows of a discard are in the live shards: the same identity with the same reply.

    Rows go out and come back all at once, so one tells of all. Reads payloads, but only after a kill.
    """
    rows = _table(dataset, record, [*_SLOT, "payload"])
    index, payloads = IdentityIndex(identities_in(rows)), hash_texts(rows["payload"].to_pylist())
    for shard in read_live(dataset).shards:
        for batch in iter_shard(dataset, shard, [*_SLOT, "payload"]):
            found = index.positions(identities_in(pa.Table.from_batches([batch])))
            there = found >= 0
            if there.any() and (payloads[found] == hash_texts(batch["payload"].to_pylist()))[there].any():
                return True
    return False


def _table(dataset: Dataset, record: Discarded, columns: list[str]) -> pa.Table:
    return pa.Table.from_batches([batch for part in record.parts for batch in iter_shard(dataset, part, columns)])


# --- records ------------------------------------------------------------------------------------


def _records(dataset: Dataset) -> Path:
    return dataset.folder / "discards.jsonl"


def _parts(name: str) -> Path:
    return Path("discarded") / name


def _next_id(dataset: Dataset) -> str:
    """A name that neither a record nor a folder has: nothing is ever written over discarded rows."""
    number = max((int(record.id[1:]) for record in read_discards(dataset)), default=0) + 1
    while stands(dataset.folder / _parts(f"d{number}")):
        number += 1
    return f"d{number}"


def _with(record: Discarded, *, state: State, parts: tuple[LiveShard, ...] | None = None) -> Discarded:
    return msgspec.structs.replace(record, state=state, parts=record.parts if parts is None else parts)


def _write(dataset: Dataset, record: Discarded, *, forget: bool = False) -> None:
    """Put a record in the place of that with its id, or at the end; or remove it."""
    records = {there.id: there for there in read_discards(dataset)} | {record.id: record}
    if forget:
        del records[record.id]
    write_atomic(_records(dataset), b"".join(msgspec.json.encode(r) + b"\n" for r in records.values()))
