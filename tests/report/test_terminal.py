"""Whatever a model wrote, a terminal obeys none of it, and no line is wider than the terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from toolkit.report.comparison import compare
from toolkit.report.console import render_told, render_verdict
from toolkit.report.differences import tell_comparison
from toolkit.report.text import clean

from .builder import failing_verdict, hostile_verdict, passing_verdict

HARMLESS = re.compile(r"\x1b\[[0-9;]*m")
"""What we write ourselves where colour is asked for."""

hostile = st.text(
    alphabet=st.one_of(
        st.sampled_from("\x1b\x9b\x90\x9d\x07\x08\r\n\t\x7f\x00[]0;m?2Jh\u202e\u2066\u200b\u2028\ufeff\ufffe\ud800"),
        st.characters(),
    ),
    max_size=60,
)


def is_obeyed(text: str) -> bool:
    """Whether a terminal would do anything but show it."""
    return any((ord(char) < 0x20 and char != "\n") or 0x7F <= ord(char) < 0xA0 for char in text)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(hostile)
def test_no_text_reaches_a_terminal_alive(text: str) -> None:
    verdict = hostile_verdict(text, damaged=True)
    for shown in (
        render_verdict(verdict, report=text, colour=False),
        render_told(tell_comparison(compare(passing_verdict(), verdict)), colour=False),
    ):
        assert not is_obeyed(shown)
        assert [line for line in shown.split("\n") if cell_len(line) > 80] == []
    assert not is_obeyed(HARMLESS.sub("", render_verdict(verdict, report=text, colour=True)))


@given(hostile, st.integers(min_value=1, max_value=80))
def test_cleaned_text_is_one_line_of_that_length(text: str, limit: int) -> None:
    shown = clean(text, limit)
    assert not is_obeyed(shown)
    assert "\n" not in shown
    assert len(shown) <= limit


@pytest.mark.parametrize("name", ["COLUMNS", "NO_COLOR", "TERM", "FORCE_COLOR", "CLICOLOR_FORCE"])
@pytest.mark.parametrize("value", ["", "1", "dumb", "40"])
def test_what_is_rendered_depends_on_what_is_asked_for_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    plain = render_verdict(failing_verdict(), report=None, colour=False)
    coloured = render_verdict(failing_verdict(), report=None, colour=True)
    monkeypatch.setenv(name, value)
    assert render_verdict(failing_verdict(), report=None, colour=False) == plain
    assert render_verdict(failing_verdict(), report=None, colour=True) == coloured
