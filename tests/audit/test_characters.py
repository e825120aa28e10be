"""Characters at the edges of texts and replaced ones, as the regular expressions say that they are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.audit.characters import count_replaced, end_in_cut_character, white_edges

TEXTS = st.lists(st.none() | st.text(alphabet="a \t\n\f\r\v\u00a0\u2028\ufffd\uffff\uf000é漢", max_size=6), max_size=8)


@given(TEXTS, st.integers(0, 3), st.booleans())
def test_bytes_say_what_regular_expressions_say(texts: list[str | None], first: int, large: bool) -> None:
    column = pa.array(texts, pa.large_string() if large else pa.string()).slice(first)
    empty = pc.equal(pc.binary_length(column), 0)
    for found, pattern in zip(white_edges(column), (r"^\s", r"\s$"), strict=True):
        expected = pc.if_else(empty, pa.scalar(None, pa.bool_()), pc.match_substring_regex(column, pattern))
        assert found.to_pylist() == expected.to_pylist()
    assert count_replaced(column).tolist() == [(text or "").count("\ufffd") for text in texts[first:]]


@pytest.mark.parametrize(
    ("decoded", "shown", "cut"),
    [
        (b"ab\xf0\x9f", b"ab", True),
        (b"ab\xf0\x9f", "ab\ufffd".encode(), True),
        (b"ab\xf0\x9f\x99", "ab\ufffd".encode(), True),
        ("ab\ufffd".encode() + b"\xe6", "ab\ufffd".encode(), True),
        ("ab🙂".encode(), b"ab", False),
        (b"ab\x9f", b"ab", False),
        (b"ab\xff", b"ab", False),
        (b"abc", b"ab", False),
        (b"ab", b"ab", False),
        (b"ax\xf0\x9f", b"ab", False),
        (b"ab\xf0\x9f", "ab\ufffd\ufffd".encode(), False),
        (b"ab", "ab\ufffd".encode(), False),
        (b"ab\xf0\x9f\x99\xf0", b"ab", False),
    ],
)
def test_a_character_that_was_cut(decoded: bytes, shown: bytes, cut: bool) -> None:
    column = [pa.array([b"", text], pa.large_binary()) for text in (decoded, shown)]
    assert end_in_cut_character(*column).tolist() == [False, cut]
