"""Export: which rows are written as what, what the report says, and what is on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from toolkit.contract import Contract
from toolkit.errors import ConfigError, StoreError
from toolkit.export.output import REPORT_NAME
from toolkit.export.readers import TEXT_ONLY, Algorithm, Longer, Split, Target
from toolkit.export.report import ExportReport, render_report
from toolkit.export.run import ExportOptions, export
from toolkit.export.train_set import open_train_set
from toolkit.export.window import Marks

from .train_sets import END_THINK, TOOLS, bytes_of, rewrite, thinking, train_rows, train_set, varied

MARKS = Marks(end_think=END_THINK, tools=TOOLS, thinking=frozenset({"thinking"}))
VOCAB = 163_840


def run(folder: Path, output: Path, target: Target = Target.JSONL, **options: Any) -> ExportReport:
    return export(open_train_set(folder, VOCAB), output, ExportOptions(target=target, **options), MARKS)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def written(found: list[dict[str, Any]]) -> list[tuple[str, list[int], list[int]]]:
    return [(r["id"], r["input_ids"], r["loss_mask"]) for r in found]


@pytest.fixture
def folder(tmp_path: Path, kimi: Contract) -> Path:
    return train_set(tmp_path, kimi, varied(40))


# --- lines --------------------------------------------------------------------------------------------


def test_jsonl_is_the_rows_of_the_parquet_files(folder: Path, tmp_path: Path) -> None:
    report = run(folder, tmp_path / "out")
    found = written(lines(tmp_path / "out/rows.jsonl"))
    assert found == written(train_rows(folder))
    assert report.written.rows == 40
    assert report.written.ids == sum(len(ids) for _, ids, _ in found)
    assert report.written.supervised_ids == sum(sum(mask) for *_, mask in found)
    assert report.left_out == {}


def test_specforge_has_three_keys_and_ids_first_in_the_file(folder: Path, tmp_path: Path) -> None:
    run(folder, tmp_path / "out", Target.SPECFORGE)
    assert [list(line) for line in lines(tmp_path / "out/specforge.jsonl")] == [["id", "input_ids", "loss_mask"]] * 40


NAMES = ['a"b\\c', "tab\tnew\nline\rfeed\x00\x1f\x7f", "\u2028\u2029", "\U0001f600é", "</script>", "{}[],", "}"]


def test_names_are_json_whatever_they_hold(tmp_path: Path, kimi: Contract) -> None:
    rows = [thinking(name, 3, 2, 2) for name in NAMES]
    run(train_set(tmp_path, kimi, rows), tmp_path / "out")
    text = (tmp_path / "out/rows.jsonl").read_bytes()
    assert text.count(b"\n") == len(NAMES)
    assert {json.loads(line)["id"] for line in text.splitlines()} == {f"B3/{name}/0/0" for name in NAMES}


def test_a_mask_with_gaps(folder: Path, tmp_path: Path) -> None:
    mask = [0, 1, 0, 1, 1, 0]
    change = {"input_ids": [0, 163839, 9, 10, 99, 100], "loss_mask": mask, "prompt_len": 1, "seq_len": 6}
    rewrite(folder, change | {"n_supervised": 3})
    run(folder, tmp_path / "out")
    assert written(lines(tmp_path / "out/rows.jsonl"))[0][1:] == ([0, 163839, 9, 10, 99, 100], mask)


# --- windows and caps ---------------------------------------------------------------------------------


def test_rows_are_cut_and_the_report_says_where(tmp_path: Path, kimi: Contract) -> None:
    rows = [
        thinking("whole", 4, 2, 2),  # 10 ids
        thinking("prompt", 11, 2, 2),
        thinking("reasoning", 5, 9, 2),
        thinking("answer", 3, 2, 9),
    ]
    folder = train_set(tmp_path, kimi, rows)
    report = run(folder, tmp_path / "out", Target.SPECFORGE, max_length=10)
    found = {r["id"]: r for r in lines(tmp_path / "out/specforge.jsonl")}
    whole = {r["id"]: r for r in train_rows(folder)}
    assert set(found) == {f"B3/{name}/0/0" for name in ("whole", "reasoning", "answer")}
    for name, row in found.items():
        assert row["input_ids"] == whole[name]["input_ids"][:10]
        assert row["loss_mask"] == whole[name]["loss_mask"][:10]
    assert {reason: tally.rows for reason, tally in report.left_out.items()} == {"too_few_supervised": 1}
    assert {place: tally.rows for place, tally in report.cut.by_place.items()} == {"reasoning": 1, "answer": 1}
    assert report.cut.lost.supervised_ids == report.cut.lost.ids == 8 + 6
    assert report.reader is not None
    assert report.reader.window == 10
    assert report.reader.cut.lost.rows == 0
    assert report.reader.dropped == {}


def test_rows_too_long_can_be_left_out_or_kept(tmp_path: Path, kimi: Contract) -> None:
    folder = train_set(tmp_path, kimi, [thinking("a", 4, 2, 2), thinking("b", 4, 9, 2)])
    dropped = run(folder, tmp_path / "dropped", Target.SPECFORGE, max_length=10, longer=Longer.DROP)
    assert [r["id"] for r in lines(tmp_path / "dropped/specforge.jsonl")] == ["B3/a/0/0"]
    assert dropped.left_out["too_long"].rows == 1
    kept = run(folder, tmp_path / "kept", Target.SPECFORGE, max_length=10, longer=Longer.KEEP)
    assert len(lines(tmp_path / "kept/specforge.jsonl")) == 2
    assert kept.reader is not None
    assert kept.reader.cut.lost.rows == 1
    assert kept.reader.cut.by_place["reasoning"].supervised_ids == 7
    assert kept.reader.trains_on.ids == 10 + 10


def test_nothing_asked_for_means_nothing_cut_and_the_readers_own_window_foreseen(
    tmp_path: Path, kimi: Contract
) -> None:
    folder = train_set(tmp_path, kimi, [thinking("a", 4, 2, 2), thinking("b", 4, 700, 2)])
    report = run(folder, tmp_path / "out", Target.AXOLOTL)
    assert report.written.rows == 2
    assert report.reader is not None
    assert (report.reader.window, report.reader.dropped["too_long"].rows) == (512, 1)
    assert any("drop 1 row" in line for line in render_report(report))


def test_two_supervised_ids_for_the_dflash_family(tmp_path: Path, kimi: Contract) -> None:
    folder = train_set(tmp_path, kimi, [thinking("a", 4, 2, 2), thinking("b", 9, 2, 2)])
    one = run(folder, tmp_path / "one", Target.SPECFORGE, max_length=10)
    two = run(folder, tmp_path / "two", Target.SPECFORGE, max_length=10, algorithm=Algorithm.DFLASH)
    assert (one.written.rows, two.written.rows) == (2, 1)


def test_a_cap_of_tokens_takes_the_beginning_of_the_order(folder: Path, tmp_path: Path) -> None:
    rows = written(train_rows(folder))
    cap = sum(len(ids) for _, ids, _ in rows[:7]) + 1
    report = run(folder, tmp_path / "out", max_ids=cap)
    assert written(lines(tmp_path / "out/rows.jsonl")) == rows[:7]
    assert report.left_out["over_token_cap"].rows == 33
    assert report.written.ids == cap - 1


def test_a_row_that_does_not_fit_ends_the_export_even_if_a_later_one_would(tmp_path: Path, kimi: Contract) -> None:
    folder = train_set(tmp_path, kimi, varied(30))
    lengths = [len(ids) for _, ids, _ in written(train_rows(folder))]
    at = next(n for n in range(5, 29) if lengths[n] > lengths[n + 1])
    report = run(folder, tmp_path / "out", max_ids=sum(lengths[:at]) + lengths[at + 1])
    assert report.written.rows == at


# --- vocabulary ---------------------------------------------------------------------------------------


def test_the_draft_map_is_bound_to_the_rows_whatever_their_form(folder: Path, tmp_path: Path) -> None:
    one = run(folder, tmp_path / "one", Target.SPECFORGE, draft_vocab_size=64)
    two = run(folder, tmp_path / "two", Target.SPECULATORS, draft_vocab_size=64)
    assert one.draft_vocabulary == two.draft_vocabulary
    assert one.draft_vocabulary is not None
    assert one.draft_vocabulary.data_sha256 == one.data_sha256
    d2t = np.load(tmp_path / "two/d2t-64.npy")
    assert np.array_equal(d2t, np.load(tmp_path / "one/vocab/d2t.npy"))
    assert np.array_equal(np.flatnonzero(np.load(tmp_path / "two/t2d-64.npy")), d2t + np.arange(64))
    counted: dict[int, int] = {}
    for row in train_rows(folder):
        for i, m in zip(row["input_ids"], row["loss_mask"], strict=True):
            counted[i] = counted.get(i, 0) + m
    best = sorted(sorted((i for i in counted if counted[i]), key=lambda i: (-counted[i], i))[:64])
    assert (d2t + np.arange(64)).tolist() == best
    assert one.distinct_supervised == sum(1 for n in counted.values() if n)


def test_a_draft_vocabulary_that_is_too_large_is_filled_and_said(folder: Path, tmp_path: Path) -> None:
    report = run(folder, tmp_path / "out", draft_vocab_size=5_000)
    assert report.draft_vocabulary is not None
    assert report.draft_vocabulary.padded == 5_000 - report.draft_vocabulary.distinct > 0
    assert report.draft_vocabulary.covered_share == 1
    assert any("occur nowhere in these rows" in line for line in render_report(report))


def test_a_draft_vocabulary_needs_the_targets_size(folder: Path, tmp_path: Path) -> None:
    options = ExportOptions(target=Target.JSONL, draft_vocab_size=8)
    with pytest.raises(ConfigError, match=r"--target-vocab-size"):
        export(open_train_set(folder), tmp_path / "out", options)
    with pytest.raises(ConfigError, match=r"expected 1 to 163,840, found 163,841"):
        run(folder, tmp_path / "out", draft_vocab_size=163_841)


def test_the_validation_side_by_itself(tmp_path: Path, kimi: Contract) -> None:
    rows = varied(40)
    for row in rows:
        row["messages"] = json.dumps([{"role": "user", "content": row["sample_id"]}])
    folder = train_set(tmp_path, kimi, rows, validation_percent=25)
    reports = [
        export(open_train_set(folder, VOCAB, split), tmp_path / f"out-{split}", ExportOptions(target=Target.JSONL))
        for split in Split
    ]
    names = [{r["id"] for r in lines(tmp_path / f"out-{split}/rows.jsonl")} for split in Split]
    assert names[0] | names[1] == {f"B3/s{n}/0/0" for n in range(40)}
    assert not names[0] & names[1]
    assert names[1]
    assert [report.train_set.split for report in reports] == list(Split)


def test_a_set_without_a_validation_side(folder: Path) -> None:
    with pytest.raises(StoreError, match=r"expected validation rows to export, found none"):
        open_train_set(folder, VOCAB, Split.VALIDATION)


# --- what is refused ----------------------------------------------------------------------------------


def test_bytes_that_are_not_the_manifests_are_refused_and_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    run(folder, tmp_path / "out")
    before = bytes_of(tmp_path / "out")
    part = folder / "shards/part-00000.parquet"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(StoreError, match=r"expected the bytes that manifest.json states"):
        run(folder, tmp_path / "out")
    assert bytes_of(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"n_supervised": 1}, "an n_supervised that is not the number of ones"),
        ({"seq_len": 1}, "a seq_len that is not the number of ids"),
        ({"prompt_len": 1_000}, "a prompt_len beyond them"),
        (
            {"input_ids": [163_840], "loss_mask": [1], "prompt_len": 0, "seq_len": 1, "n_supervised": 1},
            "outside the voc",
        ),
        ({"input_ids": [-1], "loss_mask": [1], "prompt_len": 0, "seq_len": 1, "n_supervised": 1}, "outside the voc"),
        ({"input_ids": [1], "loss_mask": [2], "prompt_len": 0, "seq_len": 1, "n_supervised": 2}, "neither 0 nor 1"),
        ({"input_ids": [1], "loss_mask": [1, 0], "prompt_len": 0, "seq_len": 1, "n_supervised": 1}, "another length"),
        (
            {"input_ids": [1, None], "loss_mask": [1, 0], "prompt_len": 0, "seq_len": 2, "n_supervised": 1},
            "a null within",
        ),
    ],
)
def test_rows_that_cannot_be_are_refused(folder: Path, tmp_path: Path, change: dict[str, Any], found: str) -> None:
    rewrite(folder, change, at=5)
    with pytest.raises(StoreError, match=found):
        run(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_train_set_and_no_row(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"manifest.json"):
        open_train_set(tmp_path)
    with pytest.raises(StoreError, match=r"no row remains to be exported: 40 over_token_cap"):
        run(folder, tmp_path / "out", max_ids=1)
    (folder / "shards/part-00000.parquet").unlink()
    with pytest.raises(StoreError, match=r"part-00000.parquet"):
        run(folder, tmp_path / "out")


@pytest.mark.parametrize("target", sorted(TEXT_ONLY))
def test_tools_of_text_get_no_ids(folder: Path, tmp_path: Path, target: Target) -> None:
    with pytest.raises(ConfigError, match=r"takes text"):
        run(folder, tmp_path / "out", target)


# --- the folder ---------------------------------------------------------------------------------------

ID_TARGETS = sorted(set(Target) - TEXT_ONLY)


@pytest.mark.parametrize("target", ID_TARGETS)
def test_the_same_bytes_twice_and_the_report_names_every_file(folder: Path, tmp_path: Path, target: Target) -> None:
    report = run(folder, tmp_path / "one", target, draft_vocab_size=32, max_length=40)
    run(folder, tmp_path / "two", target, draft_vocab_size=32, max_length=40)
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    assert {file.path for file in report.files} | {REPORT_NAME} == set(bytes_of(tmp_path / "one"))
    told = json.loads((tmp_path / "one" / REPORT_NAME).read_text())
    assert told["written"] == {
        "rows": report.written.rows,
        "ids": report.written.ids,
        "supervised_ids": report.written.supervised_ids,
    }


def test_an_earlier_export_is_replaced_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    run(folder, tmp_path / "out", Target.SPECULATORS, draft_vocab_size=32)
    run(folder, tmp_path / "out", Target.SPECFORGE)
    assert set(bytes_of(tmp_path / "out")) == {"specforge.jsonl", REPORT_NAME}
    (tmp_path / "out/hidden_states").mkdir()
    (tmp_path / "out/hidden_states/0.safetensors").write_bytes(b"of a trainer")
    with pytest.raises(ConfigError, match=r"found hidden_states/0.safetensors"):
        run(folder, tmp_path / "out", Target.SPECFORGE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("of mine")
    with pytest.raises(ConfigError, match=r"they are left as they are"):
        run(folder, tmp_path / "mine")
    assert sorted(bytes_of(tmp_path / "mine")) == ["thesis.txt"]


def test_a_folder_that_only_claims_a_report(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for content in ("[]", "{", '{"tool": "another", "files": []}', '{"tool": "tokenproof", "files": 3}'):
        (out / REPORT_NAME).write_text(content)
        with pytest.raises(ConfigError, match=r"they are left as they are"):
            run(folder, out)


def test_killed_in_the_middle_there_is_nothing_of_that_name(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from toolkit.export import run, train_set, readers\n"
        "def advance(n): print('read', flush=True); sys.stdin.read()\n"
        "run.export(train_set.open_train_set(Path(sys.argv[1])), Path(sys.argv[2]),"
        " run.ExportOptions(target=readers.Target.SPECFORGE), advance=advance)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(tmp_path / "out")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == b"read\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    if child.stdin is not None:
        child.stdin.close()
    assert not (tmp_path / "out").exists()
    run(folder, tmp_path / "out", Target.SPECFORGE)
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".exporting")] == []


# --- forms --------------------------------------------------------------------------------------------


def arrow_rows(folder: Path) -> list[dict[str, Any]]:
    state = json.loads((folder / "state.json").read_text())
    rows = []
    for file in state["_data_files"]:
        with pa.OSFile(str(folder / file["filename"])) as source, pa.ipc.open_stream(source) as reader:
            rows += reader.read_all().to_pylist()
    return rows


def test_arrow_columns_of_each_reader(folder: Path, tmp_path: Path) -> None:
    expected = train_rows(folder)
    labels = [[i if m else -100 for i, m in zip(r["input_ids"], r["loss_mask"], strict=True)] for r in expected]
    for target in (Target.SPECULATORS, Target.TRL, Target.AXOLOTL, Target.LLAMAFACTORY):
        run(folder, tmp_path / target, target)
        rows = arrow_rows(tmp_path / target)
        assert [r["input_ids"] for r in rows] == [r["input_ids"] for r in expected]
        if target is Target.SPECULATORS:
            assert [r["loss_mask"] for r in rows] == [r["loss_mask"] for r in expected]
            assert [r["seq_len"] for r in rows] == [r["seq_len"] for r in expected]
        else:
            assert [r["labels"] for r in rows] == labels
    assert set(arrow_rows(tmp_path / "trl")[0]) == {"input_ids", "labels", "completion_mask"}
    assert set(arrow_rows(tmp_path / "axolotl")[0]) == {"input_ids", "labels", "attention_mask"}


def test_memory_is_foreseen(folder: Path, tmp_path: Path) -> None:
    report = run(folder, tmp_path / "out", Target.SPECFORGE)
    assert report.reader is not None
    assert report.reader.memory_bytes == int(report.reader.trains_on.ids * 48.5)


def test_reports_are_plain_lines(folder: Path, tmp_path: Path) -> None:
    report = run(folder, tmp_path / "out", Target.SPECFORGE, max_length=40)
    text = list(render_report(report))
    assert text[0].startswith("40 rows of 40 written for specforge") or "of 40 written" in text[0]
    assert all("\n" not in line for line in text)
