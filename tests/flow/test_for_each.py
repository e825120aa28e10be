"""`for_each` from the suite to the merge: each provider by itself, whatever it is called."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.audit.shard_rows import row
from tests.audit.workspace import Bench, make_bench, write_suite
from tests.merge.gates import merge
from toolkit.audit.suite_groups import label
from toolkit.errors import GateClosed
from toolkit.inspection.inspecting import inspect
from toolkit.records import ExpectationResult, Verdict
from toolkit.report.html import render_html
from toolkit.report.junit import render_junit
from toolkit.report.summary import render_summary
from toolkit.rows import RowBuilder
from toolkit.store.listing import seal_rows
from toolkit.store.verdicts import read_verdict
from toolkit.vocabulary import Vocabulary

HOSTILE = '<script>alert(1)</script>\x1b[2J\u202e\n]]> it\'s "B" `x` | ${y}'
WHOLE_EACH = {
    "type": "expect_column_mean_to_be_between",
    "kwargs": {"column": "truncated", "max_value": 0.9},
    "meta": {"id": "whole", "says": "Most answers are whole.", "for_each": ["provider"]},
}
TEXT_EACH = {
    "type": "expect_column_values_to_be_in_set",
    "kwargs": {"column": "text_equal", "value_set": [True], "mostly": 0.8},
    "meta": {"id": "text", "says": "Ids stand for the text.", "for_each": ["provider", "mode"]},
}


def bench_of(root: Path, vocabulary: Vocabulary, rows: Mapping[str | None, Sequence[bool]], *items: Any) -> Bench:
    """Ten good rows of Chutes, and rows of other providers, good (True) or with an id that is not the text's."""
    bench = make_bench(root, vocabulary, rows=10, bad=())
    builder = RowBuilder(vocabulary.contract, vocabulary)
    made = []
    for provider, kinds in rows.items():
        for number, good in enumerate(kinds):
            text = {"reasoning": f"So {number}.", "content": f"It is {number}."}
            head = {"provider": provider}
            one = row(builder, text, sample_id=f"{provider}/{number}", usage={"completion_tokens": None}, head=head)
            ids = [int(i) for i in one["output_ids"]]
            made.append(one | ({} if good else {"output_ids": [ids[0] + 1, *ids[1:]]}))
    seal_rows(bench.dataset, made, contract=vocabulary.contract.name)
    bench.accounting = replace(bench.accounting, rows=10 + len(made))
    bench.suites = [write_suite(root / "expectations/each.json", *(items or (WHOLE_EACH, TEXT_EACH)), share=0.5)]
    return bench


def results_of(verdict: Verdict) -> dict[str, ExpectationResult]:
    return {result.id: result for run in verdict.suites for result in run.results}


def test_each_provider_has_a_result_of_its_own(tmp_path: Path, vocabulary: Vocabulary) -> None:
    bench = bench_of(tmp_path, vocabulary, {HOSTILE: [True] * 5 + [False], "null": [True], None: [True]})
    verdict = bench.audit()
    found = results_of(verdict)
    assert verdict.passed, verdict.reasons
    assert sorted(found) == sorted(
        [
            *(f"whole[provider={label(name)}]" for name in ("Chutes", HOSTILE, "null", None)),
            *(f"text[provider={label(name)},mode=thinking]" for name in ("Chutes", HOSTILE, "null", None)),
        ]
    )
    hostile = found[f"text[provider={label(HOSTILE)},mode=thinking]"]
    assert (hostile.element_count, hostile.unexpected_count, hostile.success) == (6, 1, True)
    assert all(name.isprintable() for name in found)
    quarantined = pq.read_table(bench.dataset.quarantine).to_pylist()
    assert [one["reasons"] for one in quarantined] == [[hostile.id]]
    assert read_verdict(bench.dataset.verdict) == verdict


def test_reports_name_groups_and_run_nothing(tmp_path: Path, vocabulary: Vocabulary) -> None:
    bench = bench_of(tmp_path, vocabulary, {HOSTILE: [True, False, False]})
    verdict = bench.audit()
    assert not verdict.passed
    page = render_html(verdict, inspect(bench.dataset, verdict, bench.contract, bench.load), None)
    assert "<script>alert" not in page
    assert "\x1b" not in page
    junit = render_junit(verdict)
    failed = [case.get("name") for case in ET.fromstring(junit).iter("testcase") if case.findall("failure")]
    assert any(name.startswith('text[provider="<script>') for name in failed if name)
    summary = render_summary(verdict)
    assert "\x1b" not in summary
    assert "<script>" not in re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", summary), "but within code"


def test_the_gate_and_the_merge_come_to_the_same(tmp_path: Path, vocabulary: Vocabulary) -> None:
    bench = bench_of(tmp_path, vocabulary, {HOSTILE: [True] * 5 + [False], None: [True]})
    verdict = bench.audit()
    gate = bench.gate()
    assert gate.verdict == verdict
    assert merge([gate], tmp_path / "train").totals.written == verdict.rows - 1


def test_a_group_that_fails_closes_the_gate(tmp_path: Path, vocabulary: Vocabulary) -> None:
    bench = bench_of(tmp_path, vocabulary, {"B": [True, False, False]})
    assert [one for one in bench.audit().reasons if "text[provider=B,mode=thinking]" in one]
    with pytest.raises(GateClosed, match=r"text\[provider=B,mode=thinking\]"):
        bench.gate()


def test_a_group_of_which_no_row_remains_is_not_read_as_passed(tmp_path: Path, vocabulary: Vocabulary) -> None:
    every_row = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "text_equal", "value_set": [True], "mostly": 0.5},
        "meta": {"id": "text", "says": "Ids stand for the text."},
    }
    bench = bench_of(tmp_path, vocabulary, {"B": [False, False]}, WHOLE_EACH, every_row)
    verdict = bench.audit()
    found = results_of(verdict)
    assert found["text"].success
    assert found["whole[provider=Chutes]"].success_after_quarantine is True
    gone = found["whole[provider=B]"]
    assert (gone.success, gone.success_after_quarantine) == (True, False)
    assert verdict.reasons == ("whole[provider=B]: holds for all rows, but not for those that remain after quarantine",)
    with pytest.raises(GateClosed, match="remain after quarantine"):
        bench.gate()


def test_a_verdict_that_hides_what_was_not_evaluated_is_not_believed(tmp_path: Path, vocabulary: Vocabulary) -> None:
    bench = bench_of(tmp_path, vocabulary, {"B": [True]})
    verdict = bench.audit()
    (run,) = verdict.suites
    hidden = tuple(replace(result, success_after_quarantine=None) for result in run.results)
    bench.rewrite(suites=(replace(run, results=hidden),))
    with pytest.raises(GateClosed, match="was not evaluated on the rows that remain after quarantine"):
        bench.gate()
