"""The journal becomes shards. A crash at any point loses nothing and repeats nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from toolkit.errors import ConfigError, StoreError
from toolkit.records import Entry, Failure, Reply
from toolkit.rows import RowBuilder, failure_about
from toolkit.store.arrays import Columns
from toolkit.store.files import sha256_of, sole_writer, sync_folder
from toolkit.store.identities import hash_of
from toolkit.store.journal import journal_files, numbered_entries, write_failures
from toolkit.store.listing import seal_batches
from toolkit.store.live_rows import LiveRows, Slot, digest_of
from toolkit.store.new_shards import NewShards
from toolkit.store.shard_writer import gathered
from toolkit.store.shards import read_live
from toolkit.store.workspace import Dataset

ANSWERS_AT_ONCE = 128
LETTERS_AT_ONCE = 4 << 20
"""How many answers, and how much of them, are made rows together. A run's connections wait meanwhile, some 20 ms."""


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

    The order is what makes it safe: shards, failures, shards.json, and only then the journal goes. Who is killed in
    between does all of it again, with the same outcome: an answer that is live already is known by its bytes.
    """
    files = journal_files(dataset.journal)
    if not files:
        return 0
    live = read_live(dataset)
    check_contract(dataset, live.contract, builder.contract.name)
    sealing = _Sealing(dataset, builder)
    sealed = seal_batches(
        dataset, gathered(sealing.rows_of(files)), contract=builder.contract.name, before_listing=sealing.write_failures
    )
    _remove(files, dataset.journal)
    return sealed.rows - live.rows


class Alongside:
    """Makes rows of a run's answers while the run goes on, so that nothing has to be read a second time.

    What comes of it is what `seal_held` would make of the journal, byte for byte. The journal stands until all is
    listed: whoever is killed before that finds everything in there, and whatever does not go well here is left to it.
    The caller holds the dataset's lock all the while.
    """

    def __init__(self, dataset: Dataset, builder: RowBuilder):
        self._dataset = dataset
        self._builder = builder
        self._answers: list[tuple[Entry, Reply]] = []
        self._bodies: list[bytes | None] = []
        self._letters = 0
        self._slots: set[int] = set()
        self._shards: NewShards | None = None
        self._failed = False

    def add(self, entry: Entry, reply: Reply, body: bytes | None = None) -> None:
        """Take an answer, in the order in which answers are written to the journal. Never fails; it may give up.

        `body` is what the journal has of the entry's body (`journal.spelled`), if it is at hand.
        """
        if self._failed:
            return
        # A hash of each: they are held as long as the run goes on, and two that are equal by chance cost time alone.
        slot = hash(slot_of(entry))
        if slot in self._slots:
            # Which of two answers stays is for the journal to say.
            self.give_up()
            return
        self._slots.add(slot)
        self._answers.append((entry, reply))
        self._bodies.append(body)
        self._letters += len(entry.body)
        if len(self._answers) >= ANSWERS_AT_ONCE or self._letters >= LETTERS_AT_ONCE:
            self._make_rows()

    def seal(self, journal: Path, size: int) -> int:
        """List the rows, once the journal is flushed and closed, and remove it; the number of new rows.

        Args:
            journal: The file that the answers were written to.
            size: Its length in bytes, if nothing else was written to it.

        Raises:
            ConfigError, StoreError: as `seal_held`, which does it instead where anything is not as expected.
        """
        self._make_rows()
        shards = self._shards
        if self._failed or shards is None or not self._is_whole(journal, size):
            self.give_up()
            return seal_held(self._dataset, self._builder)
        try:
            before = read_live(self._dataset).rows
            sealed = shards.list_all(contract=self._builder.contract.name)
        except StoreError:
            self.give_up()
            raise
        except (OSError, pa.ArrowException, ValueError, MemoryError):
            self.give_up()
            return seal_held(self._dataset, self._builder)
        self._shards = None
        _remove([journal], self._dataset.journal)
        return sealed.rows - before

    def give_up(self) -> None:
        """Throw away what was made; the journal has it all."""
        self._failed = True
        self._answers, self._bodies, self._slots = [], [], set()
        if self._shards is not None:
            self._shards.abandon()
            self._shards = None

    def _make_rows(self) -> None:
        answers, bodies = self._answers, self._bodies
        self._answers, self._bodies, self._letters = [], [], 0
        if not answers:
            return
        try:
            if self._shards is None:
                self._shards = NewShards(self._dataset)
            self._shards.add(self._builder.build_all(answers, bodies))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 (panics of engines have no other base)
            # A run must not break off, nor lose what is in flight, for what can be done when all has come: then it is
            # done from the journal, and whatever is wrong is told there.
            self.give_up()

    def _is_whole(self, journal: Path, size: int) -> bool:
        """Whether the journal holds these answers and no others, and no row is there yet that one of them would be."""
        if journal_files(self._dataset.journal) != [journal] or journal.stat().st_size != size:
            return False
        live = read_live(self._dataset)
        if live.contract not in (None, self._builder.contract.name):
            return False
        return not any(hash(slot) in self._slots for slot in LiveRows(self._dataset))


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


def slot_of(entry: Entry) -> Slot:
    """What of a dataset an entry's row would hold."""
    return (entry.sample_id, entry.turn, entry.sample_index, entry.probe)


def conflict(entry: Entry, *, where: str, place: str, earlier: str) -> Failure:
    """Two answers to one ask: the second, at `place`, is no row, and stays on file with both places named."""
    name = f"sample {entry.sample_id!r:.200}, turn {entry.turn}, sample index {entry.sample_index}"
    detail = f"{name}: expected one answer, found one in {earlier} and another in {place}"
    return failure_about(entry, "id_conflict", detail, where=where)


@dataclass(slots=True)
class _Sealing:
    """Reads entries once each; `seen` are answers of this journal that have a row: hash of the body, and place."""

    dataset: Dataset
    builder: RowBuilder
    seen: dict[Slot, tuple[int, str]] = field(default_factory=dict)
    failures: dict[Path, list[Failure]] = field(default_factory=dict)

    def rows_of(self, files: list[Path]) -> Iterator[Columns]:
        """Rows of all answers that are not live yet, some at a time.

        Raises:
            ConfigError: an entry belongs to another contract.
            StoreError: a journal file cannot be read, or a line is no entry.
            ShardError: a live shard cannot be read.
        """
        live = LiveRows(self.dataset)
        answers: list[tuple[Entry, Reply]] = []
        size = 0
        for path in files:
            failures = self.failures.setdefault(path, [])
            for number, entry in numbered_entries(path):
                self._check_contract(entry, path)
                reply = self._new_answer(entry, f"{path.name}: line {number}", live, failures)
                if reply is not None:
                    answers.append((entry, reply))
                    size += len(entry.body)
                if len(answers) >= ANSWERS_AT_ONCE or size >= LETTERS_AT_ONCE:
                    yield self.builder.build_all(answers)
                    answers, size = [], 0
        yield self.builder.build_all(answers)

    def _new_answer(self, entry: Entry, place: str, live: LiveRows, failures: list[Failure]) -> Reply | None:
        """The answer that an entry holds; None where it holds none, or one that is not new."""
        reply = self.builder.read(entry, where="journal")
        if isinstance(reply, Failure):
            failures.append(reply)
            return None
        slot, body = slot_of(entry), hash_of(entry.body)
        there = live.find(slot)
        if slot not in self.seen and there is not None and there.body != digest_of(entry.body):
            failures.append(conflict(entry, where="journal", place=place, earlier=there.where))
            return None
        earlier, earlier_place = self.seen.setdefault(slot, (body, place))
        if earlier != body:
            failures.append(conflict(entry, where="journal", place=place, earlier=earlier_place))
            return None
        is_new = there is None and earlier_place == place
        return reply if is_new else None

    def _check_contract(self, entry: Entry, path: Path) -> None:
        expected = self.builder.contract.name
        if entry.contract != expected:
            raise ConfigError(
                f"{path}: expected entries of contract {expected}, found {entry.contract}; "
                "seal them under their own contract first"
            )

    def write_failures(self) -> None:
        """One file for each journal file, named by its content: sealing it again writes the same file."""
        for path, failures in self.failures.items():
            if failures:
                write_failures(self.dataset.failures / f"journal-{sha256_of(path)[:12]}.jsonl", failures)


def _remove(files: list[Path], folder: Path) -> None:
    try:
        for path in files:
            path.unlink()
        sync_folder(folder)
    except OSError as error:
        raise StoreError(f"{folder}: sealed, but the journal cannot be removed: {error.strerror}") from None
