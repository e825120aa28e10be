"""Two samples against each other: shares and distributions. Pure arithmetic over counts and arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolkit.audit.blocks import Bools

Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_PLACES_AT_ONCE = 1 << 20


def pooled_z(hits: int, trials: int, other_hits: int, other_trials: int, effect: float = 1.0) -> float | None:
    """How many standard errors two shares lie apart, by the pooled share; None where either has no trials.

    z = |p₁ − p₂| / √(d p (1 − p) (1/n₁ + 1/n₂)), with p the share of both together: the textbook test of two
    proportions. d is the design effect, 1 where all trials are independent. 0 where both shares are 0, or both 1.
    """
    if trials == 0 or other_trials == 0:
        return None
    pooled = (hits + other_hits) / (trials + other_trials)
    spread = math.sqrt(effect * pooled * (1 - pooled) * (1 / trials + 1 / other_trials))
    return 0.0 if spread == 0 else abs(hits / trials - other_hits / other_trials) / spread


def ks_distance(one: Counts, other: Counts) -> float:
    """The Kolmogorov–Smirnov distance of two samples: 0 (alike) to 1 (apart).

    Args:
        one: How many of one sample have each value, by ascending value; not all 0.
        other: The same of the other sample, over the same values.
    """
    mine = np.cumsum(one) / one.sum()
    theirs = np.cumsum(other) / other.sum()
    return float(np.max(np.abs(mine - theirs)))


def ks_p(distance: float, count: int, other_count: int, effect: float = 1.0) -> float:
    """How likely two samples of one distribution lie at least so far apart. Each counts for as many values as it has,
    divided by the design effect.

    The asymptotic series Q(λ) = 2 Σ (−1)^(j−1) exp(−2 j² λ²) of Kolmogorov and Smirnov with Stephens' correction for
    finite samples, λ = (√n + 0.12 + 0.11/√n) D, n = n₁ n₂ / (n₁ + n₂) (M. A. Stephens, J. R. Stat. Soc. B 32, 1970).
    Ties, which counts of ids have, make the true value smaller: this errs on the side of "alike".
    """
    root = math.sqrt(count * other_count / (count + other_count) / effect)
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:
        return 1.0
    terms = (2 * (-1) ** (j - 1) * math.exp(-2 * j * j * scaled * scaled) for j in range(1, 101))
    return min(1.0, max(0.0, math.fsum(terms)))


@dataclass(frozen=True, slots=True)
class Change:
    """Where a share changes: rows before `at` have `before`, those from there on `after`.

    `strength` is the logarithm of how much more likely two shares are than one.
    """

    at: int
    before: float
    after: float
    strength: float


def change_point(flags: Bools, least: int) -> Change | None:
    """The place that best divides a sequence of yes and no into two shares; None for fewer than 2 × `least` of them.

    Every place with at least `least` flags on both sides is weighed by its likelihood ratio against no change.
    """
    count = len(flags)
    if count < 2 * least:
        return None
    hits = np.cumsum(flags, dtype=np.int32 if count < 1 << 31 else np.int64)
    total = int(hits[-1])
    alone = float(_likelihood(np.array([total]), np.array([count]))[0])
    best, cut = -math.inf, least
    for first in range(least, count - least + 1, _PLACES_AT_ONCE):
        at = np.arange(first, min(first + _PLACES_AT_ONCE, count - least + 1))
        before = hits[at - 1].astype(np.int64)
        gain = _likelihood(before, at) + _likelihood(total - before, count - at) - alone
        here = int(np.argmax(gain))
        if gain[here] > best:
            best, cut = float(gain[here]), int(at[here])
    before_cut = int(hits[cut - 1])
    return Change(at=cut, before=before_cut / cut, after=(total - before_cut) / (count - cut), strength=best)


def _likelihood(hits: npt.NDArray[np.int64], trials: npt.NDArray[np.int64]) -> Numbers:
    """Logarithm of the best likelihood of so many hits."""
    share = hits / trials
    miss = 1 - share
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(hits > 0, hits * np.log(share), 0.0) + np.where(
            hits < trials, (trials - hits) * np.log(miss), 0.0
        )
    found: Numbers = logs
    return found
