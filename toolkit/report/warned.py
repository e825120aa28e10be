"""What an audit warns of and lets pass. Pure; every text is clean."""

from __future__ import annotations

from toolkit.records import Severity, Verdict
from toolkit.report import outcome as say
from toolkit.report.beside import finding_sentence
from toolkit.report.doubts import NAME_LIMIT
from toolkit.report.text import clean


def warnings_of(verdict: Verdict) -> tuple[str, ...]:
    """A sentence for each expectation of severity warning that fails, then for each finding of that severity."""
    sentences = [
        f"{clean(result.id, NAME_LIMIT)}: {say.found_by(result)}"
        + (f": {says}" if (says := say.about(result).rstrip(".")) else "")
        for run in verdict.suites
        for result in run.results
        if result.severity is Severity.WARNING and say.fails(result)
    ]
    sentences += [finding_sentence(one) for one in verdict.learned.findings if one.severity == Severity.WARNING]
    return tuple(sentences)
