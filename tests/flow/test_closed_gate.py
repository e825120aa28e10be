"""What `merge` says when it refuses, and what `audit` leaves when it fails, as a user meets it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolkit.audit.suite import shipped_suite
from toolkit.vocabulary import Vocabulary

from .workspace import Command, batch_line, write_lines, write_prompts

ROWS = 60


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """A workspace with an imported dataset of 60 good rows, not audited."""
    from toolkit.importing import ImportOptions, import_files
    from toolkit.store.workspace import Workspace

    root = tmp_path_factory.mktemp("closed")
    for name in ("B3", "B4"):
        write_prompts(root, name, ROWS)
        file = write_lines(root / "batch.jsonl", [batch_line(vocabulary, i) for i in range(ROWS)])
        import_files(Workspace(root).dataset_named(name), [file], vocabulary.contract, vocabulary, ImportOptions())
    return root


@pytest.fixture
def root(audited: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(audited, tmp_path / "w"))


def settings(root: Path, text: str) -> None:
    (root / "tokenproof.toml").write_text(text, encoding="utf-8")


def merge(run: Command, root: Path, *names: str, code: int) -> dict[str, Any]:
    outcome = run("merge", *(names or ("B3",)), "-o", str(root / "train"), "--format", "json", root=root)
    assert outcome.code == code, outcome.out + outcome.err
    assert (root / "train").exists() == (code == 0)
    answer: dict[str, Any] = json.loads(outcome.out)
    return answer


def test_every_reason_of_every_dataset_and_the_commands_that_help(root: Path, run: Command) -> None:
    assert run("audit", "B4", root=root).code == 0
    write_prompts(root, "B4", ROWS + 1)
    refused = merge(run, root, "B3", "B4", code=1)
    assert (refused["error"], refused["exit_code"]) == ("GateClosed", 1)
    assert [(d["dataset"], d["next"]) for d in refused["datasets"]] == [
        ("B3", [f"tokenproof audit B3 --root {root}"]),
        ("B4", [f"tokenproof audit B4 --root {root}"]),
    ]
    (missing,), (changed,) = (d["reasons"] for d in refused["datasets"])
    assert missing.endswith("verdict.json: missing; run the audit first")
    assert changed == "prompts.jsonl was changed since the audit; audit again"
    assert refused["reasons"] == [missing, changed]
    told = run("merge", "B3", "B4", "-o", str(root / "train"), root=root)
    assert (told.code, told.out) == (1, "")
    assert f"B3: the gate is closed:\n  - {missing}\n  next: tokenproof audit B3" in told.err
    assert f"B4: the gate is closed:\n  - {changed}\n  next: tokenproof audit B4" in told.err


def test_an_allow_list_that_was_changed_after_the_audit(root: Path, run: Command) -> None:
    settings(root, '[datasets.B3]\nproviders = ["Chutes"]\n')
    assert run("audit", "B3", root=root).code == 0
    settings(root, '[datasets.B3]\nproviders = ["Avian"]\n')
    (reason,) = merge(run, root, code=1)["reasons"]
    assert reason.startswith("the list of allowed providers was changed since the audit: it was Chutes, it is Avian")
    assert run("audit", "B3", root=root).code == 1
    settings(root, '[datasets.B3]\nproviders = ["Chutes"]\n')
    assert run("audit", "B3", root=root).code == 0
    merge(run, root, code=0)


def test_an_edited_warning_is_found(root: Path, run: Command) -> None:
    assert run("audit", "B3", root=root).code == 0
    path = root / "reports/B3/verdict.json"
    verdict = json.loads(path.read_text(encoding="utf-8"))
    found = {r["id"]: r for r in verdict["suites"][0]["results"]}
    found["mostly_whole"]["observed"] = "0.4"
    path.write_text(json.dumps(verdict), encoding="utf-8")
    (reason,) = merge(run, root, code=1)["reasons"]
    assert reason.startswith("mostly_whole: the verdict says that it holds (found 0.4")


def test_suites_of_one_name_from_two_folders(root: Path, run: Command) -> None:
    shipped = shipped_suite("kimi-k2.5").read_text(encoding="utf-8")
    for folder in ("a", "b"):
        (root / folder).mkdir()
        (root / folder / "x.json").write_text(shipped + " " * (folder == "b"), encoding="utf-8")
    settings(root, '[datasets.B3]\nsuites = ["a/x.json", "b/x.json"]\n')
    assert run("audit", "B3", root=root).code == 0
    verdict = json.loads((root / "reports/B3/verdict.json").read_text(encoding="utf-8"))
    assert [run["path"] for run in verdict["suites"]] == ["a/x.json", "b/x.json"]
    manifest = merge(run, root, code=0)
    assert [suite["path"] for suite in manifest["inputs"][0]["suites"]] == ["a/x.json", "b/x.json"]


def test_a_suite_that_takes_the_place_of_the_shipped_one_is_told(root: Path, run: Command) -> None:
    own = root / "expectations/kimi-k2.5.json"
    own.parent.mkdir()
    own.write_bytes(shipped_suite("kimi-k2.5").read_bytes() + b"\n")
    assert run("audit", "B3", root=root).code == 0
    suite, _providers = json.loads((root / "reports/B3/verdict.json").read_text(encoding="utf-8"))["suites"]
    assert (suite["path"], suite["standing"]) == ("expectations/kimi-k2.5.json", "edited")


@pytest.mark.parametrize("name", ["index.html", "junit.xml", "summary.md", "quarantine.parquet"])
def test_where_a_report_cannot_be_written_there_is_no_verdict(root: Path, run: Command, name: str) -> None:
    assert run("audit", "B3", root=root).code == 0
    in_the_way = root / "reports/B3" / name
    in_the_way.unlink()
    (in_the_way / "something").mkdir(parents=True)
    outcome = run("audit", "B3", root=root)
    assert outcome.code == 3
    assert name in outcome.err
    assert not (root / "reports/B3/verdict.json").exists()
    (reason,) = merge(run, root, code=1)["reasons"]
    assert reason.endswith("verdict.json: missing; run the audit first")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [cut, Path.unlink])
def test_a_shard_that_cannot_be_read_is_one_reason(root: Path, run: Command, damage: Callable[[Path], None]) -> None:
    damage(root / "datasets/B3/shards/part-00000.parquet")
    outcome = run("audit", "B3", "--format", "json", root=root)
    assert outcome.code == 3
    verdict = json.loads(outcome.out)
    (reason,) = verdict["reasons"]
    assert reason.startswith("unreadable: B3/shards/part-00000.parquet: ")
    reasons = merge(run, root, code=1)["reasons"]
    assert len([said for said in reasons if "part-00000.parquet" in said]) == 1


def test_facts_that_were_altered_are_measured_again_with_a_word(root: Path, run: Command) -> None:
    assert run("audit", "B3", root=root).code == 0
    (facts,) = (root / "datasets/B3/facts").glob("*.parquet")
    cut(facts)
    outcome = run("audit", "B3", root=root)
    assert outcome.code == 0
    assert f"B3: facts/{facts.name}: expected sha256" in outcome.err
    assert "measured again" in outcome.err
    assert "measured again" not in run("audit", "B3", root=root).err


def test_one_row_without_its_provider_is_left_out(root: Path, run: Command, vocabulary: Vocabulary) -> None:
    line = batch_line(vocabulary, 0, provider=None)
    line["custom_id"] = "nameless"
    file = write_lines(root / "one.jsonl", [line])
    assert run("import", "B3", str(file), "--source", "openrouter", root=root).code == 0
    outcome = run("audit", "B3", "--format", "json", root=root)
    assert outcome.code == 0, json.loads(outcome.out)["reasons"]
    assert json.loads(outcome.out)["quarantined_by_reason"] == {"provider_named": 1}
    manifest = merge(run, root, code=0)
    assert manifest["totals"]["dropped"]["quarantined"] == 1


def test_the_commands_that_a_closed_gate_names_exist(root: Path, run: Command) -> None:
    for command in ("generate", "audit"):
        assert run(command, "--help", root=root).code == 0
