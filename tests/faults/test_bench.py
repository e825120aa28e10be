"""The fault bench at 20,000 rows: with a seed that never changes, and with a fresh one."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace

import pytest

from tests.conftest import ROOT
from tests.faults.bench import MAX_FALSE_ALARMS, Bench, Kind, Outcome, Report, read_kinds
from tests.faults.injections import BEARS, FAULTS, OF_PROVIDERS
from toolkit.vocabulary import Vocabulary

ROWS = 20_000
MANY_ROWS = 200_000
FIXED_SEED = 7


@pytest.mark.slow
@pytest.mark.parametrize("seed", [FIXED_SEED, None], ids=["fixed seed", "fresh seed"])
def test_every_fault_that_leaves_a_trace_is_found_for_the_right_reason(
    vocabulary: Vocabulary, seed: int | None
) -> None:
    report = played(secrets.randbits(32) if seed is None else seed, vocabulary)
    if (
        seed is None
        and report.accused
        and report.failures == replace(report, outcomes=(), alarms=(), unknown=()).failures
    ):
        # Providers are warned of from four standard errors on, which chance alone passes once in some thousands of
        # draws. What a second draw says too, and anything else that was wrong in the first, is no chance.
        print(f"drawn again, for chance may have it: {report.accused}")
        report = played(secrets.randbits(32), vocabulary)
    assert not report.failures, "\n".join(report.failures)
    assert [o.kind.name for o in report.outcomes if o.injected == 0] == []


def played(seed: int, vocabulary: Vocabulary) -> Report:
    """One run, which says how to repeat it."""
    print(f"repeat with: PYTHONPATH=. python scripts/bench_faults.py --rows {ROWS} --seed {seed}")
    return Bench(ROWS, seed, vocabulary).run()


@pytest.mark.slow
def test_false_alarms_are_below_one_in_ten_thousand_of_many_good_rows(vocabulary: Vocabulary) -> None:
    report = Bench(MANY_ROWS, FIXED_SEED, vocabulary).run()
    assert not report.failures, "\n".join(report.failures)
    assert report.good > 0.8 * MANY_ROWS


def test_each_kind_is_made_by_one_function() -> None:
    names = [kind.name for kind in read_kinds()]
    assert sorted(names) == sorted([*FAULTS, *OF_PROVIDERS])
    assert set(FAULTS) == set(BEARS)
    assert len(names) > 45


def test_the_documentation_tells_of_the_kinds_that_there_are() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+)` \| (.+?) \| .+? \| (.+?) \|", text, re.MULTILINE)
    reasons = [", ".join(f"`{reason}`" for reason in kind.reasons) or "–" for kind in read_kinds()]
    assert told == [(kind.name, kind.what, r) for kind, r in zip(read_kinds(), reasons, strict=True)]


KIND = Kind(name="k", what="w", trace="row", rate=0.1, reasons=("text",))


@pytest.mark.parametrize(
    ("trace", "injected", "named", "pending", "holds"),
    [
        ("row", 5, 5, False, True),
        ("row", 5, 4, False, False),
        ("row", 0, 0, False, False),
        ("provider", 1, 0, False, False),
        ("none", 5, 0, False, True),
        ("row", 5, 0, True, True),
    ],
)
def test_a_miss_fails_the_bench(trace: str, injected: int, named: int, pending: bool, holds: bool) -> None:
    kind = Kind(name="k", what="w", trace=trace, rate=0.1, reasons=("text",))
    outcome = Outcome(kind=kind, injected=injected, found=injected, named=named, pending=pending)
    report = Report(seed=1, rows=10, good=5, outcomes=(outcome,), alarms=(), unproved=0)
    assert (not report.failures) is holds


def test_false_alarms_fail_the_bench() -> None:
    alarms = ("s1 (text)", "s2 (text)")
    for good, holds in ((2 / MAX_FALSE_ALARMS, True), (2 / MAX_FALSE_ALARMS - 1, False)):
        report = Report(seed=1, rows=10, good=int(good), outcomes=(), alarms=alarms, unproved=0)
        assert (not report.failures) is holds
