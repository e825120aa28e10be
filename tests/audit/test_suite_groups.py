"""`for_each`: one expectation for each group, whatever its values look like."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.audit.gx.evaluate import evaluate
from toolkit.audit.suite import Suite, parse_suite
from toolkit.audit.suite_groups import MAX_GROUPS, label, narrowed
from toolkit.errors import SuiteError

from .test_evaluate import comparison, facts_of, nullity

HOSTILE = 'it\'s "B"\n\x1b[2J'


def suite_of(type_name: str, kwargs: dict[str, Any], **meta: Any) -> Suite:
    item = {"type": type_name, "kwargs": kwargs, "meta": {"id": "it", **meta}}
    return parse_suite(json.dumps({"name": "b3", "expectations": [item]}).encode(), "b3.json")


FACTS = facts_of(
    {"provider": "Chutes", "n_ids": 1},
    {"provider": HOSTILE, "n_ids": 0},
    {"provider": None, "n_ids": 0},
    {"provider": "Chutes", "n_ids": 0, "mode": "instant"},
    {"provider": "null", "n_ids": 5},
)
NOT_EMPTY = ("expect_column_values_to_be_between", {"column": "n_ids", "min_value": 1})


def test_each_group_is_judged_by_itself() -> None:
    evaluation = evaluate(suite_of(*NOT_EMPTY, for_each=["provider"]), FACTS)
    failing = {name: positions.tolist() for name, positions in evaluation.failing.items()}
    assert failing == {
        "it[provider=null]": [2],
        "it[provider=Chutes]": [3],
        'it[provider="it\'s \\"B\\"\\n\\u001b[2J"]': [1],
        'it[provider="null"]': [],
    }
    assert [result.element_count for result in evaluation.results] == [1, 2, 1, 1]
    assert all(result.id.isprintable() and result.description.isprintable() for result in evaluation.results)
    assert evaluation.results[1].description.endswith(", of provider=Chutes.")


def test_groups_of_several_columns_narrow_a_condition() -> None:
    condition = {"type": "or", "conditions": [comparison("turn", "==", 0), nullity("n_ids", is_null=True)]}
    suite = suite_of(NOT_EMPTY[0], {**NOT_EMPTY[1], "row_condition": condition}, for_each=["provider", "mode"])
    evaluation = evaluate(suite, FACTS)
    assert evaluation.failing["it[provider=Chutes,mode=instant]"].tolist() == [3]
    assert evaluation.failing["it[provider=Chutes,mode=thinking]"].tolist() == []


def test_expectations_of_the_dataset_have_groups_too() -> None:
    suite = suite_of("expect_column_mean_to_be_between", {"column": "n_ids", "min_value": 1}, for_each=["mode"])
    evaluation = evaluate(suite, FACTS)
    assert {result.id: (result.success, result.observed) for result in evaluation.results} == {
        "it[mode=instant]": (False, "0"),
        "it[mode=thinking]": (True, "1.5"),
    }


def test_no_row_has_no_group_and_fails() -> None:
    (result,) = evaluate(suite_of("expect_table_row_count_to_be_between", {"min_value": 1}), facts_of()).results
    assert (result.success, result.error) == (False, "no rows: nothing was checked")
    assert evaluate(suite_of(*NOT_EMPTY, for_each=["provider"]), facts_of()).results[0].success is False


def test_too_many_groups_are_refused() -> None:
    facts = facts_of(*({"provider": f"p{number}"} for number in range(MAX_GROUPS + 1)))
    with pytest.raises(SuiteError, match="expected at most 500 groups, found 501"):
        evaluate(suite_of(*NOT_EMPTY, for_each=["provider"]), facts)


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ("provider", "meta.for_each: expected a list of columns, found 'provider'"),
        ([], "meta.for_each: expected a list of columns, found []"),
        (["provder"], "meta.for_each: unknown column 'provder'; did you mean 'provider'?"),
        (["notes"], "meta.for_each: column 'notes' holds lists"),
        (["cost_usd"], "meta.for_each: expected a column of text, flags or whole numbers, found 'cost_usd'"),
        (["mode", "mode"], "meta.for_each: expected each column once"),
    ],
)
def test_a_faulty_for_each_is_refused(names: Any, fault: str) -> None:
    with pytest.raises(SuiteError) as caught:
        suite_of(*NOT_EMPTY, for_each=names)
    assert fault in str(caught.value)
    with pytest.raises(SuiteError, match="unknown key 'foreach'; did you mean 'for_each'"):
        suite_of(*NOT_EMPTY, foreach=["mode"])


@given(st.lists(st.none() | st.booleans() | st.integers() | st.text(), min_size=2, max_size=2, unique_by=repr))
def test_labels_are_printable_short_and_differ(values: list[Any]) -> None:
    told = [label(value) for value in values]
    assert told[0] != told[1]
    assert all(one.isprintable() and len(one) < 60 for one in told if not one.lstrip("-").isdigit())


def test_long_values_that_begin_alike_have_labels_of_their_own() -> None:
    assert label("x" * 5_000) != label("x" * 5_001)
    assert len(label("x" * 5_000)) < 60


def test_a_condition_within_and_stays_flat() -> None:
    both = {"type": "and", "conditions": [comparison("turn", "==", 0)]}
    assert narrowed(both, ["mode"], ("a",)) == {
        "type": "and",
        "conditions": [comparison("turn", "==", 0), comparison("mode", "==", "a")],
    }


def test_a_frame_without_the_column_is_refused() -> None:
    with pytest.raises(SuiteError, match="the column 'provider' is not in the table"):
        evaluate(suite_of(*NOT_EMPTY, for_each=["provider"]), pl.LazyFrame({"n_ids": [1]}))
