"""Replies over a real socket: their ids, their counts, their shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit.contract import Contract
from toolkit.simulate.providers import SimulatedProvider
from toolkit.simulate.scenario import Scenario
from toolkit.vocabulary import Vocabulary

from .client import IM_END, INSTANT, WEATHER, Client, chunks_of, ids_of, joined, only, play, request

QUESTIONS = ("Prove that 2 is prime.", "写一首诗", "Write code", "A few emoji, please", "Tell me of the sea")


@pytest.mark.parametrize(("slug", "left_out"), [("chutes", 0), ("inceptron", 1), ("modelrun", 0)])
@pytest.mark.parametrize("fields", [{}, INSTANT, {"tools": [WEATHER]}, {"tools": [WEATHER], **INSTANT}])
def test_counts_follow_the_providers_convention(
    kimi: Contract, vocabulary: Vocabulary, slug: str, left_out: int, fields: dict[str, Any]
) -> None:
    async def script(client: Client) -> list[Any]:
        return [(await client.post(request(text, **only(slug), **fields))).json for text in QUESTIONS]

    thinks = "reasoning" not in fields
    for reply in play(kimi, vocabulary, Scenario(), script):
        choice = reply["choices"][0]
        ids = ids_of(choice["message"], vocabulary, thinks=thinks)
        assert len(ids) - reply["usage"]["completion_tokens"] == left_out
        assert (choice["message"]["reasoning"] is not None) == thinks
        assert choice["finish_reason"] == ("tool_calls" if "tools" in fields else "stop")
        reasoning = ids.index(163607) + 1 if thinks else 0
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == reasoning


def test_body_has_the_fields_of_recorded_replies(
    kimi: Contract, vocabulary: Vocabulary, recordings: list[dict[str, Any]]
) -> None:
    async def script(client: Client) -> list[Any]:
        plain = await client.post(request("hello"))
        return [plain.json, (await client.post(request("weather?", tools=[WEATHER]))).json]

    def fields(value: Any, at: str = "") -> set[str]:
        if isinstance(value, dict):
            return {at} | {f for key, item in value.items() for f in fields(item, f"{at}.{key}")}
        return {at} | {f for item in value for f in fields(item, f"{at}[]")} if isinstance(value, list) else {at}

    recorded = [
        r for r in recordings if r["path"].endswith(("kimi/simple.yaml", "TestOpenRouterCommon/kimi/tool.yaml"))
    ]
    bodies = [json.loads(r["body"]) for r in recorded if "openrouter.ai" in r["url"]]
    plain, called = play(kimi, vocabulary, Scenario(), script)
    assert fields(plain) == fields(bodies[0])
    assert fields(called) == fields(bodies[1])


def test_prompt_tokens_are_those_of_recorded_replies(kimi: Contract, vocabulary: Vocabulary) -> None:
    system = {"role": "system", "content": "You are a helpful assistant"}
    parameters = {
        "properties": {"location": {"description": "the city", "type": "string"}},
        "required": ["location"],
        "type": "object",
    }
    function = {"name": "weather", "strict": False, "description": "Get weather information for a location"}
    tool = {"type": "function", "function": {**function, "parameters": parameters}}
    offset = SimulatedProvider(name="Avian", slug="avian", prompt_offset_with_tools=7)

    async def script(client: Client) -> list[int]:
        hello = request("Say hi in Portuguese")
        hello["messages"].insert(0, system)
        weather = request("What's the weather in Florence,Italy?", tools=[tool])
        weather["messages"].insert(0, system)
        return [(await client.post(body)).json["usage"]["prompt_tokens"] for body in (hello, weather)]

    assert play(kimi, vocabulary, Scenario(), script) == [21, 69]
    assert play(kimi, vocabulary, Scenario(providers=(offset,)), script) == [21, 76]


@pytest.mark.parametrize("fields", [{}, INSTANT, {"tools": [WEATHER]}, {"max_tokens": 40}])
def test_streamed_and_whole_replies_say_the_same(
    kimi: Contract, vocabulary: Vocabulary, fields: dict[str, Any]
) -> None:
    async def script(client: Client) -> list[Any]:
        return [
            ((await client.post(request(text, **fields))), (await client.post(request(text, stream=True, **fields))))
            for text in QUESTIONS
        ]

    for whole, streamed in play(kimi, vocabulary, Scenario(), script):
        assert streamed.headers["Content-Type"].startswith("text/event-stream")
        assert streamed.text.startswith(": OPENROUTER PROCESSING\n\n")
        chunks = chunks_of(streamed.text)
        choice, message = whole.json["choices"][0], joined(chunks)
        assert message["reasoning"] == (choice["message"]["reasoning"] or "")
        assert message["content"] == (choice["message"]["content"] or "")
        calls = choice["message"].get("tool_calls", ())
        assert [(c["id"], c["function"]) for c in message["tool_calls"]] == [(c["id"], c["function"]) for c in calls]
        assert chunks[-1]["usage"] == whole.json["usage"]
        assert [c["choices"][0]["finish_reason"] for c in chunks[-2:]] == [choice["finish_reason"]] * 2
        assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-2])
        assert len(chunks) > 4


def test_truncated_answers_are_prefixes_and_have_no_terminal(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        await client.post(request("Prove it."))
        replies = [(await client.post(request("Prove it.", max_tokens=n))).json for n in (1, 20, 60, 100_000)]
        return replies, (await client.get("/simulator/ledger")).json

    (one, short, longer, unhurried), ledger = play(kimi, vocabulary, Scenario(), script)
    whole = ledger["billed"][0]["output_ids"]
    assert [entry["output_ids"] for entry in ledger["billed"][1:]] == [whole[:1], whole[:20], whole[:60], whole]
    assert one["choices"][0]["message"]["content"] is None
    for reply, cap in ((one, 1), (short, 20), (longer, 60)):
        assert reply["usage"]["completion_tokens"] == cap
        assert reply["choices"][0]["finish_reason"] == "length"
    assert vocabulary.encode_ordinary(short["choices"][0]["message"]["reasoning"]) == whole[:20]
    assert unhurried["choices"][0]["finish_reason"] == "stop"
    assert ids_of(unhurried["choices"][0]["message"], vocabulary) == whole
    assert whole[-1] == IM_END


def test_terminal_at_the_cap_is_a_stop(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        count = (await client.post(request("Hi", **only("chutes")))).json["usage"]["completion_tokens"]
        return [
            (await client.post(request("Hi", max_tokens=n, **only("chutes")))).json["choices"][0]["finish_reason"]
            for n in (count, count - 1)
        ]

    assert play(kimi, vocabulary, Scenario(), script) == ["stop", "length"]


def test_truncated_reply_of_inceptron_leaves_nothing_out(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        return (await client.post(request("Prove it.", max_tokens=20, **only("inceptron")))).json

    assert play(kimi, vocabulary, Scenario(), script)["usage"]["completion_tokens"] == 20


def test_call_ids_count_over_the_conversation_and_a_result_ends_the_calls(
    kimi: Contract, vocabulary: Vocabulary
) -> None:
    async def script(client: Client) -> Any:
        body = request("Weather in Florence?", tools=[WEATHER], parallel_tool_calls=False)
        first = (await client.post(body)).json["choices"][0]["message"]
        answered = [
            *body["messages"],
            {k: first[k] for k in ("role", "content", "tool_calls")},
            {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "40 C"},
        ]
        second = (await client.post({**body, "messages": answered})).json["choices"][0]
        again = [*answered, {"role": "assistant", "content": "40 C"}, {"role": "user", "content": "And in Kyoto?"}]
        third = (await client.post({**body, "messages": again})).json["choices"][0]["message"]
        return first, second, third

    first, second, third = play(kimi, vocabulary, Scenario(), script)
    assert [call["id"] for call in first["tool_calls"]] == ["functions.weather:0"]
    assert second["finish_reason"] == "stop"
    assert "tool_calls" not in second["message"]
    assert [call["id"] for call in third["tool_calls"]] == ["functions.weather:1"]


def test_same_request_and_seed_give_the_same_answer(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        bodies = (request("Hello"), request("Hello"), request("Hello", seed=1))
        replies = [(await client.post(body)).json for body in bodies]
        return [(reply["provider"], reply["choices"]) for reply in replies]

    first, second, third = play(kimi, vocabulary, Scenario(seed=5), script)
    assert first == second
    assert first[1] != third[1]
    assert play(kimi, vocabulary, Scenario(seed=5), script)[0] == first
    assert play(kimi, vocabulary, Scenario(seed=6), script)[0][1] != first[1]


def test_providers_change_what_they_are_said_to_change(kimi: Contract, vocabulary: Vocabulary) -> None:
    odd = SimulatedProvider(
        name="Odd",
        slug="odd",
        counts="terminal_and_think",
        reasoning_inside=False,
        trims_text=True,
        rewrites_arguments=True,
        native_finish={"tool_calls": "stop", "stop": "eos"},
    )

    async def script(client: Client) -> Any:
        texts = [(await client.post(request(text))).json for text in (*QUESTIONS, *map(str, range(10)))]
        called = (await client.post(request("Weather?", tools=[WEATHER]))).json
        return texts, called, (await client.get("/simulator/ledger")).json

    texts, called, ledger = play(kimi, vocabulary, Scenario(providers=(odd,)), script)
    trimmed = 0
    for reply, entry in zip(texts, ledger["billed"], strict=False):
        message, ids = reply["choices"][0]["message"], entry["output_ids"]
        assert message["content"] == message["content"].strip()
        trimmed += ids_of(message, vocabulary) != ids
        outside = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert reply["usage"]["completion_tokens"] == len(ids) - 2 - outside
        assert reply["choices"][0]["native_finish_reason"] == "eos"
    assert trimmed > len(texts) / 3
    assert '":"' in called["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert called["choices"][0]["native_finish_reason"] == "stop"


def test_withheld_reasoning_is_billed_and_not_shown(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        return (await client.post(request("Hello", reasoning={"exclude": True}))).json

    reply = play(kimi, vocabulary, Scenario(), script)
    assert reply["choices"][0]["message"]["reasoning"] is None
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_ledger_holds_what_was_billed(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        replies = [(await client.post(request(text))).json for text in ("a", "b", "a")]
        ledger = (await client.get("/simulator/ledger")).json
        return (
            replies,
            ledger,
            (await client.get("/simulator/ledger?ids=0")).json,
            (await client.get("/api/v1/key")).json,
        )

    replies, ledger, brief, key = play(kimi, vocabulary, Scenario(), script)
    assert [entry["id"] for entry in ledger["billed"]] == [reply["id"] for reply in replies]
    assert len({reply["id"] for reply in replies}) == 3
    assert sorted(ledger["requests"].values()) == [1, 2]
    assert ledger["cost_usd"] == pytest.approx(sum(reply["usage"]["cost"] for reply in replies))
    assert key["data"]["usage"] == ledger["cost_usd"] > 0
    for entry, reply in zip(ledger["billed"], replies, strict=True):
        assert entry["output_ids"] == ids_of(reply["choices"][0]["message"], vocabulary)
    assert [entry["output_ids"] for entry in brief["billed"]] == [None] * 3
