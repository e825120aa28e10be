"""One page over all datasets: which may be merged, and where to look where one may not.

Self-contained and inert like the page of a verdict: no script, nothing loaded, a content policy that allows the one
style sheet by its hash. Every text passes through `clean`, then through HTML escaping.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from toolkit.records import Evidence, Verdict
from toolkit.report import doubts
from toolkit.report.outcome import SENTENCE_LIMIT, Tone
from toolkit.report.standing import life_sentence
from toolkit.report.text import clean, number, quantity, share
from toolkit.report.told import Grid, Told
from toolkit.standing import Gate, Life, Standing, next_commands

_STYLE = Path(__file__).parent / "templates" / "index.css"
_BAR_UNITS = 1000
_PROVED = (Evidence.ENGINE, Evidence.LOGPROBS, Evidence.COUNTED)

_GATES: dict[Gate, tuple[Tone, str]] = {
    Gate.PASSED: ("passed", "OPEN"),
    Gate.CLOSED: ("closed", "CLOSED"),
    Gate.DAMAGED: ("closed", "DAMAGED"),
    Gate.UNREADABLE: ("closed", "UNREADABLE"),
    Gate.INCOMPLETE: ("incomplete", "INCOMPLETE"),
    Gate.OUTDATED: ("incomplete", "AUDIT AGAIN"),
    Gate.NONE: ("incomplete", "NOT AUDITED"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One dataset of the index.

    Attributes:
        standing: How it stands, from its files.
        verdict: What the last audit found; None where there is none that can be read.
        page: Whether the page of that audit lies beside it.
    """

    standing: Standing
    verdict: Verdict | None
    page: bool

    @property
    def tone(self) -> Tone:
        """The colour of its gate."""
        return _GATES[self.standing.gate][0]

    @property
    def word(self) -> str:
        """Its gate in a word."""
        return _GATES[self.standing.gate][1]


def headline_of(entries: Sequence[Entry]) -> str:
    """`2 of 3 datasets may be merged`."""
    opened = sum(entry.standing.gate is Gate.PASSED for entry in entries)
    return f"{number(opened)} of {quantity(len(entries), 'dataset')} may be merged" if entries else "no datasets"


def tell_index(entries: Sequence[Entry], page: str) -> Told:
    """The index for a terminal."""
    lines = [
        (
            entry.tone,
            (
                entry.word,
                clean(entry.standing.dataset, doubts.NAME_LIMIT),
                "–" if entry.standing.rows is None else number(entry.standing.rows),
                "–" if entry.verdict is None else share(_proved(entry.verdict), entry.verdict.rows),
                "–" if entry.verdict is None else number(entry.verdict.quarantined),
            ),
        )
        for entry in entries
    ]
    grid = Grid(
        headings=("gate", "dataset", "rows", "proved", "quarantined"),
        lines=lines,
        figures=frozenset(("rows", "proved", "quarantined")),
    )
    return Told(
        headline=headline_of(entries),
        tone=_tone_of(entries),
        facts=[("page", clean(page, 1000))],
        grid=grid if lines else None,
    )


def render_index(entries: Sequence[Entry], *, created_at: str) -> str:
    """The page `reports/index.html`; links lead to `NAME/index.html` beside it."""
    css = _STYLE.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    told = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{_shown(headline_of(entries))} – tokenproof</title>",
        f"<style>{css}</style>",
        "</head>",
        "<body>",
        "<header><h1>Datasets and their gates</h1></header>",
        "<main>",
        f'<p class="banner {_tone_of(entries)}">{_shown(headline_of(entries))}</p>',
        *(_table(entries) if entries else ['<p class="soft">datasets/ holds no folder.</p>']),
        "</main>",
        f"<footer><p>As of {_shown(created_at)}. A merge does not go by this page: it proves every byte.</p></footer>",
        "</body>",
        "</html>",
    ]
    return "\n".join(told) + "\n"


def _tone_of(entries: Sequence[Entry]) -> Tone:
    tones = {entry.tone for entry in entries}
    return "closed" if "closed" in tones else "passed" if tones == {"passed"} else "incomplete"


def _proved(verdict: Verdict) -> int:
    return sum(verdict.evidence.get(kind, 0) for kind in _PROVED)


def _table(entries: Sequence[Entry]) -> Iterator[str]:
    yield '<div class="scroll" tabindex="0" role="group" aria-label="Datasets">'
    yield '<table><caption class="soft">A name leads to the report of its last audit.</caption><thead><tr>'
    yield '<th scope="col">dataset</th><th scope="col">gate</th><th scope="col" class="n">rows</th>'
    yield '<th scope="col" class="mix">evidence</th><th scope="col" class="n">quarantined</th>'
    yield '<th scope="col">audited</th></tr></thead><tbody>'
    for entry in entries:
        yield from _line(entry)
    yield "</tbody></table></div>"


def _line(entry: Entry) -> Iterator[str]:
    standing, verdict = entry.standing, entry.verdict
    name = f"<bdi>{_shown(standing.dataset, doubts.NAME_LIMIT)}</bdi>"
    if entry.page:
        name = f'<a href="{escape(quote(standing.dataset, safe=""))}/index.html">{name}</a>'
    rows = "–" if standing.rows is None else number(standing.rows)
    yield f'<tr class="{entry.tone}"><th scope="row">{name}</th>'
    yield f'<td class="gate"><strong class="word">{entry.word}</strong>{"".join(map(_note, _notes(standing)))}</td>'
    yield f'<td class="n" data-name="rows">{rows}</td>'
    if verdict is None:
        yield '<td class="mix" data-name="evidence">–</td><td class="n" data-name="quarantined">–</td>'
        yield '<td class="when" data-name="audited">–</td></tr>'
        return
    mix = escape(doubts.evidence_mix(verdict.evidence)) or "no rows"
    proved = share(_proved(verdict), verdict.rows)
    yield f'<td class="mix">{_bar(verdict.evidence, mix)}<span class="soft">{proved} proved: {mix}</span></td>'
    yield f'<td class="n" data-name="quarantined">{number(verdict.quarantined)}</td>'
    yield f'<td class="when" data-name="audited">{_shown(verdict.created_at[:16].replace("T", " "), 40)}</td></tr>'


def _notes(standing: Standing) -> Iterator[str]:
    """Why the gate is not open, what goes on, and what to do next."""
    yield from standing.gate_reasons
    yield from standing.faults[:3]
    if standing.life in (Life.RUNNING, Life.DIED, Life.UNKNOWN):
        yield f"generate: {life_sentence(standing)}"
    yield from (f"next: {command}" for command in next_commands(standing))


def _note(sentence: str) -> str:
    return f'<span class="note"><bdi>{_shown(sentence)}</bdi></span>'


def _bar(evidence: Mapping[str, int], label: str) -> str:
    """One stacked bar; what there is few of is still wide enough to be seen."""
    parts = [(kind, rows) for kind, rows, _ in doubts.evidence_of(evidence) if rows > 0]
    total = sum(rows for _, rows in parts)
    sizes = [max(6, _BAR_UNITS * rows / total) for _, rows in parts]
    x, drawn = 0.0, []
    for (kind, _), size in zip(parts, sizes, strict=True):
        width = size * _BAR_UNITS / sum(sizes)
        known = kind if kind in set(Evidence) else "unknown"
        drawn.append(f'<rect class="{known}" x="{x:.1f}" y="0" width="{width:.1f}" height="10"/>')
        x += width
    return (
        f'<svg class="bar" viewBox="0 0 {_BAR_UNITS} 10" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f"{''.join(drawn)}</svg>"
    )


def _shown(value: str, limit: int = SENTENCE_LIMIT) -> str:
    return escape(clean(value, limit))
