"""A conversation that is answered turn by turn on our own answers, a row each. Pure.

The assistant's messages of a prompt are places to be filled. What was written there matters only where tools come
in: the results that follow belong to the calls that were written, so they can stand behind our own calls only if
those are the same. Where they are not, the conversation ends there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from toolkit.contract import Contract
from toolkit.generate.plan import Planned
from toolkit.records import Json, RebuildStatus, ToolCall, row_key_of
from toolkit.rows import rewrite_tool_ids
from toolkit.wire.json import NotJsonError, load_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the model said in one turn, as its row has it."""

    reasoning: str | None
    content: str | None
    calls: tuple[ToolCall, ...]
    status: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a conversation cannot go on: a code and a sentence."""

    reason: str
    detail: str


def turns_in(messages: Sequence[dict[str, Json]]) -> int:
    """How many turns of a prompt are generated: one for each message of the assistant, and the last one."""
    return 1 + sum(1 for message in messages if message["role"] == "assistant")


class Conversation:
    """One prompt and sample, on the way through its turns.

    Attributes:
        turns: How many there are.
        turn: The one that is asked next, from 0.
    """

    def __init__(self, ask: Planned, contract: Contract):
        """`ask` is the prompt as a single ask, with the whole history as it was written."""
        self._first = ask
        self._contract = contract
        self._written = ask.messages
        self._places = [at for at, message in enumerate(ask.messages) if message["role"] == "assistant"]
        self._own: list[dict[str, Json]] = ask.messages[: self._places[0]] if self._places else list(ask.messages)
        self.turns = len(self._places) + 1
        self.turn = 0

    @property
    def is_over(self) -> bool:
        """Whether every turn has been heard."""
        return self.turn >= self.turns

    def next_ask(self) -> Planned:
        """What is asked in this turn."""
        messages, tool_ids = rewrite_tool_ids(self._own, self._contract)
        return self._keyed(structs.replace(self._first, messages=messages, tool_ids=tool_ids or None, turn=self.turn))

    def as_written(self, turn: int) -> Planned:
        """What would be asked in a turn if the assistant had said what is written: names turns never reached."""
        end = self._places[turn] if turn < len(self._places) else len(self._written)
        return self._keyed(structs.replace(self._first, messages=self._written[:end], turn=turn))

    def hear(self, said: Said) -> Ended | None:
        """Go on with what the model said in this turn; why that cannot be, or None."""
        ended = self._ended(said)
        if ended is not None:
            return ended
        if self.turn < len(self._places):
            self._own = [*self._own, message_of(said), *self._following(said.calls)]
        self.turn += 1
        return None

    def _ended(self, said: Said) -> Ended | None:
        if self.turn >= len(self._places):
            return None
        if said.status != RebuildStatus.COMPLETE:
            return Ended("turn_incomplete", f"turn {self.turn}: expected a complete answer, found {said.status}")
        written = self._written[self._places[self.turn]].get("tool_calls") or []
        if not _same_calls(written, said.calls):
            expected, found = (", ".join(names) or "none" for names in (_names(written), _said_names(said.calls)))
            return Ended(
                "tool_calls_differ",
                f"turn {self.turn}: expected the calls whose results are written ({expected:.200}), "
                f"found others ({found:.200})",
            )
        return None

    def _following(self, calls: tuple[ToolCall, ...]) -> list[dict[str, Json]]:
        """What is written between this place and the next; results bear the ids of our own calls."""
        place = self._places[self.turn]
        end = self._places[self.turn + 1] if self.turn + 1 < len(self._places) else len(self._written)
        written = self._written[place].get("tool_calls") or []
        ids = {call["id"]: _id_of(own, number) for number, (call, own) in enumerate(zip(written, calls, strict=True))}
        return [
            {**message, "tool_call_id": ids[message["tool_call_id"]]} if message["role"] == "tool" else message
            for message in self._written[place + 1 : end]
        ]

    def _keyed(self, ask: Planned) -> Planned:
        row_key = row_key_of(
            contract=self._contract.name, messages=ask.messages, tools=ask.tools, mode=ask.mode,
            sampling=ask.sampling, max_tokens=ask.max_tokens, sample_index=ask.sample_index, turn=ask.turn,
        )  # fmt: skip
        return structs.replace(ask, row_key=row_key)


def message_of(said: Said) -> dict[str, Json]:
    """An answer as a message of a history. Whether its reasoning is shown to the model, the template decides."""
    message: dict[str, Json] = {"role": "assistant", "content": said.content or ""}
    if said.reasoning is not None:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = [
            {
                "id": _id_of(call, number),
                "type": "function",
                "function": {"name": call.name or "", "arguments": call.arguments or ""},
            }
            for number, call in enumerate(said.calls)
        ]
    return message


def _id_of(call: ToolCall, number: int) -> str:
    return call.id or f"call_{number}"


def _same_calls(written: Sequence[dict[str, Json]], said: tuple[ToolCall, ...]) -> bool:
    if len(written) != len(said):
        return False
    pairs = zip(written, said, strict=True)
    return all(
        call["function"]["name"] == own.name and _same_json(call["function"]["arguments"], own.arguments)
        for call, own in pairs
    )


def _same_json(left: str, right: str | None) -> bool:
    if left == right:
        return True
    try:
        return right is not None and bool(load_json(left) == load_json(right))
    except NotJsonError:
        return False


def _names(written: Sequence[dict[str, Json]]) -> list[str]:
    return [str(call["function"]["name"]) for call in written]


def _said_names(calls: tuple[ToolCall, ...]) -> list[str]:
    return [call.name or "?" for call in calls]
