"""A request's body, read strictly: what OpenRouter would answer with 400 is refused here in the same way."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from toolkit.contract import Contract
from toolkit.errors import PermanentError
from toolkit.records import Json
from toolkit.simulate.routing import Routing, read_routing, refusal

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHOWN_CHARS = 80

_ROUTED = {
    "logprobs": "logprobs",
    "max_completion_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "min_p": "min_p",
    "reasoning": "reasoning",
    "repetition_penalty": "repetition_penalty",
    "response_format": "response_format",
    "seed": "seed",
    "stop": "stop",
    "temperature": "temperature",
    "tool_choice": "tool_choice",
    "tools": "tools",
    "top_k": "top_k",
    "top_logprobs": "top_logprobs",
    "top_p": "top_p",
}
"""Fields that `require_parameters` looks at, by the names of supported_parameters."""
_MAX_SESSION_CHARS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, checked.

    Attributes:
        nonce: The request's `seed`, or 0: another one gives another answer to the same prompt.
        tool: Name of the tool that `tool_choice` demands; None for any.
        shows_reasoning: False where the request asked to withhold the reasoning's text.
        speaker: `session_id` and `user`, as sent.
        returns_ids: Whether the request asked an engine for ids (`return_token_ids`).
        shows_logprobs: Whether each sampled token is shown (`logprobs`).
        includes_usage: Whether a stream of an engine ends with usage (`stream_options.include_usage`).
    """

    model: str
    mode: str
    messages: list[dict[str, Json]]
    tools: list[dict[str, Json]] | None
    calls_tools: bool
    tool: str | None
    parallel_calls: bool
    max_tokens: int | None
    stream: bool
    shows_reasoning: bool
    nonce: int
    routing: Routing
    speaker: tuple[str | None, str | None] = (None, None)
    returns_ids: bool = False
    shows_logprobs: bool = False
    includes_usage: bool = False

    def identity_of(self, key: str) -> str:
        """What was asked, by whom: `key` (the `prompt_key`), or its sha256 with seed, session and user if any is sent.

        In words: sha256 of the JSON list [key, seed or 0, session_id or null, user or null], without spaces.
        """
        if not self.nonce and self.speaker == (None, None):
            return key
        return hashlib.sha256(orjson.dumps([key, self.nonce, *self.speaker])).hexdigest()


def read_request(body: Json, contract: Contract) -> Asked:
    """The request in `body`, a decoded JSON value.

    Raises:
        PermanentError: status 400; the message names the field, what was expected and what was found.
    """
    if not isinstance(body, dict):
        raise refusal("the body", "a JSON object", body)
    model = body.get("model")
    if not isinstance(model, str):
        raise refusal("model", "a string", model)
    if not contract.accepts_model(model):
        raise PermanentError(f"{model[:_SHOWN_CHARS]} is not a valid model ID", reason="model_not_found", status=400)
    tools = _tools(body.get("tools"))
    calls_tools, tool = _tool_choice(body.get("tool_choice"), tools)
    max_tokens = _max_tokens(body)
    parameters = frozenset(_ROUTED[name] for name in body.keys() & _ROUTED.keys())
    return Asked(
        model=model,
        mode=_mode(body, contract),
        messages=_messages(body.get("messages")),
        tools=tools,
        calls_tools=calls_tools,
        tool=tool,
        parallel_calls=flag_of(body, "parallel_tool_calls", True),
        max_tokens=max_tokens,
        stream=flag_of(body, "stream", False),
        shows_reasoning=_shows_reasoning(body),
        nonce=_integer(body, "seed") or 0,
        routing=read_routing(body.get("provider"), max_tokens=max_tokens, parameters=parameters),
        speaker=(_text(body, "session_id", _MAX_SESSION_CHARS), _text(body, "user")),
        returns_ids=flag_of(body, "return_token_ids", False),
        shows_logprobs=flag_of(body, "logprobs", False),
        includes_usage=_includes_usage(body.get("stream_options")),
    )


def last_user_text(messages: Sequence[Mapping[str, Json]]) -> str:
    """The text of the last user message; empty where there is none."""
    for message in reversed(messages):
        if message["role"] == "user":
            content = message.get("content")
            if isinstance(content, list):
                return "".join(part["text"] for part in content)
            return content if isinstance(content, str) else ""
    return ""


def _messages(value: Json) -> list[dict[str, Json]]:
    if not isinstance(value, list) or not value:
        raise refusal("messages", "a list with at least one message", value)
    for i, message in enumerate(value):
        where = f"messages[{i}]"
        if not isinstance(message, dict):
            raise refusal(where, "an object", message)
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise refusal(f"{where}.role", "one of " + ", ".join(sorted(_ROLES)), role)
        calls = message.get("tool_calls")
        if calls is not None:
            _check_calls(calls, where, role)
        _check_content(message.get("content"), where, optional=role == "assistant" and bool(calls))
        if role == "tool" and not isinstance(message.get("tool_call_id"), str):
            raise refusal(f"{where}.tool_call_id", "a string", message.get("tool_call_id"))
    return value


def _check_content(content: Json, where: str, *, optional: bool) -> None:
    if isinstance(content, str) or (content is None and optional):
        return
    if not isinstance(content, list):
        raise refusal(f"{where}.content", "a string or a list of parts", content)
    for j, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise refusal(f"{where}.content[{j}]", 'a part {"type": "text", "text": string}', part)


def _check_calls(calls: Json, where: str, role: str) -> None:
    if role != "assistant" or not isinstance(calls, list):
        raise refusal(f"{where}.tool_calls", "a list, in an assistant message", calls)
    for j, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        texts = (call.get("id"), function.get("name"), function.get("arguments")) if isinstance(function, dict) else ()
        if len(texts) != 3 or not all(isinstance(text, str) for text in texts):
            raise refusal(f"{where}.tool_calls[{j}]", "id, function.name and function.arguments as strings", call)


def _tools(value: Json) -> list[dict[str, Json]] | None:
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise refusal("tools", "a list", value)
    for i, tool in enumerate(value):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict):
            raise refusal(f"tools[{i}]", 'an object {"type": "function", "function": {…}}', tool)
        name = function.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            raise refusal(f"tools[{i}].function.name", "1 to 64 letters, digits, _ or -", name)
        if not isinstance(function.get("parameters", {}), dict):
            raise refusal(f"tools[{i}].function.parameters", "a JSON schema object", function["parameters"])
    return value


def _tool_choice(value: Json, tools: list[dict[str, Json]] | None) -> tuple[bool, str | None]:
    """Whether tools may be called, and the name of the one that must be."""
    if value in (None, "auto", "required"):
        return True, None
    if value == "none":
        return False, None
    function = value.get("function") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if name is None or name not in [tool["function"]["name"] for tool in tools or ()]:
        raise refusal("tool_choice", "none, auto, required or a declared function", value)
    return True, name


def _mode(body: dict[str, Json], contract: Contract) -> str:
    """The mode whose request fields, or whose template options, the body holds; else the contract's default mode.

    A literal `extra_body` is not unwrapped, as on a real server.
    """
    reasoning = body.get("reasoning")
    if reasoning is not None and not isinstance(reasoning, dict):
        raise refusal("reasoning", "an object", reasoning)
    if reasoning and reasoning.get("effort") == "none":
        body = {**body, "reasoning": {**reasoning, "enabled": False}}
    options = body.get("chat_template_kwargs")
    if options is not None and not isinstance(options, dict):
        raise refusal("chat_template_kwargs", "an object", options)
    for name, mode in contract.modes.items():
        if options and mode.renderer_options and _holds(options, mode.renderer_options):
            return name
        if mode.request and _holds(body, mode.request):
            return name
    return contract.default_mode


def _holds(value: Json, wanted: Json) -> bool:
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(key in value and _holds(value[key], wanted[key]) for key in wanted)
    return type(value) is type(wanted) and bool(value == wanted)


def _shows_reasoning(body: dict[str, Json]) -> bool:
    reasoning = body.get("reasoning") or {}
    return reasoning.get("exclude") is not True and body.get("include_reasoning") is not False


def _max_tokens(body: dict[str, Json]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = _integer(body, name)
        if value is not None:
            if value < 1:
                raise refusal(name, "at least 1", value)
            return value
    return None


def _integer(body: dict[str, Json], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise refusal(name, "a whole number", value)
    return value


def flag_of(body: dict[str, Json], name: str, default: bool) -> bool:
    """A boolean field of a request; `default` where it is absent or null, a refusal where it is something else."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise refusal(name, "true or false", value)
    return value


def _text(body: dict[str, Json], name: str, most: int | None = None) -> str | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, str) or (most is not None and len(value) > most)):
        raise refusal(name, "a string" if most is None else f"a string of at most {most} characters", value)
    return value


def _includes_usage(value: Json) -> bool:
    if value is None:
        return False
    if not isinstance(value, dict):
        raise refusal("stream_options", "an object", value)
    return value.get("include_usage") is True
