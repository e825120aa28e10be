"""Patterns mean what they mean in Python and in SQL, whichever engine matches them."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.audit.gx.parsing import fits_schema, is_date, is_json
from toolkit.audit.gx.patterns import like, matches, rust_pattern
from toolkit.errors import SuiteError

_pieces = st.sampled_from(
    [
        "a",
        "b",
        "é",
        r"\d",
        r"\w",
        r"\s",
        ".",
        "[ab]",
        "[^a]",
        "(a|b)",
        "a*",
        "b+?",
        "a{1,2}",
        r"\.",
        "^",
        "$",
        r"\b",
        "|",
    ]
)
_patterns = st.lists(_pieces, min_size=1, max_size=5).map("".join)
_texts = st.text(alphabet="ab1é. \n\x1c٣_", max_size=6)


def found(pattern: str, texts: list[str]) -> list[bool]:
    return pl.DataFrame({"t": texts}).select(matches(pl.col("t"), pattern)).to_series().to_list()


@settings(max_examples=300, deadline=None)
@given(_patterns, st.lists(_texts, min_size=1, max_size=8))
def test_a_pattern_finds_what_python_finds(pattern: str, texts: list[str]) -> None:
    assert found(pattern, texts) == [re.search(pattern, text) is not None for text in texts]


@pytest.mark.parametrize("pattern", ["^[0-9a-f]{64}$", "^A$", "(a|b)+c?", r"\d{4}-\d\d", "gen-.*", "[^/]+"])
def test_simple_patterns_are_given_to_polars(pattern: str) -> None:
    assert rust_pattern(pattern) is not None


@pytest.mark.parametrize("pattern", [r"\w+", r"\s", r"\bA", "(?i)a", "(?=a)", r"(a)\1", "a$b", "a|^b", "a*+", "[a&&b]"])
def test_patterns_that_differ_go_through_python(pattern: str) -> None:
    assert rust_pattern(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "expected"),
    [
        ("a%", None, "abc", True),
        ("a%", None, "ab\nc", True),
        ("a%", None, "Abc", False),
        ("a_", None, "ab", True),
        ("a_", None, "abc", False),
        ("a.c", None, "abc", False),
        ("50!%", "!", "50%", True),
        ("50!%", "!", "500", False),
        ("a!!", "!", "a!", True),
        ("", None, "", True),
        ("%(%", None, "a(b", True),
    ],
)
def test_like_is_that_of_sql(pattern: str, escape: str | None, text: str, expected: bool) -> None:
    assert pl.DataFrame({"t": [text]}).select(like(pl.col("t"), pattern, escape)).item() is expected


def test_an_escape_without_a_character_is_refused() -> None:
    with pytest.raises(SuiteError, match="found the end of 'a!'"):
        like(pl.col("t"), "a!", "!")


def test_predicates_of_python() -> None:
    assert [is_date("2024-01-05"), is_date("stop"), is_json("{}"), is_json("{"), is_json("[" * 100_000)] == [
        *(True, False, True),
        *(False, False),
    ]
    fits = fits_schema({"type": "object", "required": ["a"]})
    assert [fits('{"a": 1}'), fits("{}"), fits("no json")] == [True, False, False]
    with pytest.raises(SuiteError, match="expected a JSON schema"):
        fits_schema({"type": 3})
