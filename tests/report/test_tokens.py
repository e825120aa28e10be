"""The token view on a terminal: it fits, it is plain without colour, and no text of a model is obeyed."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from toolkit.inspection.model import Fault, Part, Window
from toolkit.report.tokens import render_view

from .builder import HOSTILE
from .views import OUTPUT, chip, hostile_view, view


def test_everything_of_a_row_is_told_without_colour() -> None:
    text = render_view(view(), colour=False, width=120)
    for expected in (
        "mc-00012\n",
        "from      openrouter · Inceptron, moonshotai/kimi-k2.5-0127, thinking",
        "shards/part-00000.parquet, row 7",
        "rebuilt, complete; finish reason stop / stop",
        "completion_tokens 39, prompt_tokens 21",
        "fails     reencode_equal, evidence_known",
        "✗ 1  the special ids are numbered",
        "(output id 13)",
        "expected   163607 </think>",
        "found      163604 <|media_end|>",
        "text gives [</think> 163607]",
        "Prompt: 21 ids, loss mask 0",
        "Output: 40 ids, loss mask 1 if it were merged; a row in quarantine is not",
        "… 10 ids …",
        "10  [·The 623] [⏎ 198] [\\xe6 162 ⊂漢] ▶1[<|media_end|> 163604]",
        "… 25 ids …",
        '{"provider": "Inceptron"}',
    ):
        assert expected in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("text", ["漢字 wide", "plain", "e\u0301"])
def test_lines_fit(width: int, text: str) -> None:
    chips = tuple(chip(n, f" {text}{n}") for n in range(300))
    shown = view(text * 30, windows=(Window(part=Part.OUTPUT, start=0, chips=chips),), n_output=300, reply=text * 200)
    lines = render_view(shown, colour=False, width=width).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert len(re.findall(r"\[·", "\n".join(lines))) == 300


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_model_reaches_the_terminal_as_a_code(text: str, colour: bool) -> None:
    shown = render_view(hostile_view(text), colour=colour)
    without = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert not set(without) & set("\x1b\x07\x9b\r\t\x00\u202e\u2066\u200b\ufeff\u2028\ud800\ufffe")
    assert without.isprintable() or {c for c in without if not c.isprintable()} == {"\n"}
    assert shown.encode()
    assert colour or "\x1b" not in shown


def test_what_is_missing_at_the_end_is_marked_behind_the_last_id() -> None:
    fault = Fault(code="terminal_missing", says="no terminal", part=Part.OUTPUT, at=5)
    text = render_view(
        view(windows=(Window(part=Part.OUTPUT, start=0, chips=OUTPUT),), n_output=5, faults=(fault,)), colour=False
    )
    assert "    5  ▶1 nothing more stands here" in text


def test_a_good_row_is_said_to_be_good() -> None:
    text = render_view(view(faults=(), reasons=(), supervised=True), colour=False)
    assert "nothing was found to be wrong with this row" in text
    assert "Output: 40 ids, loss mask 1\n" in text


def test_a_row_without_ids() -> None:
    text = render_view(view(windows=(), n_prompt=None, n_output=None, reply=""), colour=False)
    assert "Prompt: not known" in text
    assert "Output: no ids" in text
    assert "not kept" in text
