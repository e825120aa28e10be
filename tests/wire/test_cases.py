"""Reports of people who do this job, from the bytes of a reply to what a run is told and what stands in the row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.generate.asks import ask_of
from toolkit.config import EndpointSettings, parse_settings
from toolkit.contract import Contract
from toolkit.generate.outcome import Answered, Judge, Refused
from toolkit.generate.request import wire_format
from toolkit.generate.transport import Response
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary

END, END_THINK = 163586, 163607
MODEL = "moonshotai/kimi-k2.5"


def endpoint_of(name: str = "openrouter", lines: str = "") -> EndpointSettings:
    head = "" if name == "openrouter" else 'url = "http://127.0.0.1:8000/v1"\n'
    return parse_settings(f"[endpoints.{name}]\n{head}{lines}".encode(), "tokenproof.toml").endpoint(name)


class Case:
    """One ask, and replies to it."""

    def __init__(self, contract: Contract, vocabulary: Vocabulary):
        self.contract, self.vocabulary = contract, vocabulary
        self.builder = RowBuilder(contract, vocabulary)

    def outcome(
        self, body: Any, status: int = 200, *, endpoint: EndpointSettings | None = None, max_tokens: int = 512,
        mode: str = "thinking", **headers: str,
    ) -> Answered | Refused:  # fmt: skip
        endpoint = endpoint or endpoint_of()
        ask = ask_of(self.contract, max_tokens=max_tokens, mode=mode)
        request = wire_format(endpoint, self.contract, self.vocabulary).request_of(ask)
        text = body if isinstance(body, str) else json.dumps(body)
        names = {name.lower().replace("_", "-"): value for name, value in headers.items()}
        response = Response(status=status, headers=names, body=text.encode(), latency_s=0.1)
        return Judge(endpoint=endpoint, builder=self.builder, key=None).of_response(ask, request, response, at=1.0)

    def refused(self, body: Any, status: int = 200, **options: Any) -> Refused:
        outcome = self.outcome(body, status, **options)
        assert isinstance(outcome, Refused), outcome
        return outcome

    def row(self, body: Any, **options: Any) -> dict[str, Any]:
        outcome = self.outcome(body, **options)
        assert isinstance(outcome, Answered), outcome
        return self.builder.build(outcome.entry, outcome.reply)

    def ids(self, *pieces: str | int) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            ids += [piece] if isinstance(piece, int) else self.vocabulary.encode_ordinary(piece)
        return ids


@pytest.fixture
def case(kimi: Contract, vocabulary: Vocabulary) -> Case:
    return Case(kimi, vocabulary)


def answer(message: dict[str, Any], finish: str | None = "stop", *, usage: Any = None, **choice: Any) -> dict[str, Any]:
    first = {"finish_reason": finish, "message": message, **choice}
    return {"model": MODEL, "choices": [first], "usage": usage}


# --- wire and HTTP ---------------------------------------------------------------------------------


def test_case_1_null_everything_within_200_is_the_providers_429(case: Case):
    error = {"code": 429, "message": "m", "metadata": {"raw": "slow down", "provider_name": "HostA"}}
    refused = case.refused({"id": None, "choices": None, "usage": None, "error": error})
    assert (refused.failure.reason, refused.failure.status, refused.provider) == ("http_429", 429, "HostA")
    assert (refused.again, refused.failure.final, refused.stops_run, refused.shrink) == (True, False, None, False)


@pytest.mark.parametrize("choices", [{}, {"choices": []}, {"choices": None}])
def test_case_2_without_choices_it_is_asked_again_and_its_cost_is_kept(case: Case, choices: dict[str, Any]):
    usage = {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9, "cost": 0.25}
    refused = case.refused({"id": "gen-1", "provider": "HostA", "usage": usage, **choices})
    assert (refused.failure.reason, refused.again, refused.failure.final) == ("no_choices", True, False)
    assert (refused.failure.cost_usd, refused.provider) == (0.25, "HostA")


def test_case_3_blank_lines_before_the_json(case: Case):
    body = '{"choices":[{"finish_reason":"stop","message":{"content":"ok"}}]}'
    row = case.row("\n\n   \n" * 40 + body, mode="instant")
    assert (row["content"], row["output_ids"]) == ("ok", case.ids("ok", END))
    empty = case.refused("\n\n   \n" * 40)
    assert (empty.failure.reason, empty.again, empty.failure.final) == ("empty_body", True, False)


def payment(source: str | None, reason: str | None = None) -> dict[str, Any]:
    metadata = {} if source is None else {"limit_source": source, **({} if reason is None else {"reason": reason})}
    return {"error": {"code": 402, "message": "m", "metadata": metadata}}


def test_case_5_credit_that_is_held_in_flight_asks_for_a_pause_and_fewer_requests(case: Case):
    refused = case.refused(payment("openrouter_in_flight_budget", "in_flight_budget_exhausted"), 402, retry_after="7")
    assert (refused.failure.reason, refused.retry_after_s, refused.shrink) == ("in_flight_budget", 7.0, True)
    assert (refused.again, refused.stops_run, refused.provider, refused.failure.final) == (True, None, None, False)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (payment("openrouter_credits", "weight_exceeds_budget"), "no_credit"),
        (payment("openrouter_in_flight_budget", "weight_exceeds_budget"), "no_credit"),
        (payment("openrouter_key_limit"), "key_limit"),
        (payment(None), "no_credit"),
        ({"error": {"code": 402, "message": "You requested up to 8192 tokens, but can only afford 7"}}, "no_credit"),
    ],
)
def test_case_5_no_credit_stops_the_run_and_blames_no_prompt(case: Case, body: dict[str, Any], reason: str):
    refused = case.refused(body, 402, retry_after="7")
    assert (refused.failure.reason, refused.again, refused.shrink, refused.failure.final) == (
        reason, False, False, False,
    )  # fmt: skip
    assert refused.stops_run


@pytest.mark.parametrize(("status", "title"), [(524, "524: A timeout occurred"), (520, "520")])
def test_case_6_an_html_page_of_the_edge_goes_by_its_status(case: Case, status: int, title: str):
    page = f"<!DOCTYPE html><title>{title}</title>" + "x" * 100_000
    refused = case.refused(page, status)
    assert (refused.failure.reason, refused.again, refused.failure.final) == (f"http_{status}", True, False)
    assert len(refused.failure.detail) < 300


@pytest.mark.parametrize(
    ("status", "error", "final", "stops", "about"),
    [
        (403, {"metadata": {"reasons": ["violence"], "flagged_input": "x"}}, True, False, False),
        (403, {}, False, True, False),
        (401, {}, False, True, False),
        (400, {"metadata": {"error_type": "context_length_exceeded"}}, True, False, False),
        (400, {"metadata": {"error_type": "model_not_found"}}, False, False, True),
        (404, {"metadata": {"error_type": "constraint_filtered"}}, False, False, True),
        (413, {}, True, False, False),
        (422, {}, True, False, False),
        (503, {"availability": {"retryable": False}}, False, False, True),
    ],
)
def test_what_cannot_pass_is_told_apart_by_whose_fault_it_is(
    case: Case, status: int, error: dict[str, Any], final: bool, stops: bool, about: bool
):
    refused = case.refused({"error": {"code": status, "message": "m", **error}}, status)
    assert (refused.failure.final, refused.stops_run is not None, refused.about_endpoint) == (final, stops, about)
    assert not refused.again


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_asked_again_when_the_server_wishes(case: Case, status: int):
    refused = case.refused({"error": {"code": status, "message": "m"}}, status, retry_after="3")
    assert (refused.again, refused.failure.final, refused.retry_after_s) == (True, False, 3.0)


def test_an_availability_error_says_when_to_come_back(case: Case):
    availability = {"code": "x", "retryable": True, "retry_after": 11}
    refused = case.refused({"error": {"http_status": 503, "error_type": "x", "availability": availability}}, 503)
    assert (refused.again, refused.retry_after_s) == (True, 11.0)


# --- finish reasons and usage ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finish", "native", "count"), [("stop", "length", 512), ("length", "stop", 3), ("stop", "stop", 512)]
)
def test_case_9_a_cut_by_either_reason_or_at_the_cap_gets_no_terminal(case: Case, finish: str, native: str, count: int):
    body = answer({"reasoning": "r", "content": "half a sent"}, finish, native_finish_reason=native,
                  usage={"completion_tokens": count})  # fmt: skip
    row = case.row(body)
    assert (row["finish_reason"], row["native_finish_reason"]) == (finish, native)
    assert row["output_ids"] == case.ids("r", END_THINK, "half a sent")
    assert row["rebuild_status"] == ("ambiguous" if finish == native == "stop" else "truncated")


@pytest.mark.parametrize("streamed", [False, True])
def test_case_10_a_missing_finish_is_rejected_and_asked_again(case: Case, streamed: bool):
    message = {"content": "done", "reasoning": "r"}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    body: Any = {"model": MODEL, "choices": [{"message": message}], "usage": usage}
    if streamed:
        event = {"model": MODEL, "choices": [{"index": 0, "delta": message}], "usage": usage}
        body = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n"
    refused = case.refused(body)
    assert refused.failure.reason == ("stream_cut" if streamed else "finish_unknown")
    assert (refused.again, refused.failure.final) == (True, False)


def test_case_10_a_missing_finish_of_a_counted_answer_is_never_taken_for_stop(case: Case):
    row = case.row(answer({"content": "done", "reasoning": "r"}, None, usage={"completion_tokens": 4}))
    assert (row["finish_reason"], row["output_ids"], row["rebuild_status"]) == (None, None, "ambiguous")


def test_case_11_both_counts_stand_as_they_were_reported(case: Case):
    usage = {"prompt_tokens": 21, "completion_tokens": 293, "total_tokens": 314,
             "completion_tokens_details": {"reasoning_tokens": 321}}  # fmt: skip
    row = case.row(answer({"content": "a", "reasoning": "r"}, usage=usage))
    assert (row["completion_tokens"], row["reasoning_tokens"], row["prompt_tokens"]) == (293, 321, 21)


def test_case_12_ids_that_were_sampled_otherwise_are_kept_and_are_not_the_texts(case: Case):
    canonical = case.ids("r", END_THINK, "ab", END)
    sampled = case.ids("r", END_THINK, "a", "b", END)
    assert len(canonical) - len(sampled) == -1
    usage = {"completion_tokens": len(sampled)}
    message = {"reasoning": "r", "content": "ab"}
    engine = case.row(answer(message, token_ids=sampled, usage=usage), endpoint=endpoint_of("vllm"))
    assert (engine["output_ids"], engine["ids_source"]) == (sampled, "engine")
    rebuilt = case.row(answer(message, usage=usage))
    assert (rebuilt["output_ids"], rebuilt["ids_source"], rebuilt["completion_tokens"]) == (
        canonical, "rebuilt", len(sampled),
    )  # fmt: skip


# --- defects of Kimi's text -----------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", None])
def test_case_14_a_whole_answer_in_the_reasoning_has_no_ids(case: Case, content: str | None):
    row = case.row(answer({"reasoning": "The capital is X. **Answer: X**", "content": content}))
    assert (row["output_ids"], row["rebuild_status"]) == (None, "answer_missing")


def test_case_16_reasoning_that_used_up_the_budget_ends_open(case: Case):
    row = case.row(answer({"reasoning": "step 1 ...", "content": None}, "length"))
    assert (row["output_ids"], row["rebuild_status"]) == (case.ids("step 1 ..."), "truncated")


SECTION = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.find:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    "<|tool_calls_section_end|>"
)


def test_case_17_tool_markers_in_the_reasoning_have_no_ids(case: Case):
    row = case.row(answer({"reasoning": f"look it up {SECTION}", "content": ""}))
    assert (row["output_ids"], row["rebuild_status"]) == (None, "ambiguous")
    assert "marker_in_reasoning" in row["notes"]


# --- ids that did not come -------------------------------------------------------------------------------

NULL_IDS = {"model": MODEL, "prompt_token_ids": [1, 2],
            "choices": [{"token_ids": None, "finish_reason": "stop", "message": {"content": "hi"}}]}  # fmt: skip


def test_case_30_null_ids_are_rebuilt_from_text_and_never_called_the_engines(case: Case):
    row = case.row(NULL_IDS, endpoint=endpoint_of("vllm"), mode="instant")
    assert (row["output_ids"], row["ids_source"]) == (case.ids("hi", END), "rebuilt")
    assert {"ids_null", "ids_not_returned"} <= set(row["notes"])
    assert row["prompt_ids_source"] == "rendered"


def test_case_30_a_reply_without_the_field_says_so_too(case: Case):
    row = case.row(answer({"content": "hi"}), endpoint=endpoint_of("vllm"), mode="instant")
    assert (row["ids_source"], "ids_not_returned" in row["notes"]) == ("rebuilt", True)
    assert "ids_not_returned" not in case.row(answer({"content": "hi"}), mode="instant")["notes"]


def test_case_30_an_endpoint_may_require_ids(case: Case):
    refused = case.refused(NULL_IDS, endpoint=endpoint_of("vllm", 'ids = "require"'), mode="instant")
    assert (refused.failure.reason, refused.failure.final, refused.again) == ("ids_missing", False, False)
    assert refused.about_endpoint
    assert json.loads(refused.failure.body or "") == NULL_IDS


@pytest.mark.parametrize(
    ("name", "lines", "source"),
    [
        ("vllm", "", "engine"),
        ("fireworks", 'ids = "ask"', "engine"),
        ("fireworks", "", "given"),
        ("openrouter", "", "given"),
        ("vllm", 'ids = "off"', "given"),
    ],
)
def test_ids_are_the_engines_only_where_they_were_asked_for(case: Case, name: str, lines: str, source: str):
    ids = case.ids("hi", END)
    row = case.row(answer({"content": "hi"}, token_ids=ids), endpoint=endpoint_of(name, lines), mode="instant")
    assert (row["output_ids"], row["ids_source"]) == (ids, source)


# --- who answered ---------------------------------------------------------------------------------------


def test_a_provider_that_was_not_allowed_gives_no_row_and_is_not_merely_rested(case: Case):
    body = {**answer({"reasoning": "r", "content": "a"}, usage={"cost": 0.5}), "provider": "Avian"}
    only = endpoint_of("openrouter", 'provider = { only = ["chutes"] }')
    refused = case.refused(body, endpoint=only)
    assert (refused.failure.reason, refused.failure.final, refused.again) == ("provider_not_allowed", False, False)
    assert (refused.failure.provider, refused.failure.cost_usd, refused.provider) == ("Avian", 0.5, None)


@pytest.mark.parametrize(
    "body",
    [
        {"provider": "HostA", **answer({"content": "half"}, "error")},
        {"provider": "HostA", "choices": []},
        {"provider": "HostA", **answer({"content": 5})},
        "data: " + json.dumps({"provider": "HostA", "choices": [{"index": 0, "delta": {"content": "a"}}]}) + "\n\n",
    ],
)
def test_who_failed_is_named(case: Case, body: Any):
    assert case.refused(body).provider == "HostA"
