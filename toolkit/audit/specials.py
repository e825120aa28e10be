"""The special ids of every row: where they stand, and how many there are of each kind.

Special ids are few, so they are found once, and everything about structure works on those positions alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from toolkit.audit.blocks import Block, Bools, Ints
from toolkit.contract import Contract

TOOL_MARKERS = ("section_begin", "section_end", "call_begin", "call_between", "call_end", "raw_marker")
"""Kinds of ids of the tool grammar; `raw_marker` are those of calls that are not rebuilt, but for `call_begin`."""


@dataclass(frozen=True, slots=True)
class Specials:
    """Ids at or above the base tokens and inside the vocabulary, and those in holes of the base, in order.

    Attributes:
        rows: How many rows there are.
        at: Position of each special id in its block.
        value: The id.
        row: Its row.
    """

    rows: int
    at: Ints
    value: Ints
    row: Ints

    def count(self, wanted: Collection[int]) -> Ints:
        """How many of these ids each row has."""
        return np.bincount(self.row[np.isin(self.value, list(wanted))], minlength=self.rows).astype(np.int64)

    def first(self, wanted: Collection[int], starts: Ints) -> Ints:
        """Index within its row of the first of these ids; −1 where there is none."""
        found = np.full(self.rows, -1, dtype=np.int64)
        chosen = np.isin(self.value, list(wanted))
        rows, index = np.unique(self.row[chosen], return_index=True)
        found[rows] = self.at[chosen][index] - starts[rows]
        return found


def find_specials(ids: Block, contract: Contract) -> Specials:
    """The special ids of a block."""
    holes = contract.vocabulary.holes
    chosen = ids.ids >= contract.vocabulary.base_tokens
    if holes:
        chosen |= np.isin(ids.ids, list(holes))
    at = np.flatnonzero(chosen)
    at = at[ids.ids[at] < contract.vocab_size]
    return Specials(len(ids.lengths), at, ids.ids[at].astype(np.int64), ids.rows_at(at))


def outside_vocabulary(ids: Block, contract: Contract) -> Ints:
    """Positions in the block of ids that are negative, or at or above the size of the vocabulary."""
    # Read without a sign, negative ids are large ones: one comparison finds both.
    return np.flatnonzero(ids.ids.view(np.uint32) >= contract.vocab_size)


def count_specials(specials: Specials, ids: Block, contract: Contract) -> dict[str, Ints]:
    """Per row: how many special ids of each kind, and where thinking ends (`end_think_at`; −1: nowhere)."""
    begin = {contract.id_of(contract.think.begin)} if contract.think else set()
    end = {contract.id_of(contract.think.end)} if contract.think else set()
    every = np.bincount(specials.row, minlength=specials.rows).astype(np.int64)
    counts = {
        "terminal": specials.count(contract.terminal_ids),
        "begin_think": specials.count(begin),
        "end_think": specials.count(end),
        "end_think_at": specials.first(end, ids.starts),
        "control": every - specials.count(contract.output_ids() | begin),
    }
    counts |= {name: specials.count({marker}) for name, marker in tool_markers(contract).items()}
    if contract.raw_tools is not None:
        call = contract.id_of(contract.raw_tools.call)
        counts["call_begin"] = specials.count({call})
        counts["raw_marker"] = specials.count(contract.tool_ids - {call})
    return counts


def tool_markers(contract: Contract) -> dict[str, int]:
    """The ids of `TOOL_MARKERS` by kind; empty for a contract whose calls are not rebuilt."""
    if contract.tools is None:
        return {}
    form = contract.tools
    spellings = (form.section_begin, form.section_end, form.call[0], form.call[2], form.call[4])
    return {name: contract.id_of(spelling) for name, spelling in zip(TOOL_MARKERS, spellings, strict=False)}


def ends_with_terminal(ids: Block, contract: Contract) -> Bools:
    """Whether the last id of each row is a terminal."""
    some = ids.lengths > 0
    ended = np.zeros(len(some), dtype=bool)
    ended[some] = np.isin(ids.ids[(ids.starts + ids.lengths)[some] - 1], list(contract.terminal_ids))
    return ended
