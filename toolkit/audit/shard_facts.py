"""One shard path → a file with its facts and one status row: the step that runs on many cores, or on many machines.

A task says everything that is needed, and all of it can be pickled; what comes back is small. A fault of a shard is
part of its status, never an exception: whoever spreads the tasks hears of every shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.audit.held_facts import CARRIED, MEASURED_FROM, carried_fault, choose_rows, sample_fault
from toolkit.audit.measure import measure_slice
from toolkit.contract import Contract
from toolkit.errors import ConfigError, ShardError, StoreError
from toolkit.phrases import Phrases
from toolkit.records import KERNEL_VERSION, LiveShard
from toolkit.store.facts import FactsFile, facts_path, find_facts, load_facts, write_facts, write_tables
from toolkit.store.shards import check_shard, open_shard, read_shard
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

UNIT_BYTES = 24 << 20
"""Text and ids of the rows that are measured at once, before compression: what bounds the memory of one worker. A third
of it takes a quarter more time (each step has a price of its own), twice as much takes memory and gains little."""

_UNIT_ROWS = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """What to do with one shard.

    Attributes:
        dataset: Whose shard it is.
        shard: The line of shards.json.
        contract: What its rows are held against.
        phrases: What text health looks for; None: it is off.
        believed: sha256 of the only kept facts that are taken; "": none are; None: any that hold.
        seed: Chooses the rows of kept facts that are measured again.
        sampled_rows: How many.
        sampled_ids: About as many ids as they may hold; None: any number.
        folder: Where facts are written that are not kept; None: they are kept, in the dataset's facts/.
        verify: Hold the shard's bytes against its sha256 first.
        unit_bytes: See `UNIT_BYTES`.
        kernel_version: Of the process that gave the task: another one must not answer it.
    """

    dataset: Dataset
    shard: LiveShard
    contract: Contract
    phrases: Phrases | None
    believed: str | None
    seed: str
    sampled_rows: int
    sampled_ids: int | None = None
    folder: Path | None = None
    verify: bool = True
    unit_bytes: int = UNIT_BYTES
    kernel_version: int = KERNEL_VERSION

    @property
    def where(self) -> str:
        """The shard's name in messages."""
        return f"{self.dataset.name}/{self.shard.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """What became of one shard.

    Attributes:
        shard: The line of shards.json.
        facts: The file with its facts; None where it cannot be read.
        kept: Whether that file stays.
        measured: Whether it was measured whole.
        doubts: A sentence for kept facts that did not hold.
        fault: Why it cannot be read, with its name; None where it can.
    """

    shard: LiveShard
    facts: FactsFile | None = None
    kept: bool = False
    measured: bool = False
    doubts: tuple[str, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """Some rows of one shard: whole row groups, or a stretch of a single large one.

    Attributes:
        groups: The row groups to read.
        first: Position of the first row in the shard.
        skipped: Rows of these groups before it.
        rows: How many rows.
        metadata: Of the shard's file, so that it is read once; None: it is not at hand.
    """

    groups: range
    first: int
    skipped: int
    rows: int
    metadata: pq.FileMetaData | None = field(repr=False, compare=False)

    def without_metadata(self) -> Unit:
        """The same unit, for who has the metadata already."""
        return replace(self, metadata=None)


RunUnits = Callable[[ShardTask, Iterable[Unit]], Iterable[pa.Table]]
"""Measures every unit of a shard, and gives their facts in the units' order."""


def facts_of_shard(
    task: ShardTask, load_vocabulary: Callable[[], Vocabulary], run: RunUnits | None = None
) -> ShardStatus:
    """Do one task: take kept facts that hold, else measure the shard.

    Args:
        task: What to do.
        load_vocabulary: Vocabulary of the task's contract.
        run: Measures the units of a shard; None: this thread, one after the other.

    Returns:
        The status. Whatever goes wrong with the shard itself stands in it.

    Raises:
        ConfigError: the vocabulary cannot be loaded.
        StoreError: the facts cannot be written, or another version of the kernel is asked for.
    """
    if task.kernel_version != KERNEL_VERSION:
        raise StoreError(f"{task.where}: expected kernel version {task.kernel_version}, this one is {KERNEL_VERSION}")
    doubts: list[str] = []
    try:
        if task.verify:
            check_shard(task.dataset, task.shard)
        kept = _kept(task, load_vocabulary, doubts)
        if kept is not None:
            return ShardStatus(shard=task.shard, facts=kept, kept=True)
        if run is None:
            vocabulary = load_vocabulary()
            tables: Iterable[pa.Table] = (measure_unit(task, unit, vocabulary) for unit in units_of(task))
        else:
            tables = run(task, units_of(task))
        facts = _write(task, tables)
        return ShardStatus(shard=task.shard, facts=facts, kept=task.folder is None, measured=True, doubts=tuple(doubts))
    except ShardError as error:
        return ShardStatus(shard=task.shard, doubts=tuple(doubts), fault=str(error))
    except (ConfigError, StoreError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 (panics of engines have no other base)
        # The edge of a worker: no shard is passed over because something in it was not thought of.
        return ShardStatus(shard=task.shard, doubts=tuple(doubts), fault=unthought_of(task, error))


def unthought_of(task: ShardTask, error: BaseException) -> str:
    """An error that nobody thought of, as a fault of its shard."""
    said = (str(error).splitlines() or [""])[0][:200]
    return f"{task.where}: cannot be measured: {type(error).__name__}: {said}"


def _kept(task: ShardTask, load_vocabulary: Callable[[], Vocabulary], doubts: list[str]) -> FactsFile | None:
    """Kept facts that hold; a word where there are others.

    Raises:
        ShardError: the shard cannot be read.
    """
    fault: str | None
    try:
        kept = find_facts(task.dataset, task.shard, task.contract, phrases=task.phrases)
        if kept is None:
            return None
        if task.believed is not None and task.believed != kept.sha256:
            fault = "not those that the audit went by"
        else:
            fault = _disproof(task, load_facts(kept), load_vocabulary)
    except ShardError:
        raise
    except StoreError as error:
        doubts.append(f"{error}; measured again")
        return None
    if fault is None:
        return kept
    doubts.append(f"facts of {task.shard.path}: {fault}; measured again")
    return None


def _disproof(task: ShardTask, kept: pa.Table, load_vocabulary: Callable[[], Vocabulary]) -> str | None:
    """What shows that kept facts are not those of their shard; None where nothing does."""
    carried = read_shard(task.dataset, task.shard, CARRIED, verify=False)
    if fault := carried_fault(kept, carried, task.shard.sha256):
        return fault
    seed = f"{task.seed}/{task.shard.sha256}"
    rows, positions = choose_rows(task.dataset, task.shard, task.sampled_rows, seed, max_ids=task.sampled_ids)
    vocabulary, sha256 = load_vocabulary(), task.shard.sha256
    step = max(1, min(_UNIT_ROWS, rows.num_rows * task.unit_bytes // max(rows.nbytes, 1)))
    parts = [
        measure_slice(rows.slice(at, step).combine_chunks(), at, task.contract, vocabulary, sha256, task.phrases)
        for at in range(0, rows.num_rows, step)
    ]
    if not parts:
        return None
    return sample_fault(kept.take(pa.array(positions)), pa.concat_tables(parts), positions)


def _write(task: ShardTask, tables: Iterable[pa.Table]) -> FactsFile:
    """Facts where the task wants them."""
    if task.folder is None:
        sha256 = write_facts(task.dataset, task.shard, task.contract, tables, phrases=task.phrases)
        path = facts_path(task.dataset, task.shard, task.contract, phrases=task.phrases)
        return FactsFile(path, sha256, task.shard.rows)
    path = task.folder / f"{task.shard.sha256}.parquet"
    return FactsFile(path, write_tables(path, tables), task.shard.rows)


# --- units ------------------------------------------------------------------------------------------


def units_of(task: ShardTask) -> Iterator[Unit]:
    """The units of a shard, in the order of its rows, each of at most `unit_bytes` or a few rows.

    Raises:
        ShardError: it cannot be read, or has not the rows that shards.json says.
    """
    file = open_shard(task.dataset, task.shard)
    found = file.metadata.num_rows
    if found != task.shard.rows:
        raise ShardError(f"{task.where}: expected {task.shard.rows} rows, found {found}")
    sizes = [_size(file.metadata.row_group(group)) for group in range(file.num_row_groups)]
    at = begin = rows = held = 0
    for group, (count, size) in enumerate(sizes):
        if rows and (held + size > task.unit_bytes or rows + count > _UNIT_ROWS):
            yield Unit(range(begin, group), at, 0, rows, file.metadata)
            at, begin, rows, held = at + rows, group, 0, 0
        if size > task.unit_bytes or count > _UNIT_ROWS:
            step = max(1, min(_UNIT_ROWS, count * task.unit_bytes // max(size, 1)))
            for first in range(0, count, step):
                yield Unit(range(group, group + 1), at + first, first, min(step, count - first), file.metadata)
            at, begin = at + count, group + 1
            continue
        rows, held = rows + count, held + size
    if rows:
        yield Unit(range(begin, len(sizes)), at, 0, rows, file.metadata)


def _size(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """(rows, bytes before compression of the columns that are read) of one row group."""
    columns = (group.column(i) for i in range(group.num_columns))
    read = (c.total_uncompressed_size for c in columns if c.path_in_schema.partition(".")[0] in _READ)
    return group.num_rows, sum(read)


_READ = frozenset(MEASURED_FROM)


def measure_unit(task: ShardTask, unit: Unit, vocabulary: Vocabulary) -> pa.Table:
    """Facts of one unit's rows.

    Raises:
        ShardError: it cannot be read, or its rows are not what this version writes.
    """
    try:
        file = open_shard(task.dataset, task.shard, unit.metadata)
        rows = file.read_row_groups(list(unit.groups), columns=MEASURED_FROM, use_threads=False)
        rows = rows.slice(unit.skipped, unit.rows).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{task.where}: cannot be read as Parquet: {str(error).splitlines()[0][:200]}") from None
    try:
        return measure_slice(rows, unit.first, task.contract, vocabulary, task.shard.sha256, task.phrases)
    except ShardError as error:
        raise ShardError(f"{task.where}: {str(error).partition(': ')[2]}") from None
