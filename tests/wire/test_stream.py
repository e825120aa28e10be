"""SSE transcripts: the same reply as one that was not streamed, or a reason why it is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolkit.records import IdsSource, Reply
from toolkit.wire import NoAnswer, read_completion

DONE = "data: [DONE]\n\n"


def chunk(delta: dict[str, Any] | None = None, **choice: Any) -> dict[str, Any]:
    return {"id": "gen-1", "model": "m", "choices": [{"index": 0, "delta": delta or {}, **choice}]}


def transcript(*chunks: Any, done: bool = True) -> str:
    return "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + (DONE if done else "")


END = chunk(finish_reason="stop", native_finish_reason="eos")
USAGE = {"id": "gen-1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.5}}


def reply_of(text: str) -> Reply:
    answer = read_completion(200, text)
    assert isinstance(answer, Reply), answer
    return answer


def test_deltas_are_joined_as_they_are() -> None:
    reply = reply_of(
        transcript(
            chunk({"role": "assistant", "reasoning": " th"}),
            chunk({"reasoning": "ink\n"}),
            chunk({"content": " a"}),
            chunk({"content": ""}),
            chunk({"content": "b "}),
            END,
            USAGE,
        )
    )
    assert reply == Reply(
        request_id="gen-1",
        model="m",
        reasoning=" think\n",
        content=" ab ",
        finish_reason="stop",
        native_finish_reason="eos",
        prompt_tokens=9,
        completion_tokens=3,
        cost_usd=0.5,
        streamed=True,
    )


TEXT = transcript(chunk({"content": "a"}), chunk({"content": "b"}), END, USAGE)

# What changes nothing.
SAME = [
    ("comments", ": OPENROUTER PROCESSING\n\n" * 3 + TEXT.replace("\n\ndata", "\n\n: OPENROUTER PROCESSING\n\ndata")),
    ("blank lines before it", "\n\n\n" + TEXT),
    ("CRLF", TEXT.replace("\n", "\r\n")),
    ("CR", TEXT.replace("\n", "\r")),
    ("event names and ids", TEXT.replace("data: ", "event: message\nid: 7\nretry: 10\ndata: ")),
    ("no space after the colon", TEXT.replace("data: ", "data:")),
    ("an event on two lines", TEXT.replace(', "choices"', ',\ndata: "choices"')),
    ("no blank line at the end", TEXT.rstrip("\n")),
    ("chunks without choices", TEXT.replace("data: ", 'data: {"choices": []}\n\ndata: ', 1)),
    ("what comes after the end", TEXT + transcript(chunk({"content": "late"}))),
    (
        "the reason repeated with usage",
        TEXT.replace(
            '"choices": [], "usage"', '"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage"'
        ),
    ),
]


@pytest.mark.parametrize("text", [s[1] for s in SAME], ids=[s[0] for s in SAME])
def test_what_changes_nothing(text: str) -> None:
    assert text != TEXT
    assert reply_of(text) == reply_of(TEXT)
    assert reply_of(text).content == "ab"


def test_separators_of_other_alphabets_are_text() -> None:
    text = "a\u2028b\u0085c\x0bd"
    assert reply_of(transcript(chunk({"content": text}), END)).content == text
    raw = transcript(chunk({"content": "X"}), END).replace("X", text.replace("\x0b", ""))
    assert reply_of(raw).content == text.replace("\x0b", "")


# (deltas of calls, the calls that come of them)
CALLS: list[tuple[str, list[list[dict[str, Any]]], list[tuple[str | None, str | None, str]]]] = [
    (
        "split arguments",
        [
            [{"index": 0, "id": "i", "function": {"name": "f", "arguments": ""}}],
            [{"index": 0, "function": {"arguments": '{"a"'}}],
            [{"index": 0, "function": {"arguments": ": 1}"}}],
        ],
        [("i", "f", '{"a": 1}')],
    ),
    (
        "two calls, interleaved",
        [
            [{"index": 1, "id": "j", "function": {"name": "g", "arguments": "["}}],
            [{"index": 0, "id": "i", "function": {"name": "f", "arguments": "{"}}],
            [{"index": 1, "function": {"arguments": "]"}}, {"index": 0, "function": {"arguments": "}"}}],
        ],
        [("i", "f", "{}"), ("j", "g", "[]")],
    ),
    (
        "id and name repeated",
        [[{"index": 0, "id": "i", "function": {"name": "f", "arguments": a}}] for a in ("{", "}")],
        [("i", "f", "{}")],
    ),
    (
        "no index: an id opens a call",
        [
            [{"id": "i", "function": {"name": "f", "arguments": "{"}}],
            [{"function": {"arguments": "}"}}],
            [{"id": "j", "function": {"name": "g", "arguments": "["}}],
            [{"function": {"arguments": "]"}}],
        ],
        [("i", "f", "{}"), ("j", "g", "[]")],
    ),
    (
        "no index: two calls at once",
        [[{"id": "i", "function": {"name": "f", "arguments": "1"}}, {"id": "j", "function": {"arguments": "2"}}]],
        [("i", "f", "1"), ("j", None, "2")],
    ),
]


@pytest.mark.parametrize(("deltas", "calls"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_split_calls(deltas: list[list[dict[str, Any]]], calls: list[tuple[str | None, str | None, str]]) -> None:
    reply = reply_of(transcript(*(chunk({"tool_calls": d}) for d in deltas), chunk(finish_reason="tool_calls")))
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == calls


def test_token_ids_are_deltas_and_prompt_ids_come_once() -> None:
    first = {**chunk({"content": "a"}, token_ids=[1, 2]), "prompt_token_ids": [7, 8]}
    reply = reply_of(transcript(first, chunk({"content": "b"}, token_ids=[3]), chunk({}, token_ids=[4]), END))
    assert (reply.output_ids, reply.ids_source, reply.prompt_ids) == ([1, 2, 3, 4], IdsSource.ENGINE, [7, 8])
    null = reply_of(transcript(chunk({"content": "a"}, token_ids=None), END))
    assert (null.output_ids, null.ids_source) == (None, None)
    wrong = reply_of(transcript(chunk({"content": "a"}, token_ids=[1]), chunk({}, token_ids=[True]), END))
    assert (wrong.output_ids, wrong.notes) == (None, ("wrong_type:token_ids", "ids_null"))


def test_ids_of_a_part_of_the_text_are_no_ids_of_the_reply() -> None:
    partly = reply_of(transcript(chunk({"content": "a"}, token_ids=[1]), chunk({"content": "b"}, token_ids=None), END))
    assert (partly.output_ids, partly.ids_source, partly.notes) == (None, None, ("ids_null",))


def test_bytes_of_sampled_tokens_are_joined() -> None:
    def token(value: int) -> dict[str, Any]:
        return {"logprobs": {"content": [{"token": chr(value), "bytes": [value]}]}}

    reply = reply_of(transcript(chunk({"content": "o"}, **token(111)), chunk({"content": "k"}, **token(107)), END))
    assert (reply.content, reply.pieces) == ("ok", (b"o", b"k"))


def test_an_error_in_the_middle_keeps_who_failed_and_what_it_cost() -> None:
    first = {**chunk({"content": "a"}), "provider": "P", "usage": {"cost": 0.5}}
    answer = read_completion(200, transcript(first, {"error": {"code": 502, "message": "m"}}))
    assert isinstance(answer, NoAnswer)
    assert (answer.reason, answer.provider, answer.model, answer.cost_usd) == ("http_502", "P", "m", 0.5)


def test_another_choice_is_kept_out_and_noted() -> None:
    reply = reply_of(transcript(chunk({"content": "a"}), chunk({"content": "X"}, index=1), END))
    assert (reply.content, reply.notes) == ("a", ("several_choices",))


def test_a_missing_done_is_noted() -> None:
    reply = reply_of(TEXT.removesuffix(DONE))
    assert reply == replace(reply_of(TEXT), notes=("done_missing",))


# (what, text, reason, transient)
REFUSALS = [
    ("cut", transcript(chunk({"content": "a"}), done=False), "stream_cut", True),
    ("cut within an event", TEXT[: TEXT.index('"b"')], "stream_cut", True),
    ("ended without a reason", transcript(chunk({"content": "a"})), "stream_cut", True),
    ("an event that is no object", "data: 5\n\n", "stream_cut", True),
    ("an event that is no JSON", "data: {'a': 1}\n\n" + DONE, "stream_cut", True),
    ("comments alone", ": OPENROUTER PROCESSING\n\n" * 9, "no_choices", True),
    ("only the end", DONE, "no_choices", True),
    ("only usage", transcript(USAGE), "no_choices", True),
    ("an error at once", 'data: {"error": {"message": "m", "code": 429}}\n\n', "http_429", True),
    ("an error at once, final", 'data: {"error": {"message": "m", "code": 400}}\n\n', "http_400", False),
    (
        "an error in the middle",
        transcript(chunk({"content": "a"}), {"error": {"code": 502}, **chunk(finish_reason="error")}),
        "http_502",
        True,
    ),
    ("finish error", transcript(chunk({"content": "a"}), chunk(finish_reason="error")), "error_in_choice", True),
    ("an error in a choice", transcript(chunk({"content": "a"}), chunk(error={"code": 500})), "error_in_choice", True),
    (
        "NaN",
        transcript(chunk({"content": "a"}, token_ids=[1]), chunk(finish_reason="stop", matched_stop="NaN happened")),
        "aborted",
        True,
    ),
    ("abort", transcript(chunk({"content": "a"}), chunk(finish_reason="abort")), "aborted", True),
    (
        "arguments as object",
        transcript(
            chunk({"tool_calls": [{"index": 0, "id": "functions.f:0", "function": {"arguments": {"a": 1}}}]}), END
        ),
        "malformed",
        True,
    ),
    ("content as number", transcript(chunk({"content": 5}), END), "malformed", True),
    ("reasoning as list", transcript(chunk({"reasoning": ["r"], "content": "a"}), END), "malformed", True),
]


@pytest.mark.parametrize(("text", "reason", "transient"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_streams_that_are_no_answer(text: str, reason: str, transient: bool) -> None:
    answer = read_completion(200, text)
    assert isinstance(answer, NoAnswer)
    assert (answer.reason, answer.transient) == (reason, transient)


@pytest.mark.parametrize(("status", "transient"), [(400, False), (500, True), (529, True)])
def test_a_stream_under_an_error_status_is_no_answer(status: int, transient: bool) -> None:
    answer = read_completion(status, TEXT)
    assert isinstance(answer, NoAnswer)
    assert (answer.reason, answer.transient) == (f"http_{status}", transient)


def test_a_cut_stream_keeps_what_is_known_of_its_cost() -> None:
    answer = read_completion(200, transcript({**chunk({"content": "a"}), "provider": "P", "usage": {"cost": 0.5}}))
    assert isinstance(answer, NoAnswer)
    assert (answer.provider, answer.model, answer.cost_usd) == ("P", "m", 0.5)


# --- streamed = not streamed -----------------------------------------------------------------------

STRING = st.text(st.characters(), max_size=12)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "reasoning": STRING,
        "content": STRING,
        "tool_calls": st.lists(
            st.builds(
                lambda i, n, a: {"id": i, "type": "function", "function": {"name": n, "arguments": a}},
                st.text(max_size=5),
                st.text(max_size=5),
                STRING,
            ),
            max_size=2,
        ),
    },
)


def deltas_of(message: dict[str, Any], draw: Any) -> list[dict[str, Any]]:
    """The message cut into deltas at any places."""
    deltas: list[dict[str, Any]] = []
    for key in ("reasoning", "content"):
        if key in message:
            at = draw(st.integers(0, len(message[key])))
            deltas += [{key: message[key][:at]}, {key: message[key][at:]}]
    for index, call in enumerate(message.get("tool_calls", [])):
        arguments = call["function"]["arguments"]
        at = draw(st.integers(0, len(arguments)))
        first = {**call, "index": index, "function": {**call["function"], "arguments": arguments[:at]}}
        rest = {"index": index, "function": {"arguments": arguments[at:]}}
        deltas += [{"tool_calls": [first]}, {"tool_calls": [rest]}]
    return deltas


@given(message=MESSAGE, ids=st.lists(st.integers(0, 163839), min_size=1, max_size=5), data=st.data())
@settings(max_examples=200, deadline=None)
def test_streamed_equals_not_streamed(message: dict[str, Any], ids: list[int], data: Any) -> None:
    whole = {
        "id": "gen-1",
        "model": "m",
        "choices": [{"finish_reason": "stop", "native_finish_reason": "eos", "message": message, "token_ids": ids}],
        "usage": USAGE["usage"],
    }
    chunks = [chunk(delta) for delta in deltas_of(message, data.draw)]
    at = data.draw(st.integers(0, len(ids)))
    streamed = reply_of(transcript(*chunks, chunk(token_ids=ids[:at]), chunk(token_ids=ids[at:]), END, USAGE))
    assert replace(streamed, streamed=False) == reply_of(json.dumps(whole))
