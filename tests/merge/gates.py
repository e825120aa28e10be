"""Gates that believe the verdict: what the audit concludes is not the merge's matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.rows import SUITE, add_dataset, audit, suite_path
from toolkit.contract import Contract
from toolkit.gate import OpenGate, open_gate
from toolkit.manifest import Manifest
from toolkit.merge import merge as merge_datasets
from toolkit.store.workspace import Dataset, Workspace

NOT_CONTRADICTED = pa.table({"shard": pa.array([], pa.string()), "row_index": pa.array([], pa.int32())})
"""No row whose prompt is contradicted."""

Rows = Sequence[Mapping[str, Any]]


def opened(workspace: Workspace, dataset: Dataset, contract: Contract) -> OpenGate:
    """The gate of a dataset that was audited."""
    suites = [(SUITE, suite_path(workspace))]
    return open_gate(dataset, contract, suites, allowed_providers=(), recheck=lambda *_: ())


def merge(gates: Sequence[OpenGate], output: Path, **options: Any) -> Manifest:
    """Merge datasets of which no row's prompt is contradicted, unless `contradicted` says so."""
    none = {gate.dataset.name: NOT_CONTRADICTED for gate in gates}
    return merge_datasets(gates, output, **{"contradicted": none} | options)


def gate_of(workspace: Workspace, contract: Contract, name: str, *shards: Rows, **how: Any) -> OpenGate:
    """The open gate of a new dataset."""
    dataset = add_dataset(workspace, name, *shards)
    audit(workspace, dataset, contract, **how)
    return opened(workspace, dataset, contract)


def rows_of(folder: Path, side: str = "shards") -> list[dict[str, Any]]:
    """Rows of one side of a train set, in order."""
    files = sorted((folder / side).iterdir()) if (folder / side).exists() else []
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
