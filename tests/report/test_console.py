"""The terminal: 80 columns, no escape codes without colour, nothing interpreted."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from toolkit.report.console import progress, render_proof, render_verdict

from .builder import HOSTILE, failing_verdict, hostile_verdict, incomplete_verdict, passing_verdict, result, suite

VERDICTS = (passing_verdict(), failing_verdict(), incomplete_verdict())
_SGR = re.compile(r"\x1b\[[0-9;]*m")


def assert_fits(text: str, width: int) -> None:
    assert [line for line in text.split("\n") if cell_len(line) > width] == []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_line_fits(width: int) -> None:
    for verdict in VERDICTS:
        text = render_verdict(verdict, report="reports/B3_magicoder/index.html", colour=False, width=width)
        assert_fits(text, width)
        assert "\x1b" not in text


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_neither_wide_nor_live(text: str, damaged: bool) -> None:
    shown = render_verdict(hostile_verdict(text, damaged=damaged), report=text, colour=False)
    assert_fits(shown, 80)
    assert not set(shown) & set("\x1b\x07\x9b\r\t\x00\u202e\u2066\u200b\ufeff\u2028\ud800\ufffe")
    assert len(shown) < 40_000


def test_markup_from_outside_stays_text() -> None:
    shown = render_verdict(failing_verdict(reasons=("[bold]x[/bold] :smile: [link=y]z",)), report=None, colour=False)
    assert "✗ [bold]x[/bold] :smile: [link=y]z" in shown


def test_colour_adds_only_colour() -> None:
    plain = render_verdict(failing_verdict(), report=None, colour=False)
    coloured = render_verdict(failing_verdict(), report=None, colour=True)
    assert "\x1b[" in coloured
    assert [line.rstrip() for line in _SGR.sub("", coloured).split("\n")] == plain.split("\n")


def test_the_answer_comes_first() -> None:
    first_lines = ["".join(render_verdict(v, report=None, colour=False).split("\n")[1]) for v in VERDICTS]
    assert [line.strip("┃ ") for line in first_lines] == [
        "PASSED: may be merged",
        "GATE CLOSED: may not be merged",
        "INCOMPLETE: may not be merged yet",
    ]


def test_a_closed_gate_says_why_who_and_what_next() -> None:
    shown = " ".join(render_verdict(failing_verdict(), report="reports/B3/index.html", colour=False).split())
    for expected in (
        "3,383 rows: 1,746 sglang, 1,637 openrouter",
        "✗ 201 of 3,383 rows are in quarantine (5.9 %), at most 5 % may be",
        "· openrouter · Inceptron: 200 of 312 rows quarantined (64.1 %), 190 contradicted, 11 unverified",
        "→ then audit again: audit B3_magicoder",
        "quarantined 201 rows (5.9 %, at most 5 % allowed): 201 evidence_known, 41 reencode_equal",
        "✗ CRITICAL reencode_equal 41 1.2 % 99.9 % Another engine makes other ids of the row's text.",
        "for example mc-00012: false; mc-00077/1/0: false; mc-01841/0/2: null",
        "asked 3,400: 3,383 answered, 17 failed",
        "failed 17, not asked again: 12 http_400, 5 no_choices",
        "contract kimi-k2.5 c0c0c0c0c0c0, as shipped",
        "suite default 5e5e5e5e5e5e, edited: not the shipped one",
        "providers only Chutes, Inceptron",
        "Why rows are not proved openrouter · Inceptron 190 rows: the reported completion_tokens do not fit the number",
        "report reports/B3/index.html",
    ):
        assert expected in shown


def test_critical_findings_stand_above_warnings() -> None:
    shown = render_verdict(failing_verdict(), report=None, colour=False)
    assert shown.index("closing the gate") < shown.index("CRITICAL evidence_known") < shown.index("but shown only")
    assert shown.index("but shown only") < shown.index("WARNING replacement_chars") < shown.index("✓ 4 expectations")


def test_what_could_not_be_evaluated_for_one_reason_is_one_line() -> None:
    results = [result(f"e{n}", success=False, error="no rows: nothing was checked") for n in range(42)]
    verdict = failing_verdict(rows=0, suites=(suite(*results),), reasons=("unreadable: B3/p: cut short",), providers=())
    shown = " ".join(render_verdict(verdict, report=None, colour=False).split())
    assert "✗ 42 expectations (42 critical) could not be evaluated: no rows: nothing was checked" in shown
    assert shown.count("nothing was checked") == 1


def test_an_empty_suite_is_not_silent() -> None:
    assert "the suite has no expectations" in render_verdict(
        failing_verdict(suites=(suite(),)), report=None, colour=False
    )


def test_a_proof_shows_what_fails_first_and_in_full() -> None:
    digest = "0123456789abcdef" * 4
    lines = [("sha256", digest, digest, True), ("</think> encodes to", digest, digest[:-1] + "0", False)]
    shown = render_proof("kimi-k2.5", lines, colour=False)
    assert_fits(shown, 80)
    assert shown.startswith("NOT PROVEN: kimi-k2.5, 1 of 2 hold\n")
    assert shown.index("✗ FAILS") < shown.index("✓ holds")
    assert "…" not in shown[shown.index("✗ FAILS") : shown.index("✓ holds")]
    assert render_proof("k", lines[:1], colour=False).startswith("PROVEN: k, 1 of 1 hold\n")
    assert render_proof("k", [], colour=False).startswith("NOT PROVEN")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_proof_of_hostile_text_fits(text: str) -> None:
    shown = render_proof(text, [(text, text, text, False), (text, text, text, True)], colour=False)
    assert_fits(shown, 80)
    assert "\x1b" not in shown


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    ticks: Iterator[float] = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    out = io.StringIO()
    with progress("measure", 300, enabled=False, stream=out, clock=lambda: next(ticks)) as advance:
        advance(100)
        advance(100, "part-1\x1b[2J")
        advance(100)
    assert out.getvalue() == "measure: 200 of 300, part-1␛[2J\nmeasure: 300 of 300\n"


def test_progress_is_told_even_when_work_breaks_off() -> None:
    out = io.StringIO()

    def work() -> None:
        with progress("measure", None, enabled=False, stream=out) as advance:
            advance(7)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert out.getvalue() == "measure: 7\n"


def test_progress_on_a_terminal_is_a_bar() -> None:
    out = io.StringIO()
    with progress("measure [bold]", 3, enabled=True, stream=out) as advance:
        advance(3, "[red]done")
    assert "measure [bold]" in out.getvalue()
    assert "3/3" in out.getvalue()
    assert "[red]done" in out.getvalue()


def test_importing_the_module_does_not_import_rich() -> None:
    code = "import sys, toolkit.report.console, toolkit.report.html; print({'rich', 'jinja2'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
