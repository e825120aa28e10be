"""The fact `structure` where order alone does not say it: shifted ids, prompts, and rebuilds that kept to no rule."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.audit.structure import shifted_ids
from toolkit.contract import Contract
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary

from .shard_rows import engine_row, facts_of, row

END, END_THINK = 163586, 163607
TEXTS = {"reasoning": " because", "content": " yes"}
CALL = {"id": "functions.find:0", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}


@pytest.fixture(scope="module")
def builder(kimi: Contract, vocabulary: Vocabulary) -> RowBuilder:
    return RowBuilder(kimi, vocabulary)


def structure_of(made: dict[str, Any], vocabulary: Vocabulary) -> str | None:
    (facts,) = facts_of([made], vocabulary)
    code = facts["structure"]
    assert code is None or isinstance(code, str)
    return code


# (what, message, finish, mode)
SHIFTABLE: list[tuple[str, dict[str, Any], str, str]] = [
    ("thoughts", TEXTS, "stop", "thinking"),
    ("thoughts and calls", {**TEXTS, "tool_calls": [CALL]}, "tool_calls", "thinking"),
    ("calls in instant mode", {"content": "", "tool_calls": [CALL]}, "tool_calls", "instant"),
    ("cut in the answer", TEXTS, "length", "thinking"),
    ("cut in a call", {**TEXTS, "tool_calls": [CALL]}, "length", "thinking"),
]


@pytest.mark.parametrize(("message", "finish", "mode"), [s[1:] for s in SHIFTABLE], ids=[s[0] for s in SHIFTABLE])
def test_ids_of_a_tokenizer_that_closed_the_gaps_are_named_so(
    builder: RowBuilder, kimi: Contract, vocabulary: Vocabulary, message: dict[str, Any], finish: str, mode: str
) -> None:
    made = row(builder, message, finish, mode=mode)
    shifted = shifted_ids(kimi)
    assert structure_of(made, vocabulary) is None
    moved = [shifted.get(i, i) for i in made["output_ids"]]
    assert moved != made["output_ids"]
    assert structure_of({**made, "output_ids": moved}, vocabulary) == "ids_shifted"


@pytest.mark.parametrize(("inserted", "code"), [(163604, "control_id_inside"), (163593, "control_id_inside")])
def test_a_single_stray_id_is_not_a_shift(
    builder: RowBuilder, vocabulary: Vocabulary, inserted: int, code: str
) -> None:
    made = row(builder, {**TEXTS, "tool_calls": [CALL]}, "tool_calls")
    ids = [made["output_ids"][0], inserted, *made["output_ids"][1:]]
    assert structure_of({**made, "output_ids": ids}, vocabulary) == code


# (what, changes to a good rebuilt row, structure): text that the rules refuse, laid out all the same
AGAINST_RULES: list[tuple[str, dict[str, Any], str | None]] = [
    ("nothing", {}, None),
    ("a marker in the content", {"content": "a <|im_end|> b"}, "marker_in_text"),
    ("a single marker in the thoughts", {"reasoning": "a </think> b"}, "marker_in_text"),
    ("a marker in arguments", {"tool_calls": '[{"arguments":"<think>","id":"functions.f:0"}]'}, "marker_in_text"),
    ("letters that are no marker", {"content": "[PAD] </s> <|im_end"}, None),
    ("no answer", {"content": None}, "answer_missing"),
    ("an empty answer", {"content": ""}, "answer_missing"),
    ("no thoughts", {"reasoning": None}, "reasoning_missing"),
    ("no answer, cut", {"content": None, "finish_reason": "length", "output_ids": [5]}, None),
    (
        "no answer, cut, thinking closed",
        {"content": None, "finish_reason": "length", "output_ids": [5, END_THINK]},
        "end_think_on_truncated",
    ),
    (
        "nothing at all, cut",
        {"reasoning": None, "content": None, "finish_reason": "length", "output_ids": [5]},
        "answer_missing",
    ),
    ("closed although it was cut", {"finish_reason": "length"}, "false_terminal"),
    ("closed although the engine says that it was cut", {"native_finish_reason": "MAX_TOKENS"}, "false_terminal"),
]


@pytest.mark.parametrize(("changes", "code"), [c[1:] for c in AGAINST_RULES], ids=[c[0] for c in AGAINST_RULES])
def test_rebuilt_rows_are_held_against_the_rules(
    builder: RowBuilder, vocabulary: Vocabulary, changes: dict[str, Any], code: str | None
) -> None:
    assert structure_of({**row(builder, TEXTS), **changes}, vocabulary) == code


@pytest.mark.parametrize("changes", [{"content": "a <|im_end|> b"}, {"content": None}, {"reasoning": None}])
def test_an_engines_ids_say_by_themselves_what_was_said(
    builder: RowBuilder, vocabulary: Vocabulary, changes: dict[str, Any]
) -> None:
    ids = row(builder, TEXTS)["output_ids"]
    made = engine_row(builder, TEXTS, ids)
    assert structure_of({**made, **changes}, vocabulary) is None


@pytest.mark.parametrize(
    ("mode", "tail", "code"),
    [
        ("thinking", [163601, 163606], None),
        ("thinking", [163606, 163607], "prompt_tail"),
        ("instant", [163606, 163607], None),
        ("instant", [163601, 163606], "prompt_tail"),
        ("instant", [163607], "prompt_tail"),
        ("thinking", [], "prompt_tail"),
        ("thinking", None, None),
    ],
)
def test_a_prompt_ends_as_its_mode_does(
    builder: RowBuilder, vocabulary: Vocabulary, mode: str, tail: list[int] | None, code: str | None
) -> None:
    message = TEXTS if mode == "thinking" else {"content": " yes"}
    good, made = row(builder, TEXTS), row(builder, message, mode=mode)
    facts = facts_of([good, {**made, "prompt_ids": tail}, good], vocabulary)
    assert [f["structure"] for f in facts] == [None, code, None]
