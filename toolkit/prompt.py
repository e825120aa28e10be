"""Prompts to ids, as the model's server renders them, by the package `renderers` over our vocabulary.

Measured on recorded Kimi-K2.5 replies: first turns 21 and 69, second turns 108 and 110 ids, the
prompt_tokens that Inceptron and Chutes reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from toolkit.assembly import Stretches, encode_together, packed, packed_id, unpacked
from toolkit.contract import Contract
from toolkit.errors import ContractError
from toolkit.plain_prompts import PlainPrompts, plain_prompts
from toolkit.records import Json, is_storable
from toolkit.vocabulary import Vocabulary

_RENDERER_FAULTS = (
    ValueError, KeyError, TypeError, AttributeError, AssertionError, IndexError, NotImplementedError, RecursionError,
)  # fmt: skip


_SHORT = 64
_REMEMBERED = 256
"""Texts up to so many letters, of which so many are kept with their ids."""


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """Prompt ids, or None with a note that says why.

    Notes: `prompt_not_rendered` (the contract names no renderer, or the messages are not whole or were refused by it),
    `prompt_has_media`, `prompt_tail` (the ids do not end as the mode demands; then ids are None),
    `prompt_spells_special` (text of the messages spells a special token, which is that id on a server).
    """

    ids: list[int] | None
    notes: tuple[str, ...] = ()


class PromptPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt's ids are made of, before its texts are encoded.

    Attributes:
        stretches: Texts and ids; None where the prompt has none.
        ends_with: Packed ids with which the prompt must end.
        notes: See `RenderedPrompt`.
    """

    stretches: Stretches | None
    ends_with: bytes = b""
    notes: tuple[str, ...] = ()

    def check(self, ids: bytes | None) -> tuple[bytes | None, tuple[str, ...]]:
        """The prompt's ids and notes, from the packed ids of its stretches."""
        if ids is not None and not ids.endswith(self.ends_with):
            return None, ("prompt_tail",)
        return ids, self.notes


class PromptRenderer:
    """Renders prompts of one contract; renderers are made once for each mode."""

    def __init__(self, contract: Contract, vocabulary: Vocabulary):
        self._contract = contract
        self._vocabulary = vocabulary
        self._renderers: dict[str, Any] = {}
        self._plain_of: dict[str, PlainPrompts | None] = {}
        self._tokenizer = _Tokenizer(contract, vocabulary)
        self._ends_of: dict[str, tuple[bytes, bytes]] = {}

    def render(
        self, messages: Sequence[dict[str, Json]], tools: Sequence[dict[str, Json]] | None, mode: str
    ) -> RenderedPrompt:
        """Ids of the prompt up to and including the generation prompt of `mode`.

        Raises:
            ContractError: the contract has no such mode, or names a renderer that does not exist.
        """
        plan = self.plan(messages, tools, mode)
        ids, notes = plan.check(*encode_together([plan.stretches], self._vocabulary.encode_packed))
        return RenderedPrompt(None if ids is None else unpacked(ids).tolist(), notes)

    def plan(
        self, messages: Sequence[dict[str, Json]], tools: Sequence[dict[str, Json]] | None, mode: str
    ) -> PromptPlan:
        """`render`, but for the texts of plain messages: they are left to be encoded together with others.

        Raises:
            ContractError: the contract has no such mode, or names a renderer that does not exist.
        """
        ends_with, added = self._ends(mode)
        if self._contract.prompt.renderer is None:
            return PromptPlan(stretches=None, notes=("prompt_not_rendered",))
        stretches = None if tools else self._plain(messages, mode)
        if stretches is not None:
            texts: Iterator[str] = (message["content"] for message in messages)
        else:
            ids, note = self._ask_renderer(messages, tools, mode)
            if ids is None:
                return PromptPlan(stretches=None, notes=(note,))
            stretches, texts = [packed(ids)], _texts([*messages, *(tools or ())])
        spelled = any(map(self._vocabulary.specials_in, texts))
        notes = ("prompt_spells_special",) if spelled else ()
        return PromptPlan(stretches=[*stretches, added], ends_with=ends_with, notes=notes)

    def _ask_renderer(
        self, messages: Sequence[dict[str, Json]], tools: Sequence[dict[str, Json]] | None, mode: str
    ) -> tuple[list[int] | None, str]:
        """The renderer's ids, or a note that says why there are none."""
        if any(part.get("type") != "text" for part in _parts(messages)):
            return None, "prompt_has_media"
        if not (all(map(_is_whole, messages)) and all(map(_is_whole_tool, tools or ()))):
            return None, "prompt_not_rendered"
        renderer = self._renderer(mode)
        try:
            rendered = renderer.render(
                [_for_template(message) for message in messages],
                tools=list(tools) if tools else None,
                add_generation_prompt=True,
                **({"process_multimodal": False} if _takes_media(renderer) else {}),
            )
            return [*map(int, rendered.token_ids)], ""
        except _RENDERER_FAULTS:
            return None, "prompt_not_rendered"

    def _plain(self, messages: Sequence[dict[str, Json]], mode: str) -> Stretches | None:
        """What the renderer's ids of plain messages are made of; None where it has to be asked itself."""
        if mode not in self._plain_of:
            self._plain_of[mode] = self._learn_plain(mode)
        made = self._plain_of[mode]
        try:
            pieces = None if made is None else made.lay_out(messages)
        except _RENDERER_FAULTS:
            return None
        if pieces is None:
            return None
        stretches: list[str | bytes] = []
        for piece in pieces:
            if isinstance(piece, bytes):
                stretches.append(piece)
            elif is_storable(piece):
                stretches += self._encodable(piece)
            else:
                return None
        return stretches

    def _encodable(self, text: str) -> Stretches:
        return [one if isinstance(one, str) else packed_id(one) for one in self._vocabulary.rendered(text)]

    def _learn_plain(self, mode: str) -> PlainPrompts | None:
        renderer = self._renderer(mode)
        options = {"process_multimodal": False} if _takes_media(renderer) else {}

        def render(messages: list[dict[str, Json]], answer: bool) -> list[int]:
            return [*map(int, renderer.render(messages, add_generation_prompt=answer, **options).token_ids)]

        try:
            return plain_prompts(self._contract.prompt.renderer, render, self._tokenizer.encode)
        except _RENDERER_FAULTS:
            return None

    def render_conversation(self, messages: Sequence[dict[str, Json]], mode: str) -> list[int] | None:
        """Ids of a whole conversation, its last answer included, as tools that train on text render it: without tools
        and without the prompt of another answer. None where the contract names no renderer or it refuses.

        Raises:
            ContractError: the contract has no such mode, or names a renderer that does not exist.
        """
        if self._contract.prompt.renderer is None or not all(map(_is_whole, messages)):
            return None
        renderer = self._renderer(mode)
        options = {"process_multimodal": False} if _takes_media(renderer) else {}
        try:
            rendered = renderer.render([_for_template(message) for message in messages], **options)
        except _RENDERER_FAULTS:
            return None
        return [int(token_id) for token_id in rendered.token_ids]

    def tail(self, mode: str) -> bytes:
        """Packed ids with which the prompts of a mode end; empty where the contract states none.

        Raises:
            ContractError: the contract has no such mode.
        """
        return self._ends(mode)[0]

    def _ends(self, mode: str) -> tuple[bytes, bytes]:
        """Packed ids that a prompt of a mode must end with, and those that are added to what its renderer gives."""
        if mode not in self._ends_of:
            of = self._contract.mode(mode)
            self._ends_of[mode] = (self._packed(of.prompt_ends_with), self._packed(of.prompt_adds))
        return self._ends_of[mode]

    def _packed(self, pieces: Sequence[str]) -> bytes:
        return packed([token_id for piece in pieces for token_id in self._vocabulary.encode_rendered(piece)])

    def _renderer(self, mode: str) -> Any:
        if mode not in self._renderers:
            from renderers import config_from_name, create_renderer

            name = self._contract.prompt.renderer
            options = self._contract.mode(self._contract.mode(mode).rendered_as or mode).renderer_options
            try:
                config = config_from_name(name)
                config = type(config)(**{**config.model_dump(exclude={"name"}), **options}) if options else config
                self._renderers[mode] = create_renderer(self._tokenizer, config)
            except (ValueError, TypeError, KeyError, AssertionError) as error:
                raise ContractError(
                    f"contract {self._contract.name}: prompt.renderer {name!r} with {options}: {error}"
                ) from None
        return self._renderers[mode]


def render_prompt(
    contract: Contract,
    vocabulary: Vocabulary,
    messages: Sequence[dict[str, Json]],
    tools: Sequence[dict[str, Json]] | None,
    mode: str,
) -> RenderedPrompt:
    """Render one prompt; for many, keep a `PromptRenderer`."""
    return PromptRenderer(contract, vocabulary).render(messages, tools, mode)


def prompt_tails(contract: Contract, vocabulary: Vocabulary) -> dict[str, list[int]]:
    """Mode → the ids that its prompts end with; empty where the contract states none."""
    return {
        name: [token_id for piece in mode.prompt_ends_with for token_id in vocabulary.encode_rendered(piece)]
        for name, mode in contract.modes.items()
    }


class _Tokenizer:
    """What `renderers` asks of a tokenizer, over our vocabulary: special spellings in template text are ids."""

    def __init__(self, contract: Contract, vocabulary: Vocabulary):
        self.name_or_path = contract.default_model
        self.unk_token_id = contract.special.get("[UNK]", -1)
        self.eos_token_id = contract.id_of(contract.terminals["stop"])
        self._vocabulary = vocabulary
        # Most of what a template asks for is its own words, the same for every prompt.
        self._encode_short = lru_cache(_REMEMBERED)(lambda text: tuple(vocabulary.encode_rendered(text)))

    def encode(self, text: str, *_: object, **__: object) -> list[int]:
        if len(text) <= _SHORT:
            return list(self._encode_short(text))
        return self._vocabulary.encode_rendered(text)

    def decode(self, token_ids: Any, *_: object, **__: object) -> str:
        return self._vocabulary.decode_bytes(list(token_ids)).decode("utf-8", "replace")

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        if isinstance(tokens, str):
            return self._vocabulary.special.get(tokens, self.unk_token_id)
        return [self.convert_tokens_to_ids(token) for token in tokens]


def _takes_media(renderer: Any) -> bool:
    return bool(getattr(renderer, "supports_process_multimodal", False))


def _for_template(message: dict[str, Json]) -> dict[str, Json]:
    """OpenRouter's `reasoning` under the name that templates read."""
    if "reasoning" in message and "reasoning_content" not in message:
        return {**message, "reasoning_content": message["reasoning"]}
    return message


def _is_whole(message: Json) -> bool:
    """Whether a message has all that a server would render; renderers take what they cannot read for empty text."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(message.get("reasoning_content", message.get("reasoning")), str | None):
        return False
    if calls is not None and not (isinstance(calls, list) and all(_is_whole_call(call) for call in calls)):
        return False
    if content is None:
        return bool(message["role"] == "assistant")
    return isinstance(content, str) or (
        isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content)
    )


def _is_whole_call(call: Json) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(call.get("id"), str)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str | dict)
    )


def _is_whole_tool(tool: Json) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _parts(messages: Sequence[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            yield from (part for part in content if isinstance(part, dict))


def _texts(value: Json) -> Iterator[str]:
    """Every string inside a JSON value, however deeply nested."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item
