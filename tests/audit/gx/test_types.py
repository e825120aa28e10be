"""Columns of types that pandas has not: the same answer as on pandas, or a refusal in words."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from .engines import Engines, Outcome, suite_of

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
DAY = dt.date(2024, 1, 1)
SCHEMA: dict[str, Any] = {
    "categorical": pl.Categorical,
    "enum": pl.Enum(["b", "a"]),
    "binary": pl.Binary,
    "decimal": pl.Decimal(10, 2),
    "date": pl.Date,
    "zoned": pl.Datetime("us", "Europe/Berlin"),
    "duration": pl.Duration,
}
FRAME = pl.DataFrame(
    {
        "categorical": ["a", "b", None, "a"],
        "enum": ["a", "b", None, "a"],
        "binary": [b"a", b"b", None, b"a"],
        "decimal": [Decimal("1.50"), Decimal("2.25"), None, Decimal("1.50")],
        "date": [DAY, DAY + dt.timedelta(2), None, DAY],
        "zoned": [NOON, NOON + dt.timedelta(1), None, NOON],
        "duration": [dt.timedelta(1), dt.timedelta(2), None, dt.timedelta(1)],
    },
    schema=SCHEMA,
)
FIRST = {
    "categorical": "a",
    "enum": "a",
    "binary": "a",
    "decimal": 1.5,
    "date": "2024-01-01",
    "zoned": "2024-01-01T12:00:00+00:00",
    "duration": "1 day, 0:00:00",
}
WITH_BOUNDS = ("decimal", "date", "zoned")
"""Great Expectations takes no text and no duration as a bound: it refuses the others itself."""

READ_AS_MOMENTS = {
    "column_values_to_be_in_set/date": (False, 1),
    "column_values_to_not_be_in_set/date": (False, 2),
    "column_values_to_be_in_set/zoned": (False, 1),
    "column_values_to_not_be_in_set/zoned": (False, 2),
}
"""Text that stands for a moment is one here, and to pandas a text that no date equals."""


def items_of(name: str) -> list[tuple[str, dict[str, Any]]]:
    first = FIRST[name]
    kwargs: dict[str, dict[str, Any]] = {
        "column_values_to_not_be_null": {},
        "column_values_to_be_in_set": {"value_set": [first]},
        "column_values_to_not_be_in_set": {"value_set": [first]},
        "column_values_to_be_unique": {},
        "column_values_to_be_increasing": {},
        "column_distinct_values_to_be_in_set": {"value_set": [first]},
        "column_distinct_values_to_contain_set": {"value_set": [first]},
        "column_unique_value_count_to_be_between": {"min_value": 2, "max_value": 2},
        "column_most_common_value_to_be_in_set": {"value_set": [first]},
        "column_value_lengths_to_equal": {"value": 1},
        "column_values_to_match_regex": {"regex": "a"},
        "column_mean_to_be_between": {"min_value": 0},
        "column_stdev_to_be_between": {"min_value": 0},
    }
    if name in WITH_BOUNDS:
        kwargs["column_values_to_be_between"] = {"min_value": first, "max_value": first}
        kwargs["column_max_to_be_between"] = {"max_value": first}
        kwargs["column_min_to_be_between"] = {"min_value": first}
    return [(kind, {"column": name, **more}) for kind, more in kwargs.items()]


@pytest.fixture(scope="module")
def engines() -> Engines:
    return Engines()


def decisive(outcome: Outcome) -> tuple[bool, Any]:
    return outcome[0], outcome[1].get("unexpected_count")


@pytest.mark.parametrize("name", list(SCHEMA))
def test_the_same_as_pandas_or_refused(engines: Engines, name: str) -> None:
    items = items_of(name)
    ours, theirs = engines.polars(FRAME, suite_of(*items)), engines.pandas(FRAME, suite_of(*items))
    wrong = {}
    for kind, _ in items:
        mine, other = ours[f"{kind}/0"], theirs[f"{kind}/0"]
        if mine[2] is not None:
            assert (mine[0], bool(mine[2])) == (False, True)
        elif f"{kind}/{name}" in READ_AS_MOMENTS:
            assert decisive(mine) == READ_AS_MOMENTS[f"{kind}/{name}"]
        elif other[2] is None and decisive(mine) != decisive(other):
            wrong[kind] = (mine, other)
    assert not wrong


def test_decimals_have_the_moments_that_pandas_stops_at(engines: Engines) -> None:
    ours = engines.polars(FRAME, suite_of(*items_of("decimal")))
    assert ours["column_mean_to_be_between/0"][:2] == (True, {"observed_value": 1.75})
    assert ours["column_stdev_to_be_between/0"][1] == {"observed_value": 0.433012702}


@pytest.mark.parametrize("name", ["binary", "decimal", "zoned", "duration"])
@pytest.mark.parametrize("kind", ["column_value_lengths_to_equal", "column_values_to_match_regex"])
def test_what_is_no_text_has_no_length_and_no_pattern(engines: Engines, name: str, kind: str) -> None:
    items = [item for item in items_of(name) if item[0] == kind]
    success, _, error = engines.polars(FRAME, suite_of(*items))[f"{kind}/0"]
    assert (success, "expected a column of text" in (error or "")) == (False, True)
