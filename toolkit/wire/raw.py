"""A line of an in-house `raw_responses.jsonl`: one object with ids and whatever else was kept.

Fields: `sample_id`, `output_ids`, and as far as known `provider`, `model`, `reasoning`, `content`,
`tool_calls`, `finish_reason`, `native_finish_reason`, `mode`, `usage`, `meta_info` (SGLang's).
"""

from __future__ import annotations

from collections.abc import Mapping

from toolkit.records import IdsSource, Json, Reply
from toolkit.wire.json import NotJsonError, load_json
from toolkit.wire.reply import Fields, NoAnswer, aborted_of, error_of, reasoning_of, short


def read_raw(status: int, body: str, *, retry_after_s: float | None = None) -> Reply | NoAnswer:
    """Read one line. What its ids are worth (`given` or `engine`) is decided by who imports it."""
    del retry_after_s
    try:
        line = load_json(body)
    except NotJsonError as error:
        return _refuse("not_json", f"expected a JSON object, found {short(body, 80)!r} ({error})")
    if not isinstance(line, Mapping):
        return _refuse("malformed", f"expected a JSON object, found {short(line, 80)}")
    failed = error_of(line, status=status)
    if failed is not None:
        return failed
    fields = Fields()
    meta = fields.mapping(line, "meta_info")
    finish, ended, matched = _finish(fields, line.get("finish_reason"), meta.get("finish_reason"))
    aborted = aborted_of(matched, finish, ended)
    if aborted is not None:
        return _refuse("aborted", aborted)
    content = line.get("content")
    if content is not None and not isinstance(content, str):
        return _refuse("malformed", f"expected content as text, found {short(content, 80)}")
    output_ids = fields.ids(line, "output_ids")
    if output_ids is None and line.get("output_ids") is not None:
        return _refuse("ids_invalid", f"expected output_ids as 32-bit ids, found {short(line['output_ids'], 80)}")
    reasoning = reasoning_of(fields, line)
    calls = fields.tool_calls(line)
    if output_ids is None and reasoning is None and content is None and not calls:
        return _refuse("no_choices", "expected output_ids or text, found neither")
    usage = fields.mapping(line, "usage")
    details = fields.mapping(usage, "completion_tokens_details")
    counts = {
        key: fields.count(usage, key) if usage.get(key) is not None else fields.count(meta, key)
        for key in ("prompt_tokens", "completion_tokens")
    }
    reasoning_tokens = fields.count(details, "reasoning_tokens")
    return Reply(
        request_id=fields.text(line, "id") or fields.text(line, "request_id") or fields.text(meta, "id"),
        provider=fields.text(line, "provider"),
        model=fields.text(line, "model"),
        created=fields.seconds(line, "created"),
        reasoning=reasoning,
        content=content,
        tool_calls=calls,
        finish_reason=finish,
        native_finish_reason=fields.text(line, "native_finish_reason") or (ended if ended != finish else None),
        prompt_tokens=counts["prompt_tokens"],
        completion_tokens=counts["completion_tokens"],
        reasoning_tokens=reasoning_tokens if reasoning_tokens is not None else fields.count(meta, "reasoning_tokens"),
        cost_usd=fields.dollars(usage, "cost") if usage.get("cost") is not None else fields.dollars(line, "cost"),
        output_ids=output_ids,
        ids_source=None if output_ids is None else IdsSource.GIVEN,
        prompt_ids=fields.ids(line, "prompt_ids"),
        notes=tuple(dict.fromkeys(fields.notes)),
    )


def bears_api_marks(line: Mapping[str, Json]) -> bool:
    """Whether a line came through a paid API: a provider, a cost, a `gen-` id or usage details."""
    usage = line.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    ids = (line.get("id"), line.get("request_id"))
    return (
        line.get("provider") is not None
        or any(holder.get(key) is not None for holder in (line, usage) for key in ("cost", "cost_details"))
        or any(isinstance(i, str) and i.startswith("gen-") for i in ids)
        or any(usage.get(key) is not None for key in ("completion_tokens_details", "prompt_tokens_details"))
    )


def _finish(fields: Fields, own: Json, engine: Json) -> tuple[str | None, str | None, Json]:
    """(the line's finish_reason, the engine's in meta_info, what the engine matched). SGLang's are objects."""
    reasons: list[str | None] = []
    matched = None
    for value in (own, engine):
        if isinstance(value, Mapping):
            matched = value.get("matched") if matched is None else matched
            value = value.get("type")
        if value is not None and not isinstance(value, str):
            fields.notes.append("wrong_type:finish_reason")
            value = None
        reasons.append(value)
    first, second = reasons
    return (first, second, matched) if first is not None else (second, second, matched)


def _refuse(reason: str, detail: str) -> NoAnswer:
    return NoAnswer(reason=reason, detail=detail, transient=False)
