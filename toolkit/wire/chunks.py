"""A chat completion put together from the chunks of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolkit.records import Json, ToolCall
from toolkit.wire.reply import short

_TEXTS = ("content", "reasoning", "reasoning_content")


@dataclass(slots=True)
class Chunks:
    """What has come so far.

    Attributes:
        head: Top-level fields, the last value of each.
        choice: Fields of the first choice that are no deltas.
        count: Chunks with the first choice.
        faults: What could not be taken in, as sentences.
    """

    head: dict[str, Json] = field(default_factory=dict)
    choice: dict[str, Json] = field(default_factory=dict)
    count: int = 0
    faults: list[str] = field(default_factory=list)
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _details: list[Mapping[str, Json]] = field(default_factory=list)
    _calls: dict[int, dict[str, Json]] = field(default_factory=dict)
    _ids: list[Json] | None = None
    _text_without_ids: bool = False
    _logprobs: list[Json] | None = None
    _several: bool = False

    def add(self, chunk: Mapping[str, Json]) -> None:
        """Take one chunk in."""
        for key in ("id", "provider", "model", "created", "usage", "prompt_token_ids", "raw_output"):
            if chunk.get(key) is not None:
                self.head[key] = chunk[key]
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return
        choice = choices[0]
        if choice.get("index") not in (None, 0):
            self._several = True
            return
        self.count += 1
        for key in ("finish_reason", "native_finish_reason", "matched_stop", "error", "raw_output"):
            if choice.get(key) is not None:
                self.choice[key] = choice[key]
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
            self._logprobs = self._logprobs if self._logprobs is not None else []
            self._logprobs.extend(logprobs["content"])
        delta = choice.get("delta")
        said = self._add_delta(delta) if isinstance(delta, dict) else False
        if isinstance(choice.get("token_ids"), list):
            self._ids = self._ids if self._ids is not None else []
            self._ids.extend(choice["token_ids"])
        elif said and "token_ids" in choice:
            self._text_without_ids = True

    def _add_delta(self, delta: Mapping[str, Json]) -> bool:
        """Take a delta in; whether it says anything."""
        said = False
        for key in _TEXTS:
            value = delta.get(key)
            if isinstance(value, str):
                self._texts.setdefault(key, []).append(value)
                said |= bool(value)
            elif value is not None:
                self.faults.append(f"expected delta.{key} as text, found {short(value, 80)}")
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            self._details.extend(item for item in details if isinstance(item, dict))
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for call in calls:
                if isinstance(call, dict):
                    self._add_call(call)
                    said = True
        return said

    def _add_call(self, call: Mapping[str, Json]) -> None:
        index = call.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            index = self._place_of(call)
        kept = self._calls.setdefault(index, {"id": None, "name": None, "arguments": []})
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        kept["id"] = kept["id"] if kept["id"] is not None else call.get("id")
        kept["name"] = kept["name"] if kept["name"] is not None else function.get("name")
        if isinstance(function.get("arguments"), str):
            kept["arguments"].append(function["arguments"])
        elif function.get("arguments") is not None:
            self.faults.append(f"expected arguments as text, found {short(function['arguments'], 80)}")

    def _place_of(self, call: Mapping[str, Json]) -> int:
        """Where a call without an index belongs: an id names or opens a call, without one the last goes on."""
        last = max(self._calls, default=-1)
        if call.get("id") is None:
            return max(last, 0)
        return next((i for i, kept in self._calls.items() if kept["id"] == call["id"]), last + 1)

    def document(self) -> dict[str, Json]:
        """The same reply in the form of one that was not streamed."""
        message: dict[str, Json] = {key: "".join(pieces) for key, pieces in self._texts.items()}
        if self._details:
            message["reasoning_details"] = self._details
        if self._calls:
            message["tool_calls"] = [
                ToolCall(
                    id=call["id"] if isinstance(call["id"], str) else None,
                    name=call["name"] if isinstance(call["name"], str) else None,
                    arguments="".join(call["arguments"]),
                ).as_json()
                for _, call in sorted(self._calls.items())
            ]
        choice = {**self.choice, "message": message}
        if self._ids is not None:
            # Ids of a part of the text are no ids of the reply.
            choice["token_ids"] = None if self._text_without_ids else self._ids
        if self._logprobs is not None:
            choice["logprobs"] = {"content": self._logprobs}
        return {**self.head, "choices": [choice, {}] if self._several else [choice]}
