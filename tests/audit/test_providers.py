"""The providers table, its suite by Great Expectations, and what of both stands in a verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import toolkit.audit.providers
from tests.conftest import ROOT
from toolkit.audit.drift import find_drift
from toolkit.audit.gx.evaluate import evaluate
from toolkit.audit.learned import learned_from
from toolkit.audit.providers import provider_facts, provider_table
from toolkit.audit.suite import Suite, parse_suite, read_suite, shipped_suite
from toolkit.columns import PROVIDER_COLUMNS, PROVIDERS_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import SuiteError
from toolkit.findings import ProviderFacts

from .facts import fact, judged_facts, judged_of, numbered

CUT = {"truncated": True, "rebuild_status": "truncated", "n_terminal": 0, "finish_reason": "length"}
CALLS = {"finish_reason": "tool_calls", "n_tool_calls": 1, "n_tool_markers": 4}
SGLANG = {"source": "sglang", "provider": None, "ids_source": "engine"}


def lines_of(contract: Contract, rows: list[dict[str, Any]], **options: Any) -> dict[str, dict[str, Any]]:
    judged = judged_facts(contract, rows, **options)
    table = provider_table(judged, contract, find_drift(judged, contract))
    assert table.schema == PROVIDERS_SCHEMA
    return {line["name"]: line for line in table.to_pylist()}


def chutes(contract: Contract, *rows: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The line of Chutes, beside 100 good rows of Parasail."""
    others = [fact(provider="Parasail")] * 100
    return lines_of(contract, numbered([*rows, *others]), **options)["openrouter/Chutes"]


def some(line: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(round(v, 4) if isinstance(v := line[name], float) else v for name in names)


def test_the_record_is_the_schema() -> None:
    assert [field.name for field in fields(ProviderFacts)] == [column.name for column in PROVIDER_COLUMNS]


def test_the_page_lists_the_columns() -> None:
    page = (ROOT / "docs/providers.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [column.name for column in PROVIDER_COLUMNS]


def test_a_line_for_each_provider_and_mode(kimi: Contract) -> None:
    rows = [*[fact()] * 3, *[fact(**SGLANG)] * 2, fact(mode="instant", n_end_think=0), fact(provider=None)]
    judged = judged_facts(kimi, numbered(rows))
    lines = provider_table(judged, kimi, []).to_pylist()
    assert [some(line, "name", "mode", "rows", "share") for line in lines] == [
        ("openrouter/Chutes", "thinking", 3, 0.5),
        ("sglang", "thinking", 2, 0.3333),
        ("openrouter", "thinking", 1, 0.1667),
        ("openrouter/Chutes", "instant", 1, 1.0),
    ]
    assert some(lines[0], "proved_share", "unverified_share", "contradicted_share", "models") == (1.0, 0.0, 0.0, 1)
    assert lines[3]["empty_reasoning_share"] is None
    assert provider_facts(provider_table(judged, kimi, []), 2)[1].name == "sglang"


def test_finish_reasons_beside_all_others(kimi: Contract) -> None:
    line = chutes(kimi, *[fact()] * 70, *[fact(**CUT)] * 30)
    assert some(line, "finish_rows", "length_share", "length_gap", "length_z") == (100, 0.3, 0.3, 5.9409)
    assert some(line, "tool_calls_share", "tool_calls_gap", "tool_calls_z") == (0.0, 0.0, None)  # nobody called


def test_a_few_rows_are_listed_and_not_compared(kimi: Contract) -> None:
    line = chutes(kimi, *[fact(**CUT)] * 19)
    assert some(line, "rows", "length_share", "length_gap", "length_z", "ks_distance") == (19, 1.0, None, None, None)


def of_prompts(prompts: int, samples: int, **facts: Any) -> list[dict[str, Any]]:
    """Rows of a provider of that many prompts, each answered so many times; of 3 in 10 all answers are cut."""
    provider = facts.get("provider", "Chutes")
    return [
        fact(sample_id=f"{provider}-{prompt}", sample_index=sample, **(CUT if prompt % 10 < 3 else {}) | facts)
        for prompt in range(prompts)
        for sample in range(samples)
    ]


@pytest.mark.parametrize(("own", "others", "compared"), [(20, 20, True), (19, 20, False), (20, 19, False)])
def test_rows_of_a_few_prompts_are_listed_and_not_compared(
    kimi: Contract, own: int, others: int, *, compared: bool
) -> None:
    rows = [*of_prompts(own, 30), *of_prompts(others, 30, provider="Parasail", n_ids=80, completion_tokens=80)]
    line = lines_of(kimi, rows)["openrouter/Chutes"]
    names = ("length_gap", "length_z", "tool_calls_gap", "ks_distance", "ks_p", "median_ratio")
    assert {name: line[name] is not None for name in names} == dict.fromkeys(names, compared)
    assert line["rows"] == 30 * own


def test_samples_of_one_prompt_count_for_what_they_say_together(kimi: Contract) -> None:
    whole = [fact(provider="Parasail", sample_id=f"q{i}", sample_index=0) for i in range(4_000)]
    once, often = (lines_of(kimi, [*of_prompts(100, samples), *whole])["openrouter/Chutes"] for samples in (1, 16))
    assert once["length_share"] == often["length_share"] == 0.3
    # 16 answers to each of 100 prompts, all alike, are 100 answers; pooled with others they weigh as what they are.
    naive = lines_of(kimi, [*numbered(of_prompts(100, 16)), *whole])["openrouter/Chutes"]["length_z"]
    assert naive / often["length_z"] == pytest.approx(4, rel=0.01)


def test_one_prompt_with_most_of_the_rows_is_no_comparison(kimi: Contract) -> None:
    others = of_prompts(400, 1, provider="Parasail")
    long = [fact(sample_id="long", turn=turn, **CUT) for turn in range(1_000)]
    line = lines_of(kimi, [*of_prompts(60, 1), *long, *others])["openrouter/Chutes"]
    assert some(line, "rows", "length_gap", "length_z", "ks_distance", "ks_p") == (1_060, None, None, None, None)


def test_prompts_count_where_they_have_what_is_compared(kimi: Contract) -> None:
    silent = {"finish_reason": None, "n_ids": None, "completion_tokens": None, "count": None}
    rows = [*of_prompts(20, 1), *[fact(sample_id="Chutes-0", sample_index=i, **CUT) for i in range(1, 60)]]
    rows = [row if row["sample_id"] == "Chutes-0" else row | silent for row in rows]
    line = lines_of(kimi, [*rows, *of_prompts(400, 1, provider="Parasail")])["openrouter/Chutes"]
    assert some(line, "finish_rows", "length_gap", "length_z") == (60, None, None)


def test_a_rare_thing_that_a_few_prompts_do_not_show_tells_nothing(kimi: Contract) -> None:
    whole = [fact(sample_id=f"q{i}", sample_index=s) for i in range(20) for s in range(16)]
    others = [fact(provider="Parasail", sample_id=f"p{i}", **(CUT if i % 10 == 0 else {})) for i in range(2_000)]
    line = lines_of(kimi, [*whole, *others])["openrouter/Chutes"]
    assert some(line, "length_share", "length_z") == (0.0, None)
    assert line["length_gap"] == pytest.approx(-0.1)


def test_of_equal_lines_the_first_are_compared(kimi: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit.audit.providers, "MAX_COMPARED", 3)
    rows = [row for name in "dbcae" for row in of_prompts(20, 1, provider=name)]
    lines = lines_of(kimi, rows)
    assert [name for name, line in lines.items() if line["length_gap"] is not None] == [
        f"openrouter/{name}" for name in "abc"
    ]
    assert [name for name, line in lines.items() if line["ks_distance"] is not None] == [
        f"openrouter/{name}" for name in "abc"
    ]


def test_alone_in_its_mode_nothing_is_compared(kimi: Contract) -> None:
    line = lines_of(kimi, numbered([fact()] * 400))["openrouter/Chutes"]
    assert some(line, "length_gap", "ks_distance", "median_ratio", "other_rows", "share") == (None, None, None, 0, 1.0)


def test_lengths_beside_all_others(kimi: Contract) -> None:
    line = chutes(kimi, *[fact(n_ids=80, completion_tokens=80)] * 50)
    assert some(line, "measured_rows", "other_rows", "median_ids", "median_ratio", "ks_distance") == (
        50, 100, 80.0, 2.0, 1.0,
    )  # fmt: skip
    assert line["ks_p"] < 1e-20


def test_empty_parts_and_markers(kimi: Contract) -> None:
    rows = [
        fact(reasoning_leading_space=None),
        fact(content_leading_space=None),
        fact(content_leading_space=None, **CUT),  # cut before it began
        fact(content_leading_space=None, **CALLS),
        fact(rebuild_status="answer_missing", ids_source=None, n_ids=None, n_terminal=None, n_end_think=None),
        fact(notes=["cut_tail", "marker_in_content"]),
    ]
    line = chutes(kimi, *rows)
    assert some(line, "empty_reasoning_share", "empty_answer_share", "marker_rows") == (0.1667, 0.3333, 1)


def test_calls_as_their_schemas_declare(kimi: Contract) -> None:
    no_ids = {"ids_source": None, "n_ids": None, "n_terminal": None, "n_end_think": None, "n_tool_markers": None}
    rows = [
        *[fact(**CALLS)] * 6,
        fact(**CALLS, tool_fault="tool_schema"),
        fact(**CALLS, tool_fault="tool_arguments"),
        fact(**CALLS | {"n_tool_calls": 0, "n_tool_markers": 0}),  # says it calls, and does not
        fact(**CALLS, tool_fault="tool_id"),
        fact(**CALLS | no_ids | {"n_tool_calls": None, "rebuild_status": "ambiguous"}),
        fact(**CALLS | no_ids | {"n_tool_calls": None, "rebuild_status": "answer_missing"}),
        fact(),
    ]
    line = chutes(kimi, *rows)
    assert some(line, "tool_rows", "schema_ok_rows", "tool_id_faults") == (11, 7, 1)
    assert some(line, "schema_lower", "schema_upper") == (0.3538, 0.8483)


def test_counts_that_are_off_by_more_than_one(kimi: Contract) -> None:
    line = chutes(kimi, *[fact()] * 97, fact(count=1), fact(count=7), fact(count=-9), fact(count=None))
    assert some(line, "usage_rows", "usage_drift_share") == (100, 0.02)


def test_what_it_costs_and_how_long_it_takes(kimi: Contract) -> None:
    rows = [fact(cost_usd=0.0001, latency_s=float(i + 1)) for i in range(100)]
    line = chutes(kimi, *rows, fact(cost_usd=None), fact(cost_usd=5.0, count=None))
    assert some(line, "cost_per_million_usd", "latency_p50_s", "latency_p95_s") == (2.5, 50.0, 95.0)
    assert some(chutes(kimi, fact()), "cost_per_million_usd", "latency_p50_s") == (None, None)


def test_who_it_is(kimi: Contract) -> None:
    rows = [*[fact()] * 2, fact(model="kimi-k2.5"), fact(model="moonshotai/kimi-k2-thinking"), fact(model=None)]
    line = chutes(kimi, *rows, allowed_providers=("parasail",))
    assert some(line, "models", "foreign_model_rows", "not_allowed_rows") == (3, 1, 5)


def test_triggers_on_shared_prompts_alone(kimi: Contract) -> None:
    """The engine calls on a, b, c; Chutes on b, c, d: two right, one too many, one missed."""
    engine = [fact(**SGLANG | (CALLS if s in "abc" else {})) | {"sample_id": s, "probe": True} for s in "abcde"]
    own = [fact(**(CALLS if s in "bcd" else {})) | {"sample_id": s} for s in "abcde"]
    again = [fact(sample_id=s, sample_index=1) for s in "abcde"]  # the first answer counts
    alone = [fact(sample_id=f"x{i}", **CALLS) for i in range(50)]
    cut = [fact(sample_id="f", **CUT), fact(sample_id="f", **SGLANG, **CALLS)]
    lines = lines_of(kimi, [*again, *alone, *own, *engine, *cut])
    names = ("trigger_reference", "trigger_prompts", "trigger_calls", "trigger_f1")
    assert some(lines["openrouter/Chutes"], *names) == ("sglang", 5, 4, 0.6667)
    assert some(lines["sglang"], *names) == (None, 0, 0, None)
    assert some(chutes(kimi, fact(**CALLS)), *names) == (None, 0, 0, None)


def test_a_change_of_counting_is_counted(kimi: Contract) -> None:
    assert chutes(kimi, *[fact(count=1)] * 40, *[fact()] * 40)["convention_changes"] == 1
    assert chutes(kimi, *[fact()] * 80)["convention_changes"] == 0


def test_any_number_of_names(kimi: Contract) -> None:
    rows = [fact(provider=f"p{i}") for i in range(500)] + [fact(provider=f"q{i % 100}") for i in range(2_000)]
    judged = judged_of(kimi, numbered(rows))
    table = provider_table(judged.facts, kimi, [])
    assert table.num_rows == 600
    learned = learned_from(judged, [], table, [])
    assert len(learned.providers) == len(learned.conventions) == 200
    assert learned.left_off == {"conventions": 400, "providers": 400}


# --- the suite --------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "name": "openrouter/Chutes", "source": "openrouter", "provider": "Chutes", "mode": "thinking", "rows": 5_000,
    "share": 0.5, "models": 1, "foreign_model_rows": 0, "not_allowed_rows": 0, "proved_share": 1.0,
    "unverified_share": 0.0, "contradicted_share": 0.0, "finish_rows": 5_000, "length_share": 0.02, "length_gap": 0.0,
    "length_z": 5.0, "tool_calls_share": 0.3, "tool_calls_gap": 0.0, "tool_calls_z": 5.0, "measured_rows": 5_000,
    "other_rows": 5_000, "median_ids": 600.0, "median_ratio": 1.0, "ks_distance": 0.02, "ks_p": 1e-9,
    "empty_reasoning_share": 0.0, "empty_answer_share": 0.0, "marker_rows": 0, "tool_rows": 1_500,
    "schema_ok_rows": 1_500, "schema_lower": 0.99, "schema_upper": 1.0, "tool_id_faults": 0,
    "trigger_reference": "sglang", "trigger_prompts": 2_500, "trigger_calls": 900, "trigger_f1": 0.76,
    "usage_rows": 5_000, "usage_drift_share": 0.0, "convention_changes": 0, "cost_per_million_usd": 2.5,
    "latency_p50_s": 9.0, "latency_p95_s": 30.0,
}  # fmt: skip

# expectation → (a line that fails it, the same line where too little is known to judge it)
BAD: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "provider_on_list": ({"not_allowed_rows": 20}, {"not_allowed_rows": 19, "rows": 19}),
    "model_is_the_contracts": ({"foreign_model_rows": 1, "rows": 1}, None),
    "one_model_name": ({"models": 2}, {"models": 2, "rows": 19}),
    "cut_as_often": ({"length_gap": 0.06}, {"length_gap": 0.06, "length_z": 3.9}),
    "calls_as_often": ({"tool_calls_gap": -0.06}, {"tool_calls_gap": -0.06, "tool_calls_z": 3.9}),
    "lengths_alike": ({"ks_distance": 0.11}, {"ks_distance": 0.11, "measured_rows": 299}),
    "median_alike": ({"median_ratio": 0.79}, {"median_ratio": 0.79, "other_rows": 299}),
    "reasoning_there": ({"empty_reasoning_share": 0.006}, {"empty_reasoning_share": 0.006, "rows": 199}),
    "answers_there": ({"empty_answer_share": 0.003}, {"empty_answer_share": 0.003, "rows": 499}),
    "markers_absent": ({"marker_rows": 1}, {"marker_rows": 1, "rows": 19}),
    "schemas_held": ({"schema_upper": 0.949}, {"schema_upper": 0.949, "tool_rows": 149}),
    "tool_ids_of_form": ({"tool_id_faults": 1}, {"tool_id_faults": 1, "rows": 19}),
    "triggers_as_reference": (
        {"trigger_f1": 0.69, "trigger_prompts": 500}, {"trigger_f1": 0.69, "trigger_prompts": 499},
    ),
    "triggers_as_reference_2000": ({"trigger_f1": 0.72}, {"trigger_f1": 0.72, "trigger_prompts": 1_999}),
    "usage_held": ({"usage_drift_share": 0.006}, {"usage_drift_share": 0.006, "usage_rows": 199}),
    "counting_steady": ({"convention_changes": 1}, None),
}  # fmt: skip


@pytest.fixture(scope="module")
def suite() -> Suite:
    return read_suite(shipped_suite("providers"))


def failing(suite: Suite, *changes: Mapping[str, Any]) -> dict[str, str | None]:
    table = pa.Table.from_pylist([GOOD | change for change in changes], schema=PROVIDERS_SCHEMA)
    evaluation = evaluate(suite, table)
    assert not any(len(found) for found in evaluation.failing.values())
    assert {(r.scope, r.error, r.element_count) for r in evaluation.results} == {("dataset", None, None)}
    return {result.id: result.observed for result in evaluation.results if not result.success}


def test_every_expectation_of_the_suite_is_made_to_fail(suite: Suite) -> None:
    assert failing(suite, {}) == {}
    assert failing(suite, *({"name": f"p{i}"} for i in range(201))) == {"lines_bounded": "201"}
    for name, (bad, unjudged) in BAD.items():
        assert list(failing(suite, bad, {})) == [name]
        if unjudged is not None:
            assert name not in failing(suite, unjudged)
    assert {"lines_bounded", *BAD} == {expectation.id for expectation in suite.expectations}


def test_a_median_is_judged_where_chance_is_ruled_out(suite: Suite) -> None:
    assert list(failing(suite, {"median_ratio": 1.3})) == ["median_alike"]
    assert failing(suite, {"median_ratio": 1.3, "ks_p": 0.001}) == {}


def test_a_failing_line_is_named_with_its_value(suite: Suite) -> None:
    named = failing(
        suite, {"ks_distance": 0.3125}, {"name": "openrouter/Good"}, {"ks_distance": 0.2, "mode": "instant"}
    )
    assert named == {"lengths_alike": "openrouter/Chutes (thinking): 0.3125; openrouter/Chutes (instant): 0.2"}
    many = failing(suite, *({"name": f"p{i}", "models": 2} for i in range(8)))["one_model_name"]
    assert many is not None
    assert many.endswith("p4 (thinking): 2; and 3 more")


def test_only_list_and_identity_close_the_gate(suite: Suite) -> None:
    critical = {e.id for e in suite.expectations if e.severity == "critical"}
    assert critical == {"provider_on_list", "model_is_the_contracts"}
    assert all(expectation.why for expectation in suite.expectations)


def test_no_lines_fail(suite: Suite) -> None:
    assert {r.error for r in evaluate(suite, PROVIDERS_SCHEMA.empty_table()).results} == {
        "no rows: nothing was checked"
    }


@pytest.mark.parametrize(
    ("settings", "column", "says"),
    [
        ({"table": "providers"}, "n_ids", "unknown column 'n_ids'"),
        ({}, "ks_distance", "unknown column 'ks_distance'"),
        ({"table": "rows"}, "ks_distance", "unknown column 'ks_distance'"),
        ({"table": "provider"}, "ks_distance", "meta.tokenproof.table: expected one of rows, providers"),
        ({"table": ["providers"]}, "ks_distance", "meta.tokenproof.table: expected one of rows, providers"),
        ({"table": "providers", "max_quarantined_share": 0.1}, "ks_distance", "puts no row into quarantine"),
        ({"tabel": "providers"}, "ks_distance", "unknown key 'tabel'; did you mean 'table'?"),
    ],
)
def test_a_suite_that_names_another_table_is_refused(settings: dict[str, Any], column: str, says: str) -> None:
    item = {"type": "expect_column_values_to_be_between", "kwargs": {"column": column, "max_value": 1}}
    document = {"name": "b3", "expectations": [item], "meta": {"tokenproof": settings}}
    with pytest.raises(SuiteError, match=re.escape(says)):
        parse_suite(json.dumps(document).encode(), "b3.json")


def test_conditions_read_the_same_table() -> None:
    kwargs = {
        "column": "ks_distance", "max_value": 1,
        "row_condition": {"type": "comparison", "column": {"name": "n_ids"}, "operator": ">", "parameter": 1},
    }  # fmt: skip
    document = {
        "name": "b3",
        "expectations": [{"type": "expect_column_values_to_be_between", "kwargs": kwargs}],
        "meta": {"tokenproof": {"table": "providers"}},
    }
    with pytest.raises(SuiteError, match=r"row_condition\.column: unknown column 'n_ids'"):
        parse_suite(json.dumps(document).encode(), "b3.json")


def test_a_provider_of_other_lengths_is_found_end_to_end(kimi: Contract, suite: Suite) -> None:
    """Four providers, one of which answers a quarter shorter."""
    draw = np.random.default_rng(5)
    rows = []
    for provider in ("Chutes", "Parasail", "Inceptron", "Novita"):
        factor = 0.75 if provider == "Novita" else 1.0
        for size in (draw.lognormal(6, 0.7, 600) * factor).astype(int) + 10:
            rows.append(fact(provider=provider, n_ids=int(size), completion_tokens=int(size)))
    judged = judged_facts(kimi, numbered(rows))
    results = evaluate(suite, provider_table(judged, kimi, [])).results
    found = {r.id: r.observed or "" for r in results if not r.success}
    assert set(found) == {"lengths_alike", "median_alike"}
    assert all(told.startswith("openrouter/Novita (thinking)") and ";" not in told for told in found.values())
