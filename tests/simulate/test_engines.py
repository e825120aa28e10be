"""The engine's faces over a real socket: POST /generate and /v1/chat/completions, with ids."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from toolkit.contract import Contract
from toolkit.prompt import render_prompt
from toolkit.simulate.native import CONTEXT_LENGTH
from toolkit.simulate.scenario import Scenario
from toolkit.vocabulary import Vocabulary

from .client import IM_END, INSTANT, THINK_END, WEATHER, Client, chunks_of, ids_of, play, request, send

GENERATE, CHAT = "/generate", "/v1/chat/completions"
THINKING_OFF = {"chat_template_kwargs": {"thinking": False}}


def prompt_ids(kimi: Contract, vocabulary: Vocabulary, text: str = "Tell me of the sea", mode: str = "thinking") -> Any:
    return render_prompt(kimi, vocabulary, [{"role": "user", "content": text}], None, mode).ids


def generate(ids: list[int], *, stream: bool = False, **sampling: Any) -> dict[str, Any]:
    return {"input_ids": ids, "stream": stream, "sampling_params": {"max_new_tokens": 2000, **sampling}}


# --- POST /generate -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["thinking", "instant"])
def test_ids_in_ids_out(kimi: Contract, vocabulary: Vocabulary, mode: str) -> None:
    ids = prompt_ids(kimi, vocabulary, mode=mode)
    body, shown = (
        got.json
        for got in send(
            kimi, vocabulary, generate(ids), generate(ids, no_stop_trim=True, skip_special_tokens=False), path=GENERATE
        )
    )
    out, meta = body["output_ids"], body["meta_info"]
    assert out[-1] == IM_END
    assert (THINK_END in out) == (mode == "thinking")
    assert meta["finish_reason"] == {"type": "stop", "matched": IM_END}
    assert (meta["completion_tokens"], meta["prompt_tokens"]) == (len(out), len(ids))
    assert body["text"] == vocabulary.decode_bytes(out[:-1]).decode()
    assert shown["text"] == body["text"] + "<|im_end|>"
    assert shown["output_ids"] == out


def test_text_in_is_rendered_text(kimi: Contract, vocabulary: Vocabulary) -> None:
    ids = prompt_ids(kimi, vocabulary)
    text = vocabulary.decode_bytes(ids).decode()
    asked = {"text": text, "return_prompt_token_ids": True, "sampling_params": {"max_new_tokens": 2000}, "rid": "r-1"}
    by_text, by_ids = (got.json for got in send(kimi, vocabulary, asked, generate(ids), path=GENERATE))
    assert by_text["prompt_token_ids"] == ids
    assert by_text["output_ids"] == by_ids["output_ids"]
    assert by_text["meta_info"]["id"] == "r-1"


def test_the_length_is_looked_at_first(kimi: Contract, vocabulary: Vocabulary) -> None:
    ids = prompt_ids(kimi, vocabulary)
    (whole,) = send(kimi, vocabulary, generate(ids), path=GENERATE)
    n = len(whole.json["output_ids"])
    at_cap, spelled, below, default = (
        got.json
        for got in send(
            kimi,
            vocabulary,
            generate(ids, max_new_tokens=n),
            generate(ids, max_new_tokens=n, skip_special_tokens=False),
            generate(ids, max_new_tokens=n - 1),
            {"input_ids": ids},
            path=GENERATE,
        )
    )
    assert at_cap["meta_info"]["finish_reason"] == {"type": "length", "length": n}
    assert at_cap["output_ids"][-1] == IM_END
    assert at_cap["text"] == whole.json["text"]
    assert spelled["text"].endswith("<|im_end|>")
    assert below["output_ids"] == whole.json["output_ids"][: n - 1]
    assert len(default["output_ids"]) == 128


@pytest.mark.parametrize("incremental", [False, True])
def test_streams_are_cumulative_unless_told_otherwise(
    kimi: Contract, vocabulary: Vocabulary, incremental: bool
) -> None:
    ids = prompt_ids(kimi, vocabulary, "A few emoji, please")
    scenario = Scenario(incremental_stream=incremental)
    whole, streamed = send(
        kimi, vocabulary, generate(ids), generate(ids, stream=True), scenario=scenario, path=GENERATE
    )
    events = chunks_of(streamed.text)
    assert len(events) > 5
    assert all(event["meta_info"]["finish_reason"] is None for event in events[:-1])
    assert events[-1]["meta_info"]["finish_reason"] == whole.json["meta_info"]["finish_reason"]
    if incremental:
        assert [i for event in events for i in event["output_ids"]] == whole.json["output_ids"]
        assert "".join(event["text"] for event in events) == whole.json["text"]
    else:
        assert (events[-1]["output_ids"], events[-1]["text"]) == (whole.json["output_ids"], whole.json["text"])
        for a, b in pairwise(events):
            assert b["output_ids"][: len(a["output_ids"])] == a["output_ids"]
            assert b["text"].startswith(a["text"])


def test_ends_that_are_none(kimi: Contract, vocabulary: Vocabulary) -> None:
    ids = prompt_ids(kimi, vocabulary)

    def met(name: str, **fields: Any) -> Any:
        (got,) = send(kimi, vocabulary, generate(ids, **fields), scenario=Scenario(faults={name: 1.0}), path=GENERATE)
        return got

    (whole,) = send(kimi, vocabulary, generate(ids), path=GENERATE)
    aborted = met("abort")
    finish = aborted.json["meta_info"]["finish_reason"]
    assert (aborted.status, finish["type"]) == (200, "abort")
    assert 0 < len(aborted.json["output_ids"]) < len(whole.json["output_ids"])
    nan = met("nan").json
    assert nan["meta_info"]["finish_reason"] == {"type": "stop", "matched": "NaN happened"}
    assert nan["output_ids"][-1] == IM_END
    assert len(nan["output_ids"]) < len(whole.json["output_ids"])
    busy = met("http_503_retryable")
    assert (busy.status, busy.json["object"], busy.json["code"]) == (503, "error", 503)
    failed = met("error_in_stream", stream=True)
    assert '"error":{"message"' in failed.text
    assert failed.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "input_ids"),
        ({"input_ids": [], "text": "x"}, "input_ids"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [[1], [2]]}, "one prompt"),
        ({"input_ids": [True]}, "input_ids"),
        ({"input_ids": [163840]}, "input_ids"),
        ({"input_ids": [-1]}, "input_ids"),
        ({"text": ["a", "b"]}, "one prompt"),
        ({"input_ids": [5], "sampling_params": {"max_new_tokens": 0}}, "max_new_tokens"),
        ({"input_ids": [5], "sampling_params": {"max_new_tokens": CONTEXT_LENGTH}}, str(CONTEXT_LENGTH)),
        ({"input_ids": [5], "sampling_params": {"stop": ["x"]}}, "stop"),
        ({"input_ids": [5], "sampling_params": {"n": 2}}, "sampling_params.n"),
        ({"input_ids": [5], "rid": 7}, "rid"),
        (b"{", "JSON"),
        ([], "JSON object"),
    ],
)
def test_refusals_are_flat_and_in_streams_an_event(
    kimi: Contract, vocabulary: Vocabulary, body: Any, named: str
) -> None:
    (got,) = send(kimi, vocabulary, body, path=GENERATE)
    assert (got.status, got.json["object"], got.json["code"]) == (400, "error", 400)
    assert named in got.json["message"]
    if isinstance(body, dict):
        (streamed,) = send(kimi, vocabulary, {**body, "stream": True}, path=GENERATE)
        assert streamed.status == 200
        (event,) = chunks_of(streamed.text)
        assert named in event["error"]["message"]


def test_put_is_post_and_side_calls(kimi: Contract, vocabulary: Vocabulary) -> None:
    ids = prompt_ids(kimi, vocabulary)

    async def script(client: Client) -> Any:
        async with client.session.put(client.url + GENERATE, json=generate(ids)) as response:
            put = await response.json()
        paths = ("/health", "/health_generate", "/get_model_info", "/flush_cache")
        return put, [await client.get(path) for path in paths]

    put, (health, health_generate, info, flushed) = play(kimi, vocabulary, Scenario(), script)
    assert put["output_ids"][-1] == IM_END
    assert (health.status, health.text, health_generate.status, flushed.status) == (200, "", 200, 200)
    assert info.json["is_generation"] is True
    _, (health, *_) = play(kimi, vocabulary, Scenario(healthy=False), script)
    assert health.status == 503


# --- /v1/chat/completions -----------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, THINKING_OFF, {"tools": [WEATHER]}, {"max_tokens": 40}])
def test_chat_returns_the_ids_that_its_text_stands_for(
    kimi: Contract, vocabulary: Vocabulary, fields: dict[str, Any]
) -> None:
    body = request("Tell me of the sea", return_token_ids=True, **fields)
    got, plain = (
        reply.json for reply in send(kimi, vocabulary, body, request("Tell me of the sea", **fields), path=CHAT)
    )
    choice = got["choices"][0]
    ids, message = choice["token_ids"], choice["message"]
    mode = "instant" if fields == THINKING_OFF else "thinking"
    rendered = render_prompt(kimi, vocabulary, body["messages"], fields.get("tools"), mode).ids
    assert got["prompt_token_ids"] == rendered
    assert (got["usage"]["completion_tokens"], got["usage"]["prompt_tokens"]) == (len(ids), len(rendered))
    if "max_tokens" in fields:
        assert (choice["finish_reason"], len(ids)) == ("length", 40)
    else:
        assert ids == ids_of(message, vocabulary, thinks=mode == "thinking")
        assert (choice["stop_reason"], "matched_stop" in choice) == (None, False)
    assert "token_ids" not in plain["choices"][0]
    assert "prompt_token_ids" not in plain
    assert {"provider", "native_finish_reason"} & {*got, *choice} == set()


def test_chat_streams_deltas_of_ids_and_usage_where_asked(kimi: Contract, vocabulary: Vocabulary) -> None:
    body = request("Weather?", return_token_ids=True, tools=[WEATHER])
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    whole, with_usage, without = send(kimi, vocabulary, body, streamed, {**body, "stream": True}, path=CHAT)
    first, *rest, last = chunks_of(with_usage.text)
    assert first["prompt_token_ids"] == whole.json["prompt_token_ids"]
    assert not any("prompt_token_ids" in chunk for chunk in rest)
    choice = whole.json["choices"][0]
    assert [i for chunk in rest for i in chunk["choices"][0]["token_ids"]] == choice["token_ids"]
    assert (last["choices"], last["usage"]) == ([], whole.json["usage"])
    assert [chunk["choices"][0]["finish_reason"] for chunk in rest[-2:]] == [None, "tool_calls"]
    deltas = [chunk["choices"][0]["delta"] for chunk in rest]
    assert "".join(d.get("reasoning") or "" for d in deltas) == choice["message"]["reasoning"]
    assert all("usage" not in chunk for chunk in chunks_of(without.text))


def test_names_and_order_of_an_engine(kimi: Contract, vocabulary: Vocabulary) -> None:
    body = request("Tell me of the sea", return_token_ids=True)
    (vllm,) = send(kimi, vocabulary, body, path=CHAT)
    n = vllm.json["usage"]["completion_tokens"]
    capped = {**body, "max_tokens": n}
    (at_cap,) = send(kimi, vocabulary, capped, path=CHAT)
    assert at_cap.json["choices"][0]["finish_reason"] == "stop"
    sglang = Scenario(engine="sglang", reasoning_field="reasoning_content")
    stopped, cut, refused = send(kimi, vocabulary, body, capped, {**body, "messages": []}, scenario=sglang, path=CHAT)
    choice = stopped.json["choices"][0]
    assert (choice["matched_stop"], "stop_reason" in choice, "reasoning" in choice["message"]) == (IM_END, False, False)
    assert choice["message"]["reasoning_content"] == vllm.json["choices"][0]["message"]["reasoning"]
    cut_choice = cut.json["choices"][0]
    assert (cut_choice["finish_reason"], cut_choice["token_ids"][-1]) == ("length", IM_END)
    assert (refused.status, refused.json["object"]) == (400, "error")
    (nested,) = send(kimi, vocabulary, {**body, "messages": []}, path=CHAT)
    assert (nested.status, nested.json["error"]["code"]) == (400, 400)


def test_chat_faults(kimi: Contract, vocabulary: Vocabulary) -> None:
    body = request("x", return_token_ids=True)

    def met(name: str, engine: str = "vllm", **fields: Any) -> Any:
        scenario = Scenario(faults={name: 1.0}, engine=engine)  # type: ignore[arg-type]
        return send(kimi, vocabulary, {**body, **fields}, scenario=scenario, path=CHAT)[0]

    null = met("ids_null").json
    assert (null["choices"][0]["token_ids"], len(null["prompt_token_ids"]) > 5) == (None, True)
    assert all(chunk["choices"][0].get("token_ids") is None for chunk in chunks_of(met("ids_null", stream=True).text))
    assert met("abort").json["choices"][0]["finish_reason"] == "abort"
    assert met("nan", engine="sglang").json["choices"][0]["matched_stop"] == "NaN happened"
    assert met("nan").json["choices"][0]["finish_reason"] == "stop"
    assert met("null_choices").json["choices"] is None
    assert met("http_429").status == 429
    assert "usage" not in met("usage_missing").json
    assert met("error_in_200", engine="sglang").json["object"] == "error"
    assert not kimi.accepts_model(met("other_model").json["model"])


def test_extra_body_is_not_unwrapped_and_no_key_is_needed(kimi: Contract, vocabulary: Vocabulary) -> None:
    (got,) = send(kimi, vocabulary, request("x", extra_body=THINKING_OFF), path=CHAT)
    assert got.json["choices"][0]["message"]["reasoning"]
    (openrouter_switch,) = send(kimi, vocabulary, request("x", **INSTANT), path=CHAT)
    assert openrouter_switch.json["choices"][0]["message"]["reasoning"] is None

    async def script(client: Client) -> int:
        async with client.session.post(client.url + CHAT, json=request("x"), headers={"Authorization": ""}) as response:
            return response.status

    assert play(kimi, vocabulary, Scenario(), script) == 200
