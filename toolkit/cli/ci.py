"""What CI sees of a command: exit codes of several datasets, GitHub's annotations and summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.cli.app import on_github, printable
from toolkit.errors import EXIT_GATE_CLOSED, EXIT_INCOMPLETE, EXIT_PASSED, EXIT_USAGE, GateClosed

if TYPE_CHECKING:
    from toolkit.records import Verdict
    from toolkit.report.outcome import Tone
    from toolkit.report.told import Told

_WORST_FIRST = (EXIT_USAGE, EXIT_INCOMPLETE, EXIT_GATE_CLOSED, EXIT_PASSED)
"""A dataset that could not be audited weighs more than one that failed: of that one we know."""


class FailOn(StrEnum):
    """From which severity on a failing expectation makes the exit code 1."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What came of one dataset of several; without a verdict, `problem` says why there is none."""

    dataset: str
    exit_code: int
    verdict: Verdict | None = None
    problem: str = ""


def worst(codes: Iterable[int]) -> int:
    """One exit code for several datasets: 2 over 3 over 1 over 0; of none, 3."""
    found = {code if code in _WORST_FIRST else EXIT_INCOMPLETE for code in codes}
    return next((code for code in _WORST_FIRST if code in found), EXIT_INCOMPLETE)


def code_with_warnings(code: int, verdict: Verdict, fail_on: FailOn) -> int:
    """The exit code of an audit, closed by warnings where that was asked for; the verdict stays what it is."""
    from toolkit.report.text import quantity
    from toolkit.report.warned import warnings_of

    if fail_on is not FailOn.WARNING or code != EXIT_PASSED:
        return code
    warnings = warnings_of(verdict)
    if not warnings:
        return code
    print(
        printable(
            f"{verdict.dataset}: {quantity(len(warnings), 'warning')}, so --fail-on warning ends with exit code "
            f"{EXIT_GATE_CLOSED}; the verdict stands, and a merge goes by that alone"
        ),
        file=sys.stderr,
    )
    return EXIT_GATE_CLOSED


def tell_all(found: Sequence[Audited]) -> Told:
    """One line a dataset: what came of it, in the order in which they were audited."""
    from toolkit.report import outcome as say
    from toolkit.report.doubts import NAME_LIMIT
    from toolkit.report.text import clean, number, quantity
    from toolkit.report.told import Grid, Section, Told

    lines: list[tuple[Tone, Sequence[str]]] = []
    for one in found:
        name, code = clean(one.dataset, NAME_LIMIT), str(one.exit_code)
        if one.verdict is None:
            lines.append(("closed", ("NOT AUDITED", name, "–", "–", code)))
            continue
        outcome, verdict = say.outcome_of(one.verdict), one.verdict
        lines.append((outcome.tone, (outcome.word, name, number(verdict.rows), number(verdict.quarantined), code)))
    passed = sum(one.exit_code == EXIT_PASSED for one in found)
    problems = [f"{clean(one.dataset, NAME_LIMIT)}: {clean(one.problem, 400)}" for one in found if one.problem]
    return Told(
        headline=f"{number(passed)} of {quantity(len(found), 'dataset')} passed",
        tone="passed" if passed == len(found) else "closed",
        sections=[Section(title="Not audited", mark="✗", sentences=problems)] if problems else (),
        grid=Grid(
            headings=("outcome", "dataset", "rows", "quarantined", "exit code"),
            lines=lines,
            figures=frozenset(("rows", "quarantined", "exit code")),
        ),
    )


# --- GitHub Actions ------------------------------------------------------------------------------


def show_on_github(verdict: Verdict) -> None:
    """Annotations to standard error, and the summary to the job's page; nothing elsewhere."""
    from toolkit.report.github import commands_of
    from toolkit.report.summary import render_summary

    _annotate(commands_of(verdict) if on_github() else ())
    _append_summary(lambda: render_summary(verdict))


def show_problem_on_github(dataset: str, problem: str) -> None:
    """Why a dataset could not be audited, in the same places."""
    from toolkit.report.github import problem_commands, problem_summary

    _annotate(problem_commands((problem,), dataset, "not audited") if on_github() else ())
    _append_summary(lambda: problem_summary((problem,), dataset, "not audited"))


def show_refusal_on_github(refused: GateClosed) -> None:
    """A merge that was refused, in the same places."""
    from toolkit.report.github import problem_commands, problem_summary

    _annotate(problem_commands(refused.reasons, refused.dataset, "not merged") if on_github() else ())
    _append_summary(lambda: problem_summary(refused.reasons, refused.dataset, "not merged"))


def _annotate(commands: Iterable[str]) -> None:
    for command in commands:
        print(command, file=sys.stderr)


def _append_summary(render: Callable[[], str]) -> None:
    """Append to the file that the runner names. That it cannot be written is said, and changes nothing else."""
    from toolkit.report.github import SUMMARY_BYTES, fitted

    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    try:
        # Not blocking: a pipe of that name would wait for a reader.
        handle = os.open(Path(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        with os.fdopen(handle, "ab") as file:
            text = fitted(render(), SUMMARY_BYTES - os.fstat(handle).st_size - 1)
            file.write(f"{text}\n".encode() if text else b"")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        print(printable(f"GITHUB_STEP_SUMMARY {name[:200]}: cannot be written: {reason}"), file=sys.stderr)
