"""The files that an audit leaves, read for what is shown: facts lazily, rows one by one, never a whole shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolkit.columns import SHARD_SCHEMA
from toolkit.errors import ShardError, StoreError
from toolkit.inspection.model import Identity
from toolkit.records import LiveShard, Verdict
from toolkit.store.files import read_bytes
from toolkit.store.shards import source_of
from toolkit.store.workspace import Dataset

FACTS_READ = (
    "shard", "row_index", "source", "provider", "model", "streamed", "mode", "finish_reason", "n_ids", "n_prompt_ids",
    "end_think_at", "n_terminal", "n_end_think", "n_tool_markers", "completion_tokens", "reasoning_tokens",
    "count_difference", "prompt_difference", "truncated",
)  # fmt: skip
"""Facts that distributions are made of."""


class _Receipt(msgspec.Struct):
    facts_sha256: str


@dataclass(frozen=True, slots=True, order=True)
class RowPlace:
    """A row of a live shard."""

    shard: str
    row_index: int


def scan_facts(dataset: Dataset, verdict: Verdict) -> tuple[pl.LazyFrame | None, int]:
    """(the facts that a verdict was made of, shards whose facts are not there).

    The receipt beside each file says whether it is the one that the verdict names.
    """
    paths = [path for shard in verdict.shards if (path := _facts_of(dataset, verdict, shard)) is not None]
    missing = len(verdict.shards) - len(paths)
    if not paths:
        return None, missing
    return pl.scan_parquet(paths).select(FACTS_READ), missing


def _facts_of(dataset: Dataset, verdict: Verdict, shard: LiveShard) -> Path | None:
    wanted = verdict.facts.get(shard.sha256)
    if wanted is None or not shard.sha256.isalnum():
        return None
    for path in sorted(dataset.facts.glob(f"{shard.sha256[:32]}-*.parquet")):
        try:
            receipt = msgspec.json.decode(read_bytes(path.with_suffix(".json")), type=_Receipt)
        except (StoreError, msgspec.ValidationError, msgspec.DecodeError):
            continue
        if receipt.facts_sha256 == wanted:
            return path
    return None


def read_rows(dataset: Dataset, verdict_shards: Sequence[LiveShard], places: Sequence[RowPlace]) -> pa.Table:
    """Rows of shards, in the order of `places` sorted by shard; only the row groups that hold them are read.

    Raises:
        ShardError: a shard is missing, damaged, or has not the rows that it had.
    """
    by_sha = {shard.sha256: shard for shard in verdict_shards}
    wanted: dict[str, list[int]] = {}
    for place in sorted(places):
        wanted.setdefault(place.shard, []).append(place.row_index)
    tables = []
    for sha256, indices in wanted.items():
        shard = by_sha.get(sha256)
        if shard is None:
            raise ShardError(f"{dataset.name}: shard {sha256[:16]}… is not among those of the verdict; audit again")
        tables.append(_take(dataset, shard, indices))
    return pa.concat_tables(tables) if tables else SHARD_SCHEMA.empty_table()


def _take(dataset: Dataset, shard: LiveShard, indices: Sequence[int]) -> pa.Table:
    where = f"{dataset.name}/{shard.path}"
    try:
        file = pq.ParquetFile(source_of(dataset, shard), page_checksum_verification=True)
        if file.metadata.num_rows != shard.rows:
            raise ShardError(f"{where}: expected {shard.rows:,} rows, found {file.metadata.num_rows:,}; audit again")
        tables, first = [], 0
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            here = [index - first for index in indices if first <= index < first + rows]
            if here:
                table = file.read_row_group(group, columns=SHARD_SCHEMA.names)
                tables.append(table.take(pa.array(here)).cast(SHARD_SCHEMA))
            first += rows
    except FileNotFoundError:
        raise ShardError(f"{where}: missing") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ShardError(f"{where}: cannot be read: {(str(error).splitlines() or [''])[0][:200]}") from None
    return pa.concat_tables(tables) if tables else SHARD_SCHEMA.empty_table()


def find_rows(
    dataset: Dataset, shards: Sequence[LiveShard], sample_ids: Sequence[str]
) -> Mapping[Identity, list[RowPlace]]:
    """Where the rows of samples lie, all turns and indices of each. Only the columns of the identity are read.

    Raises:
        ShardError: a shard cannot be read.
    """
    found: dict[Identity, list[RowPlace]] = {}
    values = pa.array(sorted(set(sample_ids)), pa.string())
    for shard in shards:
        for identity, index in _identities(dataset, shard, values):
            found.setdefault(identity, []).append(RowPlace(shard.sha256, index))
    return found


def _identities(dataset: Dataset, shard: LiveShard, sample_ids: pa.Array) -> Iterator[tuple[Identity, int]]:
    columns = ["sample_id", "turn", "sample_index"]
    try:
        table = pq.read_table(source_of(dataset, shard), columns=columns)
    except FileNotFoundError:
        raise ShardError(f"{dataset.name}/{shard.path}: missing") from None
    except (pa.ArrowException, OSError) as error:
        first = (str(error).splitlines() or [""])[0][:200]
        raise ShardError(f"{dataset.name}/{shard.path}: cannot be read: {first}") from None
    chosen = pc.indices_nonzero(pc.is_in(table["sample_id"], sample_ids))
    rows: list[dict[str, Any]] = table.take(chosen).to_pylist()
    for row, index in zip(rows, chosen.to_pylist(), strict=True):
        yield (row["sample_id"], row["turn"], row["sample_index"]), index
