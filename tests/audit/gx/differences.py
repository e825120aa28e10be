"""Where Great Expectations' pandas engine answers otherwise, why, and how far: everything else must be the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which pandas differs.

    Attributes:
        why: For the documentation.
        error: What pandas raises where polars answers; None: it answers too.
        fields: Fields of the result that may differ.
    """

    why: str
    error: str | None = None
    fields: tuple[str, ...] = ()


DIFFERENCES: Mapping[str, Difference] = {
    "column_value_z_scores_to_be_less_than": Difference(
        "Of fewer than two values pandas has no deviation and stops with an error; on polars no value is far off.",
        error="boolean value of NA is ambiguous",
    ),
    "column_quantile_values_to_be_between": Difference(
        "Of no value pandas' result has no quantiles, or it stops with an error; on polars they are null. All fail.",
        error="NAType",
        fields=("observed_value", "details"),
    ),
    "column_max_to_be_between": Difference(
        "Of no moment pandas stops with an error; on polars there is no largest one. Both fail.",
        error="Cannot compare NaT",
    ),
    "column_pair_values_to_be_in_set": Difference(
        "With a row condition pandas stops with an error in Great Expectations 1.18, and judges every row in 1.24; "
        "importing this package mends the latter.",
        error="Unalignable boolean Series",
    ),
    "column_values_to_not_be_null": Difference(
        "Null and NaN are both missing; pandas counts them as one failing value, polars as two.",
        fields=("partial_unexpected_counts",),
    ),
    "column_distinct_values_to_contain_set": Difference(
        "pandas lists missing values in the order of a set; polars in that of the expectation.",
        fields=("partial_missing_list",),
    ),
    "column_distinct_values_to_equal_set": Difference(
        "pandas lists missing values in the order of a set; polars in that of the expectation.",
        fields=("partial_missing_list",),
    ),
}
