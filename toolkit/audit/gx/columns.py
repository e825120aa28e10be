"""Which expectations a suite may use, and what they may ask of which column. Pure; imports no GX.

The types below are those whose results on the facts table were checked against a plain count, nulls
included. Others exist in Great Expectations, but need SQL, look at how the table is stored, or depend on
the order of rows: `toolkit.audit.gx.build` refuses them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import pyarrow as pa

from toolkit.columns import JUDGED_SCHEMA, PROVIDERS_SCHEMA
from toolkit.records import Json

Table = Literal["rows", "providers"]
SCHEMAS: Mapping[Table, pa.Schema] = {"rows": JUDGED_SCHEMA, "providers": PROVIDERS_SCHEMA}
"""The tables that a suite may judge: the judged facts, and the providers table."""

Kind = Literal["whole number", "number", "flag", "text", "list"]

_TEXT_TYPES = frozenset(
    {
        "expect_column_value_lengths_to_be_between",
        "expect_column_value_lengths_to_equal",
        "expect_column_values_to_be_json_parseable",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_match_regex_list",
        "expect_column_values_to_not_match_regex",
        "expect_column_values_to_not_match_regex_list",
    }
)
_COLUMN_TYPES = _TEXT_TYPES | {
    "expect_column_values_to_be_between",
    "expect_column_values_to_be_in_set",
    "expect_column_values_to_be_null",
    "expect_column_values_to_be_unique",
    "expect_column_values_to_not_be_in_set",
    "expect_column_values_to_not_be_null",
}
_PAIR_TYPES = frozenset(
    {
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_column_pair_values_to_be_in_set",
    }
)
_RECORD_TYPES = frozenset({"expect_multicolumn_sum_to_equal", "expect_select_column_values_to_be_unique_within_record"})
_COUNTING_TYPES = frozenset({"expect_column_mean_to_be_between", "expect_column_sum_to_be_between"})
_NUMBER_TYPES = _COUNTING_TYPES | {
    "expect_column_max_to_be_between",
    "expect_column_median_to_be_between",
    "expect_column_min_to_be_between",
    "expect_column_quantile_values_to_be_between",
    "expect_column_stdev_to_be_between",
    "expect_column_values_to_be_between",
    "expect_multicolumn_sum_to_equal",
    "expect_column_pair_values_a_to_be_greater_than_b",
}

ROW_TYPES = _COLUMN_TYPES | _PAIR_TYPES | _RECORD_TYPES | {"expect_compound_columns_to_be_unique"}
"""Expectations that each row passes or fails: their failing rows are quarantined."""

DATASET_TYPES = frozenset(
    {
        "expect_column_distinct_values_to_be_in_set",
        "expect_column_distinct_values_to_contain_set",
        "expect_column_distinct_values_to_equal_set",
        "expect_column_max_to_be_between",
        "expect_column_mean_to_be_between",
        "expect_column_median_to_be_between",
        "expect_column_min_to_be_between",
        "expect_column_most_common_value_to_be_in_set",
        "expect_column_proportion_of_non_null_values_to_be_between",
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_quantile_values_to_be_between",
        "expect_column_stdev_to_be_between",
        "expect_column_sum_to_be_between",
        "expect_column_unique_value_count_to_be_between",
        "expect_table_row_count_to_be_between",
        "expect_table_row_count_to_equal",
    }
)
"""Expectations of the table as a whole."""

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


def column_fault(name: Json, schema: pa.Schema = JUDGED_SCHEMA) -> str | None:
    """What is wrong with a column's name, or None."""
    if not isinstance(name, str):
        return f"expected the name of a column, found {show(name)}"
    if name not in schema.names:
        return f"unknown column {show(name)}{did_you_mean(name, schema.names)}"
    if kind_of(name, schema) == "list":
        return f"column {name!r} holds lists, which expectations cannot compare"
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
    faults = [fault for name in named_columns(kwargs) if (fault := column_fault(name, schema))]
    yield from (f"kwargs: {fault}" for fault in faults)
    for key, value in kwargs.items():
        if value is None and key not in ("row_condition", "condition_parser"):
            yield f"kwargs.{key}: expected a value, found null (GX would take it as 'not asked')"
    if type_name.endswith("_to_be_between") and "quantile" not in type_name:
        yield from _bound_faults(kwargs)
    if "value_set" in kwargs:
        yield from _value_set_faults(kwargs, schema, check_values=not faults)
    yield from _regex_faults(kwargs)
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
        if type_name in _TEXT_TYPES and kind != "text":
            yield f"kwargs: expected a column of text, found {column!r}, a {kind}"
        numeric = kind in ("whole number", "number") or (kind == "flag" and type_name in _COUNTING_TYPES)
        if type_name in _NUMBER_TYPES and not numeric:
            yield f"kwargs: expected a column of numbers, found {column!r}, a {kind}"


def _missing_value_faults(type_name: str, kwargs: Mapping[str, Json], schema: pa.Schema) -> Iterator[str]:
    """Comparisons across columns have no answer where a value is null: such rows must be left out by name."""
    wanted = {_PAIR_TYPES: "either_value_is_missing", _RECORD_TYPES: "any_value_is_missing"}
    for types, rule in wanted.items():
        nullable = [column for column in named_columns(kwargs) if is_nullable(column, schema)]
        if type_name in types and nullable and kwargs.get("ignore_row_if") != rule:
            found = show(kwargs.get("ignore_row_if"))
            yield f"kwargs.ignore_row_if: expected {rule!r}, since {nullable[0]!r} may be null, found {found}"
