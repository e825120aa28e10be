"""Refusals, routing, faults, side endpoints, and the server's own life, over a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.simulate.providers import SimulatedProvider
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import build_app, run
from toolkit.vocabulary import Vocabulary

from .client import CHAT, Client, Got, only, play, request, send

# --- refusals -----------------------------------------------------------------------------------

DEEP = b'{"model":"kimi-k2.5","messages":[{"role":"user","content":"x","y":' + b"[" * 600 + b"]" * 600 + b"}]}"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b'{"model":"kimi-k2.5","messages":[{"role":"user","content":"\\ud800"}]}', "JSON"),
        (b"\xff\xfe", "JSON"),
        (DEEP, "nested"),
        (b"[" * 100_000, "JSON"),
        ([], "JSON object"),
        ({"messages": []}, "model"),
        ({"model": 5}, "model"),
        (request("x", model="openai/gpt-4o"), "not a valid model ID"),
        (request("x", messages=[]), "messages"),
        (request("x", messages=[5]), "messages[0]"),
        (request("x", messages=[{"role": ["user"], "content": ""}]), "messages[0].role"),
        (request("x", messages=[{"role": "user", "content": None}]), "messages[0].content"),
        (request("x", messages=[{"role": "user", "content": [{"type": "image_url"}]}]), "content[0]"),
        (request("x", messages=[{"role": "tool", "content": "x"}]), "tool_call_id"),
        (request("x", messages=[{"role": "assistant", "content": None, "tool_calls": [{"id": 5}]}]), "tool_calls[0]"),
        (request("x", messages=[{"role": "user", "content": "x", "tool_calls": [{}]}]), "tool_calls"),
        (request("x", tools={"a": 1}), "tools"),
        (request("x", tools=[{"type": "function", "function": {"name": "<|im_end|>"}}]), "name"),
        (request("x", tool_choice={"function": {"name": "nope"}}), "tool_choice"),
        (request("x", max_tokens=0), "max_tokens"),
        (request("x", max_tokens=True), "max_tokens"),
        (request("x", max_tokens="9"), "max_tokens"),
        (request("x", stream="yes"), "stream"),
        (request("x", reasoning=True), "reasoning"),
        (request("x", provider={"onyl": ["chutes"]}), "onyl"),
        (request("x", provider={"only": "chutes"}), "provider.only"),
        (request("x", provider={"zdr": "yes"}), "provider.zdr"),
        (request("x", provider={"sort": "cheapest"}), "provider.sort"),
        (request("x", provider={"sort": {"by": ["price"]}}), "provider.sort"),
        (request("x", provider={"quantizations": ["int5"]}), "provider.quantizations"),
        (request("x", provider={"data_collection": False}), "provider.data_collection"),
        (request("x", provider={"max_price": {"promt": 1}}), "provider.max_price"),
        (request("x", provider={"max_price": {"prompt": "cheap"}}), "provider.max_price.prompt"),
        (request("x", provider={"preferred_max_latency": "soon"}), "provider.preferred_max_latency"),
        (request("x", session_id="x" * 257), "session_id"),
        (request("x", user=5), "user"),
        (request("x", stream_options=True), "stream_options"),
        (request("x", chat_template_kwargs=[]), "chat_template_kwargs"),
    ],
)
def test_malformed_requests_get_400(kimi: Contract, vocabulary: Vocabulary, body: object, named: str) -> None:
    (got,) = send(kimi, vocabulary, body)
    assert got.status == 400
    assert got.json["error"]["code"] == 400
    assert named in got.json["error"]["message"]
    assert "Traceback" not in got.text


def test_requests_without_a_key_get_401(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> list[Got]:
        tried = ({}, {"Authorization": "Bearer "}, {"Authorization": "Basic eDp5"})
        async with aiohttp.ClientSession() as session:
            bare = Client(session, client.url)
            return [await bare.post(request("x"), headers=headers) for headers in tried]

    for got in play(kimi, vocabulary, Scenario(), script):
        assert got.status == 401
        assert got.json == {"error": {"message": "Missing Authentication header", "code": 401}}


def test_side_endpoints(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> list[Got]:
        paths = ("key", "credits", "models/moonshotai/kimi-k2.5/endpoints", "models/openai/gpt-4o/endpoints", "nothing")
        return [await client.get(f"/api/v1/{path}") for path in paths]

    key, credits_, endpoints, other, nothing = play(kimi, vocabulary, Scenario(), script)
    assert key.json["data"]["is_management_key"] is False
    assert (credits_.status, credits_.json["error"]["code"]) == (403, 403)
    assert [e["provider_name"] for e in endpoints.json["data"]["endpoints"]] == ["Chutes", "Inceptron", "ModelRun"]
    assert endpoints.json["data"]["endpoints"][0]["pricing"]["prompt"] == "0.00000044"
    assert (other.status, nothing.status) == (404, 404)
    assert nothing.json["error"]["code"] == 404


# --- routing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ({"only": ["inceptron"]}, {"Inceptron"}),
        ({"only": ["inceptron/int4"]}, {"Inceptron"}),
        ({"ignore": ["chutes"]}, {"Inceptron", "ModelRun"}),
        ({"only": ["chutes", "modelrun"], "ignore": ["chutes"]}, {"ModelRun"}),
        ({"order": ["modelrun", "chutes"]}, {"ModelRun"}),
        ({"order": ["elsewhere", "chutes"]}, {"Chutes"}),
        ({"order": ["elsewhere"]}, {"Chutes", "Inceptron", "ModelRun"}),
        ({"quantizations": ["int4"]}, {"Chutes", "Inceptron", "ModelRun"}),
        ({"order": ["modelrun", "elsewhere"], "allow_fallbacks": False}, {"ModelRun"}),
        ({"max_price": {"completion": "2.1"}}, {"Chutes"}),
        ({"max_price": {"prompt": 0.45, "completion": 3}}, {"Chutes", "Inceptron"}),
        ({"require_parameters": True, "sort": "price", "zdr": True}, {"Chutes", "Inceptron", "ModelRun"}),
    ],
)
def test_routing_is_obeyed(
    kimi: Contract, vocabulary: Vocabulary, provider: dict[str, Any], expected: set[str]
) -> None:
    bodies = [request(str(i), max_tokens=5, provider=provider) for i in range(40)]
    assert {got.json["provider"] for got in send(kimi, vocabulary, *bodies)} == expected


@pytest.mark.parametrize(
    "provider",
    [
        {"only": ["Chutes AI"]},
        {"ignore": ["chutes", "inceptron", "modelrun"]},
        {"order": ["elsewhere"], "allow_fallbacks": False},
        {"quantizations": ["fp8"]},
        {"only": ["Chutes"]},
        {"order": ["ModelRun"], "allow_fallbacks": False},
        {"max_price": {"completion": 1}},
    ],
)
def test_no_provider_left_is_404(kimi: Contract, vocabulary: Vocabulary, provider: dict[str, Any]) -> None:
    (got,) = send(kimi, vocabulary, request("x", provider=provider))
    assert (got.status, got.json["error"]["code"]) == (404, 404)


def test_providers_that_cannot_do_what_is_asked_are_passed_over(kimi: Contract, vocabulary: Vocabulary) -> None:
    short = SimulatedProvider(name="Short", slug="short", max_completion_tokens=100)
    plain = SimulatedProvider(name="Plain", slug="plain", supported_parameters=frozenset({"max_tokens"}))
    needs = {"provider": {"require_parameters": True}, "temperature": 1.0}
    bodies = [
        request("x", max_completion_tokens=101, provider={"only": ["short"]}),
        request("x", max_tokens=100, provider={"only": ["short"]}),
        request("x", **needs),
        request("x", **needs, max_tokens=101),
        request("x", temperature=1.0, provider={"only": ["plain"]}),
    ]
    got = send(kimi, vocabulary, *bodies, scenario=Scenario(providers=(short, plain)))
    assert [(reply.status, reply.json.get("provider")) for reply in got] == [
        (404, None),
        (200, "Short"),
        (200, "Short"),
        (404, None),
        (200, "Plain"),
    ]

    async def script(client: Client) -> Any:
        return (await client.get("/api/v1/models/moonshotai/kimi-k2.5/endpoints")).json["data"]["endpoints"]

    listed = play(kimi, vocabulary, Scenario(providers=(short, replace(plain, status=-2, quantization="fp8"))), script)
    assert [(e["max_completion_tokens"], e["status"], e["quantization"]) for e in listed] == [
        (100, 0, "int4"),
        (None, -2, "fp8"),
    ]
    assert listed[1]["supported_parameters"] == ["max_tokens"]


def test_a_request_that_comes_again_may_meet_another_provider(kimi: Contract, vocabulary: Vocabulary) -> None:
    bodies = [request("x", max_tokens=5)] * 30
    for sticky in (True, False):
        met = {got.json["provider"] for got in send(kimi, vocabulary, *bodies, scenario=Scenario(sticky=sticky))}
        assert len(met) == (1 if sticky else 3)


# --- faults -------------------------------------------------------------------------------------


def always(fault: str, **fields: Any) -> Scenario:
    return Scenario(faults={fault: 1.0}, **fields)


def test_blank_lines_stand_before_the_json(kimi: Contract, vocabulary: Vocabulary) -> None:
    (got,) = send(kimi, vocabulary, request("x"), scenario=always("blank_lines"))
    assert got.text.startswith("\n         \n\n")
    assert got.json["choices"]


def test_429_states_its_wish(kimi: Contract, vocabulary: Vocabulary) -> None:
    (got,) = send(kimi, vocabulary, request("x", **only("chutes")), scenario=always("http_429", retry_after_s=3))
    assert (got.status, got.headers["Retry-After"]) == (429, "3")
    assert got.json["error"]["metadata"]["provider_name"] == "Chutes"
    (silent,) = send(kimi, vocabulary, request("x"), scenario=always("http_429", retry_after_s=None))
    assert (silent.status, "Retry-After" in silent.headers) == (429, False)


def test_502_and_524(kimi: Contract, vocabulary: Vocabulary) -> None:
    (bad,) = send(kimi, vocabulary, request("x"), scenario=always("http_502"))
    assert (bad.status, bad.json["error"]["code"]) == (502, 502)
    (edge,) = send(kimi, vocabulary, request("x"), scenario=always("http_524"))
    assert (edge.status, edge.headers["Content-Type"].split(";")[0]) == (524, "text/html")
    assert edge.text.startswith("<!DOCTYPE html>")


def test_failures_with_status_200(kimi: Contract, vocabulary: Vocabulary) -> None:
    bodies = (request("x"), request("x", stream=True))
    whole, streamed = send(kimi, vocabulary, *bodies, scenario=always("error_in_200"))
    assert (whole.status, whole.json["choices"], whole.json["error"]["code"]) == (200, None, 502)
    event = json.loads(streamed.text.strip().splitlines()[-1].removeprefix("data: "))
    assert (streamed.status, event["error"]["code"], event["choices"][0]["finish_reason"]) == (200, 502, "error")
    whole, streamed = send(kimi, vocabulary, *bodies, scenario=always("empty_choices"))
    assert (whole.status, whole.json["choices"]) == (200, [])
    assert '"choices":[]' in streamed.text


def test_cut_streams_end_without_done(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        ends: Counter[str] = Counter()
        for i in range(20):
            raw = b""
            async with client.session.post(client.url + CHAT, json=request(str(i), stream=True)) as response:
                try:
                    async for part in response.content.iter_any():
                        raw += part
                    ends["ended"] += 1
                except aiohttp.ClientPayloadError:
                    ends["torn"] += 1
            assert b"[DONE]" not in raw
        return ends, (await client.post(request("0"))).json, (await client.get("/simulator/ledger")).json

    ends, whole, ledger = play(kimi, vocabulary, always("cut_stream"), script)
    assert set(ends) == {"ended", "torn"}
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert len(ledger["billed"]) == 21


def test_faults_are_not_billed_and_a_retry_can_succeed(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        statuses = [(await client.post(request("the same"))).status for _ in range(60)]
        return statuses, (await client.get("/simulator/ledger")).json

    statuses, ledger = play(kimi, vocabulary, Scenario(faults={"http_429": 0.3, "http_502": 0.2}), script)
    counts = Counter(statuses)
    assert set(counts) == {200, 429, 502}
    assert len(ledger["billed"]) == counts[200]
    assert ledger["faults"] == {"http_429": counts[429], "http_502": counts[502]}
    assert list(ledger["requests"].values()) == [60]


def test_who_hangs_up_pays_all_the_same(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        for stream in (False, True):
            await client.hang_up(request("x", stream=stream))
        await client.all_ended()
        return (await client.get("/simulator/ledger")).json

    assert len(play(kimi, vocabulary, Scenario(latency_s=(0.3, 0.3)), script)["billed"]) == 2


# --- the server's own life ----------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_other_hosts_are_refused(kimi: Contract, vocabulary: Vocabulary, host: str) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        run(kimi, vocabulary, Scenario(), host=host, announce=print)


def test_a_taken_port_is_a_configuration_error(kimi: Contract, vocabulary: Vocabulary) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot listen"):
            run(kimi, vocabulary, Scenario(), port=taken.getsockname()[1], announce=print)


def test_reply_model_must_be_the_contracts(kimi: Contract, vocabulary: Vocabulary) -> None:
    with pytest.raises(ConfigError, match="reply_model"):
        build_app(kimi, vocabulary, Scenario(reply_model="openai/gpt-4o"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_announces_and_ends_cleanly(number: signal.Signals) -> None:
    program = (
        "from toolkit.contract import read_contract\n"
        "from toolkit.vocabulary import load_vocabulary\n"
        "from toolkit.simulate.scenario import Scenario\n"
        "from toolkit.simulate.server import run\n"
        "contract = read_contract('kimi-k2.5')\n"
        "say = lambda url: print(url, flush=True)\n"
        "run(contract, load_vocabulary(contract), Scenario(latency_s=(30, 30)), announce=say)\n"
        "print('ended')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:")

        async def ask_and_stop() -> None:
            async with aiohttp.ClientSession(headers={"Authorization": "Bearer x"}) as session:
                client = Client(session, url)
                assert (await client.get("/api/v1/key")).status == 200
                pending = asyncio.create_task(client.post(request("x")))
                await asyncio.sleep(0.2)
                os.kill(process.pid, number)
                with pytest.raises(aiohttp.ClientError):
                    await pending

        asyncio.run(ask_and_stop())
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, b"ended\n", b"")
