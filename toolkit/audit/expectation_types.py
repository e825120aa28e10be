"""Which expectations the polars engine answers, and which of them a suite over facts may use. Pure data."""

from __future__ import annotations

from collections.abc import Mapping

TEXT_TYPES = frozenset(
    {
        "expect_column_value_lengths_to_be_between",
        "expect_column_value_lengths_to_equal",
        "expect_column_values_to_be_dateutil_parseable",
        "expect_column_values_to_be_json_parseable",
        "expect_column_values_to_match_json_schema",
        "expect_column_values_to_match_like_pattern",
        "expect_column_values_to_match_like_pattern_list",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_match_regex_list",
        "expect_column_values_to_match_strftime_format",
        "expect_column_values_to_not_match_like_pattern",
        "expect_column_values_to_not_match_like_pattern_list",
        "expect_column_values_to_not_match_regex",
        "expect_column_values_to_not_match_regex_list",
    }
)
LIST_TYPES = frozenset(
    {
        "expect_column_list_element_counts_to_be_between",
        "expect_column_list_first_elements_to_be_in_set",
        "expect_column_list_last_elements_to_be_in_set",
        "expect_column_list_lengths_to_be_between",
        "expect_column_lists_to_contain",
    }
)
_ORDER_TYPES = frozenset({"expect_column_values_to_be_decreasing", "expect_column_values_to_be_increasing"})
_MEASURED_TYPES = frozenset({"expect_column_value_z_scores_to_be_less_than", "expect_column_values_to_not_be_outliers"})
PAIR_TYPES = frozenset(
    {
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_column_pair_values_to_be_in_set",
    }
)
RECORD_TYPES = frozenset({"expect_multicolumn_sum_to_equal", "expect_select_column_values_to_be_unique_within_record"})
COUNTING_TYPES = frozenset({"expect_column_mean_to_be_between", "expect_column_sum_to_be_between"})
NUMBER_TYPES = (
    COUNTING_TYPES
    | _ORDER_TYPES
    | _MEASURED_TYPES
    | {
        "expect_column_max_to_be_between",
        "expect_column_median_to_be_between",
        "expect_column_min_to_be_between",
        "expect_column_quantile_values_to_be_between",
        "expect_column_stdev_to_be_between",
        "expect_column_values_to_be_between",
        "expect_multicolumn_sum_to_equal",
        "expect_column_pair_values_a_to_be_greater_than_b",
    }
)

ROW_TYPES = (
    TEXT_TYPES
    | LIST_TYPES
    | _ORDER_TYPES
    | _MEASURED_TYPES
    | PAIR_TYPES
    | RECORD_TYPES
    | {
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_be_null",
        "expect_column_values_to_be_unique",
        "expect_column_values_to_not_be_in_set",
        "expect_column_values_to_not_be_null",
        "expect_compound_columns_to_be_unique",
        "expect_multicolumn_values_to_be_equal",
    }
)
"""Expectations that each row passes or fails: their failing rows are quarantined."""

DATASET_TYPES = frozenset(
    {
        "expect_column_distinct_values_to_be_in_set",
        "expect_column_distinct_values_to_contain_set",
        "expect_column_distinct_values_to_equal_set",
        "expect_column_kl_divergence_to_be_less_than",
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

_FIXED = "the columns of facts and their types are fixed: it would say nothing"
NOT_OF_FACTS: Mapping[str, str] = {
    "expect_column_dtype_to_be_in_set": _FIXED,
    "expect_column_to_exist": _FIXED,
    "expect_table_column_count_to_be_between": _FIXED,
    "expect_table_column_count_to_equal": _FIXED,
    "expect_table_columns_to_match_ordered_list": _FIXED,
    "expect_table_columns_to_match_set": _FIXED,
    "expect_table_row_count_to_equal_other_table": "an audit sees one table",
}
"""What the engine answers, but a suite over facts may not ask, and why."""

_TYPE_NAMES = "it compares names of another engine's types: use expect_column_dtype_to_be_in_set"
_SQL = "it is a query in SQL, which is sent to a database"
UNSUPPORTED: Mapping[str, str] = {
    "expect_column_type_to_be": _TYPE_NAMES,
    "expect_column_values_to_be_in_type_list": _TYPE_NAMES,
    "expect_column_values_to_be_of_type": _TYPE_NAMES,
    "expect_query_results_to_match_comparison": _SQL,
    "unexpected_rows_expectation": _SQL,
}
"""What the polars engine cannot answer, and why. Run all the same, it gives an error and fails."""

NOTES: Mapping[str, str] = {
    "expect_column_values_to_be_unique": "a second pass over the rows that repeat, if any do",
    "expect_compound_columns_to_be_unique": "a second pass over the rows that repeat, if any do",
    "expect_column_value_z_scores_to_be_less_than": "a second pass: mean and deviation come first",
    "expect_column_values_to_not_be_outliers": "a second pass: the measures of spread come first",
    "expect_column_kl_divergence_to_be_less_than": "without a partition_object it is compared with itself and passes",
    "expect_column_pair_values_to_be_in_set": "row conditions hold; Great Expectations alone drops them",
    "expect_column_values_to_match_json_schema": "text that is no JSON fails, where pandas stops with an error",
    "expect_table_row_count_to_equal_other_table": "the other table is another asset of the data source",
    **dict.fromkeys(
        (name for name in TEXT_TYPES if "like_pattern" in name), "SQL alone has it elsewhere; here case counts"
    ),
    **dict.fromkeys(LIST_TYPES | {"expect_column_dtype_to_be_in_set"}, "of this package, for polars alone"),
}
"""What one should know of an expectation on polars."""
