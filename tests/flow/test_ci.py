"""What CI runs: all datasets with one exit code, warnings that count, GitHub's annotations and summary, diff, index."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from rich.cells import cell_len

from tests.conftest import ROOT
from tests.report.builder import failing_verdict
from tests.report.test_html import Page
from toolkit.cli.ci import show_on_github, worst
from toolkit.vocabulary import Vocabulary

from .workspace import Command, batch_line, write_lines, write_prompts

pytestmark = pytest.mark.slow  # three datasets are audited, each with all of its suites

ROWS = 6


def good(vocabulary: Vocabulary, number: int) -> dict[str, Any]:
    return batch_line(vocabulary, number)


def miscounted(vocabulary: Vocabulary, number: int) -> dict[str, Any]:
    """A count that no way of counting explains: the rows are contradicted, and the gate closes."""
    line = batch_line(vocabulary, number)
    line["response"]["body"]["usage"]["completion_tokens"] += 5
    return line


def warned(vocabulary: Vocabulary, number: int) -> dict[str, Any]:
    """An answer that holds a character which nobody could decode: shown, and let through."""
    line = batch_line(vocabulary, number)
    message = line["response"]["body"]["choices"][0]["message"]
    message["content"] += " \ufffd"
    extra = len(vocabulary.encode_ordinary(message["content"])) - len(
        vocabulary.encode_ordinary(message["content"].removesuffix(" \ufffd"))
    )
    line["response"]["body"]["usage"]["completion_tokens"] += extra
    return line


DATASETS = {"B3": good, "B4": miscounted, "B5": warned}


def tokenproof(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as CI runs it: nothing in the environment speaks of GitHub unless given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    return subprocess.run(
        [sys.executable, "-m", "toolkit", *words],
        env={**inherited, "COLUMNS": "80", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass(frozen=True, slots=True)
class Audited:
    """A workspace of three datasets after `audit --all` on a runner of GitHub, and what that said."""

    root: Path
    done: subprocess.CompletedProcess[str]
    summary: str


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Audited:
    root = tmp_path_factory.mktemp("ci")
    for name, line in DATASETS.items():
        write_prompts(root, name, ROWS)
        answers = write_lines(root / f"{name}.jsonl", [line(vocabulary, n) for n in range(ROWS)])
        done = tokenproof("import", name, str(answers), "--root", str(root))
        assert done.returncode == 0, done.stderr
    summary = root / "summary of the step.md"
    done = tokenproof("audit", "--all", "--root", str(root), GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary))
    return Audited(root, done, summary.read_text(encoding="utf-8"))


@pytest.fixture
def root(audited: Audited, tmp_path: Path) -> Path:
    """A copy of that workspace."""
    return shutil.copytree(audited.root, tmp_path / "ws")


def verdict_of(root: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((root / "reports" / name / "verdict.json").read_text(encoding="utf-8")))


def test_one_exit_code_for_all_and_every_report_is_written(audited: Audited) -> None:
    assert audited.done.returncode == 1, audited.done.stderr
    table = [line.split() for line in audited.done.stdout.rstrip().split("\n")[-3:]]
    assert table == [
        ["PASSED", "B3", "6", "0", "0"],
        ["GATE", "CLOSED", "B4", "6", "6", "1"],
        ["PASSED", "B5", "6", "0", "0"],
    ]
    assert "2 of 3 datasets passed" in audited.done.stdout
    for name in DATASETS:
        assert {path.name for path in (audited.root / "reports" / name).iterdir()} >= {
            "verdict.json", "index.html", "junit.xml", "summary.md", "quarantine.parquet",
        }  # fmt: skip


def test_github_is_told(audited: Audited) -> None:
    commands = [line for line in audited.done.stderr.split("\n") if line.startswith("::")]
    errors = [line for line in commands if line.startswith("::error")]
    assert all(line.startswith("::error title=B4%3A GATE CLOSED%3A may not be merged::") for line in errors)
    assert 0 < len(errors) <= 10
    assert any(line.startswith("::warning title=B5%3A warning::replacement_absent") for line in commands)
    assert not any(line.lstrip().startswith("::") for line in audited.done.stdout.split("\n"))
    headings = [line for line in audited.summary.split("\n") if line.startswith("## ")]
    passed, closed = "## ✅ PASSED: may be merged", "## ⛔ GATE CLOSED: may not be merged"
    assert headings == [passed, closed, passed]


def test_what_is_piped_is_plain_and_80_columns_wide(audited: Audited) -> None:
    assert "\x1b" not in audited.done.stdout + audited.done.stderr
    lines = audited.done.stdout.split("\n")
    assert [line for line in lines if cell_len(line) > 80] == []


def test_one_that_cannot_be_audited_keeps_no_other_from_it(root: Path, run: Command) -> None:
    for name in ("B4", "B5"):
        shutil.rmtree(root / "datasets" / name)
    write_prompts(root, "B6", 1)
    (root / "datasets/B7").mkdir()
    (root / "tokenproof.toml").write_text('[datasets.B7]\ncontract = "nothing-like-it"\n', encoding="utf-8")
    done = run("audit", "--all", "--format", "json", root=root)
    found = json.loads(done.out)
    assert (done.code, found["exit_code"]) == (2, 2)
    assert [(one["dataset"], one["exit_code"]) for one in found["datasets"]] == [("B3", 0), ("B6", 3), ("B7", 2)]
    assert found["datasets"][0]["verdict"]["passed"] is True
    assert "B6: no shards" in found["datasets"][1]["problem"]
    assert "B7: " in done.err


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 0), 0), ((0, 1), 1), ((1, 3, 0), 3), ((3, 2, 1), 2), ((), 3), ((0, 7), 3)]
)
def test_the_worst_exit_code_is_that_of_all(codes: tuple[int, ...], expected: int) -> None:
    assert worst(codes) == expected


def test_one_name_or_all_and_something_to_audit(tmp_path: Path, run: Command) -> None:
    for words, says in (((), "missing argument 'name'"), (("B3", "--all"), "expected a name or --all, found both")):
        done = run("audit", *words, root=tmp_path)
        assert done.code == 2
        assert f"audit: {says}; see tokenproof audit --help (--all audits all datasets)" in done.err
    done = run("audit", "--all", root=tmp_path)
    assert done.code == 2
    assert "datasets: expected a folder for each dataset, found none" in done.err


def test_warnings_close_the_exit_code_where_that_is_asked_for(root: Path, run: Command) -> None:
    done = run("audit", "B5", "--fail-on", "warning", root=root)
    assert done.code == 1
    assert re.search(r"B5: \d+ warnings?, so --fail-on warning ends with exit code 1; the verdict stands", done.err)
    assert verdict_of(root, "B5")["passed"]


def test_a_refused_merge_is_told_too(root: Path, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = root / "merge.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = run("merge", "B4", "-o", str(root / "train"), root=root)
    assert done.code == 1
    lines = [line for line in done.err.splitlines() if line.startswith("::error title=B4%3A not merged::")]
    assert lines
    assert len(set(lines)) == len(lines), "each reason is told once"
    assert summary.read_text(encoding="utf-8").startswith("## ⛔ `B4`: not merged\n")
    assert summary.read_text(encoding="utf-8").count("not merged") == 1


def test_a_summary_never_grows_beyond_what_github_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for _ in range(400):
        show_on_github(failing_verdict())
    assert 890_000 < summary.stat().st_size <= 900_000
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    show_on_github(failing_verdict())
    assert f"GITHUB_STEP_SUMMARY {tmp_path}: cannot be written" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "pipe"))
    show_on_github(failing_verdict())
    assert "cannot be written" in capsys.readouterr().err


def test_nothing_is_said_to_github_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    show_on_github(failing_verdict())
    assert capsys.readouterr() == ("", "")


def test_diff_says_what_got_worse(root: Path, run: Command) -> None:
    same = run("diff", "B3", "--against", str(root / "reports/B3/verdict.json"), root=root)
    assert (same.code, same.out.split("\n")[0]) == (0, "THE SAME")
    done = run("diff", "B4", "--against", str(root / "reports/B3"), root=root)
    assert done.code == 1
    assert "✗ gate: PASSED: may be merged → GATE CLOSED: may not be merged" in done.out
    assert "\x1b" not in done.out
    assert run("diff", "B3", "--against", str(root / "reports/B4"), root=root).code == 0


def test_diff_goes_by_the_audit_before_the_last_where_nothing_is_named(root: Path, run: Command) -> None:
    done = run("diff", "B4", root=root)
    assert done.code == 2
    assert "no audit before the last one is kept" in done.err
    shutil.copy(root / "reports/B3/verdict.json", root / "reports/B4/previous.json")
    done = run("diff", "B4", "--format", "json", root=root)
    found = json.loads(done.out)
    assert done.code == 1
    assert found["worse"] == len([change for change in found["changes"] if change["direction"] == "worse"]) > 3
    quarantined = next(change for change in found["changes"] if change["name"] == "quarantined")
    assert (quarantined["before"], quarantined["after"]) == (0.0, 1.0)


def test_diff_refuses_what_is_no_verdict(root: Path, run: Command) -> None:
    assert run("diff", "B3", "--against", str(root / "none.json"), root=root).code == 2
    (root / "old.json").write_text('{"version": 1}', encoding="utf-8")
    done = run("diff", "B3", "--against", str(root / "old.json"), root=root)
    assert done.code == 3
    assert "expected verdict version" in done.err


def test_index_shows_every_gate(root: Path, run: Command) -> None:
    write_prompts(root, "B6 x", 1)
    done = run("index", root=root)
    assert done.code == 0
    assert done.out.startswith("2 of 4 datasets may be merged\n")
    page = Page((root / "reports/index.html").read_text(encoding="utf-8"))
    assert page.values("href") == ["B3/index.html", "B4/index.html", "B5/index.html"]
    assert [word in page.text for word in ("OPEN", "CLOSED", "NOT AUDITED")] == [True] * 3
    found = json.loads(run("index", "--format", "json", root=root).out)
    assert [one["gate"] for one in found["datasets"]] == ["passed", "closed", "passed", "none"]
    (root / "datasets/B3/shards.json").write_text("{", encoding="utf-8")
    assert run("index", root=root).code == 3


def test_the_verdict_is_what_its_published_schema_says(audited: Audited) -> None:
    schema = json.loads(tokenproof("schema", "verdict").stdout)
    for name in DATASETS:
        jsonschema_rs.validate(schema, verdict_of(audited.root, name))
    assert tokenproof("schema").stdout.split() == ["verdict"]
    assert tokenproof("schema", "nothing").returncode == 2
