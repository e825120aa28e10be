"""Entry points: an error that a user should read is printed as one message, and decides the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NoReturn

from toolkit.cli import audit, contract, generate, importing, merge, simulate
from toolkit.cli.app import app, print_json, printable
from toolkit.errors import EXIT_INCOMPLETE, EXIT_PASSED, TokenproofError

COMMANDS = (generate, importing, audit, merge, contract, simulate)
"""Importing a module registers its commands, in this order."""


def main() -> None:
    """Entry point of `tokenproof`."""
    _run(app)


def audit_main() -> None:
    """Entry point of `audit`: `audit B3 …` is `tokenproof audit B3 …`."""
    sys.argv.insert(1, "audit")
    _run(app)


def _run(command: Callable[[], Any]) -> NoReturn:
    """Run a command; an error that a user should read is printed as one message, and decides the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        command()
    except TokenproofError as error:
        if _wants_json():
            print_json({"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code})
        else:
            print(f"tokenproof: {printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(EXIT_INCOMPLETE)
    sys.exit(EXIT_PASSED)


def _wants_json() -> bool:
    arguments = sys.argv[1:]
    return "--format=json" in arguments or any(a == "--format" and b == "json" for a, b in pairwise(arguments))
