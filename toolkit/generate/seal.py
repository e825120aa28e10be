"""The journal becomes shards. A crash at any point loses nothing and repeats nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from toolkit.errors import ConfigError, ShardError, StoreError
from toolkit.generate.plan import Identity, RowThere
from toolkit.records import Entry, Failure
from toolkit.rows import RowBuilder, build_rows, failure_about
from toolkit.store.files import sha256_of, sole_writer, sync_folder
from toolkit.store.journal import journal_files, read_entries, write_failures
from toolkit.store.shards import read_live, read_shard, seal_rows
from toolkit.store.workspace import Dataset

_NARROW = ["sample_id", "turn", "sample_index", "row_key", "origin", "probe"]


def seal_journal(dataset: Dataset, builder: RowBuilder) -> int:
    """Seal what a killed run left in the journal; the number of new rows.

    Raises:
        ConfigError: the dataset or its journal belongs to another contract.
        StoreError: another process writes to this dataset, or a file cannot be read or written.
    """
    with sole_writer(dataset.lock):
        return seal_held(dataset, builder)


def seal_held(dataset: Dataset, builder: RowBuilder) -> int:
    """`seal_journal` for a caller that holds the dataset's lock.

    The order is what makes it safe: shards, then shards.json, then the journal goes. Who is killed in between finds
    rows that are live already, and skips them by identity.
    """
    files = journal_files(dataset.journal)
    if not files:
        return 0
    live = read_live(dataset)
    check_contract(dataset, live.contract, builder.contract.name)
    sealing = _Sealing(files, builder.contract.name, set(rows_there(dataset)) if live.shards else set())
    unread: list[Failure] = []
    sealed = seal_rows(
        dataset, build_rows(builder, sealing.fresh(), unread, where="journal"), contract=builder.contract.name
    )
    failures = [*sealing.conflicts, *unread]
    if failures:
        # Named by content: sealing the same journal again after a crash writes the same file.
        name = f"journal-{sha256_of(files[0])[:12]}.jsonl"
        write_failures(dataset.failures / name, failures)
    _remove(files, dataset.journal)
    return sealed.rows - live.rows


def check_contract(dataset: Dataset, found: str | None, expected: str) -> None:
    """Refuse to mix contracts in one dataset.

    Raises:
        ConfigError: rows that are there belong to another contract.
    """
    if found is not None and found != expected:
        raise ConfigError(
            f"dataset {dataset.name}: expected contract {found}, found {expected}; "
            "rows of two contracts cannot stand in one dataset"
        )


def rows_there(dataset: Dataset, *, tolerant: bool = False) -> dict[Identity, RowThere]:
    """What is in the live shards, probes left out; reads narrow columns only.

    Args:
        dataset: Whose rows.
        tolerant: Leave shards out that cannot be read, and do not hold the others' sha256 against shards.json: for
            counting, where somebody else judges the shards.

    Raises:
        StoreError: shards.json cannot be read.
        ShardError: a shard cannot be read, or is not what was sealed; never if `tolerant`.
    """
    there: dict[Identity, RowThere] = {}
    for shard in read_live(dataset).shards:
        try:
            columns = read_shard(dataset, shard, _NARROW, verify=not tolerant).to_pydict()
        except ShardError:
            if not tolerant:
                raise
            continue
        for sample_id, turn, sample_index, row_key, origin, probe in zip(
            *(columns[name] for name in _NARROW), strict=True
        ):
            if not probe:
                there[(sample_id, turn, sample_index)] = RowThere(row_key, origin)
    return there


class _Sealing:
    """Reads entries once each; `seen` are the identities that have a row."""

    def __init__(self, files: list[Path], contract: str, seen: set[Identity]):
        self.conflicts: list[Failure] = []
        self._files = files
        self._contract = contract
        self._live = frozenset(seen)
        self._seen = seen

    def fresh(self) -> Iterator[Entry]:
        for path in self._files:
            for entry in read_entries(path):
                if entry.contract != self._contract:
                    raise ConfigError(
                        f"{path}: expected entries of contract {self._contract}, found {entry.contract}; "
                        "seal them under their own contract first"
                    )
                if entry.identity not in self._seen:
                    self._seen.add(entry.identity)
                    yield entry
                elif entry.identity not in self._live:
                    self.conflicts.append(_conflict(entry, path))


def _conflict(entry: Entry, path: Path) -> Failure:
    """Two answers to one ask in the journal: the second is kept on file, and is no row."""
    detail = f"expected one answer to {entry.identity}, found another one in {path.name}"
    return failure_about(entry, "id_conflict", detail, where="journal")


def _remove(files: list[Path], folder: Path) -> None:
    try:
        for path in files:
            path.unlink()
        sync_folder(folder)
    except OSError as error:
        raise StoreError(f"{folder}: sealed, but the journal cannot be removed: {error.strerror}") from None
