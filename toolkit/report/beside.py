"""Providers beside each other, and what was learned of them, in words. Every text returned is clean."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from toolkit.findings import AlterationFound, Calibration, CalibrationClass, Finding, ProbeComparison, ProviderFacts
from toolkit.records import Verdict
from toolkit.report.doubts import NAME_LIMIT
from toolkit.report.text import clean, dollars, number, quantity, readable, share

HEADINGS = ("source and mode", "rows", "cut", "calls", "ids", "KS", "empty", "schema", "F1", "$/M", "p95")
"""Columns of the table; `KEY` says what they are."""

_MEANINGS = {
    "cut": "finish reason length",
    "calls": "finish reason tool_calls",
    "ids": "median length",
    "KS": "distance of its lengths from all others'",
    "empty": "answers without content or call",
    "schema": "calls as declared, 95 % interval",
    "F1": "calls where the reference calls",
    "$/M": "for a million tokens",
    "p95": "seconds",
}


def key_of(headings: Collection[str]) -> str:
    """What these columns are; those that are not shown are not explained."""
    return " · ".join(f"{heading}: {says}" for heading, says in _MEANINGS.items() if heading in headings)


KEY = key_of(HEADINGS)

_SENTENCE = 400
_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: texts in the order of `HEADINGS`."""

    cells: tuple[str, ...]


def lines_of(verdict: Verdict, limit: int) -> tuple[Sequence[Line], int]:
    """(the largest lines, how many are not among them); nothing where there is no second one to compare with."""
    whole = verdict.learned.providers
    if len(whole) < 2:
        return (), 0
    more = max(len(whole) - limit, 0) + verdict.learned.left_off.get("providers", 0)
    return [_line(facts) for facts in whole[:limit]], more


def _line(facts: ProviderFacts) -> Line:
    schema = "–"
    if facts.schema_lower is not None and facts.schema_upper is not None:
        schema = f"{100 * facts.schema_lower:.0f}–{100 * facts.schema_upper:.0f} %"
    cells = (
        f"{clean(facts.name, NAME_LIMIT)} · {clean(facts.mode, 20)}",
        number(facts.rows),
        _percent(facts.length_share),
        _percent(facts.tool_calls_share),
        "–" if facts.median_ids is None else f"{facts.median_ids:,.0f}",
        "–" if facts.ks_distance is None else f"{facts.ks_distance:.2f}",
        _percent(facts.empty_answer_share),
        schema,
        "–" if facts.trigger_f1 is None else f"{facts.trigger_f1:.2f}",
        "–" if facts.cost_per_million_usd is None else dollars(facts.cost_per_million_usd),
        "–" if facts.latency_p95_s is None else f"{facts.latency_p95_s:,.0f}",
    )
    return Line(cells)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def learned_sentences(verdict: Verdict) -> tuple[str, ...]:
    """Drift and other findings (warnings first), alterations, calibration, probes and histories, a sentence each."""
    learned = verdict.learned
    findings = sorted(learned.findings, key=lambda finding: finding.severity != "warning")
    sentences = [finding_sentence(finding) for finding in findings[:_FINDINGS]]
    if len(findings) > _FINDINGS:
        sentences.append(f"and {quantity(len(findings) - _FINDINGS, 'further finding')} in verdict.json")
    sentences += [_alteration(found) for found in learned.alterations[:_FINDINGS]]
    if learned.calibration is not None:
        sentences += _calibration(learned.calibration)
    sentences += [_probe(found) for found in learned.probes[:_FINDINGS]]
    history = learned.history
    if history.own or history.foreign or history.given:
        sentences.append(
            f"histories: {quantity(history.own, 'row')} on our own earlier answers, {number(history.foreign)} on "
            f"others', {number(history.given)} on what the prompt's author wrote"
        )
    return tuple(sentences)


def finding_sentence(finding: Finding) -> str:
    """`warning · openrouter · Chutes: completion_tokens: … (from s60/0/0 on, 40 rows)`."""
    who = " · ".join(clean(name, NAME_LIMIT // 2) for name in (finding.source, finding.provider) if name is not None)
    where = f"{quantity(finding.rows, 'row')}" + (
        f", the first is {clean(finding.row, NAME_LIMIT)}" if finding.row is not None else ""
    )
    says = readable(clean(finding.says, _SENTENCE))
    return (
        f"{clean(finding.severity, 20)} · {who + ': ' if who else ''}{says} ({where}) "
        f"[{clean(finding.code, NAME_LIMIT)}]"
    )


def _alteration(found: AlterationFound) -> str:
    who = " · ".join(clean(name, NAME_LIMIT // 2) for name in (found.source, found.provider) if name is not None)
    return (
        f"{who} {clean(found.code, 20)}: {number(found.hits)} of {number(found.rows)} have {clean(found.says, 100)}; "
        f"{clean(found.reference, NAME_LIMIT)} has it in {100 * found.reference_share:.1f} % or more"
    )


def _calibration(found: Calibration) -> Iterator[str]:
    yield f"calibration: {readable(clean(found.says, _SENTENCE))}"
    parts = [_class(one) for one in found.classes if one.name != "all" and one.rows]
    if parts:
        yield f"calibration by class, rows with other ids than the engine's: {', '.join(parts)}"


def _class(one: CalibrationClass) -> str:
    interval = f"{100 * one.differing_low:.1f}–{100 * one.differing_high:.1f} %"
    return f"{clean(one.name, 20)} {number(one.differing)} of {number(one.rows)} ({interval})"


def _probe(found: ProbeComparison) -> str:
    ours, theirs = (
        " · ".join(clean(name, NAME_LIMIT // 2) for name in names if name is not None)
        for names in ((found.source, found.provider), (found.probe_source, found.probe_provider))
    )
    text = f"probes: {theirs} beside {ours}, {clean(found.mode, 20)}: {number(found.exact)} of "
    text += f"{quantity(found.pairs, 'answer')} the same to the last id ({share(found.exact, found.pairs)})"
    if found.first_difference is not None:
        text += f", the others part at id {found.first_difference:,.0f} (median)"
    return text if found.length_ratio is None else f"{text}, length ratio {found.length_ratio:.2f}"
