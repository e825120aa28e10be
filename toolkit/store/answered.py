"""What the live shards answer, as a few bytes a row: which identities have a row, and which request each answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import ShardError
from toolkit.records import LiveShard, Origin
from toolkit.store.identities import Hashes, Identities, IdentityIndex, hash_ids, hash_of, hash_texts, identities_of
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset

NARROW = ["sample_id", "turn", "sample_index", "probe", "row_key", "origin", "latency_s"]
"""The columns that tell a row's identity and how it came to be."""

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Found:
    """One row that is there.

    Attributes:
        asked: Whether it was asked for here, so that its row_key is that of the request; not so where it was imported.
        position: Its place among all rows of `Answered`.
    """

    asked: bool
    position: int


class Answered:
    """Rows of all live shards, by identity.

    Some 30 bytes a row. `shards` are those that were read, in the order in which positions count.
    """

    def __init__(self, shards: Iterable[tuple[LiveShard, pa.Table]]):
        """From shards with their columns `NARROW`; no table is held when the next one is asked for."""
        read = [(shard, _read(table)) for shard, table in shards]
        parts = [part for _, part in read]
        self.shards = tuple(shard for shard, _ in read)
        self._index = IdentityIndex(
            Identities(_joined([p[0].first for p in parts]), _joined([p[0].second for p in parts]))
        )
        self._key_hashes = _joined([part[1] for part in parts])
        self.asked = np.concatenate([np.empty(0, np.bool_), *(part[2] for part in parts)])
        self._starts = np.cumsum([0, *(len(part[1]) for part in parts)])

    def __len__(self) -> int:
        return len(self._key_hashes)

    def positions(self, identities: Identities) -> Positions:
        """Of each identity the position of its row; −1 where it has none."""
        return self._index.positions(identities)

    def find(self, sample_id: str, turn: int, sample_index: int, *, probe: bool = False) -> Found | None:
        """The row of one identity; None where it has none."""
        position = int(self.positions(identities_of(hash_ids([sample_id]), turn, sample_index, probe))[0])
        if position < 0:
            return None
        return Found(bool(self.asked[position]), position)

    def answers(self, position: int, row_key: str) -> bool:
        """Whether a row answers this request. An imported one answers whatever is asked of its identity."""
        return not self.asked[position] or int(self._key_hashes[position]) == hash_of(row_key)

    def masks(self, positions: Positions) -> dict[str, npt.NDArray[np.bool_]]:
        """Those rows as one mask for each shard that has any, by the shard's sha256."""
        chosen = np.zeros(len(self), np.bool_)
        chosen[positions] = True
        bounds = zip(self.shards, self._starts[:-1], self._starts[1:], strict=True)
        return {shard.sha256: chosen[begin:end] for shard, begin, end in bounds if chosen[begin:end].any()}


def read_answered(dataset: Dataset, *, tolerant: bool = False) -> Answered:
    """What is answered, from narrow columns of the live shards.

    Args:
        dataset: Whose rows.
        tolerant: Leave shards out that cannot be read, and do not hold the others' sha256 against shards.json: for
            counting, where somebody else judges the shards.

    Raises:
        StoreError: shards.json cannot be read.
        ShardError: a shard cannot be read, or is not what was sealed; never if `tolerant`.
    """
    return Answered(_tables(dataset, tolerant=tolerant))


def _tables(dataset: Dataset, *, tolerant: bool) -> Iterator[tuple[LiveShard, pa.Table]]:
    for shard in read_live(dataset).shards:
        try:
            yield shard, read_shard(dataset, shard, NARROW, verify=not tolerant)
        except ShardError:
            if not tolerant:
                raise


def identities_in(table: pa.Table) -> Identities:
    """Identities of a shard's rows, from the columns sample_id, turn, sample_index and probe."""
    ids = hash_ids(table["sample_id"].to_pylist())
    turn, index = (table[name].to_numpy().astype(np.int64) for name in ("turn", "sample_index"))
    return identities_of(ids, turn, index, table["probe"].to_numpy())


def _read(table: pa.Table) -> tuple[Identities, Hashes, npt.NDArray[np.bool_]]:
    generated = pc.equal(table["origin"], str(Origin.GENERATE))
    # A rebuilt row has lost its first origin, but not that its request was timed: imports never are.
    rebuilt = pc.and_(pc.equal(table["origin"], str(Origin.REBUILD)), pc.is_valid(table["latency_s"]))
    asked = pc.or_(generated, rebuilt).to_numpy()
    return identities_in(table), hash_texts(table["row_key"].to_pylist()), asked


def _joined(parts: list[Hashes]) -> Hashes:
    return np.concatenate([np.empty(0, np.uint64), *parts])
