"""The first pass: read every shard, leave out what must not be trained on, deal the rest into buckets.

What is kept in memory of a row is its line in the index (`selection.INDEX`); ids and texts go to the buckets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.columns import SHARD_SCHEMA
from toolkit.gate import OpenGate
from toolkit.masks import Ints, MaskForm, supervised_stretch
from toolkit.merge.id_lists import (
    as_bytes,
    as_series,
    hashes_of,
    in_one_piece,
    joined,
    lengths_of,
    order_of_keys,
    plain_lists,
)
from toolkit.merge.names import IN_SHARDS, NAMED, Names, Numbers
from toolkit.merge.row_fates import (
    COPIED,
    IDENTITY,
    LISTS,
    check_quarantine,
    check_same_rows,
    check_unique,
    check_values,
    contradicted_of,
    count_reasons,
    fates_of,
    here_of,
    listed_of,
    mask_fates_of,
)
from toolkit.merge.selection import INDEX, REASONS, TRAIN, Dropped
from toolkit.mix import MergeSettings
from toolkit.records import LiveShard
from toolkit.split import openings_of
from toolkit.store.shards import iter_shard_parts
from toolkit.store.shuffle import Buckets

_THREADS = 2
_BYTES_DEALT = 48 << 20
"""What a thread gathers before it deals: few large pieces for each bucket, instead of many small ones."""

_UNPACKED = 3
"""Ids and texts take about so many times as much memory as they do in a shard."""

_CARRIED = list(dict.fromkeys([*IDENTITY, *COPIED, *LISTS]))
_READ = [*_CARRIED, "probe"]

NUMBERS = np.dtype([(name, np.int32) for name in ("number", "prompt_len", "mask_start", "mask_stop", *NAMED)])
"""What rows in buckets bear as numbers. `number` is the row's line in the index; masks are given by their ends, from
the row's first id."""


def _long(kind: pa.DataType) -> pa.DataType:
    """A type as columns have it that were in `as_series`."""
    return pa.large_string() if pa.types.is_string(kind) else kind


AS_IT_IS = [name for name in COPIED if name not in NAMED]

BUCKET_SCHEMA = pa.schema(
    [
        pa.field("numbers", pa.binary(NUMBERS.itemsize)),
        pa.field("ids", pa.large_binary()),
        pa.field("id", pa.large_string()),
        *(pa.field(name, _long(SHARD_SCHEMA.field(name).type)) for name in AS_IT_IS),
    ]
)
"""Rows in buckets: the bytes of their `NUMBERS`, of their ids, and what goes to the train set as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What one dataset's shards held; `dropped` without what is left out of the whole later."""

    rows: int
    dropped: dict[Dropped, int]
    quarantined_by_expectation: dict[str, int]


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """What one thread has read and not yet dealt."""

    numbers: list[npt.NDArray[np.void]] = field(default_factory=list)
    rows: list[pl.DataFrame] = field(default_factory=list)
    lines: list[pl.DataFrame] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What a run of shards held: rows by fate, and the names that must be unique."""

    counts: Ints = field(default_factory=lambda: np.zeros(len(REASONS) + 1, np.int64))
    names: list[pa.Table] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class FirstPass:
    """The first pass over all datasets.

    Attributes:
        datasets: Names, sorted.
        contradicted: Dataset → table of `shard` and `row_index`: rows whose prompt evidence is contradicted.
        names: Of `NAMED`, shared by all of these columns.
        groups: (number of the source, number of the provider) → its number, as the index counts them.
    """

    buckets: Buckets
    mix: MergeSettings
    form: MaskForm
    datasets: list[str]
    contradicted: Mapping[str, pa.Table]
    names: Names = field(default_factory=Names)
    groups: dict[tuple[int, int], int] = field(default_factory=dict)
    _lines: list[pl.DataFrame] = field(default_factory=list)
    _rows: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, gate: OpenGate, advance: Callable[[int], None]) -> Read:
        """Deal the rows of one dataset that may be trained on.

        Raises:
            StoreError: a shard changed since its gate was opened, the quarantine does not fit its shards, or a row
                stands there twice.
        """
        counts = np.zeros(len(REASONS) + 1, np.int64)
        identities: list[pa.Table] = []
        runs = list(_runs_of(gate))
        pool = ThreadPoolExecutor(_THREADS)
        try:
            for run, seen in zip(runs, pool.map(lambda run: self._deal(gate, run), runs), strict=True):
                counts += seen.counts
                identities += seen.names
                for shard in run:
                    advance(shard.rows)
        finally:
            pool.shutdown(cancel_futures=True)
        check_quarantine(gate, int(counts[REASONS.index(Dropped.QUARANTINED)]))
        check_unique(identities, gate.dataset.name)
        return Read(
            rows=int(counts.sum()),
            dropped={reason: int(counts[place]) for place, reason in enumerate(REASONS)},
            quarantined_by_expectation=count_reasons(gate.quarantine),
        )

    def index(self) -> pl.DataFrame:
        """The index of all rows that were dealt, in the order of their numbers."""
        lines, self._lines = self._lines, []
        return pl.concat(lines) if lines else pl.DataFrame(schema=INDEX)

    def sources(self) -> list[tuple[str, str | None]]:
        """(source, provider) by number."""
        texts = self.names.texts
        return [(texts[source], None if provider < 0 else texts[provider]) for source, provider in self.groups]

    def _deal(self, gate: OpenGate, shards: Sequence[LiveShard]) -> _Seen:
        """Deal the rows of some shards."""
        seen, gathered = _Seen(), _Gathered()
        for shard in shards:
            for rows in self._open_rows(gate, shard, seen):
                self._gather(gate, shard, rows, gathered)
                if gathered.bytes >= _BYTES_DEALT:
                    self._add(gathered)
                    gathered = _Gathered()
        if gathered.rows:
            self._add(gathered)
        return seen

    def _open_rows(self, gate: OpenGate, shard: LiveShard, seen: _Seen) -> Iterator[_OpenRows]:
        """The rows of a shard that may be trained on, a part at a time."""
        where = f"{gate.dataset.name}/{shard.path}"
        listed = listed_of(gate.quarantine, shard, where)
        contradicted = contradicted_of(self.contradicted.get(gate.dataset.name), shard)
        left_aside = [REASONS.index(Dropped.QUARANTINED), REASONS.index(Dropped.PROBE)]
        first = 0
        for part in iter_shard_parts(gate.dataset, shard, _READ, dictionaries=IN_SHARDS):
            check_same_rows(part, listed, first, where)
            here = [here_of(positions, first, part.num_rows) for positions in (listed["row_index"], contradicted)]
            fates = fates_of(part, *here)
            seen.names.append(part.select(IDENTITY).filter(pa.array(~np.isin(fates, left_aside))))
            rows = self._masked(part, fates, gate.verdict.contract, where)
            seen.counts += np.bincount(fates, minlength=len(seen.counts))
            first += part.num_rows
            if rows.kept.num_rows:
                yield rows

    def _masked(self, part: pa.Table, fates: Ints, contract: str, where: str) -> _OpenRows:
        """Rows of a part that have no fate yet, with their masks; what its mask forbids gets one."""
        at = np.flatnonzero(fates == TRAIN)
        kept = part.select(_CARRIED)
        kept = kept if len(at) == kept.num_rows else kept.take(pa.array(at))
        check_values(kept, contract, where)
        rows = _OpenRows(
            where=where,
            kept=kept,
            prompts=plain_lists(kept["prompt_ids"]),
            outputs=plain_lists(kept["output_ids"]),
            named={name: self.names.numbers_of(kept[name]) for name in IN_SHARDS},
        )
        ends = rows.outputs.offsets.to_numpy().astype(np.int64)
        thinks = np.isin(rows.named["mode"], [self.names.number_of(mode) for mode in self.form.thinking_modes])
        ids = rows.outputs.values.to_numpy()
        rows.start, rows.stop = supervised_stretch(ids, ends[:-1], ends[1:], thinks, self.form)
        rows.prompt_len = lengths_of(rows.prompts)
        forbidden = mask_fates_of(rows.prompt_len, rows.start, rows.stop, self.form)
        fates[at] = forbidden
        allowed = np.flatnonzero(forbidden == TRAIN)
        return rows if len(allowed) == len(at) else rows.only(allowed)

    def _gather(self, gate: OpenGate, shard: LiveShard, rows: _OpenRows, gathered: _Gathered) -> None:
        """Bring rows into the form that buckets hold, their place in the index still missing."""
        numbers = np.zeros(rows.kept.num_rows, NUMBERS)
        numbers["prompt_len"] = rows.prompt_len
        numbers["mask_start"] = rows.prompt_len + rows.start
        numbers["mask_stop"] = rows.prompt_len + rows.stop
        for name, values in rows.named.items():
            numbers[name] = values
        numbers["dataset"] = self.names.number_of(gate.dataset.name)
        numbers["shard"] = self.names.number_of(shard.sha256)
        ids = {"prompt_ids": as_bytes(rows.prompts), "output_ids": as_bytes(rows.outputs)}
        others = {name: as_series(rows.kept[name]) for name in AS_IT_IS}
        gathered.numbers.append(numbers)
        gathered.rows.append(pl.DataFrame(ids | {"id": as_series(_ids_of(gate.dataset.name, rows.kept))} | others))
        gathered.lines.append(self._lines_of(gate, rows, ids))
        gathered.bytes += rows.kept.nbytes

    def _add(self, gathered: _Gathered) -> None:
        """Deal what was gathered."""
        lines = pl.concat(gathered.lines)
        buckets = self.buckets.bucket_of(lines["order_1"].to_numpy())
        dealt = np.argsort(buckets, kind="stable")
        rows = pl.concat(gathered.rows, rechunk=True)
        ids = joined(rows["prompt_ids"], rows["output_ids"], dealt)
        others = [in_one_piece(rows[name].gather(dealt)) for name in BUCKET_SCHEMA.names[2:]]
        numbers = np.concatenate(gathered.numbers)[dealt]
        with self._lock:
            numbers["number"] = self._rows + dealt
            self._rows += len(lines)
            self._lines.append(lines)
            packed = pa.Array.from_buffers(BUCKET_SCHEMA.field(0).type, len(numbers), [None, pa.py_buffer(numbers)])
            whole = pa.Table.from_arrays([packed, ids, *others], schema=BUCKET_SCHEMA)
            self.buckets.add(whole, buckets[dealt])

    def _lines_of(self, gate: OpenGate, rows: _OpenRows, ids: Mapping[str, pl.Series]) -> pl.DataFrame:
        count = rows.kept.num_rows
        several = self.mix.duplicates == "drop" and len(self.datasets) > 1
        nothing = np.zeros(count, np.uint64)
        order = order_of_keys(rows.kept["row_key"], self.mix.seed)
        openings = nothing
        if self.mix.validation_percent:
            openings = openings_of(rows.kept["messages"], rows.prompts, rows.where)
        columns = {
            "dataset": np.full(count, self.datasets.index(gate.dataset.name), np.int32),
            "group": self._groups_of(rows.named["source"], rows.named["provider"]),
            "order_1": order[:, 0],
            "order_2": order[:, 1],
            "prompt_hash": hashes_of(ids["prompt_ids"]) if several else nothing,
            "answer_hash": hashes_of(ids["output_ids"]) if several else nothing,
            "opening": openings,
            **{name: pl.Series(pl.from_arrow(rows.kept[name])) for name in IDENTITY},
            "n_tokens": rows.prompt_len + lengths_of(rows.outputs),
            "n_supervised": rows.stop - rows.start,
        }
        return pl.DataFrame({name: columns[name] for name in INDEX}, schema=INDEX)

    def _groups_of(self, sources: Numbers, providers: Numbers) -> Numbers:
        pairs, places = np.unique(np.stack([sources, providers], axis=1), axis=0, return_inverse=True)
        with self._lock:
            known = [
                self.groups.setdefault((source, provider), len(self.groups)) for source, provider in pairs.tolist()
            ]
        return np.array(known, np.int32)[places.reshape(-1)]


@dataclass(slots=True, kw_only=True)
class _OpenRows:
    """Rows that may be trained on, as they were read.

    Attributes:
        where: Names the shard in errors.
        kept: Their columns.
        prompts: Their ids; `outputs` likewise.
        named: Numbers of `IN_SHARDS`.
        start: Where loss begins in each completion, and `stop` where it ends.
        prompt_len: Ids of each prompt.
    """

    where: str
    kept: pa.Table
    prompts: pa.ListArray
    outputs: pa.ListArray
    named: dict[str, Numbers]
    start: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    stop: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    prompt_len: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def only(self, places: Ints) -> _OpenRows:
        """Some of them."""
        kept = self.kept.take(pa.array(places))
        return _OpenRows(
            where=self.where,
            kept=kept,
            prompts=plain_lists(kept["prompt_ids"]),
            outputs=plain_lists(kept["output_ids"]),
            named={name: numbers[places] for name, numbers in self.named.items()},
            start=self.start[places],
            stop=self.stop[places],
            prompt_len=self.prompt_len[places],
        )


def _runs_of(gate: OpenGate) -> Iterator[list[LiveShard]]:
    """Shards by their paths, neighbours that are small together."""
    run: list[LiveShard] = []
    size = 0
    for shard in sorted(gate.live.shards, key=lambda shard: shard.path):
        path = gate.dataset.folder / shard.path
        # One that is missing is named when it is read.
        here = _UNPACKED * path.stat().st_size if path.is_file() else 0
        if run and size + here > _BYTES_DEALT:
            yield run
            run, size = [], 0
        run.append(shard)
        size += here
    if run:
        yield run


def _ids_of(dataset: str, rows: pa.Table) -> pa.ChunkedArray:
    numbers = (rows[name].cast(pa.string()) for name in ("turn", "sample_index"))
    return pc.binary_join_element_wise(pa.scalar(dataset), rows["sample_id"], *numbers, "/")
