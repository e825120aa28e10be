"""Measured facts, one file a shard, named by everything that they depend on: an unchanged shard is measured once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.contract import Contract
from toolkit.records import FACTS_SCHEMA, KERNEL_VERSION, LiveShard
from toolkit.store.files import write_whole
from toolkit.store.workspace import Dataset


def facts_path(dataset: Dataset, shard: LiveShard, contract: Contract) -> Path:
    """Where the facts of a shard lie."""
    return dataset.facts / f"{shard.sha256[:32]}-{contract.sha256[:16]}-k{KERNEL_VERSION}.parquet"


def read_facts(dataset: Dataset, shard: LiveShard, contract: Contract) -> pa.Table | None:
    """The cached facts of a shard, or None where they have to be measured (again)."""
    path = facts_path(dataset, shard, contract)
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError):
        return None
    if table.schema.names != FACTS_SCHEMA.names or table.num_rows != shard.rows:
        return None
    try:
        table = table.cast(FACTS_SCHEMA)
    except (pa.ArrowException, ValueError):
        return None
    named = set(table["shard"].unique().to_pylist())
    return table if named <= {shard.sha256} else None


def write_facts(dataset: Dataset, shard: LiveShard, contract: Contract, facts: pa.Table) -> None:
    """Keep the facts of a shard.

    Raises:
        StoreError: they cannot be written.
    """

    def write(temporary: Path) -> None:
        pq.write_table(facts, temporary, compression="zstd", write_page_checksum=True)

    write_whole(facts_path(dataset, shard, contract), write)
