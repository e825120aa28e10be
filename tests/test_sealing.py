"""The journal becomes shards: once, whole, whatever dies in between."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from toolkit.contract import Contract, read_contract
from toolkit.errors import ConfigError, StoreError
from toolkit.records import Entry, Failure, Origin, imported_row_key
from toolkit.rows import RowBuilder
from toolkit.sealing import seal_journal
from toolkit.store import shard_writer
from toolkit.store.files import sole_writer
from toolkit.store.journal import LineWriter, journal_files, read_failures
from toolkit.store.shards import read_live, read_shard, unlisted_shards
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .kills import count_steps, die_at

MODEL = "moonshotai/kimi-k2.5"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Workspace(tmp_path).dataset_named("B3")


@pytest.fixture(scope="module")
def builder(kimi: Contract, vocabulary: Vocabulary) -> RowBuilder:
    return RowBuilder(kimi, vocabulary)


def entry(sample_id: str, content: str = " yes", **changes: Any) -> Entry:
    message = {"reasoning": " so", "content": content}
    body = {"model": MODEL, "provider": "P", "choices": [{"finish_reason": "stop", "message": message}]}
    fields: dict[str, Any] = {
        "row_key": imported_row_key(dataset="B3", sample_id=sample_id, sample_index=0, turn=0),
        "sample_id": sample_id,
        "source": "openrouter",
        "origin": Origin.GENERATE,
        "contract": "kimi-k2.5",
        "mode": "thinking",
        "form": "openai",
        "body": json.dumps(body),
        "messages": [{"role": "user", "content": "hi"}],
    }
    return Entry(**fields | changes)


def journal(dataset: Dataset, name: str, *entries: Entry) -> Path:
    path = dataset.journal / f"{name}.jsonl"
    with LineWriter(path) as writer:
        for one in entries:
            writer.write(one)
    return path


def contents(dataset: Dataset) -> list[tuple[str, str, bool]]:
    shards = read_live(dataset).shards
    rows = [row for shard in shards for row in read_shard(dataset, shard).to_pylist()]
    return sorted((row["sample_id"], row["content"], row["probe"]) for row in rows)


def failures_of(dataset: Dataset) -> list[Failure]:
    return sorted(read_failures(dataset.failures), key=lambda failure: (failure.sample_id or "", failure.detail))


def test_no_journal_changes_nothing(dataset: Dataset, builder: RowBuilder) -> None:
    assert seal_journal(dataset, builder) == 0
    assert not dataset.live.exists()


def test_each_answer_is_a_row_once(dataset: Dataset, builder: RowBuilder) -> None:
    journal(dataset, "1", entry("a"), entry("b"), entry("a"))
    journal(dataset, "2", entry("b"), entry("c"))
    assert seal_journal(dataset, builder) == 3
    assert [name for name, _, _ in contents(dataset)] == ["a", "b", "c"]
    assert failures_of(dataset) == []
    assert journal_files(dataset.journal) == []


def test_a_second_answer_stays_on_file_with_both_places(dataset: Dataset, builder: RowBuilder) -> None:
    journal(dataset, "1", entry("a", "one"))
    journal(dataset, "2", entry("b"), entry("a", "two"))
    assert seal_journal(dataset, builder) == 2
    (failure,) = failures_of(dataset)
    assert (failure.reason, failure.where, failure.sample_id) == ("id_conflict", "journal", "a")
    assert "found one in 1.jsonl: line 1 and another in 2.jsonl: line 2" in failure.detail
    assert "two" in (failure.body or "")


def test_another_answer_than_the_live_one_stays_on_file(dataset: Dataset, builder: RowBuilder) -> None:
    journal(dataset, "1", entry("a", "one"))
    seal_journal(dataset, builder)
    journal(dataset, "2", entry("a", "two"), entry("a", "one"))
    assert seal_journal(dataset, builder) == 0
    assert contents(dataset) == [("a", "one", False)]
    (failure,) = failures_of(dataset)
    assert "found one in row 0 of shards/part-00000.parquet and another in 2.jsonl: line 1" in failure.detail


def test_a_probe_has_a_place_of_its_own(dataset: Dataset, builder: RowBuilder) -> None:
    journal(dataset, "1", entry("a", "one"), entry("a", "two", probe=True))
    assert seal_journal(dataset, builder) == 2
    assert contents(dataset) == [("a", "one", False), ("a", "two", True)]


def test_what_is_no_answer_is_a_failure_and_leaves_its_place(dataset: Dataset, builder: RowBuilder) -> None:
    journal(dataset, "1", entry("a", body="{}"), entry("a", "one"))
    assert seal_journal(dataset, builder) == 1
    assert [failure.reason for failure in failures_of(dataset)] == ["no_choices"]


def test_a_journal_of_another_contract(dataset: Dataset, builder: RowBuilder, vocabulary: Vocabulary) -> None:
    path = journal(dataset, "1", entry("a"))
    other = RowBuilder(read_contract("kimi-k2-instruct"), vocabulary)
    with pytest.raises(ConfigError, match=r"expected entries of contract kimi-k2-instruct, found kimi-k2\.5"):
        seal_journal(dataset, other)
    assert path.exists()
    assert seal_journal(dataset, builder) == 1
    journal(dataset, "2", entry("b"))
    with pytest.raises(ConfigError, match="two contracts"):
        seal_journal(dataset, other)


def test_a_damaged_line_stops_it_and_loses_nothing(dataset: Dataset, builder: RowBuilder) -> None:
    path = journal(dataset, "1", entry("a"))
    path.write_bytes(b"{\n" + path.read_bytes())
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"1\.jsonl: line 1: expected a journal entry"):
        seal_journal(dataset, builder)
    assert path.read_bytes() == before
    assert read_live(dataset).shards == ()


def test_only_one_process_seals(dataset: Dataset, builder: RowBuilder) -> None:
    journal(dataset, "1", entry("a"))
    with sole_writer(dataset.lock), pytest.raises(StoreError, match="another process"):
        seal_journal(dataset, builder)


@pytest.mark.slow
def test_a_kill_at_any_point_is_mended_by_sealing_again(
    dataset: Dataset, builder: RowBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_writer, "ROWS_PER_SHARD", 2)
    monkeypatch.setattr(shard_writer, "ROWS_PER_BATCH", 1)
    journal(dataset, "1", entry("a", "one"), entry("b"), entry("bad", body="{}"))
    journal(dataset, "2", entry("a", "two"), entry("c"), entry("d"), entry("worse", body="[]"))
    journal(dataset, "3", entry("c", "more"), entry("e"))
    start = shutil.copytree(dataset.folder, tmp_path / "start")
    steps = count_steps(lambda: seal_journal(dataset, builder))
    assert steps >= 10
    for step in range(2 * steps):
        shutil.rmtree(dataset.folder)
        shutil.copytree(start, dataset.folder)
        die_at(step, lambda: seal_journal(dataset, builder))
        assert read_live(dataset).rows in (0, 5)
        seal_journal(dataset, builder)
        assert [name for name, _, _ in contents(dataset)] == ["a", "b", "c", "d", "e"]
        assert contents(dataset)[0] == ("a", "one", False)
        assert [(f.sample_id, f.reason) for f in failures_of(dataset)] == [
            ("a", "id_conflict"), ("bad", "no_choices"), ("c", "id_conflict"), ("worse", "malformed"),
        ], step  # fmt: skip
        assert journal_files(dataset.journal) == []
        assert list(dataset.folder.rglob(".*.tmp")) == []
        assert unlisted_shards(dataset, read_live(dataset)) == []
