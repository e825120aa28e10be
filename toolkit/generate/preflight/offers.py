"""The endpoints behind one model of OpenRouter, and who of them may answer what is asked. Pure.

A provider is asked for by slug, which is the beginning of its endpoint's `tag`; replies bear its display name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.config import Routing
from toolkit.generate.account import data_in, number_in
from toolkit.generate.budget import Price
from toolkit.generate.summary import shown
from toolkit.records import Json

_PER_MILLION = 1e6
_NAME_LIMIT = 80
_TOKEN_FIELDS = frozenset({"max_tokens", "max_completion_tokens"})
"""Two names of one cap: whoever supports either takes it."""
_PARAMETERS = frozenset(
    {
        "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "frequency_penalty",
        "presence_penalty", "logit_bias", "reasoning", "tools", "logprobs", "top_logprobs", *_TOKEN_FIELDS,
    }
)  # fmt: skip
"""Fields of a body that a provider may not support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One endpoint, as the list describes it; None where it says nothing, or nothing that can be read.

    Attributes:
        name: The display name that replies bear.
        tag: Slug, and perhaps a variant behind a slash.
        status: 0 is normal; what other numbers mean is not documented.
        parameters: Names of the fields that it supports.
    """

    name: str
    tag: str
    quantization: str | None = None
    context_length: int | None = None
    max_completion_tokens: int | None = None
    price: Price | None = None
    status: int | None = None
    parameters: frozenset[str] | None = None

    @property
    def slug(self) -> str:
        """What requests call it."""
        return self.tag.partition("/")[0]

    def is_meant_by(self, slug: str) -> bool:
        """Whether a slug of the routing names it."""
        return slug in (self.tag, self.slug)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """An endpoint that may not answer, and all reasons."""

    offer: Offer
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked, as far as it decides who may answer.

    Attributes:
        parameters: Names of the fields that requests send.
        max_tokens: The largest cap that is asked for.
        longest_ids: Ids of the longest prompt; None where it was not rendered.
        longest_total: The most ids that any prompt and its cap come to.
    """

    routing: Routing
    parameters: frozenset[str] = frozenset()
    max_tokens: int = 1
    longest_ids: int | None = None
    longest_total: int | None = None


def parameters_of(body: Mapping[str, Json]) -> frozenset[str]:
    """The fields of a request's body that providers may not support."""
    return frozenset(_PARAMETERS & body.keys())


def offers_of(body: bytes) -> list[Offer] | None:
    """The endpoints in a body of `GET /models/AUTHOR/SLUG/endpoints`; None where it is none."""
    listed = data_in(body).get("endpoints")
    if not isinstance(listed, list):
        return None
    return [offer for item in listed if isinstance(item, Mapping) and (offer := _offer_of(item)) is not None]


def _offer_of(item: Mapping[str, Json]) -> Offer | None:
    name, tag = item.get("provider_name"), item.get("tag")
    if not isinstance(name, str) or not isinstance(tag, str) or not name or not tag:
        return None
    quantization = item.get("quantization")
    return Offer(
        name=shown(name, _NAME_LIMIT),
        tag=shown(tag, _NAME_LIMIT),
        quantization=shown(quantization, _NAME_LIMIT) if isinstance(quantization, str) else None,
        context_length=_count(item.get("context_length")),
        max_completion_tokens=_count(item.get("max_completion_tokens")),
        price=_price_of(item.get("pricing")),
        status=_whole(item.get("status")),
        parameters=_names(item.get("supported_parameters")),
    )


def _price_of(pricing: Json) -> Price | None:
    if not isinstance(pricing, Mapping):
        return None
    prompt, completion = number_in(pricing.get("prompt")), number_in(pricing.get("completion"))
    return (
        Price(prompt, completion)
        if prompt is not None and completion is not None and min(prompt, completion) >= 0
        else None
    )


def _whole(value: Json) -> int | None:
    return value if type(value) is int and abs(value) < 2**53 else None


def _count(value: Json) -> int | None:
    number = _whole(value)
    return number if number is not None and number > 0 else None


def _names(value: Json) -> frozenset[str] | None:
    return frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list) else None


# --- who may answer -----------------------------------------------------------------------------


def divide(offers: Sequence[Offer], wanted: Wanted) -> tuple[list[Offer], list[Excluded]]:
    """(who may answer, who may not). What a list does not say excludes nobody."""
    allowed: list[Offer] = []
    excluded: list[Excluded] = []
    for offer in offers:
        why = tuple(_why_not(offer, wanted))
        if why:
            excluded.append(Excluded(offer=offer, why=why))
        else:
            allowed.append(offer)
    return allowed, excluded


def _why_not(offer: Offer, wanted: Wanted) -> Iterator[str]:
    yield from _not_chosen(offer, wanted.routing)
    asked = wanted.routing.quantizations
    if asked and offer.quantization is not None and offer.quantization not in asked:
        yield f"quantization {offer.quantization} is not one of {', '.join(asked)}"
    yield from _too_dear(offer, wanted.routing)
    if offer.max_completion_tokens is not None and offer.max_completion_tokens < wanted.max_tokens:
        yield f"returns at most {offer.max_completion_tokens:,} tokens, asked for {wanted.max_tokens:,}"
    missing = unsupported(offer, wanted.parameters)
    if wanted.routing.require_parameters and missing:
        yield f"does not support {', '.join(missing)}"


def _not_chosen(offer: Offer, routing: Routing) -> Iterator[str]:
    if routing.only and not any(map(offer.is_meant_by, routing.only)):
        yield "not in only"
    if any(map(offer.is_meant_by, routing.ignore or ())):
        yield "in ignore"
    if routing.order and routing.allow_fallbacks is False and not any(map(offer.is_meant_by, routing.order)):
        yield "not in order, and fallbacks are not allowed"


def _too_dear(offer: Offer, routing: Routing) -> Iterator[str]:
    """`max_price` is in US dollars for a million tokens; prices of the list are for one."""
    if offer.price is None:
        return
    ceilings: Mapping[Any, Json] = routing.max_price or {}
    for kind, price in (("prompt", offer.price.prompt), ("completion", offer.price.completion)):
        most = number_in(ceilings.get(kind))
        if most is not None and price * _PER_MILLION > most * (1 + 1e-9):
            yield f"{kind} costs ${price * _PER_MILLION:g} for a million tokens, max_price is ${most:g}"


def unsupported(offer: Offer, parameters: frozenset[str]) -> list[str]:
    """Fields that are sent and that an endpoint does not support; none where it names no fields."""
    if offer.parameters is None:
        return []
    known = offer.parameters | (_TOKEN_FIELDS if offer.parameters & _TOKEN_FIELDS else frozenset())
    return sorted(parameters - known)


def slugs_to_ask(allowed: Sequence[Offer], routing: Routing) -> list[str]:
    """One slug for each provider that may answer: as the routing spells it where it does, its order first."""
    spelled = [*(routing.order or ()), *(routing.only or ())]
    slugs: dict[str, str] = {}
    for offer in sorted(allowed, key=lambda offer: _rank(offer, spelled)):
        own = next((slug for slug in spelled if offer.is_meant_by(slug)), offer.slug)
        slugs.setdefault(offer.slug, own)
    return list(slugs.values())


def _rank(offer: Offer, spelled: Sequence[str]) -> int:
    return next((at for at, slug in enumerate(spelled) if offer.is_meant_by(slug)), len(spelled))
