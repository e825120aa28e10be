"""The Markdown summary: tables that hold, and nothing live from outside."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from toolkit.records import Verdict
from toolkit.report.markdown import code, prose
from toolkit.report.summary import render_summary
from toolkit.report.text import clean

from .builder import HOSTILE, failing_verdict, hostile_verdict, incomplete_verdict, passing_verdict


def tables(markdown: str) -> list[list[list[str]]]:
    """Tables as lists of rows of cells, split at every pipe as the strictest reader would."""
    blocks = [block.split("\n") for block in markdown.split("\n\n")]
    return [[line.strip("|").split("|") for line in block] for block in blocks if block[0].startswith("|")]


def without_code(markdown: str) -> str:
    """What remains live: the text outside of code spans, without our own pipes and line breaks."""
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)|&#124;|<br>", "", markdown)


@pytest.mark.parametrize("verdict", [passing_verdict(), failing_verdict(), incomplete_verdict()])
def test_rows_of_a_table_have_the_same_number_of_cells(verdict: Verdict) -> None:
    found = tables(render_summary(verdict))
    assert len(found) == 3
    for table in found:
        assert {len(row) for row in table} == {len(table[0])}


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_breaks_no_table_and_is_not_live(text: str, damaged: bool) -> None:
    markdown = render_summary(hostile_verdict(text, damaged=damaged))
    for table in tables(markdown):
        assert {len(row) for row in table} == {len(table[0])}
    live = without_code(markdown)
    assert not re.search(r"[<@\[\]_\\]|https?:|www\.|#\d", live)
    assert not set(markdown) & set("\x1b\x07\x9b\r\t\x00\u202e\u2028\ud800\ufffe")
    assert len(markdown) < 60_000


@pytest.mark.parametrize("text", HOSTILE)
def test_a_code_span_shows_exactly_the_text(text: str) -> None:
    cleaned = clean(text, 120)
    html = MarkdownIt("commonmark").renderInline(f"x {code(cleaned)} y")
    shown = re.sub(r"</?code>", "", html)
    expected = cleaned.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    assert shown == f"x {expected} y"
    assert "<a" not in html


@pytest.mark.parametrize("text", ["`", "``a`", " a", "a ", " ", "|", "a|b|", "\\|", "a\\"])
def test_awkward_code_spans(text: str) -> None:
    html = MarkdownIt("commonmark").renderInline(code(text))
    assert re.sub(r"</?code>", "", html) == text


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("41 of 3,383 rows fail (1.2 %), at most 0.1 % may", "41 of 3,383 rows fail (1.2 %), at most 0.1 % may"),
        ("evidence_known: 2 rows fail", "`evidence_known`: 2 rows fail"),
        ("ask @user about #12 now", "ask `@user` about `#12` now"),
        ("see www.evil.example, or http://x.y.", "see `www.evil.example`, or `http://x.y`."),
        ("a|b", "`a`&#124;`b`"),
        ("*a* _b_", "`*a* _b_`"),
        ("a <b>c", "a `<b>c`"),
    ],
)
def test_only_plain_words_stand_outside_of_code(sentence: str, expected: str) -> None:
    assert prose(sentence) == expected


def test_the_answer_why_who_and_what_next() -> None:
    markdown = render_summary(failing_verdict())
    assert markdown.startswith("## ⛔ GATE CLOSED: may not be merged\n")
    for expected in (
        "3,383 rows: 1,746 sglang, 1,637 openrouter",
        "- `reencode_equal`: 41 of 3,383 rows fail (1.2 %), at most 0.1 % may",
        "- openrouter · Inceptron: 200 of 312 rows quarantined (64.1 %), 190 contradicted, 11 unverified",
        "- then audit again: `audit B3_magicoder`",
        "| quarantined | 201 | 5.9 %, at most 5 % allowed |",
        "| ⛔ critical | `evidence_known`<br>Another engine makes other ids of the row's text. |",
        "- contract: `kimi-k2.5 c0c0c0c0c0c0`, as shipped",
        "- openrouter · Inceptron: 190 rows: the reported `completion_tokens` do not fit the number of ids; 11 rows:",
        "4 expectations without a failing row.",
    ):
        assert expected in markdown
    assert render_summary(passing_verdict()).startswith("## ✅ PASSED: may be merged\n")
    assert render_summary(incomplete_verdict()).startswith("## ⏳ INCOMPLETE: may not be merged yet\n")
