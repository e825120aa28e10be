"""Rows that are made while a run goes on: the same bytes as from its journal, and the journal wherever it fails."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from toolkit.assembly import unpacked
from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.records import Entry, Failure, IdsSource, Origin, Reply, imported_row_key
from toolkit.rows import RowBuilder
from toolkit.sealing import Alongside, seal_journal
from toolkit.store import shard_writer
from toolkit.store.arrays import Columns
from toolkit.store.journal import LineWriter, journal_files, read_failures, spelled
from toolkit.store.new_shards import NewShards
from toolkit.store.shards import read_live, read_shard, unlisted_shards
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .kills import count_steps, die_at

MODEL = "moonshotai/kimi-k2.5"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Workspace(tmp_path / "one").dataset_named("B3")


@pytest.fixture
def other(tmp_path: Path) -> Dataset:
    return Workspace(tmp_path / "other").dataset_named("B3")


@pytest.fixture(scope="module")
def builder(kimi: Contract, vocabulary: Vocabulary) -> RowBuilder:
    return RowBuilder(kimi, vocabulary)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are made one by one, and two of them are a shard."""
    monkeypatch.setattr("toolkit.sealing.ANSWERS_AT_ONCE", 1)
    monkeypatch.setattr(shard_writer, "ROWS_PER_SHARD", 2)
    monkeypatch.setattr(shard_writer, "ROWS_PER_BATCH", 1)


def entry(sample_id: str, content: str = " yes", **changes: Any) -> Entry:
    message = {"reasoning": " so", "content": content}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "cost": 1e-7}
    body = {
        "id": "gen-1", "model": MODEL, "provider": "P", "created": 1769472000.0, "usage": usage,
        "choices": [{"finish_reason": "stop", "message": message}],
    }  # fmt: skip
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


VARIOUS = [
    entry("plain"),
    entry("日本", "“ſ” \x00 \u2028 \U0001f600 </think>", received_at=1769472000.123456, latency_s=0.1),
    entry("numbers", sampling={"temperature": 1.0, "top_p": 1e-9, "seed": 2**63}, request={"a": [1.0, 1e22, -0.0]}),
    entry("history", tool_ids={"call_1": "functions.f:0"}, assumed=("model",), model=MODEL, max_tokens=4, stop=("x",)),
    entry("plain", "two", probe=True, ids_are=IdsSource.ENGINE, streamed=False),
    entry("tools", tools=[{"type": "function", "function": {"name": "f", "parameters": {"minimum": 0.5}}}]),
    entry("nothing", ""),
]


def journaled(dataset: Dataset, entries: Sequence[Entry], name: str = "1") -> tuple[Path, int]:
    with LineWriter(dataset.journal / f"{name}.jsonl") as writer:
        for one in entries:
            writer.write(one)
    return writer.path, writer.size


def made(dataset: Dataset, builder: RowBuilder, entries: Sequence[Entry]) -> Alongside:
    rows = Alongside(dataset, builder)
    for one in entries:
        reply = builder.read(one, where="test")
        assert isinstance(reply, Reply)
        rows.add(one, reply, spelled(one.body))
    return rows


def files_of(dataset: Dataset) -> dict[str, bytes]:
    paths = [*dataset.shards.iterdir(), dataset.live]
    return {path.name: path.read_bytes() for path in paths}


def names_in(dataset: Dataset) -> list[str]:
    shards = read_live(dataset).shards
    return [name for shard in shards for name in read_shard(dataset, shard)["sample_id"].to_pylist()]


def failures_of(dataset: Dataset) -> list[Failure]:
    return list(read_failures(dataset.failures))


def is_tidy(dataset: Dataset) -> bool:
    """Whether there is neither a journal, nor a half of anything, nor a shard that is not listed."""
    left = [*journal_files(dataset.journal), *dataset.folder.rglob(".*.tmp")]
    return not left and not unlisted_shards(dataset, read_live(dataset))


def check_both_ways(dataset: Dataset, other: Dataset, builder: RowBuilder) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("toolkit.sealing.seal_held", None)
        assert made(dataset, builder, VARIOUS).seal(*journaled(dataset, VARIOUS)) == len(VARIOUS)
    journaled(other, VARIOUS)
    assert seal_journal(other, builder) == len(VARIOUS)
    assert files_of(dataset) == files_of(other)
    assert is_tidy(dataset)


def test_the_bytes_are_those_that_the_journal_gives(dataset: Dataset, other: Dataset, builder: RowBuilder) -> None:
    check_both_ways(dataset, other, builder)
    assert sorted(files_of(dataset)) == ["part-00000.parquet", "shards.json"]


@pytest.mark.usefixtures("tiny")
def test_the_same_of_many_shards(dataset: Dataset, other: Dataset, builder: RowBuilder) -> None:
    check_both_ways(dataset, other, builder)
    assert sorted(files_of(dataset)) == [*(f"part-{i:05d}.parquet" for i in range(4)), "shards.json"]


@pytest.mark.usefixtures("tiny")
def test_rows_are_added_to_those_that_are_there(dataset: Dataset, builder: RowBuilder) -> None:
    for name in ("a", "b"):
        entries = [entry(f"{name}{i}") for i in range(3)]
        assert made(dataset, builder, entries).seal(*journaled(dataset, entries)) == 3
    assert names_in(dataset) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert is_tidy(dataset)


@pytest.mark.usefixtures("tiny")
def test_nothing_is_live_before_the_end(dataset: Dataset, builder: RowBuilder) -> None:
    rows = made(dataset, builder, VARIOUS)
    assert (read_live(dataset).rows, unlisted_shards(dataset, read_live(dataset))) == (0, [])
    assert len(list(dataset.shards.glob(".part-*.tmp"))) == 4
    rows.give_up()
    assert list(dataset.shards.iterdir()) == []


# --- where the journal does it -----------------------------------------------------------------------


@pytest.mark.usefixtures("tiny")
def test_two_answers_to_one_ask_are_for_the_journal_to_judge(dataset: Dataset, builder: RowBuilder) -> None:
    entries = [entry("a", "one"), entry("b"), entry("a", "two")]
    assert made(dataset, builder, entries).seal(*journaled(dataset, entries)) == 2
    assert names_in(dataset) == ["a", "b"]
    assert [failure.reason for failure in failures_of(dataset)] == ["id_conflict"]
    assert is_tidy(dataset)


def test_an_answer_that_is_live_already(dataset: Dataset, builder: RowBuilder) -> None:
    journaled(dataset, [entry("a", "one")])
    seal_journal(dataset, builder)
    entries = [entry("a", "two"), entry("b")]
    assert made(dataset, builder, entries).seal(*journaled(dataset, entries)) == 1
    assert names_in(dataset) == ["a", "b"]
    assert [failure.reason for failure in failures_of(dataset)] == ["id_conflict"]
    assert is_tidy(dataset)


@pytest.mark.parametrize("where", ["another file", "the same file"])
def test_a_journal_that_holds_something_else_too(dataset: Dataset, builder: RowBuilder, where: str) -> None:
    entries = [entry("a"), entry("b")]
    path, size = journaled(dataset, entries)
    journaled(dataset, [entry("c")], name="1" if where == "the same file" else "2")
    assert made(dataset, builder, entries).seal(path, size) == 3
    assert names_in(dataset) == ["a", "b", "c"]
    assert is_tidy(dataset)


class Panic(BaseException):
    """What an engine in native code raises."""


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "no space left on device"), Panic()], ids=["full", "panic"])
@pytest.mark.parametrize("fails_at", range(4))
@pytest.mark.usefixtures("tiny")
def test_what_goes_wrong_meanwhile_breaks_nothing_off(
    dataset: Dataset, builder: RowBuilder, monkeypatch: pytest.MonkeyPatch, fails_at: int, fault: BaseException
) -> None:
    real, left = NewShards.add, [fails_at]

    def add(self: NewShards, rows: Columns) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise fault
        real(self, rows)

    monkeypatch.setattr(NewShards, "add", add)
    entries = [entry(name) for name in "abc"]
    rows = made(dataset, builder, entries)
    assert list(dataset.shards.glob(".*")) == [] or fails_at == 3
    assert rows.seal(*journaled(dataset, entries)) == 3
    assert names_in(dataset) == ["a", "b", "c"]
    assert is_tidy(dataset)


def test_shards_that_cannot_be_listed_leave_the_journal(
    dataset: Dataset, builder: RowBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [entry("a")]
    rows, (path, size) = made(dataset, builder, entries), journaled(dataset, entries)

    def refuse(*_: object) -> None:
        raise StoreError("shards.json: cannot be written")

    with monkeypatch.context() as patched:
        patched.setattr("toolkit.store.listing.write_live", refuse)
        with pytest.raises(StoreError, match="cannot be written"):
            rows.seal(path, size)
    assert path.exists()
    assert seal_journal(dataset, builder) == 1
    assert is_tidy(dataset)


def test_no_answer_is_no_row(dataset: Dataset, builder: RowBuilder) -> None:
    assert made(dataset, builder, []).seal(dataset.journal / "1.jsonl", 0) == 0
    assert not dataset.live.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_a_kill_at_any_point_is_mended_by_sealing_the_journal(
    dataset: Dataset, builder: RowBuilder, tmp_path: Path
) -> None:
    entries = [entry(name) for name in "abcde"]
    path, size = journaled(dataset, entries)
    start = shutil.copytree(dataset.folder, tmp_path / "start")

    def go() -> None:
        made(dataset, builder, entries).seal(path, size)

    steps = count_steps(go)
    assert steps >= 5
    for step in range(2 * steps):
        shutil.rmtree(dataset.folder)
        shutil.copytree(start, dataset.folder)
        die_at(step, go)
        assert read_live(dataset).rows in (0, 5)
        seal_journal(dataset, builder)
        assert names_in(dataset) == list("abcde")
        assert is_tidy(dataset), step


def test_each_row_has_the_prompt_of_its_own_messages(builder: RowBuilder) -> None:
    entries = [entry(f"q{i}", messages=[{"role": "user", "content": text}]) for i, text in enumerate("abcab")]
    answers = [(one, builder.read(one, where="journal")) for one in entries]
    together = builder.build_all([(one, reply) for one, reply in answers if isinstance(reply, Reply)])["prompt_ids"]
    alone = [builder.build(one, reply)["prompt_ids"] for one, reply in answers if isinstance(reply, Reply)]
    assert [unpacked(ids).tolist() for ids in together] == alone
    assert (alone[0], alone[1]) == (alone[3], alone[4])
    assert len({*map(tuple, alone)}) == 3
