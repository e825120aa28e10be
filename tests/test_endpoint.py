"""Endpoints: what a source is by default, and which options go together."""

from __future__ import annotations

import pytest

from toolkit.config import EndpointSettings, parse_settings
from toolkit.errors import ConfigError


def endpoint_of(name: str, lines: str = "", url: str = "http://127.0.0.1:30000") -> EndpointSettings:
    head = "" if name == "openrouter" else f'url = "{url}"\n'
    return parse_settings(f"[endpoints.{name}]\n{head}{lines}".encode(), "tokenproof.toml").endpoint(name)


@pytest.mark.parametrize(
    ("name", "lines", "api", "ids", "cap"),
    [
        ("openrouter", "", "chat", "off", "max_completion_tokens"),
        ("openrouter", 'max_tokens_field = "max_tokens"', "chat", "off", "max_tokens"),
        ("sglang", "", "generate", "ask", "max_tokens"),
        ("sglang", 'api = "chat"', "chat", "ask", "max_tokens"),
        ("vllm", "", "chat", "ask", "max_tokens"),
        ("vllm", 'ids = "require"', "chat", "require", "max_tokens"),
        ("mine", 'source = "sglang"', "generate", "ask", "max_tokens"),
        ("fireworks", "", "chat", "off", "max_tokens"),
        ("fireworks", 'ids = "ask"', "chat", "ask", "max_tokens"),
    ],
)
def test_what_a_source_is_by_default(name: str, lines: str, api: str, ids: str, cap: str):
    endpoint = endpoint_of(name, lines)
    assert (endpoint.api, endpoint.ids, endpoint.max_tokens_field) == (api, ids, cap)


@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        ("openrouter", 'ids = "ask"', [".ids", "OpenRouter returns no ids"]),
        ("openrouter", 'api = "generate"', [".api"]),
        ("sglang", 'ids = "off"', [".ids", "/generate"]),
        ("sglang", "logprobs = true", [".api", "logprobs"]),
        ("sglang", 'extra = { priority = 1 }', [".api", "extra"]),
        ("sglang", 'seed_field = "seed: 1"', [".seed_field"]),
        ("vllm", 'seed_field = "seed"', [".seed_field"]),
        ("vllm", 'session_id = "s"', [".session_id", "only OpenRouter"]),
        ("vllm", 'title = "t"', [".title", "only OpenRouter"]),
        ("openrouter", f'session_id = "{"s" * 257}"', [".session_id", "256", "257"]),
        ("openrouter", 'title = "a\\nb"', [".title", "printable"]),
        ("openrouter", 'referer = ""', [".referer"]),
        ("openrouter", 'user = " "', [".user"]),
        ("openrouter", "top_logprobs = 5", [".top_logprobs", "logprobs = true"]),
        ("openrouter", "logprobs = true\ntop_logprobs = 21", ["top_logprobs", "20"]),
        ("vllm", "extra = { return_token_ids = true }", [".extra", "option ids"]),
        ("openrouter", 'extra = { user = "u" }', [".extra", "option user"]),
        ("openrouter", 'api = "responses"', ["api", "responses"]),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(name: str, lines: str, words: list[str]):
    with pytest.raises(ConfigError) as caught:
        endpoint_of(name, lines)
    for word in words:
        assert word in str(caught.value)


def test_stop_strings_are_refused_with_the_reason():
    with pytest.raises(ConfigError, match="which ids were sampled"):
        parse_settings(b'[defaults]\nsampling = { stop = ["###"] }', "tokenproof.toml")
