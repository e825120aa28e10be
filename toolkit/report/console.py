"""The terminal: a verdict, a contract's proof, and the progress of long work.

Renderers return the finished text; lines are at most `width` cells. Without colour there is not one
escape code in it, and nothing is said by colour alone. rich is imported on first use: `tokenproof
--help` does not pay for it. Texts are never rich markup: `[bold]` from a model stays what it is.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from toolkit.records import ExpectationResult, Severity, SuiteRun, Verdict
from toolkit.report import beside, counts, doubts, steps
from toolkit.report import outcome as say
from toolkit.report.text import clean, dollars, duration, number, quantity
from toolkit.report.told import Grid, Told

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_TONES = {"passed": "bold green", "closed": "bold red", "incomplete": "bold yellow"}
_SEVERITIES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_SAMPLES = 3
_GROUPS = 15
_VALUE_LIMIT = 60
_FAILING_LIMIT = 200
_QUIET_S = 5.0
_NOTE_LIMIT = 200
_FIGURES = ("rows", "share", "must hold")


def render_verdict(verdict: Verdict, *, report: str | None, colour: bool, width: int = 80) -> str:
    """The verdict as a person reads it after `audit`: the answer first, then why, whose fault, what next.

    Args:
        report: Where the page with everything lies; it is named in the last line.
        colour: False gives plain text without escape codes.
        width: Cells per line.
    """
    parts: list[RenderableType] = [
        *_head(verdict),
        *_section("Rows", [_counts(verdict)]),
        *_section("Sources and providers", _groups(verdict)),
    ]
    if beside.lines_of(verdict, _GROUPS)[0]:
        parts += _section("Providers beside each other", _beside(verdict))
    if learned := beside.learned_sentences(verdict):
        parts += _section("What was learned", [_bullets("·", learned)])
    if told := _doubts(verdict):
        parts += _section("Why rows are not proved", told)
    for run in verdict.suites:
        parts += _section(f"Expectations of {clean(run.name, doubts.NAME_LIMIT)}", _expectations(run))
    parts += _section("Made with", [_fingerprints(verdict, report)])
    return _render(parts, colour=colour, width=width)


def render_proof(title: str, lines: Sequence[tuple[str, str, str, bool]], *, colour: bool, width: int = 80) -> str:
    """What a contract claims and what was found, one line each, the failing ones first.

    Args:
        lines: (what, expected, found, holds).
    """
    from rich.table import Table

    held = sum(holds for *_, holds in lines)
    proven = held == len(lines) > 0
    summary = _text(f"{'PROVEN' if proven else 'NOT PROVEN'}: ", _TONES["passed" if proven else "closed"])
    summary.append_text(_text(f"{clean(title, 200)}, {number(held)} of {number(len(lines))} hold"))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for heading, ratio in (("what", 4), ("expected", 3), ("found", 3)):
        table.add_column(heading, overflow="fold", ratio=ratio)
    table.expand = True
    one_line = max(12, (width - 12) * 3 // 10 - 2)
    for what, expected, found, holds in sorted(lines, key=lambda line: line[3]):
        mark = _text("✓ holds", "green") if holds else _text("✗ FAILS", "bold red")
        # Two values that differ in their middle must not look equal: what fails is shown at length.
        limit = one_line if holds else _FAILING_LIMIT
        table.add_row(
            mark, _text(clean(what, _FAILING_LIMIT)), _text(clean(expected, limit)), _text(clean(found, limit))
        )
    return _render([summary, _text(""), table], colour=colour, width=width)


def render_told(told: Told, *, colour: bool, width: int = 80) -> str:
    """What a command has to say: the answer, names with values, sections of marked sentences, a table."""
    parts: list[RenderableType] = [_text(told.headline, _TONES[told.tone])]
    if told.facts:
        parts.append(_pairs(told.facts))
    for section in told.sections:
        parts += _section(section.title, [_bullets(section.mark, section.sentences)])
    if told.grid is not None:
        parts += [*([_text("")] if told.facts or told.sections else []), _grid(told.grid)]
    return _render(parts, colour=colour, width=width)


def _grid(grid: Grid) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in grid.headings:
        right = heading in grid.figures
        table.add_column(heading, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for tone, cells in grid.lines:
        table.add_row(*(_text(cell, _TONES[tone] if at == 0 else "") for at, cell in enumerate(cells)))
    return table


# --- the parts of a verdict ----------------------------------------------------------------------


def _head(verdict: Verdict) -> list[RenderableType]:
    """The banner and the three lists under it."""
    from rich.box import HEAVY
    from rich.panel import Panel

    outcome = say.outcome_of(verdict)
    style = _TONES[outcome.tone]
    banner = _text(outcome.headline, style)
    banner.append_text(_text(f"\n{clean(verdict.dataset, doubts.NAME_LIMIT)} · {say.split_sentence(verdict)}"))
    parts: list[RenderableType] = [Panel(banner, box=HEAVY, border_style=style, padding=(0, 1))]
    parts.append(_pairs(say.held_against(verdict)))
    reasons = say.reasons_of(verdict)
    todo = [f"{s.says}: {s.command}" if s.command else s.says for s in steps.next_steps(verdict)]
    if reasons:
        parts += _section("Why", [_bullets("✗" if outcome.tone != "passed" else "·", reasons)])
    if outcome.tone == "closed" and (culprits := say.culprits(verdict)):
        parts += _section("Where the bad rows come from", [_bullets("·", culprits)])
    return parts + _section("Next", [_bullets("→", todo)])


def _counts(verdict: Verdict) -> Table:
    """Asked, answered and left over; what is in quarantine and why; the evidence."""
    accounting = verdict.accounting
    quarantined = f"{quantity(verdict.quarantined, 'row')} ({say.quarantine_share(verdict, say.strictest(verdict))})"
    if reasons := counts.tally(verdict.quarantined_by_reason):
        quarantined += f": {reasons}"
    rows = [
        ("asked", counts.asked_sentence(accounting)),
        ("rows", f"{number(verdict.rows)}, {quantity(verdict.ids, 'id')}"),
        *((failures.name, failures.sentence) for failures in counts.failures_of(accounting)),
        ("not sealed", number(accounting.unsealed)),
        ("quarantined", quarantined),
        ("evidence", doubts.evidence_mix(verdict.evidence) or "none"),
    ]
    if merge := counts.merge_sentence(verdict):
        rows.append(("a merge", merge))
    rows += [("unreadable", clean(path, 200)) for path in verdict.unreadable[:5]]
    if len(verdict.unreadable) > 5:
        rows.append(("", f"and {quantity(len(verdict.unreadable) - 5, 'further shard')}"))
    return _pairs(rows)


def _groups(verdict: Verdict) -> list[RenderableType]:
    """One entry per source and provider, the largest first."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    table.add_column("source, how it counts ids", overflow="fold", ratio=5)
    table.add_column("rows", justify="right", overflow="fold", min_width=6)
    table.add_column("evidence", overflow="fold", ratio=3)
    table.add_column("truncated", justify="right", overflow="fold", min_width=5)
    table.add_column("quarantined", justify="right", overflow="fold", min_width=5)
    groups = sorted(verdict.providers, key=lambda group: -group.rows)
    shown = sorted(groups, key=lambda group: -group.quarantined)[:_GROUPS]
    for group in sorted(shown, key=lambda group: -group.rows):
        table.add_row(
            Group(_text(doubts.group_name(group)), Padding(_text(say.convention_of(group), "dim"), (0, 0, 0, 2))),
            _text(number(group.rows)),
            _text(doubts.evidence_mix(group.evidence, "\n")),
            _text(number(group.truncated)),
            _text(number(group.quarantined), "bold red" if group.quarantined else ""),
        )
    if not groups:
        return [_text("none")]
    more = len(groups) - len(shown)
    return [table, _text(f"and {quantity(more, 'further line')} in the report")] if more else [table]


def _beside(verdict: Verdict) -> list[RenderableType]:
    """One line per source, provider and mode; the mode's name may wrap, figures do not."""
    from rich.table import Table

    lines, more = beside.lines_of(verdict, _GROUPS)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", expand=True)
    table.add_column(beside.HEADINGS[0], overflow="fold", ratio=1, min_width=12)
    # What nobody reported is no column of dashes.
    shown = [i for i in range(1, len(beside.HEADINGS)) if any(line.cells[i] != "–" for line in lines)]
    for i in shown:
        table.add_column(beside.HEADINGS[i], justify="right", overflow="fold")
    for line in lines:
        table.add_row(*(_text(line.cells[i]) for i in (0, *shown)))
    told = [_text(beside.key_of([beside.HEADINGS[i] for i in shown]), "dim")]
    return [table, *([_text(f"and {quantity(more, 'further line')} in verdict.json")] if more > 0 else []), *told]


def _doubts(verdict: Verdict) -> list[RenderableType]:
    """For each source and provider a sentence per reason."""
    from rich.padding import Padding

    parts: list[RenderableType] = []
    for doubt in doubts.doubts_of(verdict):
        parts.append(_text(doubt.group))
        parts += [Padding(_text(sentence), (0, 0, 0, 2)) for sentence in doubt.sentences]
    return parts


def _expectations(run: SuiteRun) -> list[RenderableType]:
    """The failing ones in full, those that tolerate failing rows in a line each, the others by name."""
    findings = say.sort_results(run)
    parts: list[RenderableType] = [_text(f"✗ {group.sentence}", "bold red") for group in findings.unjudged]
    for heading, results in (
        ("closing the gate", [r for r in findings.failing if say.closes_gate(r)]),
        ("failing, but shown only", [r for r in findings.failing if not say.closes_gate(r)]),
    ):
        if results:
            parts.append(_result_line(_text(heading, "bold"), *_FIGURES))
        parts += [part for result in results for part in _failing(result)]
    if findings.tolerated:
        parts.append(_result_line(_text("holding, with a few failing rows", "bold"), *_FIGURES))
    parts += [_result_line(_text(f"✓ {clean(r.id, doubts.NAME_LIMIT)}"), *_figures(r)) for r in findings.tolerated]
    if findings.clean:
        parts.append(_text(f"✓ {quantity(len(findings.clean), 'expectation')} without a failing row"))
    if not run.results:
        parts.append(_text("✗ the suite has no expectations", "bold red"))
    return parts


def _failing(result: ExpectationResult) -> Iterator[RenderableType]:
    """One failing expectation: figures, sentence, what was found, a few rows."""
    from rich.padding import Padding

    name = _text("✗ ", _SEVERITIES[result.severity])
    name.append_text(_text(f"{result.severity.upper()} ", _SEVERITIES[result.severity]))
    name.append_text(_text(clean(result.id, doubts.NAME_LIMIT)))
    yield _result_line(name, *_figures(result))
    details = [told] if (told := say.about(result)) else []
    if result.error is not None or result.observed is not None or result.success_after_quarantine is not None:
        details.append(say.found_by(result))
    if result.examples:
        rows = say.samples(result.examples[:_SAMPLES], _VALUE_LIMIT)
        details.append("for example " + "; ".join(row if value is None else f"{row}: {value}" for row, value in rows))
    for detail in details:
        yield Padding(_text(detail), (0, 0, 0, 2))


def _figures(result: ExpectationResult) -> tuple[str, str, str]:
    """Failing rows, their share, and the share of rows that must hold."""
    if result.unexpected_count is None or result.element_count is None:
        return "–", "–", say.required_by(result)
    return number(result.unexpected_count), say.share_of(result), say.required_by(result)


def _result_line(name: Text, rows: str, share: str, needed: str) -> Table:
    from rich.table import Table

    line = Table.grid(padding=(0, 0, 0, 2), expand=True)
    line.add_column(overflow="fold", ratio=1)
    for _ in _FIGURES:
        line.add_column(justify="right", overflow="fold", width=11)
    line.add_row(name, _text(rows), _text(share), _text(needed))
    return line


def _fingerprints(verdict: Verdict, report: str | None) -> Table:
    shards = quantity(len(verdict.shards), "shard")
    rows = [
        ("tokenproof", f"{clean(verdict.tool_version, 40)}, kernel {verdict.kernel_version}"),
        ("audited", f"{clean(verdict.created_at, 40)}, {shards} in {duration(verdict.elapsed_s)}"),
    ]
    cost = sum(group.cost_usd for group in verdict.providers)
    if cost:
        rows.append(("cost", f"{dollars(cost)} for the rows that were audited"))
    if report is not None:
        rows.append(("report", clean(report, 1000)))
    return _pairs(rows)


# --- building blocks -----------------------------------------------------------------------------


def _text(content: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(content, style=style, overflow="fold")


def _section(title: str, content: Iterable[RenderableType]) -> list[RenderableType]:
    return [_text(""), _text(title, "bold underline"), *content]


def _bullets(mark: str, sentences: Iterable[str]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for sentence in sentences:
        grid.add_row(_text(mark), _text(sentence))
    return grid


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, width=11)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(_text(name), _text(value))
    return grid


def _render(parts: Iterable[RenderableType], *, colour: bool, width: int) -> str:
    """Everything below each other. Nothing is taken from the environment: the same call, the same text."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1])


# --- progress ------------------------------------------------------------------------------------


class Advance(Protocol):
    """Says that `n` more are done; `text` is what is worth knowing right now."""

    def __call__(self, n: int = 1, text: str = "") -> None:
        """Add `n` to what is done."""


@contextmanager
def progress(
    title: str,
    total: int | None,
    *,
    enabled: bool,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Advance]:
    """A bar on a terminal; elsewhere a plain line at most every five seconds, and one at the end.

    Args:
        total: How many there are; None where that is not known.
        enabled: The stream is a terminal.
        stream: Where to write; standard error unless given.
        clock: Seconds from any start.
    """
    target = sys.stderr if stream is None else stream
    shown = clean(title, doubts.NAME_LIMIT)
    with _bar(shown, total, target) if enabled else _lines(shown, total, target, clock) as advance:
        yield advance


@contextmanager
def _bar(title: str, total: int | None, stream: TextIO) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with Progress(*columns, console=Console(file=stream, highlight=False), expand=True) as bar:
        task = bar.add_task(title, total=total, text="")

        def advance(n: int = 1, text: str = "") -> None:
            bar.update(task, advance=n, text=clean(text, _NOTE_LIMIT))

        yield advance


@contextmanager
def _lines(title: str, total: int | None, stream: TextIO, clock: Callable[[], float]) -> Iterator[Advance]:
    done, last, note, written = 0, clock(), "", ""

    def write() -> None:
        nonlocal written
        of = "" if total is None else f" of {number(total)}"
        line = f"{title}: {number(done)}{of}{f', {note}' if note else ''}"
        if line != written:
            print(line, file=stream, flush=True)
        written = line

    def advance(n: int = 1, text: str = "") -> None:
        nonlocal done, last, note
        done, note = done + n, clean(text, _NOTE_LIMIT)
        if clock() - last >= _QUIET_S:
            last = clock()
            write()

    try:
        yield advance
    finally:
        write()
