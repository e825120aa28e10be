"""Distributions as charts with the words that stand beside them. Every text is clean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from toolkit.inspection.model import Distributions, Group, Slice
from toolkit.report.page.charts import Bar, columns, histogram, share_bar
from toolkit.report.page.odd import Oddity, Who
from toolkit.report.text import clean, number, quantity, share

_NAME_LIMIT = 30
_DIFFERENCES = 9
_BAD_SHARE = 0.05
_OVER_TIME = 6
"""Groups whose part is drawn over time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart of the whole dataset; `low` and `high` are written under its ends."""

    title: str
    note: str
    svg: Markup
    low: str = ""
    high: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiple:
    """One source or provider among the small multiples."""

    name: str
    rows: int
    lengths: Markup
    counts: Markup
    counts_said: str
    prompts: Markup
    prompts_said: str
    marks: tuple[Oddity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Everything that is drawn of the facts."""

    groups: tuple[Multiple, ...]
    groups_left_off: int
    length_range: str
    lengths: tuple[Chart, ...]
    finish: tuple[tuple[str, int, Markup], ...]
    over_time: tuple[Chart, ...]
    slice_count: int
    slice_rows: int


def draw(distributions: Distributions, odd: Mapping[Who, Sequence[Oddity]]) -> Drawn:
    """Charts of a dataset, those that stand out marked."""
    groups, bins = distributions.groups, distributions.bins
    low, high = _range([group.lengths for group in groups])
    slices = distributions.slices
    rows = sum(one.rows for one in slices)
    return Drawn(
        groups=tuple(_multiple(group, groups, low, high, odd) for group in groups),
        groups_left_off=distributions.groups_left_off,
        length_range=f"{number(bins[low])} to {_end(bins, high)} ids",
        lengths=tuple(_lengths(groups, bins)),
        finish=tuple(_finish(groups)),
        over_time=tuple(_over_time(distributions)) if len(slices) > 1 else (),
        slice_count=len(slices),
        slice_rows=round(rows / len(slices)) if slices else 0,
    )


# --- small multiples --------------------------------------------------------------------------------


def _multiple(
    group: Group, groups: Sequence[Group], low: int, high: int, odd: Mapping[Who, Sequence[Oddity]]
) -> Multiple:
    marks = tuple(odd.get((group.source, group.provider), ()))
    measures = {mark.measure for mark in marks}
    name = _name(group)
    others = [other for other in groups if other is not group]
    said = f"output lengths of {name}, {quantity(group.rows, 'row')}"
    return Multiple(
        name=name,
        rows=group.rows,
        lengths=histogram(
            group.lengths[low : high + 1], said, behind=_shares(others, low, high), odd="lengths" in measures
        ),
        counts=_differences(group.counts, f"differences of counts of {name}", "counts" in measures),
        counts_said=_said(group.counts),
        prompts=_differences(group.prompt_counts, f"differences of prompt counts of {name}", "prompt" in measures),
        prompts_said=_said(group.prompt_counts),
        marks=marks,
    )


def _name(group: Group) -> str:
    names = [group.source] if group.provider is None else [group.source, group.provider]
    return " · ".join(clean(name, _NAME_LIMIT) for name in names)


def _shares(groups: Sequence[Group], low: int, high: int) -> list[float]:
    summed = [sum(group.lengths[place] for group in groups) for place in range(low, high + 1)]
    total = sum(summed)
    return [count / total for count in summed] if total else []


def _differences(counts: Sequence[tuple[int, int]], label: str, odd: bool) -> Markup:
    """Rows by difference, each difference a bar, from the smallest to the largest."""
    whole = max((rows for _, rows in counts), default=0)
    bars = [
        Bar(height=rows / whole, title=f"{value:+d}: {quantity(rows, 'row')}", marked=odd) for value, rows in counts
    ]
    # The same width for every difference, however many there are.
    nothing = [Bar(height=0, title="")] * max((_DIFFERENCES - len(bars)) // 2, 0)
    return columns([*nothing, *bars, *nothing], f"{label}: {_said(counts)}")


def _said(counts: Sequence[tuple[int, int]]) -> str:
    """`0: 75 · 1: 262 · 2: 16`, the most frequent alone where there are many."""
    if not counts:
        return "nothing to compare"
    most = sorted(counts, key=lambda item: -item[1])[:4]
    told = " · ".join(f"{value:+d}: {number(rows)}" if value else f"0: {number(rows)}" for value, rows in sorted(most))
    return told + (f" · {len(counts) - 4} more" if len(counts) > 4 else "")


# --- the whole dataset ------------------------------------------------------------------------------


def _range(histograms: Sequence[Sequence[int]]) -> tuple[int, int]:
    """First and last bin that holds anything."""
    used = [place for counts in histograms for place, rows in enumerate(counts) if rows]
    return (min(used), max(used)) if used else (0, 0)


def _end(bins: Sequence[int], last: int) -> str:
    return number(bins[last + 1]) if last + 1 < len(bins) else f"{number(bins[last])} and more"


def _lengths(groups: Sequence[Group], bins: Sequence[int]) -> list[Chart]:
    measures: tuple[tuple[str, Callable[[Group], tuple[int, ...]]], ...] = (
        ("Prompts", lambda group: group.prompts),
        ("Reasoning", lambda group: group.reasoning),
        ("Answers behind it", lambda group: group.answers),
        ("Whole outputs", lambda group: group.lengths),
    )
    charts = []
    for title, of in measures:
        summed = [sum(counts) for counts in zip(*(of(group) for group in groups), strict=True)]
        low, high = _range([summed])
        rows = sum(summed)
        if not rows:
            continue
        middle = _median_bin(summed)
        note = f"ids, {quantity(rows, 'row')}, half of them below {_end(bins, middle)}"
        svg = histogram(summed[low : high + 1], f"{title}: {note}, from {bins[low]:,} to {_end(bins, high)}")
        charts.append(Chart(title=title, note=note, svg=svg, low=number(bins[low]), high=_end(bins, high)))
    return charts


def _median_bin(counts: Sequence[int]) -> int:
    half, passed = sum(counts) / 2, 0
    for place, rows in enumerate(counts):
        passed += rows
        if passed >= half:
            return place
    return 0


def _finish(groups: Sequence[Group]) -> list[tuple[str, int, Markup]]:
    summed: dict[str | None, int] = {}
    for group in groups:
        for reason, rows in group.finish:
            summed[reason] = summed.get(reason, 0) + rows
    total = sum(summed.values())
    most = sorted(summed.items(), key=lambda item: (-item[1], str(item[0])))[:8]
    lines = []
    for reason, rows in most:
        name = "none given" if reason is None else clean(reason, _NAME_LIMIT)
        lines.append((name, rows, share_bar((rows / total) ** 2, None, f"{name}: {share(rows, total)}", bad=False)))
    return lines


def _over_time(distributions: Distributions) -> list[Chart]:
    slices, ticks = distributions.slices, distributions.shard_starts
    measures: tuple[tuple[str, str, Callable[[Slice], int]], ...] = (
        ("In quarantine", "share of rows", lambda one: one.quarantined),
        ("Counts that do not fit", "share of rows, where a way of counting is known", lambda one: one.uncounted),
        ("Cut answers", "share of rows", lambda one: one.cut),
    )
    charts = []
    for title, note, of in measures:
        shares = [of(one) / one.rows if one.rows else 0.0 for one in slices]
        top = max(*shares, 0.0)
        whole = max(top, 0.02)
        bars = [
            Bar(height=value / whole, title=f"{_place(one)}: {number(of(one))} of {quantity(one.rows, 'row')}",
                marked=title != "Cut answers" and value >= _BAD_SHARE)
            for one, value in zip(slices, shares, strict=True)
        ]  # fmt: skip
        highest = f"at most {100 * top:.1f} %" if top else "none"
        charts.append(
            Chart(title=title, note=f"{note}; {highest}", svg=columns(bars, f"{title}: {highest}", ticks=ticks))
        )
    medians = [one.median_ids or 0.0 for one in slices]
    top = max(*medians, 1.0)
    bars = [
        Bar(height=value / top, title=f"{_place(one)}: {value:,.0f} ids")
        for one, value in zip(slices, medians, strict=True)
    ]
    told = f"{min(medians):,.0f} to {max(medians):,.0f} ids"
    charts.append(Chart(title="Median length", note=told, svg=columns(bars, f"Median length: {told}", ticks=ticks)))
    charts += _shares_over_time(distributions)
    return charts


def _shares_over_time(distributions: Distributions) -> list[Chart]:
    """Who answered when, for the largest groups; nothing where there is only one."""
    groups = distributions.groups
    if len(groups) < 2:
        return []
    charts = []
    for place, group in enumerate(groups[:_OVER_TIME]):
        counts = [one.by_group[place] for one in distributions.slices]
        shares = [rows / one.rows if one.rows else 0.0 for rows, one in zip(counts, distributions.slices, strict=True)]
        note = f"share of rows; {100 * min(shares):.0f} to {100 * max(shares):.0f} %"
        name = _name(group)
        bars = [Bar(height=value, title="") for value in shares]
        charts.append(
            Chart(title=name, note=note, svg=columns(bars, f"{name}: {note}", ticks=distributions.shard_starts))
        )
    return charts


def _place(one: Slice) -> str:
    return f"{clean(one.shard.removeprefix('shards/').removesuffix('.parquet'), 30)} row {number(one.row_index)}"
