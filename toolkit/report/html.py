"""One self-contained page per verdict: nothing is loaded, and a content policy allows nothing but its own two parts.

The page is drawn by `templates/verdict.html.j2`. Two gates stand between a hostile string and the reader: every
expression of the templates passes through `clean` (jinja's `finalize`), then through HTML escaping. Inline `style`
attributes are forbidden by the policy, so widths are SVG attributes. Without its script the page shows everything but
the ids of single rows; it sorts and filters nothing then.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.inspection.model import Inspection, TokenView
from toolkit.records import ExpectationResult, Json, LiveShard, Severity, Verdict
from toolkit.report import beside, counts, doubts, steps, text
from toolkit.report import outcome as say

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

MOST_BYTES = 390_000
"""A page is kept below this: rows that would not fit are left off, and it says how many."""

_TEMPLATES = Path(__file__).parent / "templates"
_BAR_UNITS = 1000
_SMALLEST_SEGMENT = 6
_EXAMPLES = 100
_LINES = 120
"""Lines of a table of names, groups or shards; verdict.json holds all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One piece of a stacked bar, in units of which the whole bar has a thousand."""

    kind: str
    rows: int
    x: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Failing rows of one expectation: (row, value), and how many the audit kept and counted."""

    lines: Sequence[tuple[str, str | None]]
    left_off: int
    all_quarantined: bool


def render_html(verdict: Verdict, inspection: Inspection | None = None, before: Verdict | None = None) -> str:
    """The verdict as one HTML file that can be mailed, printed, and opened from any disk.

    Args:
        verdict: The audit's.
        inspection: Distributions and failing rows; None leaves both out.
        before: The verdict of the audit before this one, to be compared.
    """
    found = inspection or Inspection()
    views = list(found.views)
    page = _render(verdict, found, views, before)
    while views and len(page.encode()) > MOST_BYTES:
        # Rows differ in size, so what is too much is taken off in steps.
        room = MOST_BYTES / len(page.encode())
        views = views[: max(min(int(len(views) * room), len(views) - 1), 0)]
        page = _render(verdict, found, views, before)
    return page


def _render(verdict: Verdict, found: Inspection, views: Sequence[TokenView], before: Verdict | None) -> str:
    from markupsafe import Markup

    from toolkit.report.comparison import compare
    from toolkit.report.page import blame, charts, drawn, odd, samples

    css, script = (_read(name) for name in ("verdict.css", "page.js"))
    marks = odd.oddities_of(verdict)
    lines = [samples.line_of(view, number, verdict.dataset) for number, view in enumerate(views)]
    calibration = verdict.learned.calibration
    return _template().render(
        v=verdict,
        css=Markup(css),  # noqa: S704 - our own files, and the policy is made of their very bytes
        script=Markup(script),  # noqa: S704
        data=Markup(samples.data_of(views)) if views else None,  # noqa: S704 - JSON without any of <, > and &
        style_hash=_hash(css),
        script_hash=_hash(script),
        outcome=say.outcome_of(verdict),
        reasons=say.reasons_of(verdict),
        held_against=say.held_against(verdict),
        steps=steps.next_steps(verdict),
        wrongs=blame.wrongs_of(verdict),
        blame=blame.blame_of(verdict, marks, found.distributions, views),
        odd=marks,
        comparison=compare(before, verdict) if before is not None else None,
        evidence=doubts.evidence_of(verdict.evidence),
        doubtful=doubts.doubts_of(verdict),
        calibration=text.readable(text.clean(calibration.says, say.SENTENCE_LIMIT)) if calibration else None,
        failures=counts.failures_of(verdict.accounting),
        merge=counts.merge_sentence(verdict),
        groups=sorted(verdict.providers, key=lambda group: (-group.rows, doubts.group_name(group)))[:_LINES],
        beside=beside.lines_of(verdict, _LINES),
        headings=beside.HEADINGS,
        key=beside.KEY,
        learned=beside.learned_sentences(verdict),
        shards=_first(verdict.shards),
        inspected=found,
        drawn=drawn.draw(found.distributions, marks) if found.distributions is not None else None,
        samples=lines,
        sample_reasons=sorted({reason for line in lines for reason in line.reasons}),
        sample_sources=sorted({line.who for line in lines}),
        failing_rows=verdict.quarantined,
        left_off_rows=len(found.views) - len(views),
        rows_of=lambda result: _rows_of(result, lines),
        share_bar=lambda share, allowed, label, bad: charts.share_bar(share, allowed, label, bad=bad),
    )


@functools.cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


@functools.cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(
        say=say, doubts=doubts, counts=counts, text=text, bar=_bar, examples_of=_examples, settings=_settings,
        table=_table, listed=_listed, rank=_rank, allowed=_allowed,
    )  # fmt: skip
    environment.filters["shown"] = text.clean
    return environment.get_template("verdict.html.j2")


def _finalize(value: Any) -> Any:
    """What the template is about to write, made harmless unless it is markup of our own.

    An undefined name raises in `str`, as it should.
    """
    return value if hasattr(value, "__html__") else text.clean(str(value), say.SENTENCE_LIMIT)


def _bar(evidence: Mapping[str, int]) -> list[Segment]:
    """Segments by evidence from best to worst; the smallest part is still wide enough to be seen."""
    parts = [(kind, rows) for kind, rows, _ in doubts.evidence_of(evidence) if rows > 0]
    total = sum(rows for _, rows in parts)
    sizes = [max(_SMALLEST_SEGMENT, round(_BAR_UNITS * rows / total)) for _, rows in parts]
    segments, x = [], 0
    for (kind, rows), size in zip(parts, sizes, strict=True):
        width = round(size * _BAR_UNITS / sum(sizes))
        segments.append(Segment(kind=kind, rows=rows, x=x, width=width))
        x += width
    return segments


def _examples(result: ExpectationResult) -> Examples:
    shown = result.examples[:_EXAMPLES]
    return Examples(
        lines=say.samples(shown, say.VALUE_LIMIT),
        left_off=max(len(result.examples), result.unexpected_count or 0) - len(shown),
        all_quarantined=result.severity == "critical" and result.scope == "row",
    )


def _rows_of(result: ExpectationResult, lines: Sequence[Any]) -> int:
    """How many of the page's rows fail an expectation."""
    name = text.clean(result.id, doubts.NAME_LIMIT)
    return sum(name in line.reasons for line in lines)


def _rank(result: ExpectationResult) -> int:
    """The order of results: what closes the gate first, what holds for every row last."""
    badness = 0 if say.fails(result) else 3 if result.unexpected_count else 6
    return badness + list(Severity).index(result.severity)


def _allowed(result: ExpectationResult) -> float | None:
    """The share of rows that may fail, 0 to 1."""
    return None if result.mostly is None else 1 - result.mostly


def _listed(names: Sequence[str]) -> Markup:
    """Names in one attribute, parted by the picture of a line feed, which no clean name needs."""
    from markupsafe import Markup, escape

    return Markup("⏎").join(escape(name) for name in names)


def _settings(values: Mapping[str, Json]) -> str:
    """`column=last_id, value_set=[163586]`."""
    shown = [
        f"{text.clean(k, doubts.NAME_LIMIT)}={text.clean(v, say.VALUE_LIMIT)}" for k, v in list(values.items())[:12]
    ]
    return ", ".join(shown)


def _table(by_name: Mapping[str, int]) -> tuple[Sequence[tuple[str, int]], int]:
    """(lines, lines left off), the largest first, zeros last."""
    ordered = sorted(by_name.items(), key=lambda item: (-item[1], item[0]))
    return ordered[:_LINES], max(len(ordered) - _LINES, 0)


def _first(shards: Sequence[LiveShard]) -> tuple[Sequence[LiveShard], int]:
    return shards[:_LINES], max(len(shards) - _LINES, 0)
