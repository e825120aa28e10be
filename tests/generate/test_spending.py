"""Whole runs on a budget: where they end, what is drained, and what makes them stop."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable

import pytest
from aiohttp import web

from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.generate.books import counted_as
from toolkit.generate.run import Surroundings, generate
from toolkit.generate.summary import RunSummary
from toolkit.store.journal import read_failures
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

from .conftest import endpoint_at, write_prompts
from .server import Scripted, completion, json_reply

Run = Callable[..., RunSummary]
Server = tuple[Scripted, str]


def tokens_in(dataset: Dataset) -> int:
    tables = [read_shard(dataset, shard, ["completion_tokens"]) for shard in read_live(dataset).shards]
    return sum(sum(table["completion_tokens"].to_pylist()) for table in tables)


def answer(tokens: int, cost: float | None = 0.001) -> dict:
    return completion(usage={"prompt_tokens": 9, "completion_tokens": tokens, "cost": cost})


def slowly(body: dict, seconds: float = 0.02):
    async def reply(_: web.Request) -> web.Response:
        await asyncio.sleep(seconds)
        return json_reply(body)

    return [reply]


def test_a_budget_of_tokens_ends_within_one_answer_of_it_and_nothing_paid_is_lost(
    dataset: Dataset, run: Run, scripted: Server
):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(200)])
    server.default = slowly(answer(90))
    summary = run(endpoint_at(url, concurrency=50), max_total_tokens=5_000)
    assert 5_000 - 256 < tokens_in(dataset) == summary.tokens <= 5_000
    assert summary.answered == summary.requests == len(server.bodies)
    assert (summary.exit_code, summary.left) == (3, 200 - summary.answered)
    assert "budget of 5,000 tokens is spent" in (summary.stopped or "")
    # The tokens of this run count in the next one.
    again = run(endpoint_at(url), max_total_tokens=5_000)
    assert (again.requests, again.tokens_before) == (0, summary.tokens)
    more = run(endpoint_at(url), max_total_tokens=7_000)
    assert 7_000 - 256 < tokens_in(dataset) == more.tokens_before + more.tokens <= 7_000


def test_an_answer_that_does_not_say_its_tokens_counts_as_the_longest(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(10)])
    server.default = [lambda _: json_reply(completion(usage={"prompt_tokens": 9}))]
    assert run(endpoint_at(url), max_total_tokens=256 * 3).answered == 3


def test_a_budget_in_dollars_is_never_exceeded_and_used_up(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(300)])
    listed = {"provider_name": "Chutes", "tag": "chutes", "pricing": {"prompt": "0.000001", "completion": "0.00001"}}
    server.pages["/models/moonshotai/kimi-k2.5/endpoints"] = lambda: {"data": {"endpoints": [listed]}}
    server.default = slowly(answer(100, cost=9e-6 + 100e-5))
    summary = run(endpoint_at(url, concurrency=50), dollars=0.1)
    most = 256e-5 + 400e-6
    assert 0.1 - most < summary.cost_usd <= 0.1
    assert summary.answered == summary.requests == len(server.bodies)
    assert "the budget of $0.1000 is spent" in (summary.stopped or "")


def test_without_a_price_list_the_first_reply_says_what_a_request_costs(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(30)])
    at_once = most_at_once = 0

    async def reply(_: web.Request) -> web.Response:
        nonlocal at_once, most_at_once
        at_once += 1
        most_at_once = max(most_at_once, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        return json_reply(answer(100, cost=0.01))

    server.default = [reply]
    summary = run(endpoint_at(url, concurrency=20), dollars=0.1)
    assert summary.cost_usd <= 0.1
    assert most_at_once <= 3
    assert summary.answered >= 3


def test_a_budget_in_dollars_that_no_reply_can_be_held_against_stops_the_run(
    dataset: Dataset, run: Run, scripted: Server
):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(30)])
    server.default = [lambda _: json_reply(answer(10, cost=None))]
    summary = run(endpoint_at(url), dollars=1.0)
    assert "expected replies to state their cost" in (summary.stopped or "")
    assert summary.answered == 8


def test_a_ceiling_on_prices_is_enough_to_admit_many_at_once(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(30)])
    server.default = [lambda _: json_reply(answer(10, cost=0.00001))]
    summary = run(endpoint_at(url, provider={"max_price": {"prompt": 1, "completion": 3}}), dollars=1.0)
    assert (summary.answered, summary.stopped) == (30, None)


def test_a_key_that_runs_dry_ends_the_run_before_it_is_refused(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(100)])
    server.pages["/key"] = lambda: {"data": {"limit_remaining": 0.02}}
    server.default = slowly(answer(250, cost=0.001))
    summary = run(endpoint_at(url, concurrency=4), dollars=1.0)
    assert 0.01 < summary.cost_usd <= 0.02
    assert "the credit of $0.02" in (summary.stopped or "")


def test_without_credit_nothing_is_asked(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(100)])
    server.pages["/key"] = lambda: {"data": {"limit_remaining": 0}}
    server.default = slowly(answer(250), 0.05)
    summary = run(endpoint_at(url, concurrency=1))
    assert "used up" in (summary.stopped or "")
    assert summary.requests <= 2


def test_money_held_for_what_is_in_flight_pauses_and_shrinks_but_stops_nothing(
    dataset: Dataset, run: Run, scripted: Server
):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(20)])
    metadata = {"limit_source": "openrouter_in_flight_budget", "reason": "in_flight_budget_exhausted"}
    held = {"error": {"code": 402, "message": "x", "metadata": metadata}}
    server.steps["q3"] = [lambda _: json_reply(held, 402, **{"Retry-After": "7"}), lambda _: json_reply(completion())]
    waits: list[float] = []
    summary = run(endpoint_at(url), waits=waits)
    assert (summary.answered, summary.stopped, summary.failures) == (20, None, {})
    assert 7.5 in waits


@pytest.mark.parametrize(
    ("source", "reason"),
    [("openrouter_credits", "weight_exceeds_budget"), ("openrouter_credits", None), ("openrouter_key_limit", None)],
)
def test_money_that_is_used_up_stops_the_run_without_a_storm(
    dataset: Dataset, run: Run, scripted: Server, source: str, reason: str | None
):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(50)])
    body = {"error": {"code": 402, "message": "x", "metadata": {"limit_source": source, "reason": reason}}}
    server.default = [lambda _: json_reply(body, 402)]
    summary = run(endpoint_at(url, concurrency=4))
    assert summary.stopped is not None
    assert len(server.bodies) <= 8
    assert summary.failed_final == 0
    server.default = [lambda _: json_reply(completion())]
    assert run(endpoint_at(url)).answered == 50


def test_strangers_that_answer_all_the_time_stop_the_run(dataset: Dataset, run: Run, scripted: Server):
    _, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(100)])
    summary = run(endpoint_at(url, concurrency=2, provider={"only": ["moonshotai"]}))
    assert "providers that are not allowed" in (summary.stopped or "")
    assert (summary.answered, summary.requests) == (0, summary.failed_transient)
    assert summary.requests <= 12
    assert read_live(dataset).shards == ()


def test_a_provider_that_fails_is_ignored_for_a_while(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(60)])

    async def reply(request: web.Request) -> web.Response:
        asked = (await request.json())["provider"]
        if "chutes" not in asked.get("ignore", ()):
            body = {"error": {"code": 502, "message": "down", "metadata": {"provider_name": "Chutes"}}}
            return json_reply(body, 502)
        return json_reply(completion(provider="Moonshot AI"))

    server.default = [reply]
    summary = run(endpoint_at(url, concurrency=2, max_tries=12, provider={"only": ["chutes", "moonshotai"]}))
    assert (summary.answered, dict(summary.providers)) == (60, {"Moonshot AI": 60})
    assert all(body["provider"]["only"] == ["chutes", "moonshotai"] for body in server.bodies)
    assert len([body for body in server.bodies if "ignore" not in body["provider"]]) < 20


def test_a_null_body_with_an_error_inside_blames_its_provider_once(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, ["odd"])
    metadata = {"raw": "slow down", "provider_name": "HostA"}
    error = {"code": 429, "message": "Provider returned error", "metadata": metadata}
    body = {"id": None, "choices": None, "usage": None, "error": error}
    server.default = [lambda _: json_reply(body)]
    summary = run(endpoint_at(url, max_tries=2))
    assert (summary.failures, summary.requests) == ({"http_429": 1}, 2)
    (failure,) = read_failures(dataset.failures)
    assert (failure.provider, failure.status, failure.final) == ("HostA", 429, False)


def test_a_refusal_of_the_platform_holds_everybody_and_one_of_a_provider_does_not(
    dataset: Dataset, scripted: Server, kimi: Contract, vocabulary: Vocabulary
):
    server, url = scripted
    came: dict[str, float] = {}

    def noting(name: str, reply: Callable[[], web.Response]):
        async def answer(_: web.Request) -> web.Response:
            came[name] = time.monotonic()
            return reply()

        return answer

    def refusing(**error: dict) -> web.Response:
        return json_reply({"error": {"code": 429, "message": "x", **error}}, 429, **{"Retry-After": "0.4"})

    def play(first: str, second: str, refusal: Callable[[], web.Response]) -> float:
        """Seconds from the refusal of the first ask to the second ask."""
        server.steps[first] = [noting(first, refusal), lambda _: json_reply(completion())]
        server.steps[second] = [noting(second, lambda: json_reply(completion()))]
        around = Surroundings(chance=lambda: 0.0)
        settings = DatasetSettings(max_tokens=256)
        generate(dataset, settings, endpoint_at(url, concurrency=1), kimi, vocabulary, surroundings=around)
        return came[second] - came[first]

    write_prompts(dataset, ["a", "b"])
    assert play("a", "b", refusing) >= 0.4
    write_prompts(dataset, ["a", "b", "c", "d"])
    play("c", "d", lambda: refusing(metadata={"provider_name": "HostA"}))
    # The ask that was refused waits; the other one does not wait for it.
    assert [body["messages"][-1]["content"] for body in server.bodies[-3:]] == ["c", "d", "c"]


def test_what_a_run_spends_is_in_its_status(dataset: Dataset, run: Run, scripted: Server):
    _, url = scripted
    write_prompts(dataset, ["a", "b"])
    run(endpoint_at(url), max_total_tokens=10_000)
    status = json.loads((dataset.folder / "run.json").read_bytes())
    shown = ("phase", "asked", "answered", "left", "tokens", "tokens_budget", "cost_usd", "in_flight")
    assert {key: status[key] for key in shown} == {
        "phase": "done", "asked": 2, "answered": 2, "left": 0, "tokens": 12, "tokens_budget": 10_000,
        "cost_usd": 0.002, "in_flight": 0,
    }  # fmt: skip
    assert status["providers"] == {"Chutes": 2}


def test_of_names_that_a_server_invents_some_are_counted_and_the_rest_together() -> None:
    counts: Counter[str] = Counter()
    for number in range(1_000):
        counts[counted_as(f"name {number}", counts)] += 1
        counts[counted_as("name 3", counts)] += 1
    assert (len(counts), counts.total(), counts["name 3"]) == (257, 2_000, 1_001)
    assert counts["(other names)"] == 1_000 - 256
