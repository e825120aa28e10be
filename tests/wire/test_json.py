"""JSON as it comes: tolerant where servers are, bounded always."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.wire.json import NotJsonError, dump_json, load_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (b'"\xc3\xa9"', "é"),
        ('"\\ud800"', "\ud800"),
        ('"\\ud83d\\ude00"', "😀"),
        ('{"a": 1, "a": 2}', {"a": 2}),
        (f'[{"9" * 30}, "\\ud800"]', [10**30 - 1, "\ud800"]),
        ("  null\n", None),
    ],
)
def test_what_is_json(text: str | bytes, value: Any) -> None:
    assert load_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        '{"a": NaN}',
        "[Infinity]",
        "-Infinity",
        "{'a': 1}",
        "[1,]",
        '{"a": 1} {"a": 2}',
        b"\xff",
        "<html>",
        "[" * 100000,
        '{"a":' * 5000,
        '["\\ud800",' + "[" * 5000 + "]" * 5000 + "]",
        "9" * 5000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_not(text: str | bytes) -> None:
    with pytest.raises(NotJsonError):
        load_json(text)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.characters()), st.lists, max_leaves=10))
def test_what_is_written_is_read_again(value: Any) -> None:
    assert load_json(dump_json(value)) == value


@pytest.mark.parametrize("value", ["\ud800", {"a": ["\udfff", 2**70]}, -(2**64)])
def test_what_orjson_refuses_is_written_too(value: Any) -> None:
    assert load_json(dump_json(value)) == value
