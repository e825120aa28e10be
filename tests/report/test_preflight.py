"""A preflight as lines."""

from __future__ import annotations

from toolkit.generate.preflight.checks import Check, Outcome, Report, Result
from toolkit.report.preflight import found_lines, outcome_sentence, problem_lines, render_preflight


def check(what: str, result: Result, found: str = "as it is", **more: str) -> Check:
    return Check(about="B3", what=what, result=result, found=found, **more)


def test_what_passed_is_put_together_and_the_rest_stands_by_itself():
    report = Report(
        checks=(
            check("price", Result.OK, "$1", provider="Chutes"),
            check("model", Result.OK, "kimi", provider="Chutes"),
            check("count", Result.UNKNOWN, "149 ids, 148 reported", provider="Chutes"),
            check("prompts", Result.OK, "3 without a fault"),
        )
    )
    lines = render_preflight(report, width=100)
    assert [line.split() for line in lines[:3]] == [
        ["ok", "B3", "Chutes:", "$1;", "model", "as", "expected"],
        ["?", "B3", "Chutes", "count", "149", "ids,", "148", "reported"],
        ["ok", "B3", "prompts", "3", "without", "a", "fault"],
    ]
    assert lines[-1] == "GO: 1 thing unknown"
    assert len(render_preflight(report, verbose=True, width=100)) == len(lines) + 1


def test_what_a_provider_did_right_is_told_in_a_sentence():
    names = ("who answered", "model", "finish", "row", "count", "prompt", "white space", "think markers")
    found = {"count": "86 ids, 86 reported: counts every id"}
    checks = tuple(check(name, Result.OK, found.get(name, "fine"), provider="Chutes") for name in names)
    text = " ".join(" ".join(found_lines(Report(checks=checks), width=80)).split())
    assert text == (
        "ok B3 Chutes: answered as asked; 86 ids, 86 reported: counts every id; "
        "prompt, white space and think markers as expected"
    )


def test_a_failure_says_what_was_expected():
    report = Report(
        checks=(check("key", Result.FAIL, "$0.00 left", expected="more than $0"),), requests=2, cost_usd=0.5
    )
    assert problem_lines(report) == ["FAIL B3 key: $0.00 left (expected more than $0)"]
    assert outcome_sentence(report) == "NO-GO: 1 failure; 2 requests, $0.50, 0 rows kept"
    assert report.exit_code == 3


def test_nothing_checked_is_no_go():
    assert Report(checks=()).outcome is Outcome.NO_GO


def test_hostile_words_are_harmless_and_thousands_of_faults_stay_readable():
    faults = tuple(check("prompts", Result.FAIL, f"line {i}: \x1b[2J" + "x" * 5_000) for i in range(3_000))
    lines = render_preflight(Report(checks=faults), width=80)
    assert all(line.isprintable() for line in lines)
    assert len(lines) < 1_000
    assert any("2,950 more failures" in line for line in lines)
    assert len(problem_lines(Report(checks=faults))) == 51
