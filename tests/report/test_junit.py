"""JUnit XML: it follows Jenkins' schema, its counts are true, and it is red whenever the gate is not open."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema

from toolkit.records import Severity, Verdict
from toolkit.report.junit import render_junit

from .builder import (
    HOSTILE,
    failing_result,
    failing_verdict,
    hostile_verdict,
    incomplete_verdict,
    passing_verdict,
    result,
    suite,
)


@functools.cache
def schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def parse(verdict: Verdict) -> ET.Element:
    """The parsed report, held against the schema, and its counts against what is in it."""
    root = ET.fromstring(render_junit(verdict).encode())
    schema().validate(root)
    for element in (root, *root.iter("testsuite")):
        assert int(element.get("tests", "")) == len(list(element.iter("testcase")))
        assert int(element.get("failures", "")) == len(list(element.iter("failure")))
        assert element.get("errors") == "0"
    for element in root.iter("testsuite"):
        assert int(element.get("skipped", "")) == len(list(element.iter("skipped")))
    return root


def test_the_schema_refuses_what_is_not_junit() -> None:
    for source in (
        '<testsuites skipped="0"/>',
        "<testsuites><testcase name='a'/></testsuites>",
        "<testsuites><testsuite name='a' tests='x' failures='0' errors='0'/></testsuites>",
        "<testsuites><testsuite name='a' tests='0' failures='0' errors='0' time='-1'/></testsuites>",
    ):
        assert not schema().is_valid(ET.fromstring(source))


def failed(root: ET.Element) -> list[str]:
    return [case.get("name", "") for case in root.iter("testcase") if case.find("failure") is not None]


def test_a_pass_is_green() -> None:
    root = parse(passing_verdict())
    assert failed(root) == []
    assert [found.get("name") for found in root] == ["B3_magicoder.verdict", "B3_magicoder.default"]
    assert {case.get("classname") for case in root[1]} == {"B3_magicoder.default"}
    assert [case.get("name") for case in root[0]] == ["gate", "complete"]
    assert [case.get("name") for case in root[1]][-2:] == ["replacement_chars", "quarantine share"]


def test_a_closed_gate_fails_what_closes_it() -> None:
    root = parse(failing_verdict())
    assert failed(root) == ["gate", "reencode_equal", "evidence_known", "quarantine share"]
    failure = root.find(".//testcase[@name='reencode_equal']/failure")
    assert failure is not None
    assert failure.get("message") == "41 of 3,383 rows fail (1.2 %): mc-00012, mc-00077/1/0, mc-01841/0/2 …"
    assert "mc-00077/1/0: false" in (failure.text or "")


def test_a_warning_is_skipped_and_tells() -> None:
    case = parse(failing_verdict()).find(".//testcase[@name='replacement_chars']")
    assert case is not None
    assert [child.tag for child in case] == ["skipped", "system-out"]
    told = "warning: 12 of 3,383 rows fail (0.4 %): mc-00012, mc-00077/1/0, mc-01841/0/2 …"
    assert (case[0].get("message"), case[0].text) == (told, told)
    assert "row mc-00077/1/0: false" in (case[1].text or "")


def test_what_only_informs_passes() -> None:
    run = suite(result(), failing_result("long", severity=Severity.INFO))
    case = parse(passing_verdict(suites=(run,))).find(".//testcase[@name='long']")
    assert case is not None
    assert [child.tag for child in case] == ["system-out"]


def test_all_failing_rows_are_named_where_the_audit_kept_all() -> None:
    run = suite(failing_result(unexpected_count=3))
    failure = parse(failing_verdict(suites=(run,))).find(".//testcase[@name='reencode_equal']/failure")
    assert failure is not None
    assert (failure.get("message") or "").endswith(": mc-00012, mc-00077/1/0, mc-01841/0/2")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0.000"), (83.4567, "83.457"), (-1.0, "0"), (float("nan"), "0"), (1e300, "0")]
)
def test_the_audit_took_its_time(seconds: float, shown: str) -> None:
    root = parse(replace(passing_verdict(), elapsed_s=seconds))
    assert root[0].get("time") == root[0][0].get("time") == shown


def test_an_incomplete_dataset_is_red() -> None:
    root = parse(incomplete_verdict())
    assert failed(root) == ["complete"]
    told = (root.findtext(".//failure") or "").splitlines()
    assert told[1] == "117 of 3,517 answers are missing: mc-3384, mc-3385/0/1, mc-3386, mc-3387, mc-3388 and 112 more"
    assert told[-1] == "40 replies wait in the journal and are in no shard yet"


def test_a_closed_gate_is_red_though_every_expectation_holds() -> None:
    verdict = passing_verdict(passed=False, reasons=("1 shard cannot be read",), unreadable=("p",), suites=())
    root = parse(verdict)
    assert failed(root) == ["gate"]
    failure = root.find(".//failure")
    assert failure is not None
    assert "1 shard cannot be read" in (failure.get("message") or "")


def test_what_could_not_be_evaluated_is_red() -> None:
    run = suite(result("broken", error="no column 'x'"))
    root = parse(failing_verdict(suites=(run,)))
    failure = root.find(".//testcase[@name='broken']/failure")
    assert failure is not None
    assert failure.get("type") == "not evaluated"
    assert "could not be evaluated: no column 'x'" in (failure.get("message") or "")


TAGS = {"testsuites", "testsuite", "testcase", "failure", "skipped", "system-out"}


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_legal_xml(text: str, damaged: bool) -> None:
    source = render_junit(hostile_verdict(text, damaged=damaged))
    assert len(source) < 40_000
    root = parse(hostile_verdict(text, damaged=damaged))
    assert {element.tag for element in root.iter()} <= TAGS
    assert not set(source) & set("\x1b\x07\x9b\r\t\x00\u202e\ud800\ufffe")
