"""Files of a train set: every reader finds the rows that were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolkit.columns import TRAIN_SCHEMA
from toolkit.merge.train_file import write_train_file


def rows_of(lengths: list[int], **changes: Any) -> pa.Table:
    """Rows of a train set with so many ids each, from one end of 32 bits to the other."""
    draw = np.random.default_rng(len(lengths))
    rows = []
    for number, length in enumerate(lengths):
        fields = {
            **dict.fromkeys(TRAIN_SCHEMA.names),
            "id": f"B3/s{number}/0/0", "row_key": f"{number:064x}", "dataset": "B3",
            "input_ids": draw.choice([0, 1, 163585, 2**31 - 1, -(2**31)], length).tolist(),
            "loss_mask": draw.integers(0, 2, length).tolist(), "prompt_len": 1, "seq_len": length, "n_supervised": 1,
            "source": "sglang", "mode": "thinking", "ids_source": "engine", "prompt_ids_source": "engine",
            "contract": "kimi-k2.5", "contract_sha256": "c0", "content": "\u00fc" * (number % 3), "shard": "5a",
        }  # fmt: skip
        rows.append(fields | changes)
    return pa.Table.from_pylist(rows, schema=TRAIN_SCHEMA).combine_chunks()


SHAPES = {
    "one id": [1],
    "several groups": [3] * 9_000,
    "a group that is full": [2] * 4_096,
    "several pages": [1_000] * 600,
    "a row longer than a page": [5, 300_000, 1, 300_000],
}


@pytest.mark.parametrize("lengths", SHAPES.values(), ids=SHAPES)
def test_every_reader_finds_the_rows_that_were_written(tmp_path: Path, lengths: list[int]) -> None:
    train, path = rows_of(lengths), tmp_path / "part.parquet"
    write_train_file(path, train)
    file = pq.ParquetFile(path, page_checksum_verification=True)
    pq.write_table(train, tmp_path / "arrow.parquet")
    assert file.schema_arrow.equals(pq.read_schema(tmp_path / "arrow.parquet"), check_metadata=True)
    assert file.read().equals(train)
    assert pl.read_parquet(path).equals(pl.from_arrow(train))
    duckdb = pytest.importorskip("duckdb")
    seen = duckdb.sql(f"SELECT id, input_ids, loss_mask, content FROM '{path}'").to_arrow_table()
    assert seen.to_pydict() == train.select(seen.column_names).to_pydict()


def test_row_groups_can_be_read_alone(tmp_path: Path) -> None:
    train, path = rows_of([3] * 9_000), tmp_path / "part.parquet"
    write_train_file(path, train)
    file = pq.ParquetFile(path)
    assert file.metadata.num_row_groups == 3
    assert file.read_row_group(1).equals(train.slice(4_096, 4_096))


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_train_file(tmp_path / name, rows_of([5, 6, 7]))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_byte_that_was_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    write_train_file(path, rows_of([100] * 50))
    for name in ("input_ids", "loss_mask"):
        group = pq.ParquetFile(path).metadata.row_group(0)
        columns = map(group.column, range(group.num_columns))
        column = next(column for column in columns if column.path_in_schema.startswith(name))
        broken = bytearray(path.read_bytes())
        broken[column.data_page_offset + column.total_compressed_size // 2] ^= 1
        (tmp_path / "broken").write_bytes(broken)
        with pytest.raises((pa.ArrowException, OSError)):
            pq.ParquetFile(tmp_path / "broken", page_checksum_verification=True).read(columns=[name])
