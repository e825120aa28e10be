"""Facts about tool calls: id form, order, arguments and the declared schemas.

Calls are few beside ids, and each is JSON: this is the only part of the kernel that looks at values one by one,
and it looks at rows with calls alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_rs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.blocks import Bools, Ints
from toolkit.audit.texts import EncodeBatch, frame_of_calls
from toolkit.contract import Contract, ToolForm
from toolkit.records import Json

NO_FAULT = ""
_KEPT_SCHEMAS = 4_096


@dataclass(frozen=True, slots=True)
class _Calls:
    """All calls of all rows, in order. `row[i]` is the row of call i, `rank[i]` its place among the row's calls."""

    row: Ints
    rank: Ints
    last: Bools
    id: list[str]
    name: list[str]
    arguments: list[str]


def tool_facts(rows: pa.Table, truncated: Bools, contract: Contract, encode: EncodeBatch) -> dict[str, pa.Array]:
    """Facts of every row; null where a row has no call.

    Args:
        rows: Columns `tool_calls`, `tools` and `messages` of the shard.
        truncated: Rows whose answer was cut: their last call may be half.
        contract: The contract's tool form; without one nothing is said about ids.
        encode: Encodes ordinary text, for `respaced_ids`.

    Returns:
        `tool_fault` (string): the first fault of the row's calls: `tool_id` (not of the contract's form), `tool_index`
        (does not count up by one), `tool_arguments` (not a JSON object), `tool_name` (not declared), `tool_schema`
        (arguments that the declared parameters do not allow); `arguments_spaced` (bool): white space after the
        separators of arguments, null where no argument has a separator; `respaced_ids` (int32): ids that compact
        arguments would gain if separators were written with a space, null where none is compact.
    """
    column = rows.column("tool_calls")
    calls = _calls_of(column)
    count = len(column)
    faults = np.full(count, NO_FAULT, dtype=object)
    spaced = np.full(count, -1, dtype=np.int8)
    gained = np.zeros(count, dtype=np.int64)
    has_compact = np.zeros(count, dtype=bool)
    if len(calls.row):
        touched = np.unique(calls.row)
        declared = _declared(rows.column("tools"), touched)
        called_before = _called_before(rows.column("messages"), touched)
        respaced: list[tuple[int, str, str]] = []
        for i, row in enumerate(calls.row.tolist()):
            value, valid = _parsed(calls.arguments[i])
            if faults[row] == NO_FAULT and not (calls.last[i] and truncated[row]):
                faults[row] = _fault(calls, i, value, valid, declared[row], called_before[row], contract.tools)
            if valid:
                style, rewritten = _style(calls.arguments[i], value)
                if style is not None:
                    # One compact call makes a row compact: a server writes all of them in one way.
                    spaced[row] = int(style) if spaced[row] != 0 else 0
                if rewritten is not None:
                    respaced.append((row, calls.arguments[i], rewritten))
        if respaced:
            at = np.array([row for row, _, _ in respaced], dtype=np.int64)
            np.add.at(gained, at, _lengths([new for _, _, new in respaced], encode))
            np.subtract.at(gained, at, _lengths([old for _, old, _ in respaced], encode))
            has_compact[at] = True
    codes = pa.array(faults.tolist(), pa.string())
    return {
        "tool_fault": pc.if_else(pc.equal(codes, NO_FAULT), pa.scalar(None, pa.string()), codes),
        "arguments_spaced": pa.array(spaced == 1, mask=spaced < 0),
        "respaced_ids": pa.array(gained.astype(np.int32), mask=~has_compact),
    }


def _calls_of(column: pa.ChunkedArray | pa.Array) -> _Calls:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    frame = frame_of_calls(whole)
    row = frame["row"].to_numpy().astype(np.int64)
    first = np.searchsorted(row, row, side="left")  # rows stand in order
    return _Calls(
        row=row,
        rank=np.arange(len(row)) - first,
        last=np.append(row[1:] != row[:-1], True) if len(row) else np.zeros(0, dtype=bool),
        id=frame["id"].to_list(),
        name=frame["name"].to_list(),
        arguments=frame["arguments"].to_list(),
    )


def _fault(
    calls: _Calls,
    i: int,
    value: Json,
    valid: bool,
    declared: _Declared | None,
    called_before: int,
    form: ToolForm | None,
) -> str:
    """What is wrong with one call; the first that holds."""
    if form is not None:
        index = _index_of(form, calls.id[i], calls.name[i])
        if index is None:
            return "tool_id"
        # Whether counting begins anew in each answer or runs through the conversation differs between servers.
        if index - int(calls.rank[i]) not in (0, called_before):
            return "tool_index"
    if not valid or not isinstance(value, dict):
        return "tool_arguments"
    if declared is None:
        return NO_FAULT
    if calls.name[i] not in declared.schemas:
        return "tool_name"
    validator = _validator(declared.schemas[calls.name[i]])
    return NO_FAULT if validator is None or validator.is_valid(value) else "tool_schema"


def _index_of(form: ToolForm, call_id: str, name: str) -> int | None:
    """The index that an id of the contract's form bears; None for another form or another function's name."""
    match = _id_pattern(form.id_form).fullmatch(call_id)
    if match is None or (name and match.groupdict().get("name", name) != name):
        return None
    digits = match.groupdict().get("index", "0")
    return int(digits) if len(digits) <= 9 else None


@lru_cache(maxsize=64)
def _id_pattern(id_form: str) -> re.Pattern[str]:
    pattern = re.escape(id_form).replace(r"\{name\}", r"(?P<name>[^\s:]+)")
    return re.compile(pattern.replace(r"\{index\}", r"(?P<index>[0-9]+)"))


# --- what was declared and called before ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Declared:
    """Parameters of each declared function, as JSON text."""

    schemas: dict[str, str]


def _declared(column: pa.ChunkedArray, rows: Ints) -> dict[int, _Declared | None]:
    texts = column.take(pa.array(rows)).to_pylist()
    return {row: None if text is None else _read_declared(text) for row, text in zip(rows.tolist(), texts, strict=True)}


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _read_declared(text: str) -> _Declared | None:
    schemas: dict[str, str] = {}
    try:
        tools = orjson.loads(text)
        if not isinstance(tools, list):
            return None
        for tool in tools:
            function = tool["function"]
            schemas[str(function["name"])] = orjson.dumps(function.get("parameters") or {}).decode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return _Declared(schemas)


def _called_before(column: pa.ChunkedArray, rows: Ints) -> dict[int, int]:
    """Calls in each row's history."""
    texts = column.take(pa.array(rows)).to_pylist()
    return {row: 0 if text is None else _count_calls(text) for row, text in zip(rows.tolist(), texts, strict=True)}


def _count_calls(text: str) -> int:
    if '"tool_calls"' not in text:
        return 0
    try:
        messages = orjson.loads(text)
        return sum(len(message.get("tool_calls") or ()) for message in messages)
    except (ValueError, TypeError, AttributeError):
        return 0


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _validator(schema: str) -> Any | None:
    """A validator of one schema; None where the declaration is no schema, which is not the answer's fault."""
    try:
        return jsonschema_rs.validator_for(
            orjson.loads(schema),
            # Linear time whatever the pattern, and nothing is ever fetched.
            pattern_options=jsonschema_rs.RegexOptions(),
            retriever=_refuse,
        )
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return None


def _refuse(uri: str) -> Json:
    raise ValueError(f"expected a schema without outside references, found {uri[:80]!r}")


# --- how arguments are written --------------------------------------------------------------------


def _parsed(text: str) -> tuple[Json, bool]:
    try:
        return orjson.loads(text), True
    except ValueError:
        return None, False


def _style(text: str, value: Json) -> tuple[bool | None, str | None]:
    """(white space after separators?, the text with it where it is compact); None where nothing can be told."""
    if not isinstance(value, dict) or not value:
        return None, None
    try:
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if text == compact:
            return False, json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None, None
    return (True, None) if len(text) > len(compact) else (None, None)


def _lengths(texts: Sequence[str], encode: EncodeBatch) -> Ints:
    _, offsets = encode(texts)
    return np.subtract(offsets[1:], offsets[:-1], dtype=np.int64, casting="unsafe")
