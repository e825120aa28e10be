"""What several answers to one prompt say together, held against the same sums in plain loops, and against chance."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit.audit.clusters
from toolkit.audit.clusters import Clusters, Share, clusters
from toolkit.audit.samples import ks_p, pooled_z

LINE = ["source", "provider", "mode"]
SHARES = {"a": Share("of_a", "has_a"), "b": Share("of_b", "has_b")}
SCHEMA = {
    **dict.fromkeys([*LINE, "sample_id"], pl.String),
    **dict.fromkeys(["of_a", "has_a", "of_b", "has_b"], pl.Boolean),
}

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "source": st.just("openrouter"),
            "provider": st.sampled_from(["x", "y", None]),
            "mode": st.sampled_from(["thinking", "instant"]),
            "sample_id": st.sampled_from("pqrstuv"),
            "of_a": st.booleans(),
            "has_a": st.booleans(),
            "of_b": st.just(value=True),
            "has_b": st.booleans(),
        }
    ).map(lambda row: row | {"has_a": row["of_a"] and row["has_a"]}),
    max_size=60,
)


def found_in(rows: list[dict[str, Any]]) -> Clusters:
    lines = {tuple(row[name] for name in LINE) for row in rows}
    return clusters(pl.DataFrame(rows, schema=SCHEMA).lazy(), LINE, ["sample_id", "mode"], SHARES, lines)


def looped(rows: list[dict[str, Any]], key: tuple[Any, ...], share: str) -> float:
    """The design effect, prompt by prompt."""
    own, others = defaultdict(list), defaultdict(list)
    for row in rows:
        if row["mode"] == key[-1] and row[f"of_{share}"]:
            side = own if tuple(row[name] for name in LINE) == key else others
            side[row["sample_id"]].append(row[f"has_{share}"])
    n, m = (sum(map(len, side.values())) for side in (own, others))
    if not n or not m:
        return 1.0
    p, q = (sum(map(sum, side.values())) / count for side, count in ((own, n), (others, m)))
    alone = p * (1 - p) / n + q * (1 - q) / m
    if not alone:
        return 1.0
    parts = [(sum(own[c]) - p * len(own[c])) / n - (sum(others[c]) - q * len(others[c])) / m for c in {*own, *others}]
    return max(1.0, sum(part * part for part in parts) / alone)


@given(ROWS)
def test_the_sums_are_those_of_a_loop_over_prompts(rows: list[dict[str, Any]]) -> None:
    found = found_in(rows)
    keys = {tuple(row[name] for name in LINE) for row in rows}
    assert set(found.lines) == keys
    for key in keys:
        mode = [row for row in rows if row["mode"] == key[-1]]
        own = [row for row in mode if tuple(row[name] for name in LINE) == key]
        rest = [row for row in mode if tuple(row[name] for name in LINE) != key]
        for name, share in SHARES.items():
            counted = [Counter(row["sample_id"] for row in side if row[share.trials]) for side in (own, rest)]
            weights = [side.total() ** 2 / sum(n * n for n in side.values()) if side else 0 for side in counted]
            assert found.effective_prompts(key, name) == pytest.approx(tuple(weights))
        for share in SHARES:
            assert found.design_effect(key, share) == pytest.approx(looped(rows, key, share), rel=1e-9)


def drawn(random: np.random.Generator, prompts: int, samples: int) -> list[dict[str, Any]]:
    """Two providers of one habit, each with prompts of its own, all answers to one of which are cut or none is."""
    rows = []
    for provider in "xy":
        for prompt in range(prompts):
            cut = bool(random.random() < 0.3)
            row = {"source": "s", "provider": provider, "mode": "thinking", "sample_id": f"{provider}{prompt}"}
            rows += [row | {"of_a": True, "has_a": cut, "of_b": True, "has_b": cut}] * samples
    return rows


def z_of(rows: list[dict[str, Any]], effect: float) -> float:
    own, others = ([row["has_a"] for row in rows if row["provider"] == name] for name in "xy")
    found = pooled_z(sum(own), len(own), sum(others), len(others), effect)
    assert found is not None
    return found


def test_samples_of_one_prompt_accuse_nobody() -> None:
    """100 prompts × 16 samples say as much as 100 rows. As 1,600 rows they would accuse one draw in three."""
    random = np.random.default_rng(5)
    key = ("s", "x", "thinking")
    naive, told = [], []
    for _ in range(60):
        rows = drawn(random, 100, 16)
        effect = found_in(rows).design_effect(key, "a")
        assert effect == pytest.approx(16, rel=0.01)
        naive.append(z_of(rows, 1.0))
        told.append(z_of(rows, effect))
    assert sum(z > 4 for z in naive) > 15
    assert max(told) < 4
    assert 0.5 < float(np.mean(told)) < 1.1  # |z| of a normal law has the mean 0.80


def test_very_many_prompts_are_put_together_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 prompts in 4,000 groups: the variance has a standard error of √(2/4000), 2.2 %."""
    rows = drawn(np.random.default_rng(8), 10_000, 3)
    monkeypatch.setattr(toolkit.audit.clusters, "_GROUPS", 4_000)
    monkeypatch.setattr(toolkit.audit.clusters, "_EXACT_ROWS", 59_999)
    found = found_in(rows)
    assert found.design_effect(("s", "x", "thinking"), "a") == pytest.approx(3, rel=0.09)
    assert min(found.effective_prompts(("s", "x", "thinking"), "a")) > 200


def test_a_row_for_each_prompt_counts_as_ever() -> None:
    rows = drawn(np.random.default_rng(6), 400, 1)
    assert found_in(rows).design_effect(("s", "x", "thinking"), "a") == pytest.approx(1, abs=1e-9)


def test_a_distance_goes_by_where_a_distribution_clusters_most() -> None:
    rows = drawn(np.random.default_rng(9), 100, 16)
    for place, row in enumerate(rows):
        row["has_b"] = place % 2 == 0  # half of the samples of each prompt
    found = found_in(rows)
    key = ("s", "x", "thinking")
    assert found.distance_effect(key, ["b"]) == 1
    clustered = found.distance_effect(key, ["b", "a"])
    assert clustered == found.distance_effect(key, ["a"])
    assert clustered == pytest.approx(16 * 4 * 0.3 * 0.7, rel=0.15)


def test_p_knows_the_design_effect_too() -> None:
    assert ks_p(0.1, 3_200, 3_200, 16) == pytest.approx(ks_p(0.1, 200, 200), rel=1e-9)
    assert ks_p(0.1, 3_200, 3_200) < 1e-10 < ks_p(0.1, 3_200, 3_200, 16)
