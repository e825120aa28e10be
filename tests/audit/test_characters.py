"""Characters at the edges of texts and replaced ones, as the regular expressions say that they are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from toolkit.audit.characters import count_replaced, white_edges

TEXTS = st.lists(st.none() | st.text(alphabet="a \t\n\f\r\v\u00a0\u2028\ufffd\uffff\uf000é漢", max_size=6), max_size=8)


@given(TEXTS, st.integers(0, 3), st.booleans())
def test_bytes_say_what_regular_expressions_say(texts: list[str | None], first: int, large: bool) -> None:
    column = pa.array(texts, pa.large_string() if large else pa.string()).slice(first)
    empty = pc.equal(pc.binary_length(column), 0)
    for found, pattern in zip(white_edges(column), (r"^\s", r"\s$"), strict=True):
        expected = pc.if_else(empty, pa.scalar(None, pa.bool_()), pc.match_substring_regex(column, pattern))
        assert found.to_pylist() == expected.to_pylist()
    assert count_replaced(column).tolist() == [(text or "").count("\ufffd") for text in texts[first:]]
