"""Conversations for tools that take text only, in the form that each reads. Pure.

Model-Optimizer reads `conversation_id` and `messages`, and hands the messages alone to the tokenizer's template
(`_tokenize_entry`, nvidia-modelopt 0.47.0). EAGLE reads `id` and `conversations` of human and gpt in strict turns, puts
a system message of its own before them, and finds answers by Llama-3's headers (`traineagle3/main.py`, 82bd2df).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.export.readers import Target
from toolkit.records import Json

EAGLE_SYSTEM = (
    "You are a helpful, respectful and honest assistant. Always answer as helpfully as possible, while being safe.  "
    "Your answers should not include any harmful, unethical, racist, sexist, toxic, dangerous, or illegal content. "
    "Please ensure that your responses are socially unbiased and positive in nature.\n\nIf a question does not make "
    "any sense, or is not factually coherent, explain why instead of answering something not correct. If you don't "
    "know the answer to a question, please don't share false information."
)
"""What EAGLE puts before every conversation: part of what it trains on, so it is needed to foresee its ids."""

_CUT = ("length", "max_tokens")
"""Finish reasons of answers that were cut, in the words of the servers."""

_EAGLE_ROLES = {"user": "human", "assistant": "gpt"}


class NotExpressibleError(Exception):
    """A row that a tool's form cannot hold; `reason` is a code for the report."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row as text.

    Attributes:
        line: What is written: a JSON object.
        messages: What the tool's template is given.
    """

    line: Mapping[str, Json]
    messages: Sequence[dict[str, Json]]


def conversation_of(target: Target, name: str, texts: Mapping[str, Any]) -> Conversation:
    """A row of a train set for a tool that takes text.

    Args:
        target: `eagle` or `model-optimizer`.
        name: The row's id.
        texts: Its columns messages, tools, reasoning, content, tool_calls and finish_reason.

    Raises:
        NotExpressibleError: `no_messages`, `no_text`, `cut` (the tool's template would close an answer that was not
            finished), `not_json` (what stands there is no list of messages or calls), and for EAGLE `tools`, `role`
            (one that it does not know), `not_alternating`, `not_plain_text`.
    """
    if texts["messages"] is None:
        raise NotExpressibleError("no_messages")
    if texts["content"] is None and texts["reasoning"] is None and texts["tool_calls"] is None:
        raise NotExpressibleError("no_text")
    if (texts["finish_reason"] or "").lower() in _CUT:
        raise NotExpressibleError("cut")
    history = _objects(texts["messages"])
    if target is Target.EAGLE:
        return _for_eagle(name, history, texts)
    messages = [*history, _answer(texts)]
    line: dict[str, Json] = {"conversation_id": name, "messages": messages}
    if texts["tools"] is not None:
        line["tools"] = _objects(texts["tools"])
    return Conversation(line, messages)


def _objects(text: str) -> list[dict[str, Any]]:
    """A list of objects in JSON.

    Raises:
        NotExpressibleError: `not_json`.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise NotExpressibleError("not_json") from None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise NotExpressibleError("not_json")
    return value


def _answer(texts: Mapping[str, Any]) -> dict[str, Json]:
    """The answer as a chat message; what is absent stays absent."""
    answer: dict[str, Json] = {"role": "assistant", "content": texts["content"] or ""}
    if texts["reasoning"] is not None:
        answer["reasoning_content"] = texts["reasoning"]
    if texts["tool_calls"] is not None:
        answer["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call.get("name"), "arguments": call.get("arguments")},
            }
            for call in _objects(texts["tool_calls"])
        ]
    return answer


def _for_eagle(name: str, history: Sequence[dict[str, Json]], texts: Mapping[str, Any]) -> Conversation:
    if texts["tools"] is not None or texts["tool_calls"] is not None:
        raise NotExpressibleError("tools")
    thoughts = "" if texts["reasoning"] is None else f"<think>{texts['reasoning']}</think>"
    turns = [*history, {"role": "assistant", "content": thoughts + (texts["content"] or "")}]
    for place, turn in enumerate(turns):
        role = turn.get("role")
        if role not in _EAGLE_ROLES:
            raise NotExpressibleError("role")
        if role != ("user", "assistant")[place % 2]:
            raise NotExpressibleError("not_alternating")
        if not isinstance(turn.get("content"), str):
            raise NotExpressibleError("not_plain_text")
    line = {
        "id": name,
        "conversations": [{"from": _EAGLE_ROLES[turn["role"]], "value": turn["content"]} for turn in turns],
    }
    system = {"role": "system", "content": EAGLE_SYSTEM}
    return Conversation(line, [system, *({"role": turn["role"], "content": turn["content"]} for turn in turns)])
