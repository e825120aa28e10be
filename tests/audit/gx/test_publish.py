"""Great Expectations' own result of an audit: true, whole, valid JSON, and harmless on pages."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.audit.test_evaluate import facts_of
from toolkit.audit.gx.evaluate import Evaluation, evaluate
from toolkit.audit.gx.publish import MAX_LISTED, build_docs, document
from toolkit.audit.suite import parse_suite

HOSTILE = '<script>alert(1)</script><img src=x onerror="a()"> $column ${x} {{y}} </td>\x1b[2J\u202e'


def evaluation_of(facts: Any, *items: dict[str, Any], name: str = "b3") -> Evaluation:
    content = {"name": name, "expectations": list(items)}
    return evaluate(parse_suite(json.dumps(content).encode(), "b3.json"), facts)


def item(kind: str, id_: str, meta: dict[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
    return {"type": f"expect_{kind}", "kwargs": kwargs, "meta": {"id": id_, **(meta or {})}}


ITEMS = (
    item("column_values_to_be_in_set", "known", column="provider", value_set=["Chutes"]),
    item("column_values_to_be_between", "each", {"for_each": ["provider"]}, column="n_ids", min_value=1),
    item("column_distinct_values_to_be_in_set", "all", column="provider", value_set=["Chutes"]),
    item(
        "column_pair_values_to_be_equal",
        "pair",
        column_A="provider",
        column_B="source",
        ignore_row_if="either_value_is_missing",
    ),
    item("compound_columns_to_be_unique", "once", column_list=["source", "n_ids"]),
)
FACTS = facts_of(
    {"provider": "Chutes", "n_ids": 1, "sample_id": "a"},
    *({"provider": HOSTILE, "n_ids": 0, "sample_id": f"h{number}"} for number in range(30)),
)


def by_id(found: dict[str, Any]) -> dict[str, Any]:
    return {one["expectation_config"]["meta"]["id"]: one for one in found["results"]}


def test_a_document_is_what_the_audit_found() -> None:
    evaluation = evaluation_of(FACTS, *ITEMS)
    found = json.loads(json.dumps(document(evaluation, "B3"), allow_nan=False))
    assert [one["expectation_config"]["meta"]["id"] for one in found["results"]] == [r.id for r in evaluation.results]
    assert [one["success"] for one in found["results"]] == [r.success for r in evaluation.results]
    assert (found["success"], found["suite_name"]) == (False, "b3")
    assert found["statistics"]["evaluated_expectations"] == len(evaluation.results)
    assert found["statistics"]["successful_expectations"] == sum(r.success for r in evaluation.results)
    assert found["meta"]["tokenproof"] == {"dataset": "B3"}
    known = by_id(found)["known"]["result"]
    assert (known["element_count"], known["unexpected_count"]) == (31, 30)
    assert known["partial_unexpected_list"] == [HOSTILE] * MAX_LISTED
    assert known["partial_unexpected_counts"] == [{"value": HOSTILE, "count": MAX_LISTED}]
    assert known["partial_unexpected_index_list"][0]["sample_id"] == "h0"
    assert by_id(found)["pair"]["result"]["partial_unexpected_list"][1][0] == HOSTILE
    assert by_id(found)["once"]["result"]["partial_unexpected_list"][0] == ["openrouter", 0]


def test_the_evaluation_stays_as_it_was() -> None:
    evaluation = evaluation_of(FACTS, *ITEMS)
    document(evaluation, "B3")
    again = document(evaluation, "B3")
    assert evaluation.failing["known"].tolist() == list(range(1, 31))
    assert by_id(again)["known"]["result"]["partial_unexpected_list"] == [HOSTILE] * MAX_LISTED


def test_of_no_rows_nothing_is_a_success() -> None:
    found = document(evaluation_of(facts_of(), ITEMS[0], ITEMS[2]), "B3")
    assert found["success"] is False
    assert [one["success"] for one in found["results"]] == [False, False]
    assert {one["exception_info"]["exception_message"] for one in found["results"]} == {"no rows: nothing was checked"}


def test_fractions_that_are_no_number_are_valid_json() -> None:
    facts = facts_of({"count_difference": None, "latency_s": float("inf")}, {"latency_s": 1.0})
    found = document(evaluation_of(facts, item("column_max_to_be_between", "m", column="latency_s", max_value=9)), "B3")
    assert "Infinity" not in json.dumps(found)
    json.dumps(found, allow_nan=False)


def test_what_raised_is_told_without_folders_of_this_machine() -> None:
    evaluation = evaluation_of(pl.LazyFrame({"n_ids": [1]}), ITEMS[0])
    (one,) = document(evaluation, "B3")["results"]
    assert (one["success"], evaluation.results[0].success) == (False, False)
    assert "does not exist" in json.dumps(one)
    assert "Traceback" not in json.dumps(one)
    assert 'File "' not in json.dumps(one)


def test_pages_show_everything_and_run_nothing(tmp_path: Path) -> None:
    documents = [
        document(evaluation_of(FACTS, *ITEMS), "B3"),
        document(evaluation_of(FACTS, *ITEMS, name="../../b3.<b>"), "B3"),
        document(evaluation_of(FACTS, ITEMS[0]), "B4"),
    ]
    site = tmp_path / "inner" / "site"
    site.mkdir(parents=True)
    build_docs(site, documents)
    pages = {path.relative_to(site): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    validations = {path: text for path, text in pages.items() if path.parts[0] == "validations"}
    assert len(validations) == 3
    assert {"B3", "B4"} <= {part for path in validations for part in path.parts}
    for text in pages.values():
        assert not re.search(r"<script>alert|<img src=x|</td>\s*\x1b", text)
    assert all("‹script›alert(1)‹/script›" in text for text in validations.values())
    assert [path.name for path in (tmp_path / "inner").iterdir()] == ["site"]
    assert (site / "index.html").is_file()


@pytest.mark.parametrize("operator", ["<", ">="])
def test_operators_of_conditions_stay(tmp_path: Path, operator: str) -> None:
    condition = {"type": "comparison", "column": {"name": "n_ids"}, "operator": operator, "parameter": 3}
    kwargs = {"column": "n_ids", "min_value": 0, "row_condition": condition}
    only = {"type": "expect_column_values_to_be_between", "kwargs": kwargs, "meta": {"id": "bound"}}
    build_docs(tmp_path, [document(evaluation_of(FACTS, only), "B3")])
    (page,) = (tmp_path / "validations").rglob("*.html")
    shown = html.unescape(page.read_text(encoding="utf-8"))
    assert re.search(rf"n_ids\W+{re.escape(operator)}\W+3", re.sub("<span[^>]*>|</span>", "", shown)), shown
