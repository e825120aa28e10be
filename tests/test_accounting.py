from __future__ import annotations

import json
import os

import msgspec
import pytest

from toolkit.accounting import accounting
from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.generate.processes import host_name, mark_of
from toolkit.generate.status import FILE_NAME, RunStatus
from toolkit.importing import ImportOptions, import_files
from toolkit.records import MISSING_NAMED, Failure
from toolkit.report.counts import missing_sentences
from toolkit.store.journal import write_failures
from toolkit.store.prompts import read_prompts
from toolkit.store.shards import read_live
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .generate.asks import plan_asks


@pytest.fixture
def dataset(tmp_path, kimi: Contract, vocabulary: Vocabulary) -> Dataset:
    """Two imported rows (a, b), one line that failed (c) and one in conflict (b again)."""
    dataset = Workspace(tmp_path).dataset_named("B3")
    row = {"output_ids": [24, 163586], "finish_reason": "stop", "mode": "instant"}
    good = [{"sample_id": name, "content": "x", **row} for name in "ab"]
    bad = [{"sample_id": "c", "error": {"message": "no"}}, {"sample_id": "b", "content": "y", **row}]
    file = tmp_path / "raw.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in good + bad))
    import_files(dataset, [file], kimi, vocabulary, ImportOptions())
    return dataset


def ask(dataset: Dataset, *names: str) -> None:
    lines = [{"id": name, "messages": [{"role": "user", "content": name}]} for name in names]
    dataset.prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_missing_answer_bears_the_reason_of_what_came_for_it(dataset: Dataset, kimi: Contract):
    ask(dataset, "a", "c", "d")
    counted = accounting(dataset, kimi, DatasetSettings())
    assert counted.missing == (("c", 0, 0), ("d", 0, 0))
    assert (len(counted.missing_reasons), counted.missing_reasons[0] != "", counted.missing_reasons[1]) == (2, True, "")


def test_without_prompts_nobody_knows_what_was_asked(dataset: Dataset, kimi: Contract):
    counted = accounting(dataset, kimi, DatasetSettings())
    assert (counted.asked, counted.answered, counted.unanswered) == (None, None, None)
    assert (counted.rows, counted.failed, counted.unsealed) == (2, 2, 0)
    assert sum(counted.failures_by_reason.values()) == 2
    assert counted.failures_by_reason["id_conflict"] == 1
    assert counted.complete


def test_a_line_that_failed_leaves_its_prompt_unanswered(dataset: Dataset, kimi: Contract):
    ask(dataset, "a", "b", "c", "d")
    counted = accounting(dataset, kimi, DatasetSettings())
    assert (counted.asked, counted.answered, counted.failed, counted.unanswered) == (4, 2, 0, 2)
    assert not counted.complete
    assert accounting(dataset, kimi, DatasetSettings(samples=2)).unanswered == 6


def test_only_the_latest_failure_of_an_ask_is_counted(dataset: Dataset, kimi: Contract):
    ask(dataset, "a", "d")

    def failure(name: str, reason: str, at: float) -> Failure:
        return Failure(reason=reason, detail="", final=False, where="openrouter", sample_id=name, row_key="k", at=at)

    write_failures(dataset.failures / "generate-2.jsonl", [failure("d", "timeout", 1.0)])
    write_failures(
        dataset.failures / "generate-1.jsonl",
        [failure("d", "http_429", 2.0), failure("a", "http_504", 3.0), failure("gone", "http_503", 4.0)],
    )
    counted = accounting(dataset, kimi, DatasetSettings())
    assert counted.failures_by_reason["http_429"] == 1
    assert set(counted.failures_by_reason) & {"timeout", "http_504", "http_503"} == set()
    assert (counted.answered, counted.failed, counted.unanswered) == (1, 0, 1)


def test_rows_of_a_shard_that_cannot_be_read_are_unanswered(dataset: Dataset, kimi: Contract):
    ask(dataset, "a", "b")
    (shard,) = read_live(dataset).shards
    path = dataset.folder / shard.path
    path.write_bytes(path.read_bytes()[:-100])
    counted = accounting(dataset, kimi, DatasetSettings())
    assert (counted.answered, counted.unanswered, counted.rows, counted.complete) == (0, 2, 2, False)


def test_failures_are_told_apart_and_add_up(dataset: Dataset, kimi: Contract):
    ask(dataset, "a", "b", "c", "d", "e")
    settings = DatasetSettings()
    asks = plan_asks(read_prompts(dataset.prompts, modes=kimi.modes), settings, kimi)
    keys = {ask.sample_id: ask.row_key for ask in asks}

    def failure(name: str, reason: str, *, final: bool, key: str) -> Failure:
        return Failure(reason=reason, detail="", final=final, where="openrouter", sample_id=name, row_key=key, at=1.0)

    failures = [
        failure("d", "http_400", final=True, key=keys["d"]),
        failure("e", "http_400", final=True, key="asked otherwise"),
        failure("c", "timeout", final=False, key=keys["c"]),
    ]
    write_failures(dataset.failures / "generate-1.jsonl", failures)
    counted = accounting(dataset, kimi, settings)
    assert (counted.answered, counted.failed, counted.unanswered) == (2, 1, 2)
    assert counted.failed_by_reason == {"http_400": 1}
    assert counted.repeated_by_reason == {"http_400": 1, "timeout": 1}
    assert sum(counted.lines_by_reason.values()) == 2
    assert sum(counted.failures_by_reason.values()) == 5
    assert counted.missing == (("c", 0, 0), ("e", 0, 0))


def test_the_first_asks_without_an_answer_are_named(dataset: Dataset, kimi: Contract):
    ask(dataset, "a", "b", *(f"n{i:02}" for i in range(30)))
    counted = accounting(dataset, kimi, DatasetSettings())
    assert counted.unanswered == 30
    assert counted.missing == tuple((f"n{i:02}", 0, 0) for i in range(MISSING_NAMED))
    counted = accounting(dataset, kimi, DatasetSettings(samples=2))
    assert counted.missing[:3] == (("a", 0, 1), ("b", 0, 1), ("n00", 0, 0))


def test_a_prompt_edited_after_its_imported_answer_is_noticed(tmp_path, kimi: Contract, vocabulary: Vocabulary):
    dataset = Workspace(tmp_path).dataset_named("B3")
    dataset.folder.mkdir(parents=True)
    ask(dataset, "a", "b")
    row = {"output_ids": [24, 163586], "finish_reason": "stop", "mode": "instant", "content": "x"}
    file = tmp_path / "raw.jsonl"
    file.write_text("".join(json.dumps({"sample_id": name, **row}) + "\n" for name in "ab"))
    import_files(dataset, [file], kimi, vocabulary, ImportOptions())
    before = accounting(dataset, kimi, DatasetSettings())
    assert (before.changed_imports, before.complete) == (0, True)
    written = dataset.prompts.read_text()
    # Another spelling of the same is no change.
    dataset.prompts.write_text(written.replace('"role": "user", "content": "a"', '"content": "a", "role": "user"'))
    assert accounting(dataset, kimi, DatasetSettings()).complete
    dataset.prompts.write_text(written.replace('"content": "b"', '"content": "another"'))
    after = accounting(dataset, kimi, DatasetSettings())
    assert (after.changed, after.changed_imports, after.complete) == (0, 1, False)
    assert after.first_changed_imports == (("b", 0, 0),)
    assert missing_sentences(after) == ("1 imported answer is to another prompt than prompts.jsonl holds now: b",)
    dataset.prompts.write_text(written)
    assert accounting(dataset, kimi, DatasetSettings()).complete


def test_a_run_that_is_at_work_leaves_nothing_complete(dataset: Dataset, kimi: Contract):
    status = RunStatus(
        dataset="B3", phase="asking", pid=os.getpid(), started=0.0, updated=1.0, asked=1, answered=0, failed=0, left=1,
        host=host_name(), mark=mark_of(os.getpid()) or "",
    )  # fmt: skip
    path = dataset.folder / FILE_NAME
    path.write_bytes(msgspec.json.encode(status))
    counted = accounting(dataset, kimi, DatasetSettings())
    assert (counted.at_work, counted.complete) == (True, False)
    assert missing_sentences(counted) == ("a run over this dataset is at work",)
    for gone in (msgspec.structs.replace(status, mark="boot/1"), msgspec.structs.replace(status, phase="done")):
        path.write_bytes(msgspec.json.encode(gone))
        assert accounting(dataset, kimi, DatasetSettings()).complete
