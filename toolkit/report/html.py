"""One self-contained page per verdict: no script, no network, a content policy that allows nothing else.

The page is drawn by `templates/verdict.html.j2`. Two gates stand between a hostile string and the
reader: every expression of the template passes through `clean` (jinja's `finalize`), then through
HTML escaping. Inline `style` attributes are forbidden by the policy, so widths are SVG attributes.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.records import ExpectationResult, Json, LiveShard, Verdict
from toolkit.report import beside, counts, doubts, steps, text
from toolkit.report import outcome as say

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).parent / "templates"
_BAR_UNITS = 1000
_SMALLEST_SEGMENT = 6
_EXAMPLES = 100
_LINES = 500
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


def render_html(verdict: Verdict) -> str:
    """The verdict as one HTML file that can be mailed, printed, and opened from any disk."""
    from markupsafe import Markup

    css = (_TEMPLATES / "verdict.css").read_text(encoding="utf-8")
    style_hash = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return _template().render(
        v=verdict,
        css=Markup(css),  # noqa: S704 - our own file, and the policy is made of these very bytes
        style_hash=style_hash,
        outcome=say.outcome_of(verdict),
        reasons=say.reasons_of(verdict),
        held_against=say.held_against(verdict),
        steps=steps.next_steps(verdict),
        culprits=say.culprits(verdict),
        evidence=doubts.evidence_of(verdict.evidence),
        doubtful=doubts.doubts_of(verdict),
        failures=counts.failures_of(verdict.accounting),
        merge=counts.merge_sentence(verdict),
        groups=sorted(verdict.providers, key=lambda group: (-group.rows, doubts.group_name(group)))[:_LINES],
        beside=beside.lines_of(verdict, _LINES),
        headings=beside.HEADINGS,
        key=beside.KEY,
        learned=beside.learned_sentences(verdict),
        shards=_first(verdict.shards),
    )


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
        say=say, doubts=doubts, counts=counts, text=text, bar=_bar, examples=_examples, settings=_settings, table=_table
    )
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
