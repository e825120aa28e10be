"""Reported counts against what a learned way of counting predicts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from toolkit.audit.conventions import (
    COUNTS_ALL,
    UNKNOWN,
    Hypothesis,
    completion_hypotheses,
    prompt_hypotheses,
    reasoning_hypotheses,
)
from toolkit.contract import Contract
from toolkit.findings import ConventionFound
from toolkit.inspection.model import Fault, Part

_NEEDED: dict[str, Any] = {
    "mode": pl.String, "n_terminal": pl.Int32, "n_end_think": pl.Int32, "n_tool_markers": pl.Int32,
    "reasoning_tokens": pl.Int32,
}  # fmt: skip
"""Facts that the hypotheses read."""


def convention_of(facts: Mapping[str, Any], conventions: Sequence[ConventionFound]) -> ConventionFound | None:
    """What was learned of the group that a row belongs to."""
    key = tuple(facts[name] for name in ("source", "provider", "model", "streamed"))
    return next((c for c in conventions if (c.source, c.provider, c.model, c.streamed) == key), None)


def completion_name(facts: Mapping[str, Any], convention: ConventionFound | None) -> str:
    """How completion_tokens of such a row are counted; `UNKNOWN` where that was not learned."""
    if convention is None:
        return UNKNOWN
    shape = (facts["mode"], facts["truncated"], (facts["n_tool_markers"] or 0) > 0)
    own = next((s.count.name for s in convention.shapes if (s.mode, s.truncated, s.calls) == shape), None)
    return own or convention.completion.name


def count_faults(
    facts: Mapping[str, Any], conventions: Sequence[ConventionFound], contract: Contract
) -> tuple[Fault, ...]:
    """What the reported counts of one row contradict, each with the number that was expected.

    `expected 131 under "leaves out the terminal"`, `reported 129`.
    """
    convention = convention_of(facts, conventions)
    found = [
        _completion(facts, completion_name(facts, convention), contract),
        _reasoning(facts, convention),
        _prompt(facts, convention, contract),
    ]
    return tuple(fault for fault in found if fault is not None)


def _completion(facts: Mapping[str, Any], name: str, contract: Contract) -> Fault | None:
    ours, told = facts["n_ids"], facts["completion_tokens"]
    if ours is None or told is None:
        return None
    if facts["ids_source"] == "engine":
        if ours == told:
            return None
        says = "the engine reports another number of ids than it sent"
        return _off("count", says, f"{ours:,}, as many as came", told, ours - told)
    predictions = _predicted(facts, completion_hypotheses(contract))
    if name == UNKNOWN:
        if ours - told in predictions.values():
            return None
        says = "the reported completion_tokens fit the ids under no way of counting"
        return _off("count", says, _choices(ours, predictions), told, ours - told)
    predicted = predictions.get(name)
    if predicted is None or ours - told == predicted:
        return None
    off = ours - told - predicted
    respaced = facts["respaced_ids"]
    if respaced and off + respaced == 0:
        says = "the count fits only if the tool arguments had other white space: the provider wrote the JSON anew"
        return _off("tool_json_reserialised", says, f"{ours - predicted:,} under “{name}”", told, off)
    says = "the reported completion_tokens do not fit the number of ids"
    return _off("count", says, f"{ours - predicted:,} under “{name}”", told, off)


def _choices(ours: int, predictions: Mapping[str, int | None]) -> str:
    """Each count that some way of counting would give, with the simplest way to it."""
    by_count: dict[int, str] = {}
    for way, difference in predictions.items():
        if difference is not None:
            by_count.setdefault(ours - difference, way)
    return " or ".join(f"{count:,} ({way})" for count, way in list(by_count.items())[:4])


def _off(code: str, says: str, expected: str, told: int, off: int) -> Fault:
    direction = f"{abs(off):,} fewer than the ids account for" if off > 0 else f"{abs(off):,} more than there are"
    return Fault(code=code, says=says, expected=expected, found=f"reported {told:,}: {direction}")


def _reasoning(facts: Mapping[str, Any], convention: ConventionFound | None) -> Fault | None:
    at, told = facts["end_think_at"], facts["reasoning_tokens"]
    if at is None or not told or convention is None:
        return None
    predicted = _predicted(facts, reasoning_hypotheses()).get(convention.reasoning.name)
    if predicted is None or at - told == predicted:
        return None
    return Fault(
        code="reasoning_count",
        says="the reported reasoning_tokens do not fit the place where thinking ends",
        part=Part.OUTPUT,
        at=at,
        expected=f"{at - predicted:,} under “{convention.reasoning.name}”",
        found=f"reported {told:,}",
    )


def _prompt(facts: Mapping[str, Any], convention: ConventionFound | None, contract: Contract) -> Fault | None:
    ours, told = facts["n_prompt_ids"], facts["prompt_tokens"]
    if ours is None or told is None:
        return None
    name = UNKNOWN if convention is None else convention.prompt.name
    predictions = _predicted(facts, prompt_hypotheses(contract))
    predicted = predictions.get(name)
    if predicted is None:
        if ours - told in predictions.values():
            return None
        predicted, name = 0, COUNTS_ALL
    if ours - told == predicted:
        return None
    off = told - (ours - predicted)
    direction = f"{abs(off):,} {'more' if off > 0 else 'fewer'}"
    return Fault(
        code="prompt_count",
        says="the provider answered another prompt than the one that is rendered here",
        part=Part.PROMPT,
        expected=f"{ours - predicted:,} prompt_tokens under “{name}”",
        found=f"reported {told:,}: {direction}",
    )


def _predicted(facts: Mapping[str, Any], hypotheses: Sequence[Hypothesis]) -> dict[str, int | None]:
    """Our number − the reported one, as each way of counting predicts it."""
    frame = pl.DataFrame({name: [facts[name]] for name in _NEEDED}, schema=_NEEDED)
    values = frame.select(h.difference.cast(pl.Int64).alias(str(i)) for i, h in enumerate(hypotheses)).row(0)
    return {h.name: value for h, value in zip(hypotheses, values, strict=True)}
