"""What remains of rows in a window of so many ids: which stay whole, which lose their end and where. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from toolkit.export.readers import Longer, Reader

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Place(StrEnum):
    """Where a cut falls: in what would have been the first id that is lost.

    A cut in the prompt leaves nothing to learn, one in the reasoning leaves thoughts that come to no answer.
    """

    PROMPT = "prompt"
    REASONING = "reasoning"
    ANSWER = "answer"
    TOOLS = "tools"
    OUTPUT = "output"
    """In the output, where the contract is not at hand to say in which part."""


class Fate(StrEnum):
    """Why a row is left out; where several hold, the first counts."""

    TOO_LONG = "too_long"
    TOO_SHORT = "too_short"
    TOO_FEW_SUPERVISED = "too_few_supervised"
    NOT_ADJACENT = "not_adjacent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Ids that divide an output, from the contract; None: the model has no such id.

    Attributes:
        thinking: Modes in which the output begins with reasoning.
    """

    end_think: int | None = None
    tools: int | None = None
    thinking: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of ids, one behind the other.

    Attributes:
        names: Of each row, unique in the train set.
        offsets: Where each row begins in `ids` and `mask`; one more than there are rows.
        ids: int32.
        mask: 0 or 1 for each id.
        prompt_len: Ids of each row's prompt.
        modes: Of each row; needed where cuts are placed by a contract.
    """

    names: list[str]
    offsets: Ints
    ids: npt.NDArray[np.int32]
    mask: npt.NDArray[np.int8]
    prompt_len: Ints
    modes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """Ids of each row."""
        return np.diff(self.offsets)

    def supervised(self) -> Ints:
        """Supervised ids of each row."""
        return _within(self.mask, self.offsets, self.lengths)

    def slice(self, start: int, stop: int) -> Rows:
        """Rows `start` to `stop`, without copying ids."""
        first, last = self.offsets[start], self.offsets[stop]
        return Rows(
            names=self.names[start:stop],
            offsets=self.offsets[start : stop + 1] - first,
            ids=self.ids[first:last],
            mask=self.mask[first:last],
            prompt_len=self.prompt_len[start:stop],
            modes=self.modes[start:stop],
        )

    def pieces(self, max_ids: int) -> Iterator[Rows]:
        """The rows in pieces of at most `max_ids` ids; a longer row has a piece of its own."""
        start = 0
        while start < len(self):
            fitting = int(np.searchsorted(self.offsets, self.offsets[start] + max_ids, side="right")) - 1
            stop = min(max(fitting, start + 1), len(self))
            yield self.slice(start, stop)
            start = stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a window makes of each row.

    Attributes:
        lengths: Ids that remain of each row; 0 where it is left out.
        supervised: Supervised ids that remain.
        fates: Index of `FATES` where a row is left out, else -1.
        cut: Rows that stay and lose ids.
    """

    lengths: Ints
    supervised: Ints
    fates: Ints
    cut: Bools


FATES = tuple(Fate)


def look_through(rows: Rows, reader: Reader) -> Outcome:
    """What a reader makes of rows: its window first, then what it asks of what remains."""
    full = rows.lengths
    long = np.zeros(len(rows), np.bool_) if reader.window is None else full > reader.window
    kept = np.minimum(full, reader.window) if reader.longer is Longer.CUT and reader.window is not None else full
    supervised = _within(rows.mask, rows.offsets, kept)
    conditions = [
        long if reader.longer is Longer.DROP else np.zeros_like(long),
        kept < reader.min_ids,
        supervised < reader.min_supervised,
        _side_by_side(rows, kept) == 0 if reader.adjacent else np.zeros_like(long),
    ]
    fates = np.select(conditions, range(len(FATES)), default=-1).astype(np.int64)
    stays = fates < 0
    return Outcome(
        lengths=np.where(stays, kept, 0),
        supervised=np.where(stays, supervised, 0),
        fates=fates,
        cut=stays & (kept < full),
    )


def places(rows: Rows, cut_at: Ints, marks: Marks | None) -> list[Place]:
    """Where cuts fall, of rows that keep their first `cut_at` ids and lose at least one."""
    if marks is None:
        return [
            Place.PROMPT if at < prompt else Place.OUTPUT for at, prompt in zip(cut_at, rows.prompt_len, strict=True)
        ]
    found = np.full(len(rows), Place.ANSWER, object)
    thinks = np.array([mode in marks.thinking for mode in rows.modes], np.bool_)
    ends = _first(rows, marks.end_think)
    # The id that ends the thoughts is the last of them: a row cut before it never answers.
    found[thinks & ((ends < 0) | (cut_at <= ends))] = Place.REASONING
    begins = _first(rows, marks.tools)
    found[(begins >= 0) & (cut_at > begins)] = Place.TOOLS
    found[cut_at < rows.prompt_len] = Place.PROMPT
    return list(found)


def take(rows: Rows, lengths: Ints) -> Rows:
    """The first `lengths` ids of each row; rows of which none remain are left out."""
    if np.array_equal(lengths, rows.lengths):
        return rows
    stays = lengths > 0
    inside = np.arange(len(rows.ids)) - np.repeat(rows.offsets[:-1], rows.lengths) < np.repeat(lengths, rows.lengths)
    chosen = np.flatnonzero(stays)
    return Rows(
        names=[rows.names[i] for i in chosen],
        offsets=np.concatenate([[0], np.cumsum(lengths[stays])]).astype(np.int64),
        ids=rows.ids[inside],
        mask=rows.mask[inside],
        prompt_len=np.minimum(rows.prompt_len, lengths)[stays],
        modes=[rows.modes[i] for i in chosen] if rows.modes else [],
    )


def _within(mask: npt.NDArray[np.int8], offsets: Ints, lengths: Ints) -> Ints:
    """Ones among the first `lengths` places of each row."""
    sums = np.concatenate([[0], np.cumsum(mask, dtype=np.int64)])
    return np.asarray(sums[offsets[:-1] + lengths] - sums[offsets[:-1]], np.int64)


def _side_by_side(rows: Rows, lengths: Ints) -> Ints:
    """Pairs of neighbours that are both supervised, among the first `lengths` ids of each row."""
    pairs = np.zeros(len(rows.mask), np.int8)
    pairs[:-1] = rows.mask[:-1] & rows.mask[1:]
    # A pair lies where its first id does, so the last id of a row begins none.
    return _within(pairs, rows.offsets, np.maximum(lengths - 1, 0))


def _first(rows: Rows, token_id: int | None) -> Ints:
    """Where an id first stands in each row's output, counted from the row's beginning; -1 where it does not."""
    found = np.full(len(rows), -1, np.int64)
    if token_id is None:
        return found
    at = np.flatnonzero(rows.ids == token_id)
    row = np.searchsorted(rows.offsets, at, side="right") - 1
    place = at - rows.offsets[row]
    in_output = place >= rows.prompt_len[row]
    # Backwards, so that the first one is written last.
    found[row[in_output][::-1]] = place[in_output][::-1]
    return found
