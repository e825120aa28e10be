"""What an id spells, alone and with its neighbours; which ids are shown; how a reply is clipped."""

from __future__ import annotations

import json

import pytest

from toolkit.inspection.chips import chips_of, clipped_json, windows_of
from toolkit.inspection.model import ChipKind, Fault, Part
from toolkit.vocabulary import Vocabulary

TERMINAL = 163586


def test_text_control_and_ids_of_no_vocabulary(vocabulary: Vocabulary) -> None:
    ids = [*vocabulary.encode_ordinary(" The"), TERMINAL, 200_000, -5]
    assert [(chip.text, chip.kind) for chip in chips_of(ids, vocabulary)] == [
        (" The", ChipKind.TEXT),
        ("<|im_end|>", ChipKind.CONTROL),
        ("", ChipKind.OUTSIDE),
        ("", ChipKind.OUTSIDE),
    ]


def test_bytes_of_a_split_character_say_which_it_is(vocabulary: Vocabulary) -> None:
    ids = vocabulary.encode_ordinary("a🫨b")
    chips = chips_of(ids, vocabulary)
    assert chips[0].kind is ChipKind.TEXT
    assert len(ids) > 3
    assert {chip.kind for chip in chips[1:-1]} == {ChipKind.BYTES}
    assert {chip.spells for chip in chips[1:-1]} == {"🫨"}
    assert "".join(chip.text for chip in chips[1:-1]) == "\\xf0\\x9f\\xab\\xa8"


def test_bytes_that_are_never_whole_spell_nothing(vocabulary: Vocabulary) -> None:
    ids = vocabulary.encode_ordinary("🫨")[:-1]
    assert {(chip.kind, chip.spells) for chip in chips_of(ids, vocabulary)} == {(ChipKind.BYTES, "")}


@pytest.mark.parametrize("room", [24, 60, 160])
def test_windows_hold_both_ends_and_every_fault_and_do_not_overlap(room: int, vocabulary: Vocabulary) -> None:
    output = [100 + n for n in range(1_000)]
    faults = [Fault(code="x", says="x", part=Part.OUTPUT, at=at) for at in (500, 503, 900, 1_000)]
    windows = [w for w in windows_of([5] * 40, output, faults, vocabulary, room=room) if w.part is Part.OUTPUT]
    shown = [w.start + place for w in windows for place in range(len(w.chips))]
    assert shown == sorted(set(shown))
    assert {0, 500, 503, 900, 999} <= set(shown)
    assert len(shown) < 2 * room + 24
    assert [chip.id for w in windows for chip in w.chips] == [output[at] for at in shown]


def test_all_ids_are_shown_where_all_are_asked_for(vocabulary: Vocabulary) -> None:
    (window,) = windows_of(None, list(range(500)), [], vocabulary, room=None)
    assert (window.start, len(window.chips)) == (0, 500)


def test_no_ids_give_no_window(vocabulary: Vocabulary) -> None:
    assert windows_of(None, None, [], vocabulary, room=50) == ()


def test_a_body_keeps_its_form_and_loses_the_middle_of_long_texts() -> None:
    body = json.dumps({"content": "x" * 1_000, "usage": {"completion_tokens": 7, "cost": None}})
    shown = clipped_json(body, 60, 500)
    assert '"completion_tokens": 7' in shown
    assert "[…940 more…]" in shown
    assert "cost" not in shown
    assert len(shown) < 300


@pytest.mark.parametrize(
    "body", ["[" * 100_000, "x" * 1_000_000, "", '"\\ud800"', json.dumps({str(n): n for n in range(9_000)})]
)
def test_any_body_is_bounded(body: str) -> None:
    assert len(clipped_json(body, 60, 500)) < 560
