"""Limits and the account: as values with a clock of the test's own, and over a real socket."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.generate.retry import parse_retry_after
from toolkit.simulate.account import Account, AccountSettings
from toolkit.simulate.limits import Limit, Limiter
from toolkit.simulate.providers import SimulatedProvider
from toolkit.simulate.scenario import Scenario
from toolkit.vocabulary import Vocabulary

from .client import Client, play, request


def test_a_bucket_lets_through_its_rate_after_its_burst() -> None:
    limiter = Limiter(Limit(per_s=10, burst=5, retry_after_s=0))
    allowed = [limiter.admit(100 + i / 100) for i in range(1000)]
    assert allowed[:5] == [True] * 5
    assert sum(allowed) == pytest.approx(5 + 100, abs=1)
    tally = limiter.tally(after_s=2)
    assert (tally.seconds, tally.allowed + tally.refused) == (7, 700)
    assert tally.goodput_per_s == pytest.approx(10, abs=0.5)
    assert tally.refused_share == pytest.approx(0.9, abs=0.01)


def test_a_client_that_waits_as_wished_is_refused_rarely() -> None:
    limiter = Limiter(Limit(per_s=10, burst=1, retry_after_s=0))
    now, refused = 0.0, 0
    for _ in range(50):
        while not limiter.admit(now):
            refused += 1
            now += limiter.wish_s() or 0
    assert refused == 49
    assert limiter.allowed_by_s.total() == 50


def test_a_window_lets_through_as_much_whenever_it_comes() -> None:
    limiter = Limiter(Limit(per_s=2, window_s=5, retry_after_s=0))
    assert sum(limiter.admit(100.5 + i / 1000) for i in range(30)) == 10
    assert limiter.wish_s() == 5
    assert not limiter.admit(105.4)
    assert (limiter.wish_s(), limiter.remaining) == (1, 0)
    assert sum(limiter.admit(105.6 + i / 10) for i in range(30)) == 10
    assert limiter.limit.size == 10


def test_a_wish_may_be_a_date() -> None:
    limiter = Limiter(Limit(per_s=1, retry_after_s=3, retry_after_date=True))
    assert limiter.header(3, 1_700_000_000.2) == "Tue, 14 Nov 2023 22:13:24 GMT"
    assert Limiter(Limit(per_s=1)).header(3, 1.0) == "3"


@pytest.mark.parametrize("fields", [{"window_s": 5}, {"window_s": 5, "per_s": 1, "burst": 3}, {"window_s": 0}])
def test_impossible_windows_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="window_s"):
        Limit(**fields)


def test_in_flight_is_capped_and_given_back() -> None:
    limiter = Limiter(Limit(in_flight=2))
    assert [limiter.admit(1.0), limiter.admit(1.0), limiter.admit(1.0)] == [True, True, False]
    limiter.leave()
    assert limiter.admit(1.0)
    assert Limiter(Limit()).wish_s() is None


def test_an_account_holds_refuses_and_gives_back() -> None:
    account = Account(AccountSettings(credits_usd=1.0, hold_below_usd=2.0, hold_cap_tokens=100))
    prices = {"prompt_usd": 0.001, "completion_usd": 0.004}
    hold = account.hold_of(prompt_tokens=100, max_tokens=None, **prices)
    assert hold == pytest.approx(0.5)
    assert account.hold_of(prompt_tokens=0, max_tokens=50, **prices) == pytest.approx(0.2)
    assert account.hold_of(prompt_tokens=0, max_tokens=500, **prices) == pytest.approx(0.4)
    assert [account.reserve(hold), account.reserve(hold), account.reserve(hold)] == [None, None, "in_flight_402"]
    account.release(hold)
    account.spend(0.1)
    assert account.reserve(hold) == "in_flight_402"
    account.release(hold)
    assert account.reserve(0.95) == "credits_402"
    rich = Account(AccountSettings(credits_usd=10.0, hold_below_usd=2.0))
    assert rich.hold_of(prompt_tokens=100, max_tokens=100, **prices) == 0
    assert Account(AccountSettings(key_limit_usd=0)).reserve(0) == "key_limit_402"


@pytest.mark.parametrize(
    "fields", [{"per_s": 0}, {"burst": 0}, {"in_flight": -1}, {"retry_after_s": -1}, {"retry_after_share": 2}]
)
def test_impossible_limits_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        Limit(**fields)


def test_impossible_accounts_are_refused() -> None:
    with pytest.raises(ConfigError, match="credits_usd"):
        AccountSettings(credits_usd=-1)


# --- over a socket ------------------------------------------------------------------------------

SLOW = SimulatedProvider(name="Slow", slug="slow", limit=Limit(in_flight=3, retry_after_s=4))
FREE = SimulatedProvider(name="Free", slug="free", share=1e-9)


def together(kimi: Contract, vocabulary: Vocabulary, scenario: Scenario, n: int = 8, **fields: Any) -> Any:
    async def script(client: Client) -> Any:
        got = await asyncio.gather(*(client.post(request(str(i), **fields)) for i in range(n)))
        again = await client.post(request("later", **fields))
        ledger = (await client.get("/_ledger")).json
        return got, again, ledger

    return play(kimi, vocabulary, scenario, script)


def test_a_provider_at_its_limit_says_so(kimi: Contract, vocabulary: Vocabulary) -> None:
    got, again, ledger = together(kimi, vocabulary, Scenario(providers=(SLOW,), latency_s=(0.4, 0.4)))
    assert Counter(reply.status for reply in got) == {200: 3, 429: 5}
    refused = next(reply for reply in got if reply.status == 429)
    assert refused.json["error"]["metadata"]["provider_name"] == "Slow"
    assert (refused.headers["Retry-After"], "X-RateLimit-Limit" in refused.headers) == ("4", False)
    assert again.status == 200
    assert (ledger["limits"]["slow"]["allowed"], ledger["limits"]["slow"]["refused"]) == (4, 5)
    assert (ledger["limits"]["slow"]["in_flight"], ledger["totals"]["billed"]) == (0, 4)


def test_a_refusal_states_a_date_where_the_limit_does(kimi: Contract, vocabulary: Vocabulary) -> None:
    dated = Limit(in_flight=3, retry_after_s=4, retry_after_date=True)
    providers = (SimulatedProvider(name="Slow", slug="slow", limit=dated),)
    for scenario in (Scenario(providers=providers, latency_s=(0.4, 0.4)), Scenario(limit=dated, latency_s=(0.4, 0.4))):
        got, _, _ = together(kimi, vocabulary, scenario)
        wish = next(reply.headers["Retry-After"] for reply in got if reply.status == 429)
        waits_s = parse_retry_after(wish, now=time.time())
        assert waits_s is not None
        assert 2.0 <= waits_s <= 5.0


def test_a_request_falls_back_where_it_may(kimi: Contract, vocabulary: Vocabulary) -> None:
    scenario = Scenario(providers=(SLOW, FREE), latency_s=(0.4, 0.4), falls_back=True)
    got, _, _ = together(kimi, vocabulary, scenario)
    assert Counter(reply.json["provider"] for reply in got) == {"Slow": 3, "Free": 5}
    got, _, _ = together(kimi, vocabulary, scenario, provider={"allow_fallbacks": False})
    assert Counter(reply.status for reply in got) == {200: 3, 429: 5}


def test_openrouters_own_limit_has_its_headers(kimi: Contract, vocabulary: Vocabulary) -> None:
    scenario = Scenario(limit=Limit(per_s=1, burst=2, retry_after_s=0))
    got, _, _ = together(kimi, vocabulary, scenario, 5)
    refused = [reply for reply in got if reply.status == 429]
    assert len(refused) == 3
    for reply in refused:
        assert {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} <= set(reply.headers)
        assert reply.headers["Retry-After"] == "1"
    assert all("X-RateLimit-Limit" not in reply.headers for reply in got if reply.status == 200)


def test_an_engine_at_its_limit_is_busy(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        bodies = [request(str(i)) for i in range(4)]
        return await asyncio.gather(*(client.post(body, "/v1/chat/completions") for body in bodies))

    scenario = Scenario(limit=Limit(in_flight=1), latency_s=(0.4, 0.4))
    got = play(kimi, vocabulary, scenario, script)
    assert Counter(reply.status for reply in got) == {200: 1, 503: 3}


def test_who_hangs_up_leaves_the_limits(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        for _ in range(3):
            await client.hang_up(request("x"))
        held = client.simulation.limiter.in_flight
        await client.all_ended()
        return held, client.simulation.limiter.in_flight, [e.delivered for e in client.simulation.ledger.entries]

    scenario = Scenario(limit=Limit(in_flight=9), latency_s=(0.5, 0.5))
    assert play(kimi, vocabulary, scenario, script) == (3, 0, [False] * 3)
