"""SGLang's native POST /generate, streamed or not: ids as the engine sampled them, and its own text beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolkit.records import IdsSource, Json, Reply
from toolkit.wire.json import NotJsonError, load_json
from toolkit.wire.reply import Fields, NoAnswer, aborted_of, error_of, no_answer, short
from toolkit.wire.sse import events_of, is_stream, without_keep_alives

_BAD_REQUEST = 400
"""What an error without a code is inside a stream: there the server reports what it cannot take, under status 200."""


def read_generate(status: int, body: str, *, retry_after_s: float | None = None) -> Reply | NoAnswer:
    """Read one reply to one prompt; for the arguments see `toolkit.wire.openai.read_completion`.

    The parts of the answer are not divided here: only the contract knows the ids that stand between them.
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
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    told = error_of(document, status=status, retry_after_s=retry_after_s)
    if told is not None:
        return told
    if not (200 <= status < 300 and isinstance(document, dict)):
        return no_answer(status, "malformed", f"expected an object, found {short(text, 80)!r}", retry_after_s)
    return _read_document(document, streamed=False)


def _read_document(document: Mapping[str, Json], *, streamed: bool) -> Reply | NoAnswer:
    fields = Fields()
    meta = fields.mapping(document, "meta_info")
    finish = fields.mapping(meta, "finish_reason")
    kind, matched = fields.text(finish, "type"), finish.get("matched")
    if kind == "abort":
        return _aborted(finish)
    nan = aborted_of(matched)
    if nan is not None:
        return NoAnswer(reason="aborted", detail=nan, transient=True)
    if kind is None:
        found = short(meta.get("finish_reason"), 80)
        return NoAnswer(
            reason="finish_unknown", detail=f"expected meta_info.finish_reason.type, found {found}", transient=True
        )
    output_ids = fields.ids(document, "output_ids")
    if not output_ids:
        # Very old versions leave ids out: another try would fare no better.
        found = short(document.get("output_ids"), 80)
        return NoAnswer(
            reason="ids_missing", detail=f"expected output_ids, found {found}", transient=False, about_endpoint=True
        )
    if isinstance(matched, str):
        # Text is cut at a stop string, ids are not; none was sent, so the server has one of its own.
        fields.notes.append("stop_string_matched")
    return Reply(
        request_id=fields.text(meta, "id"),
        finish_reason=kind,
        prompt_tokens=fields.count(meta, "prompt_tokens"),
        completion_tokens=fields.count(meta, "completion_tokens"),
        reasoning_tokens=fields.count(meta, "reasoning_tokens"),
        output_ids=output_ids,
        ids_source=IdsSource.ENGINE,
        prompt_ids=fields.ids(document, "prompt_token_ids"),
        streamed=streamed,
        undivided=fields.text(document, "text") or "",
        notes=tuple(dict.fromkeys(fields.notes)),
    )


def _aborted(finish: Mapping[str, Json]) -> NoAnswer:
    """An abort comes with the ids so far, which are no answer. A bad request is final, all else may pass."""
    status = Fields().count(finish, "status_code")
    bad_request = status is not None and 400 <= status < 500 and status not in (408, 409, 425, 429)
    told = short(finish.get("message"), 160) if finish.get("message") is not None else "without a message"
    return NoAnswer(
        reason="aborted",
        detail=f"the engine aborted the request: {told}",
        transient=not bad_request,
        status=status,
    )


# --- SSE ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stream:
    """Events put together. Ids and text are cumulative, or deltas under `--incremental-streaming-output`.

    `completion_tokens` is cumulative either way, and so tells which of the two an event holds.
    """

    last: dict[str, Json] = field(default_factory=dict)
    prompt_ids: Json = None
    ids: list[Json] = field(default_factory=list)
    text: str = ""
    fault: str | None = None

    def add(self, event: Mapping[str, Json]) -> None:
        """Take one event in."""
        self.last = dict(event)
        self.prompt_ids = event.get("prompt_token_ids") or self.prompt_ids
        meta = event.get("meta_info")
        count = Fields().count(meta, "completion_tokens") if isinstance(meta, dict) else None
        ids, text = event.get("output_ids"), event.get("text")
        if not isinstance(ids, list | None) or not isinstance(text, str | None) or count is None:
            self.fault = f"expected output_ids, text and completion_tokens, found {short(event, 80)}"
            return
        ids, text = ids or [], text or ""
        if len(self.ids) + len(ids) == count:
            self.ids.extend(ids)
            self.text += text
        elif len(ids) == count:
            self.ids, self.text = ids, text
        else:
            self.fault = f"expected {count} ids, found {len(ids)} after {len(self.ids)}"

    def document(self) -> dict[str, Json]:
        """The same reply in the form of one that was not streamed."""
        return {**self.last, "output_ids": self.ids, "text": self.text, "prompt_token_ids": self.prompt_ids}


def _read_stream(status: int, text: str, retry_after_s: float | None) -> Reply | NoAnswer:
    stream, done = _Stream(), False
    for data in events_of(text):
        if data.strip() == "[DONE]":
            done = True
            break
        try:
            event = load_json(data)
        except NotJsonError:
            return NoAnswer(reason="stream_cut", detail=f"expected JSON, found {short(data, 80)!r}", transient=True)
        told = error_of(event, status=status, retry_after_s=retry_after_s, codeless=_BAD_REQUEST)
        if told is not None:
            return told
        if not isinstance(event, dict):
            return NoAnswer(
                reason="stream_cut", detail=f"expected an object, found {short(data, 80)!r}", transient=True
            )
        stream.add(event)
        if stream.fault is not None:
            return NoAnswer(reason="malformed", detail=stream.fault, transient=True)
    if not 200 <= status < 300:
        return no_answer(status, "malformed", f"expected an error body, found {short(text, 80)!r}", retry_after_s)
    if not stream.last:
        return no_answer(status, "no_choices", "expected an event with ids, found none", retry_after_s)
    if not done:
        return NoAnswer(reason="stream_cut", detail="the stream ended without [DONE]", transient=True)
    return _read_document(stream.document(), streamed=True)
