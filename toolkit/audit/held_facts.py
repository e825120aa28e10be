"""Whether kept facts are those of their shard: what they carry is compared in full, what was measured by a sample.

Kept facts are not believed for being there. Datasets of up to `SAMPLED_ROWS` rows are measured again in full, so there
no forged fact passes; in larger ones a share p of forged rows stays unseen with the probability (1 − p) **
SAMPLED_ROWS or so.
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


def choose_rows(dataset: Dataset, shard: LiveShard, count: int, seed: str) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Rows to measure again, in the columns that the kernel reads, and their positions in the shard, ascending.

    A large sample comes from all row groups, read one after the other; a small one from a single row group, so that
    the rest of a large shard's text is not read for it. Every row is as likely as any other.

    Args:
        dataset: Whose shard it is.
        shard: A shard whose bytes were just held against shards.json.
        count: How many rows; all of a smaller shard.
        seed: The same seed chooses the same rows.

    Raises:
        ShardError: it cannot be read.
    """
    draw = np.random.default_rng(list(hashlib.sha256(seed.encode()).digest()))
    try:
        file = pq.ParquetFile(dataset.folder / shard.path, page_checksum_verification=True)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        groups = range(len(sizes))
        if count <= max(sizes, default=0):
            group = int(draw.choice(len(sizes), p=np.array(sizes) / sum(sizes)))
            groups = range(group, group + 1)
        first, rows = sum(sizes[: groups.start]), sum(sizes[i] for i in groups)
        picked = np.sort(draw.choice(rows, size=min(count, rows), replace=False)).astype(np.int64) + first
        return _take(file, groups, first, picked), picked
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{dataset.name}/{shard.path}: cannot be read as Parquet: {error!s:.200}") from None


def _take(file: pq.ParquetFile, groups: range, first: int, positions: npt.NDArray[np.int64]) -> pa.Table:
    """Rows at these positions of a shard, a row group at a time: what is not taken is not held."""
    taken: list[pa.Table] = []
    for group in groups:
        size = file.metadata.row_group(group).num_rows
        mine = positions[(positions >= first) & (positions < first + size)] - first
        first += size
        if len(mine):
            taken.append(file.read_row_group(group, columns=MEASURED_FROM).take(pa.array(mine)))
    return pa.concat_tables(taken) if taken else file.schema_arrow.empty_table().select(MEASURED_FROM)
