"""Drift: a provider that changes within a run is told, with the row where it begins; a steady one is not."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.audit.drift import find_drift
from toolkit.contract import Contract
from toolkit.findings import Finding

from .facts import fact, judged_facts, numbered

CUT = {"truncated": True, "rebuild_status": "truncated", "n_terminal": 0, "finish_reason": "length"}


def drift(contract: Contract, rows: list[dict[str, Any]]) -> list[Finding]:
    return find_drift(judged_facts(contract, rows), contract)


def test_a_new_way_of_counting_is_named_with_where_it_begins(kimi: Contract) -> None:
    rows = numbered([*[fact(count=1)] * 60, *[fact(count=0, shard="e")] * 40])
    (found,) = drift(kimi, rows)
    assert found.code == "completion_convention_changed"
    assert found.severity == "warning"
    assert (found.row, found.shard, found.created, found.rows) == ("s60/0/0", "e", 1060, 40)
    assert "it leaves out the terminal" in found.says
    assert "the provider counts every id" in found.says
    assert "60 rows before, 40 after" in found.says


def test_time_decides_not_the_order_in_the_shards(kimi: Contract) -> None:
    rows = numbered([*[fact(count=1)] * 60, *[fact(count=0)] * 40])
    mixed = [rows[i] for i in (*range(0, 100, 2), *range(1, 100, 2))]
    (found,) = drift(kimi, mixed)
    assert found.row == "s60/0/0"
    # Without times the rows stand as they lie, and there nothing begins.
    assert drift(kimi, [row | {"created": None} for row in mixed]) == []


@pytest.mark.parametrize(
    "rows",
    [
        [fact(count=1)] * 100,
        [*[fact(count=1)] * 71, *[fact(count=0)] * 29],  # fewer than thirty rows tell it
        [fact(count=i % 2) for i in range(200)],  # two ways at once, from the first row to the last
        [*[fact(count=0)] * 60, *[fact(count=0, **CUT)] * 60],  # the same for both conventions
        [*[fact(count=0)] * 60, *[fact(count=9)] * 60],  # faults are no convention
    ],
    ids=["steady", "too few", "mixed", "cut rows", "faults"],
)
def test_no_new_way_of_counting(kimi: Contract, rows: list[dict[str, Any]]) -> None:
    assert [f.code for f in drift(kimi, numbered(rows)) if "convention" in f.code] == []


def test_faults_do_not_hide_a_change(kimi: Contract) -> None:
    rows = [fact(count=-7 if i % 3 == 0 else (1 if i < 150 else 0)) for i in range(300)]
    found = [f for f in drift(kimi, numbered(rows)) if f.code == "completion_convention_changed"]
    assert [f.row for f in found] == ["s151/0/0"] or [f.row for f in found] == ["s150/0/0"]


def test_a_shard_that_is_counted_otherwise(kimi: Contract) -> None:
    rows = [fact(count=0 if i % 4 else 1, shard="d" if i % 4 else "odd") for i in range(200)]
    (found,) = drift(kimi, numbered(rows))
    assert (found.code, found.shard, found.row, found.rows) == ("convention_differs_in_shard", "odd", "s0/0/0", 50)


def test_prompts_and_reasoning_drift_too(kimi: Contract) -> None:
    prompts = numbered([*[fact(prompt=0)] * 50, *[fact(prompt=1)] * 50])
    assert [f.code for f in drift(kimi, prompts)] == ["prompt_convention_changed"]
    spoken = {"reasoning_tokens": 10}
    thought = [fact(reasoning_difference=0, **spoken)] * 50 + [fact(reasoning_difference=-1, **spoken)] * 50
    assert [f.code for f in drift(kimi, numbered(thought))] == ["reasoning_convention_changed"]


def test_white_space_that_vanishes_is_a_warning(kimi: Contract) -> None:
    rows = [fact(content_leading_space=(i < 300 and i % 3 == 0)) for i in range(600)]
    (found,) = drift(kimi, numbered(rows))
    assert (found.code, found.severity, found.mode) == ("trait_changed", "warning", "thinking")
    assert found.row is not None
    assert 295 <= int(found.row.split("/")[0][1:]) <= 301
    assert found.says.startswith("content that begins in white space: 33.")


def test_shares_that_move_are_told_with_their_innocent_reason(kimi: Contract) -> None:
    rows = [fact(**(CUT if i >= 300 and i % 2 else {})) for i in range(600)]
    (found,) = drift(kimi, numbered(rows))
    assert (found.code, found.severity) == ("share_changed", "info")
    assert "another kind of prompts" in found.says
    few = [fact(**(CUT if i % 50 == 0 else {})) for i in range(600)]
    assert drift(kimi, numbered(few)) == []
