"""Would a tool that takes text train on our ids? Its template renders the conversation again, to compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from toolkit.contract import Contract
from toolkit.export.readers import Target
from toolkit.export.report import FirstDifference, ParityReport
from toolkit.prompt import PromptRenderer
from toolkit.records import Json
from toolkit.vocabulary import Vocabulary

_SHOWN = 5
_LLAMA_3 = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_EAGLE_SYSTEM_NOTE = (
    "EAGLE puts a system message of its own before every conversation, so its prompts are not those answered"
)
_EAGLE_HEADERS_NOTE = "EAGLE finds answers by Llama-3's headers, which this model has not: its mask will not hold"
_NO_TEMPLATE_NOTE = "the contract names no renderer, so nothing could be compared"


@dataclass(slots=True, kw_only=True)
class ParityCheck:
    """Compares rows until there are enough.

    Attributes:
        rows: Rows to compare at most; a train set is shuffled, so its first rows are a sample of all.
    """

    target: Target
    contract: Contract
    vocabulary: Vocabulary
    rows: int = 2_000
    _compared: int = 0
    _equal: int = 0
    _refused: int = 0
    _differs_in: Counter[str] = field(default_factory=Counter)
    _first: list[FirstDifference] = field(default_factory=list)
    _renderer: PromptRenderer | None = None

    @property
    def wants_more(self) -> bool:
        """Whether another row would be compared."""
        return self._compared < self.rows

    def add(
        self, name: str, mode: str, messages: Sequence[dict[str, Json]], ids: npt.NDArray[np.int32], prompt_len: int
    ) -> None:
        """Compare one row; `ids` are those of the train set, of which the first `prompt_len` are the prompt's."""
        self._renderer = self._renderer or PromptRenderer(self.contract, self.vocabulary)
        theirs = self._renderer.render_conversation(messages, mode)
        self._compared += 1
        if theirs is None:
            self._refused += 1
            return
        difference = first_difference(ids, np.array(theirs, np.int64))
        if difference is None:
            self._equal += 1
            return
        within = _within(difference, prompt_len, len(ids), len(theirs))
        self._differs_in[within] += 1
        if len(self._first) < _SHOWN:
            self._first.append(
                FirstDifference(
                    id=name,
                    position=difference,
                    within=within,
                    ours=self._spelled(ids.tolist(), difference),
                    theirs=self._spelled(theirs, difference),
                )
            )

    def report(self) -> ParityReport:
        """What was found."""
        answered = self._compared - self._refused
        return ParityReport(
            template=self.contract.prompt.renderer or "no template",
            compared=self._compared,
            equal=self._equal,
            different=answered - self._equal,
            refused=self._refused,
            equal_share=self._equal / self._compared if answered else None,
            differs_in=dict(sorted(self._differs_in.items())),
            first=tuple(self._first),
            note="; ".join(self._notes()),
        )

    def _notes(self) -> list[str]:
        notes = [] if self.contract.prompt.renderer is not None else [_NO_TEMPLATE_NOTE]
        if self.target is Target.EAGLE:
            notes.append(_EAGLE_SYSTEM_NOTE)
            if not all(spelling in self.contract.special for spelling in _LLAMA_3):
                notes.append(_EAGLE_HEADERS_NOTE)
        return notes

    def _spelled(self, ids: Sequence[int], position: int) -> str:
        """`163607 "</think>"`, or `nothing` behind the last id."""
        if position >= len(ids):
            return "nothing"
        token_id = ids[position]
        try:
            text = self.vocabulary.spelling_of(token_id) or self.vocabulary.decode_bytes([token_id]).decode(
                "utf-8", "replace"
            )
        except IndexError:
            text = ""
        return f"{token_id} {text!r}"


def first_difference(ours: npt.NDArray[np.int32], theirs: npt.NDArray[np.int64]) -> int | None:
    """Where two lists of ids first differ; the shorter one's length where it begins the other; None where equal."""
    shared = min(len(ours), len(theirs))
    differ = np.flatnonzero(ours[:shared] != theirs[:shared])
    if len(differ):
        return int(differ[0])
    return None if len(ours) == len(theirs) else shared


def _within(position: int, prompt_len: int, ours: int, theirs: int) -> Literal["prompt", "completion", "end"]:
    if position >= min(ours, theirs):
        return "end"
    return "prompt" if position < prompt_len else "completion"
