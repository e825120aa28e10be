"""The other way: a dataset that was prepared for a trainer is imported, audited, and its faults found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.flow.workspace import Command, write_lines
from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.export.readers import TEXT_ONLY, Target
from toolkit.export.run import ExportOptions, export
from toolkit.export.train_set import open_train_set
from toolkit.importing import ImportCounts, ImportOptions, import_files
from toolkit.prompt import PromptRenderer
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .test_text import shard_row
from .train_sets import END_THINK, TERMINAL, train_rows, train_set

Lines = list[dict[str, Any]]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Workspace(tmp_path / "work").dataset_named("B3")


def imported(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, *files: Path, **options: Any
) -> tuple[ImportCounts, Lines]:
    counts = import_files(dataset, list(files), kimi, vocabulary, ImportOptions(**options))
    rows = [r for shard in read_live(dataset).shards for r in read_shard(dataset, shard).to_pylist()]
    return counts, sorted(rows, key=lambda row: row["sample_id"])


def prompt_ids(kimi: Contract, vocabulary: Vocabulary, mode: str) -> list[int]:
    ids = PromptRenderer(kimi, vocabulary).render([{"role": "user", "content": "Hi"}], None, mode).ids
    assert ids is not None
    return ids


def prepared(prompt: list[int], output: list[int], **more: Any) -> dict[str, Any]:
    return {"input_ids": [*prompt, *output], "loss_mask": [0] * len(prompt) + [1] * len(output), **more}


def test_ids_are_kept_and_everything_else_is_read_from_them(
    dataset: Dataset, tmp_path: Path, kimi: Contract, vocabulary: Vocabulary
) -> None:
    think, instant = (prompt_ids(kimi, vocabulary, mode) for mode in ("thinking", "instant"))
    so, yes = vocabulary.encode_ordinary(" so"), vocabulary.encode_ordinary(" yes")
    lines = [
        prepared(think, [*so, END_THINK, *yes, TERMINAL], id="a"),
        prepared(instant, [*yes, TERMINAL], id="b"),
        prepared(
            think, [*so, END_THINK, *yes, TERMINAL], id="c", reasoning=" other", content=" text", finish_reason="stop"
        ),
        prepared(think, [*so, TERMINAL, *yes], id="d"),
    ]
    counts, (a, b, c, d) = imported(dataset, kimi, vocabulary, write_lines(tmp_path / "specforge.jsonl", lines))
    assert (counts.rows, counts.failures) == (4, 0)
    for row, line in zip((a, b, c, d), lines, strict=True):
        assert [*row["prompt_ids"], *row["output_ids"]] == line["input_ids"]
        assert (row["ids_source"], row["prompt_ids_source"], row["messages"]) == ("given", "given", None)
    assert [r["mode"] for r in (a, b, c, d)] == ["thinking", "instant", "thinking", "thinking"]
    assert (a["reasoning"], a["content"], b["content"]) == (" so", " yes", " yes")
    assert "text_from_ids" in a["notes"]
    assert (c["content"], "given_differs" in c["notes"], "text_from_ids" in c["notes"]) == (" text", True, False)
    assert (d["content"], "ids_not_of_form" in d["notes"]) == (None, True)
    assert not any(note == "mode_assumed" for row in (a, b, c, d) for note in row["notes"])


def test_masks_that_are_no_split_are_failures_with_their_reason(
    dataset: Dataset, tmp_path: Path, kimi: Contract, vocabulary: Vocabulary
) -> None:
    think = prompt_ids(kimi, vocabulary, "thinking")
    good = prepared(think, [7, END_THINK, TERMINAL], id="good")
    gap = {**good, "id": "gap", "loss_mask": [0] * len(think) + [1, 0, 1]}
    late = {**good, "id": "late", "loss_mask": [0] * (len(think) + 1) + [1, 1]}
    all_of_it = {**good, "id": "all", "loss_mask": [1] * (len(think) + 3)}
    path = write_lines(tmp_path / "x.jsonl", [good, gap, all_of_it, late])
    counts, rows = imported(dataset, kimi, vocabulary, path)
    assert dict(counts.by_reason) == {"mask_not_one_split": 1, "prompt_unmarked": 1}
    # A mask that begins late is a split; that the prompt then has no form shows: there are no prompt ids.
    assert [(row["sample_id"], row["prompt_ids"] is None) for row in rows] == [("good", False), ("late", True)]


def test_rows_without_a_name_are_named_by_their_content(
    dataset: Dataset, tmp_path: Path, kimi: Contract, vocabulary: Vocabulary
) -> None:
    think = prompt_ids(kimi, vocabulary, "thinking")
    lines = [prepared(think, [n, END_THINK, TERMINAL]) for n in (1, 2, 1)]
    counts, rows = imported(dataset, kimi, vocabulary, write_lines(tmp_path / "x.jsonl", lines))
    assert (counts.rows, counts.already_there) == (2, 1)
    assert all(row["sample_id"].startswith("sha256-") for row in rows)


@pytest.mark.parametrize("target", sorted(set(Target) - TEXT_ONLY - {Target.TORCHSPEC}))
def test_what_we_export_comes_back(
    dataset: Dataset, tmp_path: Path, kimi: Contract, vocabulary: Vocabulary, target: Target
) -> None:
    rows = [shard_row(f"i{n}", kimi, vocabulary, "thinking") for n in range(5)]
    folder = train_set(tmp_path, kimi, rows)
    export(open_train_set(folder), tmp_path / "out", ExportOptions(target=target))
    source = tmp_path / "out"
    if target in (Target.SPECFORGE, Target.JSONL):
        (source,) = source.glob("*.jsonl")
    counts, found = imported(dataset, kimi, vocabulary, source, source="vllm")
    assert (counts.lines, counts.rows, counts.failures) == (5, 5, 0)
    expected = sorted((r["input_ids"], r["prompt_len"]) for r in train_rows(folder))
    assert sorted(([*r["prompt_ids"], *r["output_ids"]], len(r["prompt_ids"])) for r in found) == expected
    assert {(r["reasoning"], r["content"], r["source"]) for r in found} == {(" so", " yes", "vllm")}


def test_a_train_set_of_ours_comes_back_with_its_text_and_counts(
    dataset: Dataset, tmp_path: Path, kimi: Contract, vocabulary: Vocabulary
) -> None:
    folder = train_set(tmp_path, kimi, [shard_row("a", kimi, vocabulary, "thinking", completion_tokens=4)])
    _, (row,) = imported(dataset, kimi, vocabulary, folder / "shards/part-00000.parquet")
    assert (row["completion_tokens"], row["content"], row["finish_reason"]) == (4, " yes", "stop")
    assert "given_equal" in row["notes"]


def test_arrow_files_of_both_kinds_and_splits(
    dataset: Dataset, tmp_path: Path, kimi: Contract, vocabulary: Vocabulary
) -> None:
    think = prompt_ids(kimi, vocabulary, "thinking")
    for number, open_writer in enumerate((pa.ipc.new_stream, pa.ipc.new_file)):
        table = pa.Table.from_pylist([prepared(think, [number, END_THINK, TERMINAL], id=f"r{number}")])
        with pa.OSFile(str(tmp_path / f"{number}.arrow"), "wb") as sink, open_writer(sink, table.schema) as writer:
            writer.write_table(table)
    counts, _ = imported(dataset, kimi, vocabulary, tmp_path / "0.arrow", tmp_path / "1.arrow")
    assert counts.rows == 2
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(ConfigError, match=r"expected one split of this dataset.*train"):
        imported(dataset, kimi, vocabulary, tmp_path / "dict")


def test_folders_and_tables_that_are_none(
    dataset: Dataset, tmp_path: Path, kimi: Contract, vocabulary: Vocabulary
) -> None:
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "text.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "text.parquet").read_bytes()[:60])
    (tmp_path / "empty").mkdir()
    (tmp_path / "escape").mkdir()
    (tmp_path / "escape/state.json").write_text(json.dumps({"_data_files": [{"filename": "../text.parquet"}]}))
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/state.json").write_text("[]")
    for name, found in (
        ("text.parquet", "expected columns input_ids and one of"),
        ("cut.parquet", "cannot be read as a table"),
        ("empty", "expected a dataset's folder with state.json"),
        ("escape", "expected names of files beside it"),
        ("odd", "expected what Dataset.save_to_disk writes"),
    ):
        with pytest.raises(ConfigError, match=found):
            imported(dataset, kimi, vocabulary, tmp_path / name)
    assert not dataset.shards.exists() or not list(dataset.shards.iterdir())


def test_the_audit_says_what_such_rows_are_worth(
    run: Command,
    tmp_path: Path,
    kimi: Contract,
    vocabulary: Vocabulary,
) -> None:
    """Form and text of ids can be audited; that they are the model's own nobody says, unless a count does."""
    think = prompt_ids(kimi, vocabulary, "thinking")
    so, yes = vocabulary.encode_ordinary(" so"), vocabulary.encode_ordinary(" yes")
    output = [*so, END_THINK, *yes, TERMINAL]
    lines = [prepared(think, output, id=f"n{n}", finish_reason="stop") for n in range(3)]
    lines += [prepared(think, output, id=f"c{n}", finish_reason="stop", completion_tokens=4) for n in range(3)]
    lines += [prepared(think, [*so, *yes, TERMINAL], id="no_end_of_thinking", completion_tokens=3)]
    path = write_lines(tmp_path / "x.jsonl", lines)
    done = run("import", "B3", str(path), "--source", "vllm", root=tmp_path)
    assert done.code == 0, done.err
    done = run("audit", "B3", "--format", "json", root=tmp_path)
    assert done.code == 1
    verdict = json.loads((tmp_path / "reports/B3/verdict.json").read_text())
    assert verdict["evidence"]["counted"] == 3
    assert verdict["evidence"]["unverified"] == 3
    assert verdict["evidence"]["contradicted"] == 1
    assert "no_count" in json.dumps(verdict["providers"])
