"""The CI examples: they are what those systems read, and their commands block a merge on a closed gate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

from .workspaces import Done, Shell, Workspaces, run_line

CI = ROOT / "examples/ci"


def load(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((CI / name).read_text(encoding="utf-8")))


def run_lines(lines: list[str], workspace: Path, here: Path) -> Done:
    """Run a job's lines as a runner does: one shell, ended by the first line that fails."""
    (here / "job.sh").write_text("set -e\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return run_line(f"WORKSPACE='{workspace}' sh ./job.sh", here)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    return folder


@pytest.fixture(params=["open", "closed"])
def gates(request: pytest.FixtureRequest, tmp_path: Path, workspaces: Workspaces) -> tuple[Path, int]:
    """(workspace, exit code of a job that audits all of it): with an open gate alone, or a closed one beside it."""
    workspace = workspaces.copy("answers", tmp_path / "workspace")
    if request.param == "open":
        shutil.rmtree(workspace / "datasets/B4")
    return workspace, 0 if request.param == "open" else 1


def merged(workspace: Path) -> int:
    """Rows of the train set; 0 where there is none."""
    manifest = workspace / "train/B3/manifest.json"
    return int(json.loads(manifest.read_text(encoding="utf-8"))["totals"]["written"]) if manifest.is_file() else 0


@pytest.mark.slow
def test_github_actions(gates: tuple[Path, int], here: Path) -> None:
    workspace, code = gates
    workflow = load("github-actions.yml")
    assert set(workflow[True]) == {"push", "workflow_dispatch"}  # YAML 1.1 reads `on` as true, and GitHub as a key
    assert workflow["env"] == {"WORKSPACE": "/data/workspace"}
    audit, merge = workflow["jobs"]["audit"], workflow["jobs"]["merge"]
    assert merge["needs"] == "audit"
    assert "if" not in merge
    first, *rest = audit["steps"]
    done = run_lines([first["run"]], workspace, here)
    assert done.code == code, done.output
    always = [step for step in rest if step.get("if") == "always()"]
    assert always == rest
    assert run_lines([step["run"] for step in always if "run" in step], workspace, here).code == 0
    assert (workspace / "reports/index.html").is_file()
    if done.code == 0:  # else the job `merge` is not started
        assert run_lines([step["run"] for step in merge["steps"]], workspace, here).code == 0
    assert merged(workspace) == (6 if code == 0 else 0)


@pytest.mark.slow
def test_gitlab_ci(gates: tuple[Path, int], here: Path) -> None:
    workspace, code = gates
    pipeline = load("gitlab-ci.yml")
    audit, merge = pipeline["audit"], pipeline["merge"]
    assert pipeline["stages"].index(audit["stage"]) < pipeline["stages"].index(merge["stage"])
    assert merge["needs"] == ["audit"]
    assert not audit.get("allow_failure")
    done = run_lines(audit["script"], workspace, here)
    assert done.code == code, done.output
    assert run_lines(audit["after_script"], workspace, here).code == 0
    assert audit["artifacts"]["when"] == "always"
    assert list(here.glob(audit["artifacts"]["reports"]["junit"]))
    if done.code == 0:
        assert run_lines(merge["script"], workspace, here).code == 0
    assert merged(workspace) == (6 if code == 0 else 0)


@pytest.mark.slow
def test_pre_commit(gates: tuple[Path, int], shell: Shell) -> None:
    workspace, code = gates
    (hook,) = load("pre-commit-config.yaml")["repos"][0]["hooks"]
    assert hook["stages"] == ["pre-push"]
    assert (hook["language"], hook["pass_filenames"], hook["always_run"]) == ("system", False, True)
    assert shell(hook["entry"], workspace).code == code


@pytest.mark.slow
def test_a_shell(gates: tuple[Path, int]) -> None:
    workspace, code = gates
    names = " ".join(sorted(path.name for path in (workspace / "datasets").iterdir()))
    done = run_line(f"'{CI / 'gate.sh'}' . train/B3 {names}", workspace)
    assert done.code == code, done.output
    assert merged(workspace) == (6 if code == 0 else 0)


def test_a_shell_wants_its_arguments(here: Path) -> None:
    assert run_line(f"'{CI / 'gate.sh'}'", here).code != 0
