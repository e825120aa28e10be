"""Facts about tool calls, from the columns of a shard."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from toolkit.audit.tools import tool_facts
from toolkit.contract import Contract, read_contract
from toolkit.vocabulary import Vocabulary

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}, "days": {"type": "integer", "minimum": 1}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}


def call(arguments: str, name: str = "weather", index: int = 0, call_id: str | None = None) -> dict[str, str]:
    return {"id": f"functions.{name}:{index}" if call_id is None else call_id, "name": name, "arguments": arguments}


def facts_of(
    calls: list[dict[str, str]] | None,
    contract: Contract,
    vocabulary: Vocabulary,
    *,
    tools: Any = (WEATHER, CLOCK),
    messages: Any = None,
    truncated: bool = False,
) -> tuple[Any, Any, Any]:
    text = tools if isinstance(tools, str) or tools is None else json.dumps(tools)
    rows = pa.table(
        {
            "tool_calls": pa.array([None, None if calls is None else json.dumps(calls)], pa.string()),
            "tools": pa.array([None, text], pa.string()),
            "messages": pa.array([None, None if messages is None else json.dumps(messages)], pa.string()),
        }
    )
    facts = tool_facts(rows, np.array([False, truncated]), contract, vocabulary.encode_batch)
    first, second = zip(
        *(facts[name].to_pylist() for name in ("tool_fault", "arguments_spaced", "respaced_ids")), strict=True
    )
    assert first == (None, None, None)
    return second


GOOD = '{"city": "Oslo", "days": 2}'
HISTORY = [{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}, {"role": "tool", "content": "x"}]


@pytest.mark.parametrize(
    ("calls", "fault"),
    [
        ([call(GOOD)], None),
        ([call(GOOD), call("{}", "clock", 1)], None),
        ([call(GOOD, index=1)], "tool_index"),
        ([call(GOOD), call(GOOD, index=2)], "tool_index"),
        ([call(GOOD), call(GOOD)], "tool_index"),
        ([call(GOOD, index=10**30)], "tool_id"),
        ([call(GOOD, call_id="call_9f3a")], "tool_id"),
        ([call(GOOD, call_id="")], "tool_id"),
        ([call(GOOD, call_id="functions.clock:0")], "tool_id"),
        ([call(GOOD, call_id="functions.weather:\u0661")], "tool_id"),
        ([call('{"city": "Oslo"')], "tool_arguments"),
        ([call("")], "tool_arguments"),
        ([call('"Oslo"')], "tool_arguments"),
        ([call("[" * 100_000)], "tool_arguments"),
        ([call("{}", "shutdown")], "tool_name"),
        ([call("{}")], "tool_schema"),
        ([call('{"city": "oslo"}')], "tool_schema"),
        ([call('{"city": "Oslo", "days": "2"}')], "tool_schema"),
        ([call('{"city": "Oslo", "wind": true}')], "tool_schema"),
        ([call(GOOD), call("{}", index=1), call(GOOD, call_id="x")], "tool_schema"),
    ],
)
def test_the_first_fault_of_a_row(
    kimi: Contract, vocabulary: Vocabulary, calls: list[dict[str, str]], fault: str | None
) -> None:
    assert facts_of(calls, kimi, vocabulary)[0] == fault


def test_indices_begin_anew_or_run_through_the_conversation(kimi: Contract, vocabulary: Vocabulary) -> None:
    for index, fault in ((0, None), (2, None), (1, "tool_index"), (3, "tool_index")):
        assert facts_of([call(GOOD, index=index)], kimi, vocabulary, messages=HISTORY)[0] == fault


def test_half_a_call_of_a_cut_answer_is_no_fault(kimi: Contract, vocabulary: Vocabulary) -> None:
    half = call('{"city": "Os', index=1)
    assert facts_of([call(GOOD), half], kimi, vocabulary, truncated=True)[0] is None
    assert facts_of([call("{"), half], kimi, vocabulary, truncated=True)[0] == "tool_arguments"


@pytest.mark.parametrize(
    "tools",
    [
        None,
        "not JSON",
        "{}",
        [{"function": {"parameters": {}}}],
        [{"type": "function", "function": {"name": "weather", "parameters": {"type": "no such type"}}}],
        [{"function": {"name": "weather", "parameters": {"$ref": "http://192.0.2.1/schema.json"}}}],
        [{"function": {"name": "weather", "parameters": "x"}}],
    ],
)
def test_a_declaration_that_cannot_be_read_is_not_the_answers_fault(
    kimi: Contract, vocabulary: Vocabulary, tools: Any
) -> None:
    assert facts_of([call(GOOD)], kimi, vocabulary, tools=tools)[0] is None


@pytest.mark.parametrize(
    ("arguments", "spaced"),
    [
        ([GOOD], True),
        (['{"city":"Oslo","days":2}'], False),
        (['{"city":"a: b, c"}'], False),
        (["{}"], None),
        (["[1, 2]"], None),
        (["{"], None),
        ([GOOD, '{"city":"Oslo"}'], False),
        (['{"city":"Oslo"}', GOOD], False),
        (['{\n  "city": "Oslo"\n}'], True),
    ],
)
def test_how_arguments_are_written(
    kimi: Contract, vocabulary: Vocabulary, arguments: list[str], spaced: bool | None
) -> None:
    calls = [call(text, index=i) for i, text in enumerate(arguments)]
    assert facts_of(calls, kimi, vocabulary)[1] == spaced


def test_the_ids_that_spaces_would_add(kimi: Contract, vocabulary: Vocabulary) -> None:
    compact, written = '{"city":"Oslo","days":2}', '{"city": "Oslo", "days": 2}'
    difference = len(vocabulary.encode_ordinary(written)) - len(vocabulary.encode_ordinary(compact))
    assert difference > 0
    assert facts_of([call(compact)], kimi, vocabulary)[2] == difference
    assert facts_of([call(compact), call(compact, index=1)], kimi, vocabulary)[2] == 2 * difference
    assert facts_of([call(written)], kimi, vocabulary)[2] is None


def test_without_a_tool_form_nothing_is_said_about_ids(vocabulary: Vocabulary) -> None:
    contract = read_contract("gpt-oss")
    assert contract.tools is None
    assert facts_of([call(GOOD, call_id="x")], contract, vocabulary)[0] is None
    assert facts_of(None, contract, vocabulary) == (None, None, None)


def test_calls_are_counted_in_each_row_by_itself(kimi: Contract, vocabulary: Vocabulary) -> None:
    each = [[call(GOOD), call(GOOD, index=1)], [call(GOOD)], [call(GOOD, index=1)]]
    rows = pa.table(
        {
            "tool_calls": pa.array([json.dumps(calls) for calls in each], pa.string()),
            "tools": pa.array([json.dumps([WEATHER])] * 3, pa.string()),
            "messages": pa.nulls(3, pa.string()),
        }
    )
    facts = tool_facts(rows, np.zeros(3, dtype=bool), kimi, vocabulary.encode_batch)
    assert facts["tool_fault"].to_pylist() == [None, None, "tool_index"]
