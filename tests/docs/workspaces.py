"""Workspaces that the pages' commands are run in, and how a command is run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.flow.test_ci import good, miscounted
from tests.flow.workspace import write_lines, write_prompts
from toolkit.cli import main
from toolkit.vocabulary import Vocabulary

_FILE = re.compile(r"^```json ([\w./-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OURS = ("tokenproof", "audit")
_SHELL_ONLY = re.compile(r"[|&;<>$*?(){}~`\\]")
"""What only a shell understands."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left: its exit code, and all that it printed."""

    code: int
    output: str


Shell = Callable[[str, Path], Done]


def run_line(line: str, here: Path) -> Done:
    """Run one line in a shell in which our commands are found."""
    bin_folder = Path(sys.executable).parent
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "COLUMNS"))}
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=here,
        env={**inherited, "PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return Done(done.returncode, done.stdout + done.stderr)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    """Runs a line as `run_line` does; a plain command of ours in this process, where its libraries are loaded."""
    for name in [name for name in os.environ if name.startswith("GITHUB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")

    def run(line: str, here: Path) -> Done:
        if _SHELL_ONLY.search(line) or line.split(" ")[0] not in _OURS:
            return run_line(line, here)
        words = shlex.split(line)
        monkeypatch.chdir(here)
        monkeypatch.setattr(sys, "argv", ["tokenproof", *(words if words[0] == "audit" else words[1:])])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfd.readouterr()
        return Done(int(ended.value.code or 0), captured.out + captured.err)

    return run


def must(line: str, here: Path, code: int = 0) -> None:
    """Run a line that has to end so."""
    done = run_line(line, here)
    assert done.code == code, f"{line}\n{done.output}"


def empty(here: Path, _: Vocabulary) -> None:
    """Nothing."""


def readme(here: Path, _: Vocabulary) -> None:
    """The files of the README: prompts and answers in three forms."""
    for name, text in _FILE.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def answers(here: Path, vocabulary: Vocabulary) -> None:
    """B3 with six answers in which nothing is wrong, B4 with six whose counts nobody can explain; not audited."""
    for name, line in (("B3", good), ("B4", miscounted)):
        write_prompts(here, name, 6)
        write_lines(here / f"{name}.jsonl", [line(vocabulary, number) for number in range(6)])
        must(f"tokenproof import {name} {name}.jsonl", here)


def passed(here: Path, vocabulary: Vocabulary) -> None:
    """`answers` without B4, audited."""
    write_prompts(here, "B3", 6)
    write_lines(here / "B3.jsonl", [good(vocabulary, number) for number in range(6)])
    must("tokenproof import B3 B3.jsonl", here)
    must("audit B3", here)


MADE: dict[str, Callable[[Path, Vocabulary], None]] = {
    "empty": empty, "readme": readme, "answers": answers, "passed": passed,
}  # fmt: skip


class Workspaces:
    """Templates of workspaces, each made once; `copy` gives one away."""

    def __init__(self, folder: Path, vocabulary: Vocabulary):
        self._folder = folder
        self._vocabulary = vocabulary

    def copy(self, name: str, to: Path) -> Path:
        """A fresh workspace of that name in the folder `to`."""
        template = self._folder / name
        if not template.is_dir():
            template.mkdir(parents=True)
            MADE[name](template, self._vocabulary)
        return Path(shutil.copytree(template, to))


@pytest.fixture(scope="session")
def workspaces(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Workspaces:
    return Workspaces(tmp_path_factory.mktemp("templates"), vocabulary)
