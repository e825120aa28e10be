"""Prompts of plain messages: the renderer's own ids, or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.assembly import encode_together, packed, unpacked
from toolkit.contract import Contract
from toolkit.plain_prompts import PIECEWISE, PlainPrompts, plain_prompts
from toolkit.prompt import PromptRenderer
from toolkit.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def renderer(kimi: Contract, vocabulary: Vocabulary) -> PromptRenderer:
    return PromptRenderer(kimi, vocabulary)


def rendered(renderer: PromptRenderer, messages: list[dict[str, Any]], mode: str) -> list[int]:
    """What the package itself says."""
    found = renderer._renderer(mode).render(messages, add_generation_prompt=True, process_multimodal=False)
    return [int(token_id) for token_id in found.token_ids]


TEXTS = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        ["", " ", "\n", " x ", "a\n\n", "<|im_end|>", "a <think> b</think>", "[PAD]", "user", "it'ſ", "漢字"]
    ),
    st.lists(st.sampled_from(["word", " word", "\n", "  ", "'s", "42", "é", "<|im_user|>", "\u0301"]), max_size=40).map(
        "".join
    ),
)


@pytest.mark.parametrize("mode", ["thinking", "instant"])
@given(said=st.lists(st.tuples(st.sampled_from(["user", "system"]), TEXTS), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_any_plain_conversation_has_the_ids_of_the_renderer(
    renderer: PromptRenderer, vocabulary: Vocabulary, mode: str, said: list[tuple[str, str]]
) -> None:
    messages: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in said]
    stretches = renderer._plain(messages, mode)
    (found,) = encode_together([stretches], vocabulary.encode_packed)
    assert found is not None
    assert unpacked(found).tolist() == rendered(renderer, messages, mode) == renderer.render(messages, None, mode).ids


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "assistant", "content": "a"}],
        [{"role": "tool", "content": "a"}],
        [{"role": "user", "content": "a", "name": "b"}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        [{"role": "user", "content": None}],
        [{"role": ["user"], "content": "a"}],
        [{"content": "a"}],
        [{"role": "user"}],
        [{"role": "user", "content": "\ud800"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
    ],
)
def test_what_is_more_than_roles_and_texts_is_for_the_renderer(
    renderer: PromptRenderer, messages: list[dict[str, Any]]
) -> None:
    assert renderer._plain(messages, "thinking") is None


def test_only_renderers_that_are_known_to_be_piecewise_are_replaced() -> None:
    def never(*_: object) -> list[int]:
        raise AssertionError

    assert plain_prompts(None, never, never) is None
    assert plain_prompts("qwen3", never, never) is None


def letters(text: str) -> list[int]:
    return [*map(ord, text)]


def piecewise(messages: list[dict[str, Any]], answer: bool) -> list[int]:
    ids = [i for m in messages for i in (len(m["role"]), *letters(m["content"]), 0)]
    return [*ids, 1, 2] if answer else ids


def test_a_piecewise_renderer() -> None:
    made = plain_prompts("kimi-k2.5", piecewise, letters)
    assert made is not None
    assert made == PlainPrompts({"system": packed([6]), "user": packed([4])}, packed([0]), packed([1, 2]))
    laid_out = made.lay_out([{"role": "system", "content": "a"}, {"role": "user", "content": ""}])
    assert laid_out == [packed([6]), "a", packed([0]), packed([4]), "", packed([0]), packed([1, 2])]


@pytest.mark.parametrize("fault", ["strips", "joins users", "adds a system", "marks the last"])
def test_a_renderer_that_is_not_what_its_name_says_is_not_replaced(fault: str) -> None:
    def render(messages: list[dict[str, Any]], answer: bool) -> list[int]:
        if fault == "strips":
            messages = [{**m, "content": m["content"].strip()} for m in messages]
        if fault == "adds a system" and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": "x"}, *messages]
        ids = piecewise(messages, answer)
        if fault == "joins users" and [m["role"] for m in messages[:2]] == ["user", "user"]:
            ids = piecewise([{**messages[0], "content": messages[0]["content"] + messages[1]["content"]}], answer)
        return [*ids, 9] if fault == "marks the last" and len(messages) > 1 else ids

    assert plain_prompts("kimi-k2.5", render, letters) is None


def test_every_name_is_one_of_the_package() -> None:
    from renderers import config_from_name

    assert [config_from_name(name).name for name in PIECEWISE] == [*PIECEWISE]
