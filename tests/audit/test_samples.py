"""Two samples against each other: figures that were worked out by hand or are those of the literature."""

from __future__ import annotations

import numpy as np
import pytest

from toolkit.audit.samples import change_point, ks_distance, ks_p, pooled_z


@pytest.mark.parametrize(
    ("counts", "z"),
    [
        ((0, 0, 5, 10), None),
        ((0, 10, 0, 10), 0.0),
        ((10, 10, 10, 10), 0.0),
        ((30, 100, 50, 100), 2.887),
        ((50, 100, 30, 100), 2.887),
    ],
)
def test_two_shares(counts: tuple[int, int, int, int], z: float | None) -> None:
    assert pooled_z(*counts) == (None if z is None else pytest.approx(z, abs=1e-3))


def test_distance_of_distributions() -> None:
    # 1, 2, 3, 4 and 3, 4, 5, 6, as counts of the values 1 to 6.
    one, other = np.array([1, 1, 1, 1, 0, 0]), np.array([0, 0, 1, 1, 1, 1])
    assert ks_distance(one, other) == 0.5
    assert ks_distance(one, one) == 0.0
    assert ks_distance(np.array([3, 0]), np.array([0, 5])) == 1.0


def test_the_place_of_a_change_does_not_depend_on_how_many_places_are_weighed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = np.random.default_rng(3).random(2_000) < np.repeat([0.1, 0.4], 1_000)
    whole = change_point(flags, 30)
    monkeypatch.setattr("toolkit.audit.samples._PLACES_AT_ONCE", 77)
    assert change_point(flags, 30) == whole


def test_the_chance_of_a_distance() -> None:
    # Critical values of the two-sample test for large samples: 1.358 √((n + m) / nm) at 5 %, 1.949 at 0.1 %.
    root = np.sqrt(2 / 10_000)
    assert ks_p(1.358 * root, 10_000, 10_000) == pytest.approx(0.05, rel=0.02)
    assert ks_p(1.949 * root, 10_000, 10_000) == pytest.approx(0.001, rel=0.05)
    assert ks_p(0.0, 50, 50) == 1.0
    assert 0 <= ks_p(1.0, 5_000, 5_000) < 1e-100


def test_a_change_is_found_where_it_is() -> None:
    flags = np.array([False, False, False, False, True] * 100 + [True, True, True, True, False] * 60)
    change = change_point(flags, 30)
    assert change is not None
    assert abs(change.at - 500) <= 5
    assert (round(change.before, 2), round(change.after, 2)) == (0.2, 0.8)
    assert change.strength > 25


def test_nothing_changes_in_a_steady_sequence() -> None:
    draw = np.random.default_rng(7)
    strengths = [change_point(draw.random(20_000) < share, 30).strength for share in (0.001, 0.05, 0.5, 0.99)]  # type: ignore[union-attr]
    assert max(strengths) < 15
    assert change_point(np.zeros(59, dtype=bool), 30) is None
