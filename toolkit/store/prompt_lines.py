"""One line of prompts.jsonl: what it may hold, and what is wrong with it. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import orjson

from toolkit.records import Json, Prompt, canonical_json
from toolkit.wire.json import NotJsonError, load_json

LONGEST_LINE = 64 << 20
"""Bytes of the longest line that is read: far above what any model's context holds."""

_KEYS = frozenset({"id", "messages", "tools", "mode", "max_tokens", "meta"})
_PLAIN_KEYS = frozenset({"id", "messages", "mode", "max_tokens", "meta"})
_ROLES = ("system", "developer", "user", "assistant", "tool")
_LONGEST_ID = 256
_PLAIN_DEPTH = 16
_KEY = re.compile(rb'"\s*:')
_BOM = b"\xef\xbb\xbf"
_TOO_DEEP = "expected JSON nested at most 250 levels deep"


def plain_id(line: bytes, modes: Collection[str]) -> str | None:
    """The id of an ordinary line without a fault: texts by system, user and assistant, no tools.

    None says nothing about a line but that `parse_prompt` has to decide. Ten times as fast as that, which is what
    keeps a check of a million lines within seconds.
    """
    try:
        value = orjson.loads(line)
    except ValueError:
        return None
    if type(value) is not dict or not value.keys() <= _PLAIN_KEYS:
        return None
    messages = value.get("messages")
    if type(messages) is not list or not _are_plain(messages):
        return None
    keys = len(value) + 2 * len(messages)
    if len(value) > 1:
        identifier, mode, cap, meta = value.get("id"), value.get("mode"), value.get("max_tokens"), value.get("meta")
        if identifier is not None and not (type(identifier) is str and 0 < len(identifier) <= _LONGEST_ID):
            return None
        if mode is not None and not (type(mode) is str and mode in modes):
            return None
        if cap is not None and not (type(cap) is int and 0 < cap < 2**31):
            return None
        if meta is not None:
            keys += count_keys(meta, _PLAIN_DEPTH)
    if keys != written_keys(line):
        return None
    return value.get("id") or _id_of(messages, None)


def _are_plain(messages: list[Any]) -> bool:
    before = "start"
    for message in messages:
        if type(message) is not dict or len(message) != 2 or type(message.get("content")) is not str:
            return False
        role = message.get("role")
        if role == "assistant":
            if before != "user":
                return False
        elif role == "system":
            if before not in ("start", "system"):
                return False
        elif role != "user":
            return False
        before = role
    return before == "user"


def parse_prompt(line: bytes, number: int, *, modes: Collection[str]) -> tuple[Prompt | None, list[str]]:
    """One line as a prompt, or the faults that keep it from being one."""
    if line.startswith(_BOM):
        return None, ["a byte order mark, which only the first line may begin with"]
    try:
        value = load_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return None, [f"not UTF-8 at byte {error.start}"]
    except NotJsonError as error:
        return None, [f"not JSON: {error}"]
    if not isinstance(value, Mapping):
        return None, [f"expected an object, found {type(value).__name__}"]
    try:
        canonical_json(value)
        faults = [*_repeated_keys(line, value), *_prompt_faults(value, modes)]
    except (ValueError, RecursionError):
        return None, [_TOO_DEEP]
    return (None, faults) if faults else (prompt_of(value, number), [])


def prompt_of(value: Mapping[str, Json], number: int) -> Prompt:
    """The prompt of a decoded line that has no fault."""
    tools = value.get("tools") or None
    return Prompt(
        # A line without an id has one that follows from its content: it stays when lines are moved.
        id=value.get("id") or _id_of(value["messages"], value.get("tools")),
        messages=value["messages"],
        tools=tools,
        mode=value.get("mode"),
        max_tokens=value.get("max_tokens"),
        line=number,
    )


def _id_of(messages: Json, tools: Json) -> str:
    return f"sha256-{hashlib.sha256(canonical_json({'messages': messages, 'tools': tools})).hexdigest()[:16]}"


# --- keys that are written twice ----------------------------------------------------------------


def written_keys(line: bytes) -> int:
    """How many keys a line of JSON may hold: never fewer than it does, and as a rule as many.

    Each key ends in a quote, white space and a colon; a text that ends or begins so is counted, too.
    """
    if b" :" in line or b"\t:" in line or b"\r:" in line:
        return len(_KEY.findall(line))
    return line.count(b'":')


def count_keys(value: Json, depth: int) -> int:
    """Keys in a decoded value; a number that no line has where it is nested deeper than `depth`."""
    if isinstance(value, dict):
        if depth == 0:
            return -(1 << 40)
        return len(value) + sum(count_keys(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return -(1 << 40) if depth == 0 else sum(count_keys(item, depth - 1) for item in value)
    return 0


def _repeated_keys(line: bytes, value: Json) -> Iterator[str]:
    """A key written twice: readers differ in which of the two they take."""
    if count_keys(value, 1000) == written_keys(line):
        return
    repeated: dict[str, None] = {}

    def note(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                repeated[key] = None
            seen.add(key)
        return dict(pairs)

    json.loads(line, object_pairs_hook=note)
    if repeated:
        yield f"key {', '.join(_found(key) for key in repeated)} is written twice in one object"


# --- what a line may hold -----------------------------------------------------------------------


def _prompt_faults(value: Mapping[str, Json], modes: Collection[str]) -> Iterator[str]:
    unknown = sorted(set(value) - _KEYS)
    if unknown:
        shown = ", ".join(map(_found, unknown[:8]))
        yield f"unknown key {shown}; expected {', '.join(sorted(_KEYS))} (your own data: meta)"
    identifier = value.get("id")
    if identifier is not None and not (isinstance(identifier, str) and 0 < len(identifier) <= _LONGEST_ID):
        yield f"id: expected a string of 1 to {_LONGEST_ID} characters, found {_found(identifier)}"
    mode = value.get("mode")
    if mode is not None and not (isinstance(mode, str) and mode in modes):
        yield f"mode: expected one of {', '.join(sorted(modes))}, found {_found(mode)}"
    cap = value.get("max_tokens")
    if cap is not None and not (type(cap) is int and 0 < cap < 2**31):
        yield f"max_tokens: expected a whole number from 1, found {_found(cap)}"
    if not _all_scalars(value, _is_utf8):
        yield "a string holds a lone surrogate, which no server can receive"
    if not _all_scalars(value, _is_finite):
        yield "a number is larger than JSON's readers hold"
    yield from tools_faults(value.get("tools"))
    yield from messages_faults(value.get("messages"))


def tools_faults(tools: Json) -> Iterator[str]:
    """What is wrong with declared tools (OpenAI's form); nothing for None."""
    if tools is None:
        return
    if not isinstance(tools, list):
        yield f"tools: expected a list, found {_found(tools)}"
        return
    for at, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
            yield f"tools[{at}]: expected {{type: function, function: {{name, parameters}}}}, found {_found(tool)}"
        elif not isinstance(function.get("parameters", {}), Mapping):
            yield f"tools[{at}].function.parameters: expected a JSON schema, found {_found(function['parameters'])}"


def messages_faults(messages: Json) -> Iterator[str]:
    """What is wrong with chat messages: shape, roles and their order."""
    if not isinstance(messages, list) or not messages:
        yield f"messages: expected a list of messages, found {_found(messages)}"
        return
    open_calls: set[str] = set()
    before = "start"
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        if not isinstance(message, Mapping):
            yield f"{where}: expected an object, found {_found(message)}"
            return
        role = message.get("role")
        if role not in _ROLES:
            yield f"{where}.role: expected one of {', '.join(_ROLES)}, found {_found(role)}"
            return
        yield from _content_faults(message, where)
        yield from _order_faults(role, before, open_calls, where)
        if role == "assistant":
            yield from _call_faults(message.get("tool_calls"), where)
            open_calls = _call_ids(message)
        elif role == "tool":
            answered = message.get("tool_call_id")
            if not isinstance(answered, str) or answered not in open_calls:
                yield f"{where}.tool_call_id: expected the id of a call before it, found {_found(answered)}"
            open_calls = open_calls - {answered} if isinstance(answered, str) else open_calls
        before = role
    if before not in ("user", "tool"):
        yield f"messages: expected the last one from user or tool, found {before}"
    elif open_calls:
        yield f"messages: {len(open_calls)} tool calls have no result"


def _content_faults(message: Mapping[str, Json], where: str) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        return
    if isinstance(content, list) and content:
        for at, part in enumerate(content):
            if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                yield f"{where}.content[{at}]: expected {{type: text, text}}, found {_found(part)}"
        return
    if content is None and message.get("role") == "assistant" and message.get("tool_calls"):
        return
    yield f"{where}.content: expected a string or text parts, found {_found(content)}"


def _order_faults(role: str, before: str, open_calls: set[str], where: str) -> Iterator[str]:
    if role in ("system", "developer") and before not in ("start", "system", "developer"):
        yield f"{where}: {role} after {before}; expected it before all others"
    elif role == "assistant" and before not in ("user", "tool"):
        yield f"{where}: assistant after {before}; expected it after user or tool"
    elif role == "user" and open_calls:
        yield f"{where}: user before the results of {len(open_calls)} tool calls"
    elif role == "tool" and before not in ("assistant", "tool"):
        yield f"{where}: tool after {before}; expected it after the call"


def _call_faults(calls: Json, where: str) -> Iterator[str]:
    if calls is None:
        return
    if not isinstance(calls, list):
        yield f"{where}.tool_calls: expected a list, found {_found(calls)}"
        return
    for at, call in enumerate(calls):
        call = call if isinstance(call, Mapping) else {}
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        if not isinstance(function.get("name"), str) or not isinstance(call.get("id"), str):
            yield f"{where}.tool_calls[{at}]: expected {{id, function: {{name, arguments}}}}, found {_found(call)}"
        elif not isinstance(function.get("arguments"), str):
            yield (
                f"{where}.tool_calls[{at}].function.arguments: expected a JSON string, "
                f"found {_found(function.get('arguments'))}"
            )


def _call_ids(message: Mapping[str, Json]) -> set[str]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return set()
    return {call["id"] for call in calls if isinstance(call, Mapping) and isinstance(call.get("id"), str)}


def _all_scalars(value: Json, holds: Callable[[Json], bool]) -> bool:
    """Whether `holds` of every key and of everything that is neither a list nor an object."""
    if isinstance(value, Mapping):
        return all(holds(key) and _all_scalars(item, holds) for key, item in value.items())
    if isinstance(value, list):
        return all(_all_scalars(item, holds) for item in value)
    return holds(value)


def _is_utf8(value: Json) -> bool:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    return True


def _is_finite(value: Json) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _found(value: Json) -> str:
    """A value for an error message, cut short."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value) if len(value) <= 78 else f"{value[:78]!r}…"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
