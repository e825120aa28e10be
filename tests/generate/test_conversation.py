from __future__ import annotations

import pytest
from msgspec import structs

from toolkit.contract import Contract
from toolkit.generate.conversation import Conversation, Ended, Said, turns_in
from toolkit.generate.plan import Planned
from toolkit.records import ToolCall, row_key_of

from .asks import ask_of


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict:
    return {"role": "assistant", "content": text}


def said(
    content: str | None = "mine", *calls: ToolCall, status: str = "complete", reasoning: str | None = "hm"
) -> Said:
    return Said(reasoning=reasoning, content=content, calls=calls, status=status)


def call(name: str, arguments: str, call_id: str | None = None) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def conversation(kimi: Contract, messages: list[dict]) -> tuple[Conversation, Planned]:
    ask = ask_of(kimi, messages=messages)
    return Conversation(ask, kimi), ask


THREE = [{"role": "system", "content": "s"}, user("a"), assistant("written"), user("b"), assistant("w"), user("c")]

TOOLS = [
    user("weather?"),
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call_9", "type": "function", "function": {"name": "find", "arguments": '{"q": "x", "n": 1}'}},
            {"id": "call_8", "type": "function", "function": {"name": "see", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_8", "content": "seen"},
    {"role": "tool", "tool_call_id": "call_9", "content": "found"},
    assistant("written"),
    user("thanks"),
]


def test_each_turn_is_asked_on_our_own_answers(kimi: Contract):
    talk, written = conversation(kimi, THREE)
    assert (talk.turns, turns_in(THREE)) == (3, 3)
    first = talk.next_ask()
    assert (first.turn, first.messages) == (0, THREE[:2])
    assert talk.hear(said("mine")) is None
    second = talk.next_ask()
    own = {"role": "assistant", "content": "mine", "reasoning_content": "hm"}
    assert (second.turn, second.messages) == (1, [*THREE[:2], own, user("b")])
    assert talk.hear(said("too", reasoning=None)) is None
    third = talk.next_ask()
    assert third.messages == [*THREE[:2], own, user("b"), assistant("too"), user("c")]
    assert talk.hear(said("end", status="truncated")) is None
    assert talk.is_over
    identity = {"tools": None, "mode": "thinking", "sampling": {}, "max_tokens": 256, "sample_index": 0}
    assert third.row_key == row_key_of(contract=kimi.name, messages=third.messages, turn=2, **identity)
    assert len({first.row_key, second.row_key, third.row_key, written.row_key}) == 4


def test_a_prompt_without_a_history_is_one_turn_and_the_same_ask(kimi: Contract):
    talk, written = conversation(kimi, [user("a")])
    assert talk.next_ask() == written
    talk.hear(said())
    assert talk.is_over


@pytest.mark.parametrize("status", ["truncated", "ambiguous", "answer_missing", "reasoning_missing"])
def test_after_a_turn_that_is_not_complete_nothing_is_asked(kimi: Contract, status: str):
    talk, _ = conversation(kimi, THREE)
    ended = talk.hear(said(status=status))
    assert ended == Ended("turn_incomplete", f"turn 0: expected a complete answer, found {status}")
    assert talk.turn == 0


def test_results_stand_behind_our_own_calls_where_these_are_the_same(kimi: Contract):
    talk, _ = conversation(kimi, TOOLS)
    own = [call("find", '{"n":1,"q":"x"}', "functions.find:0"), call("see", "{}", None)]
    assert talk.hear(said(None, *own)) is None
    asked = talk.next_ask()
    calls = asked.messages[1]["tool_calls"]
    assert [(one["id"], one["function"]["arguments"]) for one in calls] == [
        ("functions.find:0", '{"n":1,"q":"x"}'),
        ("functions.see:1", "{}"),
    ]
    results = [(message["tool_call_id"], message["content"]) for message in asked.messages[2:]]
    assert results == [("functions.see:1", "seen"), ("functions.find:0", "found")]
    assert talk.hear(said("done")) is None
    assert talk.next_ask().messages[-1] == user("thanks")


@pytest.mark.parametrize(
    "calls",
    [
        (),
        (call("find", '{"q":"x","n":1}'),),
        (call("see", "{}"), call("find", '{"q":"x","n":1}')),
        (call("find", '{"q":"x","n":2}'), call("see", "{}")),
        (call("find", "not json"), call("see", "{}")),
        (call("find", None), call("see", "{}")),
    ],
)
def test_where_our_calls_are_others_the_conversation_ends(kimi: Contract, calls: tuple[ToolCall, ...]):
    talk, _ = conversation(kimi, TOOLS)
    ended = talk.hear(said(None, *calls))
    assert ended is not None
    assert ended.reason == "tool_calls_differ"
    assert "expected the calls whose results are written (find, see)" in ended.detail


def test_a_call_where_none_was_written_ends_the_conversation(kimi: Contract):
    talk, _ = conversation(kimi, THREE)
    ended = talk.hear(said("", call("find", "{}")))
    assert ended is not None
    assert "(none), found others (find)" in ended.detail


def test_turns_that_are_never_reached_have_a_name_of_their_own(kimi: Contract):
    talk, written = conversation(kimi, THREE)
    asks = [talk.as_written(turn) for turn in (1, 2)]
    assert [(ask.turn, ask.identity, ask.messages) for ask in asks] == [
        (1, ("p0", 1, 0), THREE[:4]),
        (2, ("p0", 2, 0), THREE),
    ]
    assert structs.replace(asks[1], turn=0, row_key=written.row_key) == written
