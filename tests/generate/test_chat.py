"""The body of chat completions, for OpenRouter and for engines that return ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit.config import EndpointSettings, Secret, parse_settings
from toolkit.contract import Contract
from toolkit.errors import PermanentError
from toolkit.generate.request import headers_of, wire_format
from toolkit.vocabulary import Vocabulary

from .asks import ask_of

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
OFF = [{"id": "context-compression", "enabled": False}]
HI = {"model": "moonshotai/kimi-k2.5", "messages": [{"role": "user", "content": "hi"}]}


def endpoint_of(lines: str = "", name: str = "openrouter") -> EndpointSettings:
    head = "" if name == "openrouter" else 'url = "http://127.0.0.1:8000/v1"\n'
    return parse_settings(f"[endpoints.{name}]\n{head}{lines}".encode(), "tokenproof.toml").endpoint(name)


@pytest.fixture
def body_of(kimi: Contract, vocabulary: Vocabulary):
    """The body that is sent, which is the one that the row keeps."""

    def build(lines: str = "", name: str = "openrouter", **ask: Any) -> dict[str, Any]:
        request = wire_format(endpoint_of(lines, name), kimi, vocabulary).request_of(ask_of(kimi, **ask))
        assert json.loads(request.body) == request.sent
        assert request.form == "openai"
        return request.sent

    return build


@pytest.mark.parametrize(("sample_index", "seed"), [(0, 7), (1, 8)])
def test_the_body_says_what_was_planned_and_nothing_more(body_of, sample_index: int, seed: int):
    sampling = {"temperature": 0.6, "seed": 7}
    body = body_of(tools=TOOLS, max_tokens=64, sampling=sampling, sample_index=sample_index)
    assert body == {
        **HI,
        "tools": TOOLS,
        "max_completion_tokens": 64,
        "temperature": 0.6,
        "seed": seed,
        "reasoning": {"enabled": True},
        "stream": False,
        "plugins": OFF,
    }


def test_instant_mode_streamed_with_the_other_name_of_the_cap(body_of):
    body = body_of('max_tokens_field = "max_tokens"\nstream = true', mode="instant", max_tokens=8)
    assert body == HI | {"max_tokens": 8, "reasoning": {"enabled": False}, "stream": True, "plugins": OFF}


def test_all_that_openrouter_takes(body_of):
    body = body_of("""
        session_id = "s-1"
        user = "u"
        logprobs = true
        top_logprobs = 0
        extra = { service_tier = "flex" }
        [endpoints.openrouter.provider]
        order = ["chutes"]
        only = ["chutes", "inceptron"]
        ignore = ["avian"]
        allow_fallbacks = false
        require_parameters = true
        quantizations = ["int4"]
        sort = "price"
        max_price = { prompt = 1, completion = "3" }
        data_collection = "deny"
        zdr = true
        enforce_distillable_text = true
    """)
    assert body["provider"] == {
        "order": ["chutes"], "only": ["chutes", "inceptron"], "ignore": ["avian"], "allow_fallbacks": False,
        "require_parameters": True, "quantizations": ["int4"], "sort": "price",
        "max_price": {"prompt": 1, "completion": "3"}, "data_collection": "deny", "zdr": True,
        "enforce_distillable_text": True,
    }  # fmt: skip
    rest = {"session_id": "s-1", "user": "u", "logprobs": True, "top_logprobs": 0, "service_tier": "flex"}
    assert rest.items() <= body.items()
    assert not {"models", "stop", "n", "transforms", "include_reasoning"} & body.keys()


def test_the_effort_stands_where_the_switch_of_the_mode_was(body_of):
    body = body_of(sampling={"reasoning_effort": "high"})
    assert body["reasoning"] == {"effort": "high"}
    assert "reasoning_effort" not in body
    with pytest.raises(PermanentError) as caught:
        body_of(mode="instant", sampling={"reasoning_effort": "high"})
    assert caught.value.reason == "mode_contradicted"


def test_an_engine_is_told_the_mode_by_its_template_and_asked_for_ids(body_of):
    assert body_of(name="vllm", mode="instant", max_tokens=8) == {
        **HI,
        "max_tokens": 8,
        "chat_template_kwargs": {"thinking": False},
        "stream": False,
        "return_token_ids": True,
    }
    assert "return_token_ids" not in body_of('ids = "off"', "vllm")
    assert body_of('ids = "require"', "fireworks")["return_token_ids"] is True


def test_a_stream_of_an_engine_is_asked_for_its_usage(body_of):
    assert body_of("stream = true", "vllm")["stream_options"] == {"include_usage": True}
    assert "stream_options" not in body_of("stream = true")


def test_where_it_is_sent(kimi: Contract, vocabulary: Vocabulary):
    assert wire_format(endpoint_of("", "vllm"), kimi, vocabulary).request_of(ask_of(kimi)).url == (
        "http://127.0.0.1:8000/v1/chat/completions"
    )


def test_foreign_tool_ids_are_rewritten_in_what_is_sent(body_of, kimi: Contract):
    """Case 20: Kimi stops at once when the history bears ids that are not its own."""
    call = {"id": "call_9f3a", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_9f3a", "content": "found"},
    ]
    sent = body_of(messages=messages)["messages"]
    assert (sent[1]["tool_calls"][0]["id"], sent[2]["tool_call_id"]) == ("functions.find:0", "functions.find:0")
    assert ask_of(kimi, messages=messages).tool_ids == {"call_9f3a": "functions.find:0"}


def test_headers_bear_the_key_and_who_asks():
    json_only = {"Content-Type": "application/json"}
    assert headers_of(endpoint_of(), None) == json_only
    assert headers_of(endpoint_of(), Secret("sk-1")) == json_only | {"Authorization": "Bearer sk-1"}
    named = endpoint_of('referer = "https://example.org"\ntitle = "Tokenproof"')
    assert headers_of(named, None) == json_only | {"HTTP-Referer": "https://example.org", "X-Title": "Tokenproof"}
