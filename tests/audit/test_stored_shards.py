"""One shard in object storage, measured by a task that has nothing but its words and the storage."""

from __future__ import annotations

import pickle
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyarrow.fs import FileSelector, FileType

from tests.object_storage import endpoint, files
from toolkit.audit.shard_facts import ShardTask
from toolkit.audit.stored_shards import facts_at_hand, facts_of_stored_shard
from toolkit.contract import Contract
from toolkit.errors import UnreachableError
from toolkit.phrases import SHIPPED
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Workspace
from toolkit.vocabulary import Vocabulary

from .workspace import make_bench

__all__ = ["endpoint", "files"]

PLACE = "s3://proofs/w"
FACTS = "proofs/w/datasets/B3/facts"


@pytest.fixture
def task(files: Any, tmp_path: Path, vocabulary: Vocabulary) -> ShardTask:
    """Of a dataset whose shards lie in the bucket alone."""
    bench = make_bench(tmp_path / "made", vocabulary)
    dataset = Workspace(tmp_path / "here", place=PLACE).dataset_named("B3")
    for shard in read_live(bench.dataset).shards:
        with files.open_output_stream(f"proofs/w/datasets/B3/{shard.path}") as stream:
            stream.write((bench.dataset.folder / shard.path).read_bytes())
    made = ShardTask(
        dataset=dataset, shard=read_live(bench.dataset).shards[0], contract=bench.contract, phrases=SHIPPED,
        believed=None, seed="", sampled_rows=64,
    )  # fmt: skip
    return pickle.loads(pickle.dumps(made))  # as it travels


def test_facts_are_put_beside_the_shard_and_taken_the_next_time(
    files: Any, task: ShardTask, vocabulary: Vocabulary
) -> None:
    first = facts_of_stored_shard(task, lambda _: vocabulary)
    assert (first.fault, first.measured, first.kept) == (None, True, True)
    names = sorted(info.base_name for info in files.get_file_info(FileSelector(FACTS)))
    assert [Path(name).suffix for name in names] == [".json", ".parquet"]
    assert facts_of_stored_shard(task, lambda _: vocabulary).measured is False
    assert first.facts is not None
    assert not first.facts.path.exists()
    assert facts_at_hand(task, first) is first
    assert first.facts.path.read_bytes() == files.open_input_file(f"{FACTS}/{first.facts.path.name}").read()
    assert not task.dataset.shards.exists()


def test_facts_that_were_altered_on_the_way_are_none(files: Any, task: ShardTask, vocabulary: Vocabulary) -> None:
    status = facts_of_stored_shard(task, lambda _: vocabulary)
    assert status.facts is not None
    with files.open_output_stream(f"{FACTS}/{status.facts.path.name}") as stream:
        stream.write(b"others")
    found = facts_at_hand(task, status)
    assert found.facts is None
    assert (found.fault or "").startswith("B3/shards/part-00000.parquet: its facts: expected sha256")
    again = facts_of_stored_shard(task, lambda _: vocabulary)
    assert (again.measured, len(again.doubts)) == (True, 1)
    assert facts_at_hand(task, again).fault is None


def test_a_missing_shard_is_a_result_and_a_silent_storage_is_worth_another_try(
    files: Any, task: ShardTask, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(task, shard=replace(task.shard, path="shards/part-00009.parquet"))
    assert facts_of_stored_shard(gone, lambda _: vocabulary).fault == (
        "B3/shards/part-00009.parquet: missing; shards.json lists it with 10 rows"
    )
    assert files.get_file_info(FACTS).type == FileType.NotFound
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(UnreachableError, match="cannot be fetched"):
            facts_of_stored_shard(task, lambda _: vocabulary)


def test_a_vocabulary_in_the_workspace_comes_along(files: Any, task: ShardTask, vocabulary: Vocabulary) -> None:
    with files.open_output_stream("proofs/w/contracts/own/tokenizer.json") as stream:
        stream.write(b"{}")
    theirs = task.dataset.folder.parents[1] / "contracts/own"
    spec = structs.replace(task.contract.vocabulary, source=f"folder:{theirs}")
    own = replace(task, contract=structs.replace(task.contract, vocabulary=spec))
    seen: list[bytes] = []

    def load(contract: Contract) -> Vocabulary:
        folder = Path(contract.vocabulary.source.removeprefix("folder:"))
        assert folder != theirs
        seen.append((folder / "tokenizer.json").read_bytes())
        return vocabulary

    assert facts_of_stored_shard(own, load).fault is None
    assert seen == [b"{}"]


def test_columns_of_an_object_are_read_without_fetching_it(files: Any, task: ShardTask) -> None:
    rows = read_shard(task.dataset, task.shard, ["sample_id", "turn"], verify=False)
    assert (rows.num_rows, rows.column_names) == (10, ["sample_id", "turn"])
    assert not task.dataset.folder.exists()
