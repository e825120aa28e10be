"""Charts as SVG, made of numbers and class names alone: what is written about them stands in HTML beside them.

Every chart stretches to the width that it is given, and says in `aria-label` what a reader would see in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from toolkit.report.text import clean

_WIDTH = 1000
_HEIGHT = 100
_LABEL = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a chart over time.

    Attributes:
        height: 0 to 1.
        title: Shown when a pointer rests on it; bars without one are drawn in one go.
        marked: Drawn in the colour of what is bad.
    """

    height: float
    title: str
    marked: bool = False


def _svg(body: str, label: str, kind: str) -> Markup:
    said = escape(clean(label, _LABEL))
    return Markup(  # noqa: S704 - numbers and our own words; the label is escaped
        f'<svg class="chart {kind}" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{said}">{body}</svg>'
    )


def histogram(counts: Sequence[int], label: str, *, behind: Sequence[float] = (), odd: bool = False) -> Markup:
    """Bars of equal width, the tallest as high as the chart.

    Args:
        counts: Rows of each bin.
        label: What the chart shows, in words.
        behind: Shares of all others in the same bins, drawn as an outline behind; empty: none.
        odd: Draw in the colour of what stands out.
    """
    total = sum(counts)
    shares = [count / total if total else 0.0 for count in counts]
    top = max([*shares, *behind, 1e-9])
    body = f'<path class="{"odd" if odd else "fill"}" d="{_steps([share / top for share in shares], closed=True)}"/>'
    if behind:
        body += f'<path class="outline" d="{_steps([share / top for share in behind], closed=False)}"/>'
    return _svg(body, label, "histogram")


def _steps(heights: Sequence[float], *, closed: bool) -> str:
    """The outline of bars that stand side by side."""
    width = _WIDTH / max(len(heights), 1)
    gap = min(width * 0.08, 4) if closed else 0.0
    parts = []
    for place, height in enumerate(heights):
        if closed and height <= 0:
            continue
        y = _number(_HEIGHT - max(height, 0.015 if height > 0 else 0) * _HEIGHT)
        left, right = _number(place * width + gap), _number((place + 1) * width - gap)
        if closed:
            parts.append(f"M{left} {_HEIGHT}V{y}H{right}V{_HEIGHT}z")
        else:
            parts.append(f"{'M' if place == 0 else 'L'}{left} {y}H{right}")
    return "".join(parts)


def columns(bars: Sequence[Bar], label: str, *, ticks: Sequence[int] = ()) -> Markup:
    """Bars over time; `ticks` are the bars before which a shard begins."""
    width = _WIDTH / max(len(bars), 1)
    body = "".join(
        f'<path class="tick" d="M{_number(tick * width)} 0V{_HEIGHT}"/>' for tick in ticks if 0 < tick < len(bars)
    )
    plain = ""
    for place, bar in enumerate(bars):
        height = min(max(bar.height, 0.0), 1.0) * _HEIGHT
        if height <= 0:
            continue
        left, right = place * width + width * 0.08, (place + 1) * width - width * 0.08
        outline = f"M{_number(left)} {_HEIGHT}V{_number(_HEIGHT - max(height, 2.0))}H{_number(right)}V{_HEIGHT}z"
        if not bar.title and not bar.marked:
            plain += outline
            continue
        title = f"<title>{escape(clean(bar.title, 200))}</title>" if bar.title else ""
        body += f'<path class="{"odd" if bar.marked else "fill"}" d="{outline}">{title}</path>'
    if plain:
        body += f'<path class="fill" d="{plain}"/>'
    return _svg(body, label, "columns")


def share_bar(share: float, allowed: float | None, label: str, *, bad: bool) -> Markup:
    """The share of failing rows on a scale of square roots, and a mark at what is allowed.

    Args:
        share: 0 to 1.
        allowed: 0 to 1; None where nothing is.
    """
    length = _number(max(share, 0.0) ** 0.5 * _WIDTH if share > 0 else 0)
    body = f'<rect class="rail" width="{_WIDTH}" height="{_HEIGHT}"/>'
    if share > 0:
        kind = "odd" if bad else "mild"
        body += f'<rect class="{kind}" width="{max(float(length), 8):g}" height="{_HEIGHT}"/>'
    if allowed is not None and 0 < allowed < 1:
        body += f'<rect class="mark" x="{_number(allowed**0.5 * _WIDTH)}" width="6" height="{_HEIGHT}"/>'
    return _svg(body, label, "share")


def _number(value: float | int) -> str:
    """At most one decimal, none where it is whole."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
