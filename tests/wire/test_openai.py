"""Chat completions that were not streamed: what is an answer, what is none, and of which kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.records import IdsSource, Reply, ToolCall
from toolkit.wire import NoAnswer, read_completion

OK = {"choices": [{"finish_reason": "stop", "message": {"content": "ok"}}]}


def body_of(message: Any = None, *, choice: dict[str, Any] | None = None, **head: Any) -> str:
    """A reply with one choice."""
    first = {"finish_reason": "stop", "message": {"content": "ok"} if message is None else message}
    return json.dumps({"choices": [first | (choice or {})], **head})


def reply_of(body: str) -> Reply:
    answer = read_completion(200, body)
    assert isinstance(answer, Reply), answer
    return answer


def refusal_of(body: str, status: int = 200) -> NoAnswer:
    answer = read_completion(status, body)
    assert isinstance(answer, NoAnswer), answer
    return answer


# --- answers ---------------------------------------------------------------------------------------


def test_every_field() -> None:
    body = {
        "id": "gen-1",
        "provider": "Chutes",
        "model": "moonshotai/kimi-k2.5-0127",
        "created": 1_770_000_000,
        "prompt_token_ids": [1, 2],
        "choices": [
            {
                "finish_reason": "tool_calls",
                "native_finish_reason": "stop",
                "token_ids": [5, 6],
                "message": {
                    "reasoning": " r",
                    "content": None,
                    "tool_calls": [
                        {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                    ],
                },
            }
        ],
        "usage": {
            "prompt_tokens": 21,
            "completion_tokens": 40,
            "cost": 0.001,
            "completion_tokens_details": {"reasoning_tokens": 12},
        },
    }
    assert read_completion(200, json.dumps(body)) == Reply(
        request_id="gen-1",
        provider="Chutes",
        model="moonshotai/kimi-k2.5-0127",
        created=1_770_000_000,
        reasoning=" r",
        content=None,
        tool_calls=(ToolCall(id="functions.f:0", name="f", arguments="{}"),),
        finish_reason="tool_calls",
        native_finish_reason="stop",
        prompt_tokens=21,
        completion_tokens=40,
        reasoning_tokens=12,
        cost_usd=0.001,
        output_ids=[5, 6],
        ids_source=IdsSource.ENGINE,
        prompt_ids=[1, 2],
        streamed=False,
    )


def test_blank_lines_before_the_json() -> None:
    """Case 3."""
    assert reply_of("\n\n   \n" * 40 + json.dumps(OK)).content == "ok"


# (message, reasoning, content, notes)
MESSAGES: list[tuple[dict[str, Any], str | None, str | None, tuple[str, ...]]] = [
    ({"content": " a\n"}, None, " a\n", ()),
    ({"content": None}, None, None, ()),
    ({}, None, None, ()),
    ({"content": ""}, None, "", ()),
    ({"content": "a", "reasoning": "r"}, "r", "a", ()),
    ({"content": "a", "reasoning_content": "r"}, "r", "a", ()),
    ({"content": "a", "reasoning": None, "reasoning_content": "r"}, "r", "a", ()),
    ({"content": "a", "reasoning": "", "reasoning_content": None}, "", "a", ()),
    ({"content": "a", "reasoning_details": [{"type": "reasoning.text", "text": " r"}, {"text": "s"}]}, " rs", "a", ()),
    (
        {"content": "a", "reasoning": "r", "reasoning_details": [{"type": "reasoning.summary", "summary": "s"}]},
        "r",
        "a",
        ("reasoning_not_verbatim",),
    ),
    (
        {"content": "a", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
        None,
        "a",
        ("reasoning_not_verbatim",),
    ),
    (
        {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]},
        None,
        "a b",
        ("content_parts",),
    ),
    ({"content": "\ud800"}, None, "\ud800", ()),
    ({"content": "a", "reasoning": ["r"]}, None, "a", ("wrong_type:reasoning",)),
    ({"content": "a", "tool_calls": []}, None, "a", ()),
    ({"content": "a", "tool_calls": "f()"}, None, "a", ("wrong_type:tool_calls",)),
]


@pytest.mark.parametrize(("message", "reasoning", "content", "notes"), MESSAGES)
def test_messages(message: dict[str, Any], reasoning: str | None, content: str | None, notes: tuple[str, ...]) -> None:
    reply = reply_of(body_of(message))
    assert (reply.reasoning, reply.content, reply.notes) == (reasoning, content, notes)


# (call, what is read, notes)
CALLS = [
    ({"id": "i", "function": {"name": "f", "arguments": ' {"a":1}'}}, ("i", "f", ' {"a":1}'), ()),
    ({"id": "i", "name": "f", "arguments": "{}"}, ("i", "f", "{}"), ()),
    ({"function": {}}, (None, None, None), ()),
    ({"id": "i", "function": {"name": "f", "arguments": {"a": 1}}}, ("i", "f", None), ("wrong_type:arguments",)),
    ({"id": 5, "function": {"name": "f", "arguments": ""}}, (None, "f", ""), ("wrong_type:id",)),
    ({"id": "i", "function": "f"}, ("i", None, None), ("wrong_type:tool_calls",)),
    ("f", (None, None, None), ("wrong_type:tool_calls",)),
]


@pytest.mark.parametrize(("call", "read", "notes"), CALLS)
def test_tool_calls_are_never_coerced(call: Any, read: tuple[str | None, ...], notes: tuple[str, ...]) -> None:
    reply = reply_of(body_of({"content": None, "tool_calls": [call]}))
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [read]
    assert reply.notes == notes


# (usage, completion_tokens, notes)
COUNTS: list[tuple[Any, int | None, tuple[str, ...]]] = [
    ({"completion_tokens": 3}, 3, ()),
    ({"completion_tokens": 3.0}, 3, ()),
    ({"completion_tokens": 0}, 0, ()),
    ({}, None, ()),
    (None, None, ()),
    ({"completion_tokens": None}, None, ()),
    ({"completion_tokens": 3.5}, None, ("wrong_type:completion_tokens",)),
    ({"completion_tokens": "3"}, None, ("wrong_type:completion_tokens",)),
    ({"completion_tokens": True}, None, ("wrong_type:completion_tokens",)),
    ({"completion_tokens": -1}, None, ("wrong_type:completion_tokens",)),
    ({"completion_tokens": 2**31}, None, ("wrong_type:completion_tokens",)),
    ({"completion_tokens": 10**400}, None, ("wrong_type:completion_tokens",)),
    ([3], None, ("wrong_type:usage",)),
]


@pytest.mark.parametrize(("usage", "count", "notes"), COUNTS, ids=lambda value: repr(value)[:40])
def test_counts(usage: Any, count: int | None, notes: tuple[str, ...]) -> None:
    reply = reply_of(body_of(usage=usage))
    assert (reply.completion_tokens, reply.notes) == (count, notes)


@pytest.mark.parametrize(
    ("cost", "read"),
    [(0, 0.0), (0.25, 0.25), (-1, None), (1e300, None), (10**400, None), ("0.1", None), (True, None), (None, None)],
    ids=lambda value: repr(value)[:12],
)
def test_costs(cost: Any, read: float | None) -> None:
    assert reply_of(body_of(usage={"cost": cost})).cost_usd == read


# (where ids stand, what is read, notes)
IDS: list[tuple[dict[str, Any], dict[str, Any], list[int] | None, tuple[str, ...]]] = [
    ({"token_ids": [1, 2]}, {}, [1, 2], ()),
    ({}, {"raw_output": {"completion_token_ids": [1, 2]}}, [1, 2], ()),
    ({"raw_output": {"completion_token_ids": [1, 2]}}, {}, [1, 2], ()),
    ({"token_ids": None}, {"prompt_token_ids": [1]}, None, ("ids_null",)),
    ({}, {}, None, ()),
    ({"token_ids": [1.0]}, {}, None, ("wrong_type:token_ids", "ids_null")),
    ({"token_ids": [True]}, {}, None, ("wrong_type:token_ids", "ids_null")),
    ({"token_ids": ["1"]}, {}, None, ("wrong_type:token_ids", "ids_null")),
    ({"token_ids": [2**40]}, {}, None, ("wrong_type:token_ids", "ids_null")),
    ({"token_ids": "12"}, {}, None, ("wrong_type:token_ids", "ids_null")),
    ({"token_ids": []}, {}, None, ()),
]


@pytest.mark.parametrize(("choice", "head", "ids", "notes"), IDS)
def test_ids(choice: dict[str, Any], head: dict[str, Any], ids: list[int] | None, notes: tuple[str, ...]) -> None:
    """Case 30 among them: null ids leave a reply without ids, and a note."""
    reply = reply_of(body_of(choice=choice, **head))
    assert (reply.output_ids, reply.notes) == (ids, notes)
    assert reply.ids_source is (None if ids is None else IdsSource.ENGINE)


def test_ids_tell_the_end_where_no_reason_does() -> None:
    reply = reply_of(body_of(choice={"finish_reason": None, "token_ids": [5, 163586]}))
    assert (reply.finish_reason, reply.output_ids) == (None, [5, 163586])


def test_fireworks_keeps_both_kinds_of_ids_in_raw_output() -> None:
    raw = {"prompt_token_ids": [7], "completion_token_ids": [1, 2], "completion": "ok"}
    reply = reply_of(body_of(choice={"raw_output": raw}))
    assert (reply.prompt_ids, reply.output_ids) == ([7], [1, 2])


def test_comments_before_the_json() -> None:
    assert reply_of(": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n" + json.dumps(OK)).content == "ok"


def logprobs(*tokens: Any) -> dict[str, Any]:
    return {"logprobs": {"content": list(tokens)}}


# (tokens of logprobs.content, pieces, notes)
PIECES: list[tuple[list[Any], tuple[bytes, ...] | None, tuple[str, ...]]] = [
    ([{"token": "o", "logprob": -0.1, "bytes": [111]}, {"token": "k", "bytes": [107]}], (b"o", b"k"), ()),
    ([{"token": "\ufffd", "bytes": [240, 159]}, {"token": "\ufffd", "bytes": [152, 128]}],
     (b"\xf0\x9f", b"\x98\x80"), ()),
    ([{"token": "ok", "bytes": None}], None, ("logprobs_without_bytes",)),
    ([{"token": "ok"}], None, ("logprobs_without_bytes",)),
    ([{"token": "ok", "bytes": [256]}], None, ("logprobs_without_bytes",)),
    ([{"token": "ok", "bytes": [True]}], None, ("logprobs_without_bytes",)),
    (["ok"], None, ("logprobs_without_bytes",)),
    ([], None, ()),
]  # fmt: skip


@pytest.mark.parametrize(("tokens", "pieces", "notes"), PIECES, ids=lambda value: repr(value)[:40])
def test_bytes_of_sampled_tokens_are_kept(
    tokens: list[Any], pieces: tuple[bytes, ...] | None, notes: tuple[str, ...]
) -> None:
    reply = reply_of(body_of(choice=logprobs(*tokens)))
    assert (reply.pieces, reply.notes) == (pieces, notes)


def test_several_choices_are_noted() -> None:
    assert reply_of(json.dumps({"choices": [OK["choices"][0], {}]})).notes == ("several_choices",)


# --- no answers ------------------------------------------------------------------------------------

NULLS = {"id": None, "choices": None, "usage": None}
IN_FLIGHT = {"limit_source": "openrouter_in_flight_budget", "reason": "in_flight_budget_exhausted"}


def error(code: Any = None, **more: Any) -> dict[str, Any]:
    return {"error": {"message": "m", **({} if code is None else {"code": code}), **more}}


# (status, body, reason, transient, stops the run)
REFUSALS: list[tuple[int, Any, str, bool, bool]] = [
    (200, {**NULLS, **error(429, metadata={"raw": "slow down", "provider_name": "HostA"})}, "http_429", True, False),
    (200, error(400), "http_400", False, False),
    (200, error(), "http_502", True, False),
    (200, {"error": "down"}, "http_502", True, False),
    (200, {"error": ["down"]}, "http_502", True, False),
    (429, error(), "http_429", True, False),
    (429, error("rate_limit_exceeded"), "http_429", True, False),
    (500, error("503"), "http_503", True, False),
    (400, error(400), "http_400", False, False),
    (401, error(401), "unauthorized", False, True),
    (403, error(403), "forbidden", False, True),
    (403, error(403, metadata={"reasons": ["violence"]}), "http_403", False, False),
    (404, error(404), "http_404", False, False),
    (408, error(408), "http_408", True, False),
    (413, error(413), "http_413", False, False),
    (502, error(502), "http_502", True, False),
    (529, error(529), "http_529", True, False),
    # The three kinds of 402, and one that says nothing.
    (402, error(402, metadata=IN_FLIGHT), "in_flight_budget", True, False),
    (
        402,
        error(402, metadata={"limit_source": "openrouter_credits", "reason": "weight_exceeds_budget"}),
        "no_credit",
        False,
        True,
    ),
    (402, error(402, metadata={"limit_source": "openrouter_key_limit"}), "key_limit", False, True),
    (402, error(402, metadata={**IN_FLIGHT, "reason": "weight_exceeds_budget"}), "no_credit", False, True),
    (402, error(402), "no_credit", False, True),
    # Availability errors bear no code.
    (503, error(http_status=503, availability={"retryable": True}), "http_503", True, False),
    (503, error(http_status=503, availability={"retryable": False}), "http_503", False, False),
    (200, error(http_status=404, error_type="no_endpoints", availability={"code": "x"}), "http_404", False, False),
    (503, error(503), "http_503", True, False),
    # SGLang's flat form.
    (400, {"object": "error", "message": "too long", "type": "BadRequest", "code": 400}, "http_400", False, False),
    # Strange codes.
    (200, error(10**400), "http_502", True, False),
    (200, error(True), "http_502", True, False),
    (200, error(200), "http_502", True, False),
    (503, error(-1), "http_503", True, False),
]


@pytest.mark.parametrize(
    ("status", "body", "reason", "transient", "stops"), REFUSALS, ids=lambda value: repr(value)[:40]
)
def test_error_bodies(status: int, body: Any, reason: str, transient: bool, stops: bool) -> None:
    answer = refusal_of(json.dumps(body), status)
    assert (answer.reason, answer.transient, answer.stops_run) == (reason, transient, stops)


def test_an_error_within_200_names_its_provider() -> None:
    """Case 1."""
    answer = refusal_of(json.dumps({**NULLS, **error(429, metadata={"provider_name": "HostA"})}))
    assert (answer.status, answer.provider, answer.cost_usd) == (429, "HostA", None)


@pytest.mark.parametrize(
    ("wished", "read"),
    [(7, 7.0), (0.5, 0.5), (0, 0.0), (-1, None), ("7", None), (True, None), (10**400, None)],
    ids=lambda value: repr(value)[:8],
)
def test_retry_after_in_the_body(wished: Any, read: float | None) -> None:
    body = json.dumps(error(503, availability={"retryable": True, "retry_after": wished}))
    assert refusal_of(body).retry_after_s == read
    kept = read_completion(503, body, retry_after_s=3.0)
    assert isinstance(kept, NoAnswer)
    assert kept.retry_after_s == 3.0


# (status, body, what it speaks of): only what is the prompt's own fault must never be asked again
SPEAKS_OF = [
    (400, error(400), "prompt"),
    (400, error(400, metadata={"error_type": "context_length_exceeded"}), "prompt"),
    (400, error(400, metadata={"error_type": "model_not_found"}), "endpoint"),
    (403, error(403, metadata={"reasons": ["violence"]}), "prompt"),
    (403, error(403, metadata={"error_type": "content_policy_violation"}), "prompt"),
    (403, error(403), "key"),
    (404, error(404), "endpoint"),
    (200, error(404), "endpoint"),
    (404, {"detail": "Not Found"}, "endpoint"),
    (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "prompt"),
    (405, error(405), "endpoint"),
    (503, error(503, availability={"retryable": False}), "endpoint"),
    (501, error(501), "moment"),
    (599, error(599), "moment"),
]


@pytest.mark.parametrize(("status", "body", "what"), SPEAKS_OF, ids=lambda value: repr(value)[:60])
def test_whom_an_error_speaks_of(status: int, body: Any, what: str) -> None:
    answer = refusal_of(json.dumps(body), status)
    marks = {"moment": answer.transient, "key": answer.stops_run, "endpoint": answer.about_endpoint}
    assert [name for name, holds in marks.items() if holds] == ([] if what == "prompt" else [what])
    assert not answer.shrink


@pytest.mark.parametrize(("status", "what"), [(403, "endpoint"), (302, "endpoint"), (413, "endpoint"), (524, "moment")])
def test_a_page_of_an_edge_blames_no_prompt(status: int, what: str) -> None:
    answer = refusal_of("<!DOCTYPE html><title>blocked</title>", status)
    assert (answer.about_endpoint, answer.transient) == (what == "endpoint", what == "moment")


def test_a_reply_under_another_status_than_200_is_none() -> None:
    assert refusal_of(json.dumps(OK), 302).reason == "http_302"


# (status, body, reason, transient)
NOT_JSON = [
    (200, "", "empty_body", True),
    (200, "\n\n   \n" * 40, "empty_body", True),
    (200, "<!DOCTYPE html><title>x</title>", "not_json", True),
    (524, "<!DOCTYPE html><title>524: A timeout occurred</title>", "http_524", True),
    (520, "<html>", "http_520", True),
    (502, "", "http_502", True),
    (429, "slow down", "http_429", True),
    (403, "<html>", "http_403", False),
    (404, "<html>", "http_404", False),
    (401, "<html>", "http_401", False),
    (500, json.dumps(OK), "http_500", True),
    (400, "[]", "http_400", False),
    (200, "[]", "malformed", True),
    (200, '"ok"', "malformed", True),
    (200, '{"choices": NaN}', "not_json", True),
    (200, "[" * 100_000, "not_json", True),
]


@pytest.mark.parametrize(("status", "body", "reason", "transient"), NOT_JSON, ids=lambda value: repr(value)[:24])
def test_bodies_that_are_no_reply(status: int, body: str, reason: str, transient: bool) -> None:
    """Case 6 among them: an edge's HTML goes by its status."""
    answer = refusal_of(body, status)
    assert (answer.reason, answer.transient) == (reason, transient)
    assert answer.stops_run is (status == 401)
    assert len(answer.detail) < 300


# (head of the reply, reason)
NO_CHOICES: list[tuple[dict[str, Any], str]] = [
    ({}, "no_choices"),
    ({"choices": None}, "no_choices"),
    ({"choices": []}, "no_choices"),
    ({"choices": {}}, "no_choices"),
    ({"choices": [None]}, "no_choices"),
    ({"choices": [{}]}, "no_choices"),
    ({"choices": [{"message": None, "finish_reason": "stop"}]}, "no_choices"),
    ({"choices": [{"message": "ok", "finish_reason": "stop"}]}, "no_choices"),
    ({"choices": [{"message": {"content": 5}, "finish_reason": "stop"}]}, "malformed"),
    ({"choices": [{"message": {"content": ["a"]}, "finish_reason": "stop"}]}, "malformed"),
    ({"choices": [{"message": {"content": [{"type": "image"}]}, "finish_reason": "stop"}]}, "malformed"),
    ({"choices": [{"message": {"content": "half"}, "finish_reason": "error"}]}, "error_in_choice"),
    ({"choices": [{"message": {"content": "half"}, "finish_reason": "stop", **error(502)}]}, "error_in_choice"),
    ({"choices": [{"message": {"content": "half"}, "error": {}}]}, "error_in_choice"),
    # SGLang: a stop id in place of one that it could not sample, and a part of an answer.
    ({"choices": [{**OK["choices"][0], "matched_stop": "NaN happened", "token_ids": [5, 163586]}]}, "aborted"),
    ({"choices": [{"message": {"content": "half"}, "finish_reason": "abort", "token_ids": [5]}]}, "aborted"),
]


@pytest.mark.parametrize(("head", "reason"), NO_CHOICES, ids=lambda value: repr(value)[:60])
def test_replies_without_an_answer_keep_their_cost(head: dict[str, Any], reason: str) -> None:
    """Case 2, and what is like it."""
    answer = refusal_of(json.dumps({**head, "provider": "HostA", "usage": {"prompt_tokens": 9, "cost": 0.5}}))
    assert (answer.reason, answer.transient, answer.stops_run) == (reason, True, False)
    assert (answer.provider, answer.cost_usd) == ("HostA", 0.5)


def test_a_matched_stop_that_is_an_id_is_an_answer() -> None:
    assert reply_of(body_of(choice={"matched_stop": 163586})).finish_reason == "stop"


def test_no_finish_reason() -> None:
    """Case 10: without a reason and without a count nothing was answered; a counted reply was paid for."""
    silent = {"finish_reason": None}
    assert refusal_of(body_of(choice=silent, usage={"completion_tokens": 0})).reason == "finish_unknown"
    assert refusal_of(body_of(choice=silent)).reason == "finish_unknown"
    assert reply_of(body_of(choice=silent, usage={"completion_tokens": 5})).finish_reason is None
    assert reply_of(body_of(choice={**silent, "native_finish_reason": "stop"})).native_finish_reason == "stop"


# --- anything --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [100, 500, 900, 980, 1000, 1020, 2000, 50_000])
@pytest.mark.parametrize(
    "frame",
    [
        '{"choices":%s}',
        '{"choices":[{"message":%s}]}',
        '{"error":%s}',
        '{"error":{"message":%s},"a":"\\ud800"}',
        '{"choices":[{"finish_reason":"stop","message":{"content":%s}}]}',
        '{"usage":%s,"choices":[]}',
        "%s",
    ],
)
def test_deep_nesting_is_no_answer_and_no_crash(frame: str, depth: int) -> None:
    for value in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        assert isinstance(read_completion(200, frame % value), NoAnswer)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=5)
    | st.sampled_from([2**40, 10**400, "stop", "error", "length", "NaN happened", "text", "\ud800"])
)
KEYS = st.sampled_from(
    [
        "choices",
        "message",
        "content",
        "reasoning",
        "reasoning_details",
        "tool_calls",
        "function",
        "arguments",
        "id",
        "error",
        "code",
        "metadata",
        "availability",
        "retry_after",
        "usage",
        "completion_tokens",
        "cost",
        "type",
        "text",
        "finish_reason",
        "native_finish_reason",
        "token_ids",
        "provider",
        "model",
        "created",
        "delta",
        "index",
        "object",
    ]
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
ENVELOPE = st.builds(
    lambda message, choice, head: {"choices": [{"finish_reason": "stop", "message": message, **choice}], **head},
    ANYTHING,
    st.dictionaries(KEYS, ANYTHING, max_size=2),
    st.dictionaries(KEYS, ANYTHING, max_size=3),
)


@given(value=ANYTHING | ENVELOPE, status=st.sampled_from([200, 400, 402, 503]), stream=st.booleans())
@settings(max_examples=500, deadline=None)
def test_arbitrary_json_never_raises_and_never_gives_an_answer_without_a_choice(
    value: Any, status: int, stream: bool
) -> None:
    text = json.dumps(value)
    answer = read_completion(status, f"data: {text}\n\ndata: [DONE]\n\n" if stream else text)
    if isinstance(answer, Reply):
        assert status == 200
        assert isinstance(value, dict)
        assert value["choices"]
        assert answer.content is None or isinstance(answer.content, str)
        assert answer.output_ids is None or all(type(i) is int for i in answer.output_ids)
    else:
        assert answer.reason
        assert len(answer.detail) < 400


@given(text=st.text(st.characters(), max_size=200), status=st.sampled_from([200, 500]))
def test_arbitrary_text_never_raises(text: str, status: int) -> None:
    assert isinstance(read_completion(status, text), NoAnswer)
