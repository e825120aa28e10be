"""`tokenproof screen`: near duplicates, and evaluation prompts among the rows."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from toolkit.vocabulary import Vocabulary

from .workspace import Command, batch_line, ids_of, write_lines, write_prompts

POEM = " ".join(f"word{i} and thing{i * 7}," for i in range(60))
QUESTION = "How many apples does Tom have left if he gives three of his twelve apples to his sister Anna?"


@pytest.fixture
def root(tmp_path: Path, run: Command, vocabulary: Vocabulary) -> Path:
    """Four answers: q1's is nearly q0's, q3's reasoning says an evaluation question."""
    write_prompts(tmp_path, "B3", 4)
    answers = {0: (" So.", POEM), 1: (" So.", POEM + " End."), 2: (" So.", " Four."), 3: (f" {QUESTION}", " Nine.")}
    lines = []
    for number, (reasoning, content) in answers.items():
        line = batch_line(vocabulary, number)
        body = line["response"]["body"]
        body["choices"][0]["message"] |= {"reasoning": reasoning, "content": content}
        body["usage"]["completion_tokens"] = len(ids_of(vocabulary, reasoning, content))
        lines.append(line)
    assert run("import", "B3", str(write_lines(tmp_path / "answers.jsonl", lines)), root=tmp_path).code == 0
    return tmp_path


def ids_in(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def test_near_duplicates_are_listed_and_can_be_discarded(run: Command, root: Path) -> None:
    outcome = run("screen", "B3", "--near-duplicates", "--format", "json", root=root)
    assert outcome.code == 0
    (found,) = json.loads(outcome.out)["screens"]
    assert (found["kind"], found["found"], found["compared"], found["same_prompt"]) == ("near-duplicates", 1, 2, 0)
    assert ids_in(found["ids"]) == ["q1"]
    assert pq.read_table(found["table"])["similarity"].to_pylist()[0] >= 0.8
    told = run("screen", "B3", "--near-duplicates", root=root).out
    assert "near-duplicates: 1 of 2 rows (50.00%)" in told
    discarded = run("discard", "B3", "--where", f"@{found['ids']}", "--reason", "near", root=root)
    assert (discarded.code, "discarded 1 of 4 rows" in discarded.out) == (0, True)


def test_rows_that_hold_an_evaluation_question(run: Command, root: Path) -> None:
    write_lines(root / "math.jsonl", [{"question": QUESTION, "answer": "9"}])
    (root / "more.txt").write_text("Name the capital of the country in which the river that the longest bridge of "
                                   "all spans flows into the sea.\n")  # fmt: skip
    words = ("screen", "B3", "--evaluation", str(root / "math.jsonl"), "--evaluation", str(root / "more.txt"))
    (found,) = json.loads(run(*words, "--format", "json", root=root).out)["screens"]
    assert (found["found"], found["compared"], ids_in(found["ids"])) == (1, 4, ["q3"])
    assert pq.read_table(found["table"]).select(["sample_id", "stretches"]).to_pylist() == [
        {"sample_id": "q3", "stretches": len(QUESTION.split()) - 12}
    ]
    assert run(*words, "--fail-above", "0.5", root=root).code == 0
    assert run(*words, "--fail-above", "0.1", root=root).code == 1


def test_a_limit_is_not_kept_by_rows_that_nobody_could_compare(
    run: Command, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    write_prompts(tmp_path, "B3", 1)
    lines = write_lines(tmp_path / "answers.jsonl", [batch_line(vocabulary, 0)])
    assert run("import", "B3", str(lines), root=tmp_path).code == 0
    words = ("screen", "B3", "--near-duplicates")
    assert run(*words, root=tmp_path).code == 0
    outcome = run(*words, "--fail-above", "0.1", root=tmp_path)
    assert (outcome.code, "0 of 0 rows" in outcome.out) == (3, True)


def test_an_earlier_list_does_not_outlive_its_rows(run: Command, root: Path) -> None:
    (found,) = json.loads(run("screen", "B3", "--near-duplicates", "--format", "json", root=root).out)["screens"]
    (root / "datasets" / "B3" / "shards" / "part-00000.parquet").unlink()
    outcome = run("screen", "B3", "--near-duplicates", root=root)
    assert (outcome.code, "missing" in outcome.err) == (3, True)
    assert not Path(found["ids"]).exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "expected --near-duplicates or --evaluation"),
        (["--evaluation", "none.jsonl"], 2, "none.jsonl"),
        (["--evaluation", "short.txt"], 2, "expected prompts of at least 13 words"),
        (["--near-duplicates", "--fail-above", "2"], 2, "--fail-above"),
    ],
)
def test_what_cannot_be_looked_for(
    run: Command, root: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, says: str
) -> None:
    (root / "short.txt").write_text("Too short.")
    monkeypatch.chdir(root)
    outcome = run("screen", "B3", *words, root=root)
    assert (outcome.code, says in outcome.err) == (code, True), outcome.err
