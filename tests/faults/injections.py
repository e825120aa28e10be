"""The faults, each a pure function: a good row in, the faulty row out, or None where the draw does not make a fault.

What a server or a model did wrong is put into the reply, and the row is what our own rules then make of it. What a
rebuild, a file or a tokenizer did wrong is put into the ids. Where both can be, chance decides.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tests.faults.good_rows import COUNTINGS, FEW, section_ids
from toolkit.audit.structure import shifted_ids
from toolkit.contract import Contract
from toolkit.rebuild import rebuild
from toolkit.records import Ask, Reply, ToolCall, canonical_json
from toolkit.vocabulary import Vocabulary

Row = dict[str, Any]
Donor = Callable[[Row], Row | None]


@dataclass(frozen=True, slots=True)
class World:
    """What faults are made from.

    Attributes:
        other: Encodes with another vocabulary than the rows'.
        donor: Another good row that is shaped like this one.
        token_of: Bytes → id of the base tokens.
    """

    vocabulary: Vocabulary
    other: Callable[[str], list[int]]
    draw: random.Random
    donor: Donor
    token_of: Mapping[bytes, int]

    @property
    def contract(self) -> Contract:
        return self.vocabulary.contract

    def special(self, spelling: str) -> int:
        return self.contract.id_of(spelling)

    def encode(self, text: str | None) -> list[int]:
        return self.vocabulary.encode_ordinary(text or "")


Fault = Callable[[Row, World], Row | None]

TERMINAL, END_THINK, BEGIN_THINK = "<|im_end|>", "</think>", "<think>"


# --- which rows can bear a fault -------------------------------------------------------------------

_WHOLE = pl.col("rebuild_status") == "complete"
_CUT = ~_WHOLE
_REBUILT = pl.col("ids_source") == "rebuilt"
_THINKS = pl.col("mode") == "thinking"
_CALLS = pl.col("tool_calls").is_not_null()
_CONTENT = pl.col("content").is_not_null()
_REASONING = pl.col("reasoning").is_not_null()
_OPENROUTER = pl.col("source") == "openrouter"
# Nothing is known of how a provider with fewer than 30 rows counts.
_COUNTED = pl.col("provider").fill_null("") != COUNTINGS[FEW].name
_TELLS_REASONING = pl.col("provider").is_in([c.name for c in COUNTINGS if c.reasoning in ("ids", "with_end")])
_BESIDE = pl.col("provider").is_in([c.name for c in COUNTINGS if c.beside])
_ANY = pl.lit(True)
# What an engine's parser makes of a call that was cut is not known, so the text of such a row says nothing.
_HAS_TEXT = _REBUILT | _WHOLE | ~_CALLS

BEARS: dict[str, pl.Expr] = {
    # An engine's ids without a terminal are an answer that was cut: nothing is missing from them.
    "terminal_missing": _REBUILT & _WHOLE,
    "terminal_twice": _WHOLE,
    "false_terminal": _REBUILT & _CUT,
    # A model may open a tool section without ending its thoughts, and an engine's ids say what it did.
    "end_think_missing": _THINKS & _WHOLE & (_REBUILT | ~_CALLS),
    "end_think_twice": _THINKS & _WHOLE,
    "end_think_invented": _REBUILT & _CUT & _THINKS & ~_CONTENT & ~_CALLS,
    "begin_think_inside": _ANY,
    "think_in_instant": ~_THINKS,
    "control_id_inside": _ANY,
    "id_out_of_vocabulary": _ANY,
    "shifted_specials": (_THINKS & (_WHOLE | _CONTENT | _CALLS)) | _CALLS,
    "other_tokenizer": _HAS_TEXT,
    "ids_dropped": _HAS_TEXT,
    "ids_inserted": _HAS_TEXT,
    "ids_swapped": _HAS_TEXT,
    "ids_of_another_row": _HAS_TEXT,
    "tool_section_open": _CALLS & _WHOLE,
    "tool_index_order": _CALLS & _WHOLE,
    "tool_id_form": _CALLS & _WHOLE & _REBUILT,
    "tool_arguments_broken": _CALLS & _WHOLE,
    "tool_arguments_schema": _CALLS & _WHOLE,
    "tool_unknown_name": _CALLS & _WHOLE,
    "marker_in_content": _REBUILT & _CONTENT & _WHOLE,
    "single_marker_in_reasoning": _REBUILT & _REASONING & _WHOLE,
    "answer_in_reasoning": _REBUILT & _WHOLE & _THINKS & _CONTENT & ~_CALLS,
    "reasoning_missing": _REBUILT & _WHOLE & _THINKS,
    "reasoning_in_content": _REBUILT & _WHOLE & _THINKS & _CONTENT & ~_CALLS,
    "empty_answer": _REBUILT & _WHOLE & ~_CALLS,
    "words_lost": _REBUILT & _COUNTED & _CONTENT,
    "words_added": _REBUILT & _COUNTED & _CONTENT & _WHOLE & ~_CALLS,
    "count_wrong": _COUNTED,
    # Where reasoning stands beside completion_tokens, a wrong one makes the whole count wrong.
    "reasoning_count_wrong": _REBUILT & _TELLS_REASONING & ~_BESIDE & _THINKS & (_WHOLE | _CONTENT | _CALLS),
    "stop_at_the_cap": _REBUILT & _WHOLE,
    "finish_unknown": _REBUILT & _WHOLE,
    "native_length": _REBUILT & _WHOLE,
    "prompt_other": _ANY,
    "prompt_tail_wrong": _ANY,
    "provider_foreign": _OPENROUTER,
    "provider_missing": _OPENROUTER,
    "replacement_character": _REBUILT & _CONTENT,
    "control_characters": _CONTENT,
    "repetition_loop": _CONTENT & ~_CALLS & _WHOLE,
    "refusal": _CONTENT & ~_CALLS & _WHOLE,
    "secret_in_text": _CONTENT & _WHOLE,
    "identity_twice": _ANY,
    "answer_twice": ~_CALLS & _CONTENT,
    "word_replaced": _CONTENT & _WHOLE,
    "split_not_canonical": _REBUILT & _COUNTED & _WHOLE,
}


# --- rows anew -------------------------------------------------------------------------------------


def lay_out(row: Row, world: World, encode: Callable[[str], list[int]] | None = None) -> list[int]:
    """The ids of a row's text in the contract's form, whatever the text spells."""
    encode = encode or world.encode
    cut = row["rebuild_status"] != "complete"
    calls = calls_of(row)
    answered = bool(row["content"]) or bool(calls)
    ids = encode(row["reasoning"] or "") if row["mode"] == "thinking" else []
    if row["mode"] == "thinking" and (answered or not cut):
        ids.append(world.special(END_THINK))
    ids += encode(row["content"] or "")
    if calls:
        ids += section_ids(calls, world.vocabulary, closed=not cut)
    return ids if cut else [*ids, world.special(TERMINAL)]


def calls_of(row: Row) -> list[dict[str, Any]]:
    return json.loads(row["tool_calls"]) if row["tool_calls"] else []


def with_calls(row: Row, calls: Sequence[Mapping[str, Any]]) -> Row:
    return row | {"tool_calls": canonical_json([dict(call) for call in calls]).decode()}


def said(row: Row, world: World) -> Row:
    """The model itself said what the row's text says now: ids and counts follow."""
    ids = lay_out(row, world)
    more = len(ids) - len(row["output_ids"])
    return row | {"output_ids": ids, "completion_tokens": row["completion_tokens"] + more}


def came(row: Row, world: World, *, max_tokens: int | None = None) -> Row:
    """The reply that the row's text and usage make now, through our rules."""
    calls = tuple(ToolCall(id=c["id"], name=c["name"], arguments=c["arguments"]) for c in calls_of(row))
    names = ("provider", "model", "reasoning", "content", "finish_reason", "native_finish_reason", "completion_tokens",
             "reasoning_tokens")  # fmt: skip
    reply = Reply(tool_calls=calls, **{name: row[name] for name in names})
    rebuilt = rebuild(reply, Ask(mode=row["mode"], max_tokens=max_tokens), world.contract, world.vocabulary)
    shown = [call.as_json() for call in rebuilt.tool_calls]
    return row | {
        "reasoning": rebuilt.reasoning,
        "content": rebuilt.content,
        "tool_calls": canonical_json(shown).decode() if shown else None,
        "output_ids": rebuilt.ids,
        "ids_source": None if rebuilt.source is None else str(rebuilt.source),
        "rebuild_status": str(rebuilt.status),
        "notes": list(rebuilt.notes),
    }


def with_ids(row: Row, ids: Sequence[int]) -> Row | None:
    """The row with other ids; None where they are the same."""
    return None if list(ids) == row["output_ids"] else row | {"output_ids": list(ids)}


def _base_at(row: Row, world: World) -> list[int]:
    return [i for i, token in enumerate(row["output_ids"]) if token < world.contract.vocabulary.base_tokens]


def _other_text(row: Row, ids: Sequence[int], world: World) -> Row | None:
    """The row with other ids; None where they stand for the same text."""
    same = world.vocabulary.decode_bytes(ids) == world.vocabulary.decode_bytes(row["output_ids"])
    return None if same else with_ids(row, ids)


# --- ends and special ids ----------------------------------------------------------------------------


def terminal_missing(row: Row, world: World) -> Row | None:
    return with_ids(row, row["output_ids"][:-1])


def terminal_twice(row: Row, world: World) -> Row | None:
    return with_ids(row, [*row["output_ids"], world.special(TERMINAL)])


def false_terminal(row: Row, world: World) -> Row | None:
    # Whoever closes a cut answer may also say that it is whole.
    status = world.draw.choice(["complete", "truncated"])
    return row | {"output_ids": [*row["output_ids"], world.special(TERMINAL)], "rebuild_status": status}


def end_think_missing(row: Row, world: World) -> Row | None:
    return with_ids(row, [i for i in row["output_ids"] if i != world.special(END_THINK)])


def end_think_twice(row: Row, world: World) -> Row | None:
    first = row["output_ids"].index(world.special(END_THINK))
    return _inserted(row, world.draw.randint(first + 1, len(row["output_ids"]) - 1), [world.special(END_THINK)])


def end_think_invented(row: Row, world: World) -> Row | None:
    return with_ids(row, [*row["output_ids"], world.special(END_THINK)])


def begin_think_inside(row: Row, world: World) -> Row | None:
    at = world.draw.choice([0, world.draw.randrange(len(row["output_ids"]))])
    return _inserted(row, at, [world.special(BEGIN_THINK)])


def think_in_instant(row: Row, world: World) -> Row | None:
    thought = " The user wants an answer at once, and yet I think."
    return row | {
        "reasoning": thought,
        "output_ids": [*world.encode(thought), world.special(END_THINK), *row["output_ids"]],
    }


def control_id_inside(row: Row, world: World) -> Row | None:
    control = ["<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "[EOT]", "[BOS]", "<|media_pad|>"]
    at = world.draw.randrange(len(row["output_ids"]))
    return _inserted(row, at, [world.special(world.draw.choice(control))])


def id_out_of_vocabulary(row: Row, world: World) -> Row | None:
    ids = list(row["output_ids"])
    ids[world.draw.choice(_base_at(row, world))] = world.draw.choice([-1, 163_840, 200_000, 2**31 - 1])
    return with_ids(row, ids)


def shifted_specials(row: Row, world: World) -> Row | None:
    shifted = shifted_ids(world.contract)
    return with_ids(row, [shifted.get(i, i) for i in row["output_ids"]])


def _inserted(row: Row, at: int, ids: Sequence[int]) -> Row:
    return row | {"output_ids": [*row["output_ids"][:at], *ids, *row["output_ids"][at:]]}


# --- ids that are not the text's ---------------------------------------------------------------------


def other_tokenizer(row: Row, world: World) -> Row | None:
    foreign = [i for i in lay_out(row, world, world.other) if i < world.contract.vocab_size]
    return _other_text(row, foreign, world)


def ids_dropped(row: Row, world: World) -> Row | None:
    base = _base_at(row, world)
    first = world.draw.choice(base)
    last = first
    for _ in range(world.draw.randrange(8)):
        last += (last + 1) in base
    return _other_text(row, [*row["output_ids"][:first], *row["output_ids"][last + 1 :]], world)


def ids_inserted(row: Row, world: World) -> Row | None:
    new = [world.draw.randrange(world.contract.vocabulary.base_tokens) for _ in range(world.draw.randint(1, 4))]
    at = world.draw.choice(_base_at(row, world))
    return _inserted(row, at, new)


def ids_swapped(row: Row, world: World) -> Row | None:
    base = set(_base_at(row, world))
    pairs = [i for i in base if i + 1 in base]
    if not pairs:
        return None
    at = world.draw.choice(sorted(pairs))
    ids = list(row["output_ids"])
    ids[at], ids[at + 1] = ids[at + 1], ids[at]
    return _other_text(row, ids, world)


def ids_of_another_row(row: Row, world: World) -> Row | None:
    donor = world.donor(row)
    return None if donor is None else _other_text(row, donor["output_ids"], world)


# --- tool calls ----------------------------------------------------------------------------------------


def tool_section_open(row: Row, world: World) -> Row | None:
    gone = world.draw.choice([["<|tool_calls_section_end|>"], ["<|tool_calls_section_end|>", "<|tool_call_end|>"]])
    ends = {world.special(spelling) for spelling in gone}
    return with_ids(row, [i for i in row["output_ids"] if i not in ends])


def tool_index_order(row: Row, world: World) -> Row | None:
    calls = calls_of(row)
    which = world.draw.randrange(len(calls))
    name, _, index = calls[which]["id"].rpartition(":")
    calls[which]["id"] = f"{name}:{int(index) + world.draw.choice([1, 3, 5, 11])}"
    # Counting may begin anew in each answer, or run through the conversation: both are in order.
    indexes = [int(call["id"].rpartition(":")[2]) for call in calls]
    earlier = row["messages"].count('"functions.') // 2
    if any(indexes == list(range(first, first + len(calls))) for first in (0, earlier)):
        return None
    return said(with_calls(row, calls), world)


def tool_id_form(row: Row, world: World) -> Row | None:
    calls = calls_of(row)
    for call in calls:
        call["id"] = world.draw.choice(["call_", "chatcmpl-tool-", ""]) + f"{world.draw.getrandbits(64):016x}"
    return came(with_calls(row, calls), world)


def tool_arguments_broken(row: Row, world: World) -> Row | None:
    calls = calls_of(row)
    call = world.draw.choice(calls)
    whole = call["arguments"]
    broken = [call["arguments"][:-1], call["arguments"] + "}", call["arguments"].replace('"', "'", 1), "[1, 2]", ""]
    call["arguments"] = world.draw.choice(broken)
    return None if call["arguments"] == whole else said(with_calls(row, calls), world)


_NOT_ALLOWED = {
    "get_weather": ({"city": "Hanoi"}, {"city": 7, "days": 2}, {"city": "Kyoto", "days": 99},
                    {"city": "Kyoto", "days": 2, "unit": "kelvin"}, {"city": "Kyoto", "days": 2, "hour": 3}),
    "add_note": ({"title": "a"}, {"title": "a", "body": None}, {"title": "a", "body": "b", "tags": "c"},
                 {"title": "a", "body": "b", "weight": 0}),
    "search.files-2": ({"query": 5}, {"query": ["a"]}),
}  # fmt: skip


def tool_arguments_schema(row: Row, world: World) -> Row | None:
    calls = calls_of(row)
    call = world.draw.choice(calls)
    call["arguments"] = json.dumps(world.draw.choice(_NOT_ALLOWED[call["name"]]))
    return said(with_calls(row, calls), world)


def tool_unknown_name(row: Row, world: World) -> Row | None:
    calls = calls_of(row)
    call = world.draw.choice(calls)
    name = world.draw.choice(["get_wether", "GetWeather", "delete_everything", "search.files"])
    call["id"] = call["id"].replace(call["name"], name)
    call["name"] = name
    return said(with_calls(row, calls), world)


# --- parts in the wrong place ------------------------------------------------------------------------------


def marker_in_content(row: Row, world: World) -> Row | None:
    marker = world.draw.choice(sorted(world.contract.markers))
    return _spelled(row | {"content": _put_in(row["content"], marker, world)}, world)


def single_marker_in_reasoning(row: Row, world: World) -> Row | None:
    marker = world.draw.choice([END_THINK, BEGIN_THINK, TERMINAL, "<|tool_call_end|>"])
    return _spelled(row | {"reasoning": _put_in(row["reasoning"], marker, world)}, world)


def _spelled(row: Row, world: World) -> Row:
    """Letters that spell a marker: as our rules take them, or as a rebuild that has none would."""
    return came(row, world) if world.draw.random() < 0.5 else said(row, world)


def _put_in(text: str, inserted: str, world: World) -> str:
    at = world.draw.randrange(1, len(text))
    return text[:at] + inserted + text[at:]


def answer_in_reasoning(row: Row, world: World) -> Row | None:
    moved = row | {"reasoning": row["reasoning"] + row["content"], "content": world.draw.choice([None, ""])}
    return _missing(moved, world)


def reasoning_missing(row: Row, world: World) -> Row | None:
    return _missing(row | {"reasoning": world.draw.choice([None, ""])}, world)


def empty_answer(row: Row, world: World) -> Row | None:
    return _missing(row | {"reasoning": None, "content": world.draw.choice([None, ""])}, world)


def _missing(row: Row, world: World) -> Row:
    """A part is not there: as our rules take it, or as a rebuild that lays out what there is, counted so."""
    return came(row, world) if world.draw.random() < 0.5 else said(row, world)


def reasoning_in_content(row: Row, world: World) -> Row | None:
    moved = row | {"reasoning": None, "content": f"{row['reasoning']}{END_THINK}{row['content']}"}
    taken = came(moved, world)
    # Where the count says that the letters are the id, our rules put everything back: no fault.
    return said(moved, world) if taken["output_ids"] is not None or world.draw.random() < 0.5 else taken


# --- text, counts, ends ---------------------------------------------------------------------------------------


def words_lost(row: Row, world: World) -> Row | None:
    words = row["content"].split(" ")
    if len(words) < 4:
        return None
    first = world.draw.randrange(1, len(words) - 1)
    rest = [*words[:first], *words[first + world.draw.randint(1, 6) :]]
    new = came(row | {"content": " ".join(rest)}, world)
    # Words that cost no ids leave no trace.
    return new if new["output_ids"] and len(new["output_ids"]) != len(row["output_ids"]) else None


def words_added(row: Row, world: World) -> Row | None:
    advertisement = world.draw.choice(["\n\n---\nServed by the fastest endpoint.", " (upgrade for longer answers)"])
    return came(row | {"content": row["content"] + advertisement}, world)


def _may_be(row: Row, completion_tokens: int, world: World) -> bool:
    """Whether any way of counting gives this count."""
    count = row["output_ids"].count
    parts = [
        count(world.special(TERMINAL)),
        count(world.special(END_THINK)),
        sum(map(count, world.contract.tool_ids)),
    ]
    sums = {0}
    for part in parts:
        sums |= {total + part for total in sums}
    off = len(row["output_ids"]) - completion_tokens
    return off in sums or off - (row["reasoning_tokens"] or 0) in sums


def count_wrong(row: Row, world: World) -> Row | None:
    off = world.draw.choice([-1, 1]) * world.draw.choice([1, 2, 3, 5, 17, 120])
    count = row["completion_tokens"] + off
    return None if count <= 0 or _may_be(row, count, world) else row | {"completion_tokens": count}


def reasoning_count_wrong(row: Row, world: World) -> Row | None:
    return row | {"reasoning_tokens": row["reasoning_tokens"] + world.draw.choice([2, 5, 60, 700])}


def stop_at_the_cap(row: Row, world: World) -> Row | None:
    return came(row, world, max_tokens=row["completion_tokens"])


def finish_unknown(row: Row, world: World) -> Row | None:
    return came(row | {"finish_reason": world.draw.choice([None, "", "content_filter", "abort", "ok"])}, world)


def native_length(row: Row, world: World) -> Row | None:
    return row | {"native_finish_reason": world.draw.choice(["length", "max_tokens", "MAX_TOKENS"])}


# --- prompts and providers --------------------------------------------------------------------------------------


def prompt_other(row: Row, world: World) -> Row | None:
    off = world.draw.choice([-7, 5, 40, 900])
    return row | {"prompt_tokens": row["prompt_tokens"] + off}


def prompt_tail_wrong(row: Row, world: World) -> Row | None:
    end = world.special(END_THINK)
    ids = [*row["prompt_ids"], end] if row["mode"] == "thinking" else row["prompt_ids"][:-1]
    more = len(ids) - len(row["prompt_ids"])
    return row | {"prompt_ids": ids, "prompt_tokens": row["prompt_tokens"] + more}


def provider_foreign(row: Row, world: World) -> Row | None:
    return row | {"provider": "Zelkova"}


def provider_missing(row: Row, world: World) -> Row | None:
    return row | {"provider": None}


# --- text health ------------------------------------------------------------------------------------------------


def replacement_character(row: Row, world: World) -> Row | None:
    return came(row | {"content": _put_in(row["content"], "\ufffd", world)}, world)


def control_characters(row: Row, world: World) -> Row | None:
    return said(
        row | {"content": _put_in(row["content"], world.draw.choice(["\x1b[31m", "\x00", "\x08"]), world)}, world
    )


CAP = 1_024
"""Ids at which a model that repeats itself is cut."""


def repetition_loop(row: Row, world: World) -> Row | None:
    phrase = world.draw.choice([" again and again", " the same thing, once more.", "000", "\n- item", " 再来一次。"])
    looped = row["content"] + phrase * (CAP // len(world.encode(phrase)))
    cut = row | {"content": looped, "rebuild_status": "truncated", "finish_reason": "length"}
    cut["native_finish_reason"] = None if row["native_finish_reason"] is None else "length"
    new = said(cut, world)
    kinds = row["output_ids"].count(world.special(TERMINAL)) * _leaves_out(row, "terminal")
    return new | {"completion_tokens": new["completion_tokens"] + kinds}


def _leaves_out(row: Row, kind: str) -> bool:
    return any(c.name == row["provider"] and kind in c.leaves_out for c in COUNTINGS)


_REFUSALS = (
    "I'm sorry, but I can't help with that.", "I’m sorry, but I cannot assist with this request.",
    "I cannot help with that.", "抱歉，但我无法提供帮助。", " I apologize, but I'm unable to provide that information.",
)  # fmt: skip


def refusal(row: Row, world: World) -> Row | None:
    return said(row | {"content": world.draw.choice(_REFUSALS)}, world)


def secret_in_text(row: Row, world: World) -> Row | None:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    # Keys without a digit, one in 500 of them, are taken for words: documentation is full of those.
    drawn = "7" + "".join(world.draw.choice(letters) for _ in range(63))
    kinds = [
        f"sk-proj-{drawn[:48]}", f"ghp_{drawn[:36]}", f"hf_{drawn[:34]}", f"AIza{drawn[:35]}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{drawn}\n{drawn[::-1]}\n-----END RSA PRIVATE KEY-----",
    ]  # fmt: skip
    return said(row | {"content": f"{row['content']} key: {world.draw.choice(kinds)}\n"}, world)


# --- other rows -------------------------------------------------------------------------------------------------


def identity_twice(row: Row, world: World) -> Row | None:
    donor = world.donor(row)
    names = ("row_key", "sample_id", "turn", "sample_index")
    return None if donor is None else row | {name: donor[name] for name in names}


_ANSWER = ("reasoning", "content", "tool_calls", "finish_reason", "native_finish_reason", "completion_tokens",
           "reasoning_tokens", "output_ids", "rebuild_status", "notes")  # fmt: skip


def answer_twice(row: Row, world: World) -> Row | None:
    donor = world.donor(row)
    if donor is None or donor["tool_calls"] is not None or len(donor["output_ids"]) < 32:
        return None
    return row | {name: donor[name] for name in _ANSWER}


# --- what leaves no trace ---------------------------------------------------------------------------------------

_WORDS = (" river", " table", " window", " garden", " winter", " letter", " music", " silver", " market", " doctor")


def word_replaced(row: Row, world: World) -> Row | None:
    found = list(re.finditer(r" [a-z]{4,}(?= )", row["content"]))
    if not found:
        return None
    match = world.draw.choice(found)
    word = world.draw.choice(_WORDS)
    new = said(row | {"content": row["content"][: match.start()] + word + row["content"][match.end() :]}, world)
    same = len(new["output_ids"]) == len(row["output_ids"]) and new["output_ids"] != row["output_ids"]
    return new if same else None


def split_not_canonical(row: Row, world: World) -> Row | None:
    split = other_split(row["output_ids"], world)
    if split is None:
        return None
    return row | {"completion_tokens": row["completion_tokens"] + len(split) - len(row["output_ids"])}


def other_split(ids: Sequence[int], world: World) -> list[int] | None:
    """Other ids of the same text: one id as two, or the place moved at which two neighbours meet."""
    base = world.vocabulary.base
    plain = [i for i, token in enumerate(ids[:-1]) if token < len(base) and ids[i + 1] < len(base)]
    if not plain:
        return None
    at = world.draw.choice(plain)
    width = world.draw.choice([1, 2])
    text = b"".join(base[i] for i in ids[at : at + width])
    places = [
        (world.token_of[text[:cut]], world.token_of[text[cut:]])
        for cut in range(1, len(text))
        if text[:cut] in world.token_of and text[cut:] in world.token_of
    ]
    places = [pair for pair in places if list(pair) != list(ids[at : at + width])]
    return [*ids[:at], *world.draw.choice(places), *ids[at + width :]] if places else None


FAULTS: dict[str, Fault] = {name: fault for name, fault in list(globals().items()) if name in BEARS}


# --- providers --------------------------------------------------------------------------------------------------


def _trimmed(row: Row, world: World, strip: Callable[[str], str]) -> Row:
    names = ("reasoning", "content")
    return came(row | {name: None if row[name] is None else strip(row[name]) for name in names}, world)


def leading_space_trimmed(row: Row, place: float, world: World) -> Row:
    return _trimmed(row, world, str.lstrip)


def both_ends_trimmed(row: Row, place: float, world: World) -> Row:
    return _trimmed(row, world, str.strip)


def tool_json_reserialised(row: Row, place: float, world: World) -> Row:
    if row["tool_calls"] is None or row["rebuild_status"] != "complete":
        return row
    calls = calls_of(row)
    for call in calls:
        value = json.loads(call["arguments"])
        call["arguments"] = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return came(with_calls(row, calls), world)


def convention_changes(row: Row, place: float, world: World) -> Row:
    terminal = row["output_ids"].count(world.special(TERMINAL))
    return row | {"completion_tokens": row["completion_tokens"] + (terminal if place > 0.5 else 0)}


def shorter_answers(row: Row, place: float, world: World) -> Row:
    if row["rebuild_status"] != "complete":
        return row
    short = {
        name: None if row[name] is None else row[name][: max(1, int(len(row[name]) * 0.65))]
        for name in ("reasoning", "content")
    }
    new = said(row | short, world)
    if row["reasoning_tokens"]:
        new["reasoning_tokens"] = len(world.encode(new["reasoning"]))
    return new


OF_PROVIDERS: dict[str, Callable[[Row, float, World], Row]] = {
    "leading_space_trimmed": leading_space_trimmed,
    "both_ends_trimmed": both_ends_trimmed,
    "tool_json_reserialised": tool_json_reserialised,
    "convention_changes": convention_changes,
    "shorter_answers": shorter_answers,
}
"""Faults of a whole provider: a row and its place in the run, 0 to 1."""
VICTIM = "Birch"
"""The provider that bears them: it counts everything but the terminal, and reports no reasoning."""
