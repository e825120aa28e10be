"""What a verdict says, in words, before anything decides how it looks.

May I merge; if not, what is wrong, whose fault is it, what do I do next? All renderers take their
sentences from here, so a terminal, a page and a CI job never disagree. Every text returned is clean.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from toolkit.records import Evidence, ExpectationResult, Json, ProviderSummary, Severity, SuiteRun, Verdict
from toolkit.report.text import bound, clean, number, quantity, share

NAME_LIMIT = 60
"""Characters of a name (dataset, provider, expectation) that are shown."""

SENTENCE_LIMIT = 400
"""Characters of one reason or description that are shown."""

VALUE_LIMIT = 160
"""Characters of one failing value that are shown on a page; a terminal shows fewer."""

_LISTED = 20
_NAMED_SOURCES = 3

_MEANINGS = {
    Evidence.ENGINE: "the server gave the ids",
    Evidence.LOGPROBS: "the ids follow the sampled split",
    Evidence.COUNTED: "rebuilt or given, and the reported count agrees",
    Evidence.UNVERIFIED: "nothing to hold the ids against, or the provider alters text",
    Evidence.CONTRADICTED: "a count, the text or the structure disagrees",
}

Tone = Literal["passed", "closed", "incomplete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer to "may I merge?": a word to shout, the same in a sentence, and its colour."""

    word: str
    says: str
    tone: Tone

    @property
    def headline(self) -> str:
        """`PASSED: may be merged`."""
        return f"{self.word}: {self.says}"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do now, and the command for it where there is one."""

    says: str
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of a suite by what a reader does with them.

    Attributes:
        failing: Critical ones first, then by the share of failing rows.
        tolerated: They hold, but some rows fail them: `mostly` allows it.
        clean: They hold for every row.
    """

    failing: tuple[ExpectationResult, ...]
    tolerated: tuple[ExpectationResult, ...]
    clean: tuple[ExpectationResult, ...]


def outcome_of(verdict: Verdict) -> Outcome:
    """Passed and complete may be merged; nothing else may."""
    if not verdict.passed:
        return Outcome(word="GATE CLOSED", says="may not be merged", tone="closed")
    if not verdict.complete:
        return Outcome(word="INCOMPLETE", says="may not be merged yet", tone="incomplete")
    return Outcome(word="PASSED", says="may be merged", tone="passed")


def fails(result: ExpectationResult) -> bool:
    """It does not hold, could not be evaluated, or does not hold on what the quarantine leaves."""
    return not result.success or result.error is not None or result.success_after_quarantine is False


def closes_gate(result: ExpectationResult) -> bool:
    """It fails, and its severity says that this closes the gate."""
    return fails(result) and result.severity is Severity.CRITICAL


def sort_results(run: SuiteRun) -> Findings:
    """The results of one suite, the worst first."""

    def badness(result: ExpectationResult) -> tuple[int, float]:
        return list(Severity).index(result.severity), -(result.unexpected_share or 0.0)

    holding = [result for result in run.results if not fails(result)]
    return Findings(
        failing=tuple(sorted(filter(fails, run.results), key=badness)),
        tolerated=tuple(sorted((r for r in holding if r.unexpected_count), key=badness)),
        clean=tuple(r for r in holding if not r.unexpected_count),
    )


def reasons_of(verdict: Verdict) -> tuple[str, ...]:
    """The audit's own sentences; never silent about a verdict that is not a pass."""
    reasons = [clean(reason, SENTENCE_LIMIT) for reason in verdict.reasons[:_LISTED]]
    if len(verdict.reasons) > _LISTED:
        reasons.append(f"and {quantity(len(verdict.reasons) - _LISTED, 'further reason')} in verdict.json")
    if not reasons and outcome_of(verdict).tone != "passed":
        reasons.append("the verdict gives no reason")
    return tuple(reasons)


def culprits(verdict: Verdict) -> tuple[str, ...]:
    """Which sources and providers the bad rows come from, the worst first, and how the others compare."""
    bad = [group for group in verdict.providers if group.quarantined or _weak(group)]
    bad.sort(key=lambda group: (group.quarantined, _weak(group)), reverse=True)
    named, others = bad[:_NAMED_SOURCES], bad[_NAMED_SOURCES:]
    sentences = [_blame(group) for group in named]
    if named:
        others += [group for group in verdict.providers if group not in bad]
        rows, quarantined = sum(g.rows for g in others), sum(g.quarantined for g in others)
        if others:
            name = quantity(len(others), "other source or provider", "other sources or providers")
            sentences.append(f"{name}: {_quarantined(quarantined, rows)}")
    return tuple(sentences)


def _weak(group: ProviderSummary) -> int:
    """Rows whose ids nothing speaks for."""
    return group.evidence.get(Evidence.UNVERIFIED, 0) + group.evidence.get(Evidence.CONTRADICTED, 0)


def _blame(group: ProviderSummary) -> str:
    parts = [_quarantined(group.quarantined, group.rows)]
    for kind in (Evidence.CONTRADICTED, Evidence.UNVERIFIED):
        if count := group.evidence.get(kind, 0):
            parts.append(f"{number(count)} {kind}")
    return f"{group_name(group)}: {', '.join(parts)}"


def _quarantined(count: int, rows: int) -> str:
    if not count:
        return f"none of {quantity(rows, 'row')} quarantined"
    return f"{number(count)} of {quantity(rows, 'row')} quarantined ({share(count, rows)})"


def next_steps(verdict: Verdict) -> tuple[Step, ...]:
    """What to do now, by cause: storage, suite, data, generation."""
    dataset = shlex.quote(clean(verdict.dataset, NAME_LIMIT))
    if outcome_of(verdict).tone == "passed":
        kept_out = f" (without the {quantity(verdict.quarantined, 'quarantined row')})" if verdict.quarantined else ""
        return (Step(f"merge it{kept_out}", f"tokenproof merge {dataset} -o train/{dataset}"),)
    steps = []
    if verdict.unreadable:
        steps.append(Step(f"restore or rebuild {quantity(len(verdict.unreadable), 'unreadable shard')}"))
    closing = [result for run in verdict.suites for result in sort_results(run).failing if closes_gate(result)]
    if broken := [result for result in closing if result.error is not None]:
        steps.append(Step(f"correct the suite: {_names(broken)} could not be evaluated"))
    if failing := [result for result in closing if result.error is None]:
        steps.append(Step(f"look at the failing rows of {_names(failing)}; mend the cause, or discard those rows"))
    if quarantine_too_large(verdict):
        steps.append(Step("find out why so many rows are in quarantine: its reasons are counted below"))
    if missing := _missing(verdict):
        steps.append(Step(f"let generation or import finish: {missing}"))
    return (*steps, Step("then audit again", f"audit {dataset}"))


def _missing(verdict: Verdict) -> str:
    accounting = verdict.accounting
    parts = []
    if accounting.unanswered:
        parts.append(f"{quantity(accounting.unanswered, 'prompt')} unanswered")
    if accounting.unsealed:
        parts.append(f"{quantity(accounting.unsealed, 'reply', 'replies')} not sealed")
    return ", ".join(parts)


def _names(results: list[ExpectationResult]) -> str:
    names = [clean(result.id, NAME_LIMIT) for result in results[:3]]
    return ", ".join(names) + (f" and {len(results) - 3} more" if len(results) > 3 else "")


def quarantine_too_large(verdict: Verdict) -> bool:
    """The quarantined share is above what one of the suites allows."""
    return any(not quarantine_within(verdict, run) for run in verdict.suites)


def quarantine_within(verdict: Verdict, run: SuiteRun) -> bool:
    """The quarantined share is within the suite's bound; without rows it never is."""
    return verdict.rows > 0 and verdict.quarantined / verdict.rows <= run.max_quarantined_share


def strictest(verdict: Verdict) -> SuiteRun | None:
    """The suite that allows the smallest share of rows in quarantine; None where no suite was run."""
    return min(verdict.suites, key=lambda run: run.max_quarantined_share, default=None)


def quarantine_share(verdict: Verdict, run: SuiteRun | None) -> str:
    """`1.3 %, at most 5 % allowed`; without a suite there is no bound."""
    limit = f", at most {bound(run.max_quarantined_share)} allowed" if run else ""
    return share(verdict.quarantined, verdict.rows) + limit


def split_sentence(verdict: Verdict) -> str:
    """`3,383 rows: 1,746 sglang, 1,637 openrouter`, the largest source first."""
    return f"{quantity(verdict.rows, 'row')}: {tally(verdict.sources) or 'no source'}"


def tally(counts: Mapping[str, int], limit: int = 8) -> str:
    """`12 http_429, 4 no_choices`: the largest first, the rest in one word."""
    largest = by_size(counts)
    parts = [f"{number(count)} {clean(name, NAME_LIMIT)}" for name, count in largest[:limit]]
    if len(largest) > limit:
        parts.append(f"{number(sum(count for _, count in largest[limit:]))} of {len(largest) - limit} other kinds")
    return ", ".join(parts)


def by_size(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Names and counts, the largest first, without zeros."""
    return sorted(((k, v) for k, v in counts.items() if v), key=lambda item: (-item[1], item[0]))


def differences(group: ProviderSummary, limit: int = 8) -> str:
    """How far ids and reported counts lie apart: `0 × 271, 1 × 40` (difference × rows)."""
    largest = by_size(group.difference_counts)
    parts = [f"{clean(name, 12)} × {number(count)}" for name, count in largest[:limit]]
    return ", ".join(parts) + (f", {len(largest) - limit} more" if len(largest) > limit else "")


def evidence_of(counts: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """(kind, rows, meaning) from the best evidence to the worst; kinds that are not known come last."""
    known: list[tuple[str, int, str]] = [(kind.value, counts.get(kind, 0), _MEANINGS[kind]) for kind in Evidence]
    return known + [(clean(k, NAME_LIMIT), v, "not a known kind") for k, v in by_size(counts) if k not in set(Evidence)]


def evidence_mix(counts: Mapping[str, int], separator: str = ", ") -> str:
    """`271 counted, 41 contradicted`, from the best to the worst."""
    return separator.join(f"{number(rows)} {kind}" for kind, rows, _ in evidence_of(counts) if rows)


def group_name(group: ProviderSummary) -> str:
    """`sglang`, or `openrouter · Inceptron`."""
    names = [group.source] if group.provider is None else [group.source, group.provider]
    return " · ".join(clean(name, NAME_LIMIT // 2) for name in names)


def convention_of(group: ProviderSummary) -> str:
    """How the provider counts ids, by how many rows that is known, and what it adds to prompts."""
    text = clean(group.convention, NAME_LIMIT)
    if group.convention_support:
        text += f" ({number(group.convention_support)} agree)"
    return f"{text}, prompt {group.prompt_offset:+d}" if group.prompt_offset else text


def found_by(result: ExpectationResult) -> str:
    """What came of one expectation: `41 of 3,383 rows fail (1.2 %)`, or what was observed."""
    parts = []
    if result.error is not None:
        parts.append(f"could not be evaluated: {clean(result.error, SENTENCE_LIMIT)}")
    if result.unexpected_count == 0 and result.element_count and not parts:
        parts.append(f"holds for all {quantity(result.element_count, 'row')}")
    elif result.unexpected_count is not None and result.element_count is not None:
        counts = f"{number(result.unexpected_count)} of {quantity(result.element_count, 'row')}"
        parts.append(f"{counts} fail ({share(result.unexpected_count, result.element_count)})")
    if result.observed is not None:
        parts.append(f"observed {clean(result.observed, VALUE_LIMIT)}")
    if result.success_after_quarantine is not None and (fails(result) or not result.success_after_quarantine):
        parts.append(f"{'holds' if result.success_after_quarantine else 'fails'} without the quarantined rows")
    return "; ".join(parts) or ("fails" if fails(result) else "holds")


def share_of(result: ExpectationResult) -> str:
    """The share of failing rows in per cent, `–` for an expectation on the dataset."""
    return share(result.unexpected_count or 0, result.element_count or 0)


def required_by(result: ExpectationResult) -> str:
    """The share of rows that must hold: `all`, `99.9 %`, or `–` for an expectation on the dataset."""
    if result.scope != "row":
        return "–"
    return "all" if result.mostly is None or result.mostly >= 1 else bound(result.mostly)


def sample_of(example: Mapping[str, Json]) -> str:
    """Which row: its sample id, and `/turn/sample_index` unless both are the first."""
    name = clean(example.get("sample_id"), NAME_LIMIT) or '""'
    turn, index = example.get("turn", 0), example.get("sample_index", 0)
    return name if (turn, index) == (0, 0) else f"{name}/{clean(turn, 12)}/{clean(index, 12)}"


def samples(examples: Iterable[Mapping[str, Json]], value_limit: int) -> list[tuple[str, str | None]]:
    """(row, value) per example; the value is None where the audit kept none."""
    return [(sample_of(e), clean(e["value"], value_limit) if "value" in e else None) for e in examples]
