"""A prompt of another length than the provider counted: from the imported file through the audit to the train set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT
from toolkit.contract import Contract
from toolkit.prompt import PromptRenderer
from toolkit.vocabulary import Vocabulary

from .workspace import Command, batch_line, write_lines, write_prompts

pytestmark = pytest.mark.slow  # audits, and merges that prove their input again

ROWS, ODD = 60, 7
SUITE = "kimi-k2.5.json"


@pytest.fixture(scope="module")
def answers(kimi: Contract, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Good answers; that to one prompt says that the prompt had 40 ids more than it has."""
    renderer = PromptRenderer(kimi, vocabulary)
    lines = []
    for number in range(ROWS):
        prompt = renderer.render([{"role": "user", "content": f"Number {number}?"}], None, "thinking")
        line = batch_line(vocabulary, number)
        usage = line["response"]["body"]["usage"]
        usage["prompt_tokens"] = len(prompt.ids or ()) + (40 if number == ODD else 0)
        lines.append(line)
    return lines


def audited(run: Command, root: Path, answers: Sequence[dict[str, Any]]) -> None:
    write_prompts(root, "B3", ROWS)
    assert run("import", "B3", str(write_lines(root / "answers.jsonl", list(answers))), root=root).code == 0
    done = run("audit", "B3", root=root)
    assert done.code == 0, done.out + done.err


def merged(run: Command, root: Path, *options: str) -> dict[str, Any]:
    """The manifest's totals of a merge."""
    done = run("merge", "B3", "-o", str(root / "train"), "--format", "json", *options, root=root)
    assert done.code == 0, done.out + done.err
    totals: dict[str, Any] = json.loads(done.out)["totals"]
    return totals


def dropped(totals: dict[str, Any]) -> dict[str, int]:
    return {reason: rows for reason, rows in totals["dropped"].items() if rows}


def names(root: Path) -> set[str]:
    parts = (root / "train/shards").iterdir()
    return {name for part in parts for name in pq.read_table(part, columns=["id"])["id"].to_pylist()}


def test_the_shipped_suite_puts_an_answer_to_another_prompt_in_quarantine(
    run: Command, answers: list[dict[str, Any]], tmp_path: Path
) -> None:
    audited(run, tmp_path, answers)
    totals = merged(run, tmp_path, "--contradicted-prompts", "keep")
    assert dropped(totals) == {"quarantined": 1}
    assert totals["quarantined_by_expectation"] == {"prompt_same": 1}
    assert f"B3/q{ODD}/0/0" not in names(tmp_path)


def test_merge_leaves_it_out_where_no_suite_asks_unless_it_is_to_be_kept(
    run: Command, answers: list[dict[str, Any]], tmp_path: Path
) -> None:
    suite = json.loads((ROOT / "expectations" / SUITE).read_text(encoding="utf-8"))
    about_prompts = [e for e in suite["expectations"] if e["kwargs"].get("column") == "prompt_evidence"]
    suite["expectations"] = [e for e in suite["expectations"] if e not in about_prompts]
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations" / SUITE).write_text(json.dumps(suite), encoding="utf-8")
    audited(run, tmp_path, answers)

    assert dropped(merged(run, tmp_path)) == {"prompt_contradicted": 1}
    assert names(tmp_path) == {f"B3/q{number}/0/0" for number in range(ROWS) if number != ODD}

    assert dropped(merged(run, tmp_path, "--contradicted-prompts", "keep")) == {}
    assert f"B3/q{ODD}/0/0" in names(tmp_path)
