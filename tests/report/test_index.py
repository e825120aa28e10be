"""The page over all datasets: inert, whole, and true to how they stand."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from toolkit.records import Verdict
from toolkit.report.console import render_told
from toolkit.report.index import Entry, headline_of, render_index, tell_index
from toolkit.standing import Gate, Life, Standing

from .builder import HOSTILE, failing_verdict, hostile_verdict, passing_verdict
from .test_html import Page


def entry(name: str, gate: Gate, verdict: Verdict | None = None, *, page: bool = True, **changes: Any) -> Entry:
    fields: dict[str, Any] = {
        "dataset": name, "now": 0.0, "prompts": 10, "rows": 3383, "unsealed": 0, "run": None, "life": Life.NONE,
        "failures": {}, "gate": gate,
    }  # fmt: skip
    return Entry(standing=Standing(**fields | changes), verdict=verdict, page=page)


ENTRIES = (
    entry("B1", Gate.PASSED, passing_verdict()),
    entry("B2", Gate.CLOSED, failing_verdict(), gate_reasons=("evidence_known: 201 rows fail",)),
    entry("B3", Gate.NONE, page=False),
)


def rendered(*entries: Entry) -> str:
    return render_index(entries, created_at="2026-03-14T09:26:53Z")


def test_every_dataset_stands_there_with_its_gate() -> None:
    page = Page(rendered(*ENTRIES))
    text = " ".join(page.text.split())
    for expected in (
        "1 of 3 datasets may be merged",
        "B1 OPEN next: tokenproof merge B1 -o train/B1 3,383 > 99.9 % proved: 1,746 engine",
        "B2 CLOSEDevidence_known: 201 rows failnext: tokenproof report B2 3,383 94.1 % proved",
        "B3 NOT AUDITED",
    ):
        assert expected.replace(" ", "") in text.replace(" ", "")
    assert page.values("href") == ["B1/index.html", "B2/index.html"]


def test_the_page_is_inert_and_its_policy_names_its_style() -> None:
    source = rendered(*ENTRIES)
    page = Page(source)
    assert "script" not in page.tags
    assert not {name for _, name, _ in page.attributes} & {"style", "src", "srcset", "action", "onclick", "onload"}
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    policy = next(value for value in page.values("content") if value and value.startswith("default-src"))
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "http" not in source.replace("http-equiv", "")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(text: str) -> None:
    verdict = hostile_verdict(text)
    hostile = entry(text, Gate.CLOSED, verdict, gate_reasons=(text,), faults=(text,))
    source = rendered(*ENTRIES, hostile) if "\ud800" not in text else rendered(entry("a", Gate.CLOSED, verdict))
    page = Page(source)
    assert set(page.tags).isdisjoint({"script", "img", "iframe", "form", "input"})
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert all(str(link).endswith("/index.html") and ":" not in str(link) for link in page.values("href"))
    assert not set(source) & set("\x1b\x07\x9b\r\t\x00\u202e\u2066\u200b\ufeff\u2028\ud800\ufffe")
    assert source.encode()


def test_no_dataset_is_no_pass() -> None:
    assert headline_of(()) == "no datasets"
    assert 'class="banner incomplete"' in rendered()


@pytest.mark.parametrize("gate", list(Gate))
def test_only_an_open_gate_is_green(gate: Gate) -> None:
    only = entry("B1", gate, passing_verdict())
    assert (only.tone == "passed") == (gate is Gate.PASSED)
    assert ("1 of 1" in headline_of([only])) == (gate is Gate.PASSED)
    shown = render_told(tell_index([only], "reports/index.html"), colour=False)
    assert only.word in shown
