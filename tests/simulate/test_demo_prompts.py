"""datasets/B3_demo/prompts.jsonl is what the demo needs it to be."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toolkit.contract import Contract
from toolkit.prompt import PromptRenderer
from toolkit.simulate.asked import read_request
from toolkit.vocabulary import Vocabulary

PATH = Path(__file__).resolve().parents[2] / "datasets" / "B3_demo" / "prompts.jsonl"
KEYS = {"id", "messages", "tools", "mode", "max_tokens"}


@pytest.fixture(scope="module")
def prompts() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def test_file_is_forty_lines_of_utf8(prompts: list[dict[str, Any]]) -> None:
    content = PATH.read_bytes()
    assert content.count(b"\n") == 40 == len(prompts)
    assert content.endswith(b"}\n")
    assert b"\r" not in content
    assert not content.startswith(b"\xef\xbb\xbf")
    assert len({prompt["id"] for prompt in prompts}) == 40


def test_prompts_are_asked_as_they_stand(prompts: list[dict[str, Any]], kimi: Contract, vocabulary: Vocabulary) -> None:
    renderer = PromptRenderer(kimi, vocabulary)
    for prompt in prompts:
        assert set(prompt) <= KEYS
        assert prompt.get("mode", "instant") == "instant"
        body = {"model": "moonshotai/kimi-k2.5", **{k: v for k, v in prompt.items() if k not in ("id", "mode")}}
        read_request(body, kimi)
        rendered = renderer.render(prompt["messages"], prompt.get("tools"), prompt.get("mode", "thinking"))
        assert rendered.ids is not None
        assert rendered.notes == ()


def test_roles_are_in_order(prompts: list[dict[str, Any]]) -> None:
    for prompt in prompts:
        roles = [message["role"] for message in prompt["messages"]]
        turns = [role for role in roles if role != "system"]
        assert roles.count("system") == 0 or (roles[0] == "system" and roles.count("system") == 1)
        assert turns[0] == "user"
        assert turns[-1] in ("user", "tool")
        for before, after in itertools.pairwise(turns):
            assert (before, after) in {("user", "assistant"), ("assistant", "user"), ("assistant", "tool")}


def test_kinds_are_all_there(prompts: list[dict[str, Any]]) -> None:
    kinds = Counter(prompt["id"].partition("-")[0] for prompt in prompts)
    assert set(kinds) == {"code", "maths", "prose", "chinese", "emoji", "tools", "chat", "long"}
    tools = {tool["function"]["name"] for prompt in prompts for tool in prompt.get("tools", ())}
    assert tools == {"get_weather", "search_books", "create_event"}
    assert sum(prompt.get("mode") == "instant" for prompt in prompts) == 8
    assert sum(isinstance(m["content"], list) for prompt in prompts for m in prompt["messages"]) == 1
    calls = [c for prompt in prompts for m in prompt["messages"] for c in m.get("tool_calls", ())]
    assert [call["id"] for call in calls] == ["functions.get_weather:0"]
