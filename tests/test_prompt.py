"""Prompts: ids as the model's server renders them, or None with a note; never an exception, never a guess."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.contract import Contract, read_contract
from toolkit.errors import ContractError
from toolkit.prompt import PromptRenderer, RenderedPrompt, render_prompt
from toolkit.vocabulary import Vocabulary, load_vocabulary

USER = {"role": "user", "content": "Say hi"}
TOOL = {
    "type": "function",
    "function": {"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
}


@pytest.fixture(scope="module")
def renderer(kimi: Contract, vocabulary: Vocabulary) -> PromptRenderer:
    return PromptRenderer(kimi, vocabulary)


# (line, ids that we render, prompt_tokens that came): Avian declares tools in another form, 7 ids longer.
RECORDED = [(0, 69, 76), (1, 187, 194), (9, 21, 21), (10, 69, 69), (11, 108, 108), (12, 69, 69), (13, 110, 110)]


@pytest.mark.parametrize(("line", "rendered", "reported"), RECORDED)
def test_recorded_prompts(
    renderer: PromptRenderer, recordings: list[dict[str, Any]], line: int, rendered: int, reported: int
) -> None:
    request, body = recordings[line]["request"], recordings[line]["body"]
    prompt = renderer.render(request["messages"], request.get("tools"), "thinking")
    assert prompt.ids is not None
    assert (len(prompt.ids), prompt.notes) == (rendered, ())
    assert f'"prompt_tokens":{reported}' in body.replace(" ", "")


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("thinking", "<|im_user|>user<|im_middle|>Say hi<|im_end|><|im_assistant|>assistant<|im_middle|><think>"),
        (
            "instant",
            "<|im_user|>user<|im_middle|>Say hi<|im_end|><|im_assistant|>assistant<|im_middle|><think></think>",
        ),
    ],
)
def test_the_whole_prompt_of_each_mode(renderer: PromptRenderer, vocabulary: Vocabulary, mode: str, text: str) -> None:
    prompt = renderer.render([USER], None, mode)
    assert prompt == RenderedPrompt(vocabulary.encode_rendered(text))
    assert prompt.ids is not None
    tail = {"thinking": [163601, 163606], "instant": [163606, 163607]}[mode]
    assert prompt.ids[-2:] == tail


def test_no_tools_and_an_empty_list_of_tools_are_one(renderer: PromptRenderer) -> None:
    assert renderer.render([USER], [], "thinking") == renderer.render([USER], None, "thinking")
    assert renderer.render([USER], [TOOL], "thinking") != renderer.render([USER], None, "thinking")


def test_the_two_names_of_reasoning_in_a_history_are_one(renderer: PromptRenderer) -> None:
    call = {"id": "functions.find:0", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "functions.find:0", "content": "none"}
    prompts = [
        renderer.render(
            [USER, {"role": "assistant", "content": None, "tool_calls": [call], **more}, result], [TOOL], "thinking"
        )
        for more in ({"reasoning": "because"}, {"reasoning_content": "because"}, {})
    ]
    assert all(prompt.ids for prompt in prompts)
    assert prompts[0] == prompts[1] != prompts[2]


# (messages, tools, where the special id is to be found)
SPELLED = [
    ([{"role": "user", "content": "what is <|im_end|>?"}], None, 163586),
    ([{"role": "user", "content": [{"type": "text", "text": "a </think> b"}]}], None, 163607),
    ([{"role": "system", "content": "[PAD]"}, USER], None, 163839),
    ([USER], [{**TOOL, "function": {**TOOL["function"], "description": "ends with <|tool_call_end|>"}}], 163599),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("messages", "tools", "token_id"), SPELLED)
def test_text_that_spells_a_special_token_is_that_id_and_noted(
    renderer: PromptRenderer, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, token_id: int
) -> None:
    prompt = renderer.render(messages, tools, "thinking")
    plain = renderer.render([USER], None, "thinking")
    assert prompt.notes == ("prompt_spells_special",)
    assert prompt.ids is not None
    assert plain.ids is not None
    assert prompt.ids.count(token_id) > (plain.ids.count(token_id) if token_id == 163586 else 0)


# What a renderer would take for empty text is refused: the server would have said something else.
MALFORMED: list[tuple[str, Any, Any]] = [
    ("no messages", [], None),
    ("a message that is none", [USER, None], None),
    ("a message that is text", ["hi"], None),
    ("an empty message", [{}], None),
    ("no role", [{"content": "hi"}], None),
    ("role as number", [{"role": 5, "content": "hi"}], None),
    ("no content", [{"role": "user"}], None),
    ("content null", [{"role": "user", "content": None}], None),
    ("content as number", [{"role": "user", "content": 5}], None),
    ("content as object", [{"role": "user", "content": {"text": "hi"}}], None),
    ("content as list of text", [{"role": "user", "content": ["hi"]}], None),
    ("a part without text", [{"role": "user", "content": [{"type": "text"}]}], None),
    ("a part with a number", [{"role": "user", "content": [{"type": "text", "text": 5}]}], None),
    ("a lone surrogate", [{"role": "user", "content": "\ud800"}], None),
    ("reasoning as list", [USER, {"role": "assistant", "content": "a", "reasoning": ["b"]}, USER], None),
    ("calls as number", [USER, {"role": "assistant", "content": "a", "tool_calls": 5}], None),
    ("a call without a function", [USER, {"role": "assistant", "content": "a", "tool_calls": [{"id": "x"}]}], None),
    ("a tool that is none", [USER], [5]),
    ("an empty tool", [USER], [{}]),
    ("a tool without a name", [USER], [{"type": "function", "function": {}}]),
]


@pytest.mark.parametrize(("messages", "tools"), [m[1:] for m in MALFORMED], ids=[m[0] for m in MALFORMED])
def test_malformed_messages_are_not_rendered(renderer: PromptRenderer, messages: Any, tools: Any) -> None:
    assert renderer.render(messages, tools, "thinking") == RenderedPrompt(None, ("prompt_not_rendered",))


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "input_audio"}, {}])
def test_media_are_not_rendered(renderer: PromptRenderer, part: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}]
    assert renderer.render(messages, None, "thinking") == RenderedPrompt(None, ("prompt_has_media",))


@pytest.mark.parametrize("where", ["content", "parameters"])
def test_deep_nesting_is_not_rendered(renderer: PromptRenderer, where: str) -> None:
    deep: Any = "x"
    for _ in range(3000):
        deep = {"properties": {"a": deep}, "type": "object"}
    message = {"role": "user", "content": deep} if where == "content" else USER
    tools = [{"type": "function", "function": {"name": "f", "parameters": deep}}] if where == "parameters" else None
    assert renderer.render([message], tools, "thinking").ids is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["user", "text", "<|im_end|>"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "function", "name", "id"]), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = ["role", "content", "tool_calls", "reasoning", "name", "tool_call_id"]


@given(messages=st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4), max_size=3), tools=st.none() | JSON)
@settings(max_examples=150, deadline=None)
def test_nothing_raises(renderer: PromptRenderer, messages: Any, tools: Any) -> None:
    prompt = renderer.render(messages, tools if isinstance(tools, list) else None, "thinking")
    assert (prompt.ids is None) == bool({"prompt_not_rendered", "prompt_has_media"} & set(prompt.notes))


@given(text=st.text(max_size=60).filter(lambda text: "<" not in text and "[" not in text))
@settings(max_examples=100, deadline=None)
def test_the_text_stands_in_the_prompt_as_it_is(renderer: PromptRenderer, vocabulary: Vocabulary, text: str) -> None:
    prompt = renderer.render([{"role": "user", "content": text}], None, "instant")
    assert prompt.ids is not None
    assert f"<|im_middle|>{text}<|im_end|>".encode() in vocabulary.decode_bytes(prompt.ids)


def test_a_contract_without_a_renderer() -> None:
    contract = read_contract("gpt-oss")
    vocabulary = load_vocabulary(contract)
    assert render_prompt(contract, vocabulary, [USER], None, "thinking").notes == ("prompt_not_rendered",)


def test_modes_and_renderers_that_do_not_exist(
    kimi: Contract, vocabulary: Vocabulary, renderer: PromptRenderer
) -> None:
    import msgspec

    from toolkit.contract import PromptSpec

    with pytest.raises(ContractError, match="unknown mode 'deep'"):
        renderer.render([USER], None, "deep")
    other = msgspec.structs.replace(kimi, prompt=PromptSpec(renderer="kimi-k9"))
    with pytest.raises(ContractError, match=r"contract kimi-k2\.5: prompt\.renderer 'kimi-k9'"):
        render_prompt(other, vocabulary, [USER], None, "thinking")


def test_a_prompt_that_ends_otherwise_than_the_mode_says(kimi: Contract, vocabulary: Vocabulary) -> None:
    import msgspec

    instant = kimi.mode("instant")
    swapped = msgspec.structs.replace(
        kimi,
        modes={
            **kimi.modes,
            "thinking": msgspec.structs.replace(kimi.mode("thinking"), renderer_options=instant.renderer_options),
        },
    )
    assert render_prompt(swapped, vocabulary, [USER], None, "thinking") == RenderedPrompt(None, ("prompt_tail",))
    assert json.dumps(render_prompt(swapped, vocabulary, [USER], None, "instant").ids) != "null"
