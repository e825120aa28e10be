"""OpenAI's chat completions, streamed or not, with what OpenRouter, vLLM and Fireworks add to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from toolkit.records import IdsSource, Json, Reply, ToolCall
from toolkit.wire.json import NotJsonError, load_json
from toolkit.wire.reply import TRANSIENT_STATUSES, Fields, NoAnswer, aborted_of, error_of, reasoning_of, short


def read_completion(status: int, body: str, *, retry_after_s: float | None = None) -> Reply | NoAnswer:
    """Read one reply. `body` is the whole text: JSON behind any white space, or an SSE transcript.

    Args:
        status: HTTP status, or that of a batch line.
        body: The bytes that came, as text.
        retry_after_s: The server's Retry-After header, in seconds.
    """
    text = body.lstrip()
    if not text:
        return _no_answer(status, "empty_body", "expected JSON, found nothing but white space", retry_after_s)
    if text.startswith((":", "data:", "event:", "id:", "retry:")):
        return _read_stream(status, text, retry_after_s)
    try:
        document = load_json(text)
    except NotJsonError as error:
        return _no_answer(status, "not_json", f"expected JSON, found {short(text, 80)!r} ({error})", retry_after_s)
    refused = error_of(document, status=status, retry_after_s=retry_after_s)
    if refused is not None:
        return refused
    if status >= 400:
        return _no_answer(status, "not_json", f"expected an error body, found {short(text, 80)!r}", retry_after_s)
    if not isinstance(document, Mapping):
        return _no_answer(status, "malformed", f"expected an object, found {short(text, 80)!r}", retry_after_s)
    return _read_document(document, streamed=False)


def _no_answer(status: int, reason: str, detail: str, retry_after_s: float | None) -> NoAnswer:
    if status >= 400:
        return NoAnswer(
            reason=f"http_{status}",
            detail=f"status {status}: {detail}",
            transient=status in TRANSIENT_STATUSES,
            stops_run=status == 401,
            status=status,
            retry_after_s=retry_after_s,
        )
    return NoAnswer(reason=reason, detail=detail, transient=True, status=status, retry_after_s=retry_after_s)


def _read_document(document: Mapping[str, Json], *, streamed: bool) -> Reply | NoAnswer:
    fields = Fields()
    usage = fields.mapping(document, "usage")
    cost = fields.dollars(usage, "cost")
    provider, model = fields.text(document, "provider"), fields.text(document, "model")

    def refuse(reason: str, detail: str, status: int | None = None) -> NoAnswer:
        return NoAnswer(
            reason=reason,
            detail=detail,
            transient=True,
            status=status,
            provider=provider,
            model=model,
            cost_usd=cost,
        )

    choice, refusal = _choice_of(document)
    if refusal is not None:
        return refuse(*refusal)
    if len(document["choices"]) > 1:
        fields.notes.append("several_choices")
    finish, message = fields.text(choice, "finish_reason"), choice["message"]
    content, fault = _content(fields, message)
    if fault is not None:
        return refuse("malformed", fault)
    completion_tokens = fields.count(usage, "completion_tokens")
    native = fields.text(choice, "native_finish_reason")
    if finish is None and native is None and not completion_tokens:
        return refuse("finish_unknown", "expected a finish_reason or completion_tokens, found neither")
    details = fields.mapping(usage, "completion_tokens_details")
    output_ids = _output_ids(fields, document, choice)
    return Reply(
        request_id=fields.text(document, "id"),
        provider=provider,
        model=model,
        created=fields.seconds(document, "created"),
        reasoning=reasoning_of(fields, message),
        content=content,
        tool_calls=fields.tool_calls(message),
        finish_reason=finish,
        native_finish_reason=native,
        prompt_tokens=fields.count(usage, "prompt_tokens"),
        completion_tokens=completion_tokens,
        reasoning_tokens=fields.count(details, "reasoning_tokens"),
        cost_usd=cost,
        output_ids=output_ids,
        ids_source=None if output_ids is None else IdsSource.ENGINE,
        prompt_ids=fields.ids(document, "prompt_token_ids"),
        streamed=streamed,
        notes=tuple(dict.fromkeys(fields.notes)),
    )


def _choice_of(document: Mapping[str, Json]) -> tuple[Mapping[str, Json], tuple[str, str, int | None] | None]:
    """(the first choice, why it is no answer): missing, failed, aborted, or without a message."""
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        found = "nothing" if "choices" not in document else short(choices, 80)
        return {}, ("no_choices", f"expected a choice, found {found}", None)
    choice = choices[0]
    finish = Fields().text(choice, "finish_reason")
    if choice.get("error") is not None or finish == "error":
        inner = error_of({"error": choice.get("error") or {"message": "finish_reason error"}}, status=200)
        detail = inner.detail if inner is not None else "finish_reason error"
        return choice, ("error_in_choice", detail, inner.status if inner else None)
    aborted = aborted_of(choice.get("matched_stop"), finish)
    if aborted is not None:
        return choice, ("aborted", aborted, None)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        return choice, ("no_choices", f"expected choices[0].message, found {short(message, 80)}", None)
    return choice, None


def _content(fields: Fields, message: Mapping[str, Json]) -> tuple[str | None, str | None]:
    """(content, fault): a string, null, or a list of text parts, which are joined and noted."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content, None
    if isinstance(content, list) and all(
        isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    ):
        fields.notes.append("content_parts")
        return "".join(part["text"] for part in content), None
    return None, f"expected content as text, found {short(content, 80)}"


def _output_ids(fields: Fields, document: Mapping[str, Json], choice: Mapping[str, Json]) -> list[int] | None:
    """Ids from the engine: vLLM's and SGLang's choices[0].token_ids, or Fireworks' raw_output."""
    ids = fields.ids(choice, "token_ids")
    if ids is None:
        raw = choice.get("raw_output", document.get("raw_output"))
        if isinstance(raw, Mapping):
            ids = fields.ids(raw, "completion_token_ids")
    if ids is None and "token_ids" in choice:
        fields.notes.append("ids_null")
    return ids or None


# --- SSE ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stream:
    """A completion put together from its chunks."""

    head: dict[str, Json] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    details: list[Mapping[str, Json]] = field(default_factory=list)
    calls: dict[int, dict[str, Json]] = field(default_factory=dict)
    choice: dict[str, Json] = field(default_factory=dict)
    ids: list[Json] | None = None
    chunks: int = 0
    done: bool = False
    several: bool = False
    faults: list[str] = field(default_factory=list)

    def add(self, chunk: Mapping[str, Json]) -> None:
        """Take one chunk in."""
        for key in ("id", "provider", "model", "created", "usage", "prompt_token_ids"):
            if chunk.get(key) is not None:
                self.head[key] = chunk[key]
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
            return
        choice = choices[0]
        if choice.get("index") not in (None, 0):
            self.several = True
            return
        self.chunks += 1
        for key in ("finish_reason", "native_finish_reason", "matched_stop", "error"):
            if choice.get(key) is not None:
                self.choice[key] = choice[key]
        if isinstance(choice.get("token_ids"), list):
            self.ids = self.ids if self.ids is not None else []
            self.ids.extend(choice["token_ids"])
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            self._add_delta(delta)

    def _add_delta(self, delta: Mapping[str, Json]) -> None:
        for key in ("content", "reasoning", "reasoning_content"):
            value = delta.get(key)
            if isinstance(value, str):
                self.texts.setdefault(key, []).append(value)
            elif value is not None:
                self.faults.append(f"expected delta.{key} as text, found {short(value, 80)}")
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            self.details.extend(item for item in details if isinstance(item, Mapping))
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for call in calls:
                if isinstance(call, Mapping):
                    self._add_call(call)

    def _add_call(self, call: Mapping[str, Json]) -> None:
        index = call.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            index = self._place_of(call)
        kept = self.calls.setdefault(index, {"id": None, "name": None, "arguments": []})
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        kept["id"] = kept["id"] if kept["id"] is not None else call.get("id")
        kept["name"] = kept["name"] if kept["name"] is not None else function.get("name")
        if isinstance(function.get("arguments"), str):
            kept["arguments"].append(function["arguments"])
        elif function.get("arguments") is not None:
            self.faults.append(f"expected arguments as text, found {short(function['arguments'], 80)}")

    def _place_of(self, call: Mapping[str, Json]) -> int:
        """Where a call without an index belongs: an id names or opens a call, without one the last goes on."""
        last = max(self.calls, default=-1)
        if call.get("id") is None:
            return max(last, 0)
        return next((i for i, kept in self.calls.items() if kept["id"] == call["id"]), last + 1)

    def document(self) -> dict[str, Json]:
        """The same reply in the form of a reply that was not streamed."""
        message: dict[str, Json] = {key: "".join(pieces) for key, pieces in self.texts.items()}
        if self.details:
            message["reasoning_details"] = self.details
        if self.calls:
            message["tool_calls"] = [
                ToolCall(
                    id=call["id"] if isinstance(call["id"], str) else None,
                    name=call["name"] if isinstance(call["name"], str) else None,
                    arguments="".join(call["arguments"]),
                ).as_json()
                for _, call in sorted(self.calls.items())
            ]
        choice = {**self.choice, "message": message}
        if self.ids is not None:
            choice["token_ids"] = self.ids
        return {**self.head, "choices": [choice, {}] if self.several else [choice]}


def _events(text: str) -> Iterator[str]:
    """The data of each SSE event; comments (keep-alives) are skipped, lines of one event are joined."""
    data: list[str] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            if data:
                yield "\n".join(data)
                data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    if data:
        yield "\n".join(data)


def _read_stream(status: int, text: str, retry_after_s: float | None) -> Reply | NoAnswer:
    stream = _Stream()
    for event in _events(text):
        if event.strip() == "[DONE]":
            stream.done = True
            break
        try:
            chunk = load_json(event)
        except NotJsonError:
            return _cut(stream, f"expected an event in JSON, found {short(event, 80)!r}")
        if not isinstance(chunk, Mapping):
            return _cut(stream, f"expected an event as object, found {short(event, 80)!r}")
        refused = error_of(chunk, status=status, retry_after_s=retry_after_s)
        if refused is not None:
            return refused
        stream.add(chunk)
    if status >= 400:
        return _no_answer(status, "not_json", f"expected an error body, found {short(text, 80)!r}", retry_after_s)
    if stream.faults:
        return _cut(stream, stream.faults[0], reason="malformed")
    if not stream.chunks:
        return _no_answer(status, "no_choices", "expected a choice in the stream, found none", retry_after_s)
    if "finish_reason" not in stream.choice and "error" not in stream.choice:
        return _cut(stream, f"the stream ended after {stream.chunks} chunks without a finish_reason")
    reply = _read_document(stream.document(), streamed=True)
    if isinstance(reply, Reply) and not stream.done:
        notes = (*reply.notes, "done_missing")
        return Reply(**{name: getattr(reply, name) for name in Reply.__slots__} | {"notes": notes})
    return reply


def _cut(stream: _Stream, detail: str, reason: str = "stream_cut") -> NoAnswer:
    fields = Fields()
    usage = fields.mapping(stream.head, "usage")
    return NoAnswer(
        reason=reason,
        detail=detail,
        transient=True,
        provider=fields.text(stream.head, "provider"),
        model=fields.text(stream.head, "model"),
        cost_usd=fields.dollars(usage, "cost"),
    )
