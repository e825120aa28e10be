"""Everything that can be learned of an endpoint for nothing: its account, its list of providers, its health."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from toolkit.config import EndpointSettings
from toolkit.generate.native import server_of
from toolkit.generate.preflight.checks import Check
from toolkit.generate.preflight.credit import credit_check, key_checks, spendable_usd
from toolkit.generate.preflight.engines import HEALTH, MODEL_INFO, health_check, model_checks
from toolkit.generate.preflight.fetching import fetch
from toolkit.generate.preflight.listing import listing_checks, unlisted_check
from toolkit.generate.preflight.offers import Offer, Wanted, divide, offers_of
from toolkit.generate.preparing import Job
from toolkit.generate.request import headers_of
from toolkit.generate.transport import Transport
from toolkit.records import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What an endpoint says of itself.

    Attributes:
        allowed: Providers that may answer; None where no list came, or the endpoint has no providers.
        credit_usd: What may still be spent; None where it is not known.
    """

    checks: tuple[Check, ...] = ()
    allowed: tuple[Offer, ...] | None = None
    credit_usd: float | None = None


async def look_aside(job: Job, wanted: Wanted, transport: Transport, now: float) -> Side:
    """Ask what costs nothing; `now` in seconds since 1970.

    Raises:
        ConfigError: the key is missing.
    """
    endpoint = job.endpoint
    headers = headers_of(endpoint, endpoint.key())
    if endpoint.source == Source.OPENROUTER:
        return await _openrouter(job, wanted, transport, headers, now)
    if endpoint.source == Source.SGLANG:
        return await _sglang(job, transport, headers)
    # No other server's side is documented here: what it serves is seen in its replies.
    return Side()


async def _openrouter(job: Job, wanted: Wanted, transport: Transport, headers: dict[str, str], now: float) -> Side:
    endpoint, name = job.endpoint, job.endpoint.name
    # `:nitro` and its like change routing; the model that is listed has none of them.
    model = job.model.partition(":")[0]
    key, credit, listed = await asyncio.gather(
        fetch(transport, endpoint, headers, "/key"),
        fetch(transport, endpoint, headers, "/credits"),
        fetch(transport, endpoint, headers, f"/models/{model}/endpoints"),
    )
    checks = list(key_checks(name, key, now))
    if key.status is None:
        # One word about an endpoint that cannot be reached is enough.
        return Side(checks=tuple(checks))
    checks.append(credit_check(name, credit))
    offers = offers_of(listed.body) if listed.is_ok else None
    allowed: tuple[Offer, ...] | None = None
    if offers is None:
        checks.append(unlisted_check(name, listed, model))
    else:
        checks += listing_checks(name, offers, wanted, job.settings)
        allowed = tuple(divide(offers, wanted)[0])
    return Side(checks=tuple(checks), allowed=allowed, credit_usd=spendable_usd(key, credit))


async def _sglang(job: Job, transport: Transport, headers: dict[str, str]) -> Side:
    endpoint: EndpointSettings = job.endpoint
    base = server_of(endpoint.url)
    health, info = await asyncio.gather(
        fetch(transport, endpoint, headers, HEALTH, base=base),
        fetch(transport, endpoint, headers, MODEL_INFO, base=base),
    )
    checks = [health_check(endpoint.name, health)]
    if health.status is not None:
        checks += model_checks(endpoint.name, info, job.contract)
    return Side(checks=tuple(checks))
