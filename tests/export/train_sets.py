"""Small train sets, made by the merge itself; and one whose rows are rewritten, masks of any form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.merge.gates import merge
from tests.rows import SUITE, add_dataset, audit, row, suite_path
from toolkit.columns import TRAIN_SCHEMA
from toolkit.contract import Contract
from toolkit.gate import open_gate
from toolkit.manifest import read_manifest, write_manifest
from toolkit.mix import MergeSettings
from toolkit.store.files import sha256_of
from toolkit.store.workspace import Workspace

END_THINK, TOOLS, TERMINAL = 163607, 163595, 163586


def train_set(root: Path, contract: Contract, rows: Sequence[Mapping[str, Any]], **mix: Any) -> Path:
    """The folder of a train set of these shard rows, merged behind an open gate."""
    workspace = Workspace(root)
    dataset = add_dataset(workspace, "B3", rows)
    audit(workspace, dataset, contract)
    gate = open_gate(dataset, contract, [(SUITE, suite_path(workspace))], allowed_providers=(), recheck=lambda *_: ())
    merge([gate], root / "train/B3", mix=MergeSettings(**mix))
    return root / "train/B3"


def thinking(sample_id: str, prompt: int, reasoning: int, answer: int, **changes: Any) -> dict[str, Any]:
    """A shard row of so many prompt ids, so many of reasoning, `</think>`, so many of answer, and the terminal."""
    start = sum(map(ord, sample_id)) % 1000
    output = [*range(start, start + reasoning), END_THINK, *range(start + 50, start + 50 + answer), TERMINAL]
    prompt_ids = [*range(start + 20_000, start + 20_000 + prompt - 1), 163606]
    return row(sample_id, prompt_ids=prompt_ids, output_ids=output, contract_sha256="c0" * 32, **changes)


def rewrite(folder: Path, change: Mapping[str, Any], *, at: int = 0) -> None:
    """Put other values into one row of a one-part train set, and make the manifest fit the new bytes."""
    path = folder / "shards/part-00000.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[at] |= change
    pq.write_table(pa.Table.from_pylist(rows, schema=TRAIN_SCHEMA), path)
    seal(folder)


def seal(folder: Path) -> None:
    """Let the manifest state the bytes that lie there."""
    manifest = read_manifest(folder)
    outputs = tuple(replace(output, sha256=sha256_of(folder / output.path)) for output in manifest.outputs)
    write_manifest(folder, replace(manifest, outputs=outputs))


def train_rows(folder: Path) -> list[dict[str, Any]]:
    """Rows of a train set in their order, as the Parquet files hold them."""
    return [r for output in read_manifest(folder).outputs for r in pq.read_table(folder / output.path).to_pylist()]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def varied(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """Rows of many lengths."""
    rng = np.random.default_rng(seed)
    return [
        thinking(f"s{n}", int(rng.integers(1, 30)), int(rng.integers(0, 40)), int(rng.integers(1, 40)))
        for n in range(count)
    ]
