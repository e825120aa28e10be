"""What the simulation plays: who answers, how slowly, and what goes wrong how often."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from toolkit.errors import ConfigError, PermanentError
from toolkit.simulate.asked import Routing
from toolkit.simulate.draws import Draws
from toolkit.simulate.providers import PROVIDERS, SimulatedProvider

FAULTS = ("http_429", "http_502", "error_in_200", "http_524", "empty_choices", "cut_stream")
"""Faults that replace a reply: at most one of them meets a request, and a later try draws again.

`cut_stream` meets streamed requests only: the connection ends in the middle, without [DONE].
"""

HABITS = ("blank_lines",)
"""What is normal and still breaks naive clients: blank lines before the JSON of a reply that is not streamed."""

_SLUG = re.compile(r"[a-z0-9-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One play. The same scenario and the same requests give the same answers.

    Attributes:
        latency_s: Shortest and longest time until a reply begins, in seconds.
        faults: Rates, 0 to 1, by the names in FAULTS and HABITS; those of FAULTS sum to at most 1.
        retry_after_s: The wish that a 429 states, in seconds; None: it states none.
        reply_model: The model name that replies bear.
        varies: Asking again without a `seed` gives another answer, as sampling does.

    Raises:
        ConfigError: no provider, two of one slug, a share, rate or latency out of range, an unknown fault.
    """

    providers: tuple[SimulatedProvider, ...] = PROVIDERS
    seed: int = 0
    latency_s: tuple[float, float] = (0.0, 0.0)
    faults: Mapping[str, float] = field(default_factory=lambda: {"blank_lines": 0.3})
    retry_after_s: int | None = 1
    reply_model: str = "moonshotai/kimi-k2.5-0127"
    varies: bool = False

    def __post_init__(self) -> None:
        slugs = [provider.slug for provider in self.providers]
        if not slugs or len(set(slugs)) < len(slugs):
            raise ConfigError(f"scenario: providers: expected one or more, each with its own slug, found {slugs}")
        for provider in self.providers:
            if not provider.share > 0 or not _SLUG.fullmatch(provider.slug):
                raise ConfigError(
                    f"scenario: provider {provider.name!r}: expected a share above 0 and a slug of lower-case letters, "
                    f"digits and -, found {provider.share} and {provider.slug!r}"
                )
        for name, rate in self.faults.items():
            if name not in (*FAULTS, *HABITS):
                known = ", ".join((*FAULTS, *HABITS))
                raise ConfigError(f"scenario: faults: unknown name {name!r}; expected one of: {known}")
            if not 0 <= rate <= 1:
                raise ConfigError(f"scenario: faults.{name}: expected a rate from 0 to 1, found {rate}")
        total = sum(self.faults.get(name, 0.0) for name in FAULTS)
        if total > 1 + 1e-9:
            raise ConfigError(f"scenario: faults: expected rates that sum to at most 1, found {total:g}")
        low, high = self.latency_s
        if not 0 <= low <= high:
            raise ConfigError(f"scenario: latency_s: expected 0 <= shortest <= longest, found {low} and {high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of one request: who answers, after how long, and what goes wrong.

    Attributes:
        fault: One of FAULTS, or None.
        cut_at: With the fault `cut_stream`, the share of the stream's bytes that is sent, 0 to 1.
        aborts: With that fault, whether the connection is torn rather than ended.
    """

    provider: SimulatedProvider
    fault: str | None
    blank_lines: bool
    latency_s: float
    cut_at: float
    aborts: bool


def fate_of(scenario: Scenario, routing: Routing, key: str, attempt: int, *, stream: bool) -> Fate:
    """Fate of the request for prompt `key`; `attempt` counts the requests for it before this one.

    The provider depends on the prompt and the routing only; faults and latency also on the attempt, so that a retry
    can fare better.

    Raises:
        PermanentError: status 404; the routing leaves no provider.
    """
    provider = _choose(scenario, routing, key)
    draws = Draws(scenario.seed, "fate", key, attempt)
    drawn, fault = draws.unit(), None
    for name in FAULTS:
        drawn -= scenario.faults.get(name, 0.0)
        if drawn < 0:
            fault = name
            break
    if fault == "cut_stream" and not stream:
        fault = None
    low, high = scenario.latency_s
    return Fate(
        provider=provider,
        fault=fault,
        blank_lines=not stream and draws.chance(scenario.faults.get("blank_lines", 0.0)),
        latency_s=low + (high - low) * draws.unit(),
        cut_at=0.1 + 0.8 * draws.unit(),
        aborts=draws.chance(0.5),
    )


def _choose(scenario: Scenario, routing: Routing, key: str) -> SimulatedProvider:
    left = [
        provider
        for provider in scenario.providers
        if (not routing.only or _named(provider, routing.only))
        and not _named(provider, routing.ignore)
        and (not routing.quantizations or provider.quantization in routing.quantizations)
    ]
    ordered = [p for slug in routing.order for p in left if _named(p, (slug,))]
    if ordered:
        return ordered[0]
    if not left or (routing.order and not routing.allow_fallbacks):
        message = "No allowed providers are available for the selected model."
        raise PermanentError(message, reason="no_providers", status=404)
    drawn = Draws(scenario.seed, "provider", key).unit() * sum(provider.share for provider in left)
    for provider in left:
        drawn -= provider.share
        if drawn < 0:
            return provider
    return left[-1]


def _named(provider: SimulatedProvider, slugs: tuple[str, ...]) -> bool:
    """Whether one of `slugs` means this provider; `slug/variant` names one of its endpoints."""
    return any(slug.partition("/")[0] == provider.slug for slug in slugs)
