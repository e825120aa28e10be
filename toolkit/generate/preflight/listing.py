"""The list of a model's endpoints against the routing that is asked for, as checks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from toolkit.config import DatasetSettings
from toolkit.generate.preflight.checks import Check, Result
from toolkit.generate.preflight.fetching import Fetched
from toolkit.generate.preflight.offers import Excluded, Offer, Wanted, divide, unsupported
from toolkit.generate.rests import bare

_SHOWN_NAMES = 12


def unlisted_check(name: str, fetched: Fetched, model: str) -> Check:
    """What it means that no list came."""
    value = fetched.value
    if fetched.status is None:
        return Check(about=name, what="providers", result=Result.FAIL, found=fetched.words, expected="a list")
    if fetched.status == 404 and isinstance(value, Mapping) and "error" in value:
        return Check(
            about=name, what="model", result=Result.FAIL, found=f"{model!r:.120} is not listed (404)",
            expected="a model of this endpoint",
        )  # fmt: skip
    found = f"{fetched.words}: no list of providers"
    return Check(about=name, what="providers", result=Result.UNKNOWN, found=found)


def listing_checks(name: str, offers: Sequence[Offer], wanted: Wanted, settings: DatasetSettings) -> Iterator[Check]:
    """What the list says of who may answer, and of each of them."""
    allowed, excluded = divide(offers, wanted)
    yield from _asked_for_checks(name, offers, excluded, wanted)
    if not allowed:
        why = "; ".join(f"{one.offer.tag}: {', '.join(one.why)}" for one in excluded[:_SHOWN_NAMES])
        yield Check(
            about=name, what="providers", result=Result.FAIL, found=why or "the list is empty",
            expected="at least one that may answer",
        )  # fmt: skip
        return
    told = f"{len(allowed)} of {len(offers)} may answer: {_some([offer.name for offer in allowed])}"
    yield Check(about=name, what="providers", result=Result.OK, found=told)
    all_short = all(_is_short(offer, wanted) for offer in allowed)
    for offer in allowed:
        yield from _offer_checks(name, offer, wanted, all_short=all_short)
    yield from _allow_list_checks(name, allowed, settings)


def _asked_for_checks(
    name: str, offers: Sequence[Offer], excluded: Sequence[Excluded], wanted: Wanted
) -> Iterator[Check]:
    """Every provider that the routing names has to be there, under its slug, and able to answer."""
    why = {one.offer.tag: one.why for one in excluded}
    for place in ("only", "order", "ignore"):
        for slug in getattr(wanted.routing, place) or ():
            found = [offer for offer in offers if offer.is_meant_by(slug)]
            if not found:
                yield _missing(name, offers, place, slug)
            elif place != "ignore" and all(offer.tag in why for offer in found):
                told = "; ".join(f"{offer.tag}: {', '.join(why[offer.tag])}" for offer in found)
                yield Check(
                    about=name, what=f"routing {place}", provider=slug, result=Result.FAIL, found=told,
                    expected="a provider that may answer",
                )  # fmt: skip


def _missing(name: str, offers: Sequence[Offer], place: str, slug: str) -> Check:
    meant = sorted({offer.slug for offer in offers if bare(offer.name) == bare(slug) or offer.slug == slug.lower()})
    if meant:
        found = f"{slug!r} is no slug; expected {' or '.join(map(repr, meant))}"
    else:
        listed = _some(sorted({offer.slug for offer in offers})) or "nobody"
        found = f"{slug!r} does not offer this model; found {listed}"
    # Whom one wants to keep out need not be there; but under a wrong name nobody is kept out.
    result = Result.FAIL if place != "ignore" or meant else Result.WARN
    return Check(
        about=name, what=f"routing {place}", provider=slug, result=result, found=found,
        expected="the slug of a provider that offers the model",
    )  # fmt: skip


def _is_short(offer: Offer, wanted: Wanted) -> bool:
    """Whether its context has no room for some prompt and its answer."""
    length, total = offer.context_length, wanted.longest_total
    return length is not None and total is not None and length < total


def _offer_checks(name: str, offer: Offer, wanted: Wanted, *, all_short: bool) -> Iterator[Check]:
    def check(what: str, result: Result, found: str, expected: str = "") -> Check:
        return Check(about=name, what=what, provider=offer.name, result=result, found=found, expected=expected)

    price = offer.price
    if price is None:
        yield check("price", Result.UNKNOWN, "no price is listed")
    else:
        told = f"${price.prompt * 1e6:g} prompt, ${price.completion * 1e6:g} completion for a million tokens"
        yield check("price", Result.OK, told)
    yield _quantization_check(name, offer, wanted)
    if offer.status is None or offer.status != 0:
        found = "none is listed" if offer.status is None else f"{offer.status}: what that means is not documented"
        yield check("status", Result.UNKNOWN, found, "0")
    yield _context_check(name, offer, wanted, all_short=all_short)
    missing = unsupported(offer, wanted.parameters)
    if offer.parameters is None:
        yield check("parameters", Result.UNKNOWN, "the list does not say which it supports")
    elif missing:
        dropped = f"{', '.join(missing)}: not supported, and dropped without a word (require_parameters is not set)"
        yield check("parameters", Result.WARN, dropped, "all that are sent")
    else:
        yield check("parameters", Result.OK, f"supports all {len(wanted.parameters)} that are sent")


def _quantization_check(name: str, offer: Offer, wanted: Wanted) -> Check:
    found, result = offer.quantization or "not told", Result.OK
    asked = wanted.routing.quantizations
    if offer.quantization is None:
        result = Result.UNKNOWN
    return Check(
        about=name, what="quantization", provider=offer.name, result=result, found=found,
        expected=", ".join(asked) if asked else "",
    )  # fmt: skip


def _context_check(name: str, offer: Offer, wanted: Wanted, *, all_short: bool) -> Check:
    total, length = wanted.longest_total, offer.context_length
    if length is None or total is None:
        found = "the list does not say" if length is None else "the longest prompt could not be rendered"
        return Check(about=name, what="context", provider=offer.name, result=Result.UNKNOWN, found=found)
    found = f"{length:,} tokens; the longest prompt and its max_tokens come to {total:,}"
    if total <= length:
        return Check(about=name, what="context", provider=offer.name, result=Result.OK, found=found)
    # Where somebody else has the room, the prompt is answered; where nobody has, it never is.
    result = Result.FAIL if all_short else Result.WARN
    expected = "room for every prompt and answer"
    return Check(about=name, what="context", provider=offer.name, result=result, found=found, expected=expected)


def _allow_list_checks(name: str, allowed: Sequence[Offer], settings: DatasetSettings) -> Iterator[Check]:
    """The audit goes by display names: who may answer and is not named there is paid for in vain."""
    if not settings.providers:
        return
    named = {provider.lower() for provider in settings.providers}
    strangers = sorted({offer.name for offer in allowed if offer.name.lower() not in named})
    if strangers:
        yield Check(
            about=name, what="allow list", result=Result.WARN,
            found=f"{_some(strangers)} may answer, but the dataset's providers do not name them",
            expected="the display name of everybody who may answer, or nobody else in the routing",
        )  # fmt: skip


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
