"""The typer application, the options that commands share, and how they print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit import __version__

if TYPE_CHECKING:
    from toolkit.report.console import Advance

app = typer.Typer(
    name="tokenproof",
    help="Prove that the token ids you are about to train on are the ids the model produced, "
    "and let nothing else through the merge.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


class Form(StrEnum):
    """How a command prints."""

    TEXT = "text"
    JSON = "json"


Root = Annotated[
    Path,
    typer.Option(
        "--root",
        help="Folder with datasets/, expectations/ and tokenproof.toml; for audit, diff, merge, report, show and "
        "status also s3://BUCKET/FOLDER.",
    ),
]
Format = Annotated[Form, typer.Option("--format", help="text for people, json for machines.")]
DatasetName = Annotated[str, typer.Argument(help="A dataset's folder name, or a unique beginning of it.")]


def printable(message: str) -> str:
    """A message line by line, without anything that a terminal would obey."""
    from toolkit.report.text import clean

    return _inert("\n".join(clean(line, 2_000) for line in message.split("\n")))


def write_text(text: str) -> None:
    """Write rendered text to standard output; a CI runner finds no command in it that is not ours."""
    sys.stdout.write(_inert(text))


def on_github() -> bool:
    """Whether a runner of GitHub Actions, or one that speaks as it does, reads what is printed."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _inert(text: str) -> str:
    if not on_github():
        return text
    from toolkit.report.github import inert

    return inert(text)


def print_json(value: object) -> None:
    """Print one JSON document on one line; a stream that is not UTF-8 gets escapes that JSON knows."""
    import msgspec

    text = msgspec.json.encode(value).decode()
    if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        text = json.dumps(json.loads(text))
    sys.stdout.write(text + "\n")


def say(line: str) -> None:
    """Print one line for people."""
    print(printable(line))


@contextmanager
def counting(title: str, total: int | None = None) -> Iterator[Advance]:
    """Show how far a stage is, on standard error: `with counting("merge", rows) as advance: stage(…, advance=advance)`.

    Args:
        title: What is being done.
        total: How many there are to do; None where only the stage will find out.
    """
    from toolkit.report.console import progress

    with progress(title, total, enabled=is_terminal()) as advance:
        yield advance


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"tokenproof {__version__}")
        raise typer.Exit


def is_terminal(stream: Any = None) -> bool:
    """Whether a stream (stderr when None) is a terminal."""
    return bool((stream or sys.stderr).isatty())


def wants_colour() -> bool:
    """Whether standard output is a terminal that shows colour to somebody who wants it (no-color.org)."""
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Columns to print in, 60 to 120."""
    import shutil

    return max(60, min(120, shutil.get_terminal_size((80, 24)).columns))
