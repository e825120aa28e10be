"""Providers beside each other and what was learned: the table, the sentences, and that both faces show them."""

from __future__ import annotations

from dataclasses import replace

from toolkit.findings import Finding, Learned
from toolkit.report import beside
from toolkit.report.console import render_verdict
from toolkit.report.html import render_html

from .builder import learned, passing_verdict, provider_line


def test_a_line_has_a_cell_for_each_heading() -> None:
    verdict = passing_verdict(learned=learned())
    lines, more = beside.lines_of(verdict, 15)
    assert lines[1].cells == (
        "openrouter/Chutes · thinking", "1,325", "2.1 %", "30.0 %", "612", "0.03", "0.0 %", "98–100 %", "–", "$2.41",
        "42",
    )  # fmt: skip
    assert (len(lines), more) == (2, 3)
    assert {len(line.cells) for line in lines} == {len(beside.HEADINGS)}


def test_what_is_not_known_is_a_dash() -> None:
    unknown = provider_line(
        "X", length_share=None, tool_calls_share=None, median_ids=None, ks_distance=None, schema_lower=None,
        schema_upper=None, cost_per_million_usd=None, latency_p95_s=None,
    )  # fmt: skip
    lines, more = beside.lines_of(passing_verdict(learned=Learned(providers=(unknown, unknown))), 1)
    assert lines[0].cells[2:] == ("–", "–", "–", "–", "0.0 %", "–", "–", "–", "–")
    assert more == 1


def test_one_line_alone_is_no_table() -> None:
    assert beside.lines_of(passing_verdict(learned=Learned(providers=(provider_line(None),))), 15) == ((), 0)
    assert beside.learned_sentences(passing_verdict()) == ()
    assert "beside each other" not in render_verdict(passing_verdict(), report=None, colour=False)
    assert "What was learned" not in render_html(passing_verdict())


def test_what_was_learned_in_sentences() -> None:
    assert beside.learned_sentences(passing_verdict(learned=learned())) == (
        (
            "warning · openrouter · Chutes: completion_tokens: from here on the provider counts every id "
            "(40 rows, the first is s60/0/0) [completion_convention_changed]"
        ),
        "info · answers cut at the cap (9 rows) [share_changed]",
        "openrouter · Chutes trims: 0 of 300 have content that begins in white space; sglang has it in 12.3 % or more",
        "calibration: of 395 engine rows whose count agrees …",
        "calibration by class, rows with other ids than the engine's: code 12 of 400 (1.7–5.2 %)",
        (
            "probes: sglang beside openrouter · Chutes, thinking: 10 of 40 answers the same to the last id (25.0 %), "
            "the others part at id 17 (median), length ratio 1.25"
        ),
        "histories: 5 rows on our own earlier answers, 2 on others', 1 on what the prompt's author wrote",
    )


def test_many_findings_are_counted() -> None:
    findings = tuple(Finding(code="c", severity="info", says=f"n{i}") for i in range(50))
    told = beside.learned_sentences(passing_verdict(learned=Learned(findings=findings)))
    assert len(told) == 21
    assert told[-1] == "and 30 further findings in verdict.json"


def test_both_faces_show_all_of_it() -> None:
    verdict = passing_verdict(learned=replace(learned(), left_off={}))
    shown = render_verdict(verdict, report=None, colour=False)
    assert max(map(len, shown.splitlines())) <= 80
    page = render_html(verdict)
    for sentence in beside.learned_sentences(verdict):
        assert sentence.split()[0] in shown
        assert sentence.replace("'", "&#39;") in page
    assert "openrouter/Chutes" in shown.replace("\n", "")
    assert "98–100 %" in shown
    assert "$2.41" in page
    assert "F1" not in shown.split("What was learned")[0].split("beside each other")[1].splitlines()[1]
