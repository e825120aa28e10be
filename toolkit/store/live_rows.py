"""Which rows are live, by the slot that each holds, and what they were made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from toolkit.records import LiveShard
from toolkit.store.shards import iter_shard, read_live
from toolkit.store.workspace import Dataset
from toolkit.wire.json import load_json

Slot = tuple[str, int, int, bool]
"""(sample_id, turn, sample_index, probe): holds one row of a dataset."""

_SLOT = ["sample_id", "turn", "sample_index", "probe"]
_MADE_FROM = ["payload", "origin", "mode", "source", "messages"]


@dataclass(frozen=True, slots=True)
class MadeWith:
    """What decides, beside its reply, what a row looks like."""

    mode: str
    model: str | None
    source: str
    ids_are: str


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One row of a live shard, and what it was made from.

    Attributes:
        shard: Path of its shard, as shards.json has it.
        position: Where it stands in there, from 0.
        body: `digest_of` its reply's body.
        messages: `digest_of` its messages; None where its prompt is not known.
    """

    shard: str
    position: int
    origin: str
    made_with: MadeWith
    body: bytes
    messages: bytes | None

    @property
    def where(self) -> str:
        """The place, for a person."""
        return f"row {self.position} of {self.shard}"


class LiveRows:
    """Finds rows by their slot. What they were made from is read shard by shard, when one of a shard is asked for."""

    def __init__(self, dataset: Dataset):
        """Read the slots of all rows.

        Raises:
            StoreError: shards.json cannot be read.
            ShardError: a shard cannot be read, or is not what was sealed.
        """
        self._dataset = dataset
        self._shards = read_live(dataset).shards
        self._rows: dict[int, list[LiveRow]] = {}
        self._made_with: dict[MadeWith, MadeWith] = {}
        self._at: dict[Slot, tuple[int, int]] = {}
        for number, shard in enumerate(self._shards):
            for position, slot in enumerate(_slots(dataset, shard)):
                self._at[slot] = (number, position)

    def __iter__(self) -> Iterator[Slot]:
        """The slots that have a row."""
        return iter(self._at)

    def find(self, slot: Slot) -> LiveRow | None:
        """The row that holds a slot.

        Raises:
            ShardError: its shard cannot be read.
        """
        if slot not in self._at:
            return None
        number, position = self._at[slot]
        if number not in self._rows:
            self._rows[number] = list(self._read(self._shards[number]))
        return self._rows[number][position]

    def _read(self, shard: LiveShard) -> Iterator[LiveRow]:
        position = 0
        for batch in iter_shard(self._dataset, shard, _MADE_FROM):
            for row in batch.to_pylist():
                payload = _payload_of(row["payload"])
                made_with = MadeWith(
                    mode=row["mode"],
                    model=None if payload.get("model") is None else str(payload["model"]),
                    source=row["source"],
                    ids_are=str(payload.get("ids_are")),
                )
                yield LiveRow(
                    shard=shard.path,
                    position=position,
                    origin=row["origin"],
                    # A dataset has a handful of these: a million rows share them.
                    made_with=self._made_with.setdefault(made_with, made_with),
                    body=digest_of(str(payload.get("body"))),
                    messages=None if row["messages"] is None else digest_of(row["messages"]),
                )
                position += 1


def digest_of(text: str) -> bytes:
    """16 bytes that stand for a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _slots(dataset: Dataset, shard: LiveShard) -> Iterator[Slot]:
    for batch in iter_shard(dataset, shard, _SLOT):
        yield from zip(*(batch.column(name).to_pylist() for name in _SLOT), strict=True)


def _payload_of(text: str) -> dict[str, object]:
    payload = load_json(text)
    return payload if isinstance(payload, dict) else {}
