"""A preflight as lines for people. Everything that did not pass stands by itself; the rest is put together."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence

from toolkit.generate.preflight.checks import Check, Outcome, Report, Result
from toolkit.generate.preflight.estimate import Estimate, Range
from toolkit.report.text import clean, dollars, duration, number, quantity

_WORDS = {Result.OK: "ok", Result.WARN: "WARN", Result.FAIL: "FAIL", Result.UNKNOWN: "?"}
_OUTCOMES = {Outcome.GO: "GO", Outcome.WARNINGS: "GO WITH WARNINGS", Outcome.NO_GO: "NO-GO"}
_SUBJECT_LIMIT = 34
_TEXT_LIMIT = 700
_FAULTS = 50
_TOLD = frozenset({"price", "quantization", "count"})
"""What people want to see even where it passed."""
_ANSWERED = frozenset({"who answered", "model", "finish", "row"})
"""What together means that the reply is an answer to what was asked."""


def render_preflight(report: Report, *, verbose: bool = False, width: int = 80) -> list[str]:
    """The whole report.

    Args:
        report: What was found.
        verbose: A line for every check; else those that passed are put together for each subject.
        width: Columns.
    """
    checks = report.checks if verbose else tuple(_condensed(report.checks))
    estimates = [line for one in report.estimates for line in _estimate_lines(one)]
    lines = [*_laid_out(_first(checks), width), *_laid_out(estimates, width)]
    return [*lines, "", *textwrap.wrap(outcome_sentence(report), width)]


def found_lines(report: Report, *, width: int = 80) -> list[str]:
    """What was found, without estimates and outcome."""
    return _laid_out(_first(tuple(_condensed(report.checks))), width)


def _laid_out(found: Iterable[tuple[str, str, str]], width: int) -> list[str]:
    return [line for tag, subject, text in found for line in _wrapped(tag, subject, text, width)]


def outcome_sentence(report: Report) -> str:
    """`GO WITH WARNINGS: 2 warnings, 1 unknown; 3 requests, $0.0012, 3 rows kept`."""
    counts = {result: sum(check.result is result for check in report.checks) for result in Result}
    told = [
        quantity(counts[result], noun, plural)
        for result, noun, plural in (
            (Result.FAIL, "failure", None),
            (Result.WARN, "warning", None),
            (Result.UNKNOWN, "thing unknown", "things unknown"),
        )
        if counts[result]
    ]
    sent = ""
    if report.requests:
        sent = f"; {quantity(report.requests, 'request')}, {dollars(report.cost_usd)}, "
        sent += f"{quantity(report.rows_sealed, 'row')} kept"
    return f"{_OUTCOMES[report.outcome]}: {', '.join(told) or 'everything passed'}{sent}"


def problem_lines(report: Report) -> list[str]:
    """What failed and what warns, one line each."""
    found = [check for check in report.checks if check.result in (Result.FAIL, Result.WARN)]
    lines = [f"{_WORDS[check.result]} {_subject(check)}: {_text(check)}" for check in found[:_FAULTS]]
    return lines + ([f"… and {number(len(found) - _FAULTS)} more"] if len(found) > _FAULTS else [])


# --- checks -------------------------------------------------------------------------------------


def _condensed(checks: Sequence[Check]) -> Iterator[Check]:
    """Checks that passed, one for each subject with all that was looked at; the others as they are."""
    told: set[tuple[str, str | None]] = set()
    for check in checks:
        key = (check.about, check.provider)
        if check.result is not Result.OK or check.provider is None:
            yield check
        elif key not in told:
            told.add(key)
            passed = [one for one in checks if (one.about, one.provider) == key and one.result is Result.OK]
            yield Check(
                about=check.about, provider=check.provider, what="", result=Result.OK, found=_as_expected(passed)
            )


def _as_expected(passed: Sequence[Check]) -> str:
    """`answered as asked; 86 ids, 86 reported: counts every id; prompt and white space as expected`."""
    names = [check.what for check in passed]
    whole = set(names) >= _ANSWERED
    told = [check.found for check in passed if check.what in _TOLD]
    rest = [name for name in names if name not in _TOLD and not (whole and name in _ANSWERED)]
    listed = " and ".join(part for part in (", ".join(rest[:-1]), *rest[-1:]) if part)
    parts = ["answered as asked"] if whole else []
    return "; ".join([*parts, *told, *([f"{listed} as expected"] if listed else [])])


def _first(checks: Sequence[Check]) -> Iterator[tuple[str, str, str]]:
    faults = 0
    for check in checks:
        faults += check.result is Result.FAIL
        if check.result is Result.FAIL and faults > _FAULTS:
            continue
        subject = _subject(check) if check.what else f"{_subject(check)}:"
        yield _WORDS[check.result], subject, _text(check)
    if faults > _FAULTS:
        yield _WORDS[Result.FAIL], "", f"… and {number(faults - _FAULTS)} more failures; --format json lists all"


def _subject(check: Check) -> str:
    provider = f" {check.provider}" if check.provider else ""
    return clean(f"{check.about}{provider} {check.what}".rstrip(), 120)


def _text(check: Check) -> str:
    expected = f" (expected {check.expected})" if check.expected and check.result is not Result.OK else ""
    return clean(check.found + expected, _TEXT_LIMIT)


def _wrapped(tag: str, subject: str, text: str, width: int) -> Iterable[str]:
    head = f"  {tag:<5}{clean(subject, 160):<{_SUBJECT_LIMIT}} "
    lines = textwrap.wrap(text, max(width - 9, 30)) or [""]
    if len(head) + len(text) <= width:
        return [(head + text).rstrip()]
    return [head.rstrip(), *(f"         {line}" for line in lines)]


# --- estimates ------------------------------------------------------------------------------------


def _estimate_lines(found: Estimate) -> Iterator[tuple[str, str, str]]:
    if not found.asks:
        return
    yield "", f"{found.dataset} left", quantity(found.asks, "answer")
    yield "", f"{found.dataset} prompt tokens", _numbers(found.prompt_tokens)
    yield (
        "",
        f"{found.dataset} completion tokens",
        f"{_numbers(found.completion_tokens)}, from {found.completion_basis}",
    )
    cost = "no price is known" if found.usd is None else _between(found.usd, dollars)
    yield "", f"{found.dataset} cost", cost
    if len(found.usd_by_provider) > 1:
        by = "; ".join(f"{name} {_between(usd, dollars)}" for name, usd in sorted(found.usd_by_provider.items()))
        yield "", f"{found.dataset} by provider", clean(by, _TEXT_LIMIT)
    time = (
        "nothing was timed" if found.seconds is None else f"{_between(found.seconds, duration)} if the servers keep up"
    )
    yield "", f"{found.dataset} time", time


def _numbers(found: Range) -> str:
    return _between(found, lambda value: number(round(value)))


def _between(found: Range, show: Callable[[float], str]) -> str:
    low, high = show(found.low), show(found.high)
    return low if low == high else f"{low} to {high}"
