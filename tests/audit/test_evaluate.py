"""The shipped suite and its evaluation by Great Expectations, over small literal facts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from toolkit.audit.expectation_types import DATASET_TYPES, ROW_TYPES
from toolkit.audit.gx import build
from toolkit.audit.gx.evaluate import MAX_EXAMPLES, Evaluation, check_suite, evaluate
from toolkit.audit.suite import Suite, parse_suite, read_suite, shipped_suite
from toolkit.columns import HEALTH_COLUMNS, JUDGED_SCHEMA
from toolkit.errors import SuiteError
from toolkit.records import Severity

IM_END, END_THINK = 163586, 163607

GOOD: Mapping[str, Any] = {
    "row_key": "key",
    "sample_id": "s",
    "turn": 0,
    "sample_index": 0,
    "probe": False,
    "source": "openrouter",
    "origin": "generate",
    "provider": "Chutes",
    "model": "moonshotai/kimi-k2.5",
    "mode": "thinking",
    "contract": "kimi-k2.5",
    "contract_sha256": "c" * 64,
    "finish_reason": "stop",
    "native_finish_reason": "stop",
    "prompt_tokens": 21,
    "completion_tokens": 40,
    "reasoning_tokens": None,
    "cost_usd": None,
    "request_id": "gen-1",
    "created": 1_770_000_000,
    "latency_s": 1.5,
    "streamed": False,
    "ids_source": "rebuilt",
    "prompt_ids_source": "rendered",
    "rebuild_status": "complete",
    "notes": ["assumed_mode"],
    "shard": "d" * 64,
    "row_index": 0,
    "n_ids": 40,
    "n_prompt_ids": 21,
    "last_id": IM_END,
    "n_terminal": 1,
    "n_end_think": 1,
    "end_think_at": 12,
    "n_begin_think": 0,
    "n_tool_calls": 0,
    "n_control_ids": 0,
    "min_id": 11,
    "max_id": END_THINK,
    "truncated": False,
    "text_equal": True,
    "reencode_equal": True,
    "n_replaced": 0,
    "n_tool_markers": 0,
    "reasoning_leading_space": True,
    "reasoning_trailing_space": False,
    "content_leading_space": True,
    "content_trailing_space": False,
    "tool_fault": None,
    "arguments_spaced": None,
    "respaced_ids": None,
    "count_difference": 0,
    "reasoning_difference": None,
    "prompt_difference": 0,
    "structure": None,
    "provider_matches_source": True,
    "evidence": "counted",
    "evidence_reason": None,
    "count_unexplained": 0,
    "reasoning_unexplained": None,
    "prompt_unexplained": 0,
    "prompt_evidence": "counted",
    "text_altered": None,
    "model_named": True,
    "provider_allowed": True,
    "repeated_share": 0.1,
    "loop_ids": 0,
    "loop_period": None,
    "loop_share": 0.0,
    "n_control_chars": 0,
    "n_bidi_chars": 0,
    "lone_surrogates": False,
    "reasoning_script": "latin",
    "script": "latin",
    "second_script_share": 0.0,
    "language_differs": False,
    "refusal": False,
    "boilerplate": False,
    "n_secrets": 0,
    "secret_kinds": None,
    "n_email_addresses": 0,
    "answer_hash": 1,
    "prompt_hash": 2,
    "duplicate_answer": False,
    "duplicate_prompt": False,
    "length_z": 0.5,
}
"""A complete thinking answer of OpenRouter, rebuilt and counted."""

CUT = {"truncated": True, "rebuild_status": "truncated", "finish_reason": "length", "last_id": 42, "n_terminal": 0}
ENGINE = {
    "source": "sglang",
    "provider": None,
    "ids_source": "engine",
    "evidence": "engine",
    "reencode_equal": None,
    "count_unexplained": None,
    "provider_allowed": None,
}
CALLS = {**ENGINE, "n_end_think": 0, "end_think_at": None, "n_tool_calls": 1, "finish_reason": "tool_calls"}
INSTANT = {"mode": "instant", "n_end_think": 0, "end_think_at": None}
GIVEN = {"ids_source": "given", "reencode_equal": None}
PROBE = {"probe": True, "sample_id": "s0", "row_key": f"{0:064x}"}
WITHOUT_IDS = dict.fromkeys(
    (
        *("n_ids", "last_id", "n_terminal", "n_end_think", "end_think_at", "n_begin_think", "n_tool_calls"),
        *("n_control_ids", "min_id", "max_id", "text_equal", "reencode_equal", "count_difference"),
        *("count_unexplained", "ids_source", "structure"),
    )
)

HEALTH_OFF = dict.fromkeys(
    (*(column.name for column in HEALTH_COLUMNS), *("duplicate_answer", "duplicate_prompt", "length_z"))
)


def facts_of(*overrides: Mapping[str, Any]) -> pa.Table:
    """A judged facts table: good rows of distinct identity, each with fields of its own."""
    rows = [
        {**GOOD, "sample_id": f"s{number}", "row_key": f"{number:064x}", "row_index": number, **fields}
        for number, fields in enumerate(overrides)
    ]
    return pa.Table.from_pylist(rows, schema=JUDGED_SCHEMA)


def failing_rows(evaluation: Evaluation) -> dict[str, list[int]]:
    """Failed expectation → failing positions."""
    return {result.id: evaluation.failing[result.id].tolist() for result in evaluation.results if not result.success}


def suite_of(*items: dict[str, Any]) -> Suite:
    return parse_suite(json.dumps({"name": "b3", "expectations": items}).encode(), "b3.json")


def one(type_name: str, **kwargs: Any) -> Suite:
    """A suite of one critical expectation, with the id `it`."""
    return suite_of({"type": type_name, "kwargs": kwargs, "meta": {"id": "it"}})


def comparison(column: str, operator: str, parameter: Any) -> dict[str, Any]:
    return {"type": "comparison", "column": {"name": column}, "operator": operator, "parameter": parameter}


def nullity(column: str, *, is_null: bool) -> dict[str, Any]:
    return {"type": "nullity", "column": {"name": column}, "is_null": is_null}


@pytest.fixture(scope="module")
def kimi_suite() -> Suite:
    return read_suite(shipped_suite("kimi-k2.5"))


# --- the shipped suite --------------------------------------------------------------------------

GOOD_ROWS: Sequence[Mapping[str, Any]] = (
    *({},) * 5,
    CUT,
    {**CUT, **WITHOUT_IDS, "n_ids": 3, "n_terminal": 0, "probe": True},
    ENGINE,
    CALLS,
    INSTANT,
    GIVEN,
    PROBE,
    {"provider_allowed": None, "finish_reason": "tool_calls", "n_tool_calls": 2},
    *({},) * 8,
)


def test_good_rows_pass_the_shipped_suite(kimi_suite: Suite) -> None:
    evaluation = evaluate(kimi_suite, facts_of(*GOOD_ROWS))
    assert failing_rows(evaluation) == {}
    assert [result.id for result in evaluation.results] == [expectation.id for expectation in kimi_suite.expectations]
    assert {id_ for id_, positions in evaluation.failing.items() if len(positions)} == set()
    judged = {result.id: result.element_count for result in evaluation.results}
    assert judged["rows_present"] is None
    assert judged["thinking_closed_or_calls"] == 1
    assert judged["terminal_false"] == 2
    assert judged["instant_without_think"] == 1
    assert judged["count_explained"] == len(GOOD_ROWS) - 3


ONE_BAD_ROW = [
    ("contract_known", {"contract": "kimi-k2-instruct"}),
    ("mode_present", {"mode": None}),
    ("mode_known", {"mode": "fast"}),
    ("source_known", {"source": "novita"}),
    ("ids_present", WITHOUT_IDS),
    ("ids_not_empty", {"n_ids": 0}),
    ("status_known", {"rebuild_status": "ambiguous"}),
    ("status_known", {"rebuild_status": "answer_missing"}),
    ("ids_not_negative", {"min_id": -1}),
    ("ids_in_vocabulary", {"max_id": 163840}),
    ("control_ids_absent", {"n_control_ids": 1}),
    ("begin_think_absent", {"n_begin_think": 1}),
    ("instant_without_think", {**INSTANT, "n_end_think": 1}),
    ("terminal_last", {"last_id": 163585}),
    ("terminal_once", {"n_terminal": 2}),
    ("terminal_once", {"n_terminal": 0}),
    ("terminal_false", {**CUT, "n_terminal": 1}),
    ("thinking_closed", {"n_end_think": 0}),
    ("thinking_closed", {"n_end_think": 2}),
    ("thinking_closed", {**ENGINE, "n_end_think": 0}),
    ("thinking_closed", {"n_end_think": 0, "n_tool_calls": 1}),
    ("thinking_closed_or_calls", {**CALLS, "n_end_think": 2}),
    ("thinking_cut", {**CUT, "n_end_think": 2}),
    ("structure_allowed", {"structure": "call_before_section"}),
    ("text_known", {"text_equal": None}),
    ("text_known", {**GIVEN, "text_equal": None}),
    ("text_rebuilt", {"text_equal": False}),
    ("text_received", {**ENGINE, "text_equal": False}),
    ("reencode_known", {"reencode_equal": None}),
    ("reencode_equal", {"reencode_equal": False}),
    ("evidence_given", {"evidence": "unverified", "evidence_reason": "no_count", "count_unexplained": None}),
    ("evidence_given", {"evidence": "contradicted", "evidence_reason": "text_altered"}),
    ("count_explained", {"count_unexplained": -1}),
    ("prompt_proved", {"prompt_evidence": "unverified", "prompt_unexplained": None}),
    ("text_unaltered", {"text_altered": "trims"}),
    ("provider_named", {"provider_matches_source": False}),
    ("provider_allowed", {"provider_allowed": False}),
    ("engine_ids", {**ENGINE, "ids_source": "rebuilt", "reencode_equal": True}),
    ("model_named", {"model_named": False}),
    ("finish_reason_present", {"finish_reason": None}),
    ("completion_tokens_present", {"completion_tokens": None}),
    ("calls_present", {"finish_reason": "tool_calls", "n_tool_calls": 0}),
    ("replacement_absent", {"n_replaced": 1}),
    ("health_measured", HEALTH_OFF),
    ("control_chars_absent", {"n_control_chars": 1}),
    ("bidi_chars_absent", {"n_bidi_chars": 1}),
    ("surrogates_whole", {"lone_surrogates": True}),
    ("repetition_loop_share", {"loop_ids": 24, "loop_period": 2, "loop_share": 0.6}),
    ("repetition_loop_long", {"loop_ids": 321, "loop_period": 3, "loop_share": 0.1}),
    ("repetition_grams", {"repeated_share": 0.985, "n_ids": 1024}),
    ("refusals_rare", {"refusal": True}),
    ("boilerplate_rare", {"boilerplate": True}),
    ("secrets_absent", {"n_secrets": 1, "secret_kinds": "aws"}),
    ("addresses_rare", {"n_email_addresses": 1}),
    ("language_kept", {"language_differs": True}),
    ("duplicate_answers_rare", {"duplicate_answer": True}),
    ("duplicate_prompts_rare", {"duplicate_prompt": True}),
    ("lengths_usual", {"length_z": 6.5}),
    ("lengths_usual", {"length_z": -6.5}),
]


def strict(suite: Suite) -> Suite:
    """The suite with every `mostly` at 1: a single failing row fails its expectation."""
    return replace(
        suite,
        expectations=tuple(
            replace(expectation, mostly=1.0, kwargs={**expectation.kwargs, "mostly": 1.0})
            if expectation.scope == "row"
            else expectation
            for expectation in suite.expectations
        ),
    )


def test_each_bad_row_fails_exactly_its_expectation(kimi_suite: Suite) -> None:
    good = 30
    evaluation = evaluate(strict(kimi_suite), facts_of(*({},) * good, *(bad for _, bad in ONE_BAD_ROW)))
    expected: dict[str, list[int]] = {}
    for position, (name, _) in enumerate(ONE_BAD_ROW, start=good):
        expected.setdefault(name, []).append(position)
    assert failing_rows(evaluation) == expected
    assert {result.error for result in evaluation.results} == {None}


NAMESAKE, SAME_KEY = {"sample_id": "s0"}, {"row_key": f"{0:064x}"}
WHOLE_SETS = [
    ({"identity_unique": [0, 2]}, [{}, {}, NAMESAKE]),
    ({"row_key_unique": [0, 2]}, [{}, {}, SAME_KEY]),
    ({"prompt_same": [1], "prompt_proved": [1]}, [{}, {"prompt_evidence": "contradicted", "prompt_unexplained": -1}]),
    ({"few_cut": []}, [CUT, *({},) * 8]),
    ({"few_cut": [], "mostly_whole": []}, [CUT, CUT, {}]),
]


@pytest.mark.parametrize(("expected", "rows"), WHOLE_SETS)
def test_faults_of_several_rows(kimi_suite: Suite, expected: dict[str, list[int]], rows: list[Any]) -> None:
    assert failing_rows(evaluate(kimi_suite, facts_of(*rows))) == expected


def test_every_expectation_of_the_shipped_suite_is_made_to_fail(kimi_suite: Suite) -> None:
    tried = {name for name, _ in ONE_BAD_ROW} | {name for names, _ in WHOLE_SETS for name in names}
    assert tried == {expectation.id for expectation in kimi_suite.expectations} - {"rows_present"}


def test_zero_rows_fail_everything(kimi_suite: Suite) -> None:
    evaluation = evaluate(kimi_suite, facts_of())
    assert len(evaluation.results) == len(kimi_suite.expectations)
    assert {(result.success, result.error) for result in evaluation.results} == {
        (False, "no rows: nothing was checked")
    }
    assert all(len(positions) == 0 for positions in evaluation.failing.values())


def test_one_bad_row_in_a_thousand_is_tolerated_where_mostly_says_so(kimi_suite: Suite) -> None:
    """It is listed as failing all the same, for the quarantine; an impossibility closes the gate."""
    bad = {"structure": "call_before_section"}
    evaluation = evaluate(kimi_suite, facts_of(*({},) * 700, bad, *({},) * 299))
    assert failing_rows(evaluation) == {}
    assert evaluation.failing["structure_allowed"].tolist() == [700]
    assert failing_rows(evaluate(kimi_suite, facts_of(*({},) * 999, {"max_id": 163840}))) == {
        "ids_in_vocabulary": [999]
    }


def test_all_failing_rows_are_listed(kimi_suite: Suite) -> None:
    """Great Expectations caps lists of values at 200; positions must not be."""
    rows = 20_000
    table = pa.concat_tables([facts_of({})] * rows).combine_chunks()
    names = pa.array([f"s{number}" for number in range(rows)])
    bad = np.flatnonzero(np.random.default_rng(7).random(rows) < 0.03)
    evidence = np.full(rows, "counted", dtype=object)
    evidence[bad] = "unverified"
    for column, values in (("sample_id", names), ("row_key", names), ("evidence", pa.array(evidence, pa.string()))):
        table = table.set_column(table.schema.get_field_index(column), JUDGED_SCHEMA.field(column), values)
    evaluation = evaluate(kimi_suite, table)
    positions = evaluation.failing["evidence_given"]
    assert positions.dtype == np.int64
    np.testing.assert_array_equal(positions, bad)
    assert failing_rows(evaluation) == {}
    (result,) = (result for result in evaluation.results if result.id == "evidence_given")
    assert (result.element_count, result.unexpected_count, len(result.examples)) == (rows, len(bad), MAX_EXAMPLES)


# --- row conditions and nulls -------------------------------------------------------------------

MIXED = facts_of(
    {"n_ids": 1, "provider": "A", "provider_allowed": True, "cost_usd": 0.5},
    {"n_ids": None, "provider": None, "provider_allowed": None, "cost_usd": None, "notes": []},
    {
        "n_ids": 3,
        "provider": 'it\'s "B"',
        "provider_allowed": False,
        "cost_usd": 2.0,
        "turn": 1,
        "notes": ["x", "assumed_mode"],
    },
    {"n_ids": 3, "provider": "A", "provider_allowed": True, "cost_usd": 0.5, "truncated": True},
)
IS_ALLOWED = comparison("provider_allowed", "==", True)


@pytest.mark.parametrize(
    ("condition", "selected"),
    [
        (comparison("truncated", "==", False), [0, 1, 2]),
        (comparison("truncated", "!=", False), [3]),
        (comparison("turn", "!=", 0), [2]),
        (comparison("turn", "NOT_IN", [0, 5]), [2]),
        (comparison("row_key", "NOT_IN", [f"{0:064x}"]), [1, 2, 3]),
        (IS_ALLOWED, [0, 3]),
        (comparison("provider_allowed", "==", False), [2]),
        (comparison("provider", "==", "A"), [0, 3]),
        (comparison("provider", "==", 'it\'s "B"'), [2]),
        (comparison("provider", "IN", ["A", "C"]), [0, 3]),
        (comparison("n_ids", "==", 3), [2, 3]),
        (comparison("n_ids", "IN", [1, 3]), [0, 2, 3]),
        (comparison("n_ids", "<", 3), [0]),
        (comparison("n_ids", "<=", 3), [0, 2, 3]),
        (comparison("n_ids", ">", 1), [2, 3]),
        (comparison("n_ids", ">=", 4), []),
        (comparison("cost_usd", ">", 0.5), [2]),
        (nullity("n_ids", is_null=True), [1]),
        (nullity("n_ids", is_null=False), [0, 2, 3]),
        (nullity("provider", is_null=True), [1]),
        (nullity("provider_allowed", is_null=False), [0, 2, 3]),
        ({"type": "and", "conditions": [IS_ALLOWED, comparison("n_ids", ">", 1)]}, [3]),
        ({"type": "or", "conditions": [IS_ALLOWED, nullity("n_ids", is_null=True)]}, [0, 1, 3]),
        (
            {
                "type": "or",
                "conditions": [
                    comparison("turn", "==", 1),
                    {"type": "and", "conditions": [IS_ALLOWED, comparison("truncated", "==", True)]},
                ],
            },
            [2, 3],
        ),
    ],
)
def test_a_row_condition_selects_what_it_says(condition: dict[str, Any], selected: list[int]) -> None:
    suite = one("expect_column_values_to_be_in_set", column="model", value_set=["none"], row_condition=condition)
    evaluation = evaluate(suite, MIXED)
    assert evaluation.failing["it"].tolist() == selected
    assert evaluation.results[0].element_count == len(selected)
    assert evaluation.results[0].success is not bool(selected)


# Each type → kwargs, failing rows of MIXED, rows that were judged.
ROWWISE: Mapping[str, tuple[dict[str, Any], list[int], int]] = {
    "column_values_to_be_null": ({"column": "n_ids"}, [0, 2, 3], 4),
    "column_values_to_not_be_null": ({"column": "provider_allowed"}, [1], 4),
    "column_values_to_be_unique": ({"column": "n_ids"}, [2, 3], 3),
    "column_values_to_be_in_set": ({"column": "provider_allowed", "value_set": [True]}, [2], 3),
    "column_values_to_not_be_in_set": ({"column": "n_ids", "value_set": [1]}, [0], 3),
    "column_values_to_be_between": ({"column": "n_ids", "max_value": 1}, [2, 3], 3),
    "column_value_lengths_to_be_between": ({"column": "provider", "max_value": 3}, [2], 3),
    "column_value_lengths_to_equal": ({"column": "provider", "value": 8}, [0, 3], 3),
    "column_values_to_be_json_parseable": ({"column": "provider"}, [0, 2, 3], 3),
    "column_values_to_match_regex": ({"column": "provider", "regex": "^A$"}, [2], 3),
    "column_values_to_not_match_regex": ({"column": "provider", "regex": "^A$"}, [0, 3], 3),
    "column_values_to_match_regex_list": ({"column": "provider", "regex_list": ["^A$", "Z"]}, [2], 3),
    "column_values_to_not_match_regex_list": ({"column": "provider", "regex_list": ["^A$", "Z"]}, [0, 3], 3),
    "column_pair_values_to_be_equal": ({"column_A": "n_ids", "column_B": "row_index"}, [0, 2], 3),
    "column_pair_values_a_to_be_greater_than_b": ({"column_A": "n_ids", "column_B": "row_index"}, [3], 3),
    "column_pair_values_to_be_in_set": (
        {"column_A": "n_ids", "column_B": "turn", "value_pairs_set": [[1, 0], [3, 0]]},
        [2],
        3,
    ),
    "column_values_to_be_dateutil_parseable": ({"column": "finish_reason"}, [0, 1, 2, 3], 4),
    "column_values_to_match_strftime_format": (
        {"column": "finish_reason", "strftime_format": "%Y"},
        [0, 1, 2, 3],
        4,
    ),
    "column_values_to_match_json_schema": ({"column": "provider", "json_schema": {"type": "string"}}, [0, 2, 3], 3),
    "column_values_to_match_like_pattern": ({"column": "provider", "like_pattern": "A%"}, [2], 3),
    "column_values_to_not_match_like_pattern": ({"column": "provider", "like_pattern": "_"}, [0, 3], 3),
    "column_values_to_match_like_pattern_list": ({"column": "provider", "like_pattern_list": ["A", "Z%"]}, [2], 3),
    "column_values_to_not_match_like_pattern_list": (
        {"column": "provider", "like_pattern_list": ["A", "Z%"]},
        [0, 3],
        3,
    ),
    "column_values_to_be_increasing": ({"column": "n_ids", "strictly": True}, [3], 3),
    "column_values_to_be_decreasing": ({"column": "n_ids"}, [2], 3),
    "column_value_z_scores_to_be_less_than": ({"column": "n_ids", "threshold": 1, "double_sided": True}, [0], 3),
    "column_values_to_not_be_outliers": ({"column": "n_ids", "method": "iqr", "multiplier": 0.5}, [0], 3),
    "multicolumn_values_to_be_equal": ({"column_list": ["n_ids", "row_index"]}, [0, 2], 3),
    "column_list_lengths_to_be_between": ({"column": "notes", "min_value": 1}, [1], 4),
    "column_list_first_elements_to_be_in_set": ({"column": "notes", "value_set": ["assumed_mode"]}, [1, 2], 4),
    "column_list_last_elements_to_be_in_set": ({"column": "notes", "value_set": ["assumed_mode"]}, [1], 4),
    "column_lists_to_contain": ({"column": "notes", "element": "assumed_mode"}, [1], 4),
    "column_list_element_counts_to_be_between": ({"column": "notes", "element": "x", "max_value": 0}, [2], 4),
    "multicolumn_sum_to_equal": ({"column_list": ["n_ids", "turn"], "sum_total": 3}, [0, 2], 3),
    "select_column_values_to_be_unique_within_record": ({"column_list": ["n_ids", "row_index"]}, [3], 3),
    "compound_columns_to_be_unique": ({"column_list": ["provider", "provider_allowed", "turn"]}, [0, 3], 4),
}


@pytest.mark.parametrize("name", ROWWISE)
def test_row_expectations_skip_nulls_and_find_the_rest(name: str) -> None:
    kwargs, failing, judged = ROWWISE[name]
    rule = "either_value_is_missing" if "column_A" in kwargs else "any_value_is_missing"
    across = "column_pair" in name or name.startswith(("multicolumn", "select"))
    evaluation = evaluate(one(f"expect_{name}", **kwargs, **({"ignore_row_if": rule} if across else {})), MIXED)
    (result,) = evaluation.results
    assert (evaluation.failing["it"].tolist(), result.error) == (failing, None)
    assert (result.success, result.element_count, result.unexpected_count) == (False, judged, len(failing))


NUMBERS, BETWEEN = {"column": "n_ids"}, {"min_value": 5}
DATASETWISE: Mapping[str, tuple[dict[str, Any], str]] = {
    "table_row_count_to_equal": ({"value": 3}, "4"),
    "table_row_count_to_be_between": (BETWEEN, "4"),
    "column_max_to_be_between": ({**NUMBERS, **BETWEEN}, "3"),
    "column_min_to_be_between": ({**NUMBERS, **BETWEEN}, "1"),
    "column_mean_to_be_between": ({"column": "truncated", "min_value": 0.5}, "0.25"),
    "column_median_to_be_between": ({**NUMBERS, **BETWEEN}, "3"),
    "column_stdev_to_be_between": ({**NUMBERS, **BETWEEN}, "1.1547"),
    "column_sum_to_be_between": ({"column": "provider_allowed", "min_value": 3}, "2"),
    "column_quantile_values_to_be_between": (
        {**NUMBERS, "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[0, 1]]}},
        '{"quantiles": [0.5], "values": [3]}',
    ),
    "column_unique_value_count_to_be_between": ({"column": "provider", "min_value": 3}, "2"),
    "column_proportion_of_unique_values_to_be_between": ({"column": "provider", "min_value": 0.9}, "0.666667"),
    "column_proportion_of_non_null_values_to_be_between": ({"column": "provider", "min_value": 0.9}, "0.75"),
    "column_distinct_values_to_be_in_set": ({**NUMBERS, "value_set": [1, 2]}, "1 outside the set"),
    "column_distinct_values_to_contain_set": ({**NUMBERS, "value_set": [1, 2]}, "1 missing"),
    "column_distinct_values_to_equal_set": ({**NUMBERS, "value_set": [1, 2]}, "1 outside the set, 1 missing"),
    "column_kl_divergence_to_be_less_than": (
        {**NUMBERS, "threshold": 0.1, "partition_object": {"values": [1, 3], "weights": [0.9, 0.1]}},
        "0.933663",
    ),
    "column_most_common_value_to_be_in_set": ({**NUMBERS, "value_set": [1]}, "[3]"),
}


@pytest.mark.parametrize("name", DATASETWISE)
def test_dataset_expectations_tell_what_they_observed(name: str) -> None:
    kwargs, observed = DATASETWISE[name]
    evaluation = evaluate(one(f"expect_{name}", **kwargs), MIXED)
    (result,) = evaluation.results
    assert (result.success, result.error, result.observed) == (False, None, observed)
    assert (result.element_count, result.unexpected_count, evaluation.failing["it"].tolist()) == (None, None, [])


def test_every_supported_type_is_tried() -> None:
    assert {f"expect_{name}" for name in ROWWISE} == ROW_TYPES
    assert {f"expect_{name}" for name in DATASETWISE} == DATASET_TYPES


def test_a_table_of_several_chunks_keeps_its_positions() -> None:
    table = pa.concat_tables([MIXED, MIXED])
    suite = one("expect_column_values_to_not_be_null", column="n_ids")
    assert evaluate(suite, table).failing["it"].tolist() == [1, 5]


# --- what a result tells ------------------------------------------------------------------------


def test_examples_say_who_and_what() -> None:
    suite = one("expect_column_values_to_be_in_set", column="provider", value_set=["A"])
    (result,) = evaluate(suite, facts_of({"provider": "B" * 500}, {"provider": "A"})).results
    expected = {"sample_id": "s0", "turn": 0, "sample_index": 0, "provider": "B" * 200, "value": "B" * 200}
    assert result.examples == (expected,)


def test_examples_of_several_columns_name_them() -> None:
    suite = one("expect_compound_columns_to_be_unique", column_list=["provider_allowed", "n_ids"])
    rows = [{"provider_allowed": None, "n_ids": 3}] * 2
    values = [example["value"] for example in evaluate(suite, facts_of(*rows)).results[0].examples]
    assert values == ["provider_allowed=null, n_ids=3"] * 2


def test_a_condition_that_selects_no_row_succeeds_and_shows_it() -> None:
    condition = comparison("mode", "==", "instant")
    suite = one("expect_column_values_to_be_in_set", column="turn", value_set=[9], row_condition=condition)
    (result,) = evaluate(suite, facts_of({})).results
    assert (result.success, result.element_count, result.unexpected_share) == (True, 0, 0.0)


def test_a_dataset_expectation_without_a_value_fails() -> None:
    suite = one("expect_column_mean_to_be_between", column="reasoning_tokens", max_value=5)
    assert evaluate(suite, facts_of({}, {})).results[0].success is False


def test_a_missing_column_is_an_error_and_fails() -> None:
    suite = suite_of(
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "turn", "value_set": [0]}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "model"}, "severity": "warning"},
    )
    turn, model = evaluate(suite, facts_of({}).drop_columns(["model"])).results
    assert (turn.success, turn.error) == (True, None)
    assert (model.success, model.severity) == (False, Severity.WARNING)
    assert model.error is not None
    assert '"model"' in model.error


def test_an_expectation_that_raises_is_an_error_and_fails() -> None:
    suite = one("expect_column_quantile_values_to_be_between", **DATASETWISE["column_quantile_values_to_be_between"][0])
    facts = facts_of({})
    texts = facts.set_column(facts.schema.get_field_index("n_ids"), "n_ids", pa.array(["40"]))
    (result,) = evaluate(suite, texts).results
    assert (result.success, result.observed) == (False, None)
    assert result.error == "expected a column of numbers, found 'n_ids': String"


def test_quantiles_of_no_value_fail() -> None:
    suite = one("expect_column_quantile_values_to_be_between", **DATASETWISE["column_quantile_values_to_be_between"][0])
    (result,) = evaluate(suite, facts_of({"n_ids": None})).results
    assert (result.success, result.error) == (False, None)


def test_a_frame_gives_what_a_table_gives(kimi_suite: Suite) -> None:
    table = facts_of(*(bad for _, bad in ONE_BAD_ROW))
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    ours, theirs = evaluate(kimi_suite, frame.lazy()), evaluate(kimi_suite, table)
    assert ours.results == theirs.results
    for name, positions in ours.failing.items():
        np.testing.assert_array_equal(positions, theirs.failing[name])


# --- what Great Expectations is asked before ----------------------------------------------------


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        (
            {"type": "expect_colum_values_to_be_in_set", "kwargs": {}},
            "unknown type 'expect_colum_values_to_be_in_set'; did you mean 'expect_column_values_to_be_in_set'?",
        ),
        (
            {"type": "expect_column_type_to_be", "kwargs": {"column": "turn", "type_": "int"}},
            "type 'expect_column_type_to_be' is not evaluated over facts: it compares names of another engine's types",
        ),
        (
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "turn", "mostli": 1}},
            "unknown kwarg 'mostli' of expect_column_values_to_not_be_null; did you mean 'mostly'?",
        ),
        (
            {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "turn", "max_value": 1, "mostly": 1}},
            "unknown kwarg 'mostly' of expect_column_mean_to_be_between",
        ),
        (
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "turn", "result_format": "BASIC"}},
            "unknown kwarg 'result_format'",
        ),
        (
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"mostly": 1}},
            "expect_column_values_to_not_be_null: column: field required",
        ),
        (
            {
                "type": "expect_column_unique_value_count_to_be_between",
                "kwargs": {"column": "turn", "min_value": 0.9},
            },
            "kwargs.min_value: Great Expectations would read 0.9 as 0",
        ),
    ],
)
def test_what_would_not_be_checked_as_written_is_refused(item: dict[str, Any], fault: str) -> None:
    good = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "turn"}}
    suite = suite_of(good, item)
    for refuse in (check_suite, lambda suite: evaluate(suite, facts_of({}))):
        with pytest.raises(SuiteError) as caught:
            refuse(suite)
        place, _, found = str(caught.value).partition("): ")
        assert place.startswith("b3.json: expectations[1] (")
        assert found.startswith(fault)


def test_the_shipped_suite_is_accepted(kimi_suite: Suite) -> None:
    check_suite(kimi_suite)
    assert len(build.build_gx_suite(kimi_suite).expectations) == len(kimi_suite.expectations) == 57


def test_an_expectation_that_great_expectations_drops_is_noticed() -> None:
    gx = build.load_gx()
    known = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "turn"}}
    unknown = {"type": "expect_nothing_in_particular", "kwargs": {}}
    suite = suite_of(known, unknown)
    built = gx.ExpectationSuite(name="b3", expectations=[{**known, "meta": {}}, {**unknown, "meta": {}}])
    (fault,) = build.differences(suite, built.expectations)
    assert fault.startswith("expectations: expected Great Expectations to keep all 2, found 1")


def test_a_changed_expectation_is_noticed() -> None:
    gx = build.load_gx()
    asked = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "turn", "value_set": [0]}}
    other = [
        {**asked, "kwargs": {"column": "turn", "value_set": [1]}},
        {**asked, "severity": "warning"},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "turn"}},
    ]
    built = gx.ExpectationSuite(
        name="b3", expectations=[{"meta": {}, "severity": "critical", **item} for item in other]
    )
    suite = suite_of(*[asked] * 3)
    assert list(build.differences(suite, built.expectations)) == [
        f"expectations[0] ({suite.expectations[0].id}): kwargs.value_set: Great Expectations would read [0] as [1]",
        f"expectations[1] ({suite.expectations[1].id}): expected severity critical, found warning",
        f"expectations[2] ({suite.expectations[2].id}): expected type {asked['type']!r}, found {other[2]['type']!r}",
    ]
