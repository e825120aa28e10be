"""The kernel: facts of rows as the tool makes them, and against a slow loop that is plainly right."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.audit.measure import measure
from toolkit.audit.onpolicy import said
from toolkit.columns import FACTS_SCHEMA, HEALTH_COLUMNS
from toolkit.contract import Contract, read_contract
from toolkit.errors import ShardError
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary, load_vocabulary

from .shard_rows import SHA, engine_row, facts_of, row, table

END, THINK, END_THINK = 163586, 163606, 163607
SECTION, SECTION_END, CALL, ARGUMENTS, CALL_END = 163595, 163596, 163597, 163598, 163599
TEXTS = {"reasoning": " because", "content": " yes"}


@pytest.fixture(scope="module")
def builder(kimi: Contract, vocabulary: Vocabulary) -> RowBuilder:
    return RowBuilder(kimi, vocabulary)


def call(arguments: str = '{"q": 1}', index: int = 0) -> dict[str, Any]:
    return {"id": f"functions.find:{index}", "type": "function", "function": {"name": "find", "arguments": arguments}}


def ids_of(vocabulary: Vocabulary, *pieces: str | int) -> list[int]:
    return [i for p in pieces for i in (vocabulary.encode_ordinary(p) if isinstance(p, str) else [p])]


def some(facts: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: facts[name] for name in names}


# --- whole facts -----------------------------------------------------------------------------------


def test_every_fact_of_a_good_row(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 1}}
    made = row(builder, TEXTS, usage=usage, sample_id="q1", latency_s=1.5)
    (facts,) = facts_of([made], vocabulary)
    because, yes = ids_of(vocabulary, " because", " yes")
    assert made["output_ids"] == [because, END_THINK, yes, END]
    carried = [name for name in FACTS_SCHEMA.names if name in made]
    assert some(facts, carried) == some(made, carried)
    health = {column.name for column in HEALTH_COLUMNS}  # stated in test_health_facts.py
    assert {name: value for name, value in facts.items() if name not in carried and name not in health} == {
        "shard": SHA,
        "row_index": 0,
        "n_ids": 4,
        "n_prompt_ids": 9,
        "last_id": END,
        "n_terminal": 1,
        "n_end_think": 1,
        "end_think_at": 1,
        "n_begin_think": 0,
        "n_tool_calls": 0,
        "n_control_ids": 0,
        "min_id": min(because, yes),
        "max_id": END_THINK,
        "truncated": False,
        "text_equal": True,
        "reencode_equal": True,
        "n_reencoded_ids": 4,
        "text_class": None,
        "said_hash": said(" yes", []),
        "history_hashes": None,
        "n_replaced": 0,
        "n_tool_markers": 0,
        "reasoning_leading_space": True,
        "reasoning_trailing_space": False,
        "content_leading_space": True,
        "content_trailing_space": False,
        "tool_fault": None,
        "arguments_spaced": None,
        "respaced_ids": None,
        "count_difference": 1,
        "reasoning_difference": 0,
        "prompt_difference": 0,
        "structure": None,
        "provider_matches_source": True,
    }


EXACT = {"structure": None, "text_equal": True, "reencode_equal": True}
TOOLS = {"reasoning": "r", "content": None, "tool_calls": [call('{"é": "\\u00e9\\n\\"\\\\"}'), call(" {} \n", 1)]}

# (what, message, finish, options, some facts)
GOOD: list[tuple[str, dict[str, Any], str, dict[str, Any], dict[str, Any]]] = [
    (
        "instant",
        {"content": "yes"},
        "stop",
        {"mode": "instant"},
        {"n_end_think": 0, "end_think_at": None, "last_id": END},
    ),
    ("tool calls, escapes and white space", TOOLS, "tool_calls", {}, {"n_tool_calls": 2, "n_end_think": 1}),
    ("content and a call", {**TEXTS, "tool_calls": [call()]}, "tool_calls", {}, {"n_tool_calls": 1}),
    ("call without arguments", {**TEXTS, "tool_calls": [call("")]}, "tool_calls", {}, {"n_tool_calls": 1}),
    (
        "arguments with every kind of letter",
        {**TEXTS, "tool_calls": [call('"\x00\u2028🙂\ufffd')]},
        "tool_calls",
        {},
        {},
    ),
    ("cut in the answer", TEXTS, "length", {}, {"truncated": True, "n_terminal": 0, "n_end_think": 1}),
    ("cut in the reasoning", {"reasoning": " r"}, "length", {}, {"truncated": True, "n_end_think": 0}),
    (
        "cut in a call",
        {**TEXTS, "tool_calls": [call(), call("{", 1)]},
        "length",
        {},
        {"truncated": True, "n_tool_calls": 2},
    ),
    ("cut, instant", {"content": "yes"}, "length", {"mode": "instant"}, {"truncated": True, "n_end_think": 0}),
    (
        "stop at max_tokens",
        {**TEXTS, "tool_calls": [call()]},
        "stop",
        {"usage": {"completion_tokens": 9}, "max_tokens": 9},
        {"truncated": True, "rebuild_status": "ambiguous"},
    ),
    ("a special token as letters", {"reasoning": "r", "content": "[PAD] [EOS]"}, "stop", {}, {"n_control_ids": 0}),
    ("terminal in the text", {"reasoning": "r", "content": "a<|im_end|>"}, "stop", {}, {"n_terminal": 1}),
    ("the referee's letter", {"reasoning": "A'\u017f'st", "content": "b'\u017fSc"}, "stop", {}, {}),
    (
        "white space",
        {"reasoning": " \n", "content": "\n\n a \n"},
        "stop",
        {},
        {
            "reasoning_leading_space": True,
            "reasoning_trailing_space": True,
            "content_leading_space": True,
            "content_trailing_space": True,
        },
    ),
    ("replaced characters", {"reasoning": "\ufffd", "content": "a\ufffdb\ufffd"}, "stop", {}, {"n_replaced": 3}),
    ("NUL", {"reasoning": "\x00", "content": "a\x00b"}, "stop", {}, {}),
]


@pytest.mark.parametrize(("message", "finish", "options", "facts"), [g[1:] for g in GOOD], ids=[g[0] for g in GOOD])
def test_rebuilt_rows_stand_for_their_text(
    builder: RowBuilder,
    vocabulary: Vocabulary,
    message: dict[str, Any],
    finish: str,
    options: dict[str, Any],
    facts: dict[str, Any],
) -> None:
    made = row(builder, message, finish, **options)
    assert made["ids_source"] == "rebuilt"
    (found,) = facts_of([made], vocabulary)
    assert some(found, [*EXACT, *facts]) == EXACT | facts


def test_rows_without_ids(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = row(builder, {"content": "yes"}, usage={"completion_tokens": 3, "prompt_tokens": 9})
    assert (made["output_ids"], made["rebuild_status"]) == (None, "reasoning_missing")
    (facts,) = facts_of([made], vocabulary)
    measured = (
        "n_ids", "last_id", "n_terminal", "n_end_think", "end_think_at", "n_begin_think", "n_tool_calls",
        "n_control_ids", "min_id", "max_id", "text_equal", "reencode_equal", "structure", "count_difference",
    )  # fmt: skip
    assert some(facts, measured) == dict.fromkeys(measured)
    assert some(facts, ["truncated", "n_replaced", "content_leading_space", "prompt_difference"]) == {
        "truncated": False,
        "n_replaced": 0,
        "content_leading_space": False,
        "prompt_difference": 0,
    }


# --- ids that came ---------------------------------------------------------------------------------

# (what, ids, message, finish, truncated, structure, text_equal, reencode_equal)
CAME: list[tuple[str, list[str | int], dict[str, Any], str, bool, str | None, bool | None, bool | None]] = [
    ("whole", [" because", END_THINK, " yes", END], TEXTS, "stop", False, None, True, True),
    ("another split", [" be", "cause", END_THINK, " yes", END], TEXTS, "stop", False, None, True, False),
    ("cut", [" because", END_THINK, " yes"], TEXTS, "length", True, None, True, True),
    ("cut right after thinking", [" because", END_THINK], {"reasoning": " because"}, "length", True, None, True, True),
    ("cut while thinking", [" because"], {"reasoning": " because"}, "length", True, None, True, True),
    ("terminal at the cap", [" because", END_THINK, " yes", END], TEXTS, "length", False, None, True, True),
    ("cut, though it says stop", [" because", END_THINK, " yes"], TEXTS, "stop", True, None, True, True),
    (
        "a call",
        ["r", END_THINK, SECTION, CALL, "functions.find:0", ARGUMENTS, '{"q": 1}', CALL_END, SECTION_END, END],
        {"reasoning": "r", "tool_calls": [call()]},
        "tool_calls",
        False,
        None,
        True,
        True,
    ),
    (
        "a call whose white space was stripped",
        ["r", END_THINK, SECTION, CALL, "functions.find:0", ARGUMENTS, ' {"q": 1}', CALL_END, SECTION_END, END],
        {"reasoning": "r", "tool_calls": [call()]},
        "tool_calls",
        False,
        None,
        False,
        False,
    ),
    (
        "a cut section: its text is not known",
        ["r", END_THINK, SECTION, CALL, "functions.fi"],
        {"reasoning": "r", "content": None},
        "length",
        True,
        None,
        None,
        None,
    ),
    (
        "thinking ended by the section",
        ["r", SECTION, CALL, "functions.find:0", ARGUMENTS, '{"q": 1}', CALL_END, SECTION_END, END],
        {"reasoning": "r", "tool_calls": [call()]},
        "tool_calls",
        False,
        None,
        True,
        True,
    ),
    ("no text", ["x", END_THINK, "y", END], {}, "stop", False, None, None, None),
    ("text of another answer", ["x", END_THINK, "y", END], TEXTS, "stop", False, None, False, False),
    ("leading space dropped", ["because", END_THINK, "yes", END], TEXTS, "stop", False, None, False, False),
    (
        "id outside the vocabulary",
        [" because", END_THINK, " yes", 163840, END],
        TEXTS,
        "stop",
        False,
        "id_outside_vocabulary",
        False,
        False,
    ),
    (
        "negative id",
        [-1, " because", END_THINK, " yes", END],
        TEXTS,
        "stop",
        False,
        "id_outside_vocabulary",
        False,
        False,
    ),
    ("largest id", [2**31 - 1, END], TEXTS, "stop", False, "id_outside_vocabulary", False, False),
    ("ids shifted", [" because", 163604, " yes", 163583], TEXTS, "stop", True, "ids_shifted", False, False),
    (
        "a gap of the vocabulary, which stands for nothing",
        [" because", END_THINK, " yes", 163589, END],
        TEXTS,
        "stop",
        False,
        "control_id_inside",
        True,
        False,
    ),
]


@pytest.mark.parametrize(
    ("pieces", "message", "finish", "truncated", "structure", "text_equal", "reencode_equal"),
    [c[1:] for c in CAME],
    ids=[c[0] for c in CAME],
)
def test_engine_ids(
    builder: RowBuilder,
    vocabulary: Vocabulary,
    pieces: list[str | int],
    message: dict[str, Any],
    finish: str,
    truncated: bool,
    structure: str | None,
    text_equal: bool | None,
    reencode_equal: bool | None,
) -> None:
    ids = ids_of(vocabulary, *pieces)
    made = engine_row(builder, message, ids, finish)
    assert (made["output_ids"], made["ids_source"]) == (ids, "engine")
    (facts,) = facts_of([made], vocabulary)
    assert some(facts, ["n_ids", "last_id", "min_id", "max_id"]) == {
        "n_ids": len(ids),
        "last_id": ids[-1],
        "min_id": min(ids),
        "max_id": max(ids),
    }
    assert some(facts, ["truncated", "structure", "text_equal", "reencode_equal"]) == {
        "truncated": truncated,
        "structure": structure,
        "text_equal": text_equal,
        "reencode_equal": reencode_equal,
    }


def test_given_ids_end_as_the_reason_says(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    whole = ids_of(vocabulary, " because", END_THINK, " yes", END)
    rows = [
        engine_row(builder, TEXTS, whole, "stop", given=True),
        engine_row(builder, TEXTS, whole, "length", given=True),
        engine_row(builder, TEXTS, whole[:-1], "stop", given=True),
        engine_row(builder, TEXTS, whole[:-1], "length", given=True),
    ]
    facts = facts_of(rows, vocabulary)
    assert {f["ids_source"] for f in facts} == {"given"}
    assert [f["truncated"] for f in facts] == [False, True, False, True]
    assert [f["structure"] for f in facts] == [None, "false_terminal", "terminal_missing", None]
    assert [f["text_equal"] for f in facts] == [True] * 4


# --- rows that were changed after they were built --------------------------------------------------


def test_every_single_change_of_an_id_is_seen(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    message = {"reasoning": " so it is", "content": " yes\n", "tool_calls": [call()]}
    made = row(builder, message, "tool_calls")
    ids = made["output_ids"]
    changed = [
        *([*ids[:i], 1000, *ids[i + 1 :]] for i in range(len(ids))),  # one id is another
        *([*ids[:i], *ids[i + 1 :]] for i in range(len(ids))),  # one id is left out
        *([*ids[:i], ids[i], *ids[i:]] for i in range(len(ids))),  # one id stands twice
        [i + 1 for i in ids],
    ]
    facts = facts_of([{**made, "output_ids": other} for other in changed], vocabulary)
    assert len(facts) == 3 * len(ids) + 1
    assert not any(f["text_equal"] or f["reencode_equal"] for f in facts)


def test_a_split_that_is_not_the_canonical_one_decodes_to_the_same_text(
    builder: RowBuilder, vocabulary: Vocabulary
) -> None:
    made = row(builder, {"reasoning": "r", "content": "because"})
    other = ids_of(vocabulary, "r", END_THINK, "be", "cause", END)
    (facts,) = facts_of([{**made, "output_ids": other}], vocabulary)
    assert some(facts, ["text_equal", "reencode_equal"]) == {"text_equal": True, "reencode_equal": False}


# (what, mode, ids, finish, structure): rebuilt ids, so that finish and status say how they ended
STRUCTURES: list[tuple[str, str, list[int], str, str | None]] = [
    ("whole", "thinking", [5, END_THINK, 6, END], "stop", None),
    ("empty", "thinking", [], "stop", "empty"),
    ("outside", "thinking", [5, END_THINK, 163840, END], "stop", "id_outside_vocabulary"),
    ("below", "thinking", [-5, END_THINK, END], "stop", "id_outside_vocabulary"),
    ("control", "thinking", [5, 163587, END_THINK, END], "stop", "control_id_inside"),
    ("[EOS]", "thinking", [5, END_THINK, 6, 163585], "stop", "control_id_inside"),
    ("begin", "thinking", [THINK, 5, END_THINK, 6, END], "stop", "begin_think_inside"),
    ("instant with thinking", "instant", [5, END_THINK, 6, END], "stop", "think_in_instant_mode"),
    ("instant", "instant", [6, END], "stop", None),
    ("thinking ends twice", "thinking", [5, END_THINK, END_THINK, 6, END], "stop", "end_think_repeated"),
    ("thinking does not end", "thinking", [5, 6, END], "stop", "end_think_missing"),
    (
        "thinking does not end before calls",
        "thinking",
        [5, SECTION, CALL, 6, ARGUMENTS, 7, CALL_END, SECTION_END, END],
        "stop",
        "end_think_missing",
    ),
    ("cut while thinking", "thinking", [5, 6], "length", None),
    ("cut with a terminal", "thinking", [5, END_THINK, 6, END], "length", "false_terminal"),
    ("no terminal", "thinking", [5, END_THINK, 6], "stop", "terminal_missing"),
    ("two terminals", "thinking", [5, END_THINK, 6, END, END], "stop", "terminal_repeated"),
    ("terminal inside", "thinking", [5, END_THINK, END, 6], "stop", "terminal_inside"),
    (
        "call outside a section",
        "thinking",
        [5, END_THINK, CALL, 6, ARGUMENTS, 7, CALL_END, END],
        "stop",
        "tools_unbalanced",
    ),
    (
        "section not closed",
        "thinking",
        [5, END_THINK, SECTION, CALL, 6, ARGUMENTS, 7, CALL_END, END],
        "stop",
        "tools_unbalanced",
    ),
    (
        "call not closed",
        "thinking",
        [5, END_THINK, SECTION, CALL, 6, ARGUMENTS, 7, SECTION_END, END],
        "stop",
        "tools_unbalanced",
    ),
    (
        "arguments not begun",
        "thinking",
        [5, END_THINK, SECTION, CALL, 6, CALL_END, SECTION_END, END],
        "stop",
        "tools_unbalanced",
    ),
    (
        "two sections",
        "thinking",
        [5, END_THINK, SECTION, SECTION_END, SECTION, SECTION_END, END],
        "stop",
        "tools_unbalanced",
    ),
    ("end of a section alone", "thinking", [5, END_THINK, SECTION_END, END], "stop", "tools_unbalanced"),
    (
        "calls before thinking ends",
        "thinking",
        [5, SECTION, CALL, 6, ARGUMENTS, 7, CALL_END, SECTION_END, END_THINK, 8, END],
        "stop",
        "end_think_missing",
    ),
    (
        "thinking ends inside a call",
        "thinking",
        [5, END_THINK, SECTION, CALL, 6, ARGUMENTS, END_THINK, 7, CALL_END, SECTION_END, END],
        "stop",
        "end_think_repeated",
    ),
    ("no call in a section", "thinking", [5, END_THINK, SECTION, SECTION_END, END], "stop", "tools_unbalanced"),
    (
        "arguments before the id",
        "thinking",
        [5, END_THINK, SECTION, ARGUMENTS, 6, CALL, 7, CALL_END, SECTION_END, END],
        "stop",
        "tools_unbalanced",
    ),
    (
        "text between calls",
        "thinking",
        [5, END_THINK, SECTION, 9, CALL, 6, ARGUMENTS, 7, CALL_END, SECTION_END, END],
        "stop",
        "text_in_tools",
    ),
    (
        "text after the last call",
        "thinking",
        [5, END_THINK, SECTION, CALL, 6, ARGUMENTS, 7, CALL_END, 9, SECTION_END, END],
        "stop",
        "text_in_tools",
    ),
    (
        "text after the section",
        "thinking",
        [5, END_THINK, SECTION, CALL, 6, ARGUMENTS, 7, CALL_END, SECTION_END, 9, END],
        "stop",
        "text_misplaced",
    ),
    (
        "cut with text after the section",
        "thinking",
        [5, END_THINK, SECTION, CALL, 6, ARGUMENTS, 7, CALL_END, SECTION_END, 9],
        "length",
        "text_misplaced",
    ),
    ("a gap-closing tokenizer", "thinking", [5, 163604, 6, END], "stop", "ids_shifted"),
    ("the terminal inside a call", "thinking", [5, END_THINK, SECTION, CALL, 6, END], "stop", "tools_unbalanced"),
    (
        "two calls in instant mode",
        "instant",
        [SECTION, CALL, 6, ARGUMENTS, 7, CALL_END, CALL, 6, ARGUMENTS, 7, CALL_END, SECTION_END, END],
        "stop",
        None,
    ),
    ("cut in a call", "thinking", [5, END_THINK, SECTION, CALL, 6], "length", None),
    (
        "cut in the second of two open calls",
        "thinking",
        [5, END_THINK, SECTION, CALL, 6, ARGUMENTS, 7, CALL, 8],
        "length",
        "tools_unbalanced",
    ),
]


@pytest.mark.parametrize(
    ("mode", "ids", "finish", "structure"), [s[1:] for s in STRUCTURES], ids=[s[0] for s in STRUCTURES]
)
def test_structure(
    builder: RowBuilder, vocabulary: Vocabulary, mode: str, ids: list[int], finish: str, structure: str | None
) -> None:
    made = row(builder, TEXTS if mode == "thinking" else {"content": "a"}, finish, mode=mode)
    (facts,) = facts_of([{**made, "output_ids": ids}], vocabulary)
    assert facts["structure"] == structure


def test_every_code_of_structure_is_in_the_table() -> None:
    codes = {
        "empty", "id_outside_vocabulary", "control_id_inside", "begin_think_inside", "think_in_instant_mode",
        "end_think_repeated", "end_think_missing", "false_terminal", "terminal_missing", "terminal_repeated",
        "terminal_inside", "tools_unbalanced", "text_in_tools", "text_misplaced", "ids_shifted",
    }  # fmt: skip
    assert {structure for *_, structure in STRUCTURES} == codes | {None}


# (column, value, text_equal, reencode_equal)
ODD_TEXT: list[tuple[str, str | None, bool, bool]] = [
    ("content", None, False, False),
    ("reasoning", None, False, False),
    ("content", "yes", False, False),
    ("content", " yes ", False, False),
    ("content", " yes<|im_end|>", False, False),
    ("tool_calls", "[]", True, True),
    ("tool_calls", "null", False, False),
    ("tool_calls", "[null]", False, False),
    ("tool_calls", '[{"id": null}]', False, False),
]


@pytest.mark.parametrize(("column", "value", "text_equal", "reencode_equal"), ODD_TEXT)
def test_text_that_was_changed(
    builder: RowBuilder, vocabulary: Vocabulary, column: str, value: str | None, text_equal: bool, reencode_equal: bool
) -> None:
    (facts,) = facts_of([{**row(builder, TEXTS), column: value}], vocabulary)
    assert (facts["text_equal"], facts["reencode_equal"]) == (text_equal, reencode_equal)


def test_null_text_has_nothing_to_compare(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = {**row(builder, TEXTS), "reasoning": None, "content": None}
    (facts,) = facts_of([made], vocabulary)
    names = ["text_equal", "reencode_equal", "content_leading_space", "content_trailing_space", "n_replaced"]
    assert some(facts, names) == {**dict.fromkeys(names), "n_replaced": 0}
    (facts,) = facts_of([{**made, "content": ""}], vocabulary)
    assert (facts["text_equal"], facts["content_leading_space"]) == (False, None)


def test_a_mode_that_the_contract_does_not_have_has_nothing_to_compare(
    builder: RowBuilder, vocabulary: Vocabulary
) -> None:
    (facts,) = facts_of([{**row(builder, TEXTS), "mode": "deep"}], vocabulary)
    assert (facts["text_equal"], facts["reencode_equal"]) == (None, None)


@pytest.mark.parametrize(
    ("source", "provider", "matches"),
    [("openrouter", "Chutes", True), ("openrouter", None, False), ("sglang", None, True), ("sglang", "Chutes", False)],
)
def test_provider_matches_source(
    builder: RowBuilder, vocabulary: Vocabulary, source: str, provider: str | None, matches: bool
) -> None:
    (facts,) = facts_of([{**row(builder, TEXTS), "source": source, "provider": provider}], vocabulary)
    assert facts["provider_matches_source"] is matches


@pytest.mark.parametrize("calls", ["{", "5", '"a"', '{"id": "x"}', '[{"id": 5, "arguments": {}}]'])
def test_tool_calls_that_this_version_does_not_write(builder: RowBuilder, vocabulary: Vocabulary, calls: str) -> None:
    """An error, or a row whose text is not that of its ids: never one that passes."""
    try:
        facts = facts_of([{**row(builder, TEXTS), "tool_calls": calls}], vocabulary)
    except ShardError:
        facts = []
    assert not any(f["text_equal"] for f in facts)


def test_null_inside_a_list_of_ids(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    with pytest.raises(ShardError, match="output_ids: expected whole numbers, found null inside a list"):
        facts_of([{**row(builder, TEXTS), "output_ids": [5, None, END]}], vocabulary)


def test_harmony() -> None:
    contract = read_contract("gpt-oss")
    vocabulary = load_vocabulary(contract)
    builder = RowBuilder(contract, vocabulary)
    changes = {"model": "openai/gpt-oss-120b", "contract": "gpt-oss"}
    head = {"model": "openai/gpt-oss-120b"}
    made = [
        row(builder, {"reasoning": "r", "content": " a"}, finish, head=head, **changes) for finish in ("stop", "length")
    ]
    assert [m["output_ids"][-1] == 200002 for m in made] == [True, False]
    facts = facts_of([*made, {**made[0], "output_ids": [*made[0]["output_ids"][:-1], 200007]}], vocabulary)
    assert [f["structure"] for f in facts] == [None, None, "terminal_missing"]
    assert [(f["text_equal"], f["reencode_equal"]) for f in facts] == [(True, True), (True, True), (False, False)]


# --- how the table lies in memory ------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(builder: RowBuilder, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """One row of every kind above."""
    good = [row(builder, m, f, sample_id=f"g{i}", **o) for i, (_, m, f, o, _) in enumerate(GOOD)]
    came = [
        engine_row(builder, message, ids_of(vocabulary, *pieces), finish, sample_id=f"c{i}")
        for i, (_, pieces, message, finish, *_) in enumerate(CAME)
    ]
    wrong = [{**good[1], "output_ids": ids, "mode": mode} for _, mode, ids, *_ in STRUCTURES]
    none = [row(builder, {"content": "a"}, sample_id="n"), {**good[0], "reasoning": None, "content": None}]
    return [*good, *came, *wrong, *none]


def test_rows_measured_together_have_the_facts_of_rows_measured_alone(
    mixed: list[dict[str, Any]], vocabulary: Vocabulary
) -> None:
    together = facts_of(mixed, vocabulary)
    alone = [{**facts_of([one], vocabulary)[0], "row_index": i} for i, one in enumerate(mixed)]
    assert together == alone


def test_slices_chunks_and_offsets(mixed: list[dict[str, Any]], kimi: Contract, vocabulary: Vocabulary) -> None:
    """Ten thousand rows are measured in slices; a table may be a part of another one, in any number of chunks."""
    expected = facts_of(mixed, vocabulary)
    many = 10_000 // len(mixed) + 1
    large = table(mixed * many)
    facts = measure(large, kimi, vocabulary, shard_sha256=SHA)
    assert facts.schema == FACTS_SCHEMA
    assert facts.num_rows == len(mixed) * many > 10_000
    assert facts["row_index"].to_pylist() == list(range(facts.num_rows))
    for start in range(0, facts.num_rows, len(mixed)):
        part = facts.slice(start, len(mixed)).to_pylist()
        assert [{**f, "row_index": i} for i, f in enumerate(part)] == expected
    chunked = pa.concat_tables([table(mixed[:3]), table([]), table(mixed).slice(3, 2), table(mixed).slice(5)])
    assert chunked["output_ids"].num_chunks > 2
    assert measure(chunked, kimi, vocabulary, shard_sha256=SHA).to_pylist() == expected
    sliced = measure(large.slice(7, 9), kimi, vocabulary, shard_sha256=SHA).to_pylist()
    assert sliced == [{**f, "row_index": i} for i, f in enumerate(expected[7:16])]


def test_zero_rows(kimi: Contract, vocabulary: Vocabulary) -> None:
    facts = measure(table([]), kimi, vocabulary, shard_sha256=SHA)
    assert (facts.num_rows, facts.schema) == (0, FACTS_SCHEMA)


# --- against a slow loop ---------------------------------------------------------------------------


def slow_facts(made: Mapping[str, Any], contract: Contract, vocabulary: Vocabulary) -> dict[str, Any]:
    """The counting facts of one row with ids, one id at a time."""
    ids = made["output_ids"]
    reasons = [(made[name] or "").strip().lower() for name in ("finish_reason", "native_finish_reason")]
    says_length = any(reason in contract.finish.length for reason in reasons)
    source = made["ids_source"]
    cut = says_length if source == "given" else says_length or made["rebuild_status"] != "complete"
    if source == "engine":
        cut = not ids or ids[-1] != END
    control = 0
    for token_id in ids:
        if 163584 <= token_id < 163840 and token_id not in (END, THINK, END_THINK) and not 163595 <= token_id <= 163599:
            control += 1
    return {
        "n_ids": len(ids),
        "last_id": ids[-1] if ids else None,
        "min_id": min(ids) if ids else None,
        "max_id": max(ids) if ids else None,
        "n_terminal": ids.count(END),
        "n_end_think": ids.count(END_THINK),
        "end_think_at": ids.index(END_THINK) if END_THINK in ids else None,
        "n_begin_think": ids.count(THINK),
        "n_tool_calls": ids.count(CALL),
        "n_control_ids": control,
        "truncated": cut,
        "text_equal": slow_text_equal(made, ids, cut, vocabulary),
    }


def slow_text_equal(made: Mapping[str, Any], ids: list[int], cut: bool, vocabulary: Vocabulary) -> bool | None:
    """Whether the ids, spelled out, are the row's text with the contract's ids between."""
    reasoning, content = made["reasoning"], made["content"]
    if reasoning is None and content is None:
        return None
    if made["ids_source"] != "rebuilt" and cut and SECTION in ids:
        return None
    if not all(0 <= i < 163840 for i in ids) or (reasoning and made["mode"] == "instant"):
        return False
    rebuilt = made["ids_source"] == "rebuilt"
    text = reasoning or ""
    if made["mode"] == "thinking" and ((not cut or bool(content)) if rebuilt else END_THINK in ids):
        text += "</think>"
    text += content or ""
    if (not cut) if rebuilt else (ids and ids[-1] == END):
        text += "<|im_end|>"
    decoded = vocabulary.decode_bytes(ids)
    return decoded == text.encode() or (cut and is_cut_within_a_character(decoded, text))


def is_cut_within_a_character(decoded: bytes, text: str) -> bool:
    """Whether the bytes are the text's, or the text's before a U+FFFD at its end, and one to three more that some other
    bytes would make a character of."""
    for length in (1, 2, 3):
        kept, part = decoded[:-length], decoded[-length:]
        if len(part) == length and kept in (text.encode(), text.removesuffix("\ufffd").encode()):
            return any(
                is_character(part + bytes(more))
                for count in (1, 2, 3)
                for more in itertools.product((0x80, 0x90, 0xA0, 0xBF), repeat=count)
            )
    return False


def is_character(spelled: bytes) -> bool:
    try:
        return len(spelled.decode()) == 1
    except UnicodeDecodeError:
        return False


SPECIAL = st.sampled_from([END, THINK, END_THINK, SECTION, SECTION_END, CALL, ARGUMENTS, CALL_END, 163584, 163589])
ODD = st.sampled_from([-1, 163839, 163840, 2**31 - 1])
WORDS = st.lists(st.sampled_from(["a", " b", "\n", "é", "🙂"]), max_size=3).map("".join)


@st.composite
def odd_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What differs between the rows: ids that may or may not be their text's."""
    rows = []
    for _ in range(draw(st.integers(1, 8))):
        reasoning, content = draw(st.none() | WORDS), draw(st.none() | WORDS)
        near: list[str | int] = [reasoning or "", END_THINK, content or "", END]
        far = draw(st.lists(st.integers(0, 300) | SPECIAL | ODD, max_size=6))
        rows.append(
            {
                "reasoning": reasoning,
                "content": content,
                "near": near[: draw(st.integers(0, 4))],
                "far": far,
                "take_near": draw(st.booleans()),
                "mode": draw(st.sampled_from(["thinking", "instant"])),
                "ids_source": draw(st.sampled_from(["engine", "given", "rebuilt"])),
                "finish_reason": draw(st.sampled_from([None, "stop", " LENGTH", "length", "?"])),
                "native_finish_reason": draw(st.sampled_from([None, None, "max_tokens"])),
                "rebuild_status": draw(st.sampled_from(["complete", "truncated", "ambiguous"])),
            }
        )
    return rows


@given(odd=odd_rows())
@settings(max_examples=150, deadline=None)
def test_the_kernel_against_a_slow_loop(
    builder: RowBuilder, kimi: Contract, vocabulary: Vocabulary, odd: list[dict[str, Any]]
) -> None:
    plain = row(builder, TEXTS)
    rows = []
    for changes in odd:
        near, far, take_near = (changes.pop(name) for name in ("near", "far", "take_near"))
        rows.append({**plain, **changes, "output_ids": ids_of(vocabulary, *near) if take_near else far})
    found = facts_of(rows, vocabulary)
    slow = [slow_facts(made, kimi, vocabulary) for made in rows]
    assert [some(f, list(s)) for f, s in zip(found, slow, strict=True)] == slow


@pytest.mark.parametrize(("reasoning", "equal"), [(None, True), ("", True), ("thought", False)])
def test_text_for_which_the_mode_has_no_place(
    builder: RowBuilder, vocabulary: Vocabulary, reasoning: str | None, equal: bool
) -> None:
    """Reasoning in instant mode: these ids do not hold all that the model wrote."""
    made = row(builder, {"content": "yes"}, mode="instant")
    (facts,) = facts_of([{**made, "reasoning": reasoning, "ids_source": "engine"}], vocabulary)
    assert (facts["text_equal"], facts["reencode_equal"]) == (equal, equal)


@pytest.mark.parametrize("shown", ["", "\ufffd"])
def test_an_engine_that_was_cut_within_a_character(builder: RowBuilder, vocabulary: Vocabulary, shown: str) -> None:
    part = [vocabulary.id_of_bytes[bytes([b])] for b in "🙂".encode()[:2]]
    ids = [*ids_of(vocabulary, " because", END_THINK, " yes"), *part]
    message = {"reasoning": " because", "content": f" yes{shown}"}
    made = [engine_row(builder, message, ids, "length"), engine_row(builder, message, [*ids, END], "stop")]
    cut, whole = facts_of(made, vocabulary)
    assert some(cut, ["truncated", "text_equal", "structure"]) == {
        "truncated": True, "text_equal": True, "structure": None,
    }  # fmt: skip
    # An answer that is not cut says whole characters: its text is another.
    assert whole["text_equal"] is False


def test_the_referee_judges_a_sample_of_rows_that_agree(
    builder: RowBuilder, kimi: Contract, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["000" + "f" * 61, "c00" + "1" * 61, "001" + "0" * 61, "200" + "0" * 61, "f" * 64]
    made = [row(builder, {"reasoning": "so", "content": f" {i}"}) | {"row_key": key} for i, key in enumerate(keys)]
    judged: list[str] = []
    real = type(vocabulary.referee).encode_batch

    def seen(engine: Any, texts: Sequence[str]) -> Any:
        judged.extend(texts)
        return real(engine, texts)

    monkeypatch.setattr(type(vocabulary.referee), "encode_batch", seen)
    facts = measure(table(made), kimi, vocabulary, shard_sha256=SHA)
    assert facts["reencode_equal"].to_pylist() == [True] * len(keys)
    assert [text for text in judged if text.strip().isdigit()] == [" 0", " 1"]
