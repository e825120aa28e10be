"""Evidence in words: what each kind means, and why rows of a provider are not proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolkit.records import Evidence, ProviderSummary, Verdict
from toolkit.report.text import clean, number, quantity

NAME_LIMIT = 60
"""Characters of a name (dataset, provider, expectation) that are shown."""

_GROUPS = 20

_MEANINGS = {
    Evidence.ENGINE: "the server gave the ids",
    Evidence.LOGPROBS: "the ids follow the sampled split",
    Evidence.COUNTED: "rebuilt or given, and the reported count agrees",
    Evidence.UNVERIFIED: "nothing to hold the ids against, or the provider alters text",
    Evidence.CONTRADICTED: "a count, the text or the structure disagrees",
}

_REASONS = {
    "no_ids": "no rule gave ids for the answer (how it ended is unclear, or a part of it is missing)",
    "no_text": "there is no text to hold the ids against",
    "no_count": "the reply does not report completion_tokens, so there is nothing to hold the ids against",
    "rebuild_status": "how the answer ended is unclear, so a count proves nothing",
    "convention_unknown": "it is not known how this provider counts ids: too few of its rows tell, or it counts in "
    "several ways",
    "structure": "the ids stand in an order that the contract forbids",
    "text": "the ids do not spell the text of the reply",
    "encoding": "a second tokenizer engine makes other ids of the same text",
    "count": "the reported completion_tokens do not fit the number of ids",
    "reasoning_count": "the reported reasoning_tokens do not fit the place where thinking ends",
    "tool_json_reserialised": "the count fits only if the model wrote its tool arguments with other white space: the "
    "provider wrote the JSON anew",
    "text_altered": "this provider is known to alter text, so a count that fits proves nothing",
}
"""Code in `evidence_reason` → what it means for the reader; the codes are made by the audit."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why rows of one source or provider are not proved, one sentence per reason, the most frequent first."""

    group: str
    sentences: tuple[str, ...]


def doubts_of(verdict: Verdict) -> tuple[Doubt, ...]:
    """The doubts about each source and provider, those with most rows in doubt first, at most twenty."""
    groups = sorted(verdict.providers, key=lambda group: (-sum(group.evidence_reasons.values()), group_name(group)))
    doubts = [Doubt(group_name(group), tuple(_sentences(group.evidence_reasons))) for group in groups[:_GROUPS]]
    return tuple(doubt for doubt in doubts if doubt.sentences)


def _sentences(reasons: Mapping[str, int]) -> list[str]:
    return [f"{quantity(rows, 'row')}: {reason_of(code)}" for code, rows in by_size(reasons)[:_GROUPS]]


def reason_of(code: str) -> str:
    """A code of `evidence_reason` in words; a code that is not known here stands as it is."""
    return _REASONS.get(code) or f"reason {clean(code, NAME_LIMIT)}"


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


def by_size(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Names and counts, the largest first, without zeros."""
    return sorted(((k, v) for k, v in counts.items() if v), key=lambda item: (-item[1], item[0]))
