"""The key and what it may still spend, from `GET /key` and `GET /credits` of OpenRouter. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from toolkit.generate.account import data_in, number_in, remaining_usd
from toolkit.generate.preflight.checks import Check, Result
from toolkit.generate.preflight.fetching import Fetched
from toolkit.records import Json

_SOON_S = 86_400.0


def key_checks(name: str, key: Fetched, now: float) -> Iterator[Check]:
    """What `GET /key` says; `now` in seconds since 1970."""
    if key.status is None:
        # It costs nothing and every endpoint of this kind has it: where it cannot be reached, nothing can.
        yield Check(
            about=name, what="endpoint", result=Result.FAIL, found=key.words, expected="an endpoint that answers"
        )
        return
    if key.status == 401:
        yield Check(
            about=name, what="key", result=Result.FAIL, found="the key is not accepted (401)", expected="a valid key"
        )
        return
    data = data_in(key.body) if key.is_ok else {}
    if not data:
        yield Check(about=name, what="key", result=Result.UNKNOWN, found=f"{key.words}: says nothing about the key")
        return
    yield _limit_check(name, data)
    yield from _expiry_checks(name, data.get("expires_at"), now)
    if data.get("is_free_tier") is True:
        found = "free tier: models without cost only, at few requests a minute and a day"
        yield Check(about=name, what="key", result=Result.WARN, found=found)


def _limit_check(name: str, data: Mapping[str, Json]) -> Check:
    limit, left = number_in(data.get("limit")), number_in(data.get("limit_remaining"))
    if left is None:
        nothing = "limit_remaining" in data and data["limit_remaining"] is None
        found = "no limit of its own" if nothing else "does not say what its limit leaves"
        return Check(about=name, what="key", result=Result.OK if nothing else Result.UNKNOWN, found=found)
    found = f"${left:,.2f} left" + (f" of its limit of ${limit:,.2f}" if limit is not None else "")
    reset = data.get("limit_reset")
    if isinstance(reset, str) and reset:
        found += f", reset {reset[:40]}"
    return Check(
        about=name, what="key", result=Result.OK if left > 0 else Result.FAIL, found=found, expected="more than $0"
    )


def _expiry_checks(name: str, expires: Json, now: float) -> Iterator[Check]:
    if expires is None:
        return
    moment = _seconds_of(expires)
    if moment is None:
        yield Check(about=name, what="key expires", result=Result.UNKNOWN, found=f"{expires!r:.60} is no date")
        return
    result = Result.FAIL if moment <= now else Result.WARN if moment - now < _SOON_S else Result.OK
    found = f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
    yield Check(about=name, what="key expires", result=result, found=found, expected="after the run")


def _seconds_of(value: Json) -> float | None:
    """Seconds since 1970 of an ISO 8601 date; None for anything else."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def credit_check(name: str, credit: Fetched) -> Check:
    """What `GET /credits` says; an ordinary key may not ask, which is no fault."""
    if credit.status == 403:
        found = "an ordinary key may not ask for the account's credit (403)"
        return Check(about=name, what="credit", result=Result.UNKNOWN, found=found)
    left = remaining_usd(None, credit.body) if credit.is_ok else None
    if left is None:
        return Check(about=name, what="credit", result=Result.UNKNOWN, found=f"{credit.words}: no credit is told")
    result = Result.OK if left > 0 else Result.FAIL
    return Check(about=name, what="credit", result=result, found=f"${left:,.2f} left", expected="more than $0")


def spendable_usd(key: Fetched, credit: Fetched) -> float | None:
    """The less of the key's limit and the account's credit, US dollars; None where neither is known."""
    return remaining_usd(key.body if key.is_ok else None, credit.body if credit.is_ok else None)
