"""The second pass: each bucket is sorted, cut into parts and written, each side of the split by itself."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
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
from toolkit.merge.id_lists import joined, lengths_of
from toolkit.merge.names import NAMED, Names
from toolkit.merge.reading import AS_IT_IS, NUMBERS
from toolkit.merge.selection import TRAIN, VALIDATION, Codes
from toolkit.store.files import sha256_of, write_whole
from toolkit.store.shuffle import Buckets, PartCutter
from toolkit.train_parts import MeasuredPart, Measuring, measure_part
from toolkit.verifying import side_of

_ROWS_PER_GROUP = 4_096
_THREADS = 2
_TEXTS = ["messages", "tools", "reasoning", "content", "tool_calls"]
_IDS_LEAF = "input_ids.list.element"

_REPEATED = [*NAMED, "tools"]
"""Columns with few values: the only ones that gain from a dictionary."""

_WITH_STATISTICS = [
    name
    for name, kind in zip(TRAIN_SCHEMA.names, TRAIN_SCHEMA.types, strict=True)
    if name not in _TEXTS and not pa.types.is_list(kind)
]
"""Columns whose least and greatest value are kept for each row group: of long texts and of lists nobody asks them."""

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


def _parts(buckets: Buckets, fates: Codes, rank: Ints) -> Iterator[tuple[str, int, pa.Table]]:
    """Parts in their order, with the folder and the number of each."""
    sides = {SHARDS_NAME: (TRAIN, PartCutter(_weigh)), VALIDATION_NAME: (VALIDATION, PartCutter(_weigh))}
    numbers = Counter[str]()
    for rows in buckets.drain():
        number = _numbers_of(rows)["number"]
        for folder, (fate, cutter) in sides.items():
            chosen = np.flatnonzero(fates[number] == fate)
            if len(chosen):
                ordered = chosen[np.argsort(rank[number[chosen]])]
                for part in cutter.add(_taken(rows, ordered)):
                    yield folder, numbers[folder], part
                    numbers[folder] += 1
    for folder, (_, cutter) in sides.items():
        for part in cutter.rest():
            yield folder, numbers[folder], part
            numbers[folder] += 1


def _numbers_of(rows: pa.Table) -> npt.NDArray[np.void]:
    packed = rows["numbers"]
    found = [np.frombuffer(c.buffers()[1], NUMBERS, len(c), c.offset * NUMBERS.itemsize) for c in packed.chunks]
    return np.concatenate(found) if found else np.zeros(0, NUMBERS)


def _taken(rows: pa.Table, places: Ints) -> pa.Table:
    """Rows of a bucket in another order, prompt and output ids joined."""
    ids = joined(rows["prompt_ids"], rows["output_ids"], places)
    others = rows.drop_columns(["prompt_ids", "output_ids"]).take(pa.array(places))
    return others.append_column("input_ids", ids)


def _weigh(rows: pa.Table) -> Ints:
    """Bytes of ids, mask and text of each row, as they stand in memory."""
    bytes_per_id = np.dtype(np.int32).itemsize + np.dtype(np.int8).itemsize
    sizes = bytes_per_id * lengths_of(rows["input_ids"])
    for name in _TEXTS:
        sizes = sizes + np.asarray(pc.fill_null(pc.binary_length(rows[name]), 0).to_numpy(), np.int64)
    return sizes


def _write(fresh: Path, folder: str, number: int, rows: pa.Table, names: Names, measuring: Measuring) -> _Done:
    train = train_rows(rows, names)
    path = fresh / folder / f"part-{number:05d}.parquet"
    _write_part(path, train)
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


def train_rows(rows: pa.Table, names: Names) -> pa.Table:
    """Rows of `TRAIN_SCHEMA`, in one chunk, so that how they were dealt leaves no trace in the file."""
    rows = rows.combine_chunks()
    numbers = _numbers_of(rows)
    ids = rows["input_ids"].combine_chunks()
    seq_len = lengths_of(ids)
    offsets = pa.array(np.concatenate([[0], np.cumsum(seq_len)]).astype(np.int32))
    start, stop = (numbers[name].astype(np.int64) for name in ("mask_start", "mask_stop"))
    made = {
        "input_ids": pa.ListArray.from_arrays(offsets, ids.flatten()),
        "loss_mask": pa.ListArray.from_arrays(offsets, pa.array(mask_of(seq_len, start, stop))),
        "prompt_len": pa.array(numbers["prompt_len"].copy()),
        "seq_len": _int32(seq_len),
        "n_supervised": _int32(stop - start),
        **{name: names.texts_of(numbers[name].copy()) for name in NAMED},
        **{name: rows[name] for name in ("id", *AS_IT_IS)},
    }
    return pa.Table.from_arrays([made[name] for name in TRAIN_SCHEMA.names], schema=TRAIN_SCHEMA)


def _int32(values: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(values.astype(np.int32))


def _write_part(path: Path, train: pa.Table) -> None:
    def write(temporary: Path) -> None:
        pq.write_table(
            train,
            temporary,
            compression="zstd",
            compression_level=1,
            use_dictionary=_REPEATED,
            # The bytes of ids apart: a fifth smaller and half as dear as ids one after the other.
            column_encoding={_IDS_LEAF: "BYTE_STREAM_SPLIT"},
            row_group_size=_ROWS_PER_GROUP,
            write_statistics=_WITH_STATISTICS,
            write_page_checksum=True,
        )

    write_whole(path, write)
