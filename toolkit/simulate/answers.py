"""The model's answer, made in ids as an engine would make it: a pure function of a request and a seed.

The text is chosen by sha256 of seed, messages, tools, mode and the request's own seed; its ids are the canonical
encoding in the contract's form. Where they exceed max_tokens they are cut there, and the text is what the ids that
are left stand for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from toolkit.contract import Contract
from toolkit.errors import PermanentError
from toolkit.records import Json, ToolCall
from toolkit.simulate.arguments import arguments_for
from toolkit.simulate.asked import Asked, last_user_text
from toolkit.simulate.draws import Draws
from toolkit.simulate.phrases import CONTENT, REASONING, fill, topic_of
from toolkit.vocabulary import Vocabulary

Finish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What the model would say if nothing cut it short."""

    reasoning: str | None
    content: str
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the model said.

    Attributes:
        ids: Every id that the engine produced, the terminal included; never longer than max_tokens.
        reasoning: Text of the reasoning; None in a mode that does not think.
        content: Text of the content; None where there is none.
        tool_calls: Calls whose arguments began; the last one's may be cut short.
        reasoning_ids: How many ids belong to the reasoning, the one that ends it included.
        has_terminal: Whether the last id is the terminal.
        has_think_end: Whether the id that ends reasoning is among the ids.
    """

    ids: tuple[int, ...]
    reasoning: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]
    finish: Finish
    reasoning_ids: int
    has_terminal: bool
    has_think_end: bool


def prompt_key(messages: Sequence[Mapping[str, Json]], tools: Sequence[Mapping[str, Json]] | None, mode: str) -> str:
    """sha256 of what decides the answer, as the ledger names prompts.

    Raises:
        PermanentError: status 400; the messages or tools are nested too deeply.
    """
    try:
        content = orjson.dumps([list(messages), tools and list(tools), mode], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        message = "messages and tools: expected JSON nested at most 250 levels deep"
        raise PermanentError(message, reason="invalid_request", status=400) from None
    return hashlib.sha256(content).hexdigest()


def answer(asked: Asked, contract: Contract, vocabulary: Vocabulary, *, seed: int, key: str) -> Answer:
    """The answer to `asked`, whose `prompt_key` is `key`."""
    draft = draft_answer(asked, contract, Draws(seed, "answer", key, asked.nonce))
    return answer_of(draft, asked.mode, contract, vocabulary, max_tokens=asked.max_tokens)


def answer_of(
    draft: Draft, mode: str, contract: Contract, vocabulary: Vocabulary, *, max_tokens: int | None = None
) -> Answer:
    """The answer that says `draft` in the form of `mode`, cut after `max_tokens` ids."""
    return _cut(list(_pieces(draft, mode, contract, vocabulary)), draft, max_tokens, vocabulary)


def draft_answer(asked: Asked, contract: Contract, draws: Draws) -> Draft:
    """Text and calls of the whole answer."""
    thinks = contract.mode(asked.mode).thinks
    calls = _calls(asked, contract, draws)
    if calls:
        content = fill(draws.pick(CONTENT["tool"]), draws) if draws.chance(0.4) else ""
        return Draft(reasoning=_text(REASONING, "tool", draws, 1, 4) if thinks else None, content=content, calls=calls)
    topic = "result" if asked.messages[-1]["role"] == "tool" else topic_of(last_user_text(asked.messages))
    reasoning = _text(REASONING, topic, draws, 2, 9) if thinks else None
    return Draft(reasoning=reasoning, content=_text(CONTENT, topic, draws, 1, 6), calls=())


# --- text --------------------------------------------------------------------------------------


def _text(pieces: Mapping[str, Sequence[str]], topic: str, draws: Draws, fewest: int, most: int) -> str:
    """A text on `topic`: mostly its own pieces, some of any topic, whitespace at both ends as models leave it."""
    between = " " if pieces is REASONING else "\n\n"
    chosen: list[str] = []
    for _ in range(draws.between(fewest, most)):
        pool = pieces["any"] if draws.chance(0.3) else pieces[topic]
        # Said once is enough: a repeated piece would look like a model caught in a loop.
        fresh = [piece for piece in pool if piece not in chosen]
        if fresh:
            chosen.append(draws.pick(fresh))
    filled = [fill(piece, draws) + ("\n\n" if draws.chance(0.3) else between) for piece in chosen[:-1]]
    filled.append(fill(chosen[-1], draws))
    ending = draws.pick(("", "", "", "", "", " ", "\n", "\n\n"))
    return (" " if draws.chance(0.5) else "") + "".join(filled) + ending


# --- calls -------------------------------------------------------------------------------------


def _calls(asked: Asked, contract: Contract, draws: Draws) -> tuple[ToolCall, ...]:
    """The calls of the answer; none unless tools are declared and the last message is the user's."""
    form = contract.tools
    if form is None or not asked.tools or not asked.calls_tools or asked.messages[-1]["role"] != "user":
        return ()
    first = sum(len(message.get("tool_calls") or ()) for message in asked.messages)
    count = 2 if asked.parallel_calls and asked.tool is None and draws.chance(0.2) else 1
    calls = []
    for index in range(first, first + count):
        function = _function(asked, draws)
        schema = function.get("parameters")
        arguments = arguments_for(schema if isinstance(schema, dict) else {}, draws)
        call_id = form.id_form.format(name=function["name"], index=index)
        text = json.dumps(arguments, ensure_ascii=False)
        calls.append(ToolCall(id=call_id, name=function["name"], arguments=text))
    return tuple(calls)


def _function(asked: Asked, draws: Draws) -> dict[str, Json]:
    """The function that `tool_choice` demands; else one of those whose name shares most words with the question."""
    functions: list[dict[str, Json]] = [tool["function"] for tool in asked.tools or ()]
    if asked.tool is not None:
        return next(function for function in functions if function["name"] == asked.tool)
    question = last_user_text(asked.messages).lower()
    scores = [_shared_words(function, question) for function in functions]
    return draws.pick([f for f, score in zip(functions, scores, strict=True) if score == max(scores)])


def _shared_words(function: Mapping[str, Json], question: str) -> int:
    words = f"{function['name']} {function.get('description') or ''}".lower().replace("_", " ").split()
    return len({word for word in words if len(word) > 3 and word in question})


# --- ids ---------------------------------------------------------------------------------------


def _pieces(draft: Draft, mode: str, contract: Contract, vocabulary: Vocabulary) -> Iterator[tuple[str, list[int]]]:
    """The answer's ids in order, each run with its kind: the contract's form, filled with the draft."""
    texts = {"{reasoning}": draft.reasoning or "", "{content}": draft.content}
    outcome: Literal["stop", "tool_calls"] = "tool_calls" if draft.calls else "stop"
    for piece in contract.mode(mode).output:
        if piece in texts:
            yield piece, vocabulary.encode_ordinary(texts[piece])
        elif piece == "{tools}":
            yield from _call_pieces(draft.calls, contract, vocabulary)
        elif piece == "{terminal}":
            yield piece, [contract.id_of(contract.terminals[outcome])]
        elif contract.think is not None and piece == contract.think.end:
            yield "{think_end}", [contract.id_of(piece)]
        else:
            yield "", [contract.special[piece]] if piece in contract.special else vocabulary.encode_ordinary(piece)


def _call_pieces(
    calls: Sequence[ToolCall], contract: Contract, vocabulary: Vocabulary
) -> Iterator[tuple[str, list[int]]]:
    form = contract.tools
    if form is None or not calls:
        return
    yield "", [contract.id_of(form.section_begin)]
    for call in calls:
        for piece in form.call:
            if piece == "{id}":
                yield piece, vocabulary.encode_ordinary(call.id or "")
            elif piece == "{arguments}":
                yield piece, vocabulary.encode_ordinary(call.arguments or "")
            else:
                yield "", [contract.id_of(piece)]
    yield "", [contract.id_of(form.section_end)]


def _cut(
    pieces: Sequence[tuple[str, list[int]]], draft: Draft, max_tokens: int | None, vocabulary: Vocabulary
) -> Answer:
    """The answer that the first `max_tokens` ids of `pieces` make."""
    ids: list[int] = []
    texts = {"{reasoning}": draft.reasoning, "{content}": ""}
    calls: list[ToolCall] = []
    reasoning_ids, kinds, cut = 0, set(), False
    for kind, run in pieces:
        taken = run if max_tokens is None else run[: max_tokens - len(ids)]
        cut = len(taken) < len(run)
        ids += taken
        if taken:
            kinds.add(kind)
        if kind in ("{reasoning}", "{think_end}"):
            reasoning_ids += len(taken)
        if kind == "{arguments}":
            call = draft.calls[len(calls)]
            shown = _text_of(taken, vocabulary) if cut else call.arguments
            calls.append(ToolCall(id=call.id, name=call.name, arguments=shown))
        elif kind == "{reasoning}":
            texts[kind] = _text_of(taken, vocabulary) if cut else draft.reasoning
        elif kind == "{content}":
            texts[kind] = _text_of(taken, vocabulary) if cut else draft.content
        if cut:
            break
    whole: Finish = "tool_calls" if draft.calls else "stop"
    return Answer(
        ids=tuple(ids),
        reasoning=texts["{reasoning}"],
        content=texts["{content}"] or None,
        tool_calls=tuple(calls),
        finish="length" if cut else whole,
        reasoning_ids=reasoning_ids,
        has_terminal="{terminal}" in kinds,
        has_think_end="{think_end}" in kinds,
    )


def _text_of(ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """The text of `ids`; a character that is cut in the middle is dropped, as servers do."""
    return vocabulary.decode_bytes(ids).decode("utf-8", "ignore")
