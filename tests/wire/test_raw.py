"""Lines of an in-house raw_responses.jsonl."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.records import IdsSource, Reply, ToolCall
from toolkit.wire import NoAnswer, read_raw


def line(**fields: Any) -> str:
    return json.dumps({"sample_id": "s", "output_ids": [5, 163586], "finish_reason": "stop", **fields})


def reply_of(body: str) -> Reply:
    answer = read_raw(200, body)
    assert isinstance(answer, Reply), answer
    return answer


def test_every_field() -> None:
    body = line(
        provider="P",
        model="m",
        id="gen-1",
        created=5,
        reasoning="r",
        content="a",
        tool_calls=[{"id": "functions.f:0", "name": "f", "arguments": "{}"}],
        native_finish_reason="eos",
        prompt_ids=[1],
        usage={
            "prompt_tokens": 1,
            "completion_tokens": 2,
            "cost": 0.5,
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    )
    assert reply_of(body) == Reply(
        request_id="gen-1",
        provider="P",
        model="m",
        created=5,
        reasoning="r",
        content="a",
        tool_calls=(ToolCall(id="functions.f:0", name="f", arguments="{}"),),
        finish_reason="stop",
        native_finish_reason="eos",
        prompt_tokens=1,
        completion_tokens=2,
        reasoning_tokens=0,
        cost_usd=0.5,
        output_ids=[5, 163586],
        ids_source=IdsSource.GIVEN,
        prompt_ids=[1],
    )


def test_the_form_of_the_issue() -> None:
    """SGLang's meta_info, and nothing but ids."""
    meta = {"id": "rid", "finish_reason": {"type": "length", "length": 2}, "prompt_tokens": 9, "completion_tokens": 2}
    reply = reply_of(json.dumps({"sample_id": "s", "output_ids": [5, 6], "meta_info": {**meta, "reasoning_tokens": 1}}))
    assert (reply.request_id, reply.finish_reason, reply.native_finish_reason) == ("rid", "length", None)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.reasoning_tokens) == (9, 2, 1)
    assert (reply.reasoning, reply.content, reply.tool_calls) == (None, None, ())


# (finish_reason, meta_info.finish_reason, what is read: finish, native)
ENDS: list[tuple[Any, Any, str | None, str | None]] = [
    ("stop", None, "stop", None),
    (None, None, None, None),
    (None, {"type": "stop", "matched": 163586}, "stop", None),
    ({"type": "stop", "matched": 163586}, None, "stop", None),
    ("stop", {"type": "stop", "matched": 163586}, "stop", None),
    # The engine's own word is not lost behind the line's.
    ("stop", {"type": "length", "length": 2}, "stop", "length"),
    (5, None, None, None),
]


@pytest.mark.parametrize(("own", "engine", "finish", "native"), ENDS)
def test_ends(own: Any, engine: Any, finish: str | None, native: str | None) -> None:
    reply = reply_of(line(finish_reason=own, meta_info={"finish_reason": engine}))
    assert (reply.finish_reason, reply.native_finish_reason) == (finish, native)


NAN = {"type": "stop", "matched": "NaN happened"}
ABORT = {"type": "abort", "message": "x", "status_code": 500}

# (body, reason)
REFUSALS: list[tuple[str, str]] = [
    (line(finish_reason=NAN), "aborted"),
    (line(finish_reason=None, meta_info={"finish_reason": NAN}), "aborted"),
    (line(finish_reason="stop", meta_info={"finish_reason": NAN}), "aborted"),
    (line(finish_reason=ABORT), "aborted"),
    (line(finish_reason="abort"), "aborted"),
    (line(finish_reason="stop", meta_info={"finish_reason": ABORT}), "aborted"),
    (line(output_ids=[True, 5]), "ids_invalid"),
    (line(output_ids=[5.0]), "ids_invalid"),
    (line(output_ids=["5"]), "ids_invalid"),
    (line(output_ids=[None]), "ids_invalid"),
    (line(output_ids=[2**40]), "ids_invalid"),
    (line(output_ids=[[5]]), "ids_invalid"),
    (line(output_ids="5 6"), "ids_invalid"),
    (line(output_ids={"0": 5}), "ids_invalid"),
    (line(output_ids=None), "no_choices"),
    (line(content=["a"]), "malformed"),
    (line(output_ids=None, error={"code": 429, "message": "m"}), "http_429"),
    (line(error={"code": 502, "message": "upstream died"}), "http_502"),
    ("[5]", "malformed"),
    ("null", "malformed"),
    ("", "not_json"),
    ('{"output_ids": [NaN]}', "not_json"),
    ("{" * 9, "not_json"),
]


@pytest.mark.parametrize(("body", "reason"), REFUSALS)
def test_lines_that_are_no_answer(body: str, reason: str) -> None:
    answer = read_raw(200, body)
    assert isinstance(answer, NoAnswer)
    assert answer.reason == reason


# Ids that are no tokens are kept: it is the audit that speaks of them.
@pytest.mark.parametrize("ids", [[], [-1], [163840], [2**31 - 1], [0] * 10_000])
def test_ids_are_kept(ids: list[int]) -> None:
    assert reply_of(line(output_ids=ids)).output_ids == ids


def test_text_without_ids_is_an_answer() -> None:
    reply = reply_of(line(output_ids=None, content="a"))
    assert (reply.output_ids, reply.ids_source, reply.content) == (None, None, "a")


KEYS = st.sampled_from(
    [
        "output_ids",
        "content",
        "reasoning",
        "tool_calls",
        "finish_reason",
        "meta_info",
        "matched",
        "type",
        "usage",
        "provider",
        "model",
        "created",
        "cost",
        "error",
        "code",
        "prompt_ids",
        "completion_tokens",
        "reasoning_details",
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@given(value=ANYTHING | st.dictionaries(KEYS, ANYTHING, max_size=8))
@settings(max_examples=400, deadline=None)
def test_nothing_raises(value: Any) -> None:
    answer = read_raw(200, json.dumps(value))
    if isinstance(answer, Reply):
        ids = answer.output_ids
        assert ids is not None or answer.reasoning is not None or answer.content is not None or answer.tool_calls
        assert ids is None or all(type(i) is int and -(2**31) <= i < 2**31 for i in ids)
