"""The strict reader: what is read, and every way to be refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolkit.audit.suite import Suite, parse_suite, read_suite, shipped_suite
from toolkit.errors import ConfigError, SuiteError
from toolkit.records import Severity

IN_SET = "expect_column_values_to_be_in_set"
SOURCE = {"type": IN_SET, "kwargs": {"column": "source", "value_set": ["sglang"]}}


def suite_of(*expectations: Any, **top: Any) -> dict[str, Any]:
    return {"name": "b3", "expectations": list(expectations), **top}


def parse(document: Any) -> Suite:
    return parse_suite(json.dumps(document).encode(), "b3.json")


def faults_of(document: Any) -> list[str]:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(SuiteError) as caught:
        parse_suite(content, "b3.json")
    return str(caught.value).splitlines()


def with_condition(condition: Any) -> dict[str, Any]:
    return suite_of({"type": IN_SET, "kwargs": {**SOURCE["kwargs"], "row_condition": condition}})


def comparison(column: str, operator: Any, parameter: Any) -> dict[str, Any]:
    return {"type": "comparison", "column": {"name": column}, "operator": operator, "parameter": parameter}


def test_every_field_is_read() -> None:
    meta = {"id": "engine_ids", "says": "Engines give ids.", "why": "They do.", "owner": "anyone"}
    condition = comparison("truncated", "==", False)
    kwargs = {"column": "ids_source", "value_set": ["engine"], "mostly": 0.99, "row_condition": condition}
    item = {"type": IN_SET, "kwargs": kwargs, "severity": "warning", "meta": meta}
    content = json.dumps(suite_of(item, SOURCE, meta={"tokenproof": {"max_quarantined_share": 0.1}})).encode()
    suite = parse_suite(content, "b3.json")
    first, second = suite.expectations
    assert (suite.name, suite.path, suite.max_quarantined_share) == ("b3", "b3.json", 0.1)
    assert suite.sha256 == hashlib.sha256(content).hexdigest()
    assert (first.id, first.says, first.why) == ("engine_ids", "Engines give ids.", "They do.")
    assert (first.severity, first.scope, first.mostly, first.kwargs) == (Severity.WARNING, "row", 0.99, kwargs)
    assert first.columns == ("ids_source", "truncated")
    assert (second.severity, second.mostly, second.why) == (Severity.CRITICAL, None, None)


def test_a_suite_as_great_expectations_writes_it_is_read() -> None:
    item = {**SOURCE, "id": None, "notes": None, "rendered_content": None, "description": "From SGLang."}
    item["kwargs"] = {**SOURCE["kwargs"], "row_condition": None, "condition_parser": None}
    suite = parse(
        suite_of(item, id=None, notes=None, suite_parameters={}, meta={"great_expectations_version": "1.24.1"})
    )
    assert suite.max_quarantined_share == 0.05
    assert suite.expectations[0].kwargs == SOURCE["kwargs"]
    assert suite.expectations[0].says == "From SGLang."


def test_ids_are_derived_where_none_is_given() -> None:
    pair = {"type": "expect_column_pair_values_to_be_equal", "kwargs": {"column_A": "turn", "column_B": "row_index"}}
    rows = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}}
    named = {**SOURCE, "meta": {"id": "source_in_set_2"}}
    suite = parse(suite_of(SOURCE, named, SOURCE, pair, rows))
    expected = ["source_in_set", "source_in_set_2", "source_in_set_3", "turn_row_index_equal", "row_count_between"]
    assert [expectation.id for expectation in suite.expectations] == expected


def test_a_sentence_is_derived_where_none_is_given() -> None:
    condition = {"type": "and", "conditions": [comparison("mode", "IN", ["a", "b"]), comparison("turn", ">", 0)]}
    (expectation,) = parse(with_condition(condition)).expectations
    assert expectation.says == (
        "source: expect column values to be in set value_set ['sglang'] where mode in [a, b] and turn > 0."
    )


@pytest.mark.parametrize(
    ("type_name", "kwargs", "scope"),
    [
        ("expect_column_values_to_not_be_null", {"column": "model"}, "row"),
        ("expect_compound_columns_to_be_unique", {"column_list": ["turn", "mode"]}, "row"),
        ("expect_column_pair_values_to_be_equal", {"column_A": "turn", "column_B": "row_index"}, "row"),
        ("expect_table_row_count_to_equal", {"value": 3}, "dataset"),
        ("expect_column_mean_to_be_between", {"column": "truncated", "max_value": 0.1}, "dataset"),
    ],
)
def test_scope_follows_from_the_type(type_name: str, kwargs: dict[str, Any], scope: str) -> None:
    assert parse(suite_of({"type": type_name, "kwargs": kwargs})).expectations[0].scope == scope


KWARGS_FAULTS = [
    ({"column": "sauce", "value_set": ["a"]}, "unknown column 'sauce'; did you mean 'source'?"),
    ({"column": 3, "value_set": ["a"]}, "expected the name of a column, found 3"),
    ({"column": "notes", "value_set": ["a"]}, "column 'notes' holds lists"),
    ({"column_A": "turn", "column_B": "trun"}, "unknown column 'trun'; did you mean 'turn'?"),
    ({"column_list": ["turn", "no_such_thing"]}, "unknown column 'no_such_thing'"),
    ({"column_list": "turn"}, "kwargs.column_list: expected a list of columns, found 'turn'"),
    ({"column": "source", "value_set": None}, "kwargs.value_set: expected a value, found null"),
    ({"column": "source", "value_set": []}, "kwargs.value_set: expected a list of values, found []"),
    ({"column": "source", "value_set": [1]}, "kwargs.value_set: expected a string (source is a text), found 1"),
    ({"column": "last_id", "value_set": ["163586"]}, "expected a number (last_id is a whole number), found '163586'"),
    ({"column": "last_id", "value_set": [True]}, "expected a number (last_id is a whole number), found True"),
    ({"column": "truncated", "value_set": [0]}, "expected true or false (truncated is a flag), found 0"),
    ({"column": "source", "value_set": ["a"], "mostly": 0}, "kwargs.mostly: expected a number above 0, at most 1"),
    ({"column": "source", "value_set": ["a"], "mostly": 1.01}, "kwargs.mostly: expected a number above 0, at most 1"),
    ({"column": "source", "value_set": ["a"], "mostly": True}, "kwargs.mostly: expected a number above 0, at most 1"),
    ({"column": "source", "value_set": ["a"], "mostly": "1"}, "kwargs.mostly: expected a number above 0, at most 1"),
    ({"column": "source", "value_set": {"$PARAMETER": "x"}}, '{"$PARAMETER": …}: parameters are not filled in'),
    ({"column": "source", "regex": "("}, "expected a regular expression, found '('"),
]


@pytest.mark.parametrize(("kwargs", "fault"), KWARGS_FAULTS)
def test_a_faulty_kwarg_is_refused(kwargs: dict[str, Any], fault: str) -> None:
    found = faults_of(suite_of(SOURCE, {"type": IN_SET, "kwargs": kwargs}))
    assert any(line.startswith("b3.json: expectations[1]: kwargs") and fault in line for line in found), found


def test_a_fault_names_the_id_that_its_expectation_bears() -> None:
    item = {"type": IN_SET, "kwargs": {"column": "sauce", "value_set": ["a"]}, "meta": {"id": "source_known"}}
    (fault,) = faults_of(suite_of(SOURCE, item))
    assert fault.startswith("b3.json: expectations[1] (source_known): kwargs: unknown column 'sauce'")
    (fault,) = faults_of(suite_of(SOURCE, {**item, "kwargs": SOURCE["kwargs"], "meta": {"id": "\x1b[2J"}}))
    assert fault.startswith("b3.json: expectations[1]: meta.id: expected 1 to 48")


@pytest.mark.parametrize(
    ("type_name", "kwargs", "fault"),
    [
        ("expect_column_values_to_be_between", {"column": "n_ids"}, "expected min_value or max_value, found neither"),
        ("expect_table_row_count_to_be_between", {}, "expected min_value or max_value, found neither"),
        ("expect_column_values_to_be_between", {"column": "n_ids", "min_value": "1"}, "expected a number, found '1'"),
        ("expect_column_values_to_be_between", {"column": "source", "min_value": 1}, "expected a column of numbers"),
        ("expect_column_values_to_match_regex", {"column": "turn", "regex": "1"}, "expected a column of text"),
        (
            "expect_column_pair_values_to_be_equal",
            {"column_A": "turn", "column_B": "n_ids"},
            "kwargs.ignore_row_if: expected 'either_value_is_missing', since 'n_ids' may be null",
        ),
        (
            "expect_multicolumn_sum_to_equal",
            {"column_list": ["turn", "n_ids"], "sum_total": 3},
            "kwargs.ignore_row_if: expected 'any_value_is_missing', since 'n_ids' may be null",
        ),
    ],
)
def test_a_kwarg_that_does_not_fit_the_type_is_refused(type_name: str, kwargs: dict[str, Any], fault: str) -> None:
    assert fault in faults_of(suite_of({"type": type_name, "kwargs": kwargs}))[0]


ON_SOURCE = comparison("source", "==", "sglang")


@pytest.mark.parametrize(
    ("condition", "fault"),
    [
        ("truncated == False", ': expected a condition like {"type": "comparison"'),
        ({"type": "pass_through", "pass_through_filter": "x"}, "expected a condition of type comparison, nullity"),
        ({"type": []}, "expected a condition of type comparison, nullity, and, or, found []"),
        ([ON_SOURCE], "expected a condition of type"),
        ({**ON_SOURCE, "extra": 1}, "expected the keys column, operator, parameter, type"),
        ({**ON_SOURCE, "column": "source"}, ".column: expected {\"name\": …}, found 'source'"),
        (comparison("sauce", "==", "a"), ".column: unknown column 'sauce'; did you mean 'source'?"),
        (comparison("source", "=", "a"), ".operator: expected ==, !=, <, <=, >, >=, IN, NOT_IN, found '='"),
        (comparison("source", "<", "a"), ".operator: expected == or IN, since source is a text"),
        (comparison("provider", "!=", "a"), "since 'provider' may be null, found '!='"),
        (comparison("provider", "NOT_IN", ["a"]), "since 'provider' may be null, found 'NOT_IN'"),
        (comparison("truncated", "IN", [True]), ".operator: expected ==, since truncated is a flag"),
        (comparison("truncated", "==", "false"), ".parameter: expected true or false (truncated is a flag)"),
        (comparison("truncated", "==", None), ".parameter: expected true or false (truncated is a flag), found None"),
        (comparison("source", "IN", "sglang"), ".parameter: expected a list of values, found 'sglang'"),
        (comparison("source", "IN", []), ".parameter: expected a list of values, found []"),
        (comparison("turn", "==", True), ".parameter: expected a number (turn is a whole number), found True"),
        ({"type": "nullity", "column": {"name": "n_ids"}, "is_null": 1}, ".is_null: expected true or false, found 1"),
        ({"type": "or", "conditions": []}, ".conditions: expected a list of conditions, found []"),
        (
            {"type": "and", "conditions": [{"type": "or", "conditions": [ON_SOURCE]}]},
            ".conditions[0]: expected comparison or nullity inside 'and', found 'or'",
        ),
        ({"type": "or", "conditions": [ON_SOURCE, 3]}, ".conditions[1]: expected a condition of type"),
    ],
)
def test_a_faulty_row_condition_is_refused(condition: Any, fault: str) -> None:
    (found,) = faults_of(with_condition(condition))
    assert found.startswith("b3.json: expectations[0]: kwargs.row_condition")
    assert fault in found


def test_a_condition_parser_is_refused_with_what_to_write_instead() -> None:
    kwargs = {**SOURCE["kwargs"], "row_condition": "turn == 0", "condition_parser": "pandas"}
    parser, condition = faults_of(suite_of({"type": IN_SET, "kwargs": kwargs}))
    assert "kwargs.condition_parser: expected none, found 'pandas': write row_condition as an object" in parser
    assert '{"type": "comparison", "column": {"name": "truncated"}, "operator": "==", "parameter": false}' in condition


DOCUMENT_FAULTS = [
    ([], "b3.json: expected a JSON object, found []"),
    (b"{", "b3.json: expected JSON: "),
    (b"\xff\xfe", "b3.json: expected UTF-8, found byte 0xff at 0"),
    (b"[" * 100_000, "b3.json: expected a suite, found JSON that is nested too deeply"),
    (b'{"name": "\\ud800"}', "b3.json: expected text, found half of a surrogate pair"),
    (suite_of(), "b3.json: expectations: expected a list with at least one expectation, found []"),
    ({"name": "b3"}, "b3.json: expectations: expected a list with at least one expectation, found None"),
    (suite_of(SOURCE, "x"), "b3.json: expectations[1]: expected an object, found 'x'"),
    (suite_of(SOURCE, name=" "), "b3.json: name: expected a text, found ' '"),
    (suite_of(SOURCE, name=None), "b3.json: name: expected a text, found None"),
    (suite_of(SOURCE, expectation=[]), "b3.json: unknown key 'expectation'; did you mean 'expectations'?"),
    (suite_of(SOURCE, suite_parameters={"a": 1}), "b3.json: suite_parameters: expected none"),
    (suite_of(SOURCE, meta=[]), "b3.json: meta: expected an object, found []"),
    (suite_of(SOURCE, meta={"tokenprof": {}}), "b3.json: meta: unknown key 'tokenprof'; did you mean 'tokenproof'?"),
    (suite_of(SOURCE, meta={"tokenproof": 3}), "b3.json: meta.tokenproof: expected an object, found 3"),
    (
        suite_of(SOURCE, meta={"tokenproof": {"max_quarantine_share": 0.1}}),
        "b3.json: meta.tokenproof: unknown key 'max_quarantine_share'; did you mean 'max_quarantined_share'?",
    ),
    (
        suite_of(SOURCE, meta={"tokenproof": {"max_quarantined_share": True}}),
        "b3.json: meta.tokenproof.max_quarantined_share: expected a number from 0 to 1, found True",
    ),
    (suite_of({**SOURCE, "severity": "fatal"}, SOURCE), "severity: expected critical, warning, info, found 'fatal'"),
    (suite_of({**SOURCE, "severity": None}, SOURCE), "severity: expected critical, warning, info, found None"),
    (suite_of({**SOURCE, "mostly": 1}), "b3.json: expectations[0]: unknown key 'mostly'"),
    (suite_of({**SOURCE, "expectation_type": "x"}), "unknown key 'expectation_type': expected 'type'"),
    (suite_of({"kwargs": {}}), "b3.json: expectations[0]: type: expected the name of an expectation, found None"),
    (suite_of({**SOURCE, "kwargs": []}), "b3.json: expectations[0]: kwargs: expected an object, found []"),
    (suite_of({**SOURCE, "meta": []}), "b3.json: expectations[0]: meta: expected an object, found []"),
    (suite_of({**SOURCE, "meta": {"id": "A b"}}), "b3.json: expectations[0]: meta.id: expected 1 to 48 of a-z"),
    (suite_of({**SOURCE, "meta": {"says": ""}}), "b3.json: expectations[0]: meta.says: expected a text, found ''"),
    (suite_of({**SOURCE, "meta": {"why": 1}}), "b3.json: expectations[0]: meta.why: expected a text, found 1"),
    (
        suite_of({**SOURCE, "severity": "warning"}),
        "b3.json: expectations: expected at least one of severity critical, found none",
    ),
    (
        suite_of({**SOURCE, "meta": {"id": "a"}}, {**SOURCE, "meta": {"id": "a"}}),
        "b3.json: expectations[1] (a): meta.id: expected unique ids, found 'a' as in [0]",
    ),
]


@pytest.mark.parametrize(("document", "fault"), DOCUMENT_FAULTS)
def test_a_faulty_document_is_refused(document: Any, fault: str) -> None:
    (found,) = faults_of(document)
    assert fault in found


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_json_has_not_is_refused(number: str) -> None:
    kwargs = f'{{"column": "n_ids", "min_value": {number}}}'
    content = f'{{"name": "b", "expectations": [{{"type": "expect_column_values_to_be_between", "kwargs": {kwargs}}}]}}'
    assert faults_of(content.encode())[0] == f"b3.json: expected finite numbers, found {number}"


def test_a_key_that_occurs_twice_is_refused() -> None:
    text = json.dumps(suite_of(SOURCE)).replace('"value_set"', '"column": "mode", "value_set"')
    assert faults_of(text.encode()) == ["b3.json: expected each key once in an object, found 'column' twice"]


def test_all_faults_are_named_at_once() -> None:
    bad = {"type": IN_SET, "kwargs": {"column": "sauce", "value_set": [], "mostly": 2}, "severity": "x", "typ": 1}
    found = faults_of(suite_of(SOURCE, bad, {"type": 1}, name=""))
    assert [line.split(": ")[1] for line in found] == ["name", *["expectations[1]"] * 5, "expectations[2]"]


def test_a_message_about_a_hostile_value_is_short_and_printable() -> None:
    (found,) = faults_of(suite_of({**SOURCE, "meta": {"id": "\x1b[2J" + "x" * 10_000}}))
    assert found.isprintable()
    assert len(found) < 200


def test_read_suite_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "b3.json"
    with pytest.raises(SuiteError, match=r"b3\.json: cannot read the suite: No such file"):
        read_suite(path)
    path.write_text(json.dumps(suite_of(SOURCE)), encoding="utf-8")
    assert read_suite(path).path == str(path)


def test_the_shipped_suite_says_and_reasons_for_everything() -> None:
    suite = read_suite(shipped_suite("kimi-k2.5"))
    assert suite.max_quarantined_share == 0.05
    document = json.loads(Path(suite.path).read_text(encoding="utf-8"))
    for expectation, item in zip(suite.expectations, document["expectations"], strict=True):
        assert set(item["meta"]) == {"id", "says", "wrong", "why"}
        assert "severity" in item
        assert expectation.scope == "dataset" or expectation.mostly is not None, expectation.id


def test_an_unknown_shipped_suite_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no shipped suite 'kimi': expected one of .*kimi-k2\.5"):
        shipped_suite("kimi")


def test_reading_a_suite_imports_no_great_expectations() -> None:
    code = (
        "import sys, toolkit.audit.suite, toolkit.audit.conclude\n"
        "print([name for name in ('great_expectations', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
