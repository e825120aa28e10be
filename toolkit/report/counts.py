"""What was asked, what became of it, and what a merge would write, in words that add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from toolkit.records import Accounting, Verdict
from toolkit.report.doubts import NAME_LIMIT, by_size
from toolkit.report.text import clean, number, quantity

_NAMED = 5

_LEFT_OUT = {
    "quarantined": "in quarantine",
    "probe": "asked for comparison only",
    "no_ids": "without ids",
    "prompt_unknown": "without the ids of their prompt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failures of one fate. `count` is the sum of `by_reason`, where reasons were recorded.

    Attributes:
        name: For a table: `failed`, `to repeat`, `lines`.
        says: What that means for the next run.
    """

    name: str
    count: int
    says: str
    by_reason: Mapping[str, int]

    @property
    def sentence(self) -> str:
        """`17, not asked again: 12 http_400, 5 no_choices`."""
        if not self.count:
            return "0"
        reasons = tally(self.by_reason)
        return f"{number(self.count)}, {self.says}" + (f": {reasons}" if reasons else "")


def failures_of(accounting: Accounting) -> tuple[Failures, ...]:
    """Failures by fate; the first stands there even if there are none."""
    lines, repeated = (sum(counts.values()) for counts in (accounting.lines_by_reason, accounting.repeated_by_reason))
    # Without prompts.jsonl nobody knows what was asked, and `failed` counts imported lines too.
    final = accounting.failed if accounting.asked is not None else max(accounting.failed - lines, 0)
    found = (
        Failures(name="failed", count=final, says="not asked again", by_reason=accounting.failed_by_reason),
        Failures(
            name="to repeat",
            count=repeated,
            says="failed before, and the next run asks again",
            by_reason=accounting.repeated_by_reason,
        ),
        Failures(
            name="lines",
            count=lines,
            says="imported without giving a row",
            by_reason=accounting.lines_by_reason,
        ),
    )
    return found[:1] + tuple(failures for failures in found[1:] if failures.count)


def asked_sentence(accounting: Accounting) -> str:
    """`3,517: 3,383 answered, 17 failed, 117 unanswered`; the parts add up."""
    if accounting.asked is None or accounting.answered is None or accounting.unanswered is None:
        return "not known: there is no prompts.jsonl"
    parts = [
        (accounting.answered, "answered"),
        (accounting.failed, "failed"),
        (accounting.unanswered, "unanswered"),
    ]
    told = ", ".join(f"{number(count)} {word}" for count, word in parts if count or word == "answered")
    return f"{number(accounting.asked)}: {told}"


def missing_sentences(accounting: Accounting) -> tuple[str, ...]:
    """What keeps a dataset from being complete: answers that are missing, with the first ids, and replies unsealed."""
    sentences = []
    if accounting.at_work:
        sentences.append("a run over this dataset is at work")
    if accounting.unanswered:
        of_all = quantity(accounting.asked or accounting.unanswered, "answer")
        named = _names(accounting.missing, accounting.unanswered, accounting.missing_reasons)
        told = f"{number(accounting.unanswered)} of {of_all} {_are(accounting.unanswered)} missing"
        sentences.append(told + (f": {named}" if named else ""))
    if repeated := sum(accounting.repeated_by_reason.values()):
        sentences.append(f"{number(repeated)} of them failed before: {tally(accounting.repeated_by_reason)}")
    if accounting.unsealed:
        verb = "waits" if accounting.unsealed == 1 else "wait"
        unsealed = quantity(accounting.unsealed, "reply", "replies")
        sentences.append(f"{unsealed} {verb} in the journal and {_are(accounting.unsealed)} in no shard yet")
    elif accounting.journaled:
        verb = "waits" if accounting.journaled == 1 else "wait"
        sentences.append(f"{quantity(accounting.journaled, 'line')} of the journal {verb} for a run to settle")
    return (*sentences, *_changed_sentences(accounting))


def _changed_sentences(accounting: Accounting) -> Iterator[str]:
    """Answers to something else than what is asked now, by what is to be done about them."""
    if count := accounting.changed:
        answer = "1 answer is" if count == 1 else f"{number(count)} answers are"
        named = _names(accounting.first_changed, count)
        yield f"{answer} to another request than prompts.jsonl and settings state now" + (f": {named}" if named else "")
    if count := accounting.changed_imports:
        answer = "1 imported answer is" if count == 1 else f"{number(count)} imported answers are"
        named = _names(accounting.first_changed_imports, count)
        yield f"{answer} to another prompt than prompts.jsonl holds now" + (f": {named}" if named else "")


def stray_sentences(strays: Sequence[str]) -> tuple[str, ...]:
    """Files that lie among the shards and are none."""
    named = [
        f"shards/{clean(name, NAME_LIMIT)} lies among the shards, but shards.json does not list it"
        for name in strays[:_NAMED]
    ]
    more = len(strays) - _NAMED
    return (*named, f"and {quantity(more, 'further file')} that it does not list") if more > 0 else tuple(named)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _names(missing: Sequence[tuple[str, int, int]], count: int, reasons: Sequence[str] = ()) -> str:
    """`q1 (model_mismatch), q2/0/1 and 115 more`."""
    named = [
        name_of(*identity) + (f" ({clean(reason, NAME_LIMIT)})" if reason else "")
        for identity, reason in zip_longest(missing[:_NAMED], reasons[: len(missing[:_NAMED])], fillvalue="")
    ]
    if not named:
        return ""
    rest = count - len(named)
    return ", ".join(named) + (f" and {number(rest)} more" if rest > 0 else "")


def name_of(sample_id: object, turn: object = 0, sample_index: object = 0) -> str:
    """A row's sample_id, and `/turn/sample_index` unless both are the first."""
    name = clean(sample_id, NAME_LIMIT) or '""'
    first = (turn, sample_index) == (0, 0)
    return name if first else f"{name}/{clean(turn, 12)}/{clean(sample_index, 12)}"


def written_by_merge(verdict: Verdict) -> int | None:
    """Rows that a merge of this dataset would write; None where the verdict does not say."""
    return None if verdict.left_out is None else max(verdict.rows - sum(verdict.left_out.values()), 0)


def merge_sentence(verdict: Verdict) -> str | None:
    """`writes 940 of 1,000 rows; left out: 50 without the ids of their prompt, …`.

    None if that is not known, or the gate is not open anyway.
    """
    written = written_by_merge(verdict)
    if written is None or verdict.left_out is None or not verdict.passed:
        return None
    if not verdict.left_out:
        return f"writes all {quantity(written, 'row')}" if written != 1 else "writes the row"
    left = ", ".join(
        f"{number(n)} {_LEFT_OUT.get(name) or clean(name, NAME_LIMIT)}" for name, n in by_size(verdict.left_out)
    )
    return f"writes {number(written)} of {quantity(verdict.rows, 'row')}; left out: {left}"


def without_prompt(verdict: Verdict) -> int:
    """Rows that only the want of their prompt keeps out of a merge."""
    return (verdict.left_out or {}).get("prompt_unknown", 0)


def tally(counts: Mapping[str, int], limit: int = 8) -> str:
    """`12 http_429, 4 no_choices`: the largest first, the rest in one word."""
    largest = by_size(counts)
    parts = [f"{number(count)} {clean(name, NAME_LIMIT)}" for name, count in largest[:limit]]
    if len(largest) > limit:
        parts.append(f"{number(sum(count for _, count in largest[limit:]))} of {len(largest) - limit} other kinds")
    return ", ".join(parts)
