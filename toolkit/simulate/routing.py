"""OpenRouter's `provider` object: read strictly, and obeyed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.errors import PermanentError
from toolkit.records import Json
from toolkit.simulate.draws import Draws
from toolkit.simulate.providers import SimulatedProvider

_SHOWN_CHARS = 80
_LISTS = ("order", "only", "ignore", "quantizations")
_FLAGS = ("allow_fallbacks", "enforce_distillable_text", "require_parameters", "zdr")
_PREFERENCES = ("preferred_max_latency", "preferred_min_throughput")
_KEYS = frozenset({*_LISTS, *_FLAGS, *_PREFERENCES, "data_collection", "max_price", "sort"})
_PRICES = frozenset({"prompt", "completion", "request", "image", "audio"})
_SORTS = ("price", "throughput", "latency")
_QUANTIZATIONS = frozenset(
    ("int4", "int8", "fp4", "mxfp4", "nvfp4", "fp6", "fp8", "mxfp8", "fp16", "bf16", "fp32", "unknown")
)
_PER_MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The part of a request that decides who may answer; slugs as they were sent.

    Prices are US dollars per million tokens. `parameters` are those that a provider must support, `max_tokens` what
    it must be able to return.
    """

    order: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    quantizations: tuple[str, ...] = ()
    allow_fallbacks: bool = True
    max_prompt_usd: float = math.inf
    max_completion_usd: float = math.inf
    parameters: frozenset[str] = frozenset()
    max_tokens: int | None = None

    def allows(self, provider: SimulatedProvider) -> bool:
        """Whether `provider` may answer; `order` without fallbacks allows none but its own."""
        longest = provider.max_completion_tokens
        return (
            (not self.only or named(provider, self.only))
            and not named(provider, self.ignore)
            and (self.allow_fallbacks or not self.order or named(provider, self.order))
            and (not self.quantizations or provider.quantization in self.quantizations)
            and provider.prompt_usd * _PER_MILLION <= self.max_prompt_usd + 1e-9
            and provider.completion_usd * _PER_MILLION <= self.max_completion_usd + 1e-9
            and self.parameters <= provider.supported_parameters
            and (longest is None or self.max_tokens is None or self.max_tokens <= longest)
        )


def named(provider: SimulatedProvider, slugs: Sequence[str]) -> bool:
    """Whether one of `slugs` means this provider: `slug` or `slug/variant`. A display name means nobody."""
    return any(slug.partition("/")[0] == provider.slug for slug in slugs)


def ranked(providers: Sequence[SimulatedProvider], routing: Routing, draws: Draws) -> tuple[SimulatedProvider, ...]:
    """Who may answer, who is asked first in front: the order asked for, then by drawing with shares as weights.

    Raises:
        PermanentError: status 404; nobody may.
    """
    left = [provider for provider in providers if routing.allows(provider)]
    if not left:
        message = "No allowed providers are available for the selected model."
        raise PermanentError(message, reason="no_providers", status=404)
    first: list[SimulatedProvider] = []
    for slug in routing.order:
        first += [provider for provider in left if named(provider, (slug,)) and provider not in first]
    rest = [provider for provider in left if provider not in first]
    while rest:
        drawn = draws.unit() * sum(provider.share for provider in rest)
        chosen = rest[-1]
        for provider in rest:
            drawn -= provider.share
            if drawn < 0:
                chosen = provider
                break
        first.append(chosen)
        rest.remove(chosen)
    return tuple(first)


def read_routing(value: Json, *, max_tokens: int | None, parameters: frozenset[str]) -> Routing:
    """The routing in a request's `provider` object; `parameters` are the names of the fields that it sent.

    Raises:
        PermanentError: status 400; an unknown key, or a value of another type than OpenRouter's.
    """
    if value is None:
        return Routing(max_tokens=max_tokens)
    if not isinstance(value, dict):
        raise refusal("provider", "an object", value)
    for key in value:
        if key not in _KEYS:
            known = ", ".join(sorted(_KEYS))
            message = f"provider: unknown key {key[:_SHOWN_CHARS]!r}; expected one of: {known}"
            raise PermanentError(message, reason="invalid_request", status=400)
    flags = {name: _flag(value, name) for name in _FLAGS}
    lists = {name: _slugs(value, name) for name in _LISTS}
    _check_choices(value, lists["quantizations"])
    prices = _prices(value.get("max_price"))
    return Routing(
        allow_fallbacks=flags["allow_fallbacks"] is not False,
        max_prompt_usd=prices.get("prompt", math.inf),
        max_completion_usd=prices.get("completion", math.inf),
        parameters=parameters if flags["require_parameters"] else frozenset(),
        max_tokens=max_tokens,
        **lists,
    )


def refusal(where: str, expected: str, found: Json) -> PermanentError:
    """The 400 for a field that is not as expected; `found` is shown by type, and scalars cut short."""
    shown = type(found).__name__ if isinstance(found, dict | list | str) else repr(found)[:_SHOWN_CHARS]
    return PermanentError(f"{where}: expected {expected}, found {shown}", reason="invalid_request", status=400)


def _flag(value: dict[str, Json], name: str) -> bool | None:
    flag = value.get(name)
    if flag is not None and not isinstance(flag, bool):
        raise refusal(f"provider.{name}", "true or false", flag)
    return flag


def _slugs(value: dict[str, Json], name: str) -> tuple[str, ...]:
    slugs = value.get(name) or []
    if not isinstance(slugs, list) or not all(isinstance(slug, str) for slug in slugs):
        raise refusal(f"provider.{name}", "a list of strings", value[name])
    return tuple(slugs)


def _check_choices(value: dict[str, Json], quantizations: tuple[str, ...]) -> None:
    for quantization in quantizations:
        if quantization not in _QUANTIZATIONS:
            raise refusal("provider.quantizations", "each one of " + ", ".join(sorted(_QUANTIZATIONS)), [quantization])
    if value.get("data_collection") not in (None, "allow", "deny"):
        raise refusal("provider.data_collection", "allow or deny", value["data_collection"])
    sort = value.get("sort")
    by = sort.get("by") if isinstance(sort, dict) else sort
    if sort is not None and by not in _SORTS:
        raise refusal("provider.sort", "one of " + ", ".join(_SORTS), sort)
    for name in _PREFERENCES:
        preference = value.get(name)
        if preference is not None and (isinstance(preference, bool) or not isinstance(preference, int | float | dict)):
            raise refusal(f"provider.{name}", "a number or an object of percentiles", preference)


def _prices(value: Json) -> dict[str, float]:
    """Prices as numbers; OpenRouter's specification has them as strings, its examples as numbers: both are taken."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not set(value) <= _PRICES:
        raise refusal("provider.max_price", "an object with " + ", ".join(sorted(_PRICES)), value)
    prices = {}
    for name, price in value.items():
        try:
            if isinstance(price, bool) or not isinstance(price, str | int | float):
                raise ValueError
            prices[name] = float(price)
        except ValueError:
            raise refusal(f"provider.max_price.{name}", "a number", price) from None
    return prices
