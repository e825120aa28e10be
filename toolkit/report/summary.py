"""A summary in GitHub-flavoured Markdown: for a job's page, a pull request, a message.

Nothing that came from outside is live in it. Words of letters, digits and plain punctuation stand as
they are; every other word stands in a code span, where Markdown knows no links, mentions or markup.
A pipe cannot stand in a table's code span without a backslash, whose own meaning differs between
readers, so it stands between two spans as an entity.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from toolkit.records import ExpectationResult, SuiteRun, Verdict
from toolkit.report import counts, doubts, steps
from toolkit.report import outcome as say
from toolkit.report.text import clean, number, quantity, share

_SAMPLES = 3
_VALUE_LIMIT = 40
_LINES = 30

_MARKS = {"passed": "✅", "closed": "⛔", "incomplete": "⏳"}

_PLAIN_WORD = re.compile(r"[(“]?(?:[^\W\d_]+(?:[’'-][^\W\d_]+)*|\d+(?:[.,]\d+)*%?|[%·–—→/]|× ?)[)”]?[.,;:?…]?")
"""No character in it starts anything in Markdown, and no host name, mention or hash can match it."""


def render_summary(verdict: Verdict) -> str:
    """The verdict as Markdown: the answer, why, whose fault, what next, and three tables."""
    outcome = say.outcome_of(verdict)
    culprits = say.culprits(verdict) if outcome.tone == "closed" else ()
    blocks = [
        f"## {_MARKS[outcome.tone]} {outcome.headline}",
        f"**{code(clean(verdict.dataset, doubts.NAME_LIMIT) or '(no name)')}** {prose(say.split_sentence(verdict))}",
        _bullets("Held against", (f"{what}: {prose(which)}" for what, which in say.held_against(verdict))),
        _bullets("Why", map(prose, say.reasons_of(verdict))),
        _bullets("Where the bad rows come from", map(prose, culprits)),
        _bullets("Next", map(_step, steps.next_steps(verdict))),
        _counts(verdict),
        _groups(verdict),
        _doubts(verdict),
        *(_expectations(run) for run in verdict.suites),
        _made_with(verdict),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def prose(sentence: str) -> str:
    """A clean sentence in which every word that Markdown might read in its own way is in a code span."""
    runs = itertools.groupby(sentence.split(), key=lambda word: _PLAIN_WORD.fullmatch(word) is not None)
    return " ".join(" ".join(words) if plain else _quote(" ".join(words)) for plain, words in runs)


def _quote(words: str) -> str:
    """Words as a code span, the punctuation that ends them outside of it."""
    inner = words.rstrip(".,;:")
    return code(inner) + words[len(inner) :]


def code(text: str) -> str:
    """A clean text as code span, whatever is in it; safe inside a table cell."""
    return "&#124;".join(_span(piece) if piece else "" for piece in text.split("|"))


def _span(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    # One space at both ends is taken off by Markdown; it keeps backticks and spaces of the text itself.
    pad = " " if text.strip(" ") and (text[0] in " `" or text[-1] in " `") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _step(step: steps.Step) -> str:
    return f"{prose(step.says)}: {code(step.command)}" if step.command else prose(step.says)


def _bullets(title: str, items: Iterable[str]) -> str:
    lines = [f"- {item}" for item in items]
    return "\n".join([f"**{title}**", "", *lines]) if lines else ""


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table of cells that are Markdown already; columns in `right` are set to the right."""
    rule = ["---:" if index in right else "---" for index in range(len(heading))]
    shown = [heading, rule, *rows[:_LINES]]
    if len(rows) > _LINES:
        shown.append([f"and {len(rows) - _LINES} more", *[""] * (len(heading) - 1)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in shown)


def _counts(verdict: Verdict) -> str:
    accounting = verdict.accounting
    unreadable = "; ".join(clean(path, 120) for path in verdict.unreadable[:3])
    lines = [
        ("asked", "–" if accounting.asked is None else number(accounting.asked), counts.asked_sentence(accounting)),
        ("rows", number(verdict.rows), quantity(verdict.ids, "id")),
        *((f.name, number(f.count), f.sentence if f.count else "") for f in counts.failures_of(accounting)),
        ("not sealed", number(accounting.unsealed), ""),
        ("unreadable shards", number(len(verdict.unreadable)), unreadable),
        ("quarantined", number(verdict.quarantined), say.quarantine_share(verdict, say.strictest(verdict))),
        ("", "", counts.tally(verdict.quarantined_by_reason)),
    ]
    if merge := counts.merge_sentence(verdict):
        lines.append(("written by a merge", number(counts.written_by_merge(verdict) or 0), merge))
    for kind, rows, _ in doubts.evidence_of(verdict.evidence):
        lines.append((f"evidence: {kind}", number(rows), share(rows, verdict.rows)))
    return _table(("what", "count", ""), [[prose(cell) for cell in line] for line in lines if any(line)], right=(1,))


def _groups(verdict: Verdict) -> str:
    rows = [
        [
            prose(doubts.group_name(group)),
            number(group.rows),
            prose(doubts.evidence_mix(group.evidence)),
            prose(say.convention_of(group)),
            number(group.truncated),
            number(group.quarantined),
        ]
        for group in sorted(verdict.providers, key=lambda group: (-group.quarantined, -group.rows))
    ]
    heading = ("source", "rows", "evidence", "how it counts ids", "truncated", "quarantined")
    return "### Sources and providers\n\n" + _table(heading, rows, right=(1, 4, 5)) if rows else ""


def _doubts(verdict: Verdict) -> str:
    lines = [f"- {prose(d.group)}: {prose('; '.join(d.sentences))}" for d in doubts.doubts_of(verdict)]
    return "\n".join(["### Why rows are not proved", "", *lines]) if lines else ""


def _expectations(run: SuiteRun) -> str:
    """Failing ones and those that tolerate failing rows in a table, the others counted."""
    findings = say.sort_results(run)
    rows = [_expectation(result) for result in (*findings.failing, *findings.tolerated)]
    title = f"### Expectations of {code(clean(run.name, doubts.NAME_LIMIT))}"
    unjudged = _bullets("Not evaluated", (prose(group.sentence) for group in findings.unjudged))
    rest = f"{quantity(len(findings.clean), 'expectation')} without a failing row."
    heading = ("", "expectation", "found", "must hold", "for example")
    return "\n\n".join(filter(None, (title, unjudged, _table(heading, rows) if rows else "", rest)))


def _expectation(result: ExpectationResult) -> list[str]:
    mark = ("⛔ critical" if say.closes_gate(result) else f"⚠️ {result.severity}") if say.fails(result) else "✅"
    about = f"<br>{prose(clean(told, 200))}" if (told := say.about(result)) else ""
    rows = say.samples(result.examples[:_SAMPLES], _VALUE_LIMIT)
    return [
        mark,
        code(clean(result.id, doubts.NAME_LIMIT)) + about,
        prose(say.found_by(result)),
        say.required_by(result),
        ", ".join(code(row if value is None else f"{row}: {value}") for row, value in rows),
    ]


def _made_with(verdict: Verdict) -> str:
    version = f"tokenproof {code(clean(verdict.tool_version, 40))}, kernel {verdict.kernel_version}"
    return f"{version}; audited {code(clean(verdict.created_at, 40))}"
