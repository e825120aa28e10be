"""GitHub Actions: annotations that it shows, a summary that fits, and nothing from outside that it obeys."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.findings import Finding, Learned
from toolkit.records import Severity
from toolkit.report.github import ANNOTATIONS, commands_of, fitted, inert, problem_commands, problem_summary
from toolkit.report.summary import render_summary
from toolkit.report.warned import warnings_of

from .builder import HOSTILE, failing_result, failing_verdict, hostile_verdict, passing_verdict, result, suite

_COMMAND = re.compile(r"::(error|warning) title=([^:,\n]*)::([^\n]*)")


def obeyed(line: str) -> bool:
    """Whether a runner may take a line for a command: as its own reader of lines does it."""
    return line.lstrip().startswith("::") or "##[" in line


def test_why_the_gate_is_closed_is_an_error_and_what_warns_a_warning() -> None:
    found = commands_of(failing_verdict())
    assert found[0] == (
        "::error title=B3_magicoder%3A GATE CLOSED%3A may not be merged::evidence_known: 201 of 3,383 rows fail "
        "(5.9 %25), at most 1 %25 may"
    )
    assert [line.split(" ")[0] for line in found] == ["::error"] * 3 + ["::warning"] * 2
    assert found[3].startswith("::warning title=B3_magicoder%3A warning::prompt_agrees: 5 of 3,383 rows fail")


def test_a_pass_with_nothing_to_say_says_nothing() -> None:
    assert commands_of(passing_verdict(suites=(suite(result()),))) == []


def test_no_more_are_printed_than_github_shows_and_the_last_says_so() -> None:
    verdict = failing_verdict(reasons=tuple(f"reason {n}" for n in range(15)))
    errors = [line for line in commands_of(verdict) if line.startswith("::error")]
    assert len(errors) == ANNOTATIONS
    assert errors[-1].endswith("::and 6 more in the report")


@pytest.mark.parametrize("text", [*HOSTILE, "::set-output name=a::b", "x,file=y::z", "100%0Aa"])
def test_hostile_text_stays_within_its_annotation(text: str) -> None:
    for line in (*commands_of(hostile_verdict(text)), *problem_commands((text,), text, "not merged")):
        assert _COMMAND.fullmatch(line)
        assert not set(line) & set("\x1b\x07\x9b\r\t\x00\u202e\ud800\ufffe")
        assert len(line) < 3_000


@given(st.text(alphabet=st.one_of(st.sampled_from(":# []\n\r\t%,"), st.characters())))
def test_nothing_is_obeyed_once_it_is_inert(text: str) -> None:
    shown = inert(text)
    assert not any(map(obeyed, shown.split("\n")))
    assert inert(shown) == shown


def test_inert_changes_nothing_else() -> None:
    assert inert("a :: b\n  - ::x\nC::D #[1] ##") == "a :: b\n  - ::x\nC::D #[1] ##"
    assert inert("  ::add-mask::x\n##[error]y") == "  : :add-mask::x\n## [error]y"


def test_a_summary_is_cut_between_blocks() -> None:
    whole = render_summary(failing_verdict())
    assert fitted(whole, 10**6) == whole
    cut = fitted(whole, 1_000)
    assert len(cut.encode()) <= 1_000
    head = cut.removesuffix("\n\nThe rest does not fit on this page; the job's reports hold all of it.\n")
    assert head != cut
    assert whole.startswith(f"{head}\n\n")
    assert fitted(whole, 20) == fitted(whole, 0) == fitted(whole, -5) == ""


@pytest.mark.parametrize("text", HOSTILE)
def test_summaries_of_hostile_verdicts_are_small(text: str) -> None:
    assert len(render_summary(hostile_verdict(text)).encode()) < 900_000
    assert len(problem_summary((text,) * 1000, text, "not merged").encode()) < 100_000


def test_warnings_are_expectations_and_findings_of_that_severity() -> None:
    run = suite(
        result("holds", severity=Severity.WARNING),
        failing_result("warns", severity=Severity.WARNING),
        failing_result("informs", severity=Severity.INFO),
        failing_result("closes"),
    )
    findings = tuple(Finding(code="c", severity=name, says=f"a {name}", rows=1) for name in ("warning", "info"))
    found = warnings_of(passing_verdict(suites=(run,), learned=Learned(findings=findings)))
    assert [sentence.partition(":")[0] for sentence in found] == ["warns", "warning · a warning (1 row) [c]"]
