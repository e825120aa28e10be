"""What inspection finds, as plain values. Texts in them come from models and servers, and are not cleaned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Identity = tuple[str, int, int]
"""(sample_id, turn, sample_index)"""


class ChipKind(StrEnum):
    """What an id is."""

    TEXT = "text"
    CONTROL = "control"
    BYTES = "bytes"
    OUTSIDE = "outside"


class Part(StrEnum):
    """Which ids, or the reply that has none of its own."""

    PROMPT = "prompt"
    OUTPUT = "output"
    REPLY = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One id and what it spells.

    Attributes:
        text: Its text; a special id's spelling; bytes that are no whole character as `\\xe6`.
        spells: The whole character that bytes belong to, with their neighbours; empty for other kinds.
    """

    id: int
    text: str
    kind: ChipKind
    spells: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of ids that is shown; `start` is the index of its first one."""

    part: Part
    start: int
    chips: tuple[Chip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a row.

    Attributes:
        code: Short and stable: a structure or evidence code, a column, or the id of an expectation.
        says: What is wrong, in a sentence.
        at: Index of the first id concerned; the number of ids where something is missing behind the last one; None
            where no id is concerned.
        until: Index behind the last id concerned.
        expected: What should stand there.
        found: What stands there.
        instead: The ids that the text gives in the place of those from `at` to `until`.
    """

    code: str
    says: str
    part: Part = Part.REPLY
    at: int | None = None
    until: int | None = None
    expected: str | None = None
    found: str | None = None
    instead: tuple[Chip, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """One row, id by id.

    Attributes:
        shard: Path of its shard, and `row_index` its position there.
        reasons: Ids of the expectations that it fails.
        supervised: Whether a merge would train on its output ids (loss mask 1); the prompt's are never trained on.
        windows: The ids that are shown: all of them, or those around the faults, and both ends.
        reply: The raw reply, its long strings clipped in their middle.
        tokens: Reported counts by name: completion_tokens, reasoning_tokens, prompt_tokens.
    """

    sample_id: str
    turn: int
    sample_index: int
    row_key: str
    shard: str
    row_index: int
    source: str
    provider: str | None
    model: str | None
    mode: str
    ids_source: str | None
    rebuild_status: str
    finish_reason: str | None
    native_finish_reason: str | None
    n_prompt: int | None
    n_output: int | None
    tokens: Mapping[str, int | None]
    notes: tuple[str, ...]
    reasons: tuple[str, ...]
    supervised: bool
    windows: tuple[Window, ...]
    faults: tuple[Fault, ...]
    reply: str

    @property
    def identity(self) -> Identity:
        """(sample_id, turn, sample_index)"""
        return (self.sample_id, self.turn, self.sample_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What one source or provider answers, in numbers of rows.

    Attributes:
        closing: Rows that fail what closes the gate (`closing_ids`).
        lengths: Output ids, by bin of `Distributions.bins`; so are `reasoning`, `answers` and `prompts`.
        counts: (ids − completion_tokens, rows), ascending; `prompt_counts`: (prompt ids − prompt_tokens, rows).
        finish: (finish reason, rows), the most frequent first; None for rows without one.
    """

    source: str
    provider: str | None
    rows: int
    closing: int
    lengths: tuple[int, ...]
    reasoning: tuple[int, ...]
    answers: tuple[int, ...]
    prompts: tuple[int, ...]
    counts: tuple[tuple[int, int], ...]
    prompt_counts: tuple[tuple[int, int], ...]
    finish: tuple[tuple[str | None, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A stretch of the dataset, in the order in which its rows were written.

    Attributes:
        shard: Path of the shard in which it begins.
        row_index: Position of its first row there.
        quarantined: Rows in quarantine; `closing`: those of them that fail what closes the gate.
        cut: Answers that were cut.
        uncounted: Rows whose reported count does not fit what their provider's way of counting predicts.
        median_ids: Median of output ids; None where no row has any.
        by_group: Rows by group, in the order of `Distributions.groups`.
    """

    shard: str
    row_index: int
    rows: int
    quarantined: int
    closing: int
    cut: int
    uncounted: int
    median_ids: float | None
    by_group: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributions:
    """The facts of a dataset, counted.

    Attributes:
        bins: Smallest number of ids of each bin; the last one is open.
        groups: The largest first; `groups_left_off` smaller ones are not among them.
        shard_starts: For each shard but the first, the slice in which it begins.
    """

    bins: tuple[int, ...]
    groups: tuple[Group, ...]
    groups_left_off: int = 0
    slices: tuple[Slice, ...] = ()
    shard_starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a page shows beside the verdict.

    Attributes:
        distributions: None where no facts lie there that the verdict was made of.
        views: Failing rows; each expectation's are chosen evenly from all of them.
        failing: Id of an expectation → failing rows in quarantine.parquet; others have only the verdict's examples.
        left_off: Why something is not shown, a sentence each.
    """

    distributions: Distributions | None = None
    views: tuple[TokenView, ...] = ()
    failing: Mapping[str, int] = field(default_factory=dict)
    left_off: tuple[str, ...] = ()
