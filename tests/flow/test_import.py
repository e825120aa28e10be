"""`tokenproof import` as a user types it: what it says, and how it ends."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from toolkit.vocabulary import Vocabulary

from .workspace import Command, batch_line, write_lines, write_prompts


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def test_the_summary_adds_up_and_says_what_is_to_be_done(root: Path, run: Command, vocabulary: Vocabulary) -> None:
    lines: list[Any] = [batch_line(vocabulary, i) for i in range(3)]
    lines += [batch_line(vocabulary, 0, id="gen-other"), batch_line(vocabulary, 9, provider=None), [1]]
    file = str(write_lines(root / "batch.jsonl", lines))
    first = run("import", "B3", file, root=root)
    assert first.code == 0, first.err
    said = first.out.splitlines()
    assert said[0] == "B3: 6 lines = 4 rows + 2 failures + 0 already there"
    assert "  failures: 1 id_conflict, 1 line_invalid" in said
    assert "  source openrouter: 3 rows (the reply names its provider)" in said
    assert "  source openai: 1 row (nothing in the line says; --source NAME sets it)" in said
    assert "  assumed, as the line states none: mode thinking (4)" in said
    assert any("the prompt of 4 rows is not known" in line for line in said)
    assert "import into B3: 6 of 6" in first.err
    write_prompts(root, "B3", 3)
    again = run("import", "B3", file, root=root)
    assert again.out.splitlines()[0] == "B3: 6 lines = 0 rows + 3 replaced + 2 failures + 1 already there"
    machine = json.loads(run("import", "B3", file, "--format", "json", root=root).out)
    assert (machine["lines"], machine["rows"], machine["replaced"]) == (6, 0, 0)
    assert (machine["failures"], machine["already_there"], machine["prompt_unknown"]) == (2, 4, 1)
    named = run("import", "B3", file, "--source", "vllm", root=root)
    assert "some were made with other options (1 source); they stay as they were; --replace makes them" in named.out
    assert "1 replaced" in run("import", "B3", file, "--source", "vllm", "--replace", root=root).out


def test_corrected_answers_are_refused_and_said_or_taken(root: Path, run: Command, vocabulary: Vocabulary) -> None:
    old = write_lines(root / "batch.jsonl", [batch_line(vocabulary, i) for i in range(2)])
    new = write_lines(root / "new.jsonl", [batch_line(vocabulary, i, id="gen-new") for i in range(2)])
    assert run("import", "B3", str(old), root=root).code == 0
    refused = run("import", "B3", str(new), root=root)
    assert refused.code == 3
    assert "  2 lines answer prompts that have another answer: --replace takes the new ones" in refused.out.splitlines()
    assert "B3: warning: 2 of 2 lines gave no row; see " in refused.err
    some = run("import", "B3", str(old), str(new), "--format", "json", root=root)
    assert (some.code, json.loads(some.out)["failures"], "2 of 4 lines gave no row" in some.err) == (0, 2, True)
    taken = run("import", "B3", str(new), "--replace", root=root)
    assert (taken.code, "warning: 2 of" in taken.err) == (0, False)
    assert taken.out.splitlines()[0] == "B3: 2 lines = 0 rows + 2 replaced + 0 failures + 0 already there"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf\r\n"])
def test_nothing_to_import(root: Path, run: Command, content: bytes) -> None:
    file = root / "empty.jsonl"
    file.write_bytes(content)
    outcome = run("import", "B3", str(file), root=root)
    assert outcome.code == 3
    assert "empty.jsonl: expected JSON lines, found none" in outcome.err
    assert not (root / "datasets").exists()


def test_what_is_no_file_of_lines(root: Path, run: Command) -> None:
    os.mkfifo(root / "pipe")
    (root / "packed.gz").write_bytes(gzip.compress(b"{}"))
    for name, says in (("pipe", "regular file"), ("packed.gz", "gzip"), ("none", "No such file"), ("", "directory")):
        outcome = run("import", "B3", str(root / name), root=root)
        assert outcome.code == 2, name
        assert says in outcome.err
    assert not (root / "datasets").exists()


@pytest.mark.parametrize(("option", "value"), [("--source", "OpenRouter"), ("--mode", "slow")])
def test_options_that_no_row_could_bear(root: Path, run: Command, option: str, value: str) -> None:
    file = write_lines(root / "lines.jsonl", [{"sample_id": "a", "content": "x"}])
    outcome = run("import", "B3", str(file), option, value, root=root)
    assert outcome.code == 2
    assert value in outcome.err
    assert not (root / "datasets").exists()


def test_a_name_in_shards_json_that_only_looks_like_a_number(root: Path, run: Command, vocabulary: Vocabulary) -> None:
    file = str(write_lines(root / "batch.jsonl", [batch_line(vocabulary, 0)]))
    assert run("import", "B3", file, root=root).code == 0
    live = root / "datasets/B3/shards.json"
    live.write_text(live.read_text(encoding="utf-8").replace("part-00000", "part-²"), encoding="utf-8")
    outcome = run("import", "B3", file, root=root)
    assert outcome.code == 3
    assert "expected shards/part-*.parquet, found 'shards/part-².parquet'" in outcome.err
    assert "Traceback" not in outcome.err
