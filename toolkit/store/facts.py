"""Measured facts, one file a shard, named by everything that they depend on: an unchanged shard is measured once.

Beside each file lies a receipt with the sha256 of the bytes that were written. It finds what was altered or cut;
whoever forges both is found by measuring a sample of the rows again (`toolkit.audit.gather`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.columns import FACTS_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.phrases import SHIPPED, Phrases
from toolkit.records import KERNEL_VERSION, LiveShard
from toolkit.store.files import read_bytes, sha256_of, write_atomic, write_whole
from toolkit.store.workspace import Dataset

ROWS_PER_GROUP = 16_384


@dataclass(frozen=True, slots=True)
class FactsFile:
    """A file with facts of one shard, and the sha256 of its bytes."""

    path: Path
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one shard, a table of `FACTS_SCHEMA`, and the sha256 of the file that holds them."""

    table: pa.Table
    sha256: str


class _Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shard_sha256: str
    contract_sha256: str
    kernel_version: int
    phrases_sha256: str | None
    rows: int
    facts_sha256: str


def facts_path(dataset: Dataset, shard: LiveShard, contract: Contract, *, phrases: Phrases | None = SHIPPED) -> Path:
    """Where the facts of a shard lie that were measured with these phrases; None: without text health."""
    health = "" if phrases is None else f"-h{phrases.sha256[:16]}"
    return dataset.facts / f"{shard.sha256[:32]}-{contract.sha256[:16]}-k{KERNEL_VERSION}{health}.parquet"


def receipt_path(path: Path) -> Path:
    """Where the receipt of a facts file lies."""
    return path.with_suffix(".json")


def read_facts(
    dataset: Dataset, shard: LiveShard, contract: Contract, *, phrases: Phrases | None = SHIPPED
) -> Facts | None:
    """The kept facts of a shard that were measured with these phrases; None where none are kept.

    Raises:
        StoreError: what lies there is not what was written for this shard: measure again.
    """
    kept = find_facts(dataset, shard, contract, phrases=phrases)
    return None if kept is None else Facts(load_facts(kept), kept.sha256)


def find_facts(
    dataset: Dataset, shard: LiveShard, contract: Contract, *, phrases: Phrases | None = SHIPPED
) -> FactsFile | None:
    """The file that `read_facts` reads, its bytes held against its receipt, its rows not read.

    Raises:
        StoreError: what lies there is not what was written for this shard: measure again.
    """
    path = facts_path(dataset, shard, contract, phrases=phrases)
    name = f"facts/{path.name}"
    if not path.exists():
        return None
    receipt = _read_receipt(path, name)
    found = sha256_of(path)
    expected = _receipt_of(shard, contract, phrases, found)
    if receipt.facts_sha256 != found:
        raise StoreError(f"{name}: expected sha256 {receipt.facts_sha256[:16]}… as it was written, found {found[:16]}…")
    if receipt != expected:
        raise StoreError(f"{name}: its receipt is of another shard, contract, kernel or list of phrases")
    return FactsFile(path, found, shard.rows)


def write_facts(
    dataset: Dataset,
    shard: LiveShard,
    contract: Contract,
    facts: pa.Table | Iterable[pa.Table],
    *,
    phrases: Phrases | None = SHIPPED,
) -> str:
    """Keep the facts of a shard, measured with these phrases: a table, or tables in their order as they come; the
    sha256 of the file.

    Raises:
        StoreError: they cannot be written.
    """
    path = facts_path(dataset, shard, contract, phrases=phrases)
    # Killed between the two, facts lie there without a receipt, or with that of others: they are measured again.
    with suppress(OSError):
        receipt_path(path).unlink()
    sha256 = write_tables(path, [facts] if isinstance(facts, pa.Table) else facts)
    write_atomic(receipt_path(path), msgspec.json.encode(_receipt_of(shard, contract, phrases, sha256)) + b"\n")
    return sha256


def write_tables(path: Path, tables: Iterable[pa.Table]) -> str:
    """Write tables of `FACTS_SCHEMA` one after the other as one file; the sha256 of its bytes, which do not depend on
    where one table ends and the next begins. Of many rows only `ROWS_PER_GROUP` are held in memory.

    Raises:
        StoreError: they cannot be written.
    """

    def write(temporary: Path) -> None:
        with pq.ParquetWriter(temporary, FACTS_SCHEMA, compression="zstd", write_page_checksum=True) as writer:
            for group in _groups(tables):
                writer.write_table(group, row_group_size=ROWS_PER_GROUP)

    write_whole(path, write)
    return sha256_of(path)


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of `ROWS_PER_GROUP`, each column in one piece; the last one has what is left."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        while rows >= ROWS_PER_GROUP:
            joined = pa.concat_tables(held)
            yield joined.slice(0, ROWS_PER_GROUP).combine_chunks()
            held, rows = [joined.slice(ROWS_PER_GROUP)], rows - ROWS_PER_GROUP
    if rows:
        yield pa.concat_tables(held).combine_chunks()


def _receipt_of(shard: LiveShard, contract: Contract, phrases: Phrases | None, sha256: str) -> _Receipt:
    return _Receipt(
        shard_sha256=shard.sha256,
        contract_sha256=contract.sha256,
        kernel_version=KERNEL_VERSION,
        phrases_sha256=None if phrases is None else phrases.sha256,
        rows=shard.rows,
        facts_sha256=sha256,
    )


def _read_receipt(path: Path, name: str) -> _Receipt:
    if not receipt_path(path).exists():
        raise StoreError(f"{name}: expected a receipt beside it, found none")
    try:
        return msgspec.json.decode(read_bytes(receipt_path(path)), type=_Receipt)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(f"{name}: expected a receipt beside it: {error}") from None


def load_facts(file: FactsFile) -> pa.Table:
    """All rows of a file that `find_facts` found.

    Raises:
        StoreError: it does not hold the facts of this version.
    """
    name = f"facts/{file.path.name}"
    try:
        table = pq.ParquetFile(file.path, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{name}: cannot be read as Parquet: {str(error).splitlines()[0][:200]}") from None
    if table.schema.names != FACTS_SCHEMA.names:
        raise StoreError(f"{name}: expected the columns of kernel version {KERNEL_VERSION}, found others")
    if table.num_rows != file.rows:
        raise StoreError(f"{name}: expected {file.rows} rows, found {table.num_rows}")
    try:
        return table.cast(FACTS_SCHEMA)
    except (pa.ArrowException, ValueError) as error:
        raise StoreError(f"{name}: {str(error).splitlines()[0][:200]}") from None
