"""Entry points. However a command ends, it ends here: with one message and the exit code that belongs to it.

Exit code 1 says that the gate is closed and nothing else, so an error that nobody foresaw ends with 3.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

import typer

from toolkit.cli import (
    audit,
    card,
    contract,
    diff,
    discard,
    export,
    generate,
    importing,
    index,
    merge,
    preflight,
    rebuild,
    report,
    schema,
    screen,
    show,
    simulate,
    status,
    verify,
)
from toolkit.cli.app import app, print_json, printable
from toolkit.cli.streams import standard_streams
from toolkit.errors import EXIT_INCOMPLETE, EXIT_PASSED, EXIT_USAGE, StoreError, TokenproofError, UsageError

COMMANDS = (
    *(preflight, generate, status, importing, audit, report, show, diff, index, merge, verify, export),
    *(card, discard, rebuild, screen, contract, schema, simulate),
)
"""Importing a module registers its commands, in this order."""

_PROGRAM = "tokenproof"
_PACKAGE = Path(__file__).parents[1]
_UsageProblem = cast("type[Exception]", typer.BadParameter.__base__)
"""What typer raises for a command line that it cannot read; its own name is click's in some versions."""


def main() -> None:
    """Entry point of `tokenproof`."""
    _run(sys.argv[1:])


def audit_main() -> None:
    """Entry point of `audit`: `audit B3 …` is `tokenproof audit B3 …`."""
    _run(["audit", *sys.argv[1:]])


@dataclass(frozen=True, slots=True)
class _Problem:
    """An error as it is told: the class that machines see, the message, the exit code."""

    error: str
    message: str
    exit_code: int


def _run(arguments: list[str]) -> NoReturn:
    with standard_streams() as can_print:
        if can_print:
            code = _exit_code_of(arguments)
        else:
            code = EXIT_INCOMPLETE
            _say(_Problem("StoreError", "standard output: expected a stream, found it closed; nothing was done", code))
    sys.exit(code)


def _exit_code_of(arguments: list[str]) -> int:
    """Run a command, tell what went wrong, and answer with the exit code."""
    try:
        _check(arguments)
        code = _invoke(arguments)
        sys.stdout.flush()
    except TokenproofError as error:
        problem = _Problem(type(error).__name__, str(error), error.exit_code)
    except KeyboardInterrupt:
        message = "interrupted before the end; run the same command again"
        problem = _Problem("Interrupted", message, EXIT_INCOMPLETE)
    except OSError as error:
        problem = _Problem("StoreError", _refusal(error), EXIT_INCOMPLETE)
    except MemoryError as error:
        problem = _Problem("StoreError", f"out of memory (in {_place_of(error)})", EXIT_INCOMPLETE)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 (the edge: nothing may look like a closed gate, panics of libraries included)
        _show_traceback(error)
        problem = _Problem("InternalError", _internal(error), EXIT_INCOMPLETE)
    else:
        return code
    _tell(problem, as_json=wants_json(arguments))
    return problem.exit_code


def _check(arguments: Sequence[str]) -> None:
    """Names go into JSON, Parquet and reports, so they have to be text.

    Raises:
        UsageError: an argument is not UTF-8.
    """
    for number, word in enumerate(arguments, 1):
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"argument {number}: expected UTF-8, found {word[:80]!r}") from None


def _invoke(arguments: Sequence[str]) -> int:
    """Run the command that `arguments` name; its exit code.

    Raises:
        UsageError: no command understands them.
    """
    command = typer.main.get_command(app)
    try:
        with command.make_context(_PROGRAM, list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except _UsageProblem as problem:
        if type(problem).__name__ == "NoArgsIsHelpError":  # the help was printed
            return EXIT_USAGE
        raise UsageError(_misread(problem)) from None
    return EXIT_PASSED


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the last --format asks for JSON. Errors are told in that form even where nothing else was understood."""
    form = ""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == "--":
            break
        if word == "--format":
            form = following
        elif word.startswith("--format="):
            form = word.partition("=")[2]
    return form == "json"


# --- messages -----------------------------------------------------------------------------------


def _tell(problem: _Problem, *, as_json: bool) -> None:
    """One JSON document on standard output for machines, else one message on standard error."""
    if as_json:
        try:
            message = printable(problem.message)
            print_json({"error": problem.error, "message": message, "exit_code": problem.exit_code})
            sys.stdout.flush()
        except StoreError:
            pass  # where standard output fails, standard error says so
        else:
            return
    _say(problem)


def _say(problem: _Problem) -> None:
    print(f"{_PROGRAM}: {printable(problem.message)}", file=sys.stderr)


def _misread(problem: Exception) -> str:
    """typer's complaint in the form of this project's messages: where, what, and where to look."""
    context = getattr(problem, "ctx", None)
    path = context.command_path if context is not None else _PROGRAM
    words = problem.format_message() if hasattr(problem, "format_message") else str(problem)
    words = words.strip().removesuffix(".").replace("Value error, ", "")
    where = path.removeprefix(_PROGRAM).strip()
    return f"{f'{where}: ' if where else ''}{words[:1].lower()}{words[1:]}; see {path} --help"


def _refusal(error: OSError) -> str:
    """What the system refused, and where: the file, or the place in this project that asked for it."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        name = error.filename
        return f"{name.decode('utf-8', 'replace') if isinstance(name, bytes) else name}: {reason}"
    return f"{reason} (in {_place_of(error)})"


def _internal(error: BaseException) -> str:
    first = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
    return f"internal error: {first} (in {_place_of(error)}); please report this with the traceback"


def _place_of(error: BaseException) -> str:
    """The innermost line of this project that an error passed through."""
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_PACKAGE)
    ]
    path, line = frames[-1] if frames else (Path(__file__), None)
    return f"{path.relative_to(_PACKAGE.parent)}, line {line}"


def _show_traceback(error: BaseException) -> None:
    """The traceback on standard error, without anything that a terminal would obey."""
    print(printable("".join(traceback.format_exception(error)).rstrip("\n")), file=sys.stderr)
