"""Sealing: rows become shards, all of them listed at once, in memory that does not grow with the shard."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT
from tests.rows import row
from toolkit.assembly import packed
from toolkit.columns import SHARD_SCHEMA
from toolkit.errors import ShardError, StoreError
from toolkit.store import shard_writer
from toolkit.store.files import sha256_of
from toolkit.store.listing import seal_batches, seal_rows
from toolkit.store.live_rows import LiveRows, digest_of
from toolkit.store.shard_writer import batches_of, gathered
from toolkit.store.shards import LiveShards, iter_shard, open_shard, read_live, read_shard, unlisted_shards, write_live
from toolkit.store.workspace import Dataset, Workspace


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Workspace(tmp_path).dataset_named("B3")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "ROWS_PER_SHARD", 2)
    monkeypatch.setattr(shard_writer, "ROWS_PER_BATCH", 1)


def seal(dataset: Dataset, *names: str, **options: Any) -> None:
    seal_rows(dataset, (row(name) for name in names), contract="kimi-k2.5", **options)


def names_in(dataset: Dataset) -> list[list[str]]:
    return [read_shard(dataset, shard)["sample_id"].to_pylist() for shard in read_live(dataset).shards]


def test_rows_come_back_as_they_were(dataset: Dataset) -> None:
    rows = [
        row("a"),
        row("b", output_ids=None, ids_source=None, prompt_ids=None, prompt_ids_source=None, notes=["x", "y"]),
        row("c", output_ids=[], prompt_ids=np.array([2**31 - 1, 0], dtype=np.int64), reasoning="", content="日\x00"),
        row("d", output_ids=np.array([-(2**31), 5], dtype=np.int32), prompt_ids=np.empty(0, np.int32), reasoning=None),
        row("e", output_ids=np.array([7], dtype=np.uint32), prompt_ids=(1, 2)),
    ]
    seal_rows(dataset, rows, contract="kimi-k2.5")
    (shard,) = read_live(dataset).shards
    table = read_shard(dataset, shard)
    expected = pa.Table.from_pylist(rows, schema=SHARD_SCHEMA)
    assert table.to_pylist() == expected.to_pylist()
    assert (shard.path, shard.rows) == ("shards/part-00000.parquet", 5)


@pytest.mark.parametrize(
    "ids", [[1.5], ["1"], [2**31], [-(2**31) - 1], [2**70], [[1]], [True], {"a": 1}, "12", b"123", [1, None]]
)
def test_what_is_no_id_is_never_written(dataset: Dataset, ids: Any) -> None:
    with pytest.raises(TypeError, match="expected a list of 32-bit ids"):
        seal_rows(dataset, [row("a"), row("b", output_ids=ids)], contract="kimi-k2.5")
    assert read_live(dataset).shards == ()
    assert list(dataset.shards.glob("*")) == []


@pytest.mark.parametrize("payload", [None, 1, ["{}"]])
def test_a_payload_that_is_no_text_is_never_written(dataset: Dataset, payload: Any) -> None:
    with pytest.raises(TypeError, match="expected a text"):
        seal_rows(dataset, [row("a", payload=payload)], contract="kimi-k2.5")
    assert read_live(dataset).shards == ()


MANY = [
    row(str(i), payload="é" * (i % 7 * 100), content="x" * (i % 5 * 90), output_ids=[i] * (i % 3 * 40),
        prompt_ids=None if i % 4 else [1, 2], notes=["a"] * (i % 2), reasoning=None if i % 6 else "日")
    for i in range(60)
]  # fmt: skip


@pytest.mark.parametrize("at_once", [1, 7, 60])
def test_rows_that_come_together_are_the_batches_of_rows_that_come_alone(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(shard_writer, "ROWS_PER_BATCH", 9)
    monkeypatch.setattr(shard_writer, "_BYTES_PER_BATCH", 5_400)
    columns = [_columns(MANY[first : first + at_once]) for first in range(0, len(MANY), at_once)]
    alone, together = list(batches_of(MANY)), list(gathered(columns))
    assert [batch.num_rows for batch in together] == [batch.num_rows for batch in alone]
    assert all(a.equals(b) for a, b in zip(alone, together, strict=True))
    assert pa.Table.from_batches(together).equals(pa.Table.from_pylist(MANY, schema=SHARD_SCHEMA))
    # Some of them end at their rows, and some at their bytes.
    assert {9} < {batch.num_rows for batch in alone[:-1]}


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The columns of some rows, as their maker gives them: ids packed, payloads in UTF-8."""
    columns = {name: [row[name] for row in rows] for name in SHARD_SCHEMA.names}
    columns["output_ids"] = [packed(ids) for ids in columns["output_ids"]]
    columns["payload"] = [payload.encode() for payload in columns["payload"]]
    return columns


def test_a_batch_ends_at_its_limit_of_letters_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "_BYTES_PER_BATCH", 1_000)
    texts = [row(str(i), payload="", messages="", reasoning="é" * 300, content=None, prompt_ids=[]) for i in range(5)]
    ids = [one | {"reasoning": None, "output_ids": [7] * 100} for one in texts]
    texts = [one | {"output_ids": None} for one in texts]
    assert [batch.num_rows for batch in batches_of([*texts, *ids])] == [4, 3, 3]


def test_a_null_where_none_may_be(dataset: Dataset) -> None:
    with pytest.raises(pa.ArrowInvalid):
        seal_rows(dataset, [row("a", mode=None)], contract="kimi-k2.5")
    assert read_live(dataset).shards == ()


def test_a_null_among_ids(dataset: Dataset) -> None:
    batch = pa.Table.from_pylist([row("a") | {"output_ids": [1, None]}], schema=SHARD_SCHEMA).to_batches()
    with pytest.raises(pa.ArrowInvalid, match="contains nulls"):
        seal_batches(dataset, iter(batch), contract="kimi-k2.5")
    assert read_live(dataset).shards == ()


def test_shards_of_ids_that_may_be_null_stand_beside_others(dataset: Dataset) -> None:
    """As versions before 0.6.0 wrote them."""
    seal(dataset, "a")
    seal(dataset, "b")
    old, new = read_live(dataset).shards
    path = dataset.folder / old.path
    pq.write_table(read_shard(dataset, old).cast(SHARD_SCHEMA), path)
    write_live(dataset, LiveShards("kimi-k2.5", (replace(old, sha256=sha256_of(path)), new)))
    old, new = read_live(dataset).shards
    kinds = [open_shard(dataset, shard).schema_arrow.field("output_ids").type.value_field for shard in (old, new)]
    assert [kind.nullable for kind in kinds] == [True, False]
    seal(dataset, "c", replaced={new.path: [0]})
    assert names_in(dataset) == [["a"], ["c"]]
    rows = [batch for shard in read_live(dataset).shards for batch in iter_shard(dataset, shard)]
    assert pa.Table.from_batches(rows)["sample_id"].to_pylist() == ["a", "c"]


@pytest.mark.usefixtures("tiny")
def test_a_shard_ends_at_its_limit(dataset: Dataset) -> None:
    seal(dataset, *"abcde")
    assert names_in(dataset) == [["a", "b"], ["c", "d"], ["e"]]
    seal(dataset, "f")
    assert [shard.path[-9:-8] for shard in read_live(dataset).shards] == ["0", "1", "2", "3"]


def test_long_texts_and_ids_end_a_row_group_and_a_shard(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "ROWS_PER_BATCH", 1)
    monkeypatch.setattr(shard_writer, "BYTES_PER_GROUP", 5_000)
    monkeypatch.setattr(shard_writer, "BYTES_PER_SHARD", 12_000)
    texts = [row(f"t{i}", payload="x" * 4_000) for i in range(4)]
    ids = [row(f"i{i}", output_ids=[7] * 1_000) for i in range(4)]
    seal_rows(dataset, [*texts, *ids], contract="kimi-k2.5")
    shards = read_live(dataset).shards
    assert [shard.rows for shard in shards] == [3, 3, 2]
    assert [pq.ParquetFile(dataset.folder / s.path).metadata.num_row_groups for s in shards] == [3, 3, 2]


def test_nothing_is_listed_before_everything_is_written(dataset: Dataset) -> None:
    seen: list[list[str]] = []

    def look() -> None:
        seen.append([shard.path for shard in read_live(dataset).shards])
        assert len(list(dataset.shards.glob("*.parquet"))) == 1

    seal(dataset, "a", before_listing=look)
    assert seen == [[]]
    seal(dataset, before_listing=look)
    assert seen == [[], ["shards/part-00000.parquet"]]


def test_rows_that_break_off_leave_the_live_ones(dataset: Dataset) -> None:
    seal(dataset, "a")

    def rows() -> Iterator[dict[str, Any]]:
        yield row("b")
        raise StoreError("the source is gone")

    with pytest.raises(StoreError, match="the source is gone"):
        seal_rows(dataset, rows(), contract="kimi-k2.5")
    assert names_in(dataset) == [["a"]]
    assert unlisted_shards(dataset, read_live(dataset)) == []


def test_what_a_killed_writer_left_is_cleared_away(dataset: Dataset) -> None:
    seal(dataset, "a")
    dataset.failures.mkdir()
    left = [
        dataset.shards / ".part-00001.parquet.abc.tmp",
        dataset.folder / ".shards.json.abc.tmp",
        dataset.failures / ".import-0.jsonl.abc.tmp",
    ]
    own = dataset.folder / ".prompts.jsonl.swp.tmp"
    for path in (*left, own):
        path.write_bytes(b"half")
    (dataset.shards / "part-00001.parquet").write_bytes(b"whole, but never listed")
    seal(dataset, "b")
    assert [path.exists() for path in (*left, own)] == [False, False, False, True]
    assert names_in(dataset) == [["a"], ["b"]]
    assert len(list((dataset.folder / "set_aside").iterdir())) == 1


# --- replaced rows -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny")
def test_replaced_rows_leave_their_shards(dataset: Dataset) -> None:
    seal(dataset, *"abcdef")
    first, second, third = read_live(dataset).shards
    replaced: dict[str, set[int]] = {}

    def rows() -> Iterator[dict[str, Any]]:
        for name, shard, position in (("a", first, 0), ("c", second, 0), ("d", second, 1)):
            replaced.setdefault(shard.path, set()).add(position)
            yield row(name, content="new")

    seal_rows(dataset, rows(), contract="kimi-k2.5", replaced=replaced)
    live = read_live(dataset)
    assert live.shards[0] == third
    assert sorted(name for names in names_in(dataset) for name in names) == list("abcdef")
    contents = [row for shard in live.shards for row in read_shard(dataset, shard).to_pylist()]
    assert sorted(row["sample_id"] for row in contents if row["content"] == "new") == ["a", "c", "d"]
    assert unlisted_shards(dataset, live) == []
    assert len(list((dataset.folder / "set_aside").iterdir())) == 2


def test_rows_of_a_damaged_shard_are_not_replaced(dataset: Dataset) -> None:
    seal(dataset, "a", "b")
    path = dataset.shards / "part-00000.parquet"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    before = dataset.live.read_bytes()
    with pytest.raises(ShardError, match="expected sha256"):
        seal(dataset, "a", replaced={"shards/part-00000.parquet": {0}})
    assert dataset.live.read_bytes() == before


def test_what_a_row_was_made_from(dataset: Dataset) -> None:
    payload = json.dumps({"body": "b", "model": "m", "ids_are": "given"})
    seal_rows(
        dataset,
        [row("a", payload=payload), row("a", payload=payload, probe=True, messages=None), row("b", payload="5")],
        contract="kimi-k2.5",
    )
    rows = LiveRows(dataset)
    found = rows.find(("a", 0, 0, True))
    assert found is not None
    assert (found.where, found.body, found.messages) == ("row 1 of shards/part-00000.parquet", digest_of("b"), None)
    assert (found.made_with.mode, found.made_with.model, found.made_with.ids_are) == ("thinking", "m", "given")
    assert rows.find(("a", 0, 1, False)) is None
    odd = rows.find(("b", 0, 0, False))
    assert odd is not None
    assert odd.made_with.model is None


def test_batches_of_a_shard_are_its_rows(dataset: Dataset) -> None:
    seal(dataset, *(str(i) for i in range(600)))
    (shard,) = read_live(dataset).shards
    batches = list(iter_shard(dataset, shard))
    assert len(batches) > 1
    assert pa.Table.from_batches(batches).equals(read_shard(dataset, shard).cast(SHARD_SCHEMA))
    assert next(batch.schema.names for batch in iter_shard(dataset, shard, ["notes", "turn"])) == ["notes", "turn"]


# --- shards.json ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["shards/part-².parquet", "shards/part-٣.parquet", "shards/../part-0.parquet", "part-0.parquet", "shards/x.parquet",
     "shards/part-0", "shards/part-0.parquet\n", "/shards/part-0.parquet", "shards/part-\x1b[0m.parquet"],
)  # fmt: skip
def test_names_that_are_none_of_a_shard(dataset: Dataset, path: str) -> None:
    seal(dataset, "a")
    listed = json.loads(dataset.live.read_text(encoding="utf-8"))
    listed["shards"][0]["path"] = path
    dataset.live.write_text(json.dumps(listed), encoding="utf-8")
    with pytest.raises(StoreError, match=r"shards\.json: expected shards/part-\*\.parquet, found"):
        seal(dataset, "b")


def test_a_shard_with_a_name_of_its_own_is_no_number(dataset: Dataset) -> None:
    seal(dataset, "a")
    (dataset.shards / "part-00000.parquet").rename(dataset.shards / "part-mine.parquet")
    listed = json.loads(dataset.live.read_text(encoding="utf-8"))
    listed["shards"][0]["path"] = "shards/part-mine.parquet"
    dataset.live.write_text(json.dumps(listed), encoding="utf-8")
    seal(dataset, "b")
    assert names_in(dataset) == [["a"], ["b"]]


SEAL_MANY = """
import sys
from pathlib import Path
import numpy as np
from tests.merge.merging import peak_mb
from tests.rows import row
from toolkit.store.files import sha256_of
from toolkit.store.listing import seal_batches, seal_rows
from toolkit.store.workspace import Workspace

def rows():
    rng = np.random.default_rng(7)
    for number in range(16_384):
        yield row(str(number), payload=f"{number:08d}" * 500, output_ids=rng.integers(0, 163_584, 2_000).tolist())

dataset = Workspace(Path(sys.argv[1])).dataset_named("B3")
seal_rows(dataset, [row("first")], contract="kimi-k2.5")
before = peak_mb()
seal_rows(dataset, rows(), contract="kimi-k2.5")
print(int(peak_mb() - before))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_shard(dataset: Dataset, tmp_path: Path) -> None:
    """16,384 rows of 2,000 ids and 4 KB: as Python lists they would take 1.3 GB. In a process of its own, as a peak
    never falls."""
    done = subprocess.run(
        [sys.executable, "-c", SEAL_MANY, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [shard.rows for shard in read_live(dataset).shards] == [1, 16_384]
    assert int(done.stdout) < 200


@pytest.mark.parametrize("from_the_end", [5, 8, 40, 2000])
def test_bytes_that_were_changed_are_told_from_a_file_that_was_cut(dataset: Dataset, from_the_end: int) -> None:
    seal(dataset, "a", "b")
    (shard,) = read_live(dataset).shards
    path = dataset.folder / shard.path
    sealed = path.read_bytes()
    changed = bytearray(sealed)
    changed[-from_the_end] ^= 0xFF
    path.write_bytes(changed)
    with pytest.raises(ShardError, match="its bytes were changed after it was sealed"):
        read_shard(dataset, shard)
    path.write_bytes(sealed[:-from_the_end])
    with pytest.raises(ShardError, match="cut short or is no Parquet file"):
        read_shard(dataset, shard)
    path.write_bytes(b"")
    with pytest.raises(ShardError, match="cut short or is no Parquet file"):
        read_shard(dataset, shard)


def test_every_flipped_byte_of_a_footer_is_an_error_of_the_shard(dataset: Dataset) -> None:
    seal(dataset, "a")
    (shard,) = read_live(dataset).shards
    path = dataset.folder / shard.path
    sealed = path.read_bytes()
    for at in range(len(sealed) - 1500, len(sealed), 7):
        path.write_bytes(sealed[:at] + bytes([sealed[at] ^ 0x80]) + sealed[at + 1 :])
        with pytest.raises(ShardError, match="expected sha256"):
            read_shard(dataset, shard)
