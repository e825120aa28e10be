"""From audited datasets to one train set: rows behind open gates, in an order that depends on them alone.

Two passes, neither of which holds all rows. The first reads the shards, leaves out what must not be trained on, and
deals the rest into buckets by the first bits of sha256(seed + row_key). Between them it is decided over a narrow index
which rows are taken, and for which side of the split. The second sorts one bucket after the other, and writes.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from toolkit.audit.conclude import import_meanwhile
from toolkit.audit.suite import shipped_suite
from toolkit.contract import Contract, read_contract
from toolkit.errors import ConfigError, StoreError
from toolkit.gate import OpenGate
from toolkit.manifest import Manifest, check_sums, write_manifest
from toolkit.masks import Ints
from toolkit.merge.description import describe
from toolkit.merge.reading import BUCKET_SCHEMA, FirstPass, Read
from toolkit.merge.selection import REASONS, TRAIN, Codes, Dropped, order_of, select_rows
from toolkit.merge.writing import write_parts
from toolkit.mix import DEFAULT_MIX, MergeSettings, of_these
from toolkit.store.published import replacing
from toolkit.store.shuffle import Buckets, bucket_bits
from toolkit.train_folder import check_replaceable, check_same_datasets
from toolkit.train_parts import MeasuredPart, Measuring
from toolkit.verifying import SUITE_NAME, measuring_of, prove_rows

_KEPT_MS = 30_000
"""How long freed memory is kept. It is taken again within tenths of a second."""


def merge(
    gates: Sequence[OpenGate],
    output: Path,
    *,
    contract: Contract | None = None,
    suite: Path | None = None,
    mix: MergeSettings = DEFAULT_MIX,
    contradicted: Mapping[str, pa.Table] | None = None,
    replace: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> Manifest:
    """Write all rows that may be trained on to `output`, shuffled, and say so in a manifest.

    The same datasets and options give the same bytes, in whatever order datasets and shards are named.

    Args:
        gates: The open gates of the datasets; all of one contract.
        output: The folder of the train set; one that an earlier merge wrote of the same datasets is replaced.
        contract: The contract of all of them; the shipped one of the name that they bear when None.
        suite: The suite that the written rows must pass (table `train`); the shipped one when None.
        mix: What is taken, and where loss falls.
        contradicted: Dataset → table of `shard` (sha256) and `row_index`: rows whose prompt evidence is contradicted,
            as a `Rechecker` tells them. Needed of each dataset, unless `mix` says that they are kept.
        replace: Replace also a train set of other datasets.
        advance: Told of rows as they are read, and again as they are written.

    Raises:
        ConfigError: no dataset, one twice, two contracts, options that do not go together, or `output` holds something
            else, or a train set of others; or it is not said which rows' prompts are contradicted, nor that these are
            kept.
        StoreError: a shard changed since its gate was opened, a quarantine does not fit its shards, a
            row stands there twice, no row remains, or something cannot be written. `output` is as before.
        GateClosed: what was written does not pass the suite. `output` is as before.
    """
    ordered = _by_name(gates)
    contract = contract or read_contract(ordered[0].verdict.contract)
    _check_contract(ordered, contract)
    mix = of_these(mix, {gate.dataset.name for gate in ordered})
    left_aside = _left_aside(ordered, mix, contradicted or {})
    measuring = measuring_of(contract, mix, split=bool(mix.validation_percent))
    with replacing(output, check_replaceable, doing="merging") as fresh:
        if not replace:
            check_same_datasets(output, {gate.dataset.name for gate in ordered})
        importing = import_meanwhile()
        try:
            with _kept_memory():
                manifest, parts = _write_rows(ordered, output, fresh, mix, measuring, left_aside, advance)
        finally:
            importing.join()
        manifest = prove_rows(manifest, parts, suite or shipped_suite(SUITE_NAME))
        write_manifest(fresh, manifest)
    return manifest


@contextmanager
def _kept_memory() -> Iterator[None]:
    """Let Arrow keep the memory that it frees. Its usual allocator gives pages back to the system at once, and rows go
    through so many short-lived buffers that a sixth of a merge would be spent on getting them again.

    It holds for the whole process, and what is kept at the end goes back to the system within `_KEPT_MS`.
    """
    before = pa.default_memory_pool()
    keeps = "jemalloc" in pa.supported_memory_backends()
    pa.set_memory_pool(pa.jemalloc_memory_pool() if keeps else pa.system_memory_pool())
    if keeps:
        pa.jemalloc_set_decay_ms(_KEPT_MS)
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        if keeps:
            pa.jemalloc_set_decay_ms(0)


def _write_rows(
    gates: Sequence[OpenGate],
    output: Path,
    fresh: Path,
    mix: MergeSettings,
    measuring: Measuring,
    contradicted: Mapping[str, pa.Table],
    advance: Callable[[int], None],
) -> tuple[Manifest, list[MeasuredPart]]:
    """Both passes; the manifest of what they wrote to `fresh`, and what they measured of it."""
    with tempfile.TemporaryDirectory(dir=fresh.parent) as folder:
        with Buckets(Path(folder), BUCKET_SCHEMA, bits=_bits(gates)) as buckets:
            first = FirstPass(
                buckets=buckets,
                mix=mix,
                form=measuring.form,
                datasets=[gate.dataset.name for gate in gates],
                contradicted=contradicted,
            )
            read = [first.read(gate, advance) for gate in gates]
        index = first.index()
        fates = select_rows(index, mix, first.datasets, first.sources())
        left_out = _left_out(index, fates, first.datasets)
        _check_some_remain(output, read, left_out, fates)
        rank = _rank(index)
        repeated = _repeated(index, fates)
        del index
        written = write_parts(buckets, fates, rank, first.names, fresh, measuring, advance)
    manifest = describe(gates, read, left_out, written, mix, repeated)
    check_sums(manifest)
    return manifest, written.measured()


def _by_name(gates: Sequence[OpenGate]) -> list[OpenGate]:
    """The gates by name, each once."""
    if not gates:
        raise ConfigError("expected at least one dataset to merge, found none")
    names = Counter(gate.dataset.name for gate in gates)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise ConfigError(f"expected each dataset once, found twice: {', '.join(twice)}")
    return sorted(gates, key=lambda gate: gate.dataset.name)


def _left_aside(
    gates: Sequence[OpenGate], mix: MergeSettings, contradicted: Mapping[str, pa.Table]
) -> Mapping[str, pa.Table]:
    """Rows to leave out because another prompt than ours was answered. Without a list nothing would be left out, and
    nobody would know."""
    if mix.contradicted_prompts == "keep":
        return {}
    unknown = [gate.dataset.name for gate in gates if gate.dataset.name not in contradicted]
    if unknown:
        raise ConfigError(
            "merge: expected of each dataset the rows whose prompt is contradicted, found nothing of "
            f"{', '.join(unknown)}; give these, or state contradicted_prompts = 'keep'"
        )
    return contradicted


def _check_contract(gates: Sequence[OpenGate], contract: Contract) -> None:
    """All datasets were audited under this contract."""
    if {(gate.verdict.contract, gate.verdict.contract_sha256) for gate in gates} != {(contract.name, contract.sha256)}:
        found = "; ".join(
            f"{gate.dataset.name}: {gate.verdict.contract} {gate.verdict.contract_sha256[:16]}…" for gate in gates
        )
        raise ConfigError(f"expected datasets of one contract, found {found}")


def _bits(gates: Sequence[OpenGate]) -> int:
    shards = [gate.dataset.folder / shard.path for gate in gates for shard in gate.live.shards]
    return bucket_bits(sum(gate.live.rows for gate in gates), sum(path.stat().st_size for path in shards))


def _rank(index: pl.DataFrame) -> Ints:
    rank = np.empty(len(index), np.int64)
    rank[order_of(index)] = np.arange(len(index))
    return rank


def _repeated(index: pl.DataFrame, fates: Codes) -> int:
    """Rows that are written although a row of the same request is, too."""
    kept = index.filter(pl.Series(fates >= TRAIN)).select("order_1", "order_2")
    return len(kept) - int(kept.n_unique())


def _left_out(index: pl.DataFrame, fates: Codes, datasets: Sequence[str]) -> list[dict[Dropped, int]]:
    """Rows of each dataset that are left out of the whole, by reason."""
    part = index["dataset"].to_numpy()
    counts = np.bincount(part.astype(np.int64) * (TRAIN + 2) + fates, minlength=len(datasets) * (TRAIN + 2))
    table = counts.reshape(len(datasets), TRAIN + 2)
    return [dict(zip(REASONS, line[:TRAIN].tolist(), strict=True)) for line in table]


def _check_some_remain(
    output: Path, read: Sequence[Read], left_out: Sequence[Mapping[Dropped, int]], fates: Codes
) -> None:
    if (fates >= TRAIN).any():
        return
    counts = {reason: sum(t.dropped[reason] for t in read) + sum(t[reason] for t in left_out) for reason in Dropped}
    said = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)
    raise StoreError(f"{output}: no row remains to be written: {said or 'there were none'}")
