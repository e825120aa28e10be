"""What an account and a model's endpoints say of themselves (OpenRouter's side endpoints). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from toolkit.config import Routing
from toolkit.generate.budget import Price
from toolkit.generate.rests import bare
from toolkit.records import Json
from toolkit.wire.json import NotJsonError, load_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The endpoints behind one model.

    Attributes:
        price: The highest prices among those who may answer; None where nobody states any.
        slugs: Slug by display name.
    """

    price: Price | None = None
    slugs: Mapping[str, str] = field(default_factory=dict)


def remaining_usd(key: bytes | None, credit: bytes | None) -> float | None:
    """What may still be spent, in US dollars: the less of the key's limit and the account's credit.

    Args:
        key: Body of `GET /key`; None where there is none.
        credit: Body of `GET /credits`; None where the key may not ask for it.
    """
    limit = number_in(data_in(key).get("limit_remaining"))
    account = data_in(credit)
    bought, used = number_in(account.get("total_credits")), number_in(account.get("total_usage"))
    known = [limit] if limit is not None else []
    if bought is not None and used is not None:
        known.append(bought - used)
    return min(known, default=None)


def listing_of(body: bytes | None, routing: Routing) -> Listing:
    """What `GET /models/AUTHOR/SLUG/endpoints` says; nothing where it cannot be read."""
    listed = data_in(body).get("endpoints")
    endpoints = [item for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
    slugs = {
        name: tag
        for item in endpoints
        if isinstance(name := item.get("provider_name"), str) and isinstance(tag := item.get("tag"), str)
    }
    prices = list(_prices(endpoints, routing))
    if not prices:
        return Listing(slugs=slugs)
    highest = Price(max(price.prompt for price in prices), max(price.completion for price in prices))
    return Listing(price=highest, slugs=slugs)


def _prices(endpoints: list[Mapping[str, Json]], routing: Routing) -> Iterator[Price]:
    allowed = routing.only or (routing.order if routing.allow_fallbacks is False else None)
    names = None if allowed is None else {bare(slug) for slug in allowed}
    for item in endpoints:
        called = {bare(value) for key in ("provider_name", "tag") if isinstance(value := item.get(key), str)}
        pricing = item.get("pricing")
        if not isinstance(pricing, Mapping) or (names is not None and not called & names):
            continue
        prompt, completion = number_in(pricing.get("prompt")), number_in(pricing.get("completion"))
        if prompt is not None and completion is not None and min(prompt, completion) >= 0:
            yield Price(prompt, completion)


def data_in(body: bytes | None) -> Mapping[str, Json]:
    """The object `data` of a body; empty where there is none."""
    try:
        value = load_json(body) if body else None
    except NotJsonError:
        return {}
    data = value.get("data") if isinstance(value, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def number_in(value: Json) -> float | None:
    """A finite number, written as such or as text; prices come as text."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e12 else None
