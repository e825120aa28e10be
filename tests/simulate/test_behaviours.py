"""Every misbehaviour of OpenRouter's face, over a real socket: what comes, and whether it is charged."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from toolkit.contract import Contract
from toolkit.simulate.account import AccountSettings
from toolkit.simulate.behaviours import BEHAVIOURS, FAULTS, HABITS
from toolkit.simulate.providers import PROVIDERS, SimulatedProvider
from toolkit.simulate.scenario import Scenario
from toolkit.vocabulary import Vocabulary

from .client import CHAT, IM_END, INSTANT, THINK_END, WEATHER, Client, chunks_of, ids_of, joined, only, play, request

CALL = {"tools": [WEATHER], "parallel_tool_calls": False}


def met(
    kimi: Contract, vocabulary: Vocabulary, name: str, *, scenario: dict[str, Any] | None = None, **fields: Any
) -> tuple[Any, Any]:
    """(reply, its ledger entry) of a request that meets `name` for sure."""

    async def script(client: Client) -> Any:
        got = await client.post(request("Tell me of the sea", **fields))
        await client.all_ended()
        return got, client.simulation.ledger.entries[-1]

    return play(kimi, vocabulary, Scenario(faults={name: 1.0}, **(scenario or {})), script)


def torn(kimi: Contract, vocabulary: Vocabulary, name: str, **fields: Any) -> tuple[bytes | None, Any]:
    """(what came before the connection was torn, or None where no header came; the ledger entry)."""

    async def script(client: Client) -> Any:
        content, failed = None, False
        try:
            async with client.session.post(client.url + CHAT, json=request("Tell me", **fields)) as response:
                content = b""
                async for part in response.content.iter_any():
                    content += part
        except aiohttp.ClientError:
            failed = True
        assert failed
        await client.all_ended()
        return content, client.simulation.ledger.entries[-1]

    return play(kimi, vocabulary, Scenario(faults={name: 1.0}), script)


# --- refusals with a status ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "provider_named"),
    [
        ("http_400", 400, True),
        ("http_401", 401, False),
        ("http_403", 403, True),
        ("http_408", 408, True),
        ("http_429", 429, True),
        ("http_429_platform", 429, False),
        ("http_500", 500, False),
        ("http_502", 502, True),
        ("http_504", 504, True),
        ("http_529", 529, True),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_statuses(
    kimi: Contract, vocabulary: Vocabulary, name: str, status: int, provider_named: bool, stream: bool
) -> None:
    got, entry = met(kimi, vocabulary, name, stream=stream, **only("chutes"))
    error = got.json["error"]
    assert (got.status, error["code"], entry.status, entry.fault) == (status, status, status, name)
    assert (error.get("metadata", {}).get("provider_name") == "Chutes") == provider_named
    assert ("X-RateLimit-Limit" in got.headers) == (name == "http_429_platform")
    assert ("Retry-After" in got.headers) == (status == 429)
    assert (entry.billed, entry.cost_usd, entry.delivered) == (False, 0.0, True)


def test_moderation_names_reasons_and_the_prompt(kimi: Contract, vocabulary: Vocabulary) -> None:
    got, _ = met(kimi, vocabulary, "http_403")
    assert {"reasons", "flagged_input", "provider_name", "model_slug"} == set(got.json["error"]["metadata"])


def test_503_says_whether_to_come_again_and_has_no_code(kimi: Contract, vocabulary: Vocabulary) -> None:
    for name, retryable in (("http_503_retryable", True), ("http_503_final", False)):
        got, _ = met(kimi, vocabulary, name)
        error = got.json["error"]
        assert (got.status, error["http_status"], "code" in error) == (503, 503, False)
        assert error["availability"]["retryable"] is retryable
        assert ("Retry-After" in got.headers) is retryable


@pytest.mark.parametrize(
    ("name", "source", "reason", "wish"),
    [
        ("in_flight_402", "openrouter_in_flight_budget", "in_flight_budget_exhausted", "7"),
        ("credits_402", "openrouter_credits", "weight_exceeds_budget", None),
        ("key_limit_402", "openrouter_key_limit", None, None),
    ],
)
def test_three_kinds_of_402(
    kimi: Contract, vocabulary: Vocabulary, name: str, source: str, reason: str | None, wish: str | None
) -> None:
    got, _ = met(kimi, vocabulary, name)
    metadata = got.json["error"]["metadata"]
    assert (got.status, metadata["limit_source"], metadata.get("reason")) == (402, source, reason)
    assert got.headers.get("Retry-After") == wish


def test_some_refusals_state_their_wish(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> list[bool]:
        return ["Retry-After" in (await client.post(request(str(i)))).headers for i in range(60)]

    stated = play(kimi, vocabulary, Scenario(faults={"http_429": 1.0}, retry_after_share=0.5), script)
    assert 15 < sum(stated) < 45


# --- status 200, and no answer ------------------------------------------------------------------


def test_null_everything_with_code_429(kimi: Contract, vocabulary: Vocabulary) -> None:
    got, entry = met(kimi, vocabulary, "rate_limit_in_200", **only("chutes"))
    assert (got.status, got.json["choices"], got.json["usage"], got.json["id"]) == (200, None, None, None)
    assert (got.json["error"]["code"], got.json["error"]["metadata"]["provider_name"]) == (429, "Chutes")
    assert not entry.billed


@pytest.mark.parametrize(("name", "choices"), [("null_choices", None), ("empty_choices", []), ("no_choices", "absent")])
@pytest.mark.parametrize("stream", [False, True])
def test_choices_that_are_none(kimi: Contract, vocabulary: Vocabulary, name: str, choices: Any, stream: bool) -> None:
    got, entry = met(kimi, vocabulary, name, stream=stream)
    body = chunks_of(got.text)[0] if stream else got.json
    assert (got.status, body.get("choices", "absent"), entry.billed) == (200, choices, False)
    if name == "no_choices":
        assert (body["usage"]["completion_tokens"], "cost" in body["usage"]) == (0, False)


def test_a_reply_without_choices_can_cost_money(kimi: Contract, vocabulary: Vocabulary) -> None:
    got, entry = met(kimi, vocabulary, "no_choices_charged")
    assert ("choices" in got.json, entry.billed) == (False, True)
    assert got.json["usage"]["cost"] == entry.cost_usd > 0


def test_an_error_inside_the_choice_with_partial_text(kimi: Contract, vocabulary: Vocabulary) -> None:
    got, entry = met(kimi, vocabulary, "error_in_choice")
    choice = got.json["choices"][0]
    assert (got.status, choice["finish_reason"], choice["error"]["code"]) == (200, "error", 502)
    assert choice["message"]["content"]
    assert (got.json["usage"]["cost"], entry.billed) == (0, False)


def test_a_stream_that_fails_in_the_middle(kimi: Contract, vocabulary: Vocabulary) -> None:
    got, entry = met(kimi, vocabulary, "error_in_stream", stream=True)
    events = [json.loads(e.removeprefix("data: ")) for e in got.text.split("\n\n") if e.startswith("data: {")]
    assert len(events) > 2
    assert (events[-1]["error"]["code"], events[-1]["choices"][0]["finish_reason"]) == (502, "error")
    assert "[DONE]" not in got.text
    assert not entry.billed
    whole, _ = met(kimi, vocabulary, "error_in_stream")
    assert whole.json["choices"][0]["finish_reason"] == "stop"


def test_bodies_of_nothing(kimi: Contract, vocabulary: Vocabulary) -> None:
    for stream in (False, True):
        empty, entry = met(kimi, vocabulary, "empty_body", stream=stream)
        blank, _ = met(kimi, vocabulary, "whitespace_body", stream=stream)
        assert (empty.status, empty.text, blank.status, blank.text.strip()) == (200, "", 200, "")
        assert len(blank.text) > 10
        assert entry.billed
    assert not met(kimi, vocabulary, "empty_body", scenario={"bills_lost": False})[1].billed


# --- connections --------------------------------------------------------------------------------


def test_connections_that_are_torn(kimi: Contract, vocabulary: Vocabulary) -> None:
    content, entry = torn(kimi, vocabulary, "cut_before_headers")
    assert (content, entry.delivered, entry.billed) == (None, False, True)
    content, entry = torn(kimi, vocabulary, "cut_body")
    assert content
    assert (content.startswith(b"{"), entry.delivered, entry.billed) == (True, False, True)
    with pytest.raises(json.JSONDecodeError):
        json.loads(content)


def test_streams_without_done_with_comments_with_usage_alone(kimi: Contract, vocabulary: Vocabulary) -> None:
    whole, _ = met(kimi, vocabulary, "blank_lines", stream=True)
    got, entry = met(kimi, vocabulary, "missing_done", stream=True)
    assert (got.text.endswith("[DONE]\n\n"), entry.delivered, entry.habits) == (False, True, ("missing_done",))
    assert chunks_of(got.text + "data: [DONE]\n\n")[-1]["usage"] == chunks_of(whole.text)[-1]["usage"]
    got, _ = met(kimi, vocabulary, "comments", stream=True)
    assert got.text.count(": OPENROUTER PROCESSING") > 4
    assert joined(chunks_of(got.text)) == joined(chunks_of(whole.text))
    got, _ = met(kimi, vocabulary, "usage_alone", stream=True)
    *_, finished, last = chunks_of(got.text)
    assert (last["choices"], last["usage"], finished["choices"][0]["finish_reason"]) == (
        [],
        chunks_of(whole.text)[-1]["usage"],
        "stop",
    )


def test_blank_lines_come_while_the_model_answers(kimi: Contract, vocabulary: Vocabulary) -> None:
    scenario = Scenario(faults={"blank_lines": 1.0}, latency_s=(0.5, 0.5), keep_alive_s=0.05)

    async def script(client: Client) -> Any:
        parts = []
        async with client.session.post(client.url + CHAT, json=request("x")) as response:
            async for part in response.content.iter_any():
                parts.append((part, client.simulation.ledger.entries[-1].answered is None))
        return parts

    parts = play(kimi, vocabulary, scenario, script)
    assert len(parts) >= 2
    assert (parts[0][0].strip(), parts[0][1]) == (b"", True)
    assert json.loads(b"".join(part for part, _ in parts))["choices"]


def test_tokens_take_their_time(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> list[float]:
        loop, took = asyncio.get_running_loop(), []
        for stream in (False, True):
            began = loop.time()
            await client.post(request("x", max_tokens=50, stream=stream))
            took.append(loop.time() - began)
        return took

    assert min(play(kimi, vocabulary, Scenario(per_token_s=0.004), script)) >= 0.19


# --- who answers --------------------------------------------------------------------------------


def test_a_provider_that_was_excluded_answers(kimi: Contract, vocabulary: Vocabulary) -> None:
    got, entry = met(kimi, vocabulary, "other_provider", **only("inceptron"))
    assert got.json["provider"] == entry.provider == "Chutes"
    got, _ = met(kimi, vocabulary, "other_provider")
    assert got.json["provider"] not in [provider.name for provider in PROVIDERS]


def test_a_model_that_was_not_asked_for_answers(kimi: Contract, vocabulary: Vocabulary) -> None:
    got, _ = met(kimi, vocabulary, "other_model")
    assert not kimi.accepts_model(got.json["model"])


def test_a_request_that_comes_again_gets_the_first_reply_unbilled(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        replies = [(await client.post(request("again", **fields))).json for fields in ({}, {}, {"user": "another"})]
        return replies, client.simulation.ledger.entries

    scenario = Scenario(faults={"duplicate_reply": 1.0}, varies=True)
    (first, second, other), entries = play(kimi, vocabulary, scenario, script)
    assert first == second
    assert first["id"] != other["id"]
    assert [(entry.billed, entry.repeats) for entry in entries] == [(True, False), (False, True), (True, False)]
    assert [entry.attempt for entry in entries] == [0, 1, 0]


# --- what is said -------------------------------------------------------------------------------


def said(kimi: Contract, vocabulary: Vocabulary, name: str, **fields: Any) -> tuple[Any, Any, Any]:
    """(choice, usage, entry) of a reply that meets the habit."""
    got, entry = met(kimi, vocabulary, name, **fields)
    assert entry.billed
    return got.json["choices"][0], got.json.get("usage"), entry


@pytest.fixture(scope="module")
def plain(kimi: Contract, vocabulary: Vocabulary) -> tuple[Any, Any, Any]:
    """The same reply, without any habit."""
    return said(kimi, vocabulary, "blank_lines", **only("chutes"))


def test_places_of_the_reasoning(kimi: Contract, vocabulary: Vocabulary, plain: Any) -> None:
    message, ids = plain[0]["message"], plain[2].output_ids
    reasoning, content = message["reasoning"], message["content"]
    expected = {
        "all_in_reasoning": (reasoning + content, ""),
        "reasoning_in_content": (None, f"{reasoning}</think>{content}"),
        "reasoning_unmarked": (None, reasoning + content),
        "reasoning_null": (None, content),
        "reasoning_empty": ("", content),
        "trimmed_text": (reasoning.strip(), content.strip()),
        "terminal_in_text": (reasoning, content + "<|im_end|>"),
    }
    for name, places in expected.items():
        choice, usage, entry = said(kimi, vocabulary, name, **only("chutes"))
        assert (choice["message"]["reasoning"], choice["message"]["content"]) == places, name
        assert (choice["finish_reason"], usage, entry.output_ids) == ("stop", plain[1], ids), name


def test_the_model_stops_early(kimi: Contract, vocabulary: Vocabulary, plain: Any) -> None:
    reasoning = plain[0]["message"]["reasoning"]
    ids = vocabulary.encode_ordinary(reasoning)
    choice, usage, entry = said(kimi, vocabulary, "no_think_end", **only("chutes"))
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == (reasoning, None)
    assert list(entry.output_ids) == [*ids, IM_END]
    assert (usage["completion_tokens"], choice["finish_reason"]) == (len(ids) + 1, "stop")
    choice, _, entry = said(kimi, vocabulary, "empty_content", **only("chutes"))
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == (reasoning, "")
    assert list(entry.output_ids) == [*ids, THINK_END, IM_END]
    choice, _, entry = said(kimi, vocabulary, "empty_content", **only("chutes"), **INSTANT)
    assert (choice["message"]["content"], entry.output_ids) == ("", (IM_END,))


def test_calls_left_in_the_text(kimi: Contract, vocabulary: Vocabulary) -> None:
    whole, _, honest = said(kimi, vocabulary, "blank_lines", **CALL)
    call = whole["message"]["tool_calls"][0]
    section = (
        f"<|tool_calls_section_begin|><|tool_call_begin|>{call['id']}<|tool_call_argument_begin|>"
        f"{call['function']['arguments']}<|tool_call_end|><|tool_calls_section_end|>"
    )
    choice, _, entry = said(kimi, vocabulary, "tools_in_content", **CALL)
    assert choice["message"]["content"] == (whole["message"]["content"] or "") + section
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("stop", False)
    assert entry.output_ids == honest.output_ids == tuple(ids_of(whole["message"], vocabulary))
    choice, _, entry = said(kimi, vocabulary, "tools_in_reasoning", **CALL)
    assert choice["message"]["reasoning"] == whole["message"]["reasoning"] + section
    assert choice["message"]["content"] == ""
    assert THINK_END not in entry.output_ids
    assert vocabulary.decode_bytes(entry.output_ids).decode() == choice["message"]["reasoning"] + "<|im_end|>"


def test_finish_reasons(kimi: Contract, vocabulary: Vocabulary) -> None:
    choice, _, _ = said(kimi, vocabulary, "finish_null")
    assert (choice["finish_reason"], choice["native_finish_reason"]) == (None, None)
    choice, _, _ = said(kimi, vocabulary, "finish_missing")
    assert not {"finish_reason", "native_finish_reason"} & set(choice)
    choice, usage, _ = said(kimi, vocabulary, "finish_disagrees", max_tokens=20)
    assert (choice["finish_reason"], choice["native_finish_reason"], usage["completion_tokens"]) == (
        "stop",
        "length",
        20,
    )
    choice, _, _ = said(kimi, vocabulary, "finish_disagrees", **CALL)
    assert (choice["finish_reason"], choice["native_finish_reason"]) == ("tool_calls", "stop")
    choice, _, entry = said(kimi, vocabulary, "length_with_terminal")
    assert (choice["finish_reason"], entry.output_ids[-1]) == ("length", IM_END)
    got, _ = met(kimi, vocabulary, "finish_missing", stream=True)
    assert all(c["choices"][0].get("finish_reason") is None for c in chunks_of(got.text))


def test_usage(kimi: Contract, vocabulary: Vocabulary, plain: Any) -> None:
    honest = plain[1]
    _, usage, entry = said(kimi, vocabulary, "usage_missing", **only("chutes"))
    assert (usage, entry.completion_tokens) == (None, honest["completion_tokens"])
    _, usage, _ = said(kimi, vocabulary, "usage_zero", **only("chutes"))
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (0, 0, 0)
    _, usage, entry = said(kimi, vocabulary, "usage_off_by_one", **only("chutes"))
    assert usage["completion_tokens"] == honest["completion_tokens"] + 1 == entry.completion_tokens + 1
    _, usage, _ = said(kimi, vocabulary, "reasoning_outside", **only("chutes"))
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    assert usage["completion_tokens"] + reasoning == honest["completion_tokens"]
    assert usage["cost"] == honest["cost"]


# --- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_whatever_a_request_can_meet_it_meets_and_the_books_hold(
    kimi: Contract, vocabulary: Vocabulary, stream: bool
) -> None:
    """Each name alone at rate 1: met if and only if it says so; billed if an answer was made and nothing insures it."""

    async def script(client: Client) -> Any:
        with contextlib.suppress(aiohttp.ClientError):
            await client.post(request("x", stream=stream, max_tokens=200))
        await client.all_ended()
        return client.simulation.ledger.entries[-1], client.simulation.account.spent_usd

    for name in (*FAULTS, *HABITS):
        behaviour = BEHAVIOURS[name]
        entry, spent = play(kimi, vocabulary, Scenario(faults={name: 1.0}), script)
        meets = behaviour.meets("openrouter", stream=stream)
        assert (entry.fault == name or name in entry.habits) == meets, name
        charged = not meets or behaviour.kind == "habit" or behaviour.billed
        assert (entry.billed, spent > 0, spent) == (charged, charged, entry.cost_usd), name
        assert entry.delivered is not None, name


def test_faults_of_one_provider(kimi: Contract, vocabulary: Vocabulary) -> None:
    bad = SimulatedProvider(name="Bad", slug="bad", faults={"http_502": 1.0})
    good = SimulatedProvider(name="Good", slug="good")

    async def script(client: Client) -> list[int]:
        return [(await client.post(request("x", **only(slug)))).status for slug in ("bad", "good", "bad")]

    assert play(kimi, vocabulary, Scenario(providers=(bad, good)), script) == [502, 200, 502]


def test_the_same_seed_and_requests_in_another_order_meet_the_same_faults(
    kimi: Contract, vocabulary: Vocabulary
) -> None:
    faults = {"http_429": 0.2, "http_502": 0.2, "null_choices": 0.2, "finish_null": 0.5, "usage_missing": 0.5}

    def fates(order: list[int]) -> dict[tuple[str, int], Any]:
        async def script(client: Client) -> Any:
            for i in order:
                await client.post(request(str(i)))
            return {(e.identity, e.attempt): (e.fault, e.habits) for e in client.simulation.ledger.entries}

        return play(kimi, vocabulary, Scenario(faults=faults, seed=4), script)

    order = [i for _ in range(3) for i in range(10)]
    assert fates(order) == fates(order[::-1])
    assert len(set(fates(order).values())) > 5


# --- side endpoints and money -------------------------------------------------------------------


def test_generation_is_told_later(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        reply = (await client.post(request("x"))).json
        early = await client.get(f"/api/v1/generation?id={reply['id']}")
        waiting = client.simulation.generations[reply["id"]]
        client.simulation.generations[reply["id"]] = replace(waiting, ready=waiting.ready - 60)
        late = await client.get(f"/api/v1/generation?id={reply['id']}")
        return reply, early, late, await client.get("/api/v1/generation?id=gen-nobody")

    reply, early, late, unknown = play(kimi, vocabulary, Scenario(generation_after_s=60), script)
    assert (early.status, late.status, unknown.status) == (404, 200, 404)
    data = late.json["data"]
    assert (data["id"], data["provider_name"], data["total_cost"]) == (
        reply["id"],
        reply["provider"],
        reply["usage"]["cost"],
    )
    assert data["native_tokens_completion"] == reply["usage"]["completion_tokens"]


def test_credits_need_a_management_key(kimi: Contract, vocabulary: Vocabulary) -> None:
    account = AccountSettings(credits_usd=5.0, management_key="boss")

    async def script(client: Client) -> Any:
        await client.post(request("x"))
        boss = {"Authorization": "Bearer boss"}
        ordinary, paid = await client.get("/api/v1/credits"), await client.get("/api/v1/credits", headers=boss)
        key = await client.get("/api/v1/key", headers=boss)
        return ordinary.status, paid.json["data"], key.json["data"], client.simulation.account.spent_usd

    status, data, key, spent = play(kimi, vocabulary, Scenario(account=account), script)
    assert (status, data["total_credits"], data["total_usage"]) == (403, 5.0, spent)
    assert key["is_management_key"] is True


def test_the_keys_limit_falls_and_ends(kimi: Contract, vocabulary: Vocabulary) -> None:
    account = AccountSettings(key_limit_usd=0.0008)

    async def script(client: Client) -> Any:
        got = []
        for i in range(12):
            reply = await client.post(request(str(i)))
            key = (await client.get("/api/v1/key")).json["data"]
            got.append((reply, key["limit"], key["limit_remaining"]))
        return got

    got = play(kimi, vocabulary, Scenario(account=account), script)
    left = [remaining for _, _, remaining in got]
    assert left == sorted(left, reverse=True)
    assert (left[-1], got[0][1]) == (0, 0.0008)
    refused = [reply.json["error"] for reply, *_ in got if reply.status == 402]
    assert refused
    assert {error["metadata"]["limit_source"] for error in refused} == {"openrouter_key_limit"}


def test_credits_run_dry(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        return [await client.post(request(str(i))) for i in range(12)]

    got = play(kimi, vocabulary, Scenario(account=AccountSettings(credits_usd=0.0008)), script)
    statuses = [reply.status for reply in got]
    assert statuses == sorted(statuses)
    assert set(statuses) == {200, 402}
    assert got[-1].json["error"]["metadata"]["limit_source"] == "openrouter_credits"


def test_holds_refuse_what_is_in_flight_and_pass(kimi: Contract, vocabulary: Vocabulary) -> None:
    """Three requests of 1,000 tokens at 2 $ a million hold 0.006 $: the third of them finds no room in 0.005 $."""
    account = AccountSettings(credits_usd=0.005, hold_below_usd=10.0, retry_after_s=3)
    scenario = Scenario(account=account, latency_s=(0.4, 0.4), providers=(SimulatedProvider(name="P", slug="p"),))

    async def script(client: Client) -> Any:
        bodies = [request(str(i), max_tokens=1000) for i in range(3)]
        together = await asyncio.gather(*(client.post(body) for body in bodies))
        alone = await client.post(request("later", max_tokens=1000))
        unaffordable = await client.post(request("huge", max_tokens=60_000))
        return together, alone, unaffordable, client.simulation.account

    together, alone, unaffordable, after = play(kimi, vocabulary, scenario, script)
    assert sorted(got.status for got in together) == [200, 200, 402]
    held = next(got for got in together if got.status == 402)
    assert held.json["error"]["metadata"]["reason"] == "in_flight_budget_exhausted"
    assert held.headers["Retry-After"] == "3"
    assert alone.status == 200
    assert (unaffordable.status, unaffordable.json["error"]["metadata"]["reason"]) == (402, "weight_exceeds_budget")
    assert after.held_usd == pytest.approx(0)
