"""prompts.jsonl: every line is checked before anything is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from toolkit.errors import PromptsError
from toolkit.records import Json, Prompt, canonical_json
from toolkit.store.files import numbered_lines
from toolkit.wire.json import NotJsonError, load_json

_KEYS = frozenset({"id", "messages", "tools", "mode", "max_tokens", "meta"})
_ROLES = ("system", "developer", "user", "assistant", "tool")
_SHOWN_FAULTS = 50


def read_prompts(path: Path, *, modes: Collection[str]) -> list[Prompt]:
    """All prompts of a file.

    Args:
        path: One JSON object a line: `messages`, and optionally `id`, `tools`, `mode`, `max_tokens`, `meta`.
        modes: The contract's modes.

    Raises:
        PromptsError: the file cannot be read or is empty, or any line is faulty: all faults are listed.
    """
    prompts: list[Prompt] = []
    faults: list[str] = []
    first_line: dict[str, int] = {}
    for number, line in _lines(path):
        prompt, line_faults = parse_prompt(line, number, modes=modes)
        if prompt is not None:
            earlier = first_line.setdefault(prompt.id, number)
            if earlier != number:
                line_faults = [f"id {prompt.id!r} was used on line {earlier}"]
            else:
                prompts.append(prompt)
        faults += [f"{path.name}: line {number}: {fault}" for fault in line_faults]
    if faults:
        shown = faults[:_SHOWN_FAULTS]
        more = [f"… and {len(faults) - len(shown)} more faults"] if len(faults) > len(shown) else []
        raise PromptsError("\n".join([f"{path}: {len(faults)} faults, nothing was sent", *shown, *more]), faults)
    if not prompts:
        raise PromptsError(f"{path}: expected at least one prompt, found none")
    return prompts


def parse_prompt(line: bytes, number: int, *, modes: Collection[str]) -> tuple[Prompt | None, list[str]]:
    """One line as a prompt, or the faults that keep it from being one."""
    try:
        value = load_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return None, [f"not UTF-8 at byte {error.start}"]
    except NotJsonError as error:
        return None, [f"not JSON: {error}"]
    if not isinstance(value, Mapping):
        return None, [f"expected an object, found {type(value).__name__}"]
    try:
        identity = canonical_json({"messages": value.get("messages"), "tools": value.get("tools")})
    except ValueError:
        return None, ["expected JSON nested at most 250 levels deep"]
    faults = list(_prompt_faults(value, modes))
    if faults:
        return None, faults
    return Prompt(
        id=value.get("id") or f"sha256-{hashlib.sha256(identity).hexdigest()[:16]}",
        messages=value["messages"],
        tools=value.get("tools") or None,
        mode=value.get("mode"),
        max_tokens=value.get("max_tokens"),
        line=number,
    ), []


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        yield from numbered_lines(path)
    except FileNotFoundError:
        raise PromptsError(f'{path}: missing; write one JSON object a line: {{"messages": […]}}') from None
    except OSError as error:
        raise PromptsError(f"{path}: cannot be read: {error.strerror}") from None


def _prompt_faults(value: Mapping[str, Json], modes: Collection[str]) -> Iterator[str]:
    unknown = sorted(set(value) - _KEYS)
    if unknown:
        yield f"unknown key {', '.join(map(repr, unknown))}; expected {', '.join(sorted(_KEYS))} (your own data: meta)"
    identifier = value.get("id")
    if identifier is not None and not (isinstance(identifier, str) and 0 < len(identifier) <= 256):
        yield f"id: expected a string of 1 to 256 characters, found {_found(identifier)}"
    mode = value.get("mode")
    if mode is not None and mode not in list(modes):
        yield f"mode: expected one of {', '.join(sorted(modes))}, found {_found(mode)}"
    cap = value.get("max_tokens")
    if cap is not None and not (type(cap) is int and 0 < cap < 2**31):
        yield f"max_tokens: expected a whole number from 1, found {_found(cap)}"
    if not _is_utf8(value):
        yield "a string holds a lone surrogate, which no server can receive"
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
            open_calls = open_calls - {str(answered)}
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


def _is_utf8(value: Json) -> bool:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return True
    if isinstance(value, Mapping):
        return all(_is_utf8(k) and _is_utf8(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(_is_utf8, value))
    return True


def _found(value: Json) -> str:
    """A value for an error message, cut short."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
