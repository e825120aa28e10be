"""Output ids to parts and back: what the rebuild lays out is divided again into the same parts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.contract import Contract, read_contract
from toolkit.parts import NotDividedError, Parts, divide
from toolkit.rebuild import rebuild
from toolkit.records import Ask, IdsSource, RebuildStatus, Reply, ToolCall
from toolkit.vocabulary import Vocabulary, load_vocabulary

END, END_THINK, THINK = 163586, 163607, 163606
SECTION, CALL, BETWEEN, CALL_END, SECTION_END = 163595, 163597, 163598, 163599, 163596
Pieces = list[str | int]


def ids_of(pieces: Pieces, vocabulary: Vocabulary) -> list[int]:
    ids: list[int] = []
    for piece in pieces:
        ids += [piece] if isinstance(piece, int) else vocabulary.encode_ordinary(piece)
    return ids


FIND = ToolCall(id="functions.find:0", name="find", arguments='{"q": 1}')
FIND_IDS: Pieces = [CALL, "functions.find:0", BETWEEN, '{"q": 1}']

# (what, mode, ids, parts)
DIVIDED: list[tuple[str, str, Pieces, Parts]] = [
    ("whole", "thinking", [" r\n", END_THINK, " a ", END], Parts(reasoning=" r\n", content=" a ")),
    ("cut in the content", "thinking", ["r", END_THINK, "a"], Parts(reasoning="r", content="a")),
    ("cut at the separator", "thinking", ["r", END_THINK], Parts(reasoning="r")),
    ("cut in the reasoning", "thinking", ["r"], Parts(reasoning="r")),
    ("no content", "thinking", ["r", END_THINK, END], Parts(reasoning="r", content="")),
    ("never done thinking", "thinking", ["r", END], Parts(reasoning="r")),
    ("letters that spell a special token", "instant", ["</think>", END], Parts(content="</think>")),
    ("another special token inside", "instant", ["a", THINK, "b", END], Parts(content="a<think>b")),
    ("instant", "instant", ["a", END], Parts(content="a")),
    ("nothing", "instant", [], Parts()),
    ("calls", "thinking", ["r", END_THINK, "a", SECTION, *FIND_IDS, CALL_END, SECTION_END, END],
     Parts(reasoning="r", content="a", tool_calls=(FIND,))),
    ("calls without a separator", "thinking", ["r", SECTION, *FIND_IDS, CALL_END, SECTION_END, END],
     Parts(reasoning="r", tool_calls=(FIND,))),
    ("cut in the arguments", "thinking", ["r", END_THINK, SECTION, *FIND_IDS],
     Parts(reasoning="r", content="", tool_calls=(FIND,))),
    ("cut in the id", "thinking", ["r", END_THINK, SECTION, CALL, "functions.fi"],
     Parts(reasoning="r", content="", tool_calls=(ToolCall(id="functions.fi", name=None, arguments=None),))),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "pieces", "parts"), [d[1:] for d in DIVIDED], ids=[d[0] for d in DIVIDED])
def test_parts_of_ids(kimi: Contract, vocabulary: Vocabulary, mode: str, pieces: Pieces, parts: Parts) -> None:
    assert divide(ids_of(pieces, vocabulary), mode, kimi, vocabulary) == parts


# (what, ids, note)
NOT_DIVIDED: list[tuple[str, Pieces, str]] = [
    ("text behind the tools", ["r", END_THINK, SECTION, *FIND_IDS, CALL_END, SECTION_END, "late", END],
     "ids_not_of_form"),
    ("a terminal inside", ["r", END_THINK, "a", END, "b", END], "ids_not_of_form"),
    ("a call that is not closed", ["r", END_THINK, SECTION, *FIND_IDS, SECTION_END, END], "ids_not_of_form"),
    ("two separators", ["r", END_THINK, END_THINK, SECTION, CALL, CALL, END], "ids_not_of_form"),
    ("outside the vocabulary", ["r", END_THINK, 163840, END], "ids_not_text"),
    ("below it", [-1], "ids_not_text"),
]  # fmt: skip


@pytest.mark.parametrize(("pieces", "note"), [n[1:] for n in NOT_DIVIDED], ids=[n[0] for n in NOT_DIVIDED])
def test_ids_without_parts(kimi: Contract, vocabulary: Vocabulary, pieces: Pieces, note: str) -> None:
    with pytest.raises(NotDividedError) as caught:
        divide(ids_of(pieces, vocabulary), "thinking", kimi, vocabulary)
    assert caught.value.note == note


def test_half_a_character_is_no_text(kimi: Contract, vocabulary: Vocabulary) -> None:
    pieces = ids_of(["𓀀"], vocabulary)
    assert len(pieces) > 1
    with pytest.raises(NotDividedError, match="ids_not_text"):
        divide(pieces[:-1], "instant", kimi, vocabulary)


def test_harmony_has_literal_text_between_its_ids() -> None:
    contract = read_contract("gpt-oss")
    vocabulary = load_vocabulary(contract)
    start, channel, message, end, done = 200006, 200005, 200008, 200007, 200002
    pieces: Pieces = [channel, "analysis", message, "r", end, start, "assistant", channel, "final", message, "a", done]
    assert divide(ids_of(pieces, vocabulary), "thinking", contract, vocabulary) == Parts(reasoning="r", content="a")
    with pytest.raises(NotDividedError):
        divide(ids_of([channel, "comment", *pieces[2:]], vocabulary), "thinking", contract, vocabulary)


TEXT = st.lists(st.sampled_from([" ", "a", "ſ", "你好", "🙂", "</think>", "\n\n"]), min_size=1, max_size=6).map("".join)


@given(reasoning=TEXT, content=TEXT, arguments=st.none() | TEXT, finish=st.sampled_from(["stop", "length"]))
@settings(max_examples=100, deadline=None)
def test_what_the_rebuild_lays_out_is_divided_into_the_same_parts(
    kimi: Contract, vocabulary: Vocabulary, reasoning: str, content: str, arguments: str | None, finish: str
) -> None:
    texts = [text.replace("</think>", "") or "x" for text in (reasoning, content, arguments or "x")]
    calls = () if arguments is None else (ToolCall(id="functions.f:0", name="f", arguments=texts[2]),)
    reply = Reply(reasoning=texts[0], content=texts[1], tool_calls=calls, finish_reason=finish)
    rebuilt = rebuild(reply, Ask(mode="thinking"), kimi, vocabulary)
    assert rebuilt.ids is not None
    parts = divide(rebuilt.ids, "thinking", kimi, vocabulary)
    assert parts == Parts(reasoning=texts[0], content=texts[1], tool_calls=calls)


# --- the engine's own text beside its ids -------------------------------------------------------------

# (what, engine's text, reasoning, content, notes)
BESIDE: list[tuple[str, str, str | None, str, tuple[str, ...]]] = [
    ("specials shown", "think</think> answer", "think", " answer", ()),
    ("specials left out", "think answer", "think", " answer", ()),
    ("terminal shown", "think</think> answer<|im_end|>", "think", " answer", ()),
    ("spaces about specials", "think </think> answer <|im_end|>", "think", " answer", ()),
    ("another vocabulary's text", "thick</think> answer", None, "thick</think> answer", ("engine_text_differs",)),
    ("cut", "think</think> ans", None, "think</think> ans", ("engine_text_differs",)),
    ("none", "", "think", " answer", ("engine_text_missing",)),
]


@pytest.mark.parametrize(("told", "reasoning", "content", "notes"), [b[1:] for b in BESIDE], ids=[b[0] for b in BESIDE])
def test_the_engines_text_is_a_witness(
    kimi: Contract, vocabulary: Vocabulary, told: str, reasoning: str | None, content: str, notes: tuple[str, ...]
) -> None:
    """Where it speaks against the ids it stands in the row as it came, so that the audit sees the two apart."""
    ids = ids_of(["think", END_THINK, " answer", END], vocabulary)
    reply = Reply(output_ids=ids, ids_source=IdsSource.ENGINE, undivided=told, finish_reason="stop")
    rebuilt: Any = rebuild(reply, Ask(mode="thinking"), kimi, vocabulary)
    assert (rebuilt.ids, rebuilt.source, rebuilt.status) == (ids, IdsSource.ENGINE, RebuildStatus.COMPLETE)
    assert (rebuilt.reasoning, rebuilt.content, rebuilt.notes) == (reasoning, content, notes)


def test_half_a_character_at_the_cut_is_no_difference_but_no_text_either(
    kimi: Contract, vocabulary: Vocabulary
) -> None:
    ids = ids_of(["a𓀀"], vocabulary)[:-1]
    reply = Reply(output_ids=ids, ids_source=IdsSource.ENGINE, undivided="a\ufffd", finish_reason="length")
    rebuilt = rebuild(reply, Ask(mode="instant"), kimi, vocabulary)
    assert (rebuilt.content, rebuilt.notes, rebuilt.status) == ("a\ufffd", ("ids_not_text",), RebuildStatus.TRUNCATED)
