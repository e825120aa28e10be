"""Measured facts, one file a shard, named by everything that they depend on: an unchanged shard is measured once.

Beside each file lies a receipt with the sha256 of the bytes that were written. It finds what was altered or cut;
whoever forges both is found by measuring a sample of the rows again (`toolkit.audit.gather`).
"""

from __future__ import annotations

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
    return Facts(_read_table(path, name, shard), found)


def write_facts(
    dataset: Dataset, shard: LiveShard, contract: Contract, facts: pa.Table, *, phrases: Phrases | None = SHIPPED
) -> str:
    """Keep the facts of a shard, measured with these phrases; the sha256 of the file.

    Raises:
        StoreError: they cannot be written.
    """
    path = facts_path(dataset, shard, contract, phrases=phrases)

    def write(temporary: Path) -> None:
        pq.write_table(facts, temporary, compression="zstd", write_page_checksum=True)

    # Killed between the two, facts lie there without a receipt, or with that of others: they are measured again.
    with suppress(OSError):
        receipt_path(path).unlink()
    write_whole(path, write)
    sha256 = sha256_of(path)
    write_atomic(receipt_path(path), msgspec.json.encode(_receipt_of(shard, contract, phrases, sha256)) + b"\n")
    return sha256


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


def _read_table(path: Path, name: str, shard: LiveShard) -> pa.Table:
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{name}: cannot be read as Parquet: {str(error).splitlines()[0][:200]}") from None
    if table.schema.names != FACTS_SCHEMA.names:
        raise StoreError(f"{name}: expected the columns of kernel version {KERNEL_VERSION}, found others")
    if table.num_rows != shard.rows:
        raise StoreError(f"{name}: expected {shard.rows} rows, found {table.num_rows}")
    try:
        return table.cast(FACTS_SCHEMA)
    except (pa.ArrowException, ValueError) as error:
        raise StoreError(f"{name}: {str(error).splitlines()[0][:200]}") from None
