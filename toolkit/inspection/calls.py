"""Which call of a row is wrong, and where in it. Pure.

The audit's own facts decide that a call is wrong; here the calls are told apart, and the place is found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import numpy as np
import pyarrow as pa

from toolkit.audit.tools import tool_facts
from toolkit.audit.where import bytes_of
from toolkit.contract import Contract
from toolkit.inspection.model import Fault, Part
from toolkit.vocabulary import Vocabulary

_LONG = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call and where it stands in the ids.

    Attributes:
        begin, end: Indices of its ids: of the one that begins it, and behind its last; None where the ids lack it.
        arguments_at: Index of the first id of its arguments.
    """

    number: int
    id: str
    name: str
    arguments: str
    begin: int | None
    arguments_at: int | None
    end: int | None

    @property
    def named(self) -> str:
        return f"call {self.number} ({self.name or self.id})"


def call_fault(row: Mapping[str, Any], truncated: bool, vocabulary: Vocabulary) -> Fault | None:
    """The first fault of a row's calls; None where there is none.

    Args:
        row: Columns `tool_calls`, `tools`, `messages` and `output_ids` of a shard.
        truncated: Whether the answer was cut.
        vocabulary: The contract's.
    """
    calls = _calls_of(row, vocabulary.contract)
    for number in range(1, len(calls) + 1):
        code = _fact(row, number, truncated and number == len(calls), vocabulary)
        if code is not None:
            return _fault(code, calls[number - 1], row, calls, vocabulary)
    return None


def _fact(row: Mapping[str, Any], first: int, truncated: bool, vocabulary: Vocabulary) -> str | None:
    """The audit's fact about a row that has only its first calls."""
    calls = json.dumps(json.loads(row["tool_calls"])[:first], ensure_ascii=False)
    table = pa.table(
        {
            "tool_calls": pa.array([calls], pa.string()),
            "tools": pa.array([row["tools"]], pa.string()),
            "messages": pa.array([row["messages"]], pa.string()),
        }
    )
    facts = tool_facts(table, np.array([truncated]), vocabulary.contract, vocabulary.encode_batch)
    found: str | None = facts["tool_fault"][0].as_py()
    return found


def _calls_of(row: Mapping[str, Any], contract: Contract) -> list[_Call]:
    listed = json.loads(row["tool_calls"]) if row["tool_calls"] else []
    places = list(_places(row["output_ids"] or [], contract))
    calls = []
    for number, call in enumerate(listed, 1):
        begin, arguments_at, end = places[number - 1] if number <= len(places) else (None, None, None)
        calls.append(
            _Call(number=number, id=call.get("id") or "", name=call.get("name") or "",
                  arguments=call.get("arguments") or "", begin=begin, arguments_at=arguments_at, end=end)
        )  # fmt: skip
    return calls


def _places(ids: Sequence[int], contract: Contract) -> list[tuple[int, int | None, int]]:
    """(begin, first id of the arguments, behind the last id) of each call in the ids."""
    form = contract.tools
    if form is None:
        return []
    begin, between, end = (contract.id_of(form.call[i]) for i in (0, 2, 4))
    closing = {end, begin, contract.id_of(form.section_end), *contract.terminal_ids}
    places = []
    for at in (i for i, token_id in enumerate(ids) if token_id == begin):
        stop = next((i for i in range(at + 1, len(ids)) if ids[i] in closing), len(ids))
        parted = next((i + 1 for i in range(at + 1, stop) if ids[i] == between), None)
        places.append((at, parted, stop))
    return places


def _fault(code: str, call: _Call, row: Mapping[str, Any], calls: Sequence[_Call], vocabulary: Vocabulary) -> Fault:
    form = vocabulary.contract.tools
    whole = (call.begin, call.end)
    arguments = (call.arguments_at, call.end)
    if code == "tool_id":
        wanted = form.id_form if form is not None else "an id of the contract's form"
        return _told(code, f"{call.named}: its id is not of the contract's form", whole, wanted, call.id)
    if code == "tool_index":
        before = f"an index that counts up from that of the call before ({calls[call.number - 2].id})"
        wanted = before if call.number > 1 else "index 0, or one behind the calls of the history"
        return _told(code, f"{call.named}: its index is out of order", whole, wanted, call.id)
    if code == "tool_name":
        declared = ", ".join(_declared(row)) or "none"
        return _told(code, f"{call.named}: no function of that name is declared", whole, declared, call.name)
    if code == "tool_arguments":
        return _broken_arguments(call, row["output_ids"] or [], vocabulary)
    path, says, found = _schema_fault(row, call)
    return _told(
        code, f"{call.named}: arguments at {path} are not as the function declares them", arguments, says, found
    )


def _told(code: str, says: str, place: tuple[int | None, int | None], expected: str, found: str) -> Fault:
    at, until = place
    part = Part.REPLY if at is None else Part.OUTPUT
    return Fault(code=code, says=says, part=part, at=at, until=until, expected=expected[:_LONG], found=found[:_LONG])


def _broken_arguments(call: _Call, ids: Sequence[int], vocabulary: Vocabulary) -> Fault:
    """Where arguments stop being JSON, to the id."""
    named, place = call.named, (call.arguments_at, call.end)
    try:
        value = json.loads(call.arguments)
    except RecursionError:
        return _told("tool_arguments", f"{named}: arguments are nested too deeply", place, "a JSON object", "nesting")
    except ValueError as error:
        offset, wanted = (error.pos, error.msg) if isinstance(error, json.JSONDecodeError) else (0, str(error))
        says = f"{named}: arguments are no JSON from character {offset:,} on"
        if call.arguments_at is not None and call.end is not None:
            passed = len(call.arguments[:offset].encode())
            place = (min(_id_at(ids, call.arguments_at, passed, vocabulary), call.end), call.end)
        found = call.arguments[max(offset - 20, 0) : offset + 20] or "nothing"
        return _told("tool_arguments", says, place, wanted[:1].lower() + wanted[1:], found)
    kind = type(value).__name__
    return _told("tool_arguments", f"{named}: arguments are JSON, but no object", place, "an object", kind)


def _declared(row: Mapping[str, Any]) -> dict[str, Any]:
    """Declared parameters by function name; nothing where the declaration cannot be read."""
    try:
        return {
            str(tool["function"]["name"]): tool["function"].get("parameters") or {}
            for tool in json.loads(row["tools"] or "[]")
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _schema_fault(row: Mapping[str, Any], call: _Call) -> tuple[str, str, str]:
    """(JSON path, what the schema asks for, what stands there) of the first fault."""
    try:
        schema, value = _declared(row).get(call.name, {}), json.loads(call.arguments)
        validator = jsonschema_rs.validator_for(schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse)
        error = next(validator.iter_errors(value), None)
    except (ValueError, RecursionError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        error = None
    if error is None:
        return "$", "what the declared schema allows", call.arguments
    path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    found: Any = value
    for step in error.instance_path:
        found = found[step]
    return path, error.message, json.dumps(found, ensure_ascii=False)


def _refuse(uri: str) -> Any:
    raise ValueError(f"expected a schema without outside references, found {uri[:80]!r}")


def _id_at(ids: Sequence[int], start: int, offset: int, vocabulary: Vocabulary) -> int:
    """Index of the id that holds byte `offset` of the text that begins at index `start`."""
    passed = 0
    for at in range(start, len(ids)):
        passed += len(bytes_of(ids[at], vocabulary))
        if passed > offset:
            return at
    return len(ids)
