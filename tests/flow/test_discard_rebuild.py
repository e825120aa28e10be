"""`discard` and `rebuild` as commands: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolkit.vocabulary import Vocabulary

from .workspace import Command, batch_line, write_lines, write_prompts


@pytest.fixture
def root(tmp_path: Path, run: Command, vocabulary: Vocabulary) -> Path:
    """Four imported answers of Chutes and Inceptron, q0 … q3, with their prompts."""
    lines = [batch_line(vocabulary, i, provider="Inceptron" if i % 2 else "Chutes") for i in range(4)]
    write_prompts(tmp_path, "B4_mixed", 5)
    assert run("import", "B4_mixed", str(write_lines(tmp_path / "batch.jsonl", lines)), root=tmp_path).code == 0
    return tmp_path


def test_rows_are_shown_discarded_listed_and_put_back(run: Command, root: Path):
    shown = run("discard", "B4", "--where", "provider=Chutes", "--dry-run", root=root)
    assert shown.code == 0
    assert shown.out.splitlines()[:2] == [
        "B4_mixed: would discard 2 of 4 rows",
        "  sample_id q0, turn 0, sample_index 0, source openrouter, provider Chutes, finish_reason stop",
    ]
    assert run("discard", "B4", "--list", root=root).out == "B4_mixed: nothing was discarded\n"
    done = run("discard", "B4", "--where", "provider=Chutes", "--reason", "trims \x1b[31mspaces", root=root)
    assert (done.code, done.out.splitlines()[0]) == (0, "B4_mixed: d1: discarded 2 of 4 rows")
    listed = run("discard", "B4", "--list", root=root).out
    assert "2 rows  discarded  by user  where provider=Chutes  trims" in listed
    assert "\x1b" not in listed
    (record,) = json.loads(run("discard", "B4", "--list", "--format", "json", root=root).out)["discards"]
    assert (record["id"], record["rows"], record["by"], record["where"]) == ("d1", 2, "user", "provider=Chutes")
    back = run("discard", "B4", "--undo", "d1", root=root)
    assert (back.code, back.out) == (0, "B4_mixed: 2 rows of d1 are back\n")
    assert run("discard", "B4", "--undo", "d1", root=root).code == 2


def test_ids_come_from_a_file(run: Command, root: Path, tmp_path: Path):
    ids = tmp_path / "ids.txt"
    ids.write_bytes("\ufeffq1\r\n\r\nq3\r\nnone\r\n".encode())
    done = run("discard", "B4", "--where", f"@{ids}", "--reason", "x", "--format", "json", root=root)
    answer = json.loads(done.out)
    assert (done.code, answer["dataset"], answer["rows"], answer["of"]) == (0, "B4_mixed", 2, 4)
    assert [example["sample_id"] for example in answer["examples"]] == ["q1", "q3"]
    missing = run("discard", "B4", "--where", f"@{tmp_path}/gone.txt", "--reason", "x", root=root)
    assert (missing.code, "cannot be read" in missing.err) == (2, True)


def test_where_nothing_matches_the_exit_code_says_so(run: Command, root: Path):
    for words in (("--reason", "x"), ("--dry-run",)):
        done = run("discard", "B4", "--where", "provider=Nobody", *words, root=root)
        assert done.code == 3
        assert done.out == "B4_mixed: none of 4 rows matches provider=Nobody; nothing was discarded\n"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--where", "provider=x"),
        ("--where", "provider=x", "--list", "--reason", "x"),
        ("--undo", "d1", "--reason", "x"),
        ("--list", "--dry-run"),
        ("--where", "provider", "--reason", "x"),
        ("--where", "provider=Chutes", "--reason", " "),
        ("--undo", "d9"),
    ],
)
def test_words_that_do_not_go_together_are_refused(run: Command, root: Path, words: tuple[str, ...]):
    done = run("discard", "B4", *words, root=root)
    assert (done.code, done.out) == (2, "")


def test_facts_choose_rows_after_an_audit(run: Command, root: Path):
    words = ("discard", "B4", "--where", "n_ids>0,text_equal=true", "--dry-run")
    before = run(*words, root=root)
    assert (before.code, "is not measured; run the audit first" in before.err) == (3, True)
    audited = run("audit", "B4", root=root)
    assert audited.code in (0, 1, 3), audited.err
    after = run(*words, root=root)
    assert after.out.splitlines()[:1] == ["B4_mixed: would discard 4 of 4 rows"], (audited.err, after.err)


def test_what_the_audit_kept_out_can_be_discarded(run: Command, root: Path):
    words = ("discard", "B4", "--where", "reason=evidence_given,provider=Inceptron", "--dry-run")
    assert (run(*words, root=root).code, "run the audit first" in run(*words, root=root).err) == (3, True)
    audited = run("audit", "B4", root=root)
    assert audited.code in (0, 1, 3), audited.err
    verdict = json.loads((root / "reports/B4_mixed/verdict.json").read_text())
    kept_out = run("discard", "B4", "--where", "quarantined=true", "--dry-run", "--format", "json", root=root)
    assert json.loads(kept_out.out)["rows"] == verdict["quarantined"]
    by_reason = run("discard", "B4", "--where", "reason=evidence_given", "--dry-run", "--format", "json", root=root)
    assert json.loads(by_reason.out)["rows"] == verdict["quarantined_by_reason"].get("evidence_given", 0)
    run("discard", "B4", "--where", "sample_id=q0", "--reason", "x", root=root)
    changed = run("discard", "B4", "--where", "quarantined=true", "--reason", "x", root=root)
    assert (changed.code, "other shards than those that are live; audit first" in changed.err) == (3, True)


def test_a_rebuild_says_what_became_of_the_rows_and_what_to_change(run: Command, root: Path):
    done = run("rebuild", "B4", root=root)
    assert done.code == 0
    assert done.out.splitlines()[0] == (
        "B4_mixed: 4 rows = 4 rebuilt under kimi-k2.5 + 0 failures; 0 have other ids than before"
    )
    source = Path(__file__).resolve().parents[2] / "toolkit/contracts/kimi-k2.5.toml"
    own = source.read_text(encoding="utf-8").replace('name = "kimi-k2.5"', 'name = "own"')
    (root / "contracts").mkdir()
    (root / "contracts" / "own.toml").write_text(own, encoding="utf-8")
    told = run("rebuild", "B4", "--contract", "own", root=root).out
    assert 'tokenproof.toml says contract = "kimi-k2.5" for B4_mixed: change it to "own"' in told
    answer = json.loads(run("rebuild", "B4", "--contract", "own", "--format", "json", root=root).out)
    assert (answer["contract_before"], answer["contract"], answer["rows"]) == ("own", "own", 4)
    assert run("rebuild", "B4", "--contract", "gpt-oss", root=root).code in (2, 3)
    assert json.loads(run("rebuild", "B4", "--contract", "own", "--format", "json", root=root).out)["rows"] == 4
