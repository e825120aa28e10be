"""Each trainer's own reader loads what we export: our ids and masks, element for element, and what it drops and cuts
is what the report foresaw.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.train_sets import END_THINK, TOOLS, thinking, train_rows, train_set, varied
from tests.flow.workspace import Command, batch_line, ids_of, write_lines, write_prompts
from toolkit.contract import Contract
from toolkit.export.readers import Algorithm, Target
from toolkit.export.report import ExportReport, Tally
from toolkit.export.run import ExportOptions, export
from toolkit.export.train_set import open_train_set
from toolkit.export.window import Marks
from toolkit.vocabulary import Vocabulary

from .conftest import Read

pytestmark = pytest.mark.trainers

MARKS = Marks(end_think=END_THINK, tools=TOOLS, thinking=frozenset({"thinking"}))
VOCAB = 163_840
WINDOW = 40

Pairs = list[list[list[int]]]


@pytest.fixture
def folder(tmp_path: Path, kimi: Contract) -> Path:
    """Rows of 3 to 110 ids; one whose window ends with the prompt, one that keeps a single answer token."""
    edges = [thinking("none", WINDOW, 3, 2), thinking("one", WINDOW - 1, 3, 2), thinking("fits", 30, 5, 3)]
    return train_set(tmp_path, kimi, [*varied(60), *edges])


def run(folder: Path, output: Path, target: Target, **options: Any) -> ExportReport:
    return export(open_train_set(folder, VOCAB), output, ExportOptions(target=target, **options), MARKS)


def pairs(folder: Path) -> Pairs:
    """[ids, mask] of each row of the train set."""
    return [[r["input_ids"], r["loss_mask"]] for r in train_rows(folder)]


def cut(rows: Pairs, window: int = WINDOW) -> Pairs:
    return [[ids[:window], mask[:window]] for ids, mask in rows]


def labelled(rows: Pairs) -> Pairs:
    return [[ids, [i if m else -100 for i, m in zip(ids, mask, strict=True)]] for ids, mask in rows]


def tally(rows: Pairs) -> Tally:
    return Tally(rows=len(rows), ids=sum(len(r[0]) for r in rows), supervised_ids=sum(sum(r[1]) for r in rows))


def check_foreseen(report: ExportReport, given: Pairs, came: Pairs) -> None:
    """The report said how many rows would be dropped and cut, and what would be trained on."""
    assert report.reader is not None
    assert report.reader.trains_on == tally(came)
    assert sum(t.rows for t in report.reader.dropped.values()) == len(given) - len(came)
    left = {tuple(ids): len(ids) for ids, _ in came}
    assert report.reader.cut.lost.rows == sum(
        1 for ids, _ in given if len(ids) > WINDOW and left.get(tuple(ids[:WINDOW])) == WINDOW
    )


# --- SpecForge ----------------------------------------------------------------------------------------


def test_specforge_reads_our_ids_and_masks(folder: Path, tmp_path: Path, read: Read) -> None:
    run(folder, tmp_path / "out", Target.SPECFORGE)
    assert read("specforge", tmp_path / "out/specforge.jsonl", 10_000, 1, 0, out=4)["rows"] == pairs(folder)


@pytest.mark.parametrize(("algorithm", "least"), [(Algorithm.EAGLE3, 1), (Algorithm.DFLASH, 2)])
def test_specforge_drops_and_cuts_as_foreseen(
    folder: Path, tmp_path: Path, read: Read, algorithm: Algorithm, least: int
) -> None:
    report = run(folder, tmp_path / "out", Target.SPECFORGE, reader_window=WINDOW, algorithm=algorithm)
    adjacent = int(algorithm is Algorithm.DFLASH)
    came = read("specforge", tmp_path / "out/specforge.jsonl", WINDOW, least, adjacent, out=4)["rows"]
    assert came == [pair for pair in cut(pairs(folder)) if sum(pair[1]) >= least]
    check_foreseen(report, pairs(folder), came)
    assert report.reader is not None
    assert report.reader.dropped


def test_specforge_reads_everything_of_what_was_cut_for_it(folder: Path, tmp_path: Path, read: Read) -> None:
    report = run(folder, tmp_path / "out", Target.SPECFORGE, max_length=WINDOW)
    came = read("specforge", tmp_path / "out/specforge.jsonl", WINDOW, 1, 0, out=4)["rows"]
    assert tally(came) == report.written
    assert report.reader is not None
    assert (report.reader.dropped, report.reader.cut.lost.rows) == ({}, 0)


def test_specforge_loads_the_draft_map(folder: Path, tmp_path: Path, read: Read) -> None:
    run(folder, tmp_path / "out", Target.SPECFORGE, draft_vocab_size=64)
    paths = (tmp_path / "out/specforge.jsonl", 10_000, 1, 0, tmp_path / "out/vocab/vocab_mapping.pt")
    found = read("specforge", *paths, out=4)
    assert found["d2t"] == np.load(tmp_path / "out/vocab/d2t.npy").tolist()
    assert found["t2d"] == [d + i for i, d in enumerate(found["d2t"])]
    assert found["target"] == VOCAB


# --- speculators --------------------------------------------------------------------------------------


def test_speculators_reads_our_ids_and_masks(folder: Path, tmp_path: Path, read: Read) -> None:
    report = run(folder, tmp_path / "out", Target.SPECULATORS, draft_vocab_size=64, reader_window=WINDOW)
    given = pairs(folder)
    found = read("speculators", tmp_path / "out", WINDOW, 64, VOCAB, out=2)
    assert found["types"] == ["torch.int64"]
    assert found["rows"] == given
    assert found["lengths"] == [len(ids) for ids, _ in given]
    # Each row once, cut where its sampler and collator cut it.
    came = {index: [ids, mask] for index, ids, mask in found["packed"]}
    assert [came[index] for index in range(len(given))] == cut(given)
    check_foreseen(report, given, list(came.values()))
    # Its own count of our rows is the file that we wrote, and its own map the one that it takes from us.
    assert found["frequencies"] == found["own_frequencies"]
    assert found["d2t"] == found["own_d2t"]
    assert found["t2d"] == found["own_t2d"]
    assert found["size"] == 64


def test_speculators_fills_a_small_map_as_we_do(tmp_path: Path, kimi: Contract, read: Read) -> None:
    folder = train_set(tmp_path, kimi, varied(4))
    run(folder, tmp_path / "out", Target.SPECULATORS, draft_vocab_size=2_000)
    found = read("speculators", tmp_path / "out", 512, 2_000, VOCAB, out=2)
    assert found["d2t"] == found["own_d2t"]
    assert found["t2d"] == found["own_t2d"]


# --- TRL, axolotl, LLaMA-Factory ------------------------------------------------------------------------


def test_trl_trains_on_our_ids_and_labels(folder: Path, tmp_path: Path, read: Read) -> None:
    report = run(folder, tmp_path / "out", Target.TRL, reader_window=WINDOW)
    came = read("trl", tmp_path / "out", WINDOW, out=2)["rows"]
    kept = [pair for pair in cut(pairs(folder)) if sum(pair[1])]
    assert came == labelled(kept)
    check_foreseen(report, pairs(folder), kept)


@pytest.mark.parametrize("target", [Target.AXOLOTL, Target.LLAMAFACTORY])
def test_tokenized_folders_load_with_labels(folder: Path, tmp_path: Path, read: Read, target: Target) -> None:
    run(folder, tmp_path / "out", target)
    found = read("labels", tmp_path / "out", out=1)
    assert sorted(found["columns"]) == ["attention_mask", "input_ids", "labels"]
    assert [row[:2] for row in found["rows"]] == labelled(pairs(folder))
    assert all(set(row[2]) == {1} and len(row[2]) == len(row[0]) for row in found["rows"])


# --- files of torch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["safe", "plain", "mapped"])
def test_torchspecs_cache(folder: Path, tmp_path: Path, read: Read, how: str) -> None:
    """TorchSpec is on no package index: its rules (`unpack_loss_mask`, the cache's keys) are stated here again."""
    run(folder, tmp_path / "out", Target.TORCHSPEC)
    rows = [dict(row) for row in read("torch", tmp_path / "out/torchspec.pt", how, out=1)]
    expected = train_rows(folder)
    assert [row["data_id"] for row in rows] == [r["id"] for r in expected]
    for row, ours in zip(rows, expected, strict=True):
        assert list(row) == [
            "data_id", "metadata", "multimodal_inputs", "formatted_prompt", "input_ids", "packed_loss_mask",
        ]  # fmt: skip
        assert row["input_ids"] == {"type": "torch.int64", "shape": [1, ours["seq_len"]], "values": [ours["input_ids"]]}
        runs = [int(length) for length in row["packed_loss_mask"].split(",")]
        assert [i % 2 for i, length in enumerate(runs) for _ in range(length)] == ours["loss_mask"]
        assert (row["metadata"], row["multimodal_inputs"], row["formatted_prompt"]) == ([], None, "")


def test_model_optimizers_map_is_a_tensor_by_itself(folder: Path, tmp_path: Path, read: Read) -> None:
    run(folder, tmp_path / "out", Target.JSONL, draft_vocab_size=64)
    found = read("torch", tmp_path / "out/vocab/d2t.pt", "safe", out=1)
    assert (found["type"], found["shape"]) == ("torch.int64", [64])
    assert found["values"] == np.load(tmp_path / "out/vocab/d2t.npy").tolist()


# --- from an audited dataset, by command ------------------------------------------------------------------


def test_from_an_audited_dataset_to_speculators_in_two_commands(
    run_command: Command, tmp_path: Path, vocabulary: Vocabulary, read: Read
) -> None:
    lines = [batch_line(vocabulary, number) for number in range(30)]
    write_prompts(tmp_path, "B3", 30)
    assert run_command("import", "B3", str(write_lines(tmp_path / "batch.jsonl", lines)), root=tmp_path).code == 0
    assert run_command("audit", "B3", root=tmp_path).code == 0
    train, out = tmp_path / "train/B3", tmp_path / "export/B3/speculators"
    assert run_command("merge", "B3", "-o", str(train), root=tmp_path).code == 0
    assert run_command("export", str(train), "--to", "speculators", root=tmp_path).code == 0
    found = read("speculators", out, 8_192, 0, 0, out=2)
    assert len(found["rows"]) == 30
    assert found["rows"] == pairs(train)
    ends = [
        ids_of(vocabulary, f" They ask for number {n}.", f" The number is {n}, as everybody knows.") for n in range(30)
    ]
    completions = [[i for i, m in zip(ids, mask, strict=True) if m] for ids, mask in found["rows"]]
    assert sorted(completions) == sorted(ends)
