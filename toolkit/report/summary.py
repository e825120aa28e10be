"""A summary in GitHub-flavoured Markdown: for a job's page, a pull request, a message.

Nothing that came from outside is live in it: see `markdown`.
"""

from __future__ import annotations

from toolkit.records import ExpectationResult, SuiteRun, Verdict
from toolkit.report import counts, doubts, steps
from toolkit.report import outcome as say
from toolkit.report.markdown import bullets, code, prose, table
from toolkit.report.text import clean, number, quantity, share

_SAMPLES = 3
_VALUE_LIMIT = 40

_MARKS = {"passed": "✅", "closed": "⛔", "incomplete": "⏳"}


def render_summary(verdict: Verdict) -> str:
    """The verdict as Markdown: the answer, why, whose fault, what next, and three tables."""
    outcome = say.outcome_of(verdict)
    culprits = say.culprits(verdict) if outcome.tone == "closed" else ()
    blocks = [
        f"## {_MARKS[outcome.tone]} {outcome.headline}",
        f"**{code(clean(verdict.dataset, doubts.NAME_LIMIT) or '(no name)')}** {prose(say.split_sentence(verdict))}",
        bullets("Held against", (f"{what}: {prose(which)}" for what, which in say.held_against(verdict))),
        bullets("Why", map(prose, say.reasons_of(verdict))),
        bullets("Where the bad rows come from", map(prose, culprits)),
        bullets("Next", map(_step, steps.next_steps(verdict))),
        _counts(verdict),
        _groups(verdict),
        _doubts(verdict),
        *(_expectations(run) for run in verdict.suites),
        _made_with(verdict),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _step(step: steps.Step) -> str:
    return f"{prose(step.says)}: {code(step.command)}" if step.command else prose(step.says)


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
    return table(("what", "count", ""), [[prose(cell) for cell in line] for line in lines if any(line)], right=(1,))


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
    return "### Sources and providers\n\n" + table(heading, rows, right=(1, 4, 5)) if rows else ""


def _doubts(verdict: Verdict) -> str:
    lines = [f"- {prose(d.group)}: {prose('; '.join(d.sentences))}" for d in doubts.doubts_of(verdict)]
    return "\n".join(["### Why rows are not proved", "", *lines]) if lines else ""


def _expectations(run: SuiteRun) -> str:
    """Failing ones and those that tolerate failing rows in a table, the others counted."""
    findings = say.sort_results(run)
    rows = [_expectation(result) for result in (*findings.failing, *findings.tolerated)]
    title = f"### Expectations of {code(clean(run.name, doubts.NAME_LIMIT))}"
    unjudged = bullets("Not evaluated", (prose(group.sentence) for group in findings.unjudged))
    rest = f"{quantity(len(findings.clean), 'expectation')} without a failing row."
    heading = ("", "expectation", "found", "must hold", "for example")
    return "\n\n".join(filter(None, (title, unjudged, table(heading, rows) if rows else "", rest)))


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
