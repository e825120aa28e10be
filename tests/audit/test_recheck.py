"""A verdict that does not follow from its shards keeps the gate closed, whatever was edited to make it look so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from toolkit.errors import GateClosed
from toolkit.records import ExpectationResult, Verdict
from toolkit.store.verdicts import read_quarantine, read_verdict, write_quarantine
from toolkit.vocabulary import Vocabulary

from .workspace import MOSTLY_WHOLE, SHORT, TEXT_STANDS, Bench, make_bench, write_suite


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    root = tmp_path_factory.mktemp("audited")
    assert make_bench(root, vocabulary).audit().passed
    return root


@pytest.fixture
def bench(audited: Path, tmp_path: Path, vocabulary: Vocabulary) -> Bench:
    """An audited dataset of 20 rows, of which one is in quarantine; a copy that a test may break."""
    root = Path(shutil.copytree(audited, tmp_path / "w"))
    made = make_bench(tmp_path / "other", vocabulary, rows=2, bad=())
    return replace(made, dataset=replace_root(made, root), suites=[root / "expectations/small.json"])


def replace_root(bench: Bench, root: Path) -> Any:
    from toolkit.store.workspace import Workspace

    return Workspace(root).dataset_named(bench.dataset.name)


def reasons_of(bench: Bench) -> tuple[str, ...]:
    with pytest.raises(GateClosed) as caught:
        bench.gate()
    return caught.value.reasons


def with_result(verdict: Verdict, id_: str, **changes: Any) -> dict[str, Any]:
    """The verdict's suites with one result edited."""

    def edit(result: ExpectationResult) -> ExpectationResult:
        return replace(result, **changes) if result.id == id_ else result

    (run,) = verdict.suites
    return {"suites": (replace(run, results=tuple(map(edit, run.results))),)}


def test_a_true_verdict_opens_the_gate(bench: Bench) -> None:
    gate = bench.gate()
    assert gate.quarantine["sample_id"].to_pylist() == ["s3"]
    assert bench.told == []


def test_nothing_is_written_on_the_way(bench: Bench) -> None:
    root = bench.dataset.folder.parents[1]
    shutil.rmtree(bench.dataset.facts)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    bench.gate()
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


EDITS: list[tuple[str, Callable[[Verdict], dict[str, Any]], str]] = [
    (
        "success and counts of a row expectation",
        lambda v: with_result(v, "text_stands", unexpected_count=0),
        "text_stands: the verdict says that it holds (0 of 20 rows fail), by its facts it holds (1 of 20 rows fail)",
    ),
    (
        "observed of a dataset expectation",
        lambda v: with_result(v, "mostly_whole", observed="0.25"),
        "mostly_whole: the verdict says that it holds (found 0.25, after quarantine holds)",
    ),
    (
        "a warning",
        lambda v: with_result(v, "short", success=True, success_after_quarantine=True),
        "short: the verdict says that it holds",
    ),
    (
        "mostly",
        lambda v: with_result(v, "text_stands", mostly=0.5),
        "text_stands: the verdict describes it otherwise than the suite",
    ),
    (
        "a result left out",
        lambda v: {"suites": (replace(v.suites[0], results=v.suites[0].results[:1]),)},
        "suite small: the verdict's results are not those of its expectations, one by one",
    ),
    (
        "the share in quarantine",
        lambda v: {"suites": (replace(v.suites[0], max_quarantined_share=0.9),)},
        "suite small: the verdict allows 90.00% of rows in quarantine, its file 20.00%",
    ),
    ("a suite twice", lambda v: {"suites": v.suites * 2}, "the verdict lists 2 suites, expected 1"),
    ("evidence", lambda v: {"evidence": {"counted": 20}}, "the verdict's evidence are not what its facts give"),
    ("sources", lambda v: {"sources": {"sglang": 20}}, "the verdict's sources are not what its facts give"),
    ("providers", lambda v: {"providers": ()}, "the verdict's providers are not what its facts give"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "says"), [edit[1:] for edit in EDITS], ids=[edit[0] for edit in EDITS])
def test_an_edited_verdict(bench: Bench, edit: Callable[[Verdict], dict[str, Any]], says: str) -> None:
    bench.rewrite(**edit(read_verdict(bench.dataset.verdict)))
    reasons = reasons_of(bench)
    assert any(reason.startswith(says) and reason.endswith("; audit again") for reason in reasons), reasons


def test_a_failing_dataset_expectation_edited_to_hold(bench: Bench) -> None:
    write_suite(bench.suites[0], TEXT_STANDS, {**SHORT, "severity": "critical"})
    assert not bench.audit().passed
    edited = with_result(
        read_verdict(bench.dataset.verdict), "short", success=True, observed="1", success_after_quarantine=True
    )
    bench.rewrite(passed=True, reasons=(), **edited)
    (of_result, of_passed) = reasons_of(bench)
    assert of_result.startswith("short: the verdict says that it holds (found 1, after quarantine holds)")
    assert of_passed == "the verdict says passed: true, its facts say false; audit again"


def test_a_row_taken_out_of_the_quarantine(bench: Bench) -> None:
    empty = read_quarantine(bench.dataset.quarantine).slice(0, 0)
    bench.rewrite(quarantine_sha256=write_quarantine(bench.dataset.quarantine, empty), quarantined=0)
    assert "quarantine.parquet lists 0 rows, by the facts there are 1; audit again" in reasons_of(bench)


def test_another_row_in_the_quarantine(bench: Bench) -> None:
    table = read_quarantine(bench.dataset.quarantine)
    at = table.schema.get_field_index("row_index")
    other = table.set_column(
        at, table.schema.field(at), pc.add(table["row_index"], 1).cast(table.schema.field(at).type)
    )
    bench.rewrite(quarantine_sha256=write_quarantine(bench.dataset.quarantine, other))
    assert reasons_of(bench) == ("quarantine.parquet lists other rows or reasons than the facts give; audit again",)


def test_a_dataset_that_is_not_complete_any_more(bench: Bench) -> None:
    bench.accounting = replace(bench.accounting, asked=25, unanswered=5)
    (reason,) = reasons_of(bench)
    assert reason == "the verdict says complete, but 5 prompts have no answer and 0 replies no shard; audit again"


# --- facts ----------------------------------------------------------------------------------------------


def test_facts_that_are_gone_are_measured(bench: Bench) -> None:
    shutil.rmtree(bench.dataset.facts)
    assert bench.gate()
    assert bench.told == []


def test_facts_altered_after_the_audit_are_not_believed(bench: Bench) -> None:
    bench.alter_facts("text_equal", False, with_receipt=False)
    assert bench.gate(), "the verdict is true, whatever became of the facts"
    (told,) = bench.told
    assert "as it was written, found" in told


def test_facts_and_receipt_forged_after_the_audit_are_not_believed(bench: Bench) -> None:
    bench.alter_facts("text_equal", False, with_receipt=True)
    assert bench.gate()
    assert bench.told == ["facts of shards/part-00000.parquet: not those that the audit went by; measured again"]


def test_a_chain_forged_from_the_facts_on_is_found_by_the_sample(bench: Bench) -> None:
    bench.alter_facts("text_equal", True, with_receipt=True)
    bench.forge_verdict()
    forged = read_verdict(bench.dataset.verdict)
    assert (forged.passed, forged.quarantined) == (True, 0)
    reasons = reasons_of(bench)
    assert reasons[0] == (
        "facts of shards/part-00000.parquet: row 3: text_equal: kept as True, measured as False; measured again; "
        "audit again"
    )
    assert "quarantine.parquet lists 0 rows, by the facts there are 1; audit again" in reasons
    again = bench.audit()
    assert again.quarantined == 1
    assert bench.gate()


def test_facts_that_name_another_provider_are_found(bench: Bench) -> None:
    bench.alter_facts("provider", "Avian", with_receipt=True)
    bench.forge_verdict()
    assert any("provider: expected what stands in the shard" in reason for reason in reasons_of(bench))


# --- suites ---------------------------------------------------------------------------------------------


def test_two_suites_of_one_file_name(bench: Bench) -> None:
    root = bench.suites[0].parent
    bench.suites = [
        write_suite(root / "a/x.json", TEXT_STANDS),
        write_suite(root / "b/x.json", MOSTLY_WHOLE, TEXT_STANDS),
    ]
    verdict = bench.audit()
    assert [(run.name, run.path) for run in verdict.suites] == [
        ("x", "expectations/a/x.json"),
        ("x", "expectations/b/x.json"),
    ]
    assert verdict.quarantined_by_reason == {"text_stands": 1}, "one row, whatever the number of suites that say so"
    assert bench.gate()
    bench.suites.reverse()
    assert bench.gate(), "the order in which suites are configured decides nothing"


def test_the_same_suite_twice_is_one(bench: Bench) -> None:
    bench.suites = bench.suites * 2
    assert len(bench.audit().suites) == 1
    assert bench.gate()
