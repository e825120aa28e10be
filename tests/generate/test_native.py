"""SGLang's native /generate: prompt ids in, and a row that is read from the ids that come out."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from toolkit.config import EndpointSettings, parse_settings
from toolkit.contract import Contract, read_contract
from toolkit.errors import ConfigError, PermanentError
from toolkit.generate.outcome import Answered, Judge, Refused
from toolkit.generate.request import Request, wire_format
from toolkit.generate.transport import Response
from toolkit.prompt import render_prompt
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary

from .asks import ask_of

END, END_THINK = 163586, 163607


def endpoint_of(lines: str = "", url: str = "http://127.0.0.1:30000") -> EndpointSettings:
    text = f'[endpoints.sglang]\nurl = "{url}"\n{lines}'
    return parse_settings(text.encode(), "tokenproof.toml").endpoint("sglang")


@pytest.fixture
def request_of(kimi: Contract, vocabulary: Vocabulary):
    def build(lines: str = "", **ask: Any) -> Request:
        return wire_format(endpoint_of(lines), kimi, vocabulary).request_of(ask_of(kimi, **ask))

    return build


def test_the_prompt_goes_out_as_ids_and_into_the_row_as_their_hash(request_of, kimi: Contract, vocabulary: Vocabulary):
    request = request_of(max_tokens=64, sampling={"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.1})
    ids = render_prompt(kimi, vocabulary, [{"role": "user", "content": "hi"}], None, "thinking").ids
    params = {
        "max_new_tokens": 64, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.1,
        "skip_special_tokens": False, "spaces_between_special_tokens": False,
    }  # fmt: skip
    rest = {"sampling_params": params, "stream": False}
    assert json.loads(request.body) == {"input_ids": ids, **rest}
    digest = hashlib.sha256(json.dumps(ids, separators=(",", ":")).encode()).hexdigest()
    assert request.sent == {"input_ids_sha256": digest, "n_input_ids": len(ids or ()), **rest}
    assert (request.url, request.form) == ("http://127.0.0.1:30000/generate", "sglang")


@pytest.mark.parametrize("url", ["http://h:1/v1", "http://h:1/v1/", "http://h:1"])
def test_the_native_api_stands_beside_v1(kimi: Contract, vocabulary: Vocabulary, url: str):
    assert wire_format(endpoint_of(url=url), kimi, vocabulary).request_of(ask_of(kimi)).url == "http://h:1/generate"


@pytest.mark.parametrize(("mode", "tail"), [("thinking", [163606]), ("instant", [163606, 163607])])
def test_the_prompt_is_that_of_the_rows_mode(request_of, mode: str, tail: list[int]):
    """Case 24."""
    ids = json.loads(request_of(mode=mode).body)["input_ids"]
    assert ids[-len(tail) :] == tail


def test_a_seed_goes_where_the_endpoint_says(request_of):
    request = request_of('seed_field = "sampling_seed"', sampling={"seed": 7}, sample_index=2)
    assert json.loads(request.body)["sampling_params"]["sampling_seed"] == 9


@pytest.mark.parametrize("sampling", [{"seed": 7}, {"logit_bias": {"5": 1}}, {"reasoning_effort": "high"}])
def test_a_field_without_a_counterpart_is_never_left_out_in_silence(request_of, sampling: dict[str, Any]):
    with pytest.raises(PermanentError, match=next(iter(sampling))) as caught:
        request_of(sampling=sampling)
    assert caught.value.reason == "sampling_unsupported"


def test_a_prompt_that_cannot_be_rendered_is_never_sent(request_of):
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    with pytest.raises(PermanentError, match="prompt_has_media") as caught:
        request_of(messages=picture)
    assert caught.value.reason == "prompt_unrenderable"


def test_a_contract_that_renders_no_prompts_is_told_before_the_run(vocabulary: Vocabulary):
    with pytest.raises(ConfigError, match=r'gpt-oss.*api = "chat"'):
        wire_format(endpoint_of(), read_contract("gpt-oss"), vocabulary)


def test_the_rewritten_tool_ids_are_in_the_prompts_ids(request_of, vocabulary: Vocabulary):
    """Case 20: the rendered ids use the rewritten ids, too."""
    call = {"id": "call_9f3a", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_9f3a", "content": "found"},
    ]
    text = vocabulary.decode_bytes(json.loads(request_of(messages=messages).body)["input_ids"]).decode()
    assert "functions.find:0" in text
    assert "call_9f3a" not in text


# --- what becomes of the reply ------------------------------------------------------------------------


@pytest.fixture
def judge(kimi: Contract, vocabulary: Vocabulary) -> Judge:
    return Judge(endpoint=endpoint_of(), builder=RowBuilder(kimi, vocabulary), key=None)


def reply_to(request: Request, ids: list[int], text: str, finish: dict[str, Any]) -> Response:
    meta = {"id": "rid", "finish_reason": finish, "prompt_tokens": json.loads(request.body)["input_ids"].__len__(),
            "completion_tokens": len(ids)}  # fmt: skip
    body = json.dumps({"text": text, "output_ids": ids, "meta_info": meta}).encode()
    return Response(status=200, headers={}, body=body, latency_s=0.1)


@pytest.mark.parametrize("finish", [{"type": "stop", "matched": END}, {"type": "length", "length": 4}])
def test_a_row_is_read_from_the_ids(
    kimi: Contract, vocabulary: Vocabulary, judge: Judge, request_of, finish: dict[str, Any]
):
    ids = [*vocabulary.encode_ordinary("Greet."), END_THINK, *vocabulary.encode_ordinary("Hello."), END]
    request = request_of()
    outcome = judge.of_response(ask_of(kimi), request, reply_to(request, ids, "Greet.</think>Hello.", finish), at=1.0)
    assert isinstance(outcome, Answered)
    row = judge.builder.build(outcome.entry, outcome.reply)
    assert (row["reasoning"], row["content"], row["output_ids"]) == ("Greet.", "Hello.", ids)
    assert (row["ids_source"], row["rebuild_status"], row["source"]) == ("engine", "complete", "sglang")
    assert row["notes"] == ["model_assumed"]
    assert row["prompt_ids"] == json.loads(request.body)["input_ids"]
    assert row["prompt_tokens"] == len(row["prompt_ids"])
    payload = json.loads(row["payload"])
    assert (payload["form"], payload["request"]) == ("sglang", request.sent)


def test_a_prompt_that_renders_otherwise_later_is_not_the_one_that_was_answered(
    kimi: Contract, judge: Judge, request_of
):
    request = request_of()
    other = Request(url=request.url, body=request.body, form=request.form,
                    sent=request.sent | {"input_ids_sha256": "0" * 64})  # fmt: skip
    finish = {"type": "stop", "matched": END}
    outcome = judge.of_response(ask_of(kimi), other, reply_to(request, [END_THINK, END], "", finish), at=1.0)
    assert isinstance(outcome, Answered)
    row = judge.builder.build(outcome.entry, outcome.reply)
    assert row["prompt_ids"] is None
    assert "prompt_not_as_sent" in row["notes"]


def test_a_prompt_without_ids_is_a_final_failure_and_a_wrong_setting_stops_the_run(kimi: Contract, judge: Judge):
    unrenderable = judge.of_unsent(ask_of(kimi), PermanentError("m", reason="prompt_unrenderable"), at=1.0)
    assert (unrenderable.failure.reason, unrenderable.failure.final) == ("prompt_unrenderable", True)
    assert (unrenderable.stops_run, unrenderable.failure.body, unrenderable.failure.status) == (None, None, None)
    unsupported = judge.of_unsent(ask_of(kimi), PermanentError("m", reason="sampling_unsupported"), at=1.0)
    assert (unsupported.failure.final, unsupported.stops_run) == (False, "m")


def test_a_server_without_ids_blames_no_prompt(kimi: Contract, judge: Judge, request_of):
    request = request_of()
    body = json.dumps({"text": "x", "meta_info": {"finish_reason": {"type": "stop"}}}).encode()
    outcome = judge.of_response(
        ask_of(kimi), request, Response(status=200, headers={}, body=body, latency_s=0.1), at=1.0
    )
    assert isinstance(outcome, Refused)
    assert (outcome.failure.reason, outcome.failure.final, outcome.again, outcome.about_endpoint) == (
        "ids_missing", False, False, True,
    )  # fmt: skip
