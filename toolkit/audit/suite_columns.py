"""What the expectations of a suite may ask of which column. Pure; imports no Great Expectations."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import pyarrow as pa

from toolkit.audit.expectation_types import (
    COUNTING_TYPES,
    LIST_TYPES,
    NUMBER_TYPES,
    PAIR_TYPES,
    RECORD_TYPES,
    TEXT_TYPES,
)
from toolkit.audit.expectation_types import (
    DATASET_TYPES as DATASET_TYPES,
)
from toolkit.audit.expectation_types import (
    ROW_TYPES as ROW_TYPES,
)
from toolkit.columns import JUDGED_SCHEMA, PROVIDERS_SCHEMA
from toolkit.records import Json

Table = Literal["rows", "providers"]
SCHEMAS: Mapping[Table, pa.Schema] = {"rows": JUDGED_SCHEMA, "providers": PROVIDERS_SCHEMA}
"""The tables that a suite may judge: the judged facts, and the providers table."""

Kind = Literal["whole number", "number", "flag", "text", "list"]

_ALLOWED_VALUES: Mapping[Kind, tuple[type, ...]] = {
    "whole number": (int, float),
    "number": (int, float),
    "flag": (bool,),
    "text": (str,),
    "list": (),
}
_VALUE_WORDS: Mapping[Kind, str] = {
    "whole number": "a number",
    "number": "a number",
    "flag": "true or false",
    "text": "a string",
    "list": "no value: the column holds lists",
}
_SHOWN_CHARACTERS = 80


def kind_of(column: str, schema: pa.Schema = JUDGED_SCHEMA) -> Kind:
    """What a column of the table holds; the column must exist."""
    arrow_type = schema.field(column).type
    if pa.types.is_boolean(arrow_type):
        return "flag"
    if pa.types.is_integer(arrow_type):
        return "whole number"
    if pa.types.is_floating(arrow_type):
        return "number"
    return "text" if pa.types.is_string(arrow_type) else "list"


def is_nullable(column: str, schema: pa.Schema = JUDGED_SCHEMA) -> bool:
    """Whether a column of the table may hold nulls; the column must exist."""
    return bool(schema.field(column).nullable)


def fits(value: Json, column: str, schema: pa.Schema = JUDGED_SCHEMA) -> bool:
    """Whether a value can be equal to one of the column (True and 1 are told apart)."""
    kind = kind_of(column, schema)
    return isinstance(value, _ALLOWED_VALUES[kind]) and (kind == "flag") == isinstance(value, bool)


def wanted_value(column: str, schema: pa.Schema = JUDGED_SCHEMA) -> str:
    """What a value that is compared with the column must be, in words."""
    kind = kind_of(column, schema)
    return f"{_VALUE_WORDS[kind]} ({column} is a {kind})"


def show(value: Json) -> str:
    """A value for a message: short, on one line, control characters escaped."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def column_fault(name: Json, schema: pa.Schema = JUDGED_SCHEMA, *, lists: bool = False) -> str | None:
    """What is wrong with a column's name, or None; `lists`: whether one of lists is wanted."""
    if not isinstance(name, str):
        return f"expected the name of a column, found {show(name)}"
    if name not in schema.names:
        return f"unknown column {show(name)}{did_you_mean(name, schema.names)}"
    kind = kind_of(name, schema)
    if lists and kind != "list":
        return f"expected a column of lists, found {name!r}, a {kind}"
    if not lists and kind == "list":
        return f"column {name!r} holds lists, which this expectation cannot compare"
    return None


def named_columns(kwargs: Mapping[str, Json]) -> list[str]:
    """The columns that an expectation looks at, its row condition left aside."""
    single = [kwargs[key] for key in ("column", "column_A", "column_B") if key in kwargs]
    listed = kwargs.get("column_list", [])
    return [*single, *(listed if isinstance(listed, list) else [])]


def kwargs_faults(type_name: str, kwargs: Mapping[str, Json], schema: pa.Schema = JUDGED_SCHEMA) -> Iterator[str]:
    """What in an expectation's kwargs would not be checked as written, one sentence each.

    Whether the type exists and has these kwargs is asked of Great Expectations itself, by `build`.
    """
    if "column_list" in kwargs and not (isinstance(kwargs["column_list"], list) and kwargs["column_list"]):
        yield f"kwargs.column_list: expected a list of columns, found {show(kwargs['column_list'])}"
    lists = type_name in LIST_TYPES
    faults = [fault for name in named_columns(kwargs) if (fault := column_fault(name, schema, lists=lists))]
    yield from (f"kwargs: {fault}" for fault in faults)
    for key, value in kwargs.items():
        if value is None and key not in ("row_condition", "condition_parser"):
            yield f"kwargs.{key}: expected a value, found null (GX would take it as 'not asked')"
    if type_name.endswith("_to_be_between") and "quantile" not in type_name:
        yield from _bound_faults(kwargs)
    if lists:
        yield from _element_faults(kwargs, schema, check_values=not faults)
    elif "value_set" in kwargs:
        yield from _value_set_faults(kwargs, schema, check_values=not faults)
    yield from _regex_faults(kwargs)
    if "kl_divergence" in type_name and "partition_object" not in kwargs:
        yield "kwargs.partition_object: expected what to compare with, found none: a column never differs from itself"
    if not faults:
        yield from _kind_faults(type_name, kwargs, schema)
        yield from _missing_value_faults(type_name, kwargs, schema)


def _bound_faults(kwargs: Mapping[str, Json]) -> Iterator[str]:
    if kwargs.get("min_value") is None and kwargs.get("max_value") is None:
        yield "kwargs: expected min_value or max_value, found neither: nothing would be checked"
    for key in ("min_value", "max_value"):
        value = kwargs.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            yield f"kwargs.{key}: expected a number, found {show(value)}"


def _value_set_faults(kwargs: Mapping[str, Json], schema: pa.Schema, *, check_values: bool) -> Iterator[str]:
    values, column = kwargs["value_set"], kwargs.get("column")
    if not isinstance(values, list) or not values:
        yield f"kwargs.value_set: expected a list of values, found {show(values)}"
    elif check_values and isinstance(column, str):
        for value in values:
            if not fits(value, column, schema):
                yield f"kwargs.value_set: expected {wanted_value(column, schema)}, found {show(value)}"


def _element_faults(kwargs: Mapping[str, Json], schema: pa.Schema, *, check_values: bool) -> Iterator[str]:
    """Elements that no list of the column can hold."""
    values = kwargs.get("value_set", [kwargs["element"]] if "element" in kwargs else None)
    if "value_set" in kwargs and (not isinstance(values, list) or not values):
        yield f"kwargs.value_set: expected a list of values, found {show(values)}"
    elif check_values and values is not None:
        inner = pa.schema([schema.field(kwargs["column"]).type.value_field.with_name("element")])
        yield from (
            f"kwargs: expected {wanted_value('element', inner)}, found {show(value)}"
            for value in values
            if not fits(value, "element", inner)
        )


def for_each_faults(names: Json, schema: pa.Schema = JUDGED_SCHEMA) -> Iterator[str]:
    """What is wrong with a `meta.for_each`, one sentence each."""
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        yield f"meta.for_each: expected a list of columns, found {show(names)}"
        return
    if len(set(names)) != len(names):
        yield f"meta.for_each: expected each column once, found {show(names)}"
    for name in names:
        if fault := column_fault(name, schema):
            yield f"meta.for_each: {fault}"
        elif kind_of(name, schema) == "number":
            yield f"meta.for_each: expected a column of text, flags or whole numbers, found {name!r}, a number"


def _regex_faults(kwargs: Mapping[str, Json]) -> Iterator[str]:
    listed = kwargs.get("regex_list", [])
    patterns = [kwargs["regex"]] if "regex" in kwargs else []
    patterns += listed if isinstance(listed, list) else [listed]
    for pattern in patterns:
        if not isinstance(pattern, str):
            yield f"kwargs: expected a regular expression, found {show(pattern)}"
            continue
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"kwargs: expected a regular expression, found {show(pattern)} ({error})"


def _kind_faults(type_name: str, kwargs: Mapping[str, Json], schema: pa.Schema) -> Iterator[str]:
    for column in named_columns(kwargs):
        kind = kind_of(column, schema)
        if type_name in TEXT_TYPES and kind != "text":
            yield f"kwargs: expected a column of text, found {column!r}, a {kind}"
        numeric = kind in ("whole number", "number") or (kind == "flag" and type_name in COUNTING_TYPES)
        if type_name in NUMBER_TYPES and not numeric:
            yield f"kwargs: expected a column of numbers, found {column!r}, a {kind}"


def _missing_value_faults(type_name: str, kwargs: Mapping[str, Json], schema: pa.Schema) -> Iterator[str]:
    """Comparisons across columns have no answer where a value is null: such rows must be left out by name."""
    wanted = {PAIR_TYPES: "either_value_is_missing", RECORD_TYPES: "any_value_is_missing"}
    for types, rule in wanted.items():
        nullable = [column for column in named_columns(kwargs) if is_nullable(column, schema)]
        if type_name in types and nullable and kwargs.get("ignore_row_if") != rule:
            found = show(kwargs.get("ignore_row_if"))
            yield f"kwargs.ignore_row_if: expected {rule!r}, since {nullable[0]!r} may be null, found {found}"
