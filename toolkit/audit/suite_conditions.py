"""Row conditions in the form that Great Expectations itself serialises. Pure; imports no GX.

A condition is a JSON object: `{"type": "comparison", "column": {"name": …}, "operator": "==", "parameter": …}`,
`{"type": "nullity", "column": {"name": …}, "is_null": false}`, and `and`/`or` with a list of `conditions`; an `or`
may hold `and`s, not the other way round. A null is selected by `nullity` alone. Great Expectations'
engines disagree about nulls under `!=` and `NOT_IN`, so these two are for columns without nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from toolkit.audit.suite_columns import column_fault, fits, is_nullable, kind_of, show, wanted_value
from toolkit.columns import JUDGED_SCHEMA
from toolkit.records import Json

_KEYS: Mapping[str, frozenset[str]] = {
    "comparison": frozenset({"type", "column", "operator", "parameter"}),
    "nullity": frozenset({"type", "column", "is_null"}),
    "and": frozenset({"type", "conditions"}),
    "or": frozenset({"type", "conditions"}),
}
_ORDER = ("<", "<=", ">", ">=")
_SETS = ("IN", "NOT_IN")
_OPERATORS = ("==", "!=", *_ORDER, *_SETS)
_EXAMPLE = '{"type": "comparison", "column": {"name": "truncated"}, "operator": "==", "parameter": false}'


def condition_faults(condition: Json, place: str, schema: pa.Schema = JUDGED_SCHEMA) -> Iterator[str]:
    """What in a row condition would not select as written, one sentence each, every one with its place."""
    if isinstance(condition, str):
        yield f"{place}: expected a condition like {_EXAMPLE}, found the string {show(condition)}"
        return
    if _type_of(condition) is None:
        found = show(condition.get("type")) if isinstance(condition, dict) else show(condition)
        yield f"{place}: expected a condition of type {', '.join(_KEYS)}, found {found}"
        return
    keys = _KEYS[condition["type"]]
    if condition.keys() != keys:
        yield f"{place}: expected the keys {', '.join(sorted(keys))}, found {', '.join(sorted(condition)) or 'none'}"
        return
    if condition["type"] in ("and", "or"):
        yield from _group_faults(condition, place, schema)
        return
    column = condition["column"]
    if not isinstance(column, dict) or column.keys() != {"name"}:
        yield f'{place}.column: expected {{"name": …}}, found {show(column)}'
    elif fault := column_fault(column["name"], schema):
        yield f"{place}.column: {fault}"
    elif condition["type"] == "comparison":
        yield from _comparison_faults(column["name"], condition["operator"], condition["parameter"], place, schema)
    elif not isinstance(condition["is_null"], bool):
        yield f"{place}.is_null: expected true or false, found {show(condition['is_null'])}"


def _type_of(condition: Json) -> str | None:
    """The type of a condition, or None where it has no known one."""
    name = condition.get("type") if isinstance(condition, dict) else None
    return name if isinstance(name, str) and name in _KEYS else None


def _group_faults(group: Mapping[str, Any], place: str, schema: pa.Schema) -> Iterator[str]:
    members = group["conditions"]
    if not isinstance(members, list) or not members:
        yield f"{place}.conditions: expected a list of conditions, found {show(members)}"
        return
    allowed = ("comparison", "nullity", "and") if group["type"] == "or" else ("comparison", "nullity")
    for number, member in enumerate(members):
        inner = f"{place}.conditions[{number}]"
        if _type_of(member) not in (None, *allowed):
            yield f"{inner}: expected {' or '.join(allowed)} inside {group['type']!r}, found {member['type']!r}"
        else:
            yield from condition_faults(member, inner, schema)


def _comparison_faults(column: str, operator: Json, parameter: Json, place: str, schema: pa.Schema) -> Iterator[str]:
    if operator not in _OPERATORS:
        yield f"{place}.operator: expected {', '.join(_OPERATORS)}, found {show(operator)}"
        return
    kind = kind_of(column, schema)
    if operator in _ORDER and kind not in ("whole number", "number"):
        yield f"{place}.operator: expected == or IN, since {column} is a {kind}, found {operator!r}"
    if operator in ("!=", "NOT_IN") and is_nullable(column, schema):
        yield (
            f"{place}.operator: expected ==, IN or a condition of type nullity, since {column!r} may be null, "
            f"found {operator!r}"
        )
    if operator in _SETS and kind == "flag":
        yield f"{place}.operator: expected ==, since {column} is a flag, found {operator!r}"
    elif operator in _SETS and (not isinstance(parameter, list) or not parameter):
        yield f"{place}.parameter: expected a list of values, found {show(parameter)}"
    else:
        values = parameter if operator in _SETS else [parameter]
        for value in values:
            if not fits(value, column, schema):
                yield f"{place}.parameter: expected {wanted_value(column, schema)}, found {show(value)}"


def condition_columns(condition: Json) -> list[str]:
    """The columns that a checked condition reads, in order, with repetitions; [] for None."""
    if condition is None:
        return []
    if condition["type"] in ("and", "or"):
        return [column for member in condition["conditions"] for column in condition_columns(member)]
    return [condition["column"]["name"]]


def condition_words(condition: Json) -> str:
    """A checked condition as a reader would say it: `mode == thinking and truncated == false`."""
    if condition["type"] in ("and", "or"):
        parts = [condition_words(member) for member in condition["conditions"]]
        grouped = [f"({part})" if " and " in part else part for part in parts] if condition["type"] == "or" else parts
        return f" {condition['type']} ".join(grouped)
    name = condition["column"]["name"]
    if condition["type"] == "nullity":
        return f"{name} is {'null' if condition['is_null'] else 'not null'}"
    operator = {"IN": "in", "NOT_IN": "not in"}.get(condition["operator"], condition["operator"])
    return f"{name} {operator} {_value_words(condition['parameter'])}"


def _value_words(value: Json) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value_words, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
