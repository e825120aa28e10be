"""Whether kept facts are those of their shard: what they carry is compared in full, what was measured by a sample.

Kept facts are not believed for being there. Datasets of up to `SAMPLED_ROWS` rows are measured again in full, so there
no forged fact passes. Of larger ones n rows are measured: `SAMPLED_ROWS`, or as many as hold about `SAMPLED_IDS` ids if
that is fewer, but `SAMPLED_ROWS_PER_SHARD` of each shard in any case. A share p of forged rows, spread evenly, stays
unseen with the probability (1 − p) ** n or so: at 2,000 ids a row, n is 1,000, and of forged rows a share of 0.3 % is
seen in 95 of 100 audits, one of 1 % in all but 1 of 20,000. What facts carry over from their shard is compared in every
row.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.columns import FACTS_SCHEMA, MEASURED_COLUMNS, SHARD_SCHEMA
from toolkit.errors import ShardError
from toolkit.records import LiveShard
from toolkit.store.workspace import Dataset

SAMPLED_ROWS = 8_192
"""Rows of a dataset, spread over its shards, that are measured again although their facts are kept."""

SAMPLED_IDS = 2_000_000
"""About as many ids as those rows may hold in a dataset that is not measured again in full: rows may be long."""

SAMPLED_ROWS_PER_SHARD = 64
"""At least so many of each shard (all of a smaller one)."""

CARRIED = [name for name in FACTS_SCHEMA.names if name in SHARD_SCHEMA.names]
"""Columns that facts take over from their shard."""

MEASURED_FROM = list(
    dict.fromkeys([*CARRIED, "reasoning", "content", "tool_calls", "tools", "messages", "output_ids", "prompt_ids"])
)
"""Columns that the kernel reads: not the payload, which is most of a shard."""

_MEASURED = [column.name for column in MEASURED_COLUMNS]


def carried_fault(facts: pa.Table, rows: pa.Table, shard_sha256: str) -> str | None:
    """The first column that facts should carry over from their shard, but do not."""
    if not facts["row_index"].equals(pa.chunked_array([np.arange(rows.num_rows, dtype=np.int32)])):
        return "row_index: expected the rows in the shard's order, found others"
    if facts["shard"].unique().to_pylist() not in ([shard_sha256], []):
        return "shard: expected the shard's own sha256, found another"
    for name in CARRIED:
        if not facts[name].combine_chunks().equals(rows[name].cast(FACTS_SCHEMA.field(name).type).combine_chunks()):
            return f"{name}: expected what stands in the shard, found something else"
    return None


def sample_fault(facts: pa.Table, measured: pa.Table, positions: npt.NDArray[np.int64]) -> str | None:
    """The first kept fact that measuring the same rows again does not give.

    Args:
        facts: Kept facts of the sampled rows.
        measured: Facts of the same rows in the same order, measured now.
        positions: Their positions in the shard.
    """
    for name in _MEASURED:
        if not facts[name].combine_chunks().equals(measured[name].combine_chunks()):
            kept, found = facts[name].to_pylist(), measured[name].to_pylist()
            at = next((i for i, (a, b) in enumerate(zip(kept, found, strict=True)) if a != b), 0)
            return f"row {positions[at]}: {name}: kept as {kept[at]!r:.60}, measured as {found[at]!r:.60}"
    return None


def choose_rows(
    dataset: Dataset, shard: LiveShard, count: int, seed: str, *, max_ids: int | None = None
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Rows to measure again, in the columns that the kernel reads, and their positions in the shard, ascending.

    A large sample comes from all row groups, read one after the other; a small one from a single row group, so that
    the rest of a large shard's text is not read for it. Every row is as likely as any other.

    Args:
        dataset: Whose shard it is.
        shard: A shard whose bytes were just held against shards.json.
        count: How many rows; all of a smaller shard.
        seed: The same seed chooses the same rows.
        max_ids: As many rows as hold about so many ids, if that is fewer; at least `SAMPLED_ROWS_PER_SHARD`.

    Raises:
        ShardError: it cannot be read.
    """
    draw = np.random.default_rng(list(hashlib.sha256(seed.encode()).digest()))
    try:
        file = pq.ParquetFile(dataset.folder / shard.path, page_checksum_verification=True)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        if max_ids is not None:
            count = min(count, max(SAMPLED_ROWS_PER_SHARD, max_ids * sum(sizes) // max(_ids_in(file.metadata), 1)))
        groups = range(len(sizes))
        if count <= max(sizes, default=0):
            group = int(draw.choice(len(sizes), p=np.array(sizes) / sum(sizes)))
            groups = range(group, group + 1)
        first, rows = sum(sizes[: groups.start]), sum(sizes[i] for i in groups)
        picked = np.sort(draw.choice(rows, size=min(count, rows), replace=False)).astype(np.int64) + first
        return _take(file, groups, first, picked), picked
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{dataset.name}/{shard.path}: cannot be read as Parquet: {error!s:.200}") from None


def _ids_in(metadata: pq.FileMetaData) -> int:
    """How many output ids a shard holds, as its file says: its bytes are those that were sealed, unlike facts."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    columns = (group.column(i) for group in groups for i in range(group.num_columns))
    return sum(column.num_values for column in columns if column.path_in_schema.partition(".")[0] == "output_ids")


def _take(file: pq.ParquetFile, groups: range, first: int, positions: npt.NDArray[np.int64]) -> pa.Table:
    """Rows at these positions of a shard, a row group at a time: what is not taken is not held."""
    taken: list[pa.Table] = []
    for group in groups:
        size = file.metadata.row_group(group).num_rows
        mine = positions[(positions >= first) & (positions < first + size)] - first
        first += size
        if len(mine):
            table = file.read_row_group(group, columns=MEASURED_FROM, use_threads=False)
            taken.append(table if len(mine) == size else table.take(pa.array(mine)))
    return pa.concat_tables(taken) if taken else file.schema_arrow.empty_table().select(MEASURED_FROM)
