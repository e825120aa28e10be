"""Kept facts: they are what was written for this shard, or they are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolkit.columns import FACTS_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.records import KERNEL_VERSION, LiveShard
from toolkit.store.facts import facts_path, read_facts, receipt_path, write_facts
from toolkit.store.files import sha256_of
from toolkit.store.workspace import Dataset, Workspace

SHARD = LiveShard(path="shards/part-00000.parquet", sha256="ab" * 32, rows=2)

EMPTY = {pa.string(): "x", pa.int32(): 1, pa.int64(): 1, pa.float64(): 0.5, pa.bool_(): True}


def facts(rows: int = 2) -> pa.Table:
    one = {field.name: EMPTY.get(field.type, []) for field in FACTS_SCHEMA}
    return pa.Table.from_pylist([one | {"row_index": n} for n in range(rows)], schema=FACTS_SCHEMA)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Workspace(tmp_path).dataset_named("B3")


@pytest.fixture
def path(dataset: Dataset, kimi: Contract) -> Path:
    """The file of facts that were written."""
    write_facts(dataset, SHARD, kimi, facts())
    return facts_path(dataset, SHARD, kimi)


def test_what_is_written_is_read(dataset: Dataset, kimi: Contract, path: Path) -> None:
    kept = read_facts(dataset, SHARD, kimi)
    assert kept is not None
    assert kept.table.equals(facts())
    assert kept.sha256 == sha256_of(path) == write_facts(dataset, SHARD, kimi, facts())
    assert sorted(file.name for file in dataset.facts.iterdir()) == sorted([path.name, receipt_path(path).name])


def test_the_name_is_that_of_everything_they_depend_on(kimi: Contract, path: Path) -> None:
    assert path.stem.startswith(f"{'ab' * 16}-{kimi.sha256[:16]}-k{KERNEL_VERSION}")


def test_nothing_is_kept(dataset: Dataset, kimi: Contract) -> None:
    assert read_facts(dataset, SHARD, kimi) is None


def test_facts_of_another_shard_are_not_found(dataset: Dataset, kimi: Contract, path: Path) -> None:
    assert read_facts(dataset, LiveShard(path=SHARD.path, sha256="cd" * 32, rows=2), kimi) is None


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def edit_receipt(path: Path, **changes: object) -> None:
    receipt = receipt_path(path)
    receipt.write_text(json.dumps(json.loads(receipt.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def forge(path: Path, table: pa.Table) -> None:
    """Other facts, and a receipt for them."""
    pq.write_table(table, path)
    edit_receipt(path, facts_sha256=sha256_of(path))


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("a byte", lambda path: flip(path, 60), r"expected sha256 [0-9a-f]{16}… as it was written"),
    ("cut", lambda path: path.write_bytes(path.read_bytes()[:90]), "as it was written"),
    ("empty", lambda path: path.write_bytes(b""), "as it was written"),
    ("no receipt", lambda path: receipt_path(path).unlink(), "expected a receipt beside it, found none"),
    ("no JSON", lambda path: receipt_path(path).write_text("{"), "expected a receipt beside it: "),
    ("a list", lambda path: receipt_path(path).write_text("[]"), "expected a receipt beside it: "),
    ("a further key", lambda path: edit_receipt(path, more=1), "expected a receipt beside it: "),
    ("another shard", lambda path: edit_receipt(path, shard_sha256="cd" * 32), "is of another shard"),
    ("another contract", lambda path: edit_receipt(path, contract_sha256="cd" * 32), "is of another shard, contract"),
    ("another kernel", lambda path: edit_receipt(path, kernel_version=0), "is of another shard, contract, kernel"),
    ("other rows", lambda path: forge(path, facts(3)), "expected 2 rows, found 3"),
    ("fewer columns", lambda path: forge(path, facts().drop_columns(["n_ids"])), "expected the columns of kernel"),
    ("another type", lambda path: forge(path, with_text_for(path, "n_ids")), "n_ids|cannot|Failed"),
    (
        "no Parquet",
        lambda path: (path.write_bytes(b"PAR1"), edit_receipt(path, facts_sha256=sha256_of(path))),
        "cannot be read as Parquet",
    ),
]


def with_text_for(path: Path, name: str) -> pa.Table:
    table = pq.read_table(path)
    return table.set_column(table.schema.get_field_index(name), name, pa.array(["x"] * table.num_rows))


@pytest.mark.parametrize(("damage", "says"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_what_is_not_as_it_was_written_is_refused(
    dataset: Dataset, kimi: Contract, path: Path, damage: Callable[[Path], object], says: str
) -> None:
    damage(path)
    with pytest.raises(StoreError, match=says) as caught:
        read_facts(dataset, SHARD, kimi)
    assert str(caught.value).startswith(f"facts/{path.name}: ")


def test_a_writer_killed_between_facts_and_receipt(dataset: Dataset, kimi: Contract, path: Path) -> None:
    """The receipt goes first and comes last: what lies there in between is measured again."""
    receipt_path(path).unlink()
    with pytest.raises(StoreError):
        read_facts(dataset, SHARD, kimi)
    write_facts(dataset, SHARD, kimi, facts())
    assert read_facts(dataset, SHARD, kimi) is not None
