"""Good rows, many and fast: what the model said is laid out in ids first, and the text columns are what a server sends.

A few hundred texts are encoded once and recombined; each row bears its number in a head of its own, so that no two
answers are alike. A head ends in a colon, and what follows begins with a space and a letter: the vocabulary's
pattern always splits there, so the ids of both side by side are those of the whole.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.audit.blocks import Block, Bools, Ints, constant_block, side_by_side, take_rows
from toolkit.columns import SHARD_SCHEMA
from toolkit.contract import Contract
from toolkit.records import canonical_json
from toolkit.simulate.arguments import arguments_for
from toolkit.simulate.draws import Draws
from toolkit.simulate.phrases import CITIES, CONTENT, NAMES, REASONING
from toolkit.vocabulary import Vocabulary

MODEL = "moonshotai/kimi-k2.5-0127"
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """How one provider counts.

    Attributes:
        name: The provider; None for the engine.
        share: Of all rows.
        rows: A number of rows in place of a share.
        leaves_out: Kinds of ids that completion_tokens does not count: terminal, end_think, markers.
        beside: Reasoning is reported beside completion_tokens, not inside.
        reasoning: What reasoning_tokens say: nothing, zero, the ids of the reasoning, or these and the end of it.
        prompt_tail: Whether prompt_tokens count the tail that opens or skips thinking.
    """

    name: str | None
    share: float = 0.0
    rows: int = 0
    leaves_out: tuple[str, ...] = ()
    beside: bool = False
    reasoning: str = "none"
    prompt_tail: bool = True


COUNTINGS = (
    Counting(name="Aster", share=0.22, reasoning="ids"),
    Counting(name="Birch", share=0.14, leaves_out=("terminal",)),
    Counting(name="Cedar", share=0.10, leaves_out=("end_think",), reasoning="with_end"),
    Counting(name="Dahlia", share=0.10, leaves_out=("terminal", "end_think"), reasoning="zero"),
    Counting(name="Elm", share=0.10, leaves_out=("terminal", "end_think", "markers"), reasoning="ids"),
    Counting(name="Fern", share=0.10, beside=True, reasoning="ids"),
    Counting(name="Gorse", share=0.09, prompt_tail=False),
    # Too few rows to learn that it leaves out the terminal: they stay unverified.
    Counting(name="Hazel", rows=24, leaves_out=("terminal",)),
    Counting(name=None, share=0.15, reasoning="ids"),
)
ENGINE = len(COUNTINGS) - 1
FEW = next(i for i, counting in enumerate(COUNTINGS) if counting.name == "Hazel")
PROVIDERS = tuple(counting.name for counting in COUNTINGS if counting.name is not None)

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
NOTE = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "body": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        "due": {"type": "string", "format": "date"},
        "weight": {"type": "number", "exclusiveMinimum": 0},
    },
    "required": ["title", "body"],
    "additionalProperties": False,
}
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "description": says, "parameters": schema}}
    for name, says, schema in (
        ("get_weather", "The weather of a city.", WEATHER),
        ("add_note", "Keep a note.", NOTE),
        ("search.files-2", "Find files.", {"type": "object", "properties": {"query": {"type": "string"}}}),
    )
)
EARLIER = (
    {"id": "functions.get_weather:0", "type": "function",
     "function": {"name": "get_weather", "arguments": '{"city": "Hanoi", "days": 1}'}},
    {"id": "functions.add_note:1", "type": "function",
     "function": {"name": "add_note", "arguments": '{"title": "a", "body": "b"}'}},
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bank:
    """Texts with their ids: entry 0 is empty, those from `first_han` on are Chinese."""

    texts: pa.Array
    block: Block
    first_han: int = 0

    def pick(self, there: Bools, han: Bools, draw: np.random.Generator) -> Ints:
        """An entry for each row, in its language; 0 where nothing is there."""
        latin = draw.integers(1, self.first_han, len(there))
        return np.where(there, np.where(han, draw.integers(self.first_han, len(self.texts), len(there)), latin), 0)


@dataclass(frozen=True, slots=True)
class CallBank:
    """Tool sections: their JSON, their ids, and how many of the ids mark the grammar."""

    json: pa.Array
    block: Block
    markers: Ints


class Author:
    """Writes good rows of one contract; the same seed writes the same rows."""

    def __init__(self, vocabulary: Vocabulary, seed: int):
        self.vocabulary = vocabulary
        self.contract: Contract = vocabulary.contract
        self.seed = seed
        self._draw = random.Random(seed)

    # --- banks --------------------------------------------------------------------------------

    def _sentences(self, pieces: Mapping[str, tuple[str, ...]], count: int, *, han: bool = False) -> list[str]:
        """Texts that begin with a space and a letter, as a head expects."""
        draw, texts = self._draw, []
        between = " " if pieces is REASONING else "\n\n"
        for _ in range(count):
            topic = "chinese" if han else draw.choice(sorted(set(pieces) - {"chinese"}))
            pool = [*pieces[topic], *(() if han else pieces["any"])]
            chosen = draw.sample(pool, k=min(len(pool), draw.randint(1, 6)))
            body = between.join(self._fill(piece) for piece in chosen)
            opening = draw.choice(_HAN_OPENINGS if han else _OPENINGS)
            texts.append(f" {opening} {body}" + draw.choice(("", "", "", "", "", " ", "\n", "\n\n")))
        return texts

    def _fill(self, piece: str) -> str:
        a, b = self._draw.randint(2, 400), self._draw.randint(2, 90)
        return Template(piece).substitute(
            a=a, b=b, sum=a + b, product=a * b, city=self._draw.choice(CITIES), name=self._draw.choice(NAMES)
        )

    def _bank(self, latin: Sequence[str], han: Sequence[str]) -> Bank:
        texts = [*latin, *han]
        block = _block_of([[], *map(self.vocabulary.encode_ordinary, texts)])
        return Bank(pa.array(["", *texts], pa.string()), block, 1 + len(latin))

    def _cut(self, whole: Sequence[str]) -> list[str]:
        """Beginnings of texts, cut between two ids where the rest would have been encoded in the same way."""
        cut = []
        for text in whole:
            ids = self.vocabulary.encode_ordinary(text)
            # Nobody asks for caps of a few ids: what is cut is long.
            shown = self._shown(ids[: self._draw.randint(len(ids) // 2, len(ids) - 1)]) if len(ids) > 12 else None
            if shown is not None:
                cut.append(shown)
        return cut

    def _shown(self, ids: Sequence[int]) -> str | None:
        """The text of ids; None where it does not give them back."""
        text = self.vocabulary.decode_bytes(ids).decode("utf-8", "ignore")
        return text if text and self.vocabulary.encode_ordinary(text) == list(ids) else None

    @cached_property
    def reasoning(self) -> Bank:
        """Thoughts."""
        return self._bank(self._sentences(REASONING, 400), self._sentences(REASONING, 60, han=True))

    @cached_property
    def content(self) -> Bank:
        """Answers."""
        return self._bank(self._sentences(CONTENT, 500), self._sentences(CONTENT, 120, han=True))

    @cached_property
    def cut_reasoning(self) -> Bank:
        """Thoughts that were cut."""
        return self._bank(
            self._cut(self._sentences(REASONING, 300)), self._cut(self._sentences(REASONING, 60, han=True))
        )

    @cached_property
    def cut_content(self) -> Bank:
        """Answers that were cut."""
        return self._bank(self._cut(self._sentences(CONTENT, 300)), self._cut(self._sentences(CONTENT, 90, han=True)))

    @cached_property
    def prompts(self) -> Bank:
        """What a user asks."""
        asked = [f" {self._draw.choice(_OPENINGS)} {self._fill(text)}" for text in _ASKED for _ in range(20)]
        return self._bank(asked, [f" {self._draw.choice(_HAN_OPENINGS)} {self._fill(_ASKED_HAN)}" for _ in range(20)])

    @cached_property
    def calls(self) -> dict[tuple[int, bool], CallBank]:
        """Tool sections by (calls in the history, cut)."""
        return {
            (first, cut): self._call_bank(400, first=first, cut=cut)
            for first in (0, len(EARLIER))
            for cut in (False, True)
        }

    def _call_bank(self, count: int, *, first: int, cut: bool) -> CallBank:
        entries: list[tuple[str, list[int], int]] = []
        for i in range(count):
            entry = self._section(Draws(self.seed, "calls", first, cut, i), first=first, cut=cut)
            if entry is not None:
                entries.append(entry)
        return CallBank(
            json=pa.array([None, *(entry[0] for entry in entries)], pa.string()),
            block=_block_of([[], *(entry[1] for entry in entries)]),
            markers=np.array([0, *(entry[2] for entry in entries)], dtype=np.int64),
        )

    def _section(self, draws: Draws, *, first: int, cut: bool) -> tuple[str, list[int], int] | None:
        """JSON, ids and number of markers of one tool section."""
        calls = []
        for index in range(first, first + draws.pick((1, 1, 1, 2, 3))):
            function: dict[str, Any] = draws.pick(TOOLS)["function"]
            arguments = json.dumps(arguments_for(function["parameters"], draws), ensure_ascii=False)
            calls.append({"id": f"functions.{function['name']}:{index}", "name": function["name"],
                          "arguments": arguments})  # fmt: skip
        if cut:
            ids = self.vocabulary.encode_ordinary(calls[-1]["arguments"])
            shown = self._shown(ids[: draws.between(1, len(ids) - 1)]) if len(ids) > 2 else None
            if shown is None:
                return None
            calls[-1]["arguments"] = shown
        ids = section_ids(calls, self.vocabulary, closed=not cut)
        return canonical_json(calls).decode(), ids, len([i for i in ids if i in self.contract.tool_ids])

    # --- rows ---------------------------------------------------------------------------------

    def write(self, count: int) -> pa.Table:
        """A table of `SHARD_SCHEMA` with `count` good rows."""
        draw = np.random.default_rng(self.seed)
        who = draw.choice(len(COUNTINGS), size=count, p=_shares())
        few = draw.choice(count, size=COUNTINGS[FEW].rows, replace=False)
        who[few] = FEW
        chunks = [
            self._chunk(first, who[first : first + _ROWS_AT_ONCE], draw) for first in range(0, count, _ROWS_AT_ONCE)
        ]
        return pa.concat_tables(chunks).combine_chunks()

    def _chunk(self, first: int, who: Ints, draw: np.random.Generator) -> pa.Table:
        rows = len(who)
        thinks = draw.random(rows) < 0.75
        han = draw.random(rows) < 0.15
        declares = draw.random(rows) < 0.25
        calls = declares & (draw.random(rows) < 0.75)
        later = declares & (draw.random(rows) < 0.15)
        cut = draw.random(rows) < 0.05
        cut_thought = cut & thinks & ~calls & (draw.random(rows) < 0.5)
        answers = ~cut_thought & (~calls | (draw.random(rows) < 0.4) | ~thinks)
        cut_content = cut & ~calls & ~cut_thought
        sections = self._sections(calls, later, cut, draw)
        reasoning = self._part(first, "a", thinks, cut_thought, han, self.reasoning, self.cut_reasoning, draw)
        content = self._part(first, "b", answers, cut_content, han, self.content, self.cut_content, draw)
        end_think = thinks & ~cut_thought
        ids = side_by_side(
            [
                reasoning.block,
                constant_block(self.contract.id_of("</think>"), end_think),
                content.block,
                sections.block,
                constant_block(self.contract.id_of("<|im_end|>"), ~cut),
            ]
        )
        prompt, messages = self._prompt(first, thinks, later, han, draw)
        kinds = {
            "terminal": (~cut).astype(np.int64),
            "end_think": end_think.astype(np.int64),
            "markers": sections.markers,
            "reasoning": reasoning.block.lengths,
        }
        completion, reasoned = _counted(who, ids.lengths, kinds, thinks, end_think)
        tails = np.where(thinks, 1, 2)
        lacks_tail = np.isin(who, [i for i, c in enumerate(COUNTINGS) if not c.prompt_tail])
        engine = who == ENGINE
        names = [counting.name for counting in COUNTINGS]
        finish = np.where(cut, "length", np.where(calls, "tool_calls", "stop"))
        numbers = np.arange(first, first + rows)
        columns: dict[str, Any] = {
            "row_key": [hashlib.sha256(b"%d/%d" % (self.seed, i)).hexdigest() for i in numbers.tolist()],
            "sample_id": [f"s{i}" for i in numbers.tolist()],
            "turn": np.zeros(rows, np.int32),
            "sample_index": np.zeros(rows, np.int32),
            "probe": np.zeros(rows, bool),
            "source": np.where(engine, "sglang", "openrouter"),
            "origin": ["generate"] * rows,
            "provider": [names[i] for i in who.tolist()],
            "model": [MODEL] * rows,
            "mode": np.where(thinks, "thinking", "instant"),
            "contract": [self.contract.name] * rows,
            "contract_sha256": [self.contract.sha256] * rows,
            "messages": messages,
            "tools": pa.array([_TOOLS_JSON if declared else None for declared in declares.tolist()], pa.string()),
            "payload": ["{}"] * rows,
            "reasoning": _where(thinks, reasoning.texts),
            "content": _where(answers, content.texts),
            "tool_calls": sections.json,
            "finish_reason": finish,
            "native_finish_reason": pa.array(np.where(engine, None, finish).tolist(), pa.string()),
            "prompt_tokens": prompt.lengths - np.where(lacks_tail, tails, 0),
            "completion_tokens": completion,
            "reasoning_tokens": reasoned,
            "cost_usd": pa.array((completion * 2e-6).round(9), mask=engine),
            "request_id": [f"gen-{i}" for i in numbers.tolist()],
            "created": 1_780_000_000 + numbers // 4,
            "latency_s": (0.4 + ids.lengths * 0.01).round(3),
            "streamed": draw.random(rows) < 0.3,
            "output_ids": _lists(ids),
            "ids_source": np.where(engine, "engine", "rebuilt"),
            "prompt_ids": _lists(prompt),
            "prompt_ids_source": np.where(engine, "engine", "rendered"),
            "rebuild_status": np.where(cut, "truncated", "complete"),
            "notes": pa.array([["cut_tail"] if c else [] for c in (cut & ~engine).tolist()], pa.list_(pa.string())),
        }
        arrays = {name: c if isinstance(c, pa.Array) else pa.array(c) for name, c in columns.items()}
        return pa.table([arrays[field.name].cast(field.type) for field in SHARD_SCHEMA], schema=SHARD_SCHEMA)

    def _part(
        self,
        first: int,
        letter: str,
        there: Bools,
        cut: Bools,
        han: Bools,
        whole: Bank,
        short: Bank,
        draw: np.random.Generator,
    ) -> Bank:
        """One part of each row: a head with the row's number, and a text of a bank."""
        rows = len(there)
        lead = draw.choice(["", " ", "\n"], size=rows, p=[0.5, 0.45, 0.05]).tolist()
        verb = np.where(han, "事項", draw.choice(_HEADS, size=rows)).tolist()
        heads = [f"{lead[i]}{verb[i]} {letter}{first + i}:" if shown else "" for i, shown in enumerate(there.tolist())]
        ids, offsets = self.vocabulary.encode_batch(heads)
        head = Block(ids.astype(np.int32), np.diff(offsets.astype(np.int64)))
        index, short_index = whole.pick(there & ~cut, han, draw), short.pick(there & cut, han, draw)
        block = side_by_side([head, take_rows(whole.block, index), take_rows(short.block, short_index)])
        texts = pa.compute.binary_join_element_wise(
            pa.array(heads), whole.texts.take(pa.array(index)), short.texts.take(pa.array(short_index)), ""
        )
        return Bank(texts, block)

    def _sections(self, calls: Bools, later: Bools, cut: Bools, draw: np.random.Generator) -> CallBank:
        """The tool section of each row that has one."""
        rows = len(calls)
        blocks, markers = [], np.zeros(rows, dtype=np.int64)
        jsons: pa.Array = pa.nulls(rows, pa.string())
        for (first, is_cut), bank in self.calls.items():
            chosen = calls & (later == (first > 0)) & (cut == is_cut)
            index = np.where(chosen, draw.integers(1, len(bank.json), rows), 0)
            blocks.append(take_rows(bank.block, index))
            markers += bank.markers[index]
            jsons = pa.compute.coalesce(jsons, bank.json.take(pa.array(index)))
        return CallBank(jsons, side_by_side(blocks), markers)

    def _prompt(
        self, first: int, thinks: Bools, later: Bools, han: Bools, draw: np.random.Generator
    ) -> tuple[Block, pa.Array]:
        """Prompt ids and messages. A history is told in the messages alone: its ids are of no interest here."""
        rows = len(thinks)
        heads = [f"{'问题' if chinese else 'Question'} {first + i}:" for i, chinese in enumerate(han.tolist())]
        ids, offsets = self.vocabulary.encode_batch(heads)
        head = Block(ids.astype(np.int32), np.diff(offsets.astype(np.int64)))
        every = np.ones(rows, dtype=bool)
        index = self.prompts.pick(every, han, draw)
        before = self.vocabulary.encode_rendered("<|im_user|>user<|im_middle|>")
        after = self.vocabulary.encode_rendered("<|im_end|><|im_assistant|>assistant<|im_middle|><think>")
        block = side_by_side(
            [
                *(constant_block(i, every) for i in before),
                head,
                take_rows(self.prompts.block, index),
                *(constant_block(i, every) for i in after),
                constant_block(self.contract.id_of("</think>"), ~thinks),
            ]
        )
        told = self.prompts.texts.take(pa.array(index)).to_pylist()
        messages = [
            _messages(f"{head_text}{text}", has_history)
            for head_text, text, has_history in zip(heads, told, later.tolist(), strict=True)
        ]
        return block, pa.array(messages, pa.string())


_OPENINGS = ("Well,", "So", "Here", "Note that", "Это да:", "Voilà:", "First,", "[PAD] and </s> are letters here:")
_HAN_OPENINGS = ("好的，", "首先，", "这里是")
_HEADS = ("Case", "Item", "Aufgabe", "Étape")
_ASKED_HAN = "请解释一下 $a 和 $b 的关系，并举一个例子。"
_ASKED = (
    "What is $a + $b?", "Write a function that adds $a to a list.", "What should I see in $city?",
    "Tell $name a story with 🙂 in it.", "Is $product a prime number?",
)  # fmt: skip
_TOOLS_JSON = json.dumps(TOOLS, ensure_ascii=False, separators=(",", ":"))
_HISTORY = [
    {"role": "user", "content": "Before: what is the weather?"},
    {"role": "assistant", "content": "", "tool_calls": list(EARLIER)},
    *({"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in EARLIER),
]


def _messages(text: str, has_history: bool) -> str:
    messages = [*(_HISTORY if has_history else ()), {"role": "user", "content": text}]
    return json.dumps(messages, ensure_ascii=False, separators=(",", ":"))


def section_ids(calls: Sequence[dict[str, Any]], vocabulary: Vocabulary, *, closed: bool = True) -> list[int]:
    """The ids of a tool section; open after the last call's arguments where it is not closed."""
    form = vocabulary.contract.tools
    assert form is not None
    ids = [vocabulary.contract.id_of(form.section_begin)]
    for place, call in enumerate(calls):
        begin, _, between, _, close = form.call
        ids += [vocabulary.contract.id_of(begin), *vocabulary.encode_ordinary(call["id"])]
        ids += [vocabulary.contract.id_of(between), *vocabulary.encode_ordinary(call["arguments"])]
        if closed or place < len(calls) - 1:
            ids.append(vocabulary.contract.id_of(close))
    return [*ids, vocabulary.contract.id_of(form.section_end)] if closed else ids


def _counted(
    who: Ints, lengths: Ints, kinds: dict[str, Ints], thinks: Bools, end_think: Bools
) -> tuple[Ints, pa.Array]:
    """completion_tokens and reasoning_tokens as each row's provider reports them."""
    completion = lengths.copy()
    reasoned = np.zeros(len(who), dtype=np.int64)
    reported = np.zeros(len(who), dtype=bool)
    for i, counting in enumerate(COUNTINGS):
        mine = who == i
        for kind in counting.leaves_out:
            completion[mine] -= kinds[kind][mine]
        if counting.beside:
            completion[mine] -= kinds["reasoning"][mine]
        if counting.reasoning in ("ids", "with_end"):
            more = end_think if counting.reasoning == "with_end" else np.zeros(len(who), dtype=bool)
            reasoned[mine] = (kinds["reasoning"] + more)[mine]
        # Who reports reasoning beside completion says 0 where there is none; others say nothing.
        reported[mine] = (
            counting.reasoning != "none" and (thinks | counting.beside | (counting.reasoning == "zero"))[mine]
        )
    return completion, pa.array(reasoned, mask=~reported)


def _shares() -> npt.NDArray[np.float64]:
    shares = np.array([counting.share for counting in COUNTINGS])
    return shares / shares.sum()


def _where(there: Bools, texts: pa.Array) -> pa.Array:
    return pa.compute.if_else(pa.array(there), texts, pa.scalar(None, pa.string()))


def _block_of(lists: Sequence[Sequence[int]]) -> Block:
    lengths = np.array([len(ids) for ids in lists], dtype=np.int64)
    return Block(np.array([i for ids in lists for i in ids], dtype=np.int32), lengths)


def _lists(block: Block) -> pa.ListArray:
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(block.lengths).astype(np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(block.ids))
