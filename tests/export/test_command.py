"""`tokenproof export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flow.workspace import Command
from toolkit.contract import Contract
from toolkit.vocabulary import Vocabulary

from .test_text import shard_row
from .train_sets import END_THINK, TERMINAL, train_set


@pytest.fixture
def folder(tmp_path: Path, kimi: Contract, vocabulary: Vocabulary) -> Path:
    """A train set of the shipped contract, one row of it long."""
    rows = [shard_row(f"i{n}", kimi, vocabulary, "instant") for n in range(4)]
    rows.append(shard_row("long", kimi, vocabulary, "thinking"))
    rows[-1]["output_ids"] = [*range(60), END_THINK, 9, TERMINAL]
    for row in rows:
        row["contract_sha256"] = kimi.sha256
    return train_set(tmp_path, kimi, rows)


def test_export_says_what_the_trainer_will_do(run: Command, folder: Path, tmp_path: Path) -> None:
    done = run("export", str(folder), "--to", "specforge", "--window", "30", root=tmp_path)
    assert done.code == 0, done.err
    assert "5 rows of 5 written for specforge" in done.out
    assert "drop 0 rows, cut 1 row" in done.out
    assert "1 in the reasoning" in done.out
    assert (tmp_path / "export/B3/specforge/specforge.jsonl").is_file()


def test_export_for_machines_is_the_report(run: Command, folder: Path, tmp_path: Path) -> None:
    words = ("--to", "speculators", "--max-length", "30", "--draft-vocab-size", "16", "-o", str(tmp_path / "out"))
    done = run("export", str(folder), *words, "--format", "json", root=tmp_path)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told == json.loads((tmp_path / "out/export-report.json").read_text())
    assert told["cut"]["by_place"]["reasoning"]["rows"] == 1
    assert told["draft_vocabulary"]["target_vocab_size"] == 163_840


def test_text_is_compared_with_our_ids(run: Command, folder: Path, tmp_path: Path) -> None:
    done = run("export", str(folder), "--to", "model-optimizer", root=tmp_path)
    assert done.code == 0, done.err
    assert "rendered again by kimi-k2.5: our ids in 4 of 5 rows (80.00% of the rows compared)" in done.out
    assert "first difference: B3/long/0/0" in done.out


def test_exit_codes(run: Command, folder: Path, tmp_path: Path) -> None:
    assert run("export", str(tmp_path), "--to", "trl", root=tmp_path).code == 3
    assert run("export", str(folder), "--to", "trl", "--max-length", "0", root=tmp_path).code == 2
    assert run("export", str(folder), "--to", "nobody", root=tmp_path).code == 2
    (folder / "shards/part-00000.parquet").write_bytes(b"PAR1")
    done = run("export", str(folder), "--to", "trl", root=tmp_path)
    assert done.code == 3
    assert "expected the bytes that manifest.json states" in done.err


def test_another_contract_of_that_name_places_no_cuts(
    run: Command,
    tmp_path: Path,
    kimi: Contract,
    vocabulary: Vocabulary,
) -> None:
    rows = [shard_row(f"i{n}", kimi, vocabulary, "instant") for n in range(4)]
    for row in rows:
        row["output_ids"] = [*range(60), TERMINAL]
    manifest = train_set(tmp_path, kimi, rows) / "manifest.json"
    manifest.write_text(manifest.read_text().replace(kimi.sha256, "00" * 32))
    done = run("export", str(manifest.parent), "--to", "specforge", "--window", "30", root=tmp_path)
    assert done.code == 0, done.err
    assert "4 in the output" in done.out
    assert "the contract of the train set is not at hand" in done.out
