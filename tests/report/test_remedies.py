"""What to do about rows that are not proved, and sentences that read well."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest

from toolkit.findings import ConventionFound, Count, Learned
from toolkit.records import Accounting, Origin
from toolkit.report import outcome as say
from toolkit.report.beside import key_of
from toolkit.report.console import progress
from toolkit.report.counts import missing_sentences
from toolkit.report.markdown import prose
from toolkit.report.remedies import remedies_of
from toolkit.report.steps import next_steps
from toolkit.report.text import readable

from .builder import HOSTILE, failing_result, failing_verdict, provider, result, suite


def count(why: str) -> Count:
    return Count(name="unknown", rows=12, support=0, explained=12, confidence=0.0, why=why)


def verdict_with(code: str, name: str | None = "Moonshot AI", why: str = ""):
    group = provider(name, evidence={"unverified": 12}, evidence_reasons={code: 12})
    found = ConventionFound(
        source=group.source, provider=name, model=None, streamed=None, completion=count(why), reasoning=count(""),
        prompt=count(""),
    )  # fmt: skip
    run = suite(failing_result("evidence_given", kwargs={"column": "evidence"}))
    return failing_verdict(providers=(group,), learned=Learned(conventions=(found,)), suites=(run,))


@pytest.mark.parametrize(
    ("code", "why", "says"),
    [
        ("convention_unknown", "7 rows tell it from counting every id; 30 are needed", "23 more rows of it are needed"),
        ("convention_unknown", "two conventions: 9 rows speak", "no one way of counting explains its rows (two conv"),
        ("convention_unknown", "", "no one way of counting explains its rows: do without it"),
        ("no_count", "", "keep usage when you store replies"),
        ("text_altered", "", "no count can prove its text: do without it"),
        ("count", "", "hold the text that you stored against what came"),
    ],
)
def test_each_reason_has_its_remedy(code: str, why: str, says: str) -> None:
    verdict = verdict_with(code, why=why)
    (step,) = remedies_of(verdict)
    assert step.says.startswith(f"openrouter · Moonshot AI, 12 rows {code}: ")
    assert says in step.says
    assert step in next_steps(verdict)
    command = f"tokenproof discard B3_magicoder --where 'provider=Moonshot AI' --reason {code}"
    assert step.command == (command if code in ("convention_unknown", "text_altered") else None)


def test_who_is_discarded_is_not_to_be_asked_again() -> None:
    told = {}
    for origin in (Origin.GENERATE, Origin.IMPORT):
        (step,) = remedies_of(replace(verdict_with("text_altered"), origins={origin: 12}))
        told[origin] = step.says
    assert told[Origin.GENERATE].endswith("; name it in the endpoint's provider.ignore too, or it may be asked again")
    assert "provider.ignore" not in told[Origin.IMPORT]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_and_reasons_stay_harmless(text: str) -> None:
    for step in (*remedies_of(verdict_with(text, text)), *remedies_of(verdict_with("convention_unknown", text, text))):
        assert len(step.says) < 600
        assert not set(step.says + (step.command or "")) & set("\x1b\n\r\u202e\ud800")


def test_remedies_are_told_only_where_evidence_closes_the_gate() -> None:
    verdict = replace(verdict_with("no_count"), suites=(suite(failing_result("other")),))
    assert not any("keep usage" in step.says for step in next_steps(verdict))


def test_a_missing_answer_is_told_with_what_came_for_it() -> None:
    accounting = Accounting(
        asked=4, rows=2, answered=2, failed=0, unanswered=2, unsealed=0, missing=(("m3", 0, 0), ("m4", 0, 1)),
        missing_reasons=("model_mismatch", ""),
    )  # fmt: skip
    assert missing_sentences(accounting) == ("2 of 4 answers are missing: m3 (model_mismatch), m4/0/1",)
    verdict = failing_verdict(passed=False, complete=False, accounting=accounting)
    assert any("datasets/B3_magicoder/failures/" in step.says for step in next_steps(verdict))


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("5 of 9 rows fail (55.56%; allowed 5.00%): x", "5 of 9 rows fail (55.56 %; allowed 5 %): x"),
        ("all 1 rows would", "all 1 row would"),
        ("21 rows, 1,001 rows, 0.50%", "21 rows, 1,001 rows, 0.5 %"),
        ("10.10% and %2f and 100 %", "10.1 % and %2f and 100 %"),
    ],
)
def test_sentences_of_the_audit_read_like_the_report(sentence: str, expected: str) -> None:
    assert readable(sentence) == expected
    assert readable(expected) == expected


def test_figures_are_no_code() -> None:
    assert prose("fail (55.56 %; allowed 5%) rows") == "fail (55.56 %; allowed 5%) rows"


def test_an_expectation_without_a_row_and_an_engine_say_what_they_are() -> None:
    assert say.found_by(result("x", element_count=0)) == "no row to look at"
    assert say.found_by(result("x", element_count=1)) == "holds for the row"
    engine = provider(None, convention="unknown", convention_support=0)
    assert say.convention_of(engine) == "ids are its own"
    assert say.convention_of(replace(engine, evidence={"engine": 1745, "contradicted": 1})) == "unknown"


def test_the_key_explains_the_columns_that_are_shown() -> None:
    assert key_of(["rows", "cut", "p95"]) == "cut: finish reason length · p95: seconds"


def test_the_last_line_of_progress_is_not_written_twice() -> None:
    stream = StringIO()
    now = iter(range(0, 1000, 10))
    with progress("audit B3", 120, enabled=False, stream=stream, clock=lambda: float(next(now))) as advance:
        advance(120)
    assert stream.getvalue() == "audit B3: 120 of 120\n"
