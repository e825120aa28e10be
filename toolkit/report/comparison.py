"""Two verdicts held against each other: what got better, what got worse, what is otherwise different.

Pure, and the same for a terminal, a page and a CI job. What is compared are shares, so that a dataset that grew is
not worse for having more of everything. Asking for less is worse too: a gate that opens because the suite was
weakened has not become better. Every text of a result is clean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from toolkit.records import Evidence, ExpectationResult, ProviderSummary, Severity, SuiteRun, Verdict
from toolkit.report import outcome as say
from toolkit.report.changes import About, Change, Direction, change, counted, shared, step_of
from toolkit.report.counts import written_by_merge
from toolkit.report.doubts import NAME_LIMIT, group_name
from toolkit.report.text import bound, clean, quantity

PROVED = (Evidence.ENGINE, Evidence.LOGPROBS, Evidence.COUNTED)
"""Evidence that stands for the ids of a row."""

_MEDIAN_SHIFT = 0.1
"""A median length that moved by less than this share of itself is not told."""

_TONES = ("closed", "incomplete", "passed")
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Which verdict stands on one side: enough to tell it from the other."""

    dataset: str
    created_at: str
    tool_version: str
    rows: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What differs from `before` to `after`.

    Attributes:
        differs_in: What the two were held against or made by, where that is not the same: then some differences may
            come from there and not from the rows.
        changes: The worse ones first, then the better, then the others; within each by `About`.
        same_expectations: Expectations that came out the same.
    """

    before: Side
    after: Side
    differs_in: tuple[str, ...]
    changes: tuple[Change, ...]
    same_expectations: int

    @property
    def worse(self) -> tuple[Change, ...]:
        """What got worse."""
        return self.of(Direction.WORSE)

    @property
    def better(self) -> tuple[Change, ...]:
        """What got better."""
        return self.of(Direction.BETTER)

    def of(self, direction: Direction) -> tuple[Change, ...]:
        """The changes of one direction, in their order."""
        return tuple(change for change in self.changes if change.direction is direction)


def compare(before: Verdict, after: Verdict, *, tolerance: float = 0.0) -> Comparison:
    """Hold a verdict against an earlier one.

    Args:
        tolerance: By how much of the rows (0 to 1) a share may move before it counts as better or worse.
    """
    expectations = list(_expectations(before, after, tolerance))
    found = [
        *_gate(before, after),
        *_rows(before, after, tolerance),
        *_evidence(before, after, tolerance),
        *(change for change in expectations if change is not None),
        *_providers(before, after, tolerance),
        *_findings(before, after),
    ]
    directions, abouts = list(Direction), list(About)
    found.sort(key=lambda change: (directions.index(change.direction), abouts.index(change.about)))
    return Comparison(
        before=_side(before),
        after=_side(after),
        differs_in=tuple(_differs_in(before, after)),
        changes=tuple(found),
        same_expectations=sum(change is None for change in expectations),
    )


def _side(verdict: Verdict) -> Side:
    return Side(
        dataset=clean(verdict.dataset, NAME_LIMIT),
        created_at=clean(verdict.created_at, 40),
        tool_version=clean(verdict.tool_version, 40),
        rows=verdict.rows,
        outcome=say.outcome_of(verdict).headline,
    )


def _differs_in(before: Verdict, after: Verdict) -> Iterator[str]:
    """What makes two verdicts less comparable."""
    if before.dataset != after.dataset:
        yield f"dataset: {clean(before.dataset, NAME_LIMIT)} → {clean(after.dataset, NAME_LIMIT)}"
    if (before.contract, before.contract_sha256) != (after.contract, after.contract_sha256):
        named = before.contract != after.contract
        names = (clean(before.contract, NAME_LIMIT), clean(after.contract, NAME_LIMIT))
        yield f"contract: {names[0]} → {names[1]}" if named else f"contract {names[0]}: its file was changed"
    if before.kernel_version != after.kernel_version:
        yield f"kernel version: {before.kernel_version} → {after.kernel_version}"
    old, new = _suites(before), _suites(after)
    for name in sorted(old.keys() | new.keys()):
        if name not in new or name not in old:
            yield f"suite {clean(name, NAME_LIMIT)}: {'added' if name in new else 'no longer evaluated'}"
        elif old[name].sha256 != new[name].sha256:
            yield f"suite {clean(name, NAME_LIMIT)}: its file was changed"


def _suites(verdict: Verdict) -> dict[str, SuiteRun]:
    """Suites by name; two files may bear one name, and then the second one is called `name (2)`."""
    found: dict[str, SuiteRun] = {}
    for run in verdict.suites:
        same = sum(other.name == run.name for other in found.values())
        found[f"{run.name} ({same + 1})" if same else run.name] = run
    return found


# --- gate, rows, evidence ------------------------------------------------------------------------


def _gate(before: Verdict, after: Verdict) -> Iterator[Change]:
    old, new = say.outcome_of(before), say.outcome_of(after)
    if old.headline != new.headline:
        step = _TONES.index(new.tone) - _TONES.index(old.tone)
        says = f"{old.headline} → {new.headline}"
        yield change(About.GATE, "gate", "state", (old.word, new.word), step_of(step), says)
    limits = {name: run.max_quarantined_share for name, run in _suites(after).items()}
    for name, run in sorted(_suites(before).items()):
        if name in limits and (limit := limits[name]) != run.max_quarantined_share:
            says = f"may be in quarantine: {bound(run.max_quarantined_share)} → {bound(limit)} of the rows"
            direction = Direction.WORSE if limit > run.max_quarantined_share else Direction.CHANGED
            figures = (run.max_quarantined_share, limit)
            yield change(About.GATE, f"suite {clean(name, NAME_LIMIT)}", "bound", figures, direction, says)


def _rows(before: Verdict, after: Verdict, tolerance: float) -> Iterator[Change]:
    if before.rows != after.rows:
        yield counted(About.ROWS, "rows", (before.rows, after.rows), 0)
    written = (_mergeable(before), _mergeable(after))
    if written[0] != written[1]:
        yield counted(About.ROWS, "written by a merge", written, written[1] - written[0])
    unanswered = (before.accounting.unanswered, after.accounting.unanswered)
    if None in unanswered and unanswered[0] != unanswered[1]:
        old_count, new_count = ("not known" if count is None else f"{count:,}" for count in unanswered)
        told = (old_count, new_count)
        direction = Direction.WORSE if unanswered[1] is None else Direction.CHANGED
        yield change(About.ROWS, "unanswered", "count", told, direction, f"{old_count} → {new_count}")
        unanswered = (0, 0)
    for name, old, new in (
        ("unanswered", unanswered[0] or 0, unanswered[1] or 0),
        ("failed", before.accounting.failed, after.accounting.failed),
        ("not sealed", before.accounting.unsealed, after.accounting.unsealed),
        ("answers to something else than is asked now", _outdated(before), _outdated(after)),
        ("unreadable shards", len(before.unreadable), len(after.unreadable)),
    ):
        if old != new:
            yield counted(About.ROWS, name, (old, new), old - new)
    parts = ((before.quarantined, before.rows), (after.quarantined, after.rows))
    yield from shared(About.ROWS, "quarantined", *parts, better=-1, tolerance=tolerance)


def _mergeable(verdict: Verdict) -> int:
    """Rows that could be merged, were the gate open."""
    written = written_by_merge(verdict)
    return max(verdict.rows - verdict.quarantined, 0) if written is None else written


def _outdated(verdict: Verdict) -> int:
    return verdict.accounting.changed + verdict.accounting.changed_imports


def _evidence(before: Verdict, after: Verdict, tolerance: float) -> Iterator[Change]:
    """The proved share is judged, and how the others are divided; how it is proved is only told."""
    for name, kinds, better in (
        ("proved", PROVED, 1),
        *((kind.value, (kind,), 0) for kind in PROVED),
        (Evidence.UNVERIFIED.value, (Evidence.UNVERIFIED,), -1),
        (Evidence.CONTRADICTED.value, (Evidence.CONTRADICTED,), -1),
    ):
        parts = [(_sum(verdict.evidence, kinds), verdict.rows) for verdict in (before, after)]
        yield from shared(About.EVIDENCE, name, parts[0], parts[1], better=better, tolerance=tolerance)


def _sum(counts: Mapping[str, int], kinds: Iterable[str]) -> int:
    return sum(counts.get(kind, 0) for kind in kinds)


# --- expectations --------------------------------------------------------------------------------


def _expectations(before: Verdict, after: Verdict, tolerance: float) -> Iterator[Change | None]:
    """The changes of every expectation; None for each that came out the same."""
    old, new = _results(before), _results(after)
    for key in dict.fromkeys([*new, *old]):
        name = f"{clean(key[0], NAME_LIMIT)} · {clean(key[1], NAME_LIMIT)}"
        if key not in new:
            yield _gone(name, old[key])
        elif key not in old:
            yield _came(name, new[key])
        else:
            changes = list(_expectation(name, old[key], new[key], tolerance))
            if changes:
                yield from changes
            else:
                yield None


def _results(verdict: Verdict) -> dict[tuple[str, str], ExpectationResult]:
    return {(name, result.id): result for name, run in _suites(verdict).items() for result in run.results}


def _gone(name: str, result: ExpectationResult) -> Change:
    critical = result.severity is Severity.CRITICAL
    direction = Direction.WORSE if critical else Direction.CHANGED
    return change(About.EXPECTATION, name, "state", (_state(result), None), direction, "no longer evaluated")


def _came(name: str, result: ExpectationResult) -> Change:
    direction = Direction.WORSE if say.fails(result) and _judged(result) else Direction.CHANGED
    says = f"new, {'fails' if say.fails(result) else 'holds'}: {say.found_by(result)}"
    return change(About.EXPECTATION, name, "state", (None, _state(result)), direction, says)


def _expectation(name: str, old: ExpectationResult, new: ExpectationResult, tolerance: float) -> Iterator[Change]:
    """How one expectation came out otherwise, and whether it asks for something else."""
    yield from _asks_otherwise(name, old, new)
    judged = _judged(old) or _judged(new)
    step = say.fails(old) - say.fails(new)
    if step:
        says = f"{_state(old)} → {_state(new)}: {say.found_by(new)}"
        direction = step_of(step) if judged else Direction.CHANGED
        yield change(About.EXPECTATION, name, "state", (_state(old), _state(new)), direction, says)
        return
    if None in (old.unexpected_count, old.element_count, new.unexpected_count, new.element_count):
        if (old.observed, old.error) != (new.observed, new.error):
            says = f"{say.found_by(old)} → {say.found_by(new)}"
            figures = (clean(old.observed or old.error or "", 200), clean(new.observed or new.error or "", 200))
            yield change(About.EXPECTATION, name, "observed", figures, Direction.CHANGED, says)
        return
    parts = [(result.unexpected_count or 0, result.element_count or 0) for result in (old, new)]
    if judged and parts[0][1] and not parts[1][1]:
        says = f"it looks at no row any more, where it looked at {parts[0][1]:,}"
        yield change(About.EXPECTATION, name, "rows looked at", (parts[0][1], 0), Direction.WORSE, says)
        return
    better = -1 if judged and all(whole for _, whole in parts) else 0
    yield from shared(
        About.EXPECTATION, name, parts[0], parts[1], better=better, tolerance=tolerance, says="rows fail it: "
    )


def _asks_otherwise(name: str, old: ExpectationResult, new: ExpectationResult) -> Iterator[Change]:
    """An expectation that asks for less is worse: what it lets through now, it did not let through before."""
    ranks = list(Severity)
    if step := ranks.index(new.severity) - ranks.index(old.severity):
        direction = Direction.WORSE if step > 0 else Direction.CHANGED
        figures, says = (old.severity.value, new.severity.value), f"severity: {old.severity} → {new.severity}"
        yield change(About.EXPECTATION, name, "severity", figures, direction, says)
    mostly = tuple(1.0 if result.mostly is None else result.mostly for result in (old, new))
    if old.scope == new.scope == "row" and mostly[0] != mostly[1]:
        direction = Direction.WORSE if mostly[1] < mostly[0] else Direction.CHANGED
        says = f"must hold for: {say.required_by(old)} → {say.required_by(new)} of the rows"
        yield change(About.EXPECTATION, name, "must hold", (mostly[0], mostly[1]), direction, says)
    if old.type != new.type or dict(old.kwargs) != dict(new.kwargs):
        says = "asks for something else than before: its type or its settings were changed"
        figures = (clean(dict(old.kwargs), 200), clean(dict(new.kwargs), 200))
        yield change(About.EXPECTATION, name, "settings", figures, Direction.CHANGED, says)


def _judged(result: ExpectationResult) -> bool:
    """Informative expectations measure, and judge nothing."""
    return result.severity is not Severity.INFO


def _state(result: ExpectationResult) -> str:
    return "fails" if say.fails(result) else "holds"


# --- providers and findings ----------------------------------------------------------------------


def _providers(before: Verdict, after: Verdict, tolerance: float) -> Iterator[Change]:
    old, new = _groups(before), _groups(after)
    for key in dict.fromkeys([*new, *old]):
        group = new.get(key) or old[key]
        name = group_name(group)
        if key in old and key in new:
            yield from _provider(name, old[key], new[key], tolerance)
        else:
            rows = (old[key].rows if key in old else None, new[key].rows if key in new else None)
            says = f"{'new' if key in new else 'gone'}: {quantity(group.rows, 'row')}"
            yield change(About.PROVIDER, name, "rows", rows, Direction.CHANGED, says)


def _groups(verdict: Verdict) -> dict[tuple[str, str | None], ProviderSummary]:
    return {(group.source, group.provider): group for group in verdict.providers}


def _provider(name: str, old: ProviderSummary, new: ProviderSummary, tolerance: float) -> Iterator[Change]:
    for measure, counts, better in (
        ("proved", [_sum(group.evidence, PROVED) for group in (old, new)], 1),
        ("contradicted", [group.evidence.get(Evidence.CONTRADICTED, 0) for group in (old, new)], -1),
        ("quarantined", [group.quarantined for group in (old, new)], -1),
        ("truncated", [group.truncated for group in (old, new)], 0),
    ):
        parts = ((counts[0], old.rows), (counts[1], new.rows))
        yield from shared(
            About.PROVIDER, name, *parts, better=better, tolerance=tolerance, says=f"{measure}: ", measure=measure
        )
    if old.convention != new.convention:
        known = (old.convention != _UNKNOWN, new.convention != _UNKNOWN)
        figures = (clean(old.convention, NAME_LIMIT), clean(new.convention, NAME_LIMIT))
        says = f"how it counts ids: {figures[0]} → {figures[1]}"
        yield change(About.PROVIDER, name, "counting", figures, step_of(known[1] - known[0]), says)
    if old.prompt_offset != new.prompt_offset:
        says = f"what it adds to prompts: {_offset(old)} → {_offset(new)}"
        offsets = (old.prompt_offset, new.prompt_offset)
        yield change(About.PROVIDER, name, "prompt offset", offsets, Direction.CHANGED, says)
    if old.median_ids and new.median_ids and abs(new.median_ids / old.median_ids - 1) >= _MEDIAN_SHIFT:
        says = f"median length: {old.median_ids:,.0f} → {new.median_ids:,.0f} ids"
        yield change(About.PROVIDER, name, "median ids", (old.median_ids, new.median_ids), Direction.CHANGED, says)


def _offset(group: ProviderSummary) -> str:
    return _UNKNOWN if group.prompt_offset is None else f"{group.prompt_offset:+d}"


def _findings(before: Verdict, after: Verdict) -> Iterator[Change]:
    """What was learned of a provider: texts that it alters, and warnings about many of its rows together."""
    old, new = _learned(before), _learned(after)
    for key in dict.fromkeys([*new, *old]):
        if (key in old) == (key in new):
            continue
        who, code = key
        says = f"{'new' if key in new else 'gone'}: {(new.get(key) or old[key])}"
        direction = Direction.WORSE if key in new else Direction.BETTER
        yield change(About.PROVIDER, who, clean(code, NAME_LIMIT), (key in old, key in new), direction, says)


def _learned(verdict: Verdict) -> dict[tuple[str, str], str]:
    """(who, code) → what was found."""
    found = {}
    for altered in verdict.learned.alterations:
        found[_who(altered.source, altered.provider), altered.code] = f"it alters text ({clean(altered.code, 20)})"
    for finding in verdict.learned.findings:
        if finding.severity == Severity.WARNING:
            found[_who(finding.source, finding.provider), finding.code] = clean(finding.says, say.SENTENCE_LIMIT)
    return found


def _who(*names: str | None) -> str:
    return " · ".join(clean(name, NAME_LIMIT // 2) for name in names if name is not None) or "all rows"
