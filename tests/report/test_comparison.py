"""Two verdicts held against each other: what counts as worse, as better, and as neither."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from toolkit.findings import AlterationFound, Finding, Learned
from toolkit.records import Severity, Verdict
from toolkit.report.changes import About, Change, Direction
from toolkit.report.comparison import Comparison, compare
from toolkit.report.console import render_told
from toolkit.report.differences import headline_of, tell_comparison

from .builder import (
    HOSTILE,
    failing_result,
    failing_verdict,
    hostile_verdict,
    incomplete_verdict,
    passing_verdict,
    provider,
    result,
    suite,
)


def changes_of(before: Verdict, after: Verdict, about: About, name: str, tolerance: float = 0.0) -> list[Change]:
    found = compare(before, after, tolerance=tolerance)
    return [change for change in found.changes if (change.about, change.name) == (about, name)]


def one(before: Verdict, after: Verdict, about: About, name: str, tolerance: float = 0.0) -> Change:
    (change,) = changes_of(before, after, about, name, tolerance)
    return change


def with_suite(*results: object, **changes: object) -> Verdict:
    return passing_verdict(suites=(suite(*results, **changes),))  # type: ignore[arg-type]


def with_group(**changes: object) -> Verdict:
    return passing_verdict(providers=(provider("Chutes", **changes),))


def test_a_verdict_is_the_same_as_itself() -> None:
    for verdict in (passing_verdict(), failing_verdict(), incomplete_verdict()):
        found = compare(verdict, verdict)
        assert (found.changes, found.differs_in) == ((), ())
        assert found.same_expectations == sum(len(run.results) for run in verdict.suites)
        assert headline_of(found) == "THE SAME"


def test_what_is_worse_one_way_is_better_the_other() -> None:
    down, up = compare(passing_verdict(), failing_verdict()), compare(failing_verdict(), passing_verdict())
    gate = [change for change in down.worse if change.about is About.GATE]
    assert [(change.before, change.after) for change in gate] == [("PASSED", "GATE CLOSED")]
    assert {(change.about, change.name) for change in down.worse if change.measure != "state"} == {
        (change.about, change.name) for change in up.better if change.measure != "state"
    }
    assert headline_of(down).startswith("WORSE in ")


def test_worse_comes_first_then_better_then_the_rest() -> None:
    found = compare(passing_verdict(), failing_verdict(rows=4000)).changes
    order = [list(Direction).index(change.direction) for change in found]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("before", "after", "direction"),
    [
        ((10, 1000), (11, 1000), Direction.WORSE),
        ((10, 1000), (9, 1000), Direction.BETTER),
        ((10, 1000), (20, 2000), None),
        ((1, 3), (1111, 3333), None),
        ((10, 1000), (11, 2000), Direction.BETTER),
        ((0, 0), (1, 1000), Direction.WORSE),
    ],
)
def test_quarantine_is_compared_by_its_share(
    before: tuple[int, int], after: tuple[int, int], direction: Direction | None
) -> None:
    sides = [passing_verdict(quarantined=part, rows=whole) for part, whole in (before, after)]
    found = [change.direction for change in changes_of(*sides, About.ROWS, "quarantined")]
    assert found == ([] if direction is None else [direction])


def test_what_stays_within_the_tolerance_is_told_and_not_judged() -> None:
    sides = (passing_verdict(quarantined=10, rows=1000), passing_verdict(quarantined=12, rows=1000))
    assert one(*sides, About.ROWS, "quarantined", 0.001).direction is Direction.WORSE
    assert one(*sides, About.ROWS, "quarantined", 0.01).direction is Direction.CHANGED


def test_evidence_is_judged_by_what_is_proved() -> None:
    engine = passing_verdict(rows=100, evidence={"engine": 100})
    counted = passing_verdict(rows=100, evidence={"engine": 40, "counted": 60})
    assert changes_of(engine, counted, About.EVIDENCE, "proved") == []
    assert one(engine, counted, About.EVIDENCE, "engine").direction is Direction.CHANGED
    doubtful = passing_verdict(rows=100, evidence={"engine": 99, "contradicted": 1})
    found = one(engine, doubtful, About.EVIDENCE, "proved")
    assert (found.before, found.after, found.direction) == (1.0, 0.99, Direction.WORSE)
    assert one(doubtful, engine, About.EVIDENCE, "contradicted").direction is Direction.BETTER


def test_fewer_rows_to_merge_more_failures_and_missing_answers_are_worse() -> None:
    before = passing_verdict()
    counts = before.accounting
    after = passing_verdict(left_out={"quarantined": 100}, accounting=replace(counts, failed=counts.failed + 1))
    assert one(before, after, About.ROWS, "written by a merge").direction is Direction.WORSE
    assert one(before, after, About.ROWS, "failed").direction is Direction.WORSE
    assert one(before, incomplete_verdict(), About.ROWS, "unanswered").direction is Direction.WORSE
    assert one(before, passing_verdict(unreadable=("p",)), About.ROWS, "unreadable shards").direction is Direction.WORSE


@pytest.mark.parametrize(
    ("before", "after", "measure", "direction"),
    [
        (result("e"), failing_result("e", mostly=1.0), "state", Direction.WORSE),
        (failing_result("e", mostly=1.0), result("e"), "state", Direction.BETTER),
        (result("e"), result("e", error="no column"), "state", Direction.WORSE),
        (result("e", unexpected_count=1), result("e", unexpected_count=2), "share of rows", Direction.WORSE),
        (result("e", unexpected_count=2), result("e", unexpected_count=1), "share of rows", Direction.BETTER),
        (
            result("e", severity=Severity.INFO, unexpected_count=1),
            result("e", severity=Severity.INFO, unexpected_count=9),
            "share of rows",
            Direction.CHANGED,
        ),
        (result("e"), result("e", mostly=0.9), "must hold", Direction.WORSE),
        (result("e", mostly=0.9), result("e"), "must hold", Direction.CHANGED),
        (result("e"), result("e", severity=Severity.WARNING), "severity", Direction.WORSE),
        (result("e", severity=Severity.WARNING), result("e"), "severity", Direction.CHANGED),
        (result("e"), result("e", kwargs={"column": "n_ids"}), "settings", Direction.CHANGED),
    ],
)
def test_an_expectation(before: object, after: object, measure: str, direction: Direction) -> None:
    found = changes_of(with_suite(before), with_suite(after), About.EXPECTATION, "default · e")
    assert [(change.measure, change.direction) for change in found] == [(measure, direction)]


def test_a_critical_expectation_that_is_gone_is_worse_and_a_new_one_that_holds_is_not() -> None:
    both, first = with_suite(result("a"), result("b")), with_suite(result("a"))
    assert one(both, first, About.EXPECTATION, "default · b").direction is Direction.WORSE
    assert one(first, both, About.EXPECTATION, "default · b").direction is Direction.CHANGED
    failing = with_suite(result("a"), failing_result("b"))
    assert one(first, failing, About.EXPECTATION, "default · b").direction is Direction.WORSE


def test_a_suite_that_allows_more_quarantine_is_worse() -> None:
    strict, loose = with_suite(result()), with_suite(result(), max_quarantined_share=0.5)
    assert one(strict, loose, About.GATE, "suite default").direction is Direction.WORSE
    assert one(loose, strict, About.GATE, "suite default").direction is Direction.CHANGED


def test_an_expectation_that_looks_at_no_row_any_more_is_worse() -> None:
    before, after = result("e", unexpected_count=1), result("e", element_count=0, unexpected_count=0)
    found = compare(with_suite(before), with_suite(after))
    assert found.better == ()
    assert [change.measure for change in found.worse] == ["rows looked at"]


def test_what_is_not_known_any_more_is_no_better() -> None:
    known = passing_verdict(accounting=replace(passing_verdict().accounting, unanswered=5))
    unknown = passing_verdict(accounting=replace(passing_verdict().accounting, unanswered=None))
    assert one(known, unknown, About.ROWS, "unanswered").direction is Direction.WORSE
    assert one(unknown, known, About.ROWS, "unanswered").direction is Direction.CHANGED


def test_two_suites_of_one_name_are_two() -> None:
    runs = (suite(result("e")), suite(failing_result("e")))
    found = compare(passing_verdict(suites=runs), passing_verdict(suites=runs[::-1]))
    assert {(change.name, change.direction) for change in found.changes if change.measure == "state"} == {
        ("default · e", Direction.WORSE),
        ("default (2) · e", Direction.BETTER),
    }


@pytest.mark.parametrize(
    ("before", "after", "measure", "direction"),
    [
        ({"evidence": {"counted": 1746}}, {"evidence": {"counted": 1700, "unverified": 46}}, "proved", Direction.WORSE),
        ({"quarantined": 5}, {"quarantined": 0}, "quarantined", Direction.BETTER),
        ({"truncated": 5}, {"truncated": 50}, "truncated", Direction.CHANGED),
        ({"convention": "every id"}, {"convention": "unknown"}, "counting", Direction.WORSE),
        ({"convention": "unknown"}, {"convention": "every id"}, "counting", Direction.BETTER),
        ({"convention": "every id"}, {"convention": "all but the terminal"}, "counting", Direction.CHANGED),
        ({"prompt_offset": 0}, {"prompt_offset": 7}, "prompt offset", Direction.CHANGED),
        ({"median_ids": 600.0}, {"median_ids": 700.0}, "median ids", Direction.CHANGED),
    ],
)
def test_a_provider(before: dict[str, object], after: dict[str, object], measure: str, direction: Direction) -> None:
    found = changes_of(with_group(**before), with_group(**after), About.PROVIDER, "openrouter · Chutes")
    assert [(change.measure, change.direction) for change in found] == [(measure, direction)]


def test_a_median_that_hardly_moved_is_not_told() -> None:
    sides = with_group(median_ids=600.0), with_group(median_ids=601.0)
    assert changes_of(*sides, About.PROVIDER, "openrouter · Chutes") == []


def test_a_new_provider_is_told_and_not_judged() -> None:
    after = passing_verdict(providers=(provider("Chutes"), provider("Avian", rows=7)))
    found = one(with_group(), after, About.PROVIDER, "openrouter · Avian")
    assert (found.direction, found.says) == (Direction.CHANGED, "new: 7 rows")


def test_what_was_learned_of_a_provider_is_judged() -> None:
    altered = AlterationFound(
        source="openrouter", provider="Chutes", model=None, mode="thinking", code="trims", says="white space",
        rows=100, hits=0, reference="sglang", reference_share=0.5,
    )  # fmt: skip
    warned = Finding(code="trait_changed", severity="warning", says="it changed", source="openrouter")
    told = Finding(code="other", severity="info", says="so it is")
    before, after = (
        with_group(),
        replace(with_group(), learned=Learned(alterations=(altered,), findings=(warned, told))),
    )
    found = compare(before, after).worse
    assert [(change.name, change.measure) for change in found] == [
        ("openrouter · Chutes", "trims"),
        ("openrouter", "trait_changed"),
    ]
    assert len(compare(after, before).better) == 2


def test_what_makes_verdicts_less_comparable_is_said() -> None:
    before = passing_verdict()
    after = passing_verdict(
        dataset="B4", contract_sha256="ff" * 32, kernel_version=9, suites=(suite(result(), name="own"),)
    )
    assert compare(before, after).differs_in == (
        "dataset: B3_magicoder → B4",
        "contract kimi-k2.5: its file was changed",
        "kernel version: 1 → 9",
        "suite default: no longer evaluated",
        "suite own: added",
    )


def shown(comparison: Comparison, width: int = 80) -> str:
    return render_told(tell_comparison(comparison), colour=False, width=width)


def test_the_terminal_says_what_is_worse_in_plain_text() -> None:
    text = " ".join(shown(compare(passing_verdict(), failing_verdict())).split())
    assert text.startswith("WORSE in 13 ways before B3_magicoder")
    for expected in (
        "✗ gate: PASSED: may be merged → GATE CLOSED: may not be merged",
        "✗ rows quarantined: 2 of 3,383 (< 0.1 %) → 201 of 3,383 (5.9 %)",
        "✗ default · evidence_known: holds → fails: 201 of 3,383 rows fail (5.9 %)",
        "✗ openrouter · Inceptron: how it counts ids: all but the terminal → unknown",
        "· evidence counted: 1,635 of 3,383 (48.3 %) → 1,436 of 3,383 (42.4 %)",
    ):
        assert expected in text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_verdicts_are_compared_in_80_columns(text: str) -> None:
    found = compare(passing_verdict(), hostile_verdict(text, damaged=True))
    lines = shown(found).split("\n")
    assert [line for line in lines if cell_len(line) > 80] == []
    assert not set("".join(lines)) & set("\x1b\x07\x9b\r\t\x00\u202e\u2066\u200b\ufeff\u2028\ud800\ufffe")
    assert len(lines) < 400
