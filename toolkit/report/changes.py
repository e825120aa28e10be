"""One change between two verdicts: what it is of, what it means, and how it is made. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from toolkit.report.text import number, share

Figure = bool | int | float | str | None
"""A compared value as machines read it: a count, a share (0 to 1), a state, or None where one side has it not."""


class Direction(StrEnum):
    """What a change means for whoever trains on the rows."""

    WORSE = "worse"
    BETTER = "better"
    CHANGED = "changed"


class About(StrEnum):
    """What a change is a change of, in the order in which it is told."""

    GATE = "gate"
    ROWS = "rows"
    EVIDENCE = "evidence"
    EXPECTATION = "expectation"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that differs between two verdicts.

    Attributes:
        name: Which one: `quarantined`, `contradicted`, `default · last_id`, `openrouter · Chutes`.
        measure: What of it: `state`, `rows`, `share of rows`, `must hold`, `severity`, `counting`, `median ids`.
        says: The whole in one sentence without a full stop.
    """

    about: About
    name: str
    measure: str
    before: Figure
    after: Figure
    direction: Direction
    says: str


def step_of(step: float) -> Direction:
    """A step upwards is better, one downwards worse."""
    return Direction.CHANGED if not step else Direction.BETTER if step > 0 else Direction.WORSE


def change(
    about: About, name: str, measure: str, figures: tuple[Figure, Figure], direction: Direction, says: str
) -> Change:
    """A change whose direction the caller knows. `figures` are (before, after); `name` and `says` are clean."""
    before, after = figures
    return Change(about=about, name=name, measure=measure, before=before, after=after, direction=direction, says=says)


def counted(about: About, name: str, counts: tuple[int, int], step: int) -> Change:
    """A count that differs; `step` is above 0 where that is better, below where it is worse."""
    return change(about, name, "rows", counts, step_of(step), f"{number(counts[0])} → {number(counts[1])}")


def shared(
    about: About,
    name: str,
    before: tuple[int, int],
    after: tuple[int, int],
    *,
    better: int,
    tolerance: float,
    says: str = "",
    measure: str = "share of rows",
) -> Iterator[Change]:
    """The change of a part of a whole, if its share moved; `better` is 1 where more is, -1 where less is, else 0."""
    old, new = (part / whole if whole else 0.0 for part, whole in (before, after))
    # Products of integers are exact: equal shares of unequal wholes must not differ by a rounding.
    if before[0] * after[1] == after[0] * before[1] and bool(before[1]) == bool(after[1]):
        return
    step = better * (new - old) if abs(new - old) > tolerance else 0.0
    told = f"{says}{part_of(*before)} → {part_of(*after)}"
    yield change(about, name, measure, (old, new), step_of(step), told)


def part_of(part: int, whole: int) -> str:
    """`41 of 3,383 (1.2 %)`."""
    return f"{number(part)} of {number(whole)} ({share(part, whole)})"
