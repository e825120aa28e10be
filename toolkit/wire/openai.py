"""OpenAI's chat completions, streamed or not, with what OpenRouter, vLLM and Fireworks add to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from toolkit.records import IdsSource, Json, Reply
from toolkit.wire.chunks import Chunks
from toolkit.wire.json import NotJsonError, load_json
from toolkit.wire.reply import Fields, NoAnswer, aborted_of, error_of, no_answer, reasoning_of, short
from toolkit.wire.sse import events_of, is_stream, without_keep_alives


def read_completion(status: int, body: str, *, retry_after_s: float | None = None) -> Reply | NoAnswer:
    """Read one reply. `body` is the whole text: JSON behind any keep-alives, or an SSE transcript.

    Args:
        status: HTTP status, or that of a batch line.
        body: The bytes that came, as text.
        retry_after_s: The server's Retry-After header, in seconds.
    """
    text = without_keep_alives(body)
    if not text:
        return no_answer(status, "empty_body", "expected JSON, found nothing but white space", retry_after_s)
    if is_stream(text):
        return _read_stream(status, text, retry_after_s)
    try:
        document = load_json(text)
    except NotJsonError as error:
        return no_answer(status, "not_json", f"expected JSON, found {short(text, 80)!r} ({error})", retry_after_s)
    told = error_of(document, status=status, retry_after_s=retry_after_s)
    if told is not None:
        return told
    if not 200 <= status < 300:
        return no_answer(status, "not_json", f"expected an error body, found {short(text, 80)!r}", retry_after_s)
    if not isinstance(document, dict):
        return no_answer(status, "malformed", f"expected an object, found {short(text, 80)!r}", retry_after_s)
    return _read_document(document, streamed=False)


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
    output_ids = _output_ids(fields, document, choice)
    if finish is None and native is None and not completion_tokens and not output_ids:
        return refuse("finish_unknown", "expected a finish_reason or completion_tokens, found neither")
    details = fields.mapping(usage, "completion_tokens_details")
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
        prompt_ids=_prompt_ids(fields, document, choice),
        streamed=streamed,
        pieces=pieces_of(fields, choice),
        notes=tuple(dict.fromkeys(fields.notes)),
    )


def _choice_of(document: Mapping[str, Json]) -> tuple[Mapping[str, Json], tuple[str, str, int | None] | None]:
    """(the first choice, why it is no answer): missing, failed, aborted, or without a message."""
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
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
    if not isinstance(message, dict):
        return choice, ("no_choices", f"expected choices[0].message, found {short(message, 80)}", None)
    return choice, None


def _content(fields: Fields, message: Mapping[str, Json]) -> tuple[str | None, str | None]:
    """(content, fault): a string, null, or a list of text parts, which are joined and noted."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content, None
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str) for part in content
    ):
        fields.notes.append("content_parts")
        return "".join(part["text"] for part in content), None
    return None, f"expected content as text, found {short(content, 80)}"


def _output_ids(fields: Fields, document: Mapping[str, Json], choice: Mapping[str, Json]) -> list[int] | None:
    """Ids from the engine: vLLM's and SGLang's choices[0].token_ids, or Fireworks' raw_output."""
    ids = fields.ids(choice, "token_ids")
    if ids is None:
        ids = fields.ids(_raw_output(document, choice), "completion_token_ids")
    if ids is None and "token_ids" in choice:
        fields.notes.append("ids_null")
    return ids or None


def _prompt_ids(fields: Fields, document: Mapping[str, Json], choice: Mapping[str, Json]) -> list[int] | None:
    ids = fields.ids(document, "prompt_token_ids")
    return ids if ids is not None else fields.ids(_raw_output(document, choice), "prompt_token_ids")


def _raw_output(document: Mapping[str, Json], choice: Mapping[str, Json]) -> Mapping[str, Json]:
    raw = choice.get("raw_output", document.get("raw_output"))
    return raw if isinstance(raw, dict) else {}


def pieces_of(fields: Fields, choice: Mapping[str, Json]) -> tuple[bytes, ...] | None:
    """Bytes of each sampled token from `logprobs.content`; None, and a note, where one came without its bytes.

    `token` is not read in their place: a token that is a part of a character is shown there as U+FFFD.
    """
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not content:
        return None
    pieces = []
    for token in content:
        values = token.get("bytes") if isinstance(token, dict) else None
        if not isinstance(values, list) or not all(type(value) is int and 0 <= value < 256 for value in values):
            fields.notes.append("logprobs_without_bytes")
            return None
        pieces.append(bytes(values))
    return tuple(pieces)


def _read_stream(status: int, text: str, retry_after_s: float | None) -> Reply | NoAnswer:
    chunks, done = Chunks(), False
    for event in events_of(text):
        if event.strip() == "[DONE]":
            done = True
            break
        try:
            chunk = load_json(event)
        except NotJsonError:
            return _cut(chunks, f"expected an event in JSON, found {short(event, 80)!r}")
        if not isinstance(chunk, dict):
            return _cut(chunks, f"expected an event as object, found {short(event, 80)!r}")
        told = error_of(chunk, status=status, retry_after_s=retry_after_s)
        if told is not None:
            return _with_head(told, chunks)
        chunks.add(chunk)
    if not 200 <= status < 300:
        return no_answer(status, "not_json", f"expected an error body, found {short(text, 80)!r}", retry_after_s)
    if chunks.faults:
        return _cut(chunks, chunks.faults[0], reason="malformed")
    if not chunks.count:
        none = no_answer(status, "no_choices", "expected a choice in the stream, found none", retry_after_s)
        return _with_head(none, chunks)
    if "finish_reason" not in chunks.choice and "error" not in chunks.choice:
        return _cut(chunks, f"the stream ended after {chunks.count} chunks without a finish_reason")
    reply = _read_document(chunks.document(), streamed=True)
    if isinstance(reply, Reply) and not done:
        return structs.replace(reply, notes=(*reply.notes, "done_missing"))
    return reply


def _cut(chunks: Chunks, detail: str, reason: str = "stream_cut") -> NoAnswer:
    return _with_head(NoAnswer(reason=reason, detail=detail, transient=True), chunks)


def _with_head(answer: NoAnswer, chunks: Chunks) -> NoAnswer:
    """The same, with whoever answered and the cost as far as the chunks said."""
    fields = Fields()
    cost = fields.dollars(fields.mapping(chunks.head, "usage"), "cost")
    return replace(
        answer,
        provider=answer.provider if answer.provider is not None else fields.text(chunks.head, "provider"),
        model=answer.model if answer.model is not None else fields.text(chunks.head, "model"),
        cost_usd=answer.cost_usd if answer.cost_usd is not None else cost,
    )
