"""The commands of a page, as a reader runs them.

A comment before a fenced block says what is done with it; readers of the page do not see it:

    <!-- run: NAME -->          its lines are run in the workspace NAME
    <!-- write: NAME PATH -->   its text is written to PATH in the workspace NAME

The first block that names a workspace makes it, as `workspaces.MADE` says; later ones find it as it was left. In a
`sh` block every line is a command; in a `console` block those that begin with `$ `, and what follows must be printed,
in that order, `…` standing for anything. A line that ends with `# exit code N` must end so; others with 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

DOCS = ROOT / "docs"

_BLOCK = re.compile(
    r"(?:^<!-- (?P<verb>run|write): (?P<workspace>[\w-]+)(?: (?P<path>[\w./-]+))? -->\n)?"
    r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_EXIT_CODE = re.compile(r"\s*# exit code (\d)$")

SHELLS = ("sh", "console", "bash", "shell")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: what the comment before it says, and what stands in it."""

    verb: str
    workspace: str
    path: str
    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Step:
    """A command line, the exit code that it must have, and the lines that it must print."""

    command: str
    exit_code: int
    shows: tuple[str, ...]


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(*(found[name] or "" for name in ("verb", "workspace", "path", "language", "text")),
              line=text.count("\n", 0, found.start("text")))
        for found in _BLOCK.finditer(text)
    ]  # fmt: skip


def steps_of(block: Block) -> list[Step]:
    """The commands of a block; a line that ends with a backslash goes on in the next one."""
    commands: list[tuple[str, list[str]]] = []
    for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
        if block.language != "console":
            if line.strip() and not line.lstrip().startswith("#"):
                commands.append((line, []))
        elif line.startswith("$ "):
            commands.append((line[2:], []))
        elif line.strip():
            commands[-1][1].append(line)
    return [_step(command, shows) for command, shows in commands]


def _step(command: str, shows: list[str]) -> Step:
    code = _EXIT_CODE.search(command)
    return Step(_EXIT_CODE.sub("", command), int(code[1]) if code else 0, tuple(shows))


def printed(shows: tuple[str, ...], output: str) -> list[str]:
    """Lines that a page shows and the command did not print, from the first one that is missing."""
    lines = iter(line.rstrip() for line in output.splitlines())
    for at, expected in enumerate(shows):
        pattern = re.compile(".*".join(map(re.escape, expected.strip().split("…"))))
        if expected.strip() != "…" and not any(pattern.fullmatch(line.strip()) for line in lines):
            return list(shows[at:])
    return []
