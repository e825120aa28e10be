"""Which answers are to something else than what is asked now: a prompt may be edited after it was answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.contract import Contract
from toolkit.errors import ShardError
from toolkit.records import MISSING_NAMED, Json, LiveShard, Prompt, canonical_json
from toolkit.rows import rewrite_tool_ids
from toolkit.store.answered import Answered
from toolkit.store.identities import identities_of
from toolkit.store.prompts import PromptIndex
from toolkit.store.shards import read_shard
from toolkit.store.workspace import Dataset
from toolkit.wire.json import load_json

Identity = tuple[str, int, int]
"""(sample_id, turn, sample_index)"""

Masks = Mapping[str, npt.NDArray[np.bool_]]
"""sha256 of a shard → which of its rows."""

_IDENTITY = ["sample_id", "turn", "sample_index"]


def first_of(dataset: Dataset, answered: Answered, masks: Masks) -> tuple[Identity, ...]:
    """The names of the first of some rows, at most `MISSING_NAMED`. What cannot be read is left out."""
    named: list[Identity] = []
    for shard in answered.shards:
        if shard.sha256 in masks and len(named) < MISSING_NAMED:
            try:
                table = read_shard(dataset, shard, _IDENTITY, verify=False).filter(pa.array(masks[shard.sha256]))
            except ShardError:
                continue
            columns = (column.to_pylist() for column in table.slice(0, MISSING_NAMED - len(named)).columns)
            named += zip(*columns, strict=True)
    return tuple(named)


def changed_imports(
    dataset: Dataset, prompts: PromptIndex, answered: Answered, contract: Contract, *, samples: int
) -> tuple[int, tuple[Identity, ...]]:
    """Imported rows that hold another prompt than stands under their id now: how many, and the first of them.

    Rows whose prompt is not known, and later turns, whose question nobody knows, say nothing. Bytes of shards are not
    verified here; what cannot be read is left to whoever judges the shards.

    Raises:
        PromptsError: the file of prompts is not the one that was checked any more.
    """
    rows = np.stack([answered.positions(identities_of(prompts.ids, 0, at, False)) for at in range(samples)], axis=1)
    imported = rows >= 0
    imported[imported] = ~answered.asked[rows[imported]]
    if not imported.any():
        return 0, ()
    held = _held(dataset, answered, rows[imported])
    count = 0
    first: list[Identity] = []
    wanted: npt.NDArray[np.bool_] = np.logical_or.reduce(imported, axis=1)
    for position, prompt in prompts.among(wanted):
        now: frozenset[int] | None = None
        for at in np.flatnonzero(imported[position]).tolist():
            then = held.get(int(rows[position, at]))
            if then is None:
                continue
            now = now or _forms(prompt, contract)
            if then not in now:
                count += 1
                if len(first) < MISSING_NAMED:
                    first.append((prompt.id, 0, at))
    return count, tuple(first)


def _held(dataset: Dataset, answered: Answered, positions: npt.NDArray[np.int64]) -> dict[int, int]:
    """Position → hash of the prompt that the row holds; rows without one are left out."""
    masks = answered.masks(positions)
    held: dict[int, int] = {}
    order = iter(np.sort(positions).tolist())
    for shard in answered.shards:
        if shard.sha256 not in masks:
            continue
        of_shard = [next(order) for _ in range(int(masks[shard.sha256].sum()))]
        held.update(_read(dataset, shard, masks[shard.sha256], of_shard))
    return held


def _read(
    dataset: Dataset, shard: LiveShard, mask: npt.NDArray[np.bool_], positions: Sequence[int]
) -> Iterator[tuple[int, int]]:
    try:
        table = read_shard(dataset, shard, ["messages", "tools"], verify=False).filter(pa.array(mask))
    except ShardError:
        return
    columns = (table[name].to_pylist() for name in ("messages", "tools"))
    for position, messages, tools in zip(positions, *columns, strict=True):
        if messages is not None:
            yield position, _hash(load_json(messages), None if tools is None else load_json(tools))


def _forms(prompt: Prompt, contract: Contract) -> frozenset[int]:
    """The hashes of a prompt as it is sent, and as it is written: imports with a request of their own keep that."""
    rewritten, _ = rewrite_tool_ids(prompt.messages, contract)
    return frozenset(_hash(messages, prompt.tools) for messages in (rewritten, prompt.messages))


def _hash(messages: Json, tools: Json) -> int:
    return hash(canonical_json([messages, tools or None]))
