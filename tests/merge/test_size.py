"""A million rows: the same bytes in whatever order, in bounded memory; and what a kill leaves."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT
from toolkit.manifest import read_manifest
from toolkit.store.files import sha256_of

from .merging import make, merge_all

_MAKE = "import sys; from pathlib import Path; from tests.merge.merging import make; make(Path(sys.argv[1]), {rows})"


def merged_apart(root: Path, output: Path, *options: str) -> dict[str, float]:
    """What a merge in a process of its own took."""
    command = [sys.executable, "-m", "tests.merge.merging", str(root), str(output), *options]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def check_order_and_masks(folder: Path) -> tuple[int, int]:
    """Rows and ids of a train set, each row in its place and masked on its prompt alone."""
    rows, ids, last = 0, 0, b""
    for output in read_manifest(folder).outputs:
        table = pq.read_table(folder / output.path, columns=["row_key", "prompt_len", "seq_len", "loss_mask"])
        digests = [hashlib.sha256(b"1" + key.encode()).digest() for key in table["row_key"].to_pylist()]
        assert last <= digests[0]
        assert digests == sorted(digests)
        last = digests[-1]
        mask = pc.list_flatten(table["loss_mask"]).to_numpy()
        prompt, whole = (table[name].to_numpy() for name in ("prompt_len", "seq_len"))
        runs = np.stack([prompt, whole - prompt], axis=1).ravel()
        assert np.array_equal(mask, np.repeat(np.tile(np.array([0, 1], np.int8), len(whole)), runs))
        rows += table.num_rows
        ids += int(whole.sum())
    return rows, ids


@pytest.mark.slow
def test_a_million_rows_in_bounded_memory(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _MAKE.format(rows=1_000_000), str(tmp_path)], cwd=ROOT, check=True)
    took = merged_apart(tmp_path, tmp_path / "train")
    assert took["rows"] == 1_000_000
    assert took["ids"] > 290_000_000
    assert took["rss_mb"] < 2_000
    assert check_order_and_masks(tmp_path / "train") == (took["rows"], took["ids"])


def test_the_same_bytes_twice_and_with_shards_and_datasets_in_another_order(tmp_path: Path) -> None:
    make(tmp_path, 24_000, shards=5)
    for name, options in (("one", []), ("two", []), ("three", ["--backwards"])):
        merged_apart(tmp_path, tmp_path / name, *options)
    files = {
        name: {str(p.relative_to(tmp_path / name)): sha256_of(p) for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("one", "two", "three")
    }
    assert len(files["one"]) == 3
    assert files["one"] == files["two"] == files["three"]
    assert check_order_and_masks(tmp_path / "one")[0] == 24_000


def test_every_row_of_the_shards_is_in_the_train_set_id_for_id(tmp_path: Path) -> None:
    make(tmp_path, 4_000, shards=3)
    merge_all(tmp_path, tmp_path / "train")
    read = [pq.read_table(path) for path in sorted((tmp_path / "datasets").rglob("*.parquet"))]
    wanted = {
        (f"B{number}/{r['sample_id']}/0/0"): (r["prompt_ids"] + r["output_ids"], r["content"], r["source"])
        for number in range(1, 9)
        for table in read[(number - 1) * 3 : number * 3]
        for r in table.select(["sample_id", "prompt_ids", "output_ids", "content", "source"]).to_pylist()
    }
    found = pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "train/shards").iterdir()))
    rows = found.select(["id", "input_ids", "content", "source"]).to_pylist()
    assert {r["id"]: (r["input_ids"], r["content"], r["source"]) for r in rows} == wanted


# The part, the manifest and the folder get their names one after the other: killed before each, and after the last.
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_killed_before_any_file_gets_its_name_no_output_looks_whole(tmp_path: Path, step: int) -> None:
    make(tmp_path, 800, shards=1)
    command = [sys.executable, "-m", "tests.merge.merging", str(tmp_path), str(tmp_path / "train"), f"--die-at={step}"]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
    assert ended.returncode == (-signal.SIGKILL if step < 4 else 0), ended.stderr
    assert (tmp_path / "train").exists() == (step == 4)
    assert len(list(tmp_path.glob("*/manifest.json"))) == (step == 4)
    if step == 3:
        assert (tmp_path / ".train.merging/new/manifest.json").exists(), "whole, and yet it has no name"
    merge_all(tmp_path, tmp_path / "train")
    assert check_order_and_masks(tmp_path / "train")[0] == 800
    assert not (tmp_path / ".train.merging").exists()
