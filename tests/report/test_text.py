"""Cleaning hostile text, and numbers for people."""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.report.text import bound, clean, dollars, duration, quantity, share

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain text, 漢字 und Ünïcode", "plain text, 漢字 und Ünïcode"),
        (" The", " The"),
        ("\x1b[31mred\x07", "␛[31mred␇"),
        ("a\nb\r\n\tc", "a⏎b␍⏎␉c"),
        ("\x7f\x9b", "␡\\u009b"),
        ("\u202eexe\u2066\u200b\ufeff", "\\u202eexe\\u2066\\u200b\\ufeff"),
        ("a\u2028b\u00a0c", "a\\u2028b\\u00a0c"),
        ("\ud800", "\\ud800"),
        ("\uffff\U000e0041\ue000", "\\uffff\\U000e0041\\ue000"),
        ("a\ufe0f\u3164", "a\\ufe0f\\u3164"),
        ("e\u0301", "e\u0301"),
        ("e\u0301\u0302\u0303", "e\u0301\u0302\\u0303"),
        ("\u0301", "\\u0301"),
        ("[bold]<b>`|", "[bold]<b>`|"),
        (None, "null"),
        (True, "true"),
        (163586, "163586"),
        (1.5, "1.5"),
        (["a\n", {"b": None}], '["a\\n", {"b": null}]'),
        (b"x", "\"b'x'\""),
    ],
)
def test_what_cleaning_shows(value: object, expected: str) -> None:
    assert clean(value, 80) == expected


def test_a_long_text_loses_its_middle() -> None:
    assert clean("abcdefghij", 10) == "abcdefghij"
    assert clean("abcdefghijk", 10) == "abcde…hijk"
    assert clean("abc", 1) == "…"


def test_an_escape_is_never_cut_in_two() -> None:
    assert clean("\u202e" * 10, 16) == "\\u202e…\\u202e"


def test_values_without_a_spelling_are_named() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert clean(deep, 80) == "<list>"
    cycle: dict[str, object] = {}
    cycle["self"] = cycle
    assert clean(cycle, 80) == "<dict>"
    assert clean(10**5000, 10).startswith("0x")
    assert clean([10**5000], 80) == "<list>"


@given(ANY_TEXT, st.integers(min_value=1, max_value=80))
def test_every_text_becomes_one_bounded_harmless_line(text: str, limit: int) -> None:
    cleaned = clean(text, limit)
    assert len(cleaned) <= limit
    assert not {unicodedata.category(char) for char in cleaned} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert clean(cleaned, limit) == cleaned
    element = ET.Element("x", a=cleaned)
    assert ET.fromstring(ET.tostring(element)).get("a") == cleaned


def test_a_share_never_hides_a_row() -> None:
    assert share(0, 3383) == "0 %"
    assert share(1, 3383) == "< 0.1 %"
    assert share(41, 3383) == "1.2 %"
    assert share(3382, 3383) == "> 99.9 %"
    assert share(3383, 3383) == "100 %"
    assert share(0, 0) == "–"


def test_bounds_keep_their_digits() -> None:
    assert [bound(value) for value in (1.0, 0.999, 0.9995, 0.05, 0.0)] == ["100 %", "99.9 %", "99.95 %", "5 %", "0 %"]


def test_quantities_durations_and_money() -> None:
    assert [quantity(0, "row"), quantity(1, "row"), quantity(3383, "row")] == ["0 rows", "1 row", "3,383 rows"]
    assert quantity(2, "reply", "replies") == "2 replies"
    assert [duration(s) for s in (0.84, 42.4, 59.9, 200, 7500)] == [
        "0.8 s",
        "42 s",
        "1 min 0 s",
        "3 min 20 s",
        "2 h 5 min",
    ]
    assert [dollars(value) for value in (0.0, 12.3, 0.0042)] == ["$0.00", "$12.30", "$0.0042"]
