"""Kept facts are held against their shard: what they carry in full, what was measured by a sample."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.rows import add_dataset, row
from toolkit.audit.gather import gather
from toolkit.audit.held_facts import SAMPLED_IDS, SAMPLED_ROWS_PER_SHARD, carried_fault, choose_rows, sample_fault
from toolkit.audit.measure import measure
from toolkit.audit.shard_facts import ShardStatus, ShardTask
from toolkit.audit.spread import LocalExecutor
from toolkit.records import LiveShard
from toolkit.store.files import sha256_of
from toolkit.store.shards import read_live
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .workspace import Bench, make_bench

ROWS = 200


@pytest.fixture
def bench(tmp_path: Path, vocabulary: Vocabulary) -> Bench:
    return make_bench(tmp_path, vocabulary)


@pytest.fixture
def large(tmp_path: Path, vocabulary: Vocabulary) -> tuple[Dataset, LiveShard]:
    """A shard of four row groups of 50 rows."""

    dataset = add_dataset(Workspace(tmp_path), "B7", [row(f"s{n}") for n in range(ROWS)])
    (shard,) = read_live(dataset).shards
    path = dataset.folder / shard.path
    pq.write_table(pq.read_table(path), path, row_group_size=50)
    return dataset, LiveShard(path=shard.path, sha256=sha256_of(path), rows=ROWS)


def positions_of(large: tuple[Dataset, LiveShard], count: int, seed: str) -> list[int]:
    rows, positions = choose_rows(*large, count, seed)
    assert rows["sample_id"].to_pylist() == [f"s{n}" for n in positions]
    return [int(position) for position in positions]


def test_a_seed_chooses_rows(large: tuple[Dataset, LiveShard]) -> None:
    assert positions_of(large, 5, "a") == positions_of(large, 5, "a")
    assert positions_of(large, 5, "a") != positions_of(large, 5, "b")
    assert len(set(positions_of(large, 5, "a"))) == 5


def test_every_row_can_be_chosen(large: tuple[Dataset, LiveShard]) -> None:
    seen = {position for n in range(60) for position in positions_of(large, 40, str(n))}
    assert seen == set(range(ROWS))


@pytest.mark.parametrize("count", [51, 199, 200, 10_000])
def test_a_large_sample_is_drawn_from_all_row_groups(large: tuple[Dataset, LiveShard], count: int) -> None:
    positions = positions_of(large, count, "a")
    assert len(positions) == min(count, ROWS)
    assert {position // 50 for position in positions} == {0, 1, 2, 3}


def test_a_sample_is_bounded_by_ids_but_never_below_a_number_of_rows(large: tuple[Dataset, LiveShard]) -> None:
    dataset, shard = large
    held = sum(len(ids) for ids in pq.read_table(dataset.folder / shard.path)["output_ids"].to_pylist())

    def chosen(max_ids: int | None) -> int:
        return len(choose_rows(dataset, shard, 180, "a", max_ids=max_ids)[1])

    assert chosen(None) == chosen(held) == 180
    assert chosen(held // 2) == ROWS // 2
    assert chosen(1) == SAMPLED_ROWS_PER_SHARD


def test_a_small_dataset_is_measured_again_in_full_however_its_rows_are_spread(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    bench = make_bench(tmp_path, vocabulary, rows=300)
    shards = read_live(bench.dataset).shards
    asked: list[ShardTask] = []

    class Asked(LocalExecutor):
        def run(self, tasks: Sequence[ShardTask]) -> Generator[ShardStatus, None, None]:
            asked.extend(tasks)
            return super().run(tasks)

    unequal = [replace(shards[0], rows=290), replace(shards[1], rows=10)]
    for sampled, rows, ids in ((300, [290, 10], None), (299, [150, 150], SAMPLED_IDS // 2)):
        asked.clear()
        executor = Asked(bench.load)
        gather(bench.dataset, unequal, bench.contract, bench.load, seed="", sampled_rows=sampled, executor=executor)
        assert [(task.sampled_rows, task.sampled_ids) for task in asked] == [(n, ids) for n in rows]


def facts_of(bench: Bench) -> tuple[pa.Table, pa.Table, str]:
    """(facts, rows, sha256) of the first shard."""
    shard = read_live(bench.dataset).shards[0]
    rows = pq.read_table(bench.dataset.folder / shard.path)
    return measure(rows, bench.contract, bench.vocabulary, shard_sha256=shard.sha256), rows, shard.sha256


def altered(facts: pa.Table, name: str, values: Sequence[object]) -> pa.Table:
    field = facts.schema.field(name)
    return facts.set_column(facts.schema.get_field_index(name), field, pa.array(values, field.type))


def test_what_is_carried_stands_in_the_shard(bench: Bench) -> None:
    facts, rows, sha256 = facts_of(bench)
    assert carried_fault(facts, rows, sha256) is None
    for name, values, says in [
        ("provider", ["Avian"] * 10, "provider: expected what stands in the shard"),
        ("provider", [None] + ["Chutes"] * 9, "provider: expected what stands in the shard"),
        ("notes", [["x"]] * 10, "notes: expected what stands in the shard"),
        ("completion_tokens", [1] * 10, "completion_tokens: expected"),
        ("row_index", [*range(9), 8], "row_index: expected the rows in the shard's order"),
        ("shard", ["00"] * 10, "shard: expected the shard's own sha256"),
    ]:
        assert (carried_fault(altered(facts, name, values), rows, sha256) or "").startswith(says)


def test_what_was_measured_is_measured_again(bench: Bench) -> None:
    facts, _, _ = facts_of(bench)
    positions = np.array([2, 3, 7])
    sample = facts.take(pa.array(positions))
    assert sample_fault(sample, sample, positions) is None
    other = altered(sample, "text_equal", [True, True, None])
    assert sample_fault(other, sample, positions) == "row 3: text_equal: kept as True, measured as False"


def test_a_forged_row_of_a_large_shard_is_found_by_those_seeds_that_draw_it(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    """Two shards of 150 rows, of which the sample takes 64: every row has a chance, and a seed decides."""
    bench = make_bench(tmp_path, vocabulary, rows=300, bad=(3,))
    shards = read_live(bench.dataset).shards

    def again(seed: str) -> int:
        bench.told.clear()
        return gather(
            bench.dataset,
            shards,
            bench.contract,
            bench.load,
            seed=seed,
            scratch=tmp_path,
            sampled_rows=1,
            tell=bench.told.append,
        ).measured_shards

    gather(bench.dataset, shards, bench.contract, bench.load, seed="")
    assert again("a") == 0
    bench.alter_facts("text_equal", True, with_receipt=True)
    drawn = {seed: 3 in choose_rows(bench.dataset, shards[0], SAMPLED_ROWS_PER_SHARD, f"{seed}/{shards[0].sha256}")[1]
             for seed in "abcdefgh"}  # fmt: skip
    assert set(drawn.values()) == {True, False}
    assert {seed: again(seed) == 1 for seed in drawn} == drawn


def test_only_facts_that_are_named_are_believed(bench: Bench, tmp_path: Path) -> None:
    shards = read_live(bench.dataset).shards
    first = gather(bench.dataset, shards, bench.contract, bench.load, seed="")
    assert set(first.files) == {shard.sha256 for shard in shards}

    def believing(files: dict[str, str]) -> int:
        return gather(
            bench.dataset, shards, bench.contract, bench.load, seed="", believed=files, scratch=tmp_path
        ).measured_shards

    assert believing(dict(first.files)) == 0
    assert believing({shards[0].sha256: first.files[shards[0].sha256]}) == 1
    assert believing({}) == 2
