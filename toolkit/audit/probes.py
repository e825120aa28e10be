"""The second pass: rows of probes and the rows that they are compared with, read with their ids."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from toolkit.audit.calibration import compare_probes
from toolkit.audit.fact_files import Frame, collected
from toolkit.findings import ProbeComparison
from toolkit.records import LiveShard
from toolkit.store.shards import read_shard
from toolkit.store.workspace import Dataset

MAX_PROBES = 20_000
"""Probe rows that are compared, chosen by row_key; more would tell no more."""

_KEY = ["sample_id", "turn", "sample_index"]
_READ = [*_KEY, "probe", "source", "provider", "mode", "output_ids"]


def read_comparisons(dataset: Dataset, shards: Sequence[LiveShard], facts: Frame) -> list[ProbeComparison]:
    """Probes held against the rows of the same question; [] where the dataset has none, and then nothing is read.

    Args:
        dataset: Whose shards they are.
        shards: Shards whose bytes were just held against shards.json.
        facts: Frame of their facts.

    Raises:
        ShardError: a shard cannot be read.
    """
    probes = collected(facts.lazy().filter("probe").select(*_KEY, "row_key"))
    if probes.is_empty():
        return []
    asked = probes.sort("row_key", *_KEY).head(MAX_PROBES).select(_KEY).unique(maintain_order=True)
    found = facts.lazy().select(*_KEY, "shard").join(asked.lazy(), on=_KEY, how="semi").select(pl.col("shard").unique())
    wanted = set(collected(found)["shard"])
    parts = []
    for shard in shards:
        if shard.sha256 in wanted:
            part = pl.from_arrow(read_shard(dataset, shard, _READ, verify=False))
            assert isinstance(part, pl.DataFrame)
            parts.append(part.join(asked, on=_KEY, how="semi", maintain_order="left"))
    return compare_probes(pl.concat(parts)) if parts else []
