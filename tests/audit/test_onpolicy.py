"""Histories: our own answers of the earlier turns, somebody else's, or the prompt's author's."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from toolkit.audit.onpolicy import count_history, history_facts, judge_history, said
from toolkit.contract import Contract
from toolkit.findings import History
from toolkit.generate.conversation import Said, message_of
from toolkit.records import ToolCall

from .facts import fact, judged_of

PARIS, ITALY, ROME = (said(text, []) for text in ("It is Paris.", "And Italy?", "Rome."))
SCHEMA = {
    "sample_id": pl.String, "turn": pl.Int32, "sample_index": pl.Int32, "probe": pl.Boolean, "said_hash": pl.Int64,
    "history_hashes": pl.List(pl.Int64),
}  # fmt: skip

# (what, rows as (sample, turn, index, probe, said, history), whose history the last row's is)
HISTORIES: list[tuple[str, list[tuple[Any, ...]], str | None]] = [
    ("no history", [("a", 0, 0, False, PARIS, None)], None),
    ("given by the prompt", [("a", 0, 0, False, PARIS, [ROME])], "given"),
    ("our own", [("a", 0, 0, False, PARIS, None), ("a", 1, 0, False, ROME, [PARIS])], "own"),
    ("not what we said", [("a", 0, 0, False, PARIS, None), ("a", 1, 0, False, ROME, [ROME])], "foreign"),
    ("another sample's", [("b", 0, 0, False, PARIS, None), ("a", 1, 0, False, ROME, [PARIS])], "foreign"),
    ("another answer's", [("a", 0, 1, False, PARIS, None), ("a", 1, 0, False, ROME, [PARIS])], "foreign"),
    ("a probe's", [("a", 0, 0, True, PARIS, None), ("a", 1, 0, False, ROME, [PARIS])], "foreign"),
    ("a probe on our own", [("a", 0, 0, False, PARIS, None), ("a", 1, 0, True, ROME, [PARIS])], "own"),
    ("the turn is not there", [("a", 1, 0, False, ROME, [PARIS])], "foreign"),
    ("said nothing", [("a", 0, 0, False, None, None), ("a", 1, 0, False, ROME, [said("", [])])], "foreign"),
    (
        "the beginning was given",
        [("a", 0, 0, False, PARIS, [ITALY]), ("a", 1, 0, False, ROME, [ITALY, PARIS])],
        "own",
    ),
    (
        "one of two turns",
        [("a", 0, 0, False, PARIS, None), ("a", 1, 0, False, ITALY, [PARIS]), ("a", 2, 0, False, ROME, [ROME, ITALY])],
        "foreign",
    ),
    (
        "in the wrong order",
        [("a", 0, 0, False, PARIS, None), ("a", 1, 0, False, ITALY, [PARIS]), ("a", 2, 0, False, ROME, [ITALY, PARIS])],
        "foreign",
    ),
    (
        "an earlier turn was left away",
        [("a", 0, 0, False, PARIS, None), ("a", 1, 0, False, ITALY, [PARIS]), ("a", 2, 0, False, ROME, [ITALY])],
        "own",
    ),
    ("said twice", [("a", 0, 0, False, PARIS, None)] * 2 + [("a", 1, 0, False, ROME, [PARIS])], "own"),
    ("a turn without history", [("a", 0, 0, False, PARIS, None), ("a", 1, 0, False, ROME, None)], None),
]


@pytest.mark.parametrize(("rows", "whose"), [h[1:] for h in HISTORIES], ids=[h[0] for h in HISTORIES])
def test_whose_history_it_is(rows: list[tuple[Any, ...]], whose: str | None) -> None:
    found = judge_history(pl.DataFrame(rows, schema=SCHEMA, orient="row"))
    assert len(found) == len(rows)
    assert found.row(-1) == (whose, {"own": True, "foreign": False}.get(whose or ""))


def test_rows_keep_their_order(kimi: Contract) -> None:
    rows = [
        fact(sample_id="z", turn=1, history_hashes=[PARIS]),
        fact(sample_id="z", said_hash=PARIS),
        fact(sample_id="y", history_hashes=[ROME]),
    ]
    facts = judged_of(kimi, rows).facts
    assert facts["history"].to_list() == ["own", None, "given"]
    assert facts["history_own"].to_list() == [True, None, None]
    assert count_history(facts) == History(own=1, foreign=0, given=1)


def shard(**columns: Any) -> pa.Table:
    names = ("content", "tool_calls", "messages")
    return pa.table({name: pa.array([columns.get(name)], pa.string()) for name in names})


def facts_of(**columns: Any) -> tuple[Any, Any]:
    facts = history_facts(shard(**columns))
    return facts["said_hash"][0].as_py(), facts["history_hashes"][0].as_py()


@pytest.mark.parametrize(
    "answer",
    [
        Said(reasoning="Hm.", content="It is Paris.", calls=(), status="complete"),
        Said(reasoning=None, content="", calls=(), status="complete"),
        Said(reasoning=None, content="今日は \U0001f600 \x00", calls=(), status="complete"),
        Said(
            reasoning="Hm.",
            content=None,
            calls=(
                ToolCall(id="functions.find:0", name="find", arguments='{"q": 1}'),
                ToolCall(id="functions.find:1", name="find", arguments='{"q":2}'),
            ),
            status="complete",
        ),
    ],
    ids=["text", "empty", "any text", "calls"],
)
def test_what_was_said_is_known_again_in_the_next_prompt(answer: Said) -> None:
    calls = json.dumps([call.as_json() for call in answer.calls]) if answer.calls else None
    own, _ = facts_of(content=answer.content, tool_calls=calls)
    message = message_of(answer)
    for call in message.get("tool_calls", []):
        call["id"] = "rewritten"
    _, history = facts_of(messages=json.dumps([{"role": "user", "content": "hi"}, message]))
    assert history == [own]


def test_other_words_have_another_hash() -> None:
    calls = [("find", '{"q": 1}')]
    hashes = [
        said("a", []), said("a ", []), said("", []), said("", calls), said("a", calls), said("", calls * 2),
        said("", [("fin", 'd{"q": 1}')]), said("", [("find", '{"q":1}')]),
    ]  # fmt: skip
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    ("messages", "history"),
    [
        (None, None),
        ("not JSON assistant", None),
        ('{"role": "assistant"}', None),
        ('[{"role": "user", "content": "say \\"assistant\\""}]', None),
        ('["assistant", 1, null]', None),
        ('[{"role": "assistant", "content": [{"type": "text", "text": "It is "}, {"text": "Paris."}]}]', [PARIS]),
        ('[{"role": "assistant", "content": 7, "tool_calls": 8}]', [said("", [])]),
        ('[{"role": "assistant", "tool_calls": [1, {"function": {"name": null}}]}]', [said("", [("", "")])]),
    ],
)
def test_hostile_prompts(messages: str | None, history: list[int] | None) -> None:
    assert facts_of(messages=messages) == (None, history)


def test_nothing_was_said() -> None:
    assert facts_of() == (None, None)
    assert facts_of(content="")[0] == said("", [])


WORDS = ["It is Paris.", None, "", "今日は \U0001f600", "e\u0301\x00", None, "Rome."]
CALL = json.dumps([ToolCall(id="functions.f:0", name="f", arguments='{"q": "é"}').as_json()])
CALLS = [None, CALL, None, CALL, None, None, CALL]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(("first", "rows"), [(0, 7), (1, 5), (3, 4), (4, 1), (7, 0)])
def test_a_row_says_the_same_wherever_it_lies(first: int, rows: int, kind: pa.DataType) -> None:
    """Parts of a table share its buffers, in which other rows come before and after."""
    alone = [facts_of(content=content, tool_calls=calls)[0] for content, calls in zip(WORDS, CALLS, strict=True)]
    assert [i for i, one in enumerate(alone) if one is None] == [5]
    assert len({*alone}) == len(alone)
    table = pa.table({"content": pa.array(WORDS, kind), "tool_calls": CALLS, "messages": pa.nulls(7, pa.string())})
    part = table.slice(first, rows)
    halves = pa.concat_tables([part.slice(0, rows // 2), part.slice(rows // 2)])
    for found in (history_facts(part), history_facts(halves)):
        assert found["said_hash"].to_pylist() == alone[first : first + rows]
        assert found["history_hashes"].null_count == rows
