"""One frame of all kinds of columns, and every expectation of Great Expectations that can be asked of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import strategies as st

SCHEMA: Mapping[str, Any] = {
    "i": pl.Int64,
    "j": pl.Int64,
    "u": pl.UInt8,
    "f": pl.Float64,
    "s": pl.String,
    "t": pl.String,
    "b": pl.Boolean,
    "d": pl.Datetime("us"),
    "k": pl.Date,
    "m": pl.Decimal(10, 2),
}
WORDS = ("a", "b", "ab", "a\n", "", "ü x", "2024-01-05", "5", "{}", '{"a": 1}')
ORDINAL = dt.datetime(2024, 1, 1)

_rows = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-2, 4),
        "j": st.integers(-2, 4),
        "u": st.none() | st.integers(0, 3),
        "f": st.none() | st.sampled_from([0.0, -0.5, 1.0, 2.5, float("nan"), 4.0]),
        "s": st.none() | st.sampled_from(WORDS),
        "t": st.sampled_from(WORDS),
        "b": st.none() | st.booleans(),
        "d": st.none() | st.integers(0, 3).map(lambda days: ORDINAL + dt.timedelta(days=days, hours=days)),
        "k": st.none() | st.integers(0, 3).map(lambda days: (ORDINAL + dt.timedelta(days=days)).date()),
        "m": st.none() | st.integers(-3, 3).map(lambda cents: Decimal(cents) / 4),
    }
)
frames = (
    st.lists(_rows, min_size=4, max_size=12)
    .map(lambda rows: pl.DataFrame(rows, schema=SCHEMA))
    .filter(lambda frame: min(frame[name].n_unique() for name in ("i", "j", "f", "s", "t")) > 2)
)
"""Frames whose columns tell rows apart; those of no row, and of rows that are all alike, are written out where they
are tried."""


def _columns(names: str, **kwargs: Any) -> list[dict[str, Any]]:
    return [{"column": name, **kwargs} for name in names.split()]


IGNORE_PAIR = {"ignore_row_if": "either_value_is_missing"}
IGNORE_MANY = {"ignore_row_if": "any_value_is_missing"}

CASES: Mapping[str, list[dict[str, Any]]] = {
    "column_values_to_not_be_null": _columns("i u f s b d k m"),
    "column_values_to_be_null": _columns("i f s b d"),
    "column_values_to_be_in_set": [
        *_columns("i u", value_set=[0, 1, 2.0]),
        *_columns("f", value_set=[0, 1.0]),
        *_columns("s t", value_set=["a", "ab", "5", 5]),
        *_columns("b", value_set=[True]),
    ],
    "column_values_to_not_be_in_set": [*_columns("i f", value_set=[1]), *_columns("s", value_set=["a"])],
    "column_values_to_be_between": [
        *_columns("i j f u", min_value=0, max_value=2),
        *_columns("i f", min_value=0, strict_min=True),
        *_columns("i f", max_value=1.5, strict_max=True),
        *_columns("d", min_value="2024-01-02", max_value="2024-01-03T12:00:00"),
    ],
    "column_value_lengths_to_equal": _columns("s t", value=1),
    "column_value_lengths_to_be_between": [
        *_columns("s t", min_value=1, max_value=2),
        *_columns("s", min_value=1, strict_min=True),
    ],
    "column_values_to_match_regex": [
        *_columns("s t", regex="^a"),
        *_columns("t", regex="[0-9]{2}"),
        *_columns("t", regex="(a|b)b?"),
        *_columns("t", regex=r"\d+"),
    ],
    "column_values_to_not_match_regex": _columns("s t", regex="^a"),
    "column_values_to_match_regex_list": [
        *_columns("s t", regex_list=["^a", "5"], match_on="any"),
        *_columns("s t", regex_list=["a", "b"], match_on="all"),
    ],
    "column_values_to_not_match_regex_list": _columns("s t", regex_list=["^a", "5"]),
    "column_values_to_be_dateutil_parseable": _columns("s t"),
    "column_values_to_match_strftime_format": _columns("s t", strftime_format="%Y-%m-%d"),
    "column_values_to_be_json_parseable": _columns("s t"),
    "column_values_to_be_increasing": [*_columns("i j f"), *_columns("j f", strictly=True)],
    "column_values_to_be_decreasing": [*_columns("i j f"), *_columns("j f", strictly=True)],
    "column_values_to_be_unique": _columns("i j f s t b d k"),
    "column_value_z_scores_to_be_less_than": [
        *_columns("j f", threshold=1.0, double_sided=True),
        *_columns("j f", threshold=0.5, double_sided=False),
    ],
    "column_pair_values_to_be_equal": [
        {"column_A": "i", "column_B": "j", **IGNORE_PAIR},
        {"column_A": "s", "column_B": "t", **IGNORE_PAIR},
        {"column_A": "j", "column_B": "j"},
    ],
    "column_pair_values_a_to_be_greater_than_b": [
        {"column_A": "i", "column_B": "j", **IGNORE_PAIR},
        {"column_A": "f", "column_B": "j", "or_equal": True, **IGNORE_PAIR},
    ],
    "column_pair_values_to_be_in_set": [
        {"column_A": "i", "column_B": "j", "value_pairs_set": [[0, 0], [0, 1], [1, 1], [None, 1]]},
        {"column_A": "i", "column_B": "s", "value_pairs_set": [[0, "a"], [1, "b"]], **IGNORE_PAIR},
    ],
    "multicolumn_sum_to_equal": [
        {"column_list": ["i", "j"], "sum_total": 2, **IGNORE_MANY},
        {"column_list": ["j", "u", "i"], "sum_total": 2, **IGNORE_MANY},
    ],
    "select_column_values_to_be_unique_within_record": [
        {"column_list": ["i", "j"], **IGNORE_MANY},
        {"column_list": ["j", "i", "u"], **IGNORE_MANY},
        {"column_list": ["s", "t"], "ignore_row_if": "all_values_are_missing"},
    ],
    "compound_columns_to_be_unique": [
        {"column_list": ["i", "j"]},
        {"column_list": ["s", "b"], "ignore_row_if": "all_values_are_missing"},
        {"column_list": ["s", "b"], **IGNORE_MANY},
    ],
    "column_max_to_be_between": [
        *_columns("i j f u", min_value=1, max_value=3),
        *_columns("d", min_value="2024-01-03"),
    ],
    "column_min_to_be_between": _columns("i j f u", min_value=0, max_value=3, strict_min=True),
    "column_mean_to_be_between": _columns("i j f u b", min_value=0, max_value=1),
    "column_median_to_be_between": _columns("i j f u", min_value=0, max_value=1),
    "column_stdev_to_be_between": _columns("i j f u", min_value=0.5, max_value=2),
    "column_sum_to_be_between": _columns("i j f u b", min_value=0, max_value=5),
    "column_quantile_values_to_be_between": [
        *_columns("j", quantile_ranges={"quantiles": [0.0, 0.3, 0.5, 1.0], "value_ranges": [[0, 1]] * 4}),
        *_columns(
            "f",
            quantile_ranges={"quantiles": [0.1, 0.7], "value_ranges": [[0, None], [None, 2]]},
            allow_relative_error="linear",
        ),
    ],
    "column_unique_value_count_to_be_between": _columns("i f s t b d", min_value=1, max_value=3),
    "column_proportion_of_unique_values_to_be_between": _columns("i f s t", min_value=0.3, max_value=0.8),
    "column_proportion_of_non_null_values_to_be_between": _columns("i f s t", min_value=0.5),
    "column_distinct_values_to_be_in_set": [
        *_columns("i f", value_set=[0, 1, 2]),
        *_columns("s t", value_set=["a", "b"]),
    ],
    "column_distinct_values_to_contain_set": [
        *_columns("i f", value_set=[0, 1]),
        *_columns("s t", value_set=["a", "b"]),
    ],
    "column_distinct_values_to_equal_set": [
        *_columns("i f", value_set=[0, 1]),
        *_columns("s t", value_set=["a", "b"]),
    ],
    "column_most_common_value_to_be_in_set": [
        *_columns("i j f", value_set=[0, 1]),
        *_columns("s t", value_set=["a", "b"], ties_okay=True),
    ],
    "column_kl_divergence_to_be_less_than": [
        {
            "column": "t",
            "threshold": 0.5,
            "partition_object": {"values": list(WORDS), "weights": [1 / len(WORDS)] * len(WORDS)},
        },
    ],
    "table_row_count_to_be_between": [{"min_value": 1, "max_value": 5}],
    "table_row_count_to_equal": [{"value": 3}],
    "table_column_count_to_equal": [{"value": 10}],
    "table_column_count_to_be_between": [{"min_value": 11}],
    "table_columns_to_match_set": [
        {"column_set": list(SCHEMA), "exact_match": True},
        {"column_set": ["i", "zz"], "exact_match": False},
    ],
    "table_columns_to_match_ordered_list": [{"column_list": list(SCHEMA)}, {"column_list": ["j", "i"]}],
    "column_to_exist": [*_columns("i"), {"column": "zz"}, {"column": "i", "column_index": 1}],
}
"""Expectation without its `expect_` → kwargs to ask it with."""
