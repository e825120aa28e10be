"""Whose fault it is, and since when: what a reader looks for right after the verdict. Pure; every text is clean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.inspection.choosing import closing_ids
from toolkit.inspection.model import Distributions, Slice, TokenView
from toolkit.records import Verdict
from toolkit.report.doubts import NAME_LIMIT, group_name
from toolkit.report.outcome import about, closes_gate, required_by, sort_results
from toolkit.report.page.odd import Oddity, Who, stands_out
from toolkit.report.text import clean, number, quantity, share

_NAMED = 3
_CAUSES = 3
_MOST = 0.5
"""A provider with more of the bad rows than this, though not with more of all rows, is named alone."""
_FEWEST_SLICES = 6
_MISSED = 8
_BEFORE = 0.1
"""A change is told where the share of bad rows before it is at most this part of that behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One source or provider that bad rows come from.

    Attributes:
        bad, rows: Its rows that close the gate, and all of them.
        guilty: It stands out from all others.
        says: What it stands out by, beside the quarantine.
    """

    name: str
    bad: int
    rows: int
    guilty: bool
    says: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """An expectation that closes the gate: in words, in figures, and its id."""

    says: str
    figures: str
    id: str


def wrongs_of(verdict: Verdict) -> tuple[Wrong, ...]:
    """What closes the gate, what concerns the largest share of rows first; errors of the suite are no such thing."""
    closing = [r for run in verdict.suites for r in sort_results(run).failing if closes_gate(r) and r.error is None]
    closing.sort(key=lambda result: -(result.unexpected_share or 0.0))
    wrongs = []
    for result in closing:
        rows, whole = result.unexpected_count, result.element_count
        figures = f"observed {clean(result.observed, 80)}" if result.observed is not None else ""
        if rows is not None and whole:
            figures = f"{number(rows)} of {quantity(whole, 'row')}, {share(rows, whole)}"
            figures += f"; must hold for {required_by(result)}"
        says = about(result).rstrip(" .") or clean(result.id, NAME_LIMIT)
        wrongs.append(Wrong(says=says, figures=figures, id=clean(result.id, NAME_LIMIT)))
    return tuple(wrongs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Who, since when, and what single rows show.

    Attributes:
        headline: One sentence; empty where no row is bad.
        suspects: The worst first, at most three.
        waiting: Sentences about those against whom nothing speaks, but whose rows are too few to prove.
        others: What is said of all that are not named; None where there are none.
        since: Where the bad rows begin; None where they are spread.
        traits: What those who stand out do to all their text, in words.
        causes: (what is wrong, how many of the rows that were looked at, number of the first one on the page).
        further_causes: Kinds of fault beside those.
    """

    headline: str
    suspects: tuple[Suspect, ...]
    waiting: tuple[str, ...]
    others: str | None
    since: str | None
    traits: tuple[str, ...]
    causes: tuple[tuple[str, int, int], ...]
    further_causes: int
    looked_at: int


@dataclass(frozen=True, slots=True)
class _Share:
    """Bad rows of one source or provider."""

    who: Who
    name: str
    bad: int
    rows: int
    waiting: bool = False
    """Nothing is wrong with its rows but that too few tell how it counts."""


def blame_of(
    verdict: Verdict,
    odd: Mapping[Who, Sequence[Oddity]],
    distributions: Distributions | None,
    views: Sequence[TokenView],
) -> Blame:
    """What can be said about the rows that close the gate; about all in quarantine where facts do not tell them apart.

    Args:
        verdict: The audit's.
        odd: Who stands out by what.
        distributions: Where there are facts.
        views: The failing rows of the page, in its order.
    """
    everyone = _shares_of(verdict, distributions)
    waiting = [one for one in everyone if one.waiting and one.bad and len(everyone) > 1]
    shares = [one for one in everyone if one not in waiting]
    bad = sorted((one for one in shares if one.bad), key=lambda one: (-one.bad, one.name))
    guilty = [one for one in bad if _is_guilty(one, shares)]
    named = (guilty or (bad if len(shares) <= _NAMED else []))[:_NAMED]
    rest = [one for one in shares if one not in named]
    causes = list(_causes(views, closing_ids(verdict)))
    return Blame(
        headline=_headline(shares, bad, guilty),
        suspects=tuple(_suspect(one, one in guilty, odd) for one in named),
        waiting=tuple(_waits(one) for one in waiting[:_NAMED]),
        others=_others(rest, all_of_them=not named) if bad and rest else None,
        since=_since(distributions) if bad else None,
        traits=tuple(_traits(guilty, odd)),
        causes=tuple(causes[:_CAUSES]),
        further_causes=len(causes[_CAUSES:]),
        looked_at=sum(not closing_ids(verdict).isdisjoint(view.reasons) for view in views),
    )


def _shares_of(verdict: Verdict, distributions: Distributions | None) -> list[_Share]:
    counted = {} if distributions is None else {(g.source, g.provider): g.closing for g in distributions.groups}
    whole = distributions is not None and not distributions.groups_left_off
    return [
        _Share(
            (group.source, group.provider),
            group_name(group),
            counted.get((group.source, group.provider), 0) if whole else group.quarantined,
            group.rows,
            waiting=set(group.evidence_reasons) == {"convention_unknown"},
        )
        for group in verdict.providers
    ]


def _waits(one: _Share) -> str:
    told = f"{one.name}: nothing speaks against its {quantity(one.rows, 'row')}"
    return f"{told}, but it is not known how it counts ids, so {number(one.bad)} are not proved"


def _traits(guilty: Sequence[_Share], odd: Mapping[Who, Sequence[Oddity]]) -> Iterator[str]:
    """What is said of all the text of those who stand out, before what single rows show."""
    for one in guilty[:_NAMED]:
        for oddity in odd.get(one.who, ()):
            if oddity.measure == "alters text":
                yield f"{one.name}: {oddity.says}"


def _is_guilty(one: _Share, shares: Sequence[_Share]) -> bool:
    others = [other for other in shares if other is not one]
    return bool(others) and stands_out(one.bad, one.rows, sum(o.bad for o in others), sum(o.rows for o in others))


def _headline(shares: Sequence[_Share], bad: Sequence[_Share], guilty: Sequence[_Share]) -> str:
    if not bad:
        return ""
    total, rows = sum(one.bad for one in bad), sum(one.rows for one in shares)
    if len(shares) == 1:
        return f"{bad[0].name}: it gave all rows, so nothing here tells its doing from ours"
    theirs = sum(one.bad for one in guilty)
    if guilty and theirs >= _MOST * total:
        names = " and ".join(one.name for one in guilty[:_NAMED])
        of_all = share(sum(one.rows for one in guilty), rows)
        return f"{names}: {share(theirs, total)} of the bad rows, though only {of_all} of all rows"
    if len(bad) == 1:
        return f"{bad[0].name}: all {number(total)} bad rows are its own"
    return (
        f"no source or provider stands out: the bad rows come from {number(len(bad))} of {number(len(shares))}, "
        "so look at what is ours: import, resume, contract, suite"
    )


def _suspect(one: _Share, guilty: bool, odd: Mapping[Who, Sequence[Oddity]]) -> Suspect:
    says = [o.says for o in odd.get(one.who, ()) if o.measure not in ("quarantine", "evidence")]
    return Suspect(name=one.name, bad=one.bad, rows=one.rows, guilty=guilty, says=tuple(says[:_NAMED]))


def _others(shares: Sequence[_Share], *, all_of_them: bool) -> str:
    rows, bad = sum(one.rows for one in shares), sum(one.bad for one in shares)
    who = quantity(len(shares), "other source or provider", "other sources or providers")
    if all_of_them:
        who = f"all {number(len(shares))} sources and providers"
    return f"{who}: {f'{number(bad)} ({share(bad, rows)})' if bad else 'none'} of {quantity(rows, 'row')}"


def _since(distributions: Distributions | None) -> str | None:
    """Where the share of bad rows jumps from nearly none; None where it does not, or there are too few rows."""
    if distributions is None or len(distributions.slices) < _FEWEST_SLICES:
        return None
    slices = distributions.slices
    bad = sum(one.closing for one in slices)
    for place in range(2, len(slices)):
        # As many bad rows as would have stood before it, had they been spread, must be missing there.
        if bad * sum(one.rows for one in slices[:place]) < _MISSED * sum(one.rows for one in slices):
            continue
        before, after = _share(slices[:place]), _share(slices[place:])
        # The jump is at the first stretch behind which it holds, and that stretch is bad itself.
        if after > 0 and before <= _BEFORE * after and _share(slices[place : place + 1]) >= after / 3:
            told = f"row {number(slices[place].row_index)} of {clean(slices[place].shard, 60)}"
            through = 100 * place / len(slices)
            return f"the bad rows begin around {told}, {through:.0f} % into the dataset"
    return None


def _share(slices: Sequence[Slice]) -> float:
    rows = sum(one.rows for one in slices)
    return sum(one.closing for one in slices) / rows if rows else 0.0


def _causes(views: Sequence[TokenView], closing: Collection[str]) -> Iterator[tuple[str, int, int]]:
    """What the rows that close the gate show, all kinds, the most frequent first."""
    first: dict[str, tuple[str, int]] = {}
    counts: Counter[str] = Counter()
    for place, view in enumerate(views):
        if view.faults and not set(closing).isdisjoint(view.reasons):
            fault = next((fault for fault in view.faults if fault.code in closing), view.faults[0])
            counts[fault.code] += 1
            says = fault.says.split(": ", 1)[-1] if fault.says.startswith("call ") else fault.says
            first.setdefault(fault.code, (clean(says, 200), place))
    for code, rows in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield (first[code][0], rows, first[code][1])
