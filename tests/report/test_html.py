"""The page: self-contained, inert whatever it shows, bounded, and the same facts as the terminal."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from toolkit.records import Verdict
from toolkit.report import html
from toolkit.report.html import render_html
from toolkit.report.text import clean

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

SCRIPT = (Path(html.__file__).parent / "templates/page.js").read_text(encoding="utf-8")
VOID = {"meta", "br", "rect", "input"}
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "article", "div", "h1"),
    *("h2", "h3", "p", "ul", "li", "dl", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "details"),
    *("summary", "span", "strong", "code", "bdi", "br", "a", "svg", "rect", "path", "form", "label", "input", "select"),
    *("option", "output", "button", "figure", "figcaption", "h4", "ol", "b", "i", "small", "noscript", "script"),
}
LINKS = re.compile(r"#(details|rows|row-\d+)")


class Page(HTMLParser):
    """Tags, attributes and text of a page; it fails where tags are not closed in order."""

    def __init__(self, source: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.style = ""
        self.scripts: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag in ("td", "th"):
            self.text += " "

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self.style += data
        elif self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text += data

    def values(self, name: str) -> list[str | None]:
        return [value for _, found, value in self.attributes if found == name]


def assert_inert(page: Page) -> None:
    """No script but our own, no handler, no inline style, nothing loaded, no link that leaves the page."""
    assert set(page.tags) <= ALLOWED
    names = {name for _, name, _ in page.attributes}
    assert [name for name in names if name.startswith("on")] == []
    assert not names & {"style", "src", "srcset", "action", "formaction", "background", "poster", "ping"}
    assert all(value and LINKS.fullmatch(value) for value in page.values("href"))
    *data, script = page.scripts
    assert script == SCRIPT
    assert len(data) <= 1
    assert not set("".join(data)) & set("<>&")


@pytest.mark.parametrize("verdict", [passing_verdict(), failing_verdict(), incomplete_verdict()])
def test_the_page_is_inert_and_whole(verdict: Verdict) -> None:
    source = render_html(verdict)
    assert_inert(Page(source))
    assert source.count("<script") == 1
    assert not re.search(r"https?://|url\(|@import", source)
    assert "Undefined" not in source


def test_the_policy_names_the_style_and_the_script_that_are_there_and_nothing_else() -> None:
    page = Page(render_html(passing_verdict()))
    policy = next(value for value in page.values("content") if value and value.startswith("default-src"))
    style, script = (
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (page.style, page.scripts[-1])
    )
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert page.tags.count("style") == 1


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(text: str, damaged: bool) -> None:
    source = render_html(hostile_verdict(text, damaged=damaged))
    page = Page(source)
    assert_inert(page)
    assert source.count("<script") == 1
    assert not set(source.replace(SCRIPT, "")) & set("\x1b\x07\x9b\r\t\x00\u202e\u2066\u200b\ufeff\u2028\ud800\ufffe")
    assert clean(text, 60) in page.text
    assert clean(text, 160) in page.text
    assert source.encode()


def test_a_page_of_huge_values_stays_small() -> None:
    huge = "<&>" * 350_000
    examples = tuple({"sample_id": huge, "turn": 0, "sample_index": n, "value": huge} for n in range(200))
    source = render_html(failing_verdict(suites=(suite(failing_result(examples=examples)),)))
    assert len(source) < 400_000
    assert "100 further rows not shown" in source


def test_many_names_are_bounded_and_the_rest_is_counted() -> None:
    nulls = {f"column_{n}": n for n in range(2000)}
    groups = tuple(provider(f"P{n}", rows=n + 1) for n in range(700))
    page = Page(render_html(passing_verdict(nulls=nulls, providers=groups)))
    assert "and 1,880 further lines in verdict.json" in page.text
    assert "and 580 further lines in verdict.json" in page.text
    assert "column_1999" in page.text
    assert "column_0\n" not in page.text


def test_everything_of_the_verdict_is_on_the_page() -> None:
    text = " ".join(Page(render_html(failing_verdict())).text.split())
    for expected in (
        "GATE CLOSED: may not be merged",
        "3,383 rows: 1,746 sglang, 1,637 openrouter",
        "201 of 3,383 rows are in quarantine (5.9 %), at most 5 % may be",
        "openrouter · Inceptron: 100 % of the bad rows, though only 9.2 % of all rows",
        "openrouter · Inceptron: 200 of its 312 rows (64.1 %)",
        "then audit again: audit B3_magicoder",
        "41 of 3,383 rows, 1.2 %; must hold for 99.9 %",
        "column=last_id, value_set=[163586]",
        "38 further rows not shown; quarantine.parquet lists all",
        "mc-00077/1/0 false",
        "Expectations: default 4 of 8 fail",
        "1 × 310, 2 × 2",
        "http_400 12 70.6 %",
        "contractkimi-k2.5 c0c0c0c0c0c0, as shipped",
        "edited: not the shipped one",
        "only Chutes, Inceptron",
        "Another engine makes other ids of the row's text.",
        "190 rows: the reported completion_tokens do not fit the number of ids",
        "tool_id_rewritten 14 0.4 %",
        "tool_calls 3,300 97.5 %",
        "truncated 12 0.4 %",
        "unknown, prompt +7",
        "datasets/B3_magicoder/shards/part-001.parquet 1,383 " + "b2" * 32,
        "c0" * 32,
        "5e" * 32,
        "d4" * 32,
        "0.1.0, kernel 1",
    ):
        assert expected in text


def test_tables_speak_to_screen_readers() -> None:
    page = Page(render_html(failing_verdict()))
    assert page.tags.count("caption") == page.tags.count("table")
    assert {value for tag, name, value in page.attributes if (tag, name) == ("th", "scope")} == {"col", "row"}
    assert len([1 for tag, name, _ in page.attributes if (tag, name) == ("th", "scope")]) == page.tags.count("th")
    assert page.tags.count("h1") == 1
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert "Evidence of all rows: 1,746 engine, 1,436 counted, 11 unverified, 190 contradicted" in labels


def test_the_bar_is_whole_and_its_smallest_part_can_be_seen() -> None:
    source = render_html(passing_verdict(evidence={"engine": 1_000_000, "contradicted": 1}))
    bar = source[source.index('<svg class="bar tall"') :].split("</svg>")[0]
    sizes = [(int(x), int(w)) for x, w in re.findall(r'x="(\d+)" y="0" width="(\d+)"', bar)]
    assert re.findall(r'rect class="(\w+)"', bar) == ["engine", "contradicted"]
    assert sizes[0][0] == 0
    assert sizes[1][1] >= 5
    assert abs(sum(sizes[1]) - 1000) <= 2


def test_a_verdict_with_nothing_in_it_has_a_page() -> None:
    empty = replace(
        failing_verdict(), suites=(), shards=(), providers=(), rows=0, quarantined=0, evidence={}, sources={}, nulls={}
    )
    text = Page(render_html(empty)).text
    assert "No suite was run." in text
    assert "0 rows: no source" in text


def test_a_tolerated_row_can_be_looked_at() -> None:
    example = {"sample_id": "mc-7", "turn": 0, "sample_index": 0, "value": "x"}
    held = result("tolerated", mostly=0.9, unexpected_count=1, examples=(example,))
    assert "mc-7 x" in Page(render_html(passing_verdict(suites=(suite(held),)))).text
