"""The rebuild, rule by rule: (reply, ask) → pieces of ids, source, status, notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.contract import Contract, read_contract
from toolkit.errors import ContractError
from toolkit.rebuild import Rebuilt, rebuild
from toolkit.records import Ask, IdsSource, RebuildStatus, Reply, ToolCall
from toolkit.vocabulary import Vocabulary, load_vocabulary

END, THINK, END_THINK = 163586, 163606, 163607
SECTION, SECTION_END, CALL, ARGUMENTS, CALL_END = 163595, 163596, 163597, 163598, 163599
COMPLETE, TRUNCATED, AMBIGUOUS = RebuildStatus.COMPLETE, RebuildStatus.TRUNCATED, RebuildStatus.AMBIGUOUS
ANSWER_MISSING, REASONING_MISSING = RebuildStatus.ANSWER_MISSING, RebuildStatus.REASONING_MISSING

THINKING, INSTANT = Ask(mode="thinking"), Ask(mode="instant")
CAPPED = Ask(mode="thinking", max_tokens=512)

Pieces = list[str | int] | None

CUT_TAIL: dict[bool, tuple[str, ...]] = {False: (), True: ("cut_tail",)}
"""Every cut answer that was rebuilt bears this note: its last ids may not be those that were sampled."""


def call(
    name: str | None = "find", arguments: str | None = '{"q": 1}', call_id: str | None = "functions.find:0"
) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def section(*calls: tuple[str, str]) -> list[str | int]:
    inside = [piece for i, a in calls for piece in (CALL, i, ARGUMENTS, a, CALL_END)]
    return [SECTION, *inside, SECTION_END]


FIND = '<|tool_call_begin|>functions.find:0<|tool_call_argument_begin|>{"q": 1}<|tool_call_end|>'
SECTION_TEXT = f"<|tool_calls_section_begin|>{FIND}<|tool_calls_section_end|>"


def ids_of(pieces: list[str | int], vocabulary: Vocabulary) -> list[int]:
    """Each text by itself, with `encode_ordinary`; ids as they are."""
    return [i for p in pieces for i in (vocabulary.encode_ordinary(p) if isinstance(p, str) else [p])]


@dataclass(frozen=True)
class Case:
    says: str
    reply: dict[str, Any]
    ask: Ask
    ids: Pieces
    status: RebuildStatus
    notes: tuple[str, ...] = ()
    # Fields of the result that are not the reply's.
    moved: dict[str, Any] = field(default_factory=dict)


def stop(**fields: Any) -> dict[str, Any]:
    return {"reasoning": "r", "content": "a", "finish_reason": "stop", **fields}


def length(**fields: Any) -> dict[str, Any]:
    return {"reasoning": "r", "content": "a", "finish_reason": "length", **fields}


CASES = [
    # --- rule 1 and 2: parts by themselves, untouched
    Case("thinking", stop(), THINKING, ["r", END_THINK, "a", END], COMPLETE),
    Case("instant", stop(reasoning=None), INSTANT, ["a", END], COMPLETE),
    Case("instant, reasoning empty", stop(reasoning=""), INSTANT, ["a", END], COMPLETE),
    Case(
        "white space is tokens",
        stop(reasoning=" \n r \n", content="\n\n a\t "),
        THINKING,
        [" \n r \n", END_THINK, "\n\n a\t ", END],
        COMPLETE,
    ),
    Case("white space alone is an answer", stop(content="\n"), THINKING, ["r", END_THINK, "\n", END], COMPLETE),
    Case("nothing is normalised", stop(content="e\u0301 ﬁ"), THINKING, ["r", END_THINK, "e\u0301 ﬁ", END], COMPLETE),
    Case(
        "bracketed names are letters",
        stop(content="[PAD] and [EOS]"),
        THINKING,
        ["r", END_THINK, "[PAD] and [EOS]", END],
        COMPLETE,
        ("spells_special",),
    ),
    Case("lone surrogate", stop(content="a\ud800"), THINKING, None, AMBIGUOUS, ("lone_surrogate",)),
    Case(
        "lone surrogate in arguments",
        stop(tool_calls=(call(arguments="\udc00"),)),
        THINKING,
        None,
        AMBIGUOUS,
        ("lone_surrogate",),
    ),
    # --- rule 1, exception: a terminal at the end of the content
    Case(
        "terminal in text",
        stop(content="a<|im_end|>"),
        THINKING,
        ["r", END_THINK, "a", END],
        COMPLETE,
        ("terminal_in_text",),
        {"content": "a"},
    ),
    Case("terminal twice", stop(content="a<|im_end|><|im_end|>"), THINKING, None, AMBIGUOUS, ("marker_in_content",)),
    Case("terminal before the end", stop(content="a<|im_end|> "), THINKING, None, AMBIGUOUS, ("marker_in_content",)),
    Case("terminal and no more", stop(content="<|im_end|>"), THINKING, None, ANSWER_MISSING, ("terminal_in_text",)),
    Case("terminal in a cut answer", length(content="a<|im_end|>"), THINKING, None, AMBIGUOUS, ("marker_in_content",)),
    Case(
        "terminal in the reasoning", stop(reasoning="r<|im_end|>"), THINKING, None, AMBIGUOUS, ("marker_in_reasoning",)
    ),
    Case(
        "terminal beside structured calls",
        stop(content="a<|im_end|>", tool_calls=(call(),)),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_content",),
    ),
    # --- rule 1, exception: the separator in the content
    Case(
        "separator in text, the count says one id",
        stop(reasoning=None, content="r</think>a", completion_tokens=4),
        THINKING,
        ["r", END_THINK, "a", END],
        COMPLETE,
        ("separator_in_text",),
        {"reasoning": "r", "content": "a"},
    ),
    Case(
        "separator in text, the terminal is not counted",
        stop(reasoning="", content="r</think>a", completion_tokens=3),
        THINKING,
        ["r", END_THINK, "a", END],
        COMPLETE,
        ("separator_in_text",),
        {"reasoning": "r", "content": "a"},
    ),
    Case(
        "separator and terminal in text",
        stop(reasoning=None, content="r</think>a<|im_end|>", completion_tokens=4),
        THINKING,
        ["r", END_THINK, "a", END],
        COMPLETE,
        ("terminal_in_text", "separator_in_text"),
        {"reasoning": "r", "content": "a"},
    ),
    Case(
        "separator in text of a cut answer",
        length(reasoning=None, content="r</think>a", completion_tokens=3),
        THINKING,
        ["r", END_THINK, "a"],
        TRUNCATED,
        ("separator_in_text",),
        {"reasoning": "r", "content": "a"},
    ),
    Case(
        "separator and tool section in text",
        stop(reasoning=None, content=f"r</think>{SECTION_TEXT}", completion_tokens=18),
        THINKING,
        ["r", END_THINK, *section(("functions.find:0", '{"q": 1}')), END],
        COMPLETE,
        ("tools_in_text", "separator_in_text"),
        {"reasoning": "r", "content": "", "tool_calls": (call(),)},
    ),
    *(
        Case(f"separator in text: {says}", stop(**fields), ask, None, AMBIGUOUS, ("marker_in_content",))
        for says, fields, ask in [
            ("the count says letters", {"reasoning": None, "content": "r</think>a", "completion_tokens": 6}, THINKING),
            ("no count", {"reasoning": None, "content": "r</think>a"}, THINKING),
            ("twice", {"reasoning": None, "content": "r</think>a</think>b", "completion_tokens": 6}, THINKING),
            (
                "with the id that begins it",
                {"reasoning": None, "content": "<think>r</think>a", "completion_tokens": 5},
                THINKING,
            ),
            ("nothing before it", {"reasoning": None, "content": "</think>a", "completion_tokens": 3}, THINKING),
            ("nothing after it", {"reasoning": None, "content": "r</think>", "completion_tokens": 3}, THINKING),
            ("beside reasoning", {"content": "r</think>a", "completion_tokens": 4}, THINKING),
            ("instant mode", {"reasoning": None, "content": "r</think>a", "completion_tokens": 4}, INSTANT),
        ]
    ),
    Case(
        "a cut answer has no terminal that could go uncounted",
        length(reasoning=None, content="r</think>a", completion_tokens=2),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_content",),
    ),
    # --- rule 1: anything else that looks like a marker
    Case("marker in the reasoning", stop(reasoning="<|im_user|>"), THINKING, None, AMBIGUOUS, ("marker_in_reasoning",)),
    Case(
        "half a section",
        stop(content="<|tool_calls_section_begin|>"),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_content",),
    ),
    Case(
        "markers in both",
        stop(reasoning="<think>", content="</think>"),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_reasoning", "marker_in_content"),
    ),
    Case(
        "marker that begins in an id and ends in the arguments",
        stop(tool_calls=(call(arguments="think>", call_id="functions.find:0</"),)),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_tool_call",),
    ),
    Case(
        "marker in arguments",
        stop(tool_calls=(call(arguments='"</think>"'),)),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_tool_call",),
    ),
    Case(
        "what is nearly a marker is letters",
        stop(content="<|im_end"),
        THINKING,
        ["r", END_THINK, "<|im_end", END],
        COMPLETE,
    ),
    # case 17
    Case(
        "whole section in the reasoning",
        stop(reasoning=f"look {SECTION_TEXT}", content=""),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_reasoning",),
    ),
    # --- rule 1: the tool grammar in text
    Case(
        "section in text",
        stop(content=f"a {SECTION_TEXT}"),
        THINKING,
        ["r", END_THINK, "a ", *section(("functions.find:0", '{"q": 1}')), END],
        COMPLETE,
        ("tools_in_text",),
        {"content": "a ", "tool_calls": (call(),)},
    ),
    Case(
        "section and terminal in text",
        stop(content=f"{SECTION_TEXT}<|im_end|>"),
        THINKING,
        ["r", END_THINK, *section(("functions.find:0", '{"q": 1}')), END],
        COMPLETE,
        ("terminal_in_text", "tools_in_text"),
        {"content": "", "tool_calls": (call(),)},
    ),
    Case(
        "two calls in text, white space kept",
        stop(content=SECTION_TEXT.replace(FIND, FIND + FIND.replace(":0", ":1").replace('{"q": 1}', "\n{} "))),
        THINKING,
        ["r", END_THINK, *section(("functions.find:0", '{"q": 1}'), ("functions.find:1", "\n{} ")), END],
        COMPLETE,
        ("tools_in_text",),
        {"content": "", "tool_calls": (call(), call(arguments="\n{} ", call_id="functions.find:1"))},
    ),
    Case(
        "text after the section", stop(content=f"{SECTION_TEXT} b"), THINKING, None, AMBIGUOUS, ("marker_in_content",)
    ),
    Case(
        "text between calls",
        stop(content=SECTION_TEXT.replace(FIND, f"{FIND}\n{FIND}")),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_content",),
    ),
    Case("two sections", stop(content=SECTION_TEXT * 2), THINKING, None, AMBIGUOUS, ("marker_in_content",)),
    Case(
        "section without calls",
        stop(content=SECTION_TEXT.replace(FIND, "")),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_content",),
    ),
    Case(
        "call not closed",
        stop(content=SECTION_TEXT.replace("<|tool_call_end|>", "")),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_content",),
    ),
    Case("section in a cut answer", length(content=SECTION_TEXT), THINKING, None, AMBIGUOUS, ("marker_in_content",)),
    Case(
        "section beside structured calls",
        stop(content=SECTION_TEXT, tool_calls=(call(),)),
        THINKING,
        None,
        AMBIGUOUS,
        ("marker_in_content",),
    ),
    Case(
        "id in text of another form",
        stop(content=SECTION_TEXT.replace("functions.find:0", "find")),
        THINKING,
        None,
        AMBIGUOUS,
        ("tools_in_text", "tool_id_foreign"),
    ),
    Case(
        "marker in an id in text",
        stop(content=SECTION_TEXT.replace("find:0", "<think>:0")),
        THINKING,
        None,
        AMBIGUOUS,
        ("tools_in_text", "marker_in_tool_call"),
    ),
    # --- rule 3: the end
    Case(
        "tool_calls is an end",
        stop(finish_reason="tool_calls", tool_calls=(call(),)),
        THINKING,
        ["r", END_THINK, "a", *section(("functions.find:0", '{"q": 1}')), END],
        COMPLETE,
    ),
    Case("native says the same", stop(native_finish_reason="EOS"), THINKING, ["r", END_THINK, "a", END], COMPLETE),
    Case(
        "calls, native stop",
        stop(finish_reason="tool_calls", native_finish_reason="stop", tool_calls=(call(),)),
        THINKING,
        ["r", END_THINK, "a", *section(("functions.find:0", '{"q": 1}')), END],
        COMPLETE,
    ),
    Case("cut in the answer", length(), THINKING, ["r", END_THINK, "a"], TRUNCATED),
    Case("cut in the reasoning, content null (case 16)", length(content=None), THINKING, ["r"], TRUNCATED),
    Case("cut in the reasoning, content empty", length(content=""), THINKING, ["r"], TRUNCATED),
    Case("cut in the answer, instant", length(reasoning=None), INSTANT, ["a"], TRUNCATED),
    Case(
        "cut after a call without content",
        length(content=None, tool_calls=(call(),)),
        THINKING,
        ["r", END_THINK, SECTION, CALL, "functions.find:0", ARGUMENTS, '{"q": 1}'],
        TRUNCATED,
    ),
    Case(
        "cut in the arguments",
        length(tool_calls=(call(arguments='{"q'),)),
        THINKING,
        ["r", END_THINK, "a", SECTION, CALL, "functions.find:0", ARGUMENTS, '{"q'],
        TRUNCATED,
    ),
    Case(
        "cut before the arguments",
        length(tool_calls=(call(arguments=None),)),
        THINKING,
        ["r", END_THINK, "a", SECTION, CALL, "functions.find:0", ARGUMENTS],
        TRUNCATED,
    ),
    Case(
        "cut in the second call",
        length(tool_calls=(call(), call(arguments="{", call_id="functions.find:1"))),
        THINKING,
        [
            "r",
            END_THINK,
            "a",
            SECTION,
            CALL,
            "functions.find:0",
            ARGUMENTS,
            '{"q": 1}',
            CALL_END,
            CALL,
            "functions.find:1",
            ARGUMENTS,
            "{",
        ],
        TRUNCATED,
    ),
    # case 9
    Case(
        "stop, native length",
        stop(native_finish_reason="length", completion_tokens=512),
        CAPPED,
        ["r", END_THINK, "a"],
        TRUNCATED,
        ("finish_reasons_differ",),
    ),
    Case(
        "length, native stop",
        length(native_finish_reason="stop"),
        THINKING,
        ["r", END_THINK, "a"],
        TRUNCATED,
        ("finish_reasons_differ",),
    ),
    Case(
        "stop at max_tokens",
        stop(completion_tokens=512),
        CAPPED,
        ["r", END_THINK, "a"],
        AMBIGUOUS,
        ("stop_at_max_tokens",),
    ),
    Case(
        "stop beyond max_tokens",
        stop(completion_tokens=513),
        CAPPED,
        ["r", END_THINK, "a"],
        AMBIGUOUS,
        ("stop_at_max_tokens",),
    ),
    Case("stop below max_tokens", stop(completion_tokens=511), CAPPED, ["r", END_THINK, "a", END], COMPLETE),
    Case(
        "calls at max_tokens",
        stop(finish_reason="tool_calls", tool_calls=(call(),), completion_tokens=512),
        CAPPED,
        ["r", END_THINK, "a", SECTION, CALL, "functions.find:0", ARGUMENTS, '{"q": 1}'],
        AMBIGUOUS,
        ("stop_at_max_tokens",),
    ),
    # case 10
    Case(
        "no finish reason",
        stop(finish_reason=None, completion_tokens=3),
        THINKING,
        None,
        AMBIGUOUS,
        ("finish_unknown",),
    ),
    Case(
        "no finish reason, native stop",
        stop(finish_reason=None, native_finish_reason="stop"),
        THINKING,
        None,
        AMBIGUOUS,
        ("finish_unknown",),
    ),
    Case(
        "no finish reason, native length",
        length(finish_reason=None, native_finish_reason="max_tokens"),
        THINKING,
        ["r", END_THINK, "a"],
        TRUNCATED,
        ("finish_reasons_differ",),
    ),
    Case("finish reason unknown", stop(finish_reason="content_filter"), THINKING, None, AMBIGUOUS, ("finish_unknown",)),
    Case(
        "native reason unknown",
        stop(native_finish_reason="refusal"),
        THINKING,
        None,
        AMBIGUOUS,
        ("native_finish_unknown",),
    ),
    Case("stop string sent", stop(), Ask(mode="thinking", stop=("\n",)), None, AMBIGUOUS, ("stop_string_sent",)),
    Case(
        "stop string sent, cut by length",
        length(),
        Ask(mode="thinking", stop=("\n",)),
        ["r", END_THINK, "a"],
        TRUNCATED,
    ),
    # --- rule 4: structured calls
    Case(
        "calls exactly as received",
        stop(
            content=None,
            tool_calls=(
                call(arguments=' {"q":"\\u00e9\\n"}'),
                call(name=None, arguments="", call_id="functions.find:7"),
            ),
        ),
        THINKING,
        ["r", END_THINK, *section(("functions.find:0", ' {"q":"\\u00e9\\n"}'), ("functions.find:7", "")), END],
        COMPLETE,
    ),
    Case(
        "foreign id (case 20)",
        stop(tool_calls=(call(call_id="call_9f3a"),)),
        THINKING,
        None,
        AMBIGUOUS,
        ("tool_id_foreign",),
    ),
    Case("id of another name", stop(tool_calls=(call(name="get"),)), THINKING, None, AMBIGUOUS, ("tool_id_foreign",)),
    Case("no id", stop(tool_calls=(call(call_id=None),)), THINKING, None, AMBIGUOUS, ("tool_call_incomplete",)),
    Case(
        "no arguments", stop(tool_calls=(call(arguments=None),)), THINKING, None, AMBIGUOUS, ("tool_call_incomplete",)
    ),
    Case(
        "no arguments before the cut",
        length(tool_calls=(call(arguments=None), call())),
        THINKING,
        None,
        AMBIGUOUS,
        ("tool_call_incomplete",),
    ),
    Case(
        "calls announced and missing",
        stop(finish_reason="tool_calls"),
        THINKING,
        None,
        AMBIGUOUS,
        ("tool_calls_missing",),
    ),
    Case(
        "calls announced by the native reason",
        stop(native_finish_reason="tool_calls"),
        THINKING,
        None,
        AMBIGUOUS,
        ("tool_calls_missing",),
    ),
    Case(
        "calls announced, native stop",
        stop(finish_reason="tool_calls", native_finish_reason="stop"),
        THINKING,
        None,
        AMBIGUOUS,
        ("tool_calls_missing",),
    ),
    # --- rule 7: what is missing (case 14)
    Case("answer in the reasoning", stop(reasoning="**Answer: X**", content=""), THINKING, None, ANSWER_MISSING),
    Case("content null", stop(content=None), THINKING, None, ANSWER_MISSING),
    Case("nothing at all", length(reasoning=None, content=None), THINKING, None, ANSWER_MISSING),
    Case("no reasoning", stop(reasoning=None), THINKING, None, REASONING_MISSING),
    Case("reasoning empty", stop(reasoning=""), THINKING, None, REASONING_MISSING),
    Case("no reasoning, cut", length(reasoning=None), THINKING, None, REASONING_MISSING),
    Case("reasoning in instant mode", stop(), INSTANT, None, AMBIGUOUS, ("reasoning_in_instant_mode",)),
    # --- what the wire noticed
    *(
        Case(f"unreadable: {note}", stop(notes=(note,)), THINKING, None, AMBIGUOUS, (note,))
        for note in ("reasoning_not_verbatim", "wrong_type:reasoning", "wrong_type:tool_calls", "wrong_type:arguments")
    ),
    Case(
        "a number as request id does no harm",
        stop(notes=("wrong_type:id",)),
        THINKING,
        ["r", END_THINK, "a", END],
        COMPLETE,
        ("wrong_type:id",),
    ),
    Case(
        "token_ids null (case 30)",
        stop(notes=("ids_null",)),
        THINKING,
        ["r", END_THINK, "a", END],
        COMPLETE,
        ("ids_null",),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.says for case in CASES])
def test_each_rule(kimi: Contract, vocabulary: Vocabulary, case: Case) -> None:
    rebuilt = rebuild(Reply(**case.reply), case.ask, kimi, vocabulary)
    expected = None if case.ids is None else ids_of(case.ids, vocabulary)
    assert rebuilt.ids == expected
    assert (rebuilt.status, rebuilt.notes) == (case.status, case.notes + CUT_TAIL[case.status is TRUNCATED])
    assert rebuilt.source is (None if expected is None else IdsSource.REBUILT)
    kept = {"reasoning": None, "content": None, "tool_calls": ()} | case.reply | case.moved
    for name in ("reasoning", "content", "tool_calls"):
        assert getattr(rebuilt, name) == kept[name], name


def test_the_names_of_the_rules_are_distinct() -> None:
    assert len({case.says for case in CASES}) == len(CASES)


# --- ids that came ---------------------------------------------------------------------------------

# (what, ids, reply, source of ids, ids that are kept, status, notes); 64 and 65 are some ids, not the text's
ENGINE, GIVEN = IdsSource.ENGINE, IdsSource.GIVEN
CAME = [
    ("engine, whole", [64, END_THINK, 65, END], stop(), ENGINE, COMPLETE, ()),
    ("engine, terminal at the cap", [64, END_THINK, 65, END], length(), ENGINE, COMPLETE, ()),
    ("engine, cut, though it says stop", [64, END_THINK, 65], stop(), ENGINE, TRUNCATED, ()),
    ("engine, finish unknown", [64, END_THINK, 65, END], stop(finish_reason=None), ENGINE, COMPLETE, ()),
    ("engine, no text", [64, END], {"finish_reason": "stop"}, ENGINE, COMPLETE, ()),
    ("engine, empty", [], stop(), ENGINE, TRUNCATED, ()),
    ("engine, marker in the text", [64, END], stop(content="</think>"), ENGINE, COMPLETE, ()),
    ("given, other ids", [64, END], stop(), GIVEN, COMPLETE, ("given_differs",)),
    ("given, unchecked", [64, END], stop(reasoning=None), GIVEN, REASONING_MISSING, ("given_unchecked",)),
    (
        "given, end unknown",
        [64, END],
        stop(finish_reason=None),
        GIVEN,
        AMBIGUOUS,
        ("finish_unknown", "given_unchecked"),
    ),
    ("given, no text, whole", [64, END], {"finish_reason": "stop"}, GIVEN, COMPLETE, ("given_without_text",)),
    ("given, no text, no reason", [64, END], {}, GIVEN, COMPLETE, ("given_without_text",)),
    ("given, no text, no terminal", [64], {"finish_reason": "stop"}, GIVEN, AMBIGUOUS, ("given_without_text",)),
    ("given, no text, cut", [64], {"finish_reason": "length"}, GIVEN, TRUNCATED, ("given_without_text",)),
    (
        "given, no text, native cut",
        [64],
        {"finish_reason": "stop", "native_finish_reason": "length"},
        GIVEN,
        TRUNCATED,
        ("given_without_text",),
    ),
    ("given, empty", [], {"finish_reason": "stop"}, GIVEN, AMBIGUOUS, ("given_without_text",)),
]


@pytest.mark.parametrize(("ids", "reply", "source", "status", "notes"), [c[1:] for c in CAME], ids=[c[0] for c in CAME])
def test_ids_that_came_are_kept(
    kimi: Contract,
    vocabulary: Vocabulary,
    ids: list[int],
    reply: dict[str, Any],
    source: IdsSource,
    status: RebuildStatus,
    notes: tuple[str, ...],
) -> None:
    rebuilt = rebuild(Reply(**reply, output_ids=ids, ids_source=source), THINKING, kimi, vocabulary)
    assert (rebuilt.ids, rebuilt.source, rebuilt.status, rebuilt.notes) == (ids, source, status, notes)
    assert (rebuilt.reasoning, rebuilt.content) == (reply.get("reasoning"), reply.get("content"))


def test_given_ids_that_are_the_texts(kimi: Contract, vocabulary: Vocabulary) -> None:
    ids = ids_of(["r", END_THINK, "a", END], vocabulary)
    rebuilt = rebuild(Reply(**stop(), output_ids=ids, ids_source=GIVEN), THINKING, kimi, vocabulary)
    assert (rebuilt.ids, rebuilt.source, rebuilt.notes) == (ids, GIVEN, ("given_equal",))


def test_a_split_that_was_not_the_canonical_one_is_one_id_off(kimi: Contract, vocabulary: Vocabulary) -> None:
    """Case 12: the engine sampled [a, b]; the text gives [ab]."""
    canonical = ids_of(["r", END_THINK, "ab", END], vocabulary)
    sampled = ids_of(["r", END_THINK, "a", "b", END], vocabulary)
    rebuilt = rebuild(Reply(**stop(content="ab"), completion_tokens=len(sampled)), THINKING, kimi, vocabulary)
    assert rebuilt.ids == canonical
    assert len(canonical) - len(sampled) == -1


# --- other contracts -------------------------------------------------------------------------------

START, CHANNEL, MESSAGE, HARMONY_END, RETURN = 200006, 200005, 200008, 200007, 200002
ANALYSIS: list[str | int] = [CHANNEL, "analysis", MESSAGE]
FINAL: list[str | int] = [HARMONY_END, START, "assistant", CHANNEL, "final", MESSAGE]

HARMONY = [
    ("whole", stop(), [*ANALYSIS, "r", *FINAL, "a", RETURN], COMPLETE, ()),
    ("cut in the answer", length(), [*ANALYSIS, "r", *FINAL, "a"], TRUNCATED, ()),
    ("cut in the reasoning", length(content=None), [*ANALYSIS, "r"], TRUNCATED, ()),
    (
        "terminal in text",
        stop(content="a<|return|>"),
        [*ANALYSIS, "r", *FINAL, "a", RETURN],
        COMPLETE,
        ("terminal_in_text",),
    ),
    ("channel in text", stop(content="a<|channel|>"), None, AMBIGUOUS, ("marker_in_content",)),
    ("calls", stop(tool_calls=(call(),)), None, AMBIGUOUS, ("tools_unsupported",)),
    ("no reasoning", stop(reasoning=None), None, REASONING_MISSING, ()),
    ("kimi's marker is letters", stop(content="</think>"), [*ANALYSIS, "r", *FINAL, "</think>", RETURN], COMPLETE, ()),
]


@pytest.mark.parametrize(("reply", "pieces", "status", "notes"), [h[1:] for h in HARMONY], ids=[h[0] for h in HARMONY])
def test_harmony(reply: dict[str, Any], pieces: Pieces, status: RebuildStatus, notes: tuple[str, ...]) -> None:
    contract = read_contract("gpt-oss")
    vocabulary = load_vocabulary(contract)
    rebuilt = rebuild(Reply(**reply), THINKING, contract, vocabulary)
    assert rebuilt.ids == (None if pieces is None else ids_of(pieces, vocabulary))
    assert (rebuilt.status, rebuilt.notes) == (status, notes + CUT_TAIL[status is TRUNCATED])


def test_a_mode_without_tools_refuses_calls(kimi: Contract, vocabulary: Vocabulary) -> None:
    """Calls that the layout has no place for must not be left out of the ids in silence."""
    mode = msgspec.structs.replace(kimi.mode("instant"), output=("{content}", "{terminal}"))
    contract = msgspec.structs.replace(kimi, modes={"instant": mode})
    rebuilt = rebuild(Reply(**stop(reasoning=None, tool_calls=(call(),))), INSTANT, contract, vocabulary)
    assert (rebuilt.ids, rebuilt.notes) == (None, ("tools_unsupported",))


def test_a_mode_that_the_contract_does_not_have(kimi: Contract, vocabulary: Vocabulary) -> None:
    with pytest.raises(ContractError, match="unknown mode 'deep'"):
        rebuild(Reply(**stop()), Ask(mode="deep"), kimi, vocabulary)


# --- properties ------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [" ", "\n", "'s", "'\u017f", "你好", "🙂", "e\u0301", "<|", "[PAD]", '{"a": 1}', "\\u00e9", "def f():\n"]
)
TEXT = st.lists(WORDS | st.text(max_size=8), min_size=1, max_size=10).map("".join)
CALLS = st.lists(st.tuples(st.sampled_from(["f", "get_x", "a-b.c"]), st.integers(0, 99), TEXT), max_size=3)


def has_no_marker(kimi: Contract, *texts: str) -> bool:
    return not any(marker in text for marker in kimi.markers for text in texts)


@given(
    reasoning=TEXT,
    content=TEXT,
    calls=CALLS,
    finish=st.sampled_from(["stop", "length"]),
    mode=st.sampled_from(["thinking", "instant"]),
)
@settings(max_examples=300, deadline=None)
def test_ids_stand_for_the_text_and_the_contracts_ids_stand_where_they_must(
    kimi: Contract,
    vocabulary: Vocabulary,
    reasoning: str,
    content: str,
    calls: list[tuple[str, int, str]],
    finish: str,
    mode: str,
) -> None:
    structured = tuple(ToolCall(id=f"functions.{n}:{i}", name=n, arguments=a) for n, i, a in calls)
    if not reasoning or not content or not has_no_marker(kimi, reasoning, content, *(a for _, _, a in calls)):
        return
    thinks = mode == "thinking"
    reply = Reply(reasoning=reasoning if thinks else None, content=content, tool_calls=structured, finish_reason=finish)
    rebuilt: Rebuilt = rebuild(reply, Ask(mode=mode), kimi, vocabulary)
    assert rebuilt.ids is not None
    text = (f"{reasoning}</think>" if thinks else "") + content
    if structured:
        text += "<|tool_calls_section_begin|>" + "".join(
            f"<|tool_call_begin|>{c.id}<|tool_call_argument_begin|>{c.arguments}<|tool_call_end|>" for c in structured
        )
        text = text if finish == "stop" else text.removesuffix("<|tool_call_end|>")
        text += "<|tool_calls_section_end|>" if finish == "stop" else ""
    text += "<|im_end|>" if finish == "stop" else ""
    assert vocabulary.decode_bytes(rebuilt.ids) == text.encode()
    assert rebuilt.ids.count(END) == (finish == "stop")
    assert rebuilt.ids.count(END_THINK) == thinks
    assert (rebuilt.ids[-1] == END) == (finish == "stop")
    assert THINK not in rebuilt.ids


REPLIES = st.fixed_dictionaries(
    {},
    optional={
        "reasoning": st.none() | TEXT | st.sampled_from(["", "r</think>", SECTION_TEXT]),
        "content": st.none() | TEXT | st.sampled_from(["", "a<|im_end|>", "r</think>a", f"a{SECTION_TEXT}", "\ud800"]),
        "finish_reason": st.sampled_from([None, "stop", "length", "tool_calls", "error"]),
        "native_finish_reason": st.sampled_from([None, "stop", "length", "tool_calls", "?"]),
        "completion_tokens": st.none() | st.integers(0, 40),
        "tool_calls": st.lists(
            st.builds(
                ToolCall,
                id=st.sampled_from([None, "functions.f:0", "x"]),
                name=st.none() | st.just("f"),
                arguments=st.none() | TEXT,
            ),
            max_size=2,
        ).map(tuple),
    },
)


@given(fields=REPLIES, cap=st.none() | st.integers(1, 40), mode=st.sampled_from(["thinking", "instant"]))
@settings(max_examples=400, deadline=None)
def test_whatever_comes_a_cut_answer_has_no_terminal_and_instant_no_thinking(
    kimi: Contract, vocabulary: Vocabulary, fields: dict[str, Any], cap: int | None, mode: str
) -> None:
    rebuilt = rebuild(Reply(**fields), Ask(mode=mode, max_tokens=cap), kimi, vocabulary)
    assert (rebuilt.ids is None) == (rebuilt.source is None)
    if rebuilt.ids is None:
        assert rebuilt.status not in (COMPLETE, TRUNCATED)
        return
    assert rebuilt.ids.count(END) == (rebuilt.status is COMPLETE)
    assert rebuilt.status is not COMPLETE or rebuilt.ids[-1] == END
    assert END_THINK not in rebuilt.ids or mode == "thinking"
    assert rebuilt.status is not COMPLETE or rebuilt.ids.count(END_THINK) == (mode == "thinking")
