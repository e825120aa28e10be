"""What becomes of a shard's rows before the mix is asked: left out, or fit to be trained on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.columns import SHARD_SCHEMA, TRAIN_SCHEMA
from toolkit.errors import StoreError
from toolkit.gate import OpenGate
from toolkit.masks import Bools, Ints, MaskForm, in_window
from toolkit.merge.id_lists import lengths_of
from toolkit.merge.selection import REASONS, TRAIN, Dropped
from toolkit.records import LiveShard

IDENTITY = ["sample_id", "turn", "sample_index"]
LISTS = ["prompt_ids", "output_ids"]
COPIED = [name for name in TRAIN_SCHEMA.names if name in SHARD_SCHEMA.names]
"""Columns of a train set that are as in the shard."""

_NEVER_NULL = [*IDENTITY, *(name for name in COPIED if not TRAIN_SCHEMA.field(name).nullable)]
_SHOWN_CHARACTERS = 80


def listed_of(quarantine: pa.Table, shard: LiveShard, where: str) -> pa.Table:
    """The lines of a quarantine that speak of a shard; their places are within it."""
    listed = quarantine.filter(pc.equal(quarantine["shard"], shard.sha256))
    indices = listed["row_index"].to_numpy()
    outside = indices[(indices < 0) | (indices >= shard.rows)]
    if len(outside):
        raise StoreError(f"{where}: has {shard.rows} rows, but the quarantine lists row {outside.max()}")
    return listed


def contradicted_of(listed: pa.Table | None, shard: LiveShard) -> pa.ChunkedArray:
    """Places in a shard of rows whose prompt evidence is contradicted."""
    if listed is None:
        return pa.chunked_array([[]], pa.int32())
    return listed.filter(pc.equal(listed["shard"], shard.sha256))["row_index"]


def here_of(positions: pa.ChunkedArray, first: int, count: int) -> Bools:
    """Which rows of a part that begins at `first` are among these positions of the shard."""
    mask = np.zeros(count, np.bool_)
    at = positions.to_numpy().astype(np.int64) - first
    mask[at[(at >= 0) & (at < count)]] = True
    return mask


def check_same_rows(part: pa.Table, listed: pa.Table, first: int, where: str) -> None:
    """The rows that a quarantine lists are those that it means: their row_keys agree."""
    indices = listed["row_index"].to_numpy()
    here = np.flatnonzero((indices >= first) & (indices < first + part.num_rows))
    keys = part["row_key"].take(pa.array(indices[here].astype(np.int64) - first))
    same = pc.fill_null(pc.equal(keys, listed["row_key"].take(pa.array(here))), False)
    if not pc.all(same, min_count=0).as_py():
        row = int(indices[here][pc.index(same, False).as_py()])
        raise StoreError(f"{where}: row {row}: the quarantine lists another row_key for it; audit again")


def fates_of(part: pa.Table, quarantined: Bools, contradicted: Bools) -> Ints:
    """The fate of each row, as far as it depends on the row alone. An empty list of ids is none."""
    conditions = {
        Dropped.QUARANTINED: quarantined,
        # A row that does not say whether it is a probe is not merged.
        Dropped.PROBE: pc.fill_null(part["probe"], True).to_numpy(),
        Dropped.NO_IDS: lengths_of(part["output_ids"]) == 0,
        Dropped.PROMPT_UNKNOWN: lengths_of(part["prompt_ids"]) == 0,
        Dropped.PROMPT_CONTRADICTED: contradicted,
    }
    return np.select(list(conditions.values()), [REASONS.index(r) for r in conditions], default=TRAIN).astype(np.int64)


def mask_fates_of(prompt_len: Ints, start: Ints, stop: Ints, form: MaskForm) -> Ints:
    """The fate of each row, as far as it depends on where its loss falls."""
    seen = in_window(prompt_len, start, stop, form)
    conditions = {
        Dropped.NOTHING_SUPERVISED: stop <= start,
        Dropped.OUTSIDE_WINDOW: seen == 0,
        Dropped.NO_ADJACENT_PAIR: (seen < 2) & form.adjacent_pair,
    }
    return np.select(list(conditions.values()), [REASONS.index(r) for r in conditions], default=TRAIN).astype(np.int64)


def check_quarantine(gate: OpenGate, found: int) -> None:
    """Every row that a quarantine lists was found."""
    if found != gate.quarantine.num_rows:
        raise StoreError(
            f"{gate.dataset.quarantine}: lists {gate.quarantine.num_rows} rows, "
            f"of which {found} are found in the shards"
        )


def check_values(kept: pa.Table, contract: str, where: str) -> None:
    """Columns that are never null in a train set, and the ids in the lists, are there; the contract is the one."""
    for name in _NEVER_NULL:
        if kept[name].null_count:
            raise StoreError(
                f"{where}: column {name}: expected a value in every row, found {kept[name].null_count} nulls"
            )
    for name in LISTS:
        if pc.list_flatten(kept[name]).null_count:
            raise StoreError(f"{where}: column {name}: expected ids, found a null within a list")
    if set(pc.unique(kept["contract"]).to_pylist()) - {contract}:
        raise StoreError(f"{where}: expected rows of contract {contract} only, found others")


def check_unique(identities: Sequence[pa.Table], dataset: str) -> None:
    """No two rows bear one name; quarantined rows and probes, which are not written, are not among them."""
    if not identities:
        return
    frame = pl.DataFrame(pl.from_arrow(pa.concat_tables(identities)))
    twice = frame.filter(frame.is_duplicated())
    if len(twice):
        sample_id, turn, sample_index = twice.row(0)
        raise StoreError(
            f"{dataset}: expected each (sample_id, turn, sample_index) once, "
            f"found twice: {str(sample_id)[:_SHOWN_CHARACTERS]!r}, {turn}, {sample_index}"
        )


def count_reasons(quarantine: pa.Table) -> dict[str, int]:
    """Expectation id → quarantined rows, sorted by id."""
    found = Counter(pc.list_flatten(quarantine["reasons"]).to_pylist())
    return {str(reason): found[reason] for reason in sorted(found, key=str)}
