"""The README as a new user follows it: its files, its commands in order, and what it says about them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from toolkit.config import parse_settings
from toolkit.records import Evidence

from .workspace import Command

README = (ROOT / "README.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT_CODE = re.compile(r"\s*# exit code (\d)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, what stands behind it (a file to write, or `online`), and its lines."""

    language: str
    about: str
    text: str


BLOCKS = [Block(*(part or "" for part in found)) for found in _BLOCK.findall(README)]


def commands() -> list[tuple[str, int]]:
    """(command line, exit code that it is said to have) of all blocks that need no network."""
    found = []
    for block in BLOCKS:
        if block.language == "sh" and block.about != "online":
            for line in block.text.splitlines():
                code = _EXIT_CODE.search(line)
                found.append((_EXIT_CODE.sub("", line), int(code[1]) if code else 0))
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the README's files."""
    for block in BLOCKS:
        if block.language == "json":
            path = tmp_path / block.about
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def follow(line: str, run: Command, here: Path) -> tuple[int, str]:
    """Run one line as it stands: our commands in this process, others in a shell. Exit code and all that was said."""
    words = shlex.split(line)
    if words[0] not in ("tokenproof", "audit"):
        done = subprocess.run(["sh", "-c", line], cwd=here, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    outcome = run(*(words if words[0] == "audit" else words[1:]), root=here)
    return outcome.code, outcome.out + outcome.err


def test_every_command_does_what_the_readme_says(here: Path, run: Command) -> None:
    lines = commands()
    assert sum(line.startswith(("tokenproof", "audit")) for line, _ in lines) >= 8
    verdicts = []
    for line, code in lines:
        found, said = follow(line, run, here)
        assert found == code, f"{line}\n{said}"
        if line.startswith("audit"):
            verdicts.append(json.loads((here / "reports/B3/verdict.json").read_text(encoding="utf-8")))
    first, damaged, last = verdicts
    assert (first["rows"], first["evidence"]) == (4, {"engine": 1, "counted": 3})
    assert first["left_out"] == {}
    assert "unreadable" in damaged["reasons"][0]
    assert last["passed"]
    assert json.loads((here / "train/B3/manifest.json").read_text(encoding="utf-8"))["totals"]["written"] == 4


def test_prompts_may_come_later_and_one_without_an_answer_is_named(here: Path, run: Command) -> None:
    prompts = here / "datasets/B3/prompts.jsonl"
    content = prompts.read_text(encoding="utf-8")
    prompts.unlink()
    again = commands()[0][0]
    assert follow(again, run, here)[0] == 0
    prompts.write_text(f'{content}{{"id": "q9", "messages": [{{"role": "user", "content": "?"}}]}}\n', encoding="utf-8")
    assert follow(again, run, here)[0] == 0
    code, said = follow("audit B3", run, here)
    assert code == 3
    assert "1 of 5 answers is missing: q9" in said
    assert "tokenproof generate B3" in said
    assert json.loads((here / "reports/B3/verdict.json").read_text(encoding="utf-8"))["left_out"] == {}


def test_every_kind_of_evidence_is_explained() -> None:
    for kind in Evidence:
        assert f"| `{kind}` |" in README


def test_settings_in_the_readme_are_settings() -> None:
    blocks = [parse_settings(block.text.encode(), "README.md") for block in BLOCKS if block.language == "toml"]
    assert blocks[0].endpoints["vllm"].ids == "require"
    assert blocks[0].datasets["B3"].turns == "every"
    assert blocks[-1].datasets["B4"].contract == "NAME"


def test_expectations_that_the_readme_names_exist() -> None:
    suite = (ROOT / "expectations/kimi-k2.5.json").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+): … rows fail`", README)
    assert len(named) >= 3
    assert [name for name in named if f'"id": "{name}"' not in suite] == []


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
