"""What a command has to say, before a terminal decides how it looks. Every text is clean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.report.outcome import Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and sentences under it, each behind a mark that says without colour what it is."""

    title: str
    mark: str
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table. Columns named in `figures` are aligned to the right and never broken; each line bears a tone."""

    headings: Sequence[str]
    lines: Sequence[tuple[Tone, Sequence[str]]]
    figures: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The answer, names with values, sections, and a table at the end."""

    headline: str
    tone: Tone
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = ()
    grid: Grid | None = None
