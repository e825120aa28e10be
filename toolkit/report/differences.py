"""What differs between two verdicts, in words for a terminal and for Markdown. Pure."""

from __future__ import annotations

from toolkit.report.changes import About, Change, Direction
from toolkit.report.comparison import Comparison, Side
from toolkit.report.text import number, quantity
from toolkit.report.told import Section, Told

_LISTED = 40
_MARKS = {Direction.WORSE: ("Worse", "✗"), Direction.BETTER: ("Better", "✓"), Direction.CHANGED: ("Changed", "·")}


def tell_comparison(comparison: Comparison) -> Told:
    """What got worse first. The headline says it in numbers."""
    facts = [("before", _side(comparison.before)), ("after", _side(comparison.after))]
    facts += [("differs", sentence) for sentence in comparison.differs_in[:_LISTED]]
    if comparison.same_expectations:
        facts.append(("the same", quantity(comparison.same_expectations, "expectation")))
    return Told(
        headline=headline_of(comparison),
        tone="closed" if comparison.worse else "passed",
        facts=facts,
        sections=[section for direction in Direction if (section := _section(comparison, direction)) is not None],
    )


def headline_of(comparison: Comparison) -> str:
    """`WORSE in 12 ways, better in 1`, `BETTER in 3 ways`, `NOT WORSE: 2 changes`, `THE SAME`."""
    worse, better = len(comparison.worse), len(comparison.better)
    if worse:
        return f"WORSE in {quantity(worse, 'way')}" + (f", better in {number(better)}" if better else "")
    if better:
        return f"BETTER in {quantity(better, 'way')}, worse in none"
    return f"NOT WORSE: {quantity(len(comparison.changes), 'change')}" if comparison.changes else "THE SAME"


def _side(side: Side) -> str:
    return f"{side.dataset}, {side.created_at}, {quantity(side.rows, 'row')}: {side.outcome}"


def _section(comparison: Comparison, direction: Direction) -> Section | None:
    changes = comparison.of(direction)
    if not changes:
        return None
    title, mark = _MARKS[direction]
    more = len(changes) - _LISTED
    sentences = [_sentence(change) for change in changes[:_LISTED]]
    if more > 0:
        sentences.append(f"and {quantity(more, 'further change')}; --format json has them all")
    return Section(title=title, mark=mark, sentences=sentences)


def _sentence(change: Change) -> str:
    """`rows quarantined: 2 of … → 201 of …`; expectations and providers stand under their own names."""
    about = change.about.value
    named = change.about in (About.EXPECTATION, About.PROVIDER) or change.name.startswith((about, "suite "))
    return f"{change.name if named else f'{about} {change.name}'}: {change.says}"
