"""Discard: the rows that an expression chooses are taken out of a dataset, and are asked again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.phrases import read_phrases
from toolkit.records import Json, LiveShard
from toolkit.rows import RowBuilder
from toolkit.sealing import seal_held
from toolkit.store.discards import Discarded, discard_held
from toolkit.store.facts import read_facts
from toolkit.store.files import sha256_of, sole_writer
from toolkit.store.journal import count_entries
from toolkit.store.row_filter import QUARANTINE_FIELDS, RowFilter, Selection, select_rows
from toolkit.store.shards import read_live
from toolkit.store.verdicts import read_quarantine, read_verdict
from toolkit.store.workspace import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOutcome:
    """What was chosen, and what became of it.

    Attributes:
        rows: Rows that the expression chose.
        of: Rows that there are.
        examples: A few of them.
        discarded: The record; None where nothing was chosen or nothing was to be done.
        unsealed: Replies in the journal that were not looked at; none where rows were discarded.
        sealed: Rows that were sealed first.
    """

    rows: int
    of: int
    examples: list[dict[str, Json]]
    discarded: Discarded | None = None
    unsealed: int = 0
    sealed: int = 0


def choose_rows(dataset: Dataset, where: RowFilter, contract: Contract) -> DiscardOutcome:
    """What `discard_where` would discard now. Changes nothing.

    Raises:
        StoreError: a shard cannot be read, or a condition speaks of facts that are not measured.
    """
    chosen = _selection(dataset, where, contract)
    unsealed = count_entries(dataset.journal)
    return DiscardOutcome(rows=chosen.rows, of=chosen.of, examples=chosen.examples, unsealed=unsealed)


def discard_where(
    dataset: Dataset, where: RowFilter, reason: str, contract: Contract, builder_of: Callable[[], RowBuilder]
) -> DiscardOutcome:
    """Discard the rows that an expression chooses; replies that wait in the journal are sealed first.

    Args:
        dataset: Whose rows.
        where: Which rows.
        reason: Why.
        contract: The dataset's contract.
        builder_of: Makes its rows; only called where something has to be sealed.

    Raises:
        ConfigError: no reason, or the journal belongs to another contract.
        StoreError: another process writes to the dataset, or a file cannot be read or written; then all rows are live.
    """
    with sole_writer(dataset.lock):
        sealed = seal_held(dataset, builder_of()) if count_entries(dataset.journal) else 0
        chosen = _selection(dataset, where, contract)
        record = discard_held(dataset, chosen.masks, reason=reason, where=where.text) if chosen.rows else None
    return DiscardOutcome(
        rows=chosen.rows, of=chosen.of, examples=chosen.examples, discarded=record, sealed=sealed,
    )  # fmt: skip


def _selection(dataset: Dataset, where: RowFilter, contract: Contract) -> Selection:
    phrases = read_phrases(dataset.folder.parents[1])

    def facts_of(shard: LiveShard) -> pa.Table | None:
        facts = read_facts(dataset, shard, contract, phrases=phrases)
        return None if facts is None else facts.table

    if not where.of_quarantine:
        return select_rows(dataset, where, facts_of, lambda shard: _reasons_of(shard, {}))
    found = _quarantine(dataset)
    return select_rows(dataset, where, facts_of, lambda shard: _reasons_of(shard, found.get(shard.sha256, {})))


def _quarantine(dataset: Dataset) -> dict[str, dict[int, list[str]]]:
    """sha256 of each shard → position → reasons, of the last audit, which must be one of just the live shards.

    Raises:
        StoreError: there was none, rows came or went since, or quarantine.parquet is not the one that it wrote.
    """
    verdict, path = read_verdict(dataset.verdict), dataset.quarantine
    if {shard.sha256 for shard in verdict.shards} != {shard.sha256 for shard in read_live(dataset).shards}:
        raise StoreError(f"--where: {dataset.verdict} is of other shards than those that are live; audit first")
    table = read_quarantine(path)
    if sha256_of(path) != verdict.quarantine_sha256:
        raise StoreError(f"--where: {path}: is not the one that the audit wrote; audit first")
    found: dict[str, dict[int, list[str]]] = {}
    for row in table.select(["shard", "row_index", "reasons"]).to_pylist():
        found.setdefault(row["shard"], {})[row["row_index"]] = row["reasons"]
    return found


def _reasons_of(shard: LiveShard, found: Mapping[int, list[str]]) -> pa.Table:
    """`QUARANTINE_FIELDS` of each row of a shard."""
    reasons = [found.get(position, []) for position in range(shard.rows)]
    columns = (pa.array(map(bool, reasons), pa.bool_()), pa.array(reasons, pa.list_(pa.string())))
    return pa.table(dict(zip(QUARANTINE_FIELDS, columns, strict=True)))
