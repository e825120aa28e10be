"""What a verdict says: may I merge, why not, whose fault, what next."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.audit import evidence
from toolkit.audit.suite import read_suite, shipped_suite
from toolkit.records import Accounting, Severity, Verdict
from toolkit.report import outcome as say
from toolkit.report.console import render_verdict
from toolkit.report.counts import asked_sentence, failures_of, merge_sentence, tally
from toolkit.report.doubts import doubts_of, evidence_mix, group_name, reason_of
from toolkit.report.html import render_html
from toolkit.report.junit import render_junit
from toolkit.report.steps import Step, next_steps
from toolkit.report.summary import render_summary

from .builder import (
    HOSTILE,
    failing_result,
    failing_verdict,
    incomplete_verdict,
    passing_verdict,
    provider,
    result,
    suite,
)

PUT_BACK = (
    "put 1 damaged or missing shard back from a copy of yours, byte for byte as sealed",
    (
        "no copy? make the answers anew in another dataset: copy prompts.jsonl into datasets/B3_magicoder_again/ "
        "and import the files that you had"
    ),
    "or ask again",
)
LOOK = (
    "look at what fails evidence_known, reencode_equal; quarantine.parquet lists all of them; "
    "mend the cause where the rows come from"
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
    assert [step.says for step in next_steps(verdict)] == [
        *PUT_BACK,
        "correct the suite: broken could not be evaluated",
        LOOK,
        "find out why so many rows are in quarantine: its reasons are counted below",
        "then audit again",
    ]
    assert next_steps(passing_verdict()) == (
        Step(
            "merge it (writes 3,381 of 3,383 rows; left out: 2 in quarantine)",
            "tokenproof merge B3_magicoder -o train/B3_magicoder",
        ),
    )


def test_a_damaged_shard_is_put_back_or_its_answers_are_made_anew() -> None:
    verdict = failing_verdict(unreadable=("part-003.parquet",), complete=False, rows=0, suites=())
    steps = next_steps(verdict)
    assert tuple(step.says for step in steps) == (*PUT_BACK, "then audit again")
    assert [step.command for step in steps] == [
        None,
        "tokenproof import B3_magicoder_again FILE…",
        "tokenproof generate B3_magicoder_again",
        "audit B3_magicoder",
    ]


def test_an_incomplete_dataset_says_what_is_missing_and_how_to_get_it() -> None:
    verdict = incomplete_verdict()
    assert say.reasons_of(verdict) == (
        "117 of 3,517 answers are missing: mc-3384, mc-3385/0/1, mc-3386, mc-3387, mc-3388 and 112 more",
        "3 of them failed before: 3 http_429",
        "40 replies wait in the journal and are in no shard yet",
    )
    generate = "tokenproof generate B3_magicoder"
    assert [step.command for step in next_steps(verdict)] == [generate, None, "audit B3_magicoder"]
    imported = replace(verdict, origins={"import": 3383})
    assert [step.command for step in next_steps(imported)][:2] == ["tokenproof import B3_magicoder FILE…", generate]
    unsealed = replace(verdict.accounting, unanswered=0, unsealed=1, repeated_by_reason={}, missing=())
    waiting = replace(verdict, accounting=unsealed)
    assert say.reasons_of(waiting) == ("1 reply waits in the journal and is in no shard yet",)
    assert next_steps(waiting)[0].command == generate


@pytest.mark.parametrize("verdict", [failing_verdict(), incomplete_verdict(), failing_verdict(unreadable=("p",))])
def test_only_commands_that_exist_are_named(verdict: Verdict) -> None:
    told = " ".join(f"{step.says} {step.command or ''}" for step in next_steps(verdict))
    named = set(re.findall(r"tokenproof (\w+)", told))
    known = subprocess.run([sys.executable, "-m", "toolkit", "--help"], capture_output=True, text=True, check=True)
    assert named <= set(re.findall(r"\w+", known.stdout))


def test_rows_without_their_prompt_are_never_kept_silent_about() -> None:
    verdict = passing_verdict(left_out={"quarantined": 2, "prompt_unknown": 50})
    assert say.outcome_of(verdict).headline == "PASSED: may be merged, without 50 rows that lack their prompt"
    told = "writes 3,331 of 3,383 rows; left out: 50 without the ids of their prompt, 2 in quarantine"
    assert say.reasons_of(verdict) == (f"a merge {told}",)
    first, last = next_steps(verdict)
    assert first.command == "tokenproof import B3_magicoder FILE…"
    assert last.says == f"merge it ({told})"


def test_a_pass_of_which_nothing_would_be_merged_is_no_invitation_to_merge() -> None:
    verdict = passing_verdict(left_out={"prompt_unknown": 3383}, quarantined=0)
    outcome = say.outcome_of(verdict)
    assert (outcome.headline, outcome.tone) == ("PASSED: but a merge would write no row", "incomplete")
    assert not any("merge" in (step.command or "") for step in next_steps(verdict))


def test_failures_add_up_and_say_whether_they_are_asked_again() -> None:
    accounting = incomplete_verdict().accounting
    assert [(f.name, f.sentence) for f in failures_of(accounting)] == [
        ("failed", "17, not asked again: 12 http_400, 5 no_choices"),
        ("to repeat", "3, failed before, and the next run asks again: 3 http_429"),
        ("lines", "1, imported without giving a row: 1 id_conflict"),
    ]
    assert asked_sentence(accounting) == "3,517: 3,383 answered, 17 failed, 117 unanswered"
    lines = Accounting(
        asked=None, rows=2, answered=None, failed=2, unanswered=None, unsealed=0, lines_by_reason={"id_conflict": 2}
    )
    assert [(f.name, f.sentence) for f in failures_of(lines)] == [
        ("failed", "0"),
        ("lines", "2, imported without giving a row: 2 id_conflict"),
    ]


def test_each_provider_says_why_its_rows_are_not_proved() -> None:
    (doubt,) = doubts_of(failing_verdict())
    assert doubt.group == "openrouter · Inceptron"
    assert doubt.sentences == (
        "190 rows: the reported completion_tokens do not fit the number of ids",
        "11 rows: it is not known how this provider counts ids: too few of its rows tell, or it counts in several ways",
    )
    assert reason_of("new_code") == "reason new_code"


def test_every_reason_that_the_audit_gives_has_its_words() -> None:
    source = Path(evidence.__file__).read_text(encoding="utf-8")
    codes = set(re.findall(r'"(?:unverified|contradicted):(\w+)"', source))
    assert len(codes) >= 9
    assert [code for code in codes if reason_of(code).startswith("reason ")] == []


@pytest.mark.parametrize("name", ["kimi-k2.5", "kimi-k2-instruct", "gpt-oss"])
def test_every_expectation_says_in_a_sentence_what_is_wrong(name: str) -> None:
    expectations = read_suite(shipped_suite(name)).expectations
    assert len(expectations) >= 37
    for expectation in expectations:
        assert expectation.wrong is not None, expectation.id
        assert re.fullmatch(r"[A-Z<].{15,200}\.", expectation.wrong), expectation.id
        assert expectation.wrong != expectation.says


def test_what_is_wrong_is_said_where_it_fails_only() -> None:
    assert say.about(failing_result()) == "Another engine makes other ids of the row's text."
    assert say.about(failing_result(fault=None)).startswith("The row's text, encoded again")
    assert say.about(result(fault="wrong")) == "A complete answer ends with the terminal id."


def test_no_sentence_ends_twice() -> None:
    verdict = failing_verdict(reasons=("a: 3 rows fail: it is wrong.", "b: nor does this hold. "))
    assert say.reasons_of(verdict) == ("a: 3 rows fail: it is wrong", "b: nor does this hold")


def test_a_command_can_be_pasted_whatever_the_dataset_is_called() -> None:
    step = next_steps(failing_verdict(dataset="x; rm -rf ~"))[-1]
    assert step.command == "audit 'x; rm -rf ~'"
    assert next_steps(passing_verdict(dataset="x; y"))[-1].command == "tokenproof merge 'x; y' -o train/'x; y'"


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
    assert group_name(group) == "openrouter · Inceptron"
    assert say.convention_of(group) == "all but the terminal (310 agree), prompt +7"
    assert say.differences(group) == "1 × 310, 2 × 2"
    assert evidence_mix({"contradicted": 1, "engine": 2, "new": 3}) == "2 engine, 1 contradicted, 3 new"


def test_tallies_are_bounded() -> None:
    counts = {f"code_{n:02}": 100 - n for n in range(12)} | {"zero": 0}
    assert tally(counts, 2) == "100 code_00, 99 code_01, 935 of 10 other kinds"


def test_only_an_open_gate_says_what_a_merge_writes() -> None:
    told = "writes 3,381 of 3,383 rows; left out: 2 in quarantine"
    assert merge_sentence(passing_verdict()) == told
    assert merge_sentence(passing_verdict(left_out={})) == "writes all 3,383 rows"
    assert merge_sentence(passing_verdict(left_out=None)) is None
    assert merge_sentence(failing_verdict()) is None
    shown = render_verdict(passing_verdict(), report=None, colour=False)
    assert f"a merge      {told}" in shown
    assert "Written by a merge" in render_html(passing_verdict())
    assert f"| written by a merge | 3,381 | {told} |" in render_summary(passing_verdict())
    assert f"a merge {told}" in render_junit(passing_verdict())
    assert "Written by a merge" not in render_html(failing_verdict())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_pass_with_hostile_names_is_as_safe(text: str) -> None:
    verdict = passing_verdict(dataset=text, contract=text, left_out={text: 3, "prompt_unknown": 1})
    shown = render_verdict(verdict, report=text, colour=False)
    assert "\x1b" not in shown
    own = render_html(passing_verdict()).count("<script")
    assert render_html(verdict).count("<script") == own
    assert "\x1b" not in render_summary(verdict) + render_junit(verdict)


def test_while_a_run_has_something_under_way_that_is_said_first() -> None:
    verdict = failing_verdict()
    for changes, says in (({"at_work": True}, "a run over this dataset is at work"), ({"journaled": 2}, "2 lines of")):
        counts = replace(verdict.accounting, unanswered=0, missing=(), repeated_by_reason={}, unsealed=0, **changes)
        running = replace(verdict, accounting=counts, complete=False, unreadable=())
        assert say.outcome_of(running).word == "INCOMPLETE"
        assert say.reasons_of(running)[0].startswith(says)
        steps = next_steps(running)
        assert not any("mend" in step.says for step in steps)
        assert steps[0].command is not None
        assert ("status" if "at_work" in changes else "generate") in steps[0].command


def test_answers_to_a_changed_prompt_are_counted_and_named() -> None:
    verdict = passing_verdict()
    counts = replace(verdict.accounting, changed=2, first_changed=(("q1", 0, 0),), changed_imports=1)
    reasons = say.reasons_of(replace(verdict, accounting=counts, complete=counts.complete))
    assert reasons == (
        "2 answers are to another request than prompts.jsonl and settings state now: q1 and 1 more",
        "1 imported answer is to another prompt than prompts.jsonl holds now",
    )
    commands = [step.command for step in next_steps(replace(verdict, accounting=counts, complete=False))]
    assert [(c or "").split()[1] for c in commands[:2]] == ["generate", "import"]


def test_where_the_contract_has_no_renderer_prompts_are_not_asked_for() -> None:
    verdict = replace(passing_verdict(), left_out={"prompt_unknown": 3}, notes={"prompt_not_rendered": 3})
    assert "put the prompts" in next_steps(verdict)[0].says
    told = next_steps(replace(verdict, has_renderer=False))[0]
    assert told.command is None
    assert "has no renderer" in told.says
