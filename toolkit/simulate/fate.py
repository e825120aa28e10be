"""What becomes of one request: drawn from the seed, what was asked, and how often it was asked before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolkit.simulate.behaviours import BEHAVIOURS, FAULTS, Face
from toolkit.simulate.draws import Draws
from toolkit.simulate.providers import SimulatedProvider
from toolkit.simulate.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of one request.

    Attributes:
        fault: One of FAULTS, or None.
        habits: Those of HABITS that it meets.
        cut_at: Where a fault cuts a reply, the share of it that is sent, 0 to 1.
        aborts: Whether a stream that is cut is torn rather than ended.
        states_wish: Whether a refusal states its Retry-After.
    """

    fault: str | None
    habits: frozenset[str]
    latency_s: float
    per_token_s: float
    cut_at: float
    aborts: bool
    states_wish: bool


def fate_of(
    scenario: Scenario, provider: SimulatedProvider, identity: str, attempt: int, *, face: Face, stream: bool
) -> Fate:
    """Fate of the request called `identity`; `attempt` counts the requests for it before this one.

    Each habit has a row of draws of its own: switching one on changes no other.
    """
    rates: Mapping[str, float] = {**scenario.faults, **provider.faults} if provider.faults else scenario.faults
    draws = Draws(scenario.seed, "fate", identity, attempt)
    fault = _fault(rates, draws.unit())
    if fault is not None and not BEHAVIOURS[fault].meets(face, stream=stream):
        fault = None
    low, high = provider.latency_s or scenario.latency_s
    return Fate(
        fault=fault,
        habits=frozenset(
            name
            for name, rate in rates.items()
            if rate > 0
            and BEHAVIOURS[name].kind == "habit"
            and BEHAVIOURS[name].meets(face, stream=stream)
            and Draws(scenario.seed, "habit", name, identity, attempt).chance(rate)
        ),
        latency_s=low + (high - low) * draws.unit(),
        per_token_s=scenario.per_token_s if provider.per_token_s is None else provider.per_token_s,
        cut_at=0.1 + 0.8 * draws.unit(),
        aborts=draws.chance(0.5),
        states_wish=draws.chance(scenario.retry_after_share),
    )


def _fault(rates: Mapping[str, float], drawn: float) -> str | None:
    """The fault on whose stretch of 0 to 1 `drawn` lies; the stretches stand in the order of FAULTS."""
    if rates:
        for name in FAULTS:
            drawn -= rates.get(name, 0.0)
            if drawn < 0:
                return name
    return None
