"""`tokenproof card`: from a train set's manifest and files to a README for the hub."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.report.test_card import manifest
from toolkit.cli import main
from toolkit.columns import TRAIN_SCHEMA
from toolkit.manifest import OutputFile, read_manifest, write_manifest
from toolkit.store.files import sha256_of

from .workspace import Outcome

FILE = "shards/part-00000.parquet"
ROWS = 3
_VALUES = {pa.string(): "x", pa.int32(): 1, pa.int64(): 1, pa.list_(pa.int32()): [1, 2], pa.list_(pa.int8()): [0, 1]}


@pytest.fixture
def train_set(tmp_path: Path) -> Path:
    folder = tmp_path / "train"
    (folder / "shards").mkdir(parents=True)
    row = {field.name: _VALUES[field.type] for field in TRAIN_SCHEMA}
    pq.write_table(pa.Table.from_pylist([row] * ROWS, schema=TRAIN_SCHEMA), folder / FILE)
    write_manifest(folder, manifest(outputs=(OutputFile(path=FILE, sha256=sha256_of(folder / FILE), rows=ROWS),)))
    return folder


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def command(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["tokenproof", "card", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Outcome(int(ended.value.code or 0), *capfd.readouterr())

    return command


def test_it_is_printed_or_written_once(train_set: Path, tmp_path: Path, card: Callable[..., Outcome]) -> None:
    done = card(train_set)
    head = yaml.safe_load(done.out.split("---\n")[1])
    (split,) = head["dataset_info"]["splits"]
    assert (split["name"], split["num_examples"]) == ("train", ROWS)
    assert split["num_bytes"] == sum(
        pq.ParquetFile(train_set / FILE).metadata.row_group(n).total_byte_size for n in range(1)
    )
    file = tmp_path / "README.md"
    assert card(train_set, "-o", file).code == 0
    assert file.read_text(encoding="utf-8") == done.out
    refused = card(train_set, "-o", file)
    assert refused.code == 2
    assert "replace it with --replace" in refused.err
    assert card(train_set, "-o", file, "--replace").code == 0
    assert json.loads(card(train_set, "--format", "json").out)["card"] == done.out


def test_a_train_set_that_is_not_whole_gets_none(train_set: Path, tmp_path: Path, card: Callable[..., Outcome]) -> None:
    other = pq.read_table(train_set / FILE).set_column(0, "id", pa.array(["y"] * ROWS))
    pq.write_table(other, train_set / FILE)
    done = card(train_set)
    assert done.code == 3
    assert "expected the bytes that the manifest states" in done.err
    pq.write_table(other.slice(1), train_set / FILE)
    changed = OutputFile(path=FILE, sha256=sha256_of(train_set / FILE), rows=ROWS)
    write_manifest(train_set, replace(read_manifest(train_set), outputs=(changed,)))
    done = card(train_set)
    assert done.code == 3
    assert "expected 3 rows as the manifest says, found 2" in done.err
    (train_set / FILE).write_bytes(b"PAR1")
    assert card(train_set).code == 3
    (train_set / FILE).unlink()
    assert card(train_set).code == 3
    assert card(tmp_path / "none").code == 2
    (train_set / "manifest.json").write_text("{}", encoding="utf-8")
    assert card(train_set).code == 3
