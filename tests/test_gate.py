"""The gate: opened by a passed audit of what lies there now, and closed by anything else, each for its own reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolkit.contract import SHIPPED, Contract, parse_contract
from toolkit.errors import GateClosed
from toolkit.gate import OpenGate, Recheck, closing_reasons, open_gate
from toolkit.records import Accounting, Entry, ExpectationResult, Origin, Severity, SuiteRun, Verdict
from toolkit.store.files import sha256_of
from toolkit.store.journal import LineWriter
from toolkit.store.shards import LiveShards, read_live, write_live
from toolkit.store.verdicts import read_verdict, write_verdict
from toolkit.store.workspace import Dataset, Workspace

from .rows import SUITE, add_dataset, audit, result, row, suite_path


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def dataset(workspace: Workspace, kimi: Contract) -> Dataset:
    """Two shards of five rows, one of them in quarantine, audited and passed."""
    first = [row(f"a{n}") for n in range(5)]
    second = [row(f"b{n}") for n in range(5)]
    added = add_dataset(workspace, "B3", first, second)
    audit(workspace, added, kimi, quarantine={(1, 2): ["terminal_last"]})
    return added


def believe(*_: object) -> tuple[str, ...]:
    """For tests of what the gate sees by itself: nothing is concluded again."""
    return ()


def try_gate(
    dataset: Dataset,
    contract: Contract,
    *,
    suites: Sequence[tuple[str, Path]] | None = None,
    providers: Sequence[str] = (),
    recheck: Recheck = believe,
) -> OpenGate:
    demanded = [(SUITE, dataset.reports.parents[1] / "expectations" / f"{SUITE}.json")] if suites is None else suites
    return open_gate(dataset, contract, demanded, allowed_providers=providers, recheck=recheck)


def reasons_of(dataset: Dataset, contract: Contract, **how: Any) -> tuple[str, ...]:
    with pytest.raises(GateClosed) as caught:
        try_gate(dataset, contract, **how)
    assert caught.value.exit_code == 1
    assert all(reason in str(caught.value) for reason in caught.value.reasons)
    return caught.value.reasons


def commands_of(dataset: Dataset, contract: Contract, **how: Any) -> tuple[str, ...]:
    """The commands that a closed gate names, without the --root that tests need."""
    with pytest.raises(GateClosed) as caught:
        try_gate(dataset, contract, **how)
    assert caught.value.dataset == dataset.name
    assert all(command in str(caught.value) for command in caught.value.commands)
    place = f" --root {dataset.reports.parents[1]}"
    assert all(command.endswith(place) for command in caught.value.commands)
    return tuple(command.removesuffix(place) for command in caught.value.commands)


def rewrite(dataset: Dataset, /, **changes: Any) -> None:
    write_verdict(dataset.verdict, replace(read_verdict(dataset.verdict), **changes))


def flip_byte(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def first_shard(dataset: Dataset) -> Path:
    return dataset.folder / read_live(dataset).shards[0].path


def test_a_passed_audit_opens_it(dataset: Dataset, kimi: Contract) -> None:
    gate = try_gate(dataset, kimi)
    assert gate.live.rows == 10
    assert gate.quarantine["sample_id"].to_pylist() == ["b2"]
    assert gate.verdict_sha256 == sha256_of(dataset.verdict)


# --- the verdict itself ----------------------------------------------------------------------------


def test_without_a_verdict(dataset: Dataset, kimi: Contract) -> None:
    dataset.verdict.unlink()
    (reason,) = reasons_of(dataset, kimi)
    assert reason.endswith("verdict.json: missing; run the audit first")


def test_a_failed_verdict(workspace: Workspace, dataset: Dataset, kimi: Contract) -> None:
    audit(workspace, dataset, kimi, results=[result(success=False, unexpected_count=3)], passed=False)
    (reason,) = reasons_of(dataset, kimi)
    assert reason == (
        "the audit failed: terminal_last: 3 of 10 rows fail (30.00%; allowed 10.00%): an answer ends with its terminal"
    )


def test_passed_edited_to_true(workspace: Workspace, dataset: Dataset, kimi: Contract) -> None:
    audit(workspace, dataset, kimi, results=[result(success=False, unexpected_count=3)], passed=False)
    rewrite(dataset, passed=True)
    (reason,) = reasons_of(dataset, kimi)
    assert reason.startswith("the verdict says passed, but that does not follow from its own results: terminal_last: 3")


@pytest.mark.parametrize("passed", [True, False])
def test_success_of_a_result_edited(workspace: Workspace, dataset: Dataset, kimi: Contract, passed: bool) -> None:
    audit(workspace, dataset, kimi, results=[result(success=False, unexpected_count=3)], passed=False)
    (run,) = read_verdict(dataset.verdict).suites
    rewrite(dataset, suites=(replace(run, results=(result(success=True, unexpected_count=3),)),), passed=passed)
    (reason,) = reasons_of(dataset, kimi)
    assert "terminal_last: says it holds, but its own counts say that it does not" in reason


def test_too_many_quarantined(dataset: Dataset, kimi: Contract) -> None:
    (run,) = read_verdict(dataset.verdict).suites
    rewrite(dataset, suites=(replace(run, max_quarantined_share=0.05),))
    reason = reasons_of(dataset, kimi)[0]
    assert "1 of 10 rows (10.00%) would be quarantined; suite strict allows 5.00%" in reason


def test_an_incomplete_verdict(dataset: Dataset, kimi: Contract) -> None:
    waiting = Accounting(asked=12, rows=10, answered=10, failed=0, unanswered=2, unsealed=0)
    rewrite(dataset, complete=False, accounting=waiting)
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "the audit was of an unfinished dataset: 2 prompts without an answer; finish it and audit again"
    assert commands_of(dataset, kimi) == ("tokenproof generate B3", "tokenproof audit B3")


def test_complete_edited_to_true(dataset: Dataset, kimi: Contract) -> None:
    rewrite(dataset, accounting=Accounting(asked=12, rows=10, answered=10, failed=0, unanswered=2, unsealed=0))
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "the verdict says complete, but that does not follow from its own counts"


def test_a_verdict_of_another_dataset(dataset: Dataset, kimi: Contract) -> None:
    rewrite(dataset, dataset="B4")
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "the verdict is of dataset 'B4', not of 'B3'"


def test_a_verdict_of_another_kernel(dataset: Dataset, kimi: Contract) -> None:
    kernel = read_verdict(dataset.verdict).kernel_version
    rewrite(dataset, kernel_version=kernel + 1)
    (reason,) = reasons_of(dataset, kimi)
    assert reason == f"audited by kernel version {kernel + 1}, this is {kernel}; audit again"


def test_a_verdict_of_another_version(dataset: Dataset, kimi: Contract) -> None:
    version = read_verdict(dataset.verdict).version
    rewrite(dataset, version=version + 1)
    (reason,) = reasons_of(dataset, kimi)
    assert reason.endswith(f"expected verdict version {version}, found {version + 1}; audit again")


@pytest.mark.parametrize("content", [b"", b"passed", b"[]", b"{}", b'{"version": 1, "passed": true}', b"\xff\xfe{"])
def test_a_verdict_that_is_none(dataset: Dataset, kimi: Contract, content: bytes) -> None:
    dataset.verdict.write_bytes(content)
    (reason,) = reasons_of(dataset, kimi)
    assert "verdict.json: expected " in reason


def test_rows_that_are_not_those_of_its_shards(dataset: Dataset, kimi: Contract) -> None:
    rewrite(dataset, rows=11)
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "the verdict's rows are not the sum of its shards' rows"


@pytest.mark.parametrize("field", ["suites", "shards"])
def test_a_verdict_emptied_of_what_it_looked_at(dataset: Dataset, kimi: Contract, field: str) -> None:
    rewrite(dataset, **{field: ()})
    assert reasons_of(dataset, kimi)


# --- suites and contract -------------------------------------------------------------------------


def test_one_byte_of_the_suite(workspace: Workspace, dataset: Dataset, kimi: Contract) -> None:
    flip_byte(suite_path(workspace), 5)
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "suite strict (strict.json) was changed since the audit; audit again"


def test_a_suite_that_is_gone(workspace: Workspace, dataset: Dataset, kimi: Contract) -> None:
    suite_path(workspace).unlink()
    (reason,) = reasons_of(dataset, kimi)
    assert reason.startswith("suite strict: ")
    assert "cannot be read" in reason


def test_another_suite_was_audited(workspace: Workspace, dataset: Dataset, kimi: Contract) -> None:
    demanded = workspace.expectations / "stricter.json"
    demanded.write_bytes(suite_path(workspace).read_bytes() + b"\n")
    (reason,) = reasons_of(dataset, kimi, suites=[("stricter", demanded)])
    assert reason == "suite stricter (stricter.json) was not evaluated; found strict.json; audit again"


def test_a_one_line_suite_of_the_same_name_was_audited(
    workspace: Workspace, dataset: Dataset, kimi: Contract, tmp_path: Path
) -> None:
    demanded = tmp_path / "strict.json"
    demanded.write_text('{"name": "strict", "expectations": ["all of them"]}', encoding="utf-8")
    (reason,) = reasons_of(dataset, kimi, suites=[("strict", demanded)])
    assert reason == "suite strict (strict.json) was changed since the audit; audit again"


def test_no_suite_is_demanded(dataset: Dataset, kimi: Contract) -> None:
    assert reasons_of(dataset, kimi, suites=[]) == ("no suite is configured for this dataset",)


def test_one_byte_of_the_contract(dataset: Dataset) -> None:
    content = (SHIPPED / "kimi-k2.5.toml").read_bytes()
    changed = parse_contract(content.replace(b"# What", b"# what", 1), "kimi-k2.5.toml")
    (reason,) = reasons_of(dataset, changed)
    assert reason == "contract kimi-k2.5 was changed since the audit; audit again"


def test_another_contract(dataset: Dataset, kimi: Contract) -> None:
    (reason,) = reasons_of(dataset, msgspec.structs.replace(kimi, name="kimi-k3"))
    assert reason == "audited under contract 'kimi-k2.5'; this dataset's is 'kimi-k3'"


# --- quarantine ------------------------------------------------------------------------------------


def test_one_byte_of_the_quarantine(dataset: Dataset, kimi: Contract) -> None:
    flip_byte(dataset.quarantine, 40)
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "quarantine.parquet: its bytes were changed since the audit; audit again"


def test_no_quarantine_file(dataset: Dataset, kimi: Contract) -> None:
    dataset.quarantine.unlink()
    (reason,) = reasons_of(dataset, kimi)
    assert reason.startswith("quarantine.parquet: ")


def test_fewer_quarantined_than_the_verdict_says(dataset: Dataset, kimi: Contract) -> None:
    rewrite(dataset, quarantined=2)
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "quarantine.parquet: expected 2 rows, found 1; audit again"


# --- shards and journal ----------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.999])
def test_one_byte_of_a_shard(dataset: Dataset, kimi: Contract, part: float) -> None:
    path = first_shard(dataset)
    flip_byte(path, int(part * path.stat().st_size))
    (reason,) = reasons_of(dataset, kimi)
    assert reason.startswith("B3/shards/part-00000.parquet: expected sha256 ")


def test_a_shard_added_to_the_folder(dataset: Dataset, kimi: Contract) -> None:
    (dataset.shards / "part-00007.parquet").write_bytes(first_shard(dataset).read_bytes())
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "shards/part-00007.parquet: lies among the shards, but shards.json does not list it; move it away"


def test_a_shard_added_to_the_list(workspace: Workspace, dataset: Dataset, kimi: Contract) -> None:
    add_dataset(workspace, "B3", [row("c")])
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "shards/part-00002.parquet: added since the audit; audit again"


def test_a_shard_taken_off_the_list(dataset: Dataset, kimi: Contract) -> None:
    live = read_live(dataset)
    write_live(dataset, LiveShards(live.contract, live.shards[:1]))
    assert reasons_of(dataset, kimi) == (
        "shards/part-00001.parquet: audited, but no longer listed in shards.json; audit again",
        "shards/part-00001.parquet: lies among the shards, but shards.json does not list it; move it away",
    )


def test_a_shard_replaced_in_file_and_list(workspace: Workspace, dataset: Dataset, kimi: Contract) -> None:
    other = add_dataset(workspace, "B4", [row(f"c{n}") for n in range(5)])
    first_shard(dataset).write_bytes(first_shard(other).read_bytes())
    live = read_live(dataset)
    write_live(dataset, LiveShards(live.contract, (*read_live(other).shards, live.shards[1])))
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "shards/part-00000.parquet: replaced since the audit; audit again"


def test_a_shard_deleted(dataset: Dataset, kimi: Contract) -> None:
    first_shard(dataset).unlink()
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "B3/shards/part-00000.parquet: missing; shards.json lists it with 5 rows; restore it from a copy"


def test_a_shard_renamed(dataset: Dataset, kimi: Contract) -> None:
    path = first_shard(dataset)
    path.rename(path.with_name("part-99999.parquet"))
    assert reasons_of(dataset, kimi) == (
        "shards/part-99999.parquet: lies among the shards, but shards.json does not list it; move it away",
        "B3/shards/part-00000.parquet: missing; shards.json lists it with 5 rows; restore it from a copy",
    )


def test_no_list_of_shards(dataset: Dataset, kimi: Contract) -> None:
    dataset.live.unlink()
    reasons = reasons_of(dataset, kimi)
    assert "shards/part-00000.parquet: audited, but no longer listed in shards.json; audit again" in reasons


def test_a_list_of_shards_that_is_none(dataset: Dataset, kimi: Contract) -> None:
    dataset.live.write_text("{", encoding="utf-8")
    (reason,) = reasons_of(dataset, kimi)
    assert "shards.json: expected a list of shards" in reason


def test_a_reply_that_is_not_sealed(dataset: Dataset, kimi: Contract) -> None:
    entry = Entry(
        row_key="k",
        sample_id="z",
        source="sglang",
        origin=Origin.GENERATE,
        contract="kimi-k2.5",
        mode="thinking",
        form="sglang",
        body="{}",
    )
    with LineWriter(dataset.journal / "run.jsonl") as writer:
        writer.write(entry)
    (reason,) = reasons_of(dataset, kimi)
    assert reason == "the journal holds 1 reply that is not sealed"
    assert commands_of(dataset, kimi) == ("tokenproof generate B3", "tokenproof audit B3")


# --- several -----------------------------------------------------------------------------------------


def test_all_reasons_are_given_at_once(workspace: Workspace, dataset: Dataset, kimi: Contract) -> None:
    faults: list[Callable[[], object]] = [
        lambda: rewrite(dataset, kernel_version=0, complete=False),
        lambda: flip_byte(suite_path(workspace), 5),
        lambda: flip_byte(first_shard(dataset), 100),
        lambda: flip_byte(dataset.quarantine, 40),
    ]
    for fault in faults:
        fault()
    assert len(reasons_of(dataset, kimi)) == 5


def test_the_verdict_is_read_as_it_was_written(dataset: Dataset) -> None:
    verdict = read_verdict(dataset.verdict)
    assert isinstance(verdict, Verdict)
    write_verdict(dataset.verdict, verdict)
    assert read_verdict(dataset.verdict) == verdict


def test_a_suite_that_looked_at_no_row(workspace: Workspace, kimi: Contract) -> None:
    dataset = add_dataset(workspace, "B5", [row()])
    audit(workspace, dataset, kimi, results=[result(element_count=0, unexpected_count=0)])
    assert reasons_of(dataset, kimi) == (
        (
            "the verdict says passed, but that does not follow from its own results: "
            "suite strict: no critical expectation looked at a single row"
        ),
    )


# --- what the audit went by beside suites and shards -----------------------------------------------


def prompts(dataset: Dataset, text: str) -> None:
    dataset.prompts.write_text(text, encoding="utf-8")


def test_prompts_that_were_changed(workspace: Workspace, dataset: Dataset, kimi: Contract) -> None:
    prompts(dataset, "{}\n")
    assert reasons_of(dataset, kimi) == ("prompts.jsonl was added since the audit; audit again",)
    audit(workspace, dataset, kimi, prompts_sha256=sha256_of(dataset.prompts))
    assert try_gate(dataset, kimi)
    prompts(dataset, "{} \n")
    assert reasons_of(dataset, kimi) == ("prompts.jsonl was changed since the audit; audit again",)
    assert commands_of(dataset, kimi) == ("tokenproof audit B3",)
    dataset.prompts.unlink()
    assert reasons_of(dataset, kimi) == ("prompts.jsonl was removed since the audit; audit again",)


@pytest.mark.parametrize(
    ("audited", "now", "says"),
    [
        (("Chutes",), (), "it was Chutes, it is empty (any provider)"),
        ((), ("Chutes",), "it was empty (any provider), it is Chutes"),
        (None, ("Chutes",), "it was empty (any provider), it is Chutes"),
        (("Chutes",), ("Chutes", "Avian"), "it was Chutes, it is Avian, Chutes"),
    ],
)
def test_allowed_providers_that_were_changed(
    workspace: Workspace, dataset: Dataset, kimi: Contract, audited: Any, now: tuple[str, ...], says: str
) -> None:
    audit(workspace, dataset, kimi, allowed_providers=audited)
    reason = f"the list of allowed providers was changed since the audit: {says}; audit again"
    assert reasons_of(dataset, kimi, providers=now) == (reason,)


def test_allowed_providers_in_another_order_are_the_same(
    workspace: Workspace, dataset: Dataset, kimi: Contract
) -> None:
    audit(workspace, dataset, kimi, allowed_providers=("Chutes", "Avian"))
    assert try_gate(dataset, kimi, providers=("avian", "chutes"))


def test_suites_of_one_file_name_are_told_apart_by_their_bytes(
    workspace: Workspace, dataset: Dataset, kimi: Contract
) -> None:
    own = suite_path(workspace)
    other = workspace.root / "more" / own.name
    other.parent.mkdir()
    other.write_bytes(own.read_bytes() + b"\n")
    (run,) = read_verdict(dataset.verdict).suites
    rewrite(dataset, suites=(run, replace(run, path="more/strict.json", sha256=sha256_of(other))))
    both = [("strict", own), ("more/strict", other)]
    assert try_gate(dataset, kimi, suites=both)
    assert reasons_of(dataset, kimi, suites=both[:1]) == (
        "audited with suite strict (more/strict.json), which this dataset does not name; audit again",
    )
    other.write_bytes(other.read_bytes() + b"\n")
    (reason,) = reasons_of(dataset, kimi, suites=both)
    assert reason == "suite more/strict (strict.json) was changed since the audit; audit again"


# --- the last question -----------------------------------------------------------------------------


def test_what_does_not_follow_from_the_shards_keeps_it_closed(dataset: Dataset, kimi: Contract) -> None:
    assert reasons_of(dataset, kimi, recheck=lambda *_: ["one", "two", "one"]) == ("one", "two")
    assert commands_of(dataset, kimi, recheck=lambda *_: ["one"]) == ("tokenproof audit B3",)


def test_nothing_is_concluded_again_where_the_gate_is_closed_anyway(dataset: Dataset, kimi: Contract) -> None:
    def never(*_: object) -> list[str]:
        raise AssertionError

    rewrite(dataset, kernel_version=0)
    assert len(reasons_of(dataset, kimi, recheck=never)) == 1


def test_recheck_is_given_what_the_gate_has_read(dataset: Dataset, kimi: Contract) -> None:
    given: list[object] = []
    gate = try_gate(dataset, kimi, recheck=lambda *what: given.extend(what) or ())
    assert given == [gate.verdict, gate.live, gate.quarantine]


# --- when results pass -----------------------------------------------------------------------------


def reasons(*results: ExpectationResult, rows: int = 10, quarantined: int = 0, **how: Any) -> tuple[str, ...]:
    run = SuiteRun(name="s", path="s.json", sha256="", max_quarantined_share=how.pop("share", 0.05), results=results)
    return closing_reasons(rows=rows, quarantined=quarantined, suites=(run,), unreadable=how.pop("unreadable", ()))


OF_DATASET: dict[str, Any] = {"id": "few_cut", "scope": "dataset", "element_count": None, "unexpected_count": None}


def test_only_critical_expectations_close_it() -> None:
    for severity in (Severity.WARNING, Severity.INFO):
        assert reasons(result(), result(success=False, unexpected_count=9, severity=severity)) == ()
    assert len(reasons(result(success=False, unexpected_count=9))) == 1


def test_the_share_that_the_suite_states_is_the_bound() -> None:
    assert reasons(result(unexpected_count=1), quarantined=1, share=0.1) == ()
    (reason,) = reasons(result(unexpected_count=1), quarantined=1, share=0.09)
    assert reason == "1 of 10 rows (10.00%) would be quarantined; suite s allows 9.00%"


def test_without_rows_there_is_one_reason() -> None:
    empty = result(success=False, error="no rows: nothing was checked", element_count=None, unexpected_count=None)
    (reason,) = reasons(*[replace(empty, id=f"e{n}") for n in range(30)], rows=0)
    assert reason == "there are no rows: 30 critical expectations could not be evaluated"
    assert reasons(empty, rows=0, unreadable=["part-0 is cut"]) == ("unreadable: part-0 is cut",)


def test_where_no_row_remains_there_is_one_reason_more_and_not_one_for_each_expectation() -> None:
    after = [result(**OF_DATASET | {"id": f"d{n}"}, success_after_quarantine=False) for n in range(30)]
    assert reasons(result(mostly=None), *after, quarantined=10, share=1.0) == (
        "all 10 rows would be quarantined: no row is left after quarantine",
    )
    assert reasons(result(), result(**OF_DATASET, success_after_quarantine=False), quarantined=1, share=1.0) == (
        "few_cut: holds for all rows, but not for those that remain after quarantine",
    )


def test_a_damaged_shard_is_told_beside_what_fails_in_the_others() -> None:
    found = reasons(result(success=False, unexpected_count=9), unreadable=["part-0 is cut"])
    assert [reason.partition(":")[0] for reason in found] == ["unreadable", "terminal_last"]


def test_answers_in_a_damaged_shard_are_not_to_be_asked_for_again(dataset: Dataset, kimi: Contract) -> None:
    counts = Accounting(asked=10, rows=10, answered=6, failed=0, unanswered=4, unsealed=0)
    lost = "B3/shards/part-00000.parquet: missing"
    rewrite(dataset, complete=False, passed=False, unreadable=(lost,), accounting=counts)
    reasons = reasons_of(dataset, kimi)
    assert f"the audit failed: unreadable: {lost}; put it back from a copy, then audit again" in reasons
    assert not any("unfinished" in reason for reason in reasons)
    assert commands_of(dataset, kimi) == ("tokenproof audit B3",)
