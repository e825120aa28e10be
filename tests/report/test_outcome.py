"""What a verdict says: may I merge, why not, whose fault, what next."""

from __future__ import annotations

from dataclasses import replace

from toolkit.records import Severity
from toolkit.report import outcome as say

from .builder import (
    failing_result,
    failing_verdict,
    incomplete_verdict,
    passing_verdict,
    provider,
    result,
    suite,
)


def test_passed_and_complete_decide_the_banner() -> None:
    assert say.outcome_of(passing_verdict()).headline == "PASSED: may be merged"
    assert say.outcome_of(incomplete_verdict()).headline == "INCOMPLETE: may not be merged yet"
    assert say.outcome_of(failing_verdict()).headline == "GATE CLOSED: may not be merged"
    assert say.outcome_of(failing_verdict(complete=False)).word == "GATE CLOSED"


def test_the_split_names_the_largest_source_first() -> None:
    assert say.split_sentence(passing_verdict()) == "3,383 rows: 1,746 sglang, 1,637 openrouter"


def test_the_worst_provider_is_named_and_held_against_the_others() -> None:
    assert say.culprits(failing_verdict()) == (
        "openrouter · Inceptron: 200 of 312 rows quarantined (64.1 %), 190 contradicted, 11 unverified",
        "2 other sources or providers: none of 3,071 rows quarantined",
    )


def test_nobody_is_blamed_where_nothing_is_bad() -> None:
    assert say.culprits(passing_verdict(providers=(provider(None),))) == ()


def test_many_bad_providers_are_summed_up() -> None:
    groups = tuple(provider(f"P{n}", rows=100, quarantined=n, evidence={"counted": 100}) for n in range(1, 6))
    sentences = say.culprits(failing_verdict(providers=groups))
    assert [sentence.split(":")[0] for sentence in sentences[:3]] == [f"openrouter · P{n}" for n in (5, 4, 3)]
    assert sentences[3] == "2 other sources or providers: 3 of 200 rows quarantined (1.5 %)"


def test_results_are_sorted_by_what_a_reader_does_with_them() -> None:
    run = suite(
        result("clean"),
        failing_result("warned", severity=Severity.WARNING, unexpected_count=3000),
        failing_result("small", unexpected_count=1),
        result("tolerated", mostly=0.9, unexpected_count=5),
        failing_result("large", unexpected_count=900),
        result("on_the_rest", success_after_quarantine=False),
        result("broken", error="no such column"),
    )
    findings = say.sort_results(run)
    assert [r.id for r in findings.failing] == ["large", "small", "on_the_rest", "broken", "warned"]
    assert [r.id for r in findings.tolerated] == ["tolerated"]
    assert [r.id for r in findings.clean] == ["clean"]


def test_next_steps_follow_the_causes() -> None:
    verdict = failing_verdict(unreadable=("part-003.parquet",))
    verdict = replace(verdict, suites=(suite(*verdict.suites[0].results, result("broken", error="no such column")),))
    assert [step.says for step in say.next_steps(verdict)] == [
        "restore or rebuild 1 unreadable shard",
        "correct the suite: broken could not be evaluated",
        "look at the failing rows of evidence_known, reencode_equal; mend the cause, or discard those rows",
        "find out why so many rows are in quarantine: its reasons are counted below",
        "then audit again",
    ]
    assert say.next_steps(incomplete_verdict())[0].says == (
        "let generation or import finish: 117 prompts unanswered, 40 replies not sealed"
    )
    assert say.next_steps(passing_verdict()) == (
        say.Step("merge it (without the 2 quarantined rows)", "tokenproof merge B3_magicoder -o train/B3_magicoder"),
    )


def test_a_command_can_be_pasted_whatever_the_dataset_is_called() -> None:
    step = say.next_steps(failing_verdict(dataset="x; rm -rf ~"))[-1]
    assert step.command == "audit 'x; rm -rf ~'"


def test_a_verdict_that_fails_is_never_without_a_reason() -> None:
    assert say.reasons_of(failing_verdict(reasons=())) == ("the verdict gives no reason",)
    assert say.reasons_of(passing_verdict()) == ()
    many = say.reasons_of(failing_verdict(reasons=tuple(f"reason {n}" for n in range(50))))
    assert many[19:] == ("reason 19", "and 30 further reasons in verdict.json")


def test_what_was_found() -> None:
    assert say.found_by(result()) == "holds for all 3,383 rows"
    assert say.found_by(failing_result()) == "41 of 3,383 rows fail (1.2 %)"
    on_dataset = result(scope="dataset", success=False, element_count=None, unexpected_count=None, observed="0.31")
    assert say.found_by(on_dataset) == "observed 0.31"
    assert say.found_by(replace(on_dataset, success_after_quarantine=True)) == (
        "observed 0.31; holds without the quarantined rows"
    )
    assert say.found_by(result(error="no such column")).startswith("could not be evaluated: no such column")
    nothing = result(success=False, element_count=None, unexpected_count=None)
    assert say.found_by(nothing) == "fails"


def test_the_quarantine_is_held_against_the_bound() -> None:
    verdict = passing_verdict(rows=100, quarantined=5)
    assert say.quarantine_within(verdict, suite(max_quarantined_share=0.05))
    assert not say.quarantine_within(verdict, suite(max_quarantined_share=0.04))
    assert not say.quarantine_within(passing_verdict(rows=0, quarantined=0), suite())


def test_a_row_is_named_so_that_it_can_be_found() -> None:
    assert say.sample_of({"sample_id": "mc-1", "turn": 0, "sample_index": 0}) == "mc-1"
    assert say.sample_of({"sample_id": "mc-1", "turn": 0, "sample_index": 2}) == "mc-1/0/2"
    assert say.sample_of({"sample_id": "", "turn": 0, "sample_index": 0}) == '""'
    assert say.sample_of({}) == "null"


def test_providers_are_described() -> None:
    group = passing_verdict().providers[2]
    assert say.group_name(group) == "openrouter · Inceptron"
    assert say.convention_of(group) == "all but the terminal (310 agree), prompt +7"
    assert say.differences(group) == "1 × 310, 2 × 2"
    assert say.evidence_mix({"contradicted": 1, "engine": 2, "new": 3}) == "2 engine, 1 contradicted, 3 new"


def test_tallies_are_bounded() -> None:
    counts = {f"code_{n:02}": 100 - n for n in range(12)} | {"zero": 0}
    assert say.tally(counts, 2) == "100 code_00, 99 code_01, 935 of 10 other kinds"
