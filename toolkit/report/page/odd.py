"""Which source or provider stands out from the others, and by what. Pure; every sentence is clean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.findings import ProviderFacts
from toolkit.records import Evidence, ProviderSummary, Verdict
from toolkit.report.text import clean, number, readable, share

Who = tuple[str, str | None]
"""(source, provider)"""

_FEWEST_ROWS = 20
_NOTABLE = 0.05
"""A share of bad rows below this is no one's mark."""
_TIMES = 3.0
"""So many times the share of all others makes one stand out."""
_FAR = 0.25
_UNLIKELY = 1e-4
_RATIO = 1.25
_GAP = 0.1
_Z = 5.0
_NAMED = 6


@dataclass(frozen=True, slots=True)
class Oddity:
    """One thing in which a provider differs: a word for a badge, and a sentence."""

    measure: str
    says: str


def oddities_of(verdict: Verdict) -> Mapping[Who, tuple[Oddity, ...]]:
    """What each source and provider stands out by; those that do not are missing."""
    found: dict[Who, tuple[Oddity, ...]] = {}
    for group in verdict.providers:
        others = [other for other in verdict.providers if other is not group]
        lines = [line for line in verdict.learned.providers if (line.source, line.provider) == _who(group)]
        odd = (
            *_bad_rows(group, others),
            *_learned(group, verdict),
            *_counting(group),
            *_prompts(group, others, verdict),
            *(oddity for line in lines for oddity in _beside(line)),
        )
        once = {oddity.measure: oddity for oddity in reversed(odd)}
        if once:
            order = [oddity.measure for oddity in odd]
            found[_who(group)] = tuple(sorted(once.values(), key=lambda oddity: order.index(oddity.measure))[:_NAMED])
    return found


def _who(group: ProviderSummary) -> Who:
    return (group.source, group.provider)


def _bad_rows(group: ProviderSummary, others: Sequence[ProviderSummary]) -> Iterator[Oddity]:
    rows = sum(other.rows for other in others)
    if stands_out(group.quarantined, group.rows, sum(other.quarantined for other in others), rows):
        told = f"{share(group.quarantined, group.rows)} of its rows are in quarantine"
        yield Oddity("quarantine", f"{told}, {share(sum(o.quarantined for o in others), rows)} of all others'")
    if stands_out(_weak(group), group.rows, sum(map(_weak, others)), rows):
        told = f"{share(_weak(group), group.rows)} of its rows are not proved"
        yield Oddity("evidence", f"{told}, {share(sum(map(_weak, others)), rows)} of all others'")


def stands_out(bad: int, rows: int, other_bad: int, other_rows: int) -> bool:
    """Whether a share of bad rows is notable, and several times that of all others."""
    if rows < _FEWEST_ROWS or bad / rows < _NOTABLE:
        return False
    return not other_rows or bad / rows >= _TIMES * (other_bad / other_rows)


def _weak(group: ProviderSummary) -> int:
    return group.evidence.get(Evidence.UNVERIFIED, 0) + group.evidence.get(Evidence.CONTRADICTED, 0)


def _counting(group: ProviderSummary) -> Iterator[Oddity]:
    if group.provider is not None and clean(group.convention, 60) == "unknown":
        yield Oddity("counting", "it is not known how it counts ids")


def _prompts(group: ProviderSummary, others: Sequence[ProviderSummary], verdict: Verdict) -> Iterator[Oddity]:
    """Prompts of another length, unless that follows from the way in which it counts them."""
    learned = [c.prompt for c in verdict.learned.conventions if (c.source, c.provider) == _who(group)]
    offset = 0 if any(count.name != "unknown" for count in learned) else group.prompt_offset
    same = sum(other.rows for other in others if not other.prompt_offset)
    if offset and same > sum(other.rows for other in others) / 2:
        yield Oddity("prompt", f"its prompts differ by {offset:+d} ids from those that are rendered here")


def _beside(line: ProviderFacts) -> Iterator[Oddity]:
    """What the providers table says of one mode."""
    mode = clean(line.mode, 20)
    if line.ks_distance is not None and line.ks_p is not None and line.median_ratio:
        apart = max(line.median_ratio, 1 / line.median_ratio)
        if line.ks_distance >= _FAR and line.ks_p < _UNLIKELY and apart >= _RATIO:
            word = "longer" if line.median_ratio > 1 else "shorter"
            yield Oddity("lengths", f"{mode}: its answers are {word}, {line.median_ratio:.2f} times the others' median")
    if line.length_gap is not None and line.length_z is not None and line.length_z >= _Z and line.length_gap >= _GAP:
        yield Oddity("cut", f"{mode}: {100 * (line.length_share or 0):.1f} % of its answers are cut")
    if line.foreign_model_rows:
        yield Oddity("model", f"{mode}: {number(line.foreign_model_rows)} rows bear another model's name")
    if line.not_allowed_rows:
        yield Oddity("not allowed", "it is not on the dataset's allow list")
    if line.tool_id_faults:
        yield Oddity("tool ids", f"{mode}: {number(line.tool_id_faults)} rows with tool ids of another form")
    if line.usage_drift_share is not None and line.usage_drift_share >= _NOTABLE:
        yield Oddity("counts", f"{mode}: {100 * line.usage_drift_share:.1f} % of its counts are off by more than 1")


def _learned(group: ProviderSummary, verdict: Verdict) -> Iterator[Oddity]:
    for found in verdict.learned.alterations:
        if (found.source, found.provider) == _who(group):
            told = f"{number(found.hits)} of {number(found.rows)} parts have {clean(found.says, 100)}"
            others = f"{100 * found.reference_share:.1f} % or more of {clean(found.reference, 60)}'s"
            yield Oddity("alters text", f"it {clean(found.code, 20)} text: {told}, {others}")
    for finding in verdict.learned.findings:
        if finding.severity == "warning" and (finding.source, finding.provider) == _who(group) and finding.provider:
            yield Oddity("changes", readable(clean(finding.says, 200)))
