"""The second pass: each bucket is sorted, cut into parts and written, each side of the split by itself."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolkit.columns import TRAIN_SCHEMA
from toolkit.errors import StoreError
from toolkit.manifest import SHARDS_NAME, VALIDATION_NAME, OutputFile
from toolkit.masks import Ints, mask_of
from toolkit.merge.id_lists import as_lists, as_series, in_one_piece, lengths_of
from toolkit.merge.names import NAMED, Names
from toolkit.merge.reading import AS_IT_IS, NUMBERS
from toolkit.merge.selection import TRAIN, VALIDATION, Codes
from toolkit.merge.train_file import TEXTS, write_train_file
from toolkit.store.files import sha256_of
from toolkit.store.shuffle import Buckets, PartCutter
from toolkit.train_parts import MeasuredPart, Measuring, measure_part
from toolkit.verifying import side_of

_THREADS = 3
"""One more than work at once on two cores: each waits for the disk after every part."""

_READ_BACK_EVERY = 16
"""The first part of each side and every sixteenth after are read back whole and compared; `verify` reads all."""

Group = tuple[str, str | None]


@dataclass(slots=True, kw_only=True)
class Written:
    """What went into the parts, counted from the tables that were written.

    Attributes:
        outputs: Folder → files, in the order of their rows.
        parts: Folder → the same, measured.
    """

    outputs: dict[str, list[OutputFile]] = field(default_factory=lambda: {SHARDS_NAME: [], VALIDATION_NAME: []})
    parts: dict[str, list[MeasuredPart]] = field(default_factory=lambda: {SHARDS_NAME: [], VALIDATION_NAME: []})
    by_dataset: dict[str, Counter[str]] = field(default_factory=dict)
    by_source: dict[Group, Counter[str]] = field(default_factory=dict)

    def add(self, folder: str, done: _Done) -> None:
        """Count one part."""
        self.outputs[folder].append(done.output)
        self.parts[folder].append(done.part)
        for dataset, source, provider, *numbers in done.counts.iter_rows():
            counted = dict(zip(done.counts.columns[3:], numbers, strict=True))
            if folder == VALIDATION_NAME:
                counted["validation_rows"] = counted["rows"]
            self.by_dataset.setdefault(dataset, Counter()).update(counted)
            self.by_source.setdefault((source, provider), Counter()).update(counted)

    def measured(self) -> list[MeasuredPart]:
        """All parts, those of the train side first."""
        return [*self.parts[SHARDS_NAME], *self.parts[VALIDATION_NAME]]

    def total(self, name: str) -> int:
        """Sum over all datasets: `rows`, `validation_rows`, `ids`, `prompt_ids` or `supervised_ids`."""
        return sum(counts[name] for counts in self.by_dataset.values())


@dataclass(frozen=True, slots=True)
class _Done:
    output: OutputFile
    part: MeasuredPart
    counts: pl.DataFrame


def write_parts(
    buckets: Buckets,
    fates: Codes,
    rank: Ints,
    names: Names,
    fresh: Path,
    measuring: Measuring,
    advance: Callable[[int], None],
) -> Written:
    """Write the rows that were taken.

    Args:
        buckets: All rows that were dealt.
        fates: Of each row, by number.
        rank: Place of each row in the order of the train set, by number.
        names: Of the columns that rows bear as numbers.
        fresh: The folder of the new train set.
        measuring: What parts are measured by, as they are written.
        advance: Told of rows as they are written.

    Raises:
        StoreError: a part cannot be written, or does not read back as it was written.
    """
    written = Written()
    waiting: deque[tuple[str, Future[_Done]]] = deque()
    pool = ThreadPoolExecutor(_THREADS)

    def settle(most: int) -> None:
        while len(waiting) > most:
            folder, future = waiting.popleft()
            done = future.result()
            written.add(folder, done)
            advance(done.output.rows)

    try:
        for folder, number, rows in _parts(buckets, fates, rank):
            waiting.append((folder, pool.submit(_write, fresh, folder, number, rows, names, measuring)))
            settle(_THREADS)
        settle(0)
    finally:
        pool.shutdown(cancel_futures=True)
    return written


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a bucket, or of several, in their order: their `NUMBERS`, and the other columns."""

    numbers: npt.NDArray[np.void]
    others: pl.DataFrame

    def taken(self, places: Ints) -> _Rows:
        """Some of them, in this order. Where they are few they are copied, lest they keep the whole bucket."""
        rows = _Rows(self.numbers[places], self.others[places])
        if 2 * len(places) >= len(self.numbers):
            return rows
        return _Rows(rows.numbers, pl.DataFrame([as_series(in_one_piece(c)).alias(c.name) for c in rows.others]))

    def slice(self, first: int, count: int) -> _Rows:
        """Neighbouring ones."""
        return _Rows(self.numbers[first : first + count], self.others.slice(first, count))


class _Side:
    """One side of the split: its rows, bucket after bucket, come out as parts."""

    def __init__(self) -> None:
        # It cuts sizes alone: rows wait as they are, for a table would move their texts.
        self._cutter = PartCutter(lambda rows: rows["bytes"].to_numpy())
        self._waiting: deque[_Rows] = deque()

    def add(self, rows: _Rows, sizes: Ints) -> Iterator[list[_Rows]]:
        """The parts that are whole once these rows have come; `sizes`: bytes of each."""
        self._waiting.append(rows)
        for part in self._cutter.add(pa.table({"bytes": sizes})):
            yield self._next(part.num_rows)

    def rest(self) -> Iterator[list[_Rows]]:
        """What is left when all rows have come."""
        for part in self._cutter.rest():
            yield self._next(part.num_rows)

    def _next(self, count: int) -> list[_Rows]:
        found = []
        while count:
            rows = self._waiting.popleft()
            here = min(count, len(rows.numbers))
            found.append(rows.slice(0, here))
            if here < len(rows.numbers):
                self._waiting.appendleft(rows.slice(here, len(rows.numbers) - here))
            count -= here
        return found


def _parts(buckets: Buckets, fates: Codes, rank: Ints) -> Iterator[tuple[str, int, list[_Rows]]]:
    """Parts in their order, with the folder and the number of each."""
    sides = {SHARDS_NAME: (TRAIN, _Side()), VALIDATION_NAME: (VALIDATION, _Side())}
    numbers = Counter[str]()
    for table in buckets.drain():
        rows, sizes = _rows_of(table), _sizes_of(table)
        number = rows.numbers["number"]
        for folder, (fate, side) in sides.items():
            chosen = np.flatnonzero(fates[number] == fate)
            if len(chosen):
                ordered = chosen[np.argsort(rank[number[chosen]])]
                for part in side.add(rows.taken(ordered), sizes[ordered]):
                    yield folder, numbers[folder], part
                    numbers[folder] += 1
    for folder, (_, side) in sides.items():
        for part in side.rest():
            yield folder, numbers[folder], part
            numbers[folder] += 1


def _rows_of(table: pa.Table) -> _Rows:
    packed = table["numbers"]
    numbers = [np.frombuffer(c.buffers()[1], NUMBERS, len(c), c.offset * NUMBERS.itemsize) for c in packed.chunks]
    return _Rows(
        np.concatenate(numbers), pl.DataFrame([as_series(table[name]).alias(name) for name in table.column_names[1:]])
    )


def _sizes_of(table: pa.Table) -> Ints:
    """Bytes of ids, mask and text of each row, as they stand in memory."""
    n_ids = np.asarray(pc.binary_length(table["ids"]).to_numpy(), np.int64) // np.dtype(np.int32).itemsize
    sizes = (np.dtype(np.int32).itemsize + np.dtype(np.int8).itemsize) * n_ids
    for name in TEXTS:
        sizes = sizes + np.asarray(pc.fill_null(pc.binary_length(table[name]), 0).to_numpy(), np.int64)
    return sizes


def _write(fresh: Path, folder: str, number: int, rows: Sequence[_Rows], names: Names, measuring: Measuring) -> _Done:
    train = _train_rows(rows, names)
    path = fresh / folder / f"part-{number:05d}.parquet"
    write_train_file(path, train)
    if number % _READ_BACK_EVERY == 0:
        _read_back(path, train)
    output = OutputFile(path=f"{folder}/{path.name}", sha256=sha256_of(path), rows=train.num_rows)
    return _Done(output, measure_part(train, output.path, side_of(output.path), measuring), _counts(train))


def _read_back(path: Path, train: pa.Table) -> None:
    try:
        same = pq.read_table(path, page_checksum_verification=True).equals(train)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path.name}: cannot be read back: {str(error).splitlines()[0][:200]}") from None
    if not same:
        raise StoreError(f"{path.name}: expected the rows that were written, found others")


def _counts(train: pa.Table) -> pl.DataFrame:
    names = ["dataset", "source", "provider", "seq_len", "prompt_len", "n_supervised"]
    frame = pl.DataFrame(pl.from_arrow(train.select(names)))
    return frame.group_by(names[:3], maintain_order=True).agg(
        rows=pl.len(),
        ids=pl.col("seq_len").cast(pl.Int64).sum(),
        prompt_ids=pl.col("prompt_len").cast(pl.Int64).sum(),
        supervised_ids=pl.col("n_supervised").cast(pl.Int64).sum(),
    )


def _train_rows(rows: Sequence[_Rows], names: Names) -> pa.Table:
    """Rows of `TRAIN_SCHEMA`, in one chunk, so that how they were dealt leaves no trace in the file."""
    numbers = np.concatenate([some.numbers for some in rows])
    others = pl.concat([some.others for some in rows], rechunk=True)
    ids = as_lists(in_one_piece(others["ids"]))
    seq_len = lengths_of(ids)
    start, stop = (numbers[name].astype(np.int64) for name in ("mask_start", "mask_stop"))
    made = {
        "input_ids": ids,
        "loss_mask": pa.ListArray.from_arrays(ids.offsets, pa.array(mask_of(seq_len, start, stop))),
        "prompt_len": pa.array(numbers["prompt_len"].copy()),
        "seq_len": _int32(seq_len),
        "n_supervised": _int32(stop - start),
        **{name: names.texts_of(numbers[name].copy()) for name in NAMED},
        **{name: in_one_piece(others[name]) for name in ("id", *AS_IT_IS)},
    }
    columns = [made[name].cast(kind) for name, kind in zip(TRAIN_SCHEMA.names, TRAIN_SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(columns, schema=TRAIN_SCHEMA)


def _int32(values: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(values.astype(np.int32))
