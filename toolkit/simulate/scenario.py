"""What the simulation plays: who answers, how slowly, for what money, and what goes wrong how often."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from toolkit.errors import ConfigError
from toolkit.simulate.account import AccountSettings
from toolkit.simulate.behaviours import BEHAVIOURS, FAULTS
from toolkit.simulate.limits import Limit
from toolkit.simulate.providers import PROVIDERS, SimulatedProvider

_SLUG = re.compile(r"[a-z0-9-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One play. The same scenario and the same requests give the same answers and the same faults.

    What meets a request is drawn from the seed, the request's identity and the number of times it came before, so the
    order in which requests arrive changes nothing; limits and the account follow the clock and the order.

    Attributes:
        latency_s: Shortest and longest time until a reply begins, in seconds.
        per_token_s: Time for each completion token, in seconds: added to the latency of a whole reply, spread over a
            streamed one.
        keep_alive_s: Time between two blank lines, or two comments, while the model answers.
        faults: Rates, 0 to 1, by the names in `behaviours`; those of faults sum to at most 1.
        retry_after_s: The wish that 429 and 503 state, in whole seconds; None: they state none.
        retry_after_share: Share of them that state it, 0 to 1.
        bills_lost: Whether an answer that a fault cut or swallowed is charged, as OpenRouter does.
        limit: What the server lets through; OpenRouter's refusals are its own 429, an engine's 503.
        account: Credits, the key's limit, holds.
        falls_back: Whether a request goes to the next provider where one's limit refuses it and fallbacks are allowed.
        sticky: Whether a request that comes again meets the provider it met before; False: it is drawn anew.
        generation_after_s: How long GET /generation answers 404 after a reply.
        reply_model: The model name that OpenRouter's replies bear; None: the contract's first dated one.
        varies: Asking again without a `seed` gives another answer, as sampling does.
        engine: How /v1/chat/completions behaves: sglang tests the length before the stop id and tells `matched_stop`,
            vllm tests the stop id first and tells `stop_reason`.
        reasoning_field: Where that server puts the reasoning.
        incremental_stream: POST /generate streams deltas instead of everything so far.
        healthy: False: /health answers 503.
        canned_bytes: Size of bodies that are made once, at the start, and given to every request: nothing is encoded
            or rendered per request, and prompt_tokens are made up. None: real answers.

    Raises:
        ConfigError: no provider, two of one slug, a share, rate or time out of range, an unknown name in `faults`.
    """

    providers: tuple[SimulatedProvider, ...] = PROVIDERS
    seed: int = 0
    latency_s: tuple[float, float] = (0.0, 0.0)
    per_token_s: float = 0.0
    keep_alive_s: float = 0.5
    faults: Mapping[str, float] = field(default_factory=lambda: {"blank_lines": 0.3})
    retry_after_s: int | None = 1
    retry_after_share: float = 1.0
    bills_lost: bool = True
    limit: Limit = field(default_factory=Limit)
    account: AccountSettings = field(default_factory=AccountSettings)
    falls_back: bool = False
    sticky: bool = True
    generation_after_s: float = 0.0
    reply_model: str | None = None
    varies: bool = False
    engine: Literal["vllm", "sglang"] = "vllm"
    reasoning_field: Literal["reasoning", "reasoning_content"] = "reasoning"
    incremental_stream: bool = False
    healthy: bool = True
    canned_bytes: int | None = None

    def __post_init__(self) -> None:
        for fault in (*_provider_faults(self.providers), *_own_faults(self)):
            raise ConfigError(f"scenario: {fault}")


def _own_faults(scenario: Scenario) -> Iterator[str]:
    yield from _rate_faults(scenario.faults, "faults")
    yield from _latency_faults(scenario.latency_s, "latency_s")
    for name in ("per_token_s", "generation_after_s"):
        if not getattr(scenario, name) >= 0:
            yield f"{name}: expected 0 or more, found {getattr(scenario, name)}"
    if not scenario.keep_alive_s > 0:
        yield f"keep_alive_s: expected more than 0, found {scenario.keep_alive_s}"
    if not 0 <= scenario.retry_after_share <= 1:
        yield f"retry_after_share: expected 0 to 1, found {scenario.retry_after_share}"
    if scenario.retry_after_s is not None and scenario.retry_after_s < 0:
        yield f"retry_after_s: expected 0 or more, found {scenario.retry_after_s}"
    if scenario.canned_bytes is not None and not 512 <= scenario.canned_bytes <= 2**20:
        yield f"canned_bytes: expected 512 to {2**20}, found {scenario.canned_bytes}"


def _provider_faults(providers: tuple[SimulatedProvider, ...]) -> Iterator[str]:
    slugs = [provider.slug for provider in providers]
    if not slugs or len(set(slugs)) < len(slugs):
        yield f"providers: expected one or more, each with its own slug, found {slugs}"
    for provider in providers:
        where = f"provider {provider.name!r}"
        if not provider.share > 0 or not _SLUG.fullmatch(provider.slug):
            yield (
                f"{where}: expected a share above 0 and a slug of lower-case letters, digits and -, "
                f"found {provider.share} and {provider.slug!r}"
            )
        yield from _rate_faults(provider.faults, f"{where}: faults")
        yield from _latency_faults(provider.latency_s or (0.0, 0.0), f"{where}: latency_s")
        if not min(provider.prompt_usd, provider.completion_usd, provider.per_token_s or 0.0) >= 0:
            yield f"{where}: expected prices and per_token_s of 0 or more"


def _rate_faults(rates: Mapping[str, float], where: str) -> Iterator[str]:
    for name, rate in rates.items():
        if name not in BEHAVIOURS:
            yield f"{where}: unknown name {name!r}; expected one of: {', '.join(BEHAVIOURS)}"
        if not 0 <= rate <= 1:
            yield f"{where}.{name}: expected a rate from 0 to 1, found {rate}"
    total = sum(rates.get(name, 0.0) for name in FAULTS)
    if total > 1 + 1e-9:
        yield f"{where}: expected rates of faults that sum to at most 1, found {total:g}"


def _latency_faults(latency_s: tuple[float, float], where: str) -> Iterator[str]:
    low, high = latency_s
    if not 0 <= low <= high:
        yield f"{where}: expected 0 <= shortest <= longest, found {low} and {high}"
