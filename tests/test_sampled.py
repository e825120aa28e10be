"""Ids that follow the split which logprobs show, and everything that makes them fall back to the text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.contract import Contract, read_contract
from toolkit.rebuild import Rebuilt, rebuild
from toolkit.records import Ask, IdsSource, RebuildStatus, Reply, ToolCall
from toolkit.vocabulary import Vocabulary, load_vocabulary

END, END_THINK = 163586, 163607
SECTION, SECTION_END, CALL, ARGUMENTS, CALL_END = 163595, 163596, 163597, 163598, 163599
THINKING, INSTANT = Ask(mode="thinking"), Ask(mode="instant")


@pytest.fixture(scope="module")
def contract() -> Contract:
    return read_contract("kimi-k2.5")


@pytest.fixture(scope="module")
def vocabulary(contract: Contract) -> Vocabulary:
    return load_vocabulary(contract)


def shown(ids: list[int], vocabulary: Vocabulary) -> tuple[bytes, ...]:
    return tuple(vocabulary.decode_bytes([i]) for i in ids)


def letters(text: str) -> list[bytes]:
    """The least canonical split: a token for each byte."""
    return [bytes([b]) for b in text.encode()]


def rebuilt(vocabulary: Vocabulary, pieces: Any, ask: Ask = INSTANT, **fields: Any) -> Rebuilt:
    reply = Reply(finish_reason=fields.pop("finish_reason", "stop"), pieces=tuple(pieces), **fields)
    return rebuild(reply, ask, vocabulary.contract, vocabulary)


def test_the_sampled_split_is_kept_where_it_is_not_the_canonical_one(vocabulary: Vocabulary) -> None:
    found = rebuilt(vocabulary, [b"H", b"el", b"lo", b"<|im_end|>"], content="Hello")
    wanted = [vocabulary.id_of_bytes[piece] for piece in (b"H", b"el", b"lo")]
    assert vocabulary.encode_ordinary("Hello") != wanted
    assert (found.ids, found.source, found.status) == ([*wanted, END], IdsSource.LOGPROBS, RebuildStatus.COMPLETE)
    assert found.notes == ()


@pytest.mark.parametrize("separator", [[], [b""], [b"</think>"]], ids=["absent", "empty", "spelled"])
@pytest.mark.parametrize("terminal", [[], [b""], [b"<|im_end|>"]], ids=["absent", "empty", "spelled"])
def test_control_ids_may_be_spelled_empty_or_absent(
    vocabulary: Vocabulary, separator: list[bytes], terminal: list[bytes]
) -> None:
    pieces = [b" a", b"b", *separator, b"c", b"d", *terminal]
    found = rebuilt(vocabulary, pieces, THINKING, reasoning=" ab", content="cd")
    words = [vocabulary.id_of_bytes[piece] for piece in (b" a", b"b", b"c", b"d")]
    assert found.ids == [*words[:2], END_THINK, *words[2:], END]
    assert found.source is IdsSource.LOGPROBS


def test_calls_are_split_as_they_were_sampled(vocabulary: Vocabulary) -> None:
    call = ToolCall(id="functions.f:0", name="f", arguments='{"a": 1}')
    pieces = [
        b"x", b"<|tool_calls_section_begin|>", b"<|tool_call_begin|>", *letters("functions.f:0"),
        b"<|tool_call_argument_begin|>", *letters('{"a": 1}'), b"<|tool_call_end|>",
        b"<|tool_calls_section_end|>",
    ]  # fmt: skip
    found = rebuilt(vocabulary, pieces, content="x", tool_calls=(call,), finish_reason="tool_calls")

    def ids(text: str) -> list[int]:
        return [vocabulary.id_of_bytes[piece] for piece in letters(text)]

    assert found.ids == [
        *ids("x"), SECTION, CALL, *ids("functions.f:0"), ARGUMENTS, *ids('{"a": 1}'), CALL_END, SECTION_END, END,
    ]  # fmt: skip


def test_a_character_in_several_tokens_is_put_together(vocabulary: Vocabulary) -> None:
    found = rebuilt(vocabulary, letters("🙂"), content="🙂")
    assert found.ids == [*(vocabulary.id_of_bytes[piece] for piece in letters("🙂")), END]


def test_a_cut_answer_has_its_last_ids_as_sampled(vocabulary: Vocabulary) -> None:
    found = rebuilt(vocabulary, [b"Hel", b"l"], content="Hell", finish_reason="length")
    assert found.ids == [vocabulary.id_of_bytes[b"Hel"], vocabulary.id_of_bytes[b"l"]]
    assert (found.status, found.notes) == (RebuildStatus.TRUNCATED, ())


@pytest.mark.parametrize("shown_as", ["", "\ufffd"])
def test_bytes_of_a_character_that_was_cut_are_kept(vocabulary: Vocabulary, shown_as: str) -> None:
    pieces = [b"a", *letters("🙂")[:2]]
    found = rebuilt(vocabulary, pieces, content=f"a{shown_as}", finish_reason="length")
    assert found.ids == [vocabulary.id_of_bytes[piece] for piece in pieces]
    assert (found.source, found.status) == (IdsSource.LOGPROBS, RebuildStatus.TRUNCATED)
    finished = rebuilt(vocabulary, pieces, content="a")
    assert (finished.source, finished.notes) == (IdsSource.REBUILT, ("logprobs_differ_from_text",))


@pytest.mark.parametrize(
    ("pieces", "note"),
    [
        ([b"Hello", b"!"], "logprobs_differ_from_text"),
        ([b"Hel"], "logprobs_differ_from_text"),
        ([b"hello"], "logprobs_differ_from_text"),
        ([b"", b"Hello"], "logprobs_differ_from_text"),
        ([b"Hello", b"<|im_end|>", b"<|im_end|>"], "logprobs_differ_from_text"),
        ([b"Hello", b"<|im_user|>"], "logprobs_differ_from_text"),
    ],
)
def test_tokens_that_do_not_give_the_text_give_no_ids(vocabulary: Vocabulary, pieces: list[bytes], note: str) -> None:
    found = rebuilt(vocabulary, pieces, content="Hello")
    assert found.ids == [*vocabulary.encode_ordinary("Hello"), END]
    assert (found.source, found.notes) == (IdsSource.REBUILT, (note,))


def test_tokens_of_the_content_alone_do_not_prove_the_reasoning(vocabulary: Vocabulary) -> None:
    found = rebuilt(vocabulary, [b"c", b"d"], THINKING, reasoning="ab", content="cd")
    assert (found.source, found.notes) == (IdsSource.REBUILT, ("logprobs_of_content_only",))


def test_a_piece_that_is_no_token_is_refused(vocabulary: Vocabulary) -> None:
    text = "Hello there, this is no single token"
    found = rebuilt(vocabulary, [text.encode()], content=text)
    assert (found.source, found.notes) == (IdsSource.REBUILT, ("logprobs_not_in_vocabulary",))


def test_one_token_that_spells_a_special_one_is_that_one(vocabulary: Vocabulary) -> None:
    """The text alone would be read as ordinary text; the audit's structure then says what is wrong with the row."""
    spelling = next(s for s in vocabulary.special if s not in vocabulary.contract.markers)
    found = rebuilt(vocabulary, [b"a", spelling.encode()], content=f"a{spelling}")
    assert found.ids == [vocabulary.id_of_bytes[b"a"], vocabulary.special[spelling], END]
    assert (found.source, found.notes) == (IdsSource.LOGPROBS, ("spells_special",))


def test_ids_that_came_are_not_replaced(vocabulary: Vocabulary) -> None:
    ids = [*vocabulary.encode_ordinary("Hello"), END]
    for source, notes in ((IdsSource.ENGINE, ()), (IdsSource.GIVEN, ("given_equal",))):
        found = rebuilt(vocabulary, [b"H", b"el", b"lo"], content="Hello", output_ids=ids, ids_source=source)
        assert (found.ids, found.source, found.notes) == (ids, source, notes)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), text=st.text(min_size=1, max_size=40).filter(lambda text: "<" not in text))
def test_any_split_into_tokens_is_given_back(vocabulary: Vocabulary, data: st.DataObject, text: str) -> None:
    raw, pieces, at = text.encode(errors="replace"), [], 0
    while at < len(raw):
        sizes = [n for n in range(1, min(8, len(raw) - at) + 1) if raw[at : at + n] in vocabulary.id_of_bytes]
        size = data.draw(st.sampled_from(sizes))
        pieces.append(raw[at : at + size])
        at += size
    found = rebuilt(vocabulary, pieces, content=raw.decode())
    assert found.ids == [*(vocabulary.id_of_bytes[piece] for piece in pieces), END]
