"""From audited datasets to one train set: rows behind open gates, in an order that depends on them alone.

Two passes, neither of which holds all rows. The first reads the shards, leaves out what must not be
trained on, and deals the rest into buckets by the first bits of sha256(seed + row_key). The second
sorts one bucket after the other, joins prompt and output, and writes.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolkit import __version__
from toolkit.columns import SHARD_SCHEMA, TRAIN_SCHEMA
from toolkit.errors import ConfigError, StoreError
from toolkit.gate import OpenGate
from toolkit.manifest import (
    SHARDS_NAME,
    DatasetInput,
    Manifest,
    OutputFile,
    SourceShare,
    SuiteInput,
    Totals,
    check_same_datasets,
    check_sums,
    render_manifest,
    replacing,
    write_manifest,
)
from toolkit.records import LiveShard
from toolkit.store.files import sha256_of, write_whole
from toolkit.store.shards import read_shard
from toolkit.store.shuffle import ORDER, Buckets, Ints, bucket_bits, cut_parts

__all__ = ["Dropped", "merge", "render_manifest"]

_ROWS_PER_GROUP = 4_096
_SHOWN_CHARACTERS = 80

_IDENTITY = ["sample_id", "turn", "sample_index"]
_LISTS = ["prompt_ids", "output_ids"]
_COPIED = [name for name in TRAIN_SCHEMA.names if name in SHARD_SCHEMA.names]
_CARRIED = list(dict.fromkeys([*_IDENTITY, *_COPIED, *_LISTS]))
_READ = [*_CARRIED, "probe"]
_NEVER_NULL = [*_IDENTITY, *(name for name in _COPIED if not TRAIN_SCHEMA.field(name).nullable)]
_TEXTS = ["messages", "tools", "reasoning", "content", "tool_calls"]

_BUCKET_SCHEMA = pa.schema(
    [pa.field(ORDER, pa.binary(32)), pa.field("dataset", pa.string()), pa.field("shard", pa.string())]
    + [SHARD_SCHEMA.field(name).with_nullable(True) for name in _CARRIED]
)

_REPEATED = [
    "dataset", "source", "provider", "model", "mode", "ids_source", "prompt_ids_source", "finish_reason",
    "contract", "contract_sha256", "tools", "shard", "loss_mask.list.element",
]  # fmt: skip
"""Columns with few values: the only ones that gain from a dictionary."""

_Bools = npt.NDArray[np.bool_]


class Dropped(StrEnum):
    """Why a row is not in the train set; where several hold, the first counts."""

    QUARANTINED = "quarantined"
    PROBE = "probe"
    NO_IDS = "no_ids"
    PROMPT_UNKNOWN = "prompt_unknown"


_REASONS = tuple(Dropped)
_KEPT = len(_REASONS)


def merge(
    gates: Sequence[OpenGate],
    output: Path,
    *,
    seed: int = 0,
    replace: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> Manifest:
    """Write all rows that may be trained on to `output/shards/`, shuffled, and say so in a manifest.

    The same datasets and seed give the same bytes, in whatever order datasets and shards are named.

    Args:
        gates: The open gates of the datasets; all of one contract.
        output: The folder of the train set; one that an earlier merge wrote of the same datasets is replaced.
        seed: Another seed gives another order.
        replace: Replace also a train set of other datasets.
        advance: Told of rows as they are read, and again as they are written.

    Raises:
        ConfigError: no dataset, one twice, two contracts, or `output` holds something else, or a train set of others.
        StoreError: a shard changed since its gate was opened, a quarantine does not fit its shards, a
            row stands there twice, no row remains, or something cannot be written. `output` is as before.
    """
    ordered = _agreeing(gates)
    with replacing(output) as fresh:
        if not replace:
            check_same_datasets(output, {gate.dataset.name for gate in ordered})
        with tempfile.TemporaryDirectory(dir=fresh.parent) as folder:
            with Buckets(Path(folder), _BUCKET_SCHEMA, bits=_bits(ordered), then_by=["dataset", *_IDENTITY]) as buckets:
                read = [_deal(gate, buckets, seed, advance) for gate in ordered]
            if not sum(tally.kept for tally in read):
                left_out = ", ".join(f"{sum(t.dropped[reason] for t in read)} {reason}" for reason in Dropped)
                raise StoreError(f"{output}: no row remains to be written: {left_out}")
            written = _write_parts(buckets, fresh, advance)
        manifest = _describe(ordered, read, written, seed)
        check_sums(manifest)
        write_manifest(fresh, manifest)
    return manifest


def _agreeing(gates: Sequence[OpenGate]) -> list[OpenGate]:
    """The gates by name; they are of one contract."""
    if not gates:
        raise ConfigError("expected at least one dataset to merge, found none")
    names = Counter(gate.dataset.name for gate in gates)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise ConfigError(f"expected each dataset once, found twice: {', '.join(twice)}")
    contracts = {(gate.verdict.contract, gate.verdict.contract_sha256) for gate in gates}
    if len(contracts) > 1:
        found = "; ".join(
            f"{gate.dataset.name}: {gate.verdict.contract} {gate.verdict.contract_sha256[:16]}…" for gate in gates
        )
        raise ConfigError(f"expected datasets of one contract, found {found}")
    return sorted(gates, key=lambda gate: gate.dataset.name)


# --- first pass: read, leave out, deal -----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What one dataset's shards held."""

    rows: int
    kept: int
    dropped: dict[Dropped, int]
    quarantined_by_expectation: dict[str, int]


def _deal(gate: OpenGate, buckets: Buckets, seed: int, advance: Callable[[int], None]) -> _Read:
    """Deal the rows of one dataset that may be trained on."""
    counts = np.zeros(_KEPT + 1, np.int64)
    identities = []
    for shard in _by_path(gate):
        fates, names, kept = _sort_out(gate, shard)
        counts += np.bincount(fates, minlength=_KEPT + 1)
        identities.append(names)
        buckets.add(_ordered(kept, gate.dataset.name, shard, seed))
        advance(shard.rows)
    dropped = {reason: int(counts[index]) for index, reason in enumerate(_REASONS)}
    if dropped[Dropped.QUARANTINED] != gate.quarantine.num_rows:
        raise StoreError(
            f"{gate.dataset.quarantine}: lists {gate.quarantine.num_rows} rows, "
            f"of which {dropped[Dropped.QUARANTINED]} are found in the shards"
        )
    _check_unique(identities, gate.dataset.name)
    return _Read(
        rows=int(counts.sum()),
        kept=int(counts[_KEPT]),
        dropped=dropped,
        quarantined_by_expectation=_count_reasons(gate.quarantine),
    )


def _sort_out(gate: OpenGate, shard: LiveShard) -> tuple[Ints, pa.Table, pa.Table]:
    """The fate of each row of a shard, the identities that must be unique, and the rows that are kept."""
    table = read_shard(gate.dataset, shard, _READ)
    where = f"{gate.dataset.name}/{shard.path}"
    fates = _fates(table, _quarantined(table, gate.quarantine, shard, where))
    left_aside = [_REASONS.index(Dropped.QUARANTINED), _REASONS.index(Dropped.PROBE)]
    names = table.select(_IDENTITY).filter(pa.array(~np.isin(fates, left_aside)))
    kept = table.select(_CARRIED).filter(pa.array(fates == _KEPT))
    _check_values(kept, gate.verdict.contract, where)
    return fates, names, kept


def _by_path(gate: OpenGate) -> list[LiveShard]:
    return sorted(gate.live.shards, key=lambda shard: shard.path)


def _quarantined(table: pa.Table, quarantine: pa.Table, shard: LiveShard, where: str) -> _Bools:
    """Which rows of a shard the quarantine lists, by position; their row_key must agree."""
    listed = quarantine.filter(pc.equal(quarantine["shard"], shard.sha256))
    indices = listed["row_index"].to_numpy()
    if listed.num_rows and not (indices.min() >= 0 and indices.max() < table.num_rows):
        raise StoreError(f"{where}: has {table.num_rows} rows, but the quarantine lists row {indices.max()}")
    same = pc.fill_null(pc.equal(table["row_key"].take(pa.array(indices)), listed["row_key"]), False)
    if not pc.all(same, min_count=0).as_py():
        first = int(indices[pc.index(same, False).as_py()])
        raise StoreError(f"{where}: row {first}: the quarantine lists another row_key for it; audit again")
    mask = np.zeros(table.num_rows, np.bool_)
    mask[indices] = True
    return mask


def _fates(table: pa.Table, quarantined: _Bools) -> Ints:
    """One number per row: an index of `Dropped`, or `_KEPT`. An empty list of ids is none."""
    conditions = [
        quarantined,
        # A row that does not say whether it is a probe is not merged.
        pc.fill_null(table["probe"], True).to_numpy(),
        _lengths(table["output_ids"]) == 0,
        _lengths(table["prompt_ids"]) == 0,
    ]
    return np.select(conditions, range(_KEPT), default=_KEPT).astype(np.int64)


def _lengths(lists: pa.ChunkedArray) -> Ints:
    """Items of each list; 0 for null."""
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(), np.int64)


def _check_values(kept: pa.Table, contract: str, where: str) -> None:
    """Columns that are never null in a train set, and the ids in the lists, are there; the contract is the one."""
    for name in _NEVER_NULL:
        if kept[name].null_count:
            raise StoreError(
                f"{where}: column {name}: expected a value in every row, found {kept[name].null_count} nulls"
            )
    for name in _LISTS:
        if pc.list_flatten(kept[name]).null_count:
            raise StoreError(f"{where}: column {name}: expected ids, found a null within a list")
    if not pc.all(pc.equal(kept["contract"], contract), min_count=0).as_py():
        raise StoreError(f"{where}: expected rows of contract {contract} only, found others")


def _check_unique(identities: Sequence[pa.Table], dataset: str) -> None:
    """No two rows bear one name; quarantined rows and probes, which are not written, are not among them."""
    if not identities:
        return
    frame = pl.DataFrame(pl.from_arrow(pa.concat_tables(identities)))
    twice = frame.filter(frame.is_duplicated())
    if len(twice):
        sample_id, turn, sample_index = twice.row(0)
        raise StoreError(
            f"{dataset}: expected each (sample_id, turn, sample_index) once, "
            f"found twice: {str(sample_id)[:_SHOWN_CHARACTERS]!r}, {turn}, {sample_index}"
        )


def _ordered(kept: pa.Table, dataset: str, shard: LiveShard, seed: int) -> pa.Table:
    """Rows of `_BUCKET_SCHEMA`: with the hash that they are sorted by, and where they come from."""
    start = hashlib.sha256(str(seed).encode())
    digests = []
    for key in kept["row_key"].to_pylist():
        digest = start.copy()
        digest.update(key.encode())
        digests.append(digest.digest())
    count = kept.num_rows
    added = [pa.array(digests, pa.binary(32)), pa.repeat(dataset, count), pa.repeat(shard.sha256, count)]
    table = pa.Table.from_arrays([*added, *kept.select(_CARRIED).columns], names=_BUCKET_SCHEMA.names)
    return table.cast(_BUCKET_SCHEMA)


def _count_reasons(quarantine: pa.Table) -> dict[str, int]:
    """Expectation id → quarantined rows, sorted by id."""
    found = Counter(pc.list_flatten(quarantine["reasons"]).to_pylist())
    return {str(reason): found[reason] for reason in sorted(found, key=str)}


def _bits(gates: Sequence[OpenGate]) -> int:
    shards = [gate.dataset.folder / shard.path for gate in gates for shard in gate.live.shards]
    return bucket_bits(sum(gate.live.rows for gate in gates), sum(path.stat().st_size for path in shards))


# --- second pass: sort, join, write --------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Written:
    """What went into the parts, counted from the tables that were written."""

    outputs: list[OutputFile] = field(default_factory=list)
    by_dataset: Counter[str] = field(default_factory=Counter)
    rows: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    prompt_ids: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    supervised_ids: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    repeated: int = 0
    last_key: str | None = None

    def add(self, train: pa.Table) -> None:
        frame = pl.DataFrame(pl.from_arrow(train.select(_COUNTED)))
        for dataset, source, provider, rows, prompt_ids, supervised_ids in (
            frame.group_by("dataset", "source", "provider")
            .agg(pl.len(), pl.col("prompt_len", "n_supervised").cast(pl.Int64).sum())
            .iter_rows()
        ):
            self.by_dataset[dataset] += rows
            self.rows[source, provider] += rows
            self.prompt_ids[source, provider] += prompt_ids
            self.supervised_ids[source, provider] += supervised_ids
        # Rows of one request stand side by side: they have the same place in the order.
        before = frame["row_key"].shift(1, fill_value=self.last_key)
        self.repeated += int((frame["row_key"] == before).sum())
        self.last_key = frame["row_key"][-1]


_COUNTED = ["row_key", "dataset", "source", "provider", "prompt_len", "n_supervised"]


def _write_parts(buckets: Buckets, fresh: Path, advance: Callable[[int], None]) -> _Written:
    written = _Written()
    for rows in cut_parts(buckets.drain(), _weigh):
        train = _train_rows(rows)
        path = fresh / SHARDS_NAME / f"part-{len(written.outputs):05d}.parquet"
        _write_part(path, train)
        written.add(train)
        written.outputs.append(
            OutputFile(path=f"{SHARDS_NAME}/{path.name}", sha256=sha256_of(path), rows=train.num_rows)
        )
        advance(train.num_rows)
    return written


def _write_part(path: Path, train: pa.Table) -> None:
    def write(temporary: Path) -> None:
        pq.write_table(
            train,
            temporary,
            compression="zstd",
            compression_level=3,
            use_dictionary=_REPEATED,
            row_group_size=_ROWS_PER_GROUP,
            write_page_checksum=True,
        )

    write_whole(path, write)


def _weigh(rows: pa.Table) -> Ints:
    """Bytes of ids, mask and text of each row, as they stand in memory."""
    bytes_per_id = np.dtype(np.int32).itemsize + np.dtype(np.int8).itemsize
    sizes = bytes_per_id * (_lengths(rows["prompt_ids"]) + _lengths(rows["output_ids"]))
    for name in _TEXTS:
        sizes = sizes + np.asarray(pc.fill_null(pc.binary_length(rows[name]), 0).to_numpy(), np.int64)
    return sizes


def _train_rows(rows: pa.Table) -> pa.Table:
    """Rows of `TRAIN_SCHEMA`, in one chunk, so that how they were dealt leaves no trace in the file."""
    rows = rows.combine_chunks()
    prompt_len, output_len = _lengths(rows["prompt_ids"]), _lengths(rows["output_ids"])
    seq_len = prompt_len + output_len
    offsets = pa.array(np.concatenate([[0], np.cumsum(seq_len)]).astype(np.int32))
    lengths = np.stack([prompt_len, output_len], axis=1).ravel()
    mask = np.repeat(np.tile(np.array([0, 1], np.int8), len(seq_len)), lengths)
    ids = np.empty(len(mask), np.int32)
    ids[mask == 0] = pc.list_flatten(rows["prompt_ids"]).to_numpy()
    ids[mask == 1] = pc.list_flatten(rows["output_ids"]).to_numpy()
    numbers = (rows[name].cast(pa.string()) for name in ("turn", "sample_index"))
    made = {
        "id": pc.binary_join_element_wise(rows["dataset"], rows["sample_id"], *numbers, "/"),
        "input_ids": pa.ListArray.from_arrays(offsets, pa.array(ids)),
        "loss_mask": pa.ListArray.from_arrays(offsets, pa.array(mask)),
        "prompt_len": pa.array(prompt_len.astype(np.int32)),
        "seq_len": pa.array(seq_len.astype(np.int32)),
        "n_supervised": pa.array(output_len.astype(np.int32)),
    }
    columns = [made[name] if name in made else rows[name] for name in TRAIN_SCHEMA.names]
    return pa.Table.from_arrays(columns, schema=TRAIN_SCHEMA)


# --- manifest ------------------------------------------------------------------------------------


def _describe(gates: Sequence[OpenGate], read: Sequence[_Read], written: _Written, seed: int) -> Manifest:
    by_expectation: Counter[str] = Counter()
    for tally in read:
        by_expectation.update(tally.quarantined_by_expectation)
    return Manifest(
        tool_version=__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=seed,
        columns=tuple(TRAIN_SCHEMA.names),
        contract=gates[0].verdict.contract,
        contract_sha256=gates[0].verdict.contract_sha256,
        inputs=tuple(
            _describe_input(gate, tally, written.by_dataset[gate.dataset.name])
            for gate, tally in zip(gates, read, strict=True)
        ),
        sources=tuple(
            SourceShare(
                source=source,
                provider=provider,
                rows=written.rows[source, provider],
                ids=written.prompt_ids[source, provider] + written.supervised_ids[source, provider],
                prompt_ids=written.prompt_ids[source, provider],
                supervised_ids=written.supervised_ids[source, provider],
            )
            for source, provider in sorted(written.rows, key=lambda group: (group[0], group[1] or ""))
        ),
        totals=Totals(
            rows=sum(tally.rows for tally in read),
            written=written.by_dataset.total(),
            dropped={str(reason): sum(tally.dropped[reason] for tally in read) for reason in Dropped},
            quarantined_by_expectation=dict(sorted(by_expectation.items())),
            repeated=written.repeated,
            prompt_ids=written.prompt_ids.total(),
            supervised_ids=written.supervised_ids.total(),
        ),
        outputs=tuple(written.outputs),
    )


def _describe_input(gate: OpenGate, tally: _Read, written: int) -> DatasetInput:
    return DatasetInput(
        name=gate.dataset.name,
        verdict_sha256=gate.verdict_sha256,
        kernel_version=gate.verdict.kernel_version,
        prompts_sha256=gate.verdict.prompts_sha256,
        allowed_providers=gate.verdict.allowed_providers or (),
        quarantine_sha256=gate.verdict.quarantine_sha256,
        suites=tuple(SuiteInput(name=run.name, path=run.path, sha256=run.sha256) for run in gate.verdict.suites),
        shards=tuple(_by_path(gate)),
        rows=tally.rows,
        written=written,
        dropped={str(reason): count for reason, count in tally.dropped.items()},
        quarantined_by_expectation=tally.quarantined_by_expectation,
    )
