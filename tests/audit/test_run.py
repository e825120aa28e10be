"""The audit as a whole: what is there when it ends, and what is not when it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolkit.errors import StoreError, SuiteError
from toolkit.records import Standing, Verdict
from toolkit.report.outcome import outcome_of, reasons_of
from toolkit.report.steps import next_steps
from toolkit.store.files import sha256_of
from toolkit.store.shards import LiveShards, read_live, write_live
from toolkit.store.verdicts import REPORT_NAMES, read_verdict
from toolkit.vocabulary import Vocabulary

from .workspace import SHORT, TEXT_STANDS, Bench, make_bench, write_suite


@pytest.fixture
def bench(tmp_path: Path, vocabulary: Vocabulary) -> Bench:
    return make_bench(tmp_path, vocabulary)


def left(bench: Bench) -> list[str]:
    """What lies in the dataset's reports."""
    if not bench.dataset.reports.exists():
        return []
    return sorted(path.name for path in bench.dataset.reports.iterdir() if not path.name.startswith("."))


def write_page(bench: Bench) -> None:
    for name in REPORT_NAMES:
        (bench.dataset.reports / name).write_text("PASSED", encoding="utf-8")


def test_what_an_audit_leaves(bench: Bench) -> None:
    bench.dataset.prompts.write_text("{}", encoding="utf-8")
    bench.providers = ("Chutes",)
    verdict = bench.audit(report=lambda _: write_page(bench))
    assert read_verdict(bench.dataset.verdict) == verdict
    assert left(bench) == sorted([*REPORT_NAMES, "quarantine.parquet", "verdict.json"])
    assert (verdict.passed, verdict.complete, verdict.rows, verdict.quarantined) == (True, True, 20, 1)
    assert verdict.prompts_sha256 == sha256_of(bench.dataset.prompts)
    assert verdict.allowed_providers == ("Chutes",)
    assert list(verdict.facts) == [shard.sha256 for shard in read_live(bench.dataset).shards]
    assert {sha256_of(path) for path in bench.dataset.facts.glob("*.parquet")} == set(verdict.facts.values())
    (run,) = verdict.suites
    assert (run.path, run.standing) == ("expectations/small.json", Standing.OWN)


def test_the_verdict_is_written_when_everything_else_lies_there(bench: Bench) -> None:
    seen: list[list[str]] = []

    def report(_: Verdict) -> None:
        write_page(bench)
        seen.append(left(bench))

    bench.audit(report=report)
    assert seen == [sorted([*REPORT_NAMES, "quarantine.parquet"])]


def test_reports_that_cannot_be_written_leave_no_verdict(bench: Bench) -> None:
    bench.audit(report=lambda _: write_page(bench))

    def report(_: Verdict) -> None:
        (bench.dataset.reports / REPORT_NAMES[0]).write_text("PASSED", encoding="utf-8")
        raise StoreError("index.html: cannot be written")

    with pytest.raises(StoreError, match="index"):
        bench.audit(report=report)
    assert left(bench) == [], "nor anything that says passed"


@pytest.mark.parametrize("fault", ["shards.json", "suite"])
def test_an_audit_that_fails_leaves_no_earlier_verdict(bench: Bench, fault: str) -> None:
    bench.audit(report=lambda _: write_page(bench))
    if fault == "shards.json":
        bench.dataset.live.unlink()
    else:
        write_suite(bench.suites[0], {**TEXT_STANDS, "type": "expect_colum_values_to_be_in_set"})
    with pytest.raises((StoreError, SuiteError)):
        bench.audit()
    assert left(bench) == []


@pytest.mark.parametrize(
    ("expectation", "says"),
    [
        (
            {**TEXT_STANDS, "type": "expect_colum_values_to_be_in_set"},
            r"expectations\[1\] \(text_stands\): unknown type",
        ),
        ({**SHORT, "kwargs": {"column": "n_ids", "max_valu": 1}}, r"expectations\[1\] \(short\): "),
    ],
)
def test_a_faulty_suite_is_refused_before_any_facts_are_kept(
    bench: Bench, expectation: dict[str, object], says: str
) -> None:
    other = {**TEXT_STANDS, "meta": {"id": "first"}}
    write_suite(bench.suites[0], other, expectation)
    with pytest.raises(SuiteError, match=says):
        bench.audit()
    assert not list(bench.dataset.facts.glob("*"))
    assert left(bench) == []


# --- facts that are kept --------------------------------------------------------------------------------


def test_an_unchanged_shard_is_measured_once(bench: Bench) -> None:
    assert bench.audit().measured_shards == 2
    assert bench.audit().measured_shards == 0
    assert bench.told == []


@pytest.mark.parametrize("with_receipt", [False, True])
def test_kept_facts_that_were_altered_are_measured_again_with_a_word(bench: Bench, with_receipt: bool) -> None:
    first = bench.audit()
    bench.alter_facts("text_equal", True, with_receipt=with_receipt)
    second = bench.audit()
    assert second.measured_shards == 1
    assert (second.suites, second.quarantined, second.facts) == (first.suites, 1, first.facts)
    (told,) = bench.told
    assert told.endswith("measured again")
    assert ("row 3: text_equal: kept as True, measured as False" in told) == with_receipt


# --- shards that cannot be read -------------------------------------------------------------------------


def test_a_damaged_shard_is_one_reason_beside_what_the_others_say(bench: Bench) -> None:
    shard = read_live(bench.dataset).shards[0]
    path = bench.dataset.folder / shard.path
    path.write_bytes(path.read_bytes()[:100])
    verdict = bench.audit()
    (reason,) = verdict.reasons
    assert reason.startswith("unreadable: B3/shards/part-00000.parquet: expected sha256 ")
    assert (verdict.rows, verdict.passed, verdict.complete) == (10, False, False)


def test_where_no_shard_can_be_read_there_is_a_reason_for_each_and_none_beside(bench: Bench) -> None:
    for shard in read_live(bench.dataset).shards:
        (bench.dataset.folder / shard.path).unlink()
    verdict = bench.audit()
    assert [reason.rpartition(": ")[2] for reason in verdict.reasons] == [
        "missing; shards.json lists it with 10 rows"
    ] * 2
    assert (verdict.rows, verdict.passed) == (0, False)


def test_shards_of_another_contract_are_one_reason(bench: Bench) -> None:
    write_live(bench.dataset, LiveShards("gpt-oss", read_live(bench.dataset).shards))
    verdict = bench.audit()
    assert verdict.reasons == ("unreadable: B3/shards.json: expected rows of contract kimi-k2.5, found gpt-oss",)
    assert bench.loaded == 0


def test_a_shard_file_that_is_not_listed_is_told(bench: Bench) -> None:
    path = bench.dataset.folder / read_live(bench.dataset).shards[0].path
    (path.parent / "part-00009.parquet").write_bytes(path.read_bytes())
    verdict = bench.audit()
    assert verdict.strays == ("part-00009.parquet",)
    assert not verdict.complete
    assert outcome_of(verdict).word == "INCOMPLETE"
    assert any("part-00009.parquet lies among the shards" in reason for reason in reasons_of(verdict))
    assert [step.says for step in next_steps(verdict)] == ["move it out of datasets/B3/shards/", "then audit again"]


def test_where_every_row_is_in_quarantine_nothing_is_said_of_no_rows(bench: Bench) -> None:
    nowhere = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "sample_id", "value_set": ["nobody"]},
        "meta": {"id": "nobody", "says": "All answers are nobody's."},
    }
    counted = {
        "type": "expect_table_row_count_to_be_between",
        "kwargs": {"min_value": 1},
        "meta": {"id": "rows", "says": "There are rows.", "fault": "The dataset has no rows."},
    }
    bench.suites = [write_suite(bench.dataset.reports.parents[1] / "expectations/all.json", nowhere, counted)]
    verdict = bench.audit()
    assert verdict.quarantined == verdict.rows
    assert [r.success_after_quarantine for r in verdict.suites[0].results] == [None, None]
    said = " ".join(reasons_of(verdict))
    assert "no row is left after quarantine" in said
    assert "has no rows" not in said


def test_the_verdict_is_json_that_others_can_read(bench: Bench) -> None:
    bench.audit()
    content = json.loads(bench.dataset.verdict.read_text(encoding="utf-8"))
    assert content["version"] == 2
    assert set(content["facts"]) == {shard["sha256"] for shard in content["shards"]}
