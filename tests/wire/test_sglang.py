"""SGLang's native /generate: ids, and what looks like an answer and is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolkit.records import IdsSource, Reply
from toolkit.wire import FORMS, NoAnswer, read_generate

DONE = "data: [DONE]\n\n"
END = 163586


def document(ids: list[Any] | None = None, finish: Any = None, text: Any = "ok", **meta: Any) -> dict[str, Any]:
    """A reply to one prompt."""
    ids = [5, END] if ids is None else ids
    head = {
        "id": "rid-1",
        "finish_reason": {"type": "stop", "matched": END} if finish is None else finish,
        "prompt_tokens": 9,
        "completion_tokens": len(ids),
        "cached_tokens": 0,
        "e2e_latency": 0.1,
    }
    return {"text": text, "output_ids": ids, "meta_info": head | meta}


def reply_of(value: Any) -> Reply:
    answer = read_generate(200, value if isinstance(value, str) else json.dumps(value))
    assert isinstance(answer, Reply), answer
    return answer


def refusal_of(value: Any, status: int = 200) -> NoAnswer:
    answer = read_generate(status, value if isinstance(value, str) else json.dumps(value))
    assert isinstance(answer, NoAnswer), answer
    return answer


def test_every_field() -> None:
    assert reply_of({**document(reasoning_tokens=1), "prompt_token_ids": [7, 8]}) == Reply(
        request_id="rid-1",
        finish_reason="stop",
        prompt_tokens=9,
        completion_tokens=2,
        reasoning_tokens=1,
        output_ids=[5, END],
        ids_source=IdsSource.ENGINE,
        prompt_ids=[7, 8],
        streamed=False,
        undivided="ok",
    )
    assert FORMS["sglang"] is read_generate


def test_a_length_end_with_a_terminal_keeps_both() -> None:
    reply = reply_of(document(finish={"type": "length", "length": 2}))
    assert (reply.finish_reason, reply.output_ids) == ("length", [5, END])


def test_a_server_without_a_tokenizer_sends_no_text() -> None:
    whole = document()
    del whole["text"]
    assert reply_of(whole).undivided == ""


def test_a_stop_string_of_the_servers_own_is_noted() -> None:
    assert reply_of(document(finish={"type": "stop", "matched": "###"})).notes == ("stop_string_matched",)


def test_a_batch_of_one_and_blank_lines_before_it() -> None:
    assert reply_of("\n\n" + json.dumps([document()])).output_ids == [5, END]


# (what, body, status, reason, transient, about the endpoint)
REFUSALS: list[tuple[str, Any, int, str, bool, bool]] = [
    ("NaN", document(finish={"type": "stop", "matched": "NaN happened"}), 200, "aborted", True, False),
    ("abort", document(finish={"type": "abort", "message": "x"}), 200, "aborted", True, False),
    ("abort: bad request", document(finish={"type": "abort", "message": "x", "status_code": 400}), 200, "aborted",
     False, False),
    ("abort: busy", document(finish={"type": "abort", "message": "x", "status_code": 503}), 200, "aborted",
     True, False),
    ("no finish", document(finish={"type": None}), 200, "finish_unknown", True, False),
    ("finish of another form", document(finish="stop"), 200, "finish_unknown", True, False),
    ("no ids", document(ids=[]), 200, "ids_missing", False, True),
    ("ids of another type", document(ids=["5"]), 200, "ids_missing", False, True),
    ("ids null", {**document(), "output_ids": None}, 200, "ids_missing", False, True),
    ("another prompt's batch", [document(), document()], 200, "malformed", True, False),
    ("flat error", {"object": "error", "message": "too long", "code": 400}, 400, "http_400", False, False),
    ("nested error", {"error": {"message": "too long"}}, 400, "http_400", False, False),
    ("starting", "", 503, "http_503", True, False),
    ("empty", "  \n", 200, "empty_body", True, False),
    ("html", "<html>", 200, "not_json", True, False),
    ("no such path", {"detail": "Not Found"}, 404, "http_404", False, True),
    ("a chat completion", {"choices": [{"message": {"content": "x"}}]}, 200, "finish_unknown", True, False),
    ("an error in the stream", 'data: {"error": {"message": "too long"}}\n\n' + DONE, 200, "http_400", False, False),
    ("a stream without events", ": ping\n\n", 200, "no_choices", True, False),
    ("a stream of numbers", "data: 5\n\n" + DONE, 200, "stream_cut", True, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "reason", "transient", "about"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_what_is_no_answer(body: Any, status: int, reason: str, transient: bool, about: bool) -> None:
    answer = refusal_of(body, status)
    assert (answer.reason, answer.transient, answer.about_endpoint) == (reason, transient, about)
    assert answer.stops_run is False


# --- streams ---------------------------------------------------------------------------------------

IDS, TEXT = [5, 6, 7, END], "abc"


def stream(cuts: list[int], *, cumulative: bool, done: bool = True) -> str:
    """The reply in events that end at these places; its last one bears the finish."""
    events, before = [], 0
    for cut in [*cuts, len(IDS)]:
        begin = 0 if cumulative else before
        event = document(ids=IDS[begin:cut], text=TEXT[begin:cut], completion_tokens=cut)
        event["meta_info"]["finish_reason"] = {"type": "stop", "matched": END} if cut == len(IDS) else None
        events.append(event)
        before = cut
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + (DONE if done else "")


@given(cuts=st.lists(st.integers(0, 4), max_size=6).map(sorted), cumulative=st.booleans())
@settings(deadline=None)
def test_events_are_cumulative_or_deltas_and_give_the_same_reply(cuts: list[int], cumulative: bool) -> None:
    whole = reply_of(document(ids=IDS, text=TEXT))
    assert reply_of(stream(cuts, cumulative=cumulative)) == replace(whole, streamed=True)


def test_a_stream_that_lost_an_event_is_no_answer() -> None:
    events = stream([1, 2, 3], cumulative=False).split("\n\n")
    assert refusal_of("\n\n".join(events[:1] + events[2:])).reason == "malformed"


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    whole = stream([2], cumulative=True, done=False)
    assert refusal_of(whole).reason == "stream_cut"
    assert refusal_of(whole[:-30]).reason == "stream_cut"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["meta_info", "finish_reason", "type", "output_ids", "text", "error", "matched",
                             "completion_tokens", "id", "status_code"]), inner, max_size=5)
    ),
    max_leaves=20,
)  # fmt: skip


@given(value=ANYTHING, streamed=st.booleans(), status=st.sampled_from([200, 400, 503]))
@settings(max_examples=300, deadline=None)
def test_arbitrary_json_never_raises(value: Any, streamed: bool, status: int) -> None:
    text = json.dumps(value)
    answer = read_generate(status, f"data: {text}\n\n{DONE}" if streamed else text)
    if isinstance(answer, Reply):
        assert status == 200
        assert answer.output_ids
        assert all(type(i) is int for i in answer.output_ids)
    else:
        assert len(answer.detail) < 400
