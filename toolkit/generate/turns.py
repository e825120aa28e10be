"""What is left to ask of conversations that are answered turn by turn.

A turn's question holds our own answers of the turns before it, so it is known only when these are. What is answered
follows from identities; the texts of earlier turns are read for those conversations alone that go on in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.generate.conversation import Conversation, Said, turns_in
from toolkit.generate.plan import Asking, Identity, Planned, asking
from toolkit.records import ToolCall
from toolkit.store.answered import Answered
from toolkit.store.identities import identities_of
from toolkit.store.prompts import PromptIndex
from toolkit.store.shards import read_shard
from toolkit.store.workspace import Dataset
from toolkit.wire.json import load_json

_SAID = ["sample_id", "turn", "sample_index", "reasoning", "content", "tool_calls", "rebuild_status"]

Places = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True, eq=False)
class TurnPlan:
    """Prompts × samples × turns, less what is answered. Iterating gives the conversations that are not over.

    Attributes:
        asked: All turns of all conversations.
        answered_before: Turns that have a row, and all turns before it, too.
        changed: Rows of conversations whose first question was another one than now: all their turns.
        first_changed: The sample_id of the first of them.
    """

    prompts: PromptIndex
    way: Asking
    asked: int
    answered_before: int
    changed: int
    first_changed: str | None
    _heard: Places
    _turns: Places
    _changed_rows: Places
    _earlier_rows: Places
    _answered: Answered
    _earlier: dict[Identity, Said] = field(default_factory=dict)

    @property
    def open(self) -> int:
        """Turns without a row."""
        return self.asked - self.answered_before

    def changed_rows(self) -> dict[str, npt.NDArray[np.bool_]]:
        """The rows of `changed`: a mask for each shard that has any, by the shard's sha256."""
        return self._answered.masks(self._changed_rows)

    def __iter__(self) -> Iterator[Conversation]:
        """Conversations that are not over, in the order of the prompts.

        Raises:
            PromptsError: the file of prompts is not the one that was checked any more.
        """
        open_ = self._heard < self._turns[:, None]
        wanted: npt.NDArray[np.bool_] = np.logical_or.reduce(open_, axis=1)
        for position, prompt in self.prompts.among(wanted):
            for ask in self.way.asks_of(prompt):
                if open_[position, ask.sample_index]:
                    yield Conversation(ask, self.way.contract)

    def read_earlier(self, dataset: Dataset) -> None:
        """Read what was said in conversations that go on in the middle.

        Raises:
            ShardError: a shard cannot be read.
        """
        masks = self._answered.masks(self._earlier_rows)
        for shard in self._answered.shards:
            if shard.sha256 in masks:
                for row in read_shard(dataset, shard, _SAID).filter(masks[shard.sha256]).to_pylist():
                    identity = (row["sample_id"], row["turn"], row["sample_index"])
                    self._earlier[identity] = said_of_row(row)

    def earlier(self, ask: Planned) -> Said | None:
        """What was said in a turn of an earlier run; None where it has no row."""
        return self._earlier.pop(ask.identity, None)


def said_of_row(row: dict[str, object]) -> Said:
    """What a row's turn said."""
    reasoning, content, calls = (row[name] for name in ("reasoning", "content", "tool_calls"))
    return Said(
        reasoning=reasoning if isinstance(reasoning, str) else None,
        content=content if isinstance(content, str) else None,
        calls=tuple(ToolCall(**call) for call in load_json(calls)) if isinstance(calls, str) else (),
        status=str(row["rebuild_status"]),
    )


def plan_turns(prompts: PromptIndex, settings: DatasetSettings, contract: Contract, answered: Answered) -> TurnPlan:
    """What is left to ask of each conversation. Reads all prompts once, to count their turns.

    A conversation was changed if its first turn answers another question than now; then all of its rows are.

    Raises:
        ConfigError: as `asking`.
        PromptsError: the file of prompts is not the one that was checked any more.
    """
    way = asking(settings, contract)
    turns = np.fromiter((turns_in(prompt.messages) for prompt in prompts), np.int64, len(prompts))
    rows = np.stack(list(_rows(prompts, settings.samples, int(turns.max()), answered)), axis=2)
    heard = np.minimum(np.cumprod(rows >= 0, axis=2).sum(axis=2), turns[:, None])
    first_changed = None
    changed = np.zeros(heard.shape, np.bool_)
    first = rows[:, :, 0]
    doubtful = np.zeros(len(prompts), np.bool_)
    if len(answered):
        doubtful[((first >= 0) & answered.asked[first]).any(axis=1)] = True
    for position, prompt in prompts.among(doubtful):
        for ask in way.asks_of(prompt):
            row = int(rows[position, ask.sample_index, 0])
            if row >= 0 and not answered.answers(row, Conversation(ask, contract).next_ask().row_key):
                changed[position, ask.sample_index] = True
                first_changed = first_changed or prompt.id
    heard[changed] = 0
    changed_rows = _there(rows[changed])
    middle = (heard > 0) & (heard < turns[:, None])
    earlier = [rows[:, :, turn][middle & (heard > turn)] for turn in range(rows.shape[2])]
    return TurnPlan(
        prompts=prompts, way=way, asked=int(turns.sum()) * settings.samples, answered_before=int(heard.sum()),
        changed=len(changed_rows), first_changed=first_changed, _heard=heard, _turns=turns, _changed_rows=changed_rows,
        _earlier_rows=np.concatenate(earlier), _answered=answered,
    )  # fmt: skip


def _rows(prompts: PromptIndex, samples: int, turns: int, answered: Answered) -> Iterator[Places]:
    """Of each turn the positions of its rows, prompts × samples; −1 where there is none."""
    for turn in range(turns):
        found = [answered.positions(identities_of(prompts.ids, turn, index, False)) for index in range(samples)]
        yield np.stack(found, axis=1)


def _there(rows: Places) -> Places:
    return np.unique(rows[rows >= 0])
