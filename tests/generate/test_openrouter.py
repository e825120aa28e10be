from __future__ import annotations

from toolkit.config import DatasetSettings, Secret, parse_settings
from toolkit.contract import Contract
from toolkit.generate.openrouter import body_of, chat_url, headers_of
from toolkit.generate.plan import plan_asks
from toolkit.records import Prompt

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
OFF = [{"id": "context-compression", "enabled": False}]


def endpoint_of(text: str = "", name: str = "openrouter"):
    return parse_settings(text.encode(), "tokenproof.toml").endpoint(name)


def test_the_body_says_what_was_planned_and_nothing_more(kimi: Contract):
    prompt = Prompt(id="a", messages=[{"role": "user", "content": "1 + 1?"}], tools=TOOLS, max_tokens=64)
    asks = plan_asks([prompt], DatasetSettings(samples=2, sampling={"temperature": 0.6, "seed": 7}), kimi)
    endpoint = endpoint_of('[endpoints.openrouter]\nprovider = { only = ["chutes"] }\nextra = { user = "u" }')
    assert [body_of(ask, endpoint, kimi) for ask in asks] == [
        {
            "model": "moonshotai/kimi-k2.5",
            "messages": [{"role": "user", "content": "1 + 1?"}],
            "tools": TOOLS,
            "max_tokens": 64,
            "temperature": 0.6,
            "seed": seed,
            "reasoning": {"enabled": True},
            "stream": False,
            "provider": {"only": ["chutes"]},
            "plugins": OFF,
            "user": "u",
        }
        for seed in (7, 8)
    ]


def test_instant_mode_and_the_other_name_of_the_cap(kimi: Contract):
    (ask,) = plan_asks(
        [Prompt(id="a", messages=[{"role": "user", "content": "hi"}], mode="instant")], DatasetSettings(), kimi
    )
    body = body_of(
        ask, endpoint_of('[endpoints.openrouter]\nmax_tokens_field = "max_completion_tokens"\nstream = true'), kimi
    )
    assert body == {
        "model": "moonshotai/kimi-k2.5",
        "messages": [{"role": "user", "content": "hi"}],
        "max_completion_tokens": 8192,
        "reasoning": {"enabled": False},
        "stream": True,
        "plugins": OFF,
    }


def test_an_engine_is_told_the_mode_by_its_template_and_nothing_of_openrouter(kimi: Contract):
    (ask,) = plan_asks(
        [Prompt(id="a", messages=[{"role": "user", "content": "hi"}], mode="instant")], DatasetSettings(), kimi
    )
    endpoint = endpoint_of(
        '[endpoints.vllm]\nurl = "http://127.0.0.1:8000/v1"\nextra = { return_token_ids = true }', "vllm"
    )
    assert body_of(ask, endpoint, kimi) == {
        "model": "moonshotai/kimi-k2.5",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8192,
        "chat_template_kwargs": {"thinking": False},
        "stream": False,
        "return_token_ids": True,
    }
    assert chat_url(endpoint) == "http://127.0.0.1:8000/v1/chat/completions"


def test_headers_bear_the_key_and_no_more():
    assert headers_of(Secret("sk-1")) == {"Content-Type": "application/json", "Authorization": "Bearer sk-1"}
    assert headers_of(None) == {"Content-Type": "application/json"}
