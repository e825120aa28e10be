"""What a verdict says, in words, before anything decides how it looks.

May I merge; if not, what is wrong, and whose fault is it? All renderers take their sentences from here and
from `steps`, `counts` and `doubts`, so a terminal, a page and a CI job never disagree. Every text returned
is clean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from toolkit.records import Evidence, ExpectationResult, Json, ProviderSummary, Severity, Standing, SuiteRun, Verdict
from toolkit.report.counts import (
    merge_sentence,
    missing_sentences,
    name_of,
    stray_sentences,
    tally,
    without_prompt,
    written_by_merge,
)
from toolkit.report.doubts import NAME_LIMIT, by_size, group_name
from toolkit.report.text import bound, clean, fingerprint, number, quantity, readable, share

SENTENCE_LIMIT = 400
"""Characters of one reason or description that are shown."""

VALUE_LIMIT = 160
"""Characters of one failing value that are shown on a page; a terminal shows fewer."""

_LISTED = 20
_NAMED_SOURCES = 3
_ALIKE = 3

_STANDINGS = {
    Standing.SHIPPED: "as shipped",
    Standing.OWN: "your own",
    Standing.EDITED: "edited: not the shipped one",
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
class Unjudged:
    """Expectations that could not be evaluated for one and the same reason."""

    error: str
    results: tuple[ExpectationResult, ...]

    @property
    def sentence(self) -> str:
        """`42 expectations (34 critical) could not be evaluated: no rows: nothing was checked`."""
        critical = sum(result.severity is Severity.CRITICAL for result in self.results)
        count = quantity(len(self.results), "expectation")
        return f"{count} ({number(critical)} critical) could not be evaluated: {_ended(self.error)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of a suite by what a reader does with them.

    Attributes:
        unjudged: Those that could not be evaluated, three or more for the same reason.
        failing: The others that fail: critical ones first, then by the share of failing rows.
        tolerated: They hold, but some rows fail them: `mostly` allows it.
        clean: They hold for every row.
    """

    unjudged: tuple[Unjudged, ...]
    failing: tuple[ExpectationResult, ...]
    tolerated: tuple[ExpectationResult, ...]
    clean: tuple[ExpectationResult, ...]


def outcome_of(verdict: Verdict) -> Outcome:
    """Passed and complete may be merged; nothing else may. Rows without their prompt are never kept silent about."""
    if not verdict.passed and not is_unsettled(verdict):
        return Outcome(word="GATE CLOSED", says="may not be merged", tone="closed")
    if not verdict.complete:
        return Outcome(word="INCOMPLETE", says="may not be merged yet", tone="incomplete")
    if written_by_merge(verdict) == 0:
        return Outcome(word="PASSED", says="but a merge would write no row", tone="incomplete")
    if lost := without_prompt(verdict):
        return Outcome(word="PASSED", says=f"may be merged, {_want(lost)}", tone="passed")
    return Outcome(word="PASSED", says="may be merged", tone="passed")


def is_unsettled(verdict: Verdict) -> bool:
    """A run has something under way, so that what fails now says little; a shard that cannot be read is told first."""
    return verdict.accounting.unsettled and not verdict.unreadable


def _want(lost: int) -> str:
    return f"without {quantity(lost, 'row')} that {'lacks its' if lost == 1 else 'lack their'} prompt"


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

    unjudged = _unjudged(run)
    apart = {result.id for group in unjudged for result in group.results}
    holding = [result for result in run.results if not fails(result)]
    return Findings(
        unjudged=unjudged,
        failing=tuple(sorted((r for r in run.results if fails(r) and r.id not in apart), key=badness)),
        tolerated=tuple(sorted((r for r in holding if r.unexpected_count), key=badness)),
        clean=tuple(r for r in holding if not r.unexpected_count),
    )


def _unjudged(run: SuiteRun) -> tuple[Unjudged, ...]:
    groups: dict[str, list[ExpectationResult]] = {}
    for result in run.results:
        if result.error is not None:
            groups.setdefault(result.error, []).append(result)
    alike = [(error, results) for error, results in groups.items() if len(results) >= _ALIKE]
    return tuple(Unjudged(clean(error, SENTENCE_LIMIT), tuple(results)) for error, results in alike)


def reasons_of(verdict: Verdict) -> tuple[str, ...]:
    """Why the dataset may not be merged, or not all of it; never silent about a verdict that is not a clean pass."""
    reasons = list(missing_sentences(verdict.accounting)) if is_unsettled(verdict) else []
    reasons += [readable(_ended(clean(reason, SENTENCE_LIMIT))) for reason in verdict.reasons[:_LISTED]]
    if len(verdict.reasons) > _LISTED:
        reasons.append(f"and {quantity(len(verdict.reasons) - _LISTED, 'further reason')} in verdict.json")
    # Answers in a shard that cannot be read count as missing: that shard is the reason, not they.
    if not verdict.complete and not verdict.unreadable and not is_unsettled(verdict):
        reasons += missing_sentences(verdict.accounting)
    reasons += stray_sentences(verdict.strays)
    if not reasons and not (verdict.passed and verdict.complete):
        reasons.append("the verdict gives no reason")
    if verdict.passed and without_prompt(verdict) and (told := merge_sentence(verdict)):
        reasons.append(f"a merge {told}")
    return tuple(reasons)


def _ended(sentence: str) -> str:
    """Without the full stop at its end: sentences are joined, and stand in lists."""
    return sentence.rstrip().removesuffix(".")


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


def held_against(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """(what, which one) of everything that the rows were held against: contract, suites, allow list.

    `("suite", "kimi-k2.5 017b282fcc08, edited: not the shipped one")`
    """
    lines = [("contract", _fingerprinted(verdict.contract, verdict.contract_sha256, verdict.contract_standing))]
    lines += [("suite", _fingerprinted(run.name, run.sha256, run.standing)) for run in verdict.suites[:_LISTED]]
    if verdict.allowed_providers is not None:
        named = ", ".join(clean(name, NAME_LIMIT) for name in verdict.allowed_providers[:_LISTED])
        more = len(verdict.allowed_providers) - _LISTED
        only = named + (f" and {number(more)} more" if more > 0 else "")
        lines.append(("providers", f"only {only}" if verdict.allowed_providers else "any (no allow list)"))
    return tuple(lines)


def _fingerprinted(name: str, sha256: str, standing: Standing | None) -> str:
    told = f", {_STANDINGS[standing]}" if standing is not None else ""
    return f"{clean(name, NAME_LIMIT) or '(no name)'} {fingerprint(sha256)}{told}"


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


def differences(group: ProviderSummary, limit: int = 8) -> str:
    """How far ids and reported counts lie apart: `0 × 271, 1 × 40` (difference × rows)."""
    largest = by_size(group.difference_counts)
    parts = [f"{clean(name, 12)} × {number(count)}" for name, count in largest[:limit]]
    return ", ".join(parts) + (f", {len(largest) - limit} more" if len(largest) > limit else "")


def convention_of(group: ProviderSummary) -> str:
    """How the provider counts ids, by how many rows that is known, and what it adds to prompts."""
    if group.rows and group.evidence.get(Evidence.ENGINE, 0) == group.rows and not group.convention_support:
        return "ids are its own"
    text = clean(group.convention, NAME_LIMIT)
    if group.convention_support:
        text += f" ({number(group.convention_support)} agree)"
    return f"{text}, prompt {group.prompt_offset:+d}" if group.prompt_offset else text


def about(result: ExpectationResult) -> str:
    """What is wrong where it fails, what must hold where it does not; empty where the suite says neither."""
    return clean((result.fault if fails(result) else None) or result.description, SENTENCE_LIMIT)


def found_by(result: ExpectationResult) -> str:
    """What came of one expectation: `41 of 3,383 rows fail (1.2 %)`, or what was observed."""
    parts = []
    if result.error is not None:
        parts.append(f"could not be evaluated: {_ended(clean(result.error, SENTENCE_LIMIT))}")
    if result.unexpected_count == 0 and result.element_count == 0 and not parts:
        parts.append("no row to look at")
    elif result.unexpected_count == 0 and result.element_count and not parts:
        whole = quantity(result.element_count, "row")
        parts.append("holds for the row" if result.element_count == 1 else f"holds for all {whole}")
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
    return name_of(example.get("sample_id"), example.get("turn", 0), example.get("sample_index", 0))


def samples(examples: Iterable[Mapping[str, Json]], value_limit: int) -> list[tuple[str, str | None]]:
    """(row, value) per example; the value is None where the audit kept none."""
    return [(sample_of(e), clean(e["value"], value_limit) if "value" in e else None) for e in examples]
