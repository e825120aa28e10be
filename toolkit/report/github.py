"""What GitHub Actions shows of an audit: annotations, and a summary on the job's page. Pure.

A runner reads commands out of everything that a step prints: a line that begins with `::`, and `##[…]` anywhere in a
line. So text from outside is made inert before it is printed there, and what we say ourselves is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolkit.records import Verdict
from toolkit.report import outcome as say
from toolkit.report.doubts import NAME_LIMIT
from toolkit.report.markdown import bullets, prose
from toolkit.report.text import clean, number
from toolkit.report.warned import warnings_of

ANNOTATIONS = 10
"""Annotations of one kind that GitHub shows of a step; the rest it drops without a word."""

SUMMARY_BYTES = 900_000
"""Bytes of a step's summary that we fill at most: GitHub refuses the whole one above 1 MiB."""

_MESSAGE_LIMIT = 500
_LEADING = re.compile(r"^(\s*):(?=:)", re.MULTILINE)


def inert(text: str) -> str:
    """`text` without anything that a runner takes for a command; elsewhere nobody sees the difference."""
    return _LEADING.sub(r"\1: ", text).replace("##[", "## [")


def commands_of(verdict: Verdict) -> list[str]:
    """Workflow commands, one a line: why the gate is not open as errors, then the warnings; each kind is capped."""
    outcome = say.outcome_of(verdict)
    name = clean(verdict.dataset, NAME_LIMIT)
    errors = say.reasons_of(verdict) if outcome.tone != "passed" else ()
    return [
        *_capped("error", f"{name}: {outcome.headline}", errors),
        *_capped("warning", f"{name}: warning", warnings_of(verdict)),
    ]


def problem_commands(reasons: Sequence[str], dataset: str, happened: str) -> list[str]:
    """Workflow commands for a dataset that was `not audited` or `not merged`."""
    told = [clean(reason, _MESSAGE_LIMIT) for reason in reasons]
    return list(_capped("error", f"{clean(dataset, NAME_LIMIT)}: {happened}", told))


def problem_summary(reasons: Sequence[str], dataset: str, happened: str) -> str:
    """The same as Markdown."""
    name = clean(dataset, NAME_LIMIT) or "(no name)"
    told = [prose(clean(reason, _MESSAGE_LIMIT)) for reason in reasons[:100]]
    return f"## ⛔ {prose(f'{name}: {happened}')}\n\n{bullets('Why', told)}\n"


def fitted(markdown: str, room: int) -> str:
    """`markdown` cut between two blocks so that it takes at most `room` bytes; "" where not even its head fits."""
    if len(markdown.encode()) <= room:
        return markdown
    ending = "\n\nThe rest does not fit on this page; the job's reports hold all of it.\n"
    room -= len(ending.encode())
    kept: list[str] = []
    for block in markdown.split("\n\n"):
        room -= len(block.encode()) + 2
        if room < 0:
            break
        kept.append(block)
    return "\n\n".join(kept) + ending if kept else ""


def _capped(kind: str, title: str, messages: Sequence[str]) -> Iterator[str]:
    shown = messages if len(messages) <= ANNOTATIONS else messages[: ANNOTATIONS - 1]
    for message in shown:
        yield _command(kind, title, message)
    if len(messages) > len(shown):
        yield _command(kind, title, f"and {number(len(messages) - len(shown))} more in the report")


def _command(kind: str, title: str, message: str) -> str:
    text = clean(message, _MESSAGE_LIMIT)
    return f"::{kind} title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace("##[", "## [")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
