"""JUnit XML for CI: one suite per expectation suite, one case per expectation, and the gate itself.

A CI job shows red whenever the gate is closed or the dataset is incomplete: the cases `gate` and `complete` say so even
where no expectation fails. A warning that fails is a skipped case with a message: GitLab, Jenkins and the viewers for
GitHub all show these apart from what passes and from what fails. The form is that of Jenkins' schema, the strictest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from toolkit.records import ExpectationResult, Severity, SuiteRun, Verdict
from toolkit.report import counts, doubts
from toolkit.report import outcome as say
from toolkit.report.text import clean, quantity

_SAMPLES = 10
_VALUE_LIMIT = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test case.

    Attributes:
        failure: (kind, message) where it fails.
        skipped: The message where it only warns.
        lines: What tells more.
        seconds: How long it took.
    """

    name: str
    failure: tuple[str, str] | None = None
    skipped: str | None = None
    lines: Sequence[str] = ()
    seconds: float = 0.0


def render_junit(verdict: Verdict) -> str:
    """The verdict as JUnit XML, as Jenkins, GitLab and GitHub actions read it."""
    dataset = clean(verdict.dataset, doubts.NAME_LIMIT) or "dataset"
    root = ET.Element("testsuites", name=f"tokenproof {dataset}")
    _add_suite(root, dataset, "verdict", _verdict_cases(verdict), verdict)
    for run in verdict.suites:
        cases = [_case(result) for result in run.results]
        name = clean(run.name, doubts.NAME_LIMIT) or "suite"
        _add_suite(root, dataset, name, [*cases, _quarantine_case(verdict, run)], verdict)
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_suite(root: ET.Element, dataset: str, name: str, cases: Sequence[Case], verdict: Verdict) -> None:
    suite = ET.SubElement(
        root,
        "testsuite",
        name=f"{dataset}.{name}",
        tests=str(len(cases)),
        failures=str(sum(case.failure is not None for case in cases)),
        errors="0",
        skipped=str(sum(case.skipped is not None for case in cases)),
        time=_time(sum(case.seconds for case in cases)),
        timestamp=clean(verdict.created_at, 40),
    )
    for case in cases:
        _add_case(suite, f"{dataset}.{name}", case)


def _add_case(suite: ET.Element, classname: str, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", classname=classname, name=case.name, time=_time(case.seconds))
    if case.failure is not None:
        kind, message = case.failure
        failure = ET.SubElement(element, "failure", type=kind, message=message)
        failure.text = "\n".join([message, *case.lines])
        return
    if case.skipped is not None:
        # Some viewers show the message, others the text of the element.
        ET.SubElement(element, "skipped", message=case.skipped).text = case.skipped
    if case.lines:
        ET.SubElement(element, "system-out").text = "\n".join(case.lines)


def _time(seconds: float) -> str:
    """Seconds with three digits, as the schema wants them: no sign, no exponent."""
    return f"{seconds:.3f}" if 0 <= seconds < 1e9 else "0"


def _verdict_cases(verdict: Verdict) -> list[Case]:
    outcome, reasons = say.outcome_of(verdict), say.reasons_of(verdict)
    split = say.split_sentence(verdict)
    closed = ("gate", f"{outcome.headline}: {'; '.join(reasons)}") if not verdict.passed else None
    missing = [f"unreadable: {clean(path, say.SENTENCE_LIMIT)}" for path in verdict.unreadable[:_SAMPLES]]
    missing += counts.missing_sentences(verdict.accounting)
    incomplete = ("incomplete", "the dataset is not complete") if not verdict.complete else None
    told = [f"{what}: {which}" for what, which in say.held_against(verdict)]
    told += [f"a merge {merge}"] if (merge := counts.merge_sentence(verdict)) else []
    told += say.culprits(verdict) if closed else ()
    told += [f"{doubt.group}: {sentence}" for doubt in doubts.doubts_of(verdict) for sentence in doubt.sentences]
    return [
        Case(name="gate", failure=closed, lines=[split, *told], seconds=verdict.elapsed_s),
        Case(name="complete", failure=incomplete, lines=missing),
    ]


def _quarantine_case(verdict: Verdict, run: SuiteRun) -> Case:
    found = f"{quantity(verdict.quarantined, 'row')} quarantined: {say.quarantine_share(verdict, run)}"
    reasons = [f"by reason: {reasons}"] if (reasons := counts.tally(verdict.quarantined_by_reason)) else []
    if say.quarantine_within(verdict, run):
        return Case(name="quarantine share", lines=[found, *reasons])
    return Case(name="quarantine share", failure=("quarantine", found), lines=reasons)


def _case(result: ExpectationResult) -> Case:
    """One expectation. Only a failing critical one fails the case."""
    name = clean(result.id, doubts.NAME_LIMIT) or "expectation"
    found = say.found_by(result)
    about = [told] if (told := say.about(result)) else []
    if result.scope == "row":
        about.append(f"must hold for {say.required_by(result)} of the rows")
    rows = say.samples(result.examples[:_SAMPLES], _VALUE_LIMIT)
    about += [f"row {row}" if value is None else f"row {row}: {value}" for row, value in rows]
    if not say.fails(result):
        return Case(name=name, lines=[found, *about] if result.unexpected_count else ())
    message = found + (f": {', '.join(row for row, _ in rows)}" if rows else "")
    if (result.unexpected_count or 0) > len(rows) > 0:
        message += " …"
    if say.closes_gate(result):
        return Case(name=name, failure=("critical" if result.error is None else "not evaluated", message), lines=about)
    told = f"{result.severity}: {message}"
    if result.severity is Severity.WARNING:
        return Case(name=name, skipped=told, lines=about)
    return Case(name=name, lines=[told, *about])
