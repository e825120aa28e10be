"""Fields of replies, read strictly: a value of the wrong type is noted and taken as absent, never coerced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from toolkit.records import Json, ToolCall

_INT32_END = 2**31

TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same request may succeed. All from 500 on are taken for such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """A body that is not an answer.

    Attributes:
        reason: A short code (`http_429`, `no_choices`, `not_json`, `stream_cut` …).
        detail: One sentence, with the server's message cut short.
        transient: Whether the same request may succeed later.
        stops_run: Whether every further request would fail alike (a bad key, no credit).
        about_endpoint: Whether it speaks of the URL, the routing or the server, not of the prompt: another try now
            would fare no better, a later run may.
        shrink: Whether fewer requests in flight are asked for.
        cost_usd: What it cost all the same, where the body says so.
    """

    reason: str
    detail: str
    transient: bool
    stops_run: bool = False
    about_endpoint: bool = False
    shrink: bool = False
    status: int | None = None
    provider: str | None = None
    model: str | None = None
    cost_usd: float | None = None
    retry_after_s: float | None = None


@dataclass(slots=True)
class Fields:
    """Typed access to a JSON object that remembers what had the wrong type."""

    notes: list[str] = field(default_factory=list)

    def text(self, source: Mapping[str, Json], key: str) -> str | None:
        """A string, or None."""
        value = source.get(key)
        if value is None or isinstance(value, str):
            return value
        self.notes.append(f"wrong_type:{key}")
        return None

    def count(self, source: Mapping[str, Json], key: str) -> int | None:
        """A whole number from 0 to 2³¹ − 1, or None."""
        value = source.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT32_END):
            return value
        self.notes.append(f"wrong_type:{key}")
        return None

    def seconds(self, source: Mapping[str, Json], key: str) -> int | None:
        """Seconds since 1970 as a whole number, or None."""
        value = source.get(key)
        if isinstance(value, float) and abs(value) < 2**53:
            value = int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53):
            return value
        self.notes.append(f"wrong_type:{key}")
        return None

    def dollars(self, source: Mapping[str, Json], key: str) -> float | None:
        """A finite number that is not negative, or None."""
        value = source.get(key)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
            return float(value)
        self.notes.append(f"wrong_type:{key}")
        return None

    def mapping(self, source: Mapping[str, Json], key: str) -> Mapping[str, Json]:
        """An object; empty where it is absent."""
        value = source.get(key)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.notes.append(f"wrong_type:{key}")
        return {}

    def ids(self, source: Mapping[str, Json], key: str) -> list[int] | None:
        """A list of whole numbers that fit 32 bits with sign, or None."""
        value = source.get(key)
        if value is None:
            return None
        if isinstance(value, list) and all(type(i) is int and -_INT32_END <= i < _INT32_END for i in value):
            return value
        self.notes.append(f"wrong_type:{key}")
        return None

    def tool_calls(self, source: Mapping[str, Json]) -> tuple[ToolCall, ...]:
        """Calls in OpenAI's form ({id, function: {name, arguments}}) or flat ({id, name, arguments})."""
        value = source.get("tool_calls")
        if value is None:
            return ()
        if not isinstance(value, list):
            self.notes.append("wrong_type:tool_calls")
            return ()
        return tuple(self._tool_call(call) for call in value)

    def _tool_call(self, call: Json) -> ToolCall:
        if not isinstance(call, dict):
            self.notes.append("wrong_type:tool_calls")
            return ToolCall(id=None, name=None, arguments=None)
        function = call.get("function", call)
        if not isinstance(function, dict):
            self.notes.append("wrong_type:tool_calls")
            function = {}
        return ToolCall(
            id=self.text(call, "id"), name=self.text(function, "name"), arguments=self.text(function, "arguments")
        )


def reasoning_of(fields: Fields, message: Mapping[str, Json]) -> str | None:
    """The reasoning under any of its names: `reasoning`, `reasoning_content`, `reasoning_details`.

    Details that are a summary or encrypted are not what the model wrote: noted `reasoning_not_verbatim`.
    """
    details = message.get("reasoning_details")
    items = [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []
    if any(item.get("type") in ("reasoning.summary", "reasoning.encrypted") for item in items):
        fields.notes.append("reasoning_not_verbatim")
    for key in ("reasoning", "reasoning_content"):
        text = fields.text(message, key)
        if text is not None:
            return text
    texts = [text for item in items if isinstance(text := item.get("text"), str)]
    return "".join(texts) if texts else None


def aborted_of(matched: Json, *reasons: str | None) -> str | None:
    """Why an end that looks like a finish is none; None where it is one.

    SGLang puts a stop id in place of one outside the vocabulary and says that it matched "NaN happened".
    """
    if matched == "NaN happened":
        return "the engine met NaN and put a stop id in place of the sampled one"
    if "abort" in reasons:
        return "the engine aborted the request; its ids are a part of an answer"
    return None


def error_of(body: Json, *, status: int, retry_after_s: float | None = None, codeless: int = 502) -> NoAnswer | None:
    """The error that a decoded body reports, whatever the HTTP status; None where it reports none.

    Bodies need not have `error.code`: availability errors have `error_type` and `http_status` instead. `codeless` is
    what an error without any code means where the status says nothing.
    """
    error = _error_in(body, status)
    if error is None:
        return None
    code = next((c for c in _codes(error) if 400 <= c < 600), status if status >= 400 else codeless)
    metadata = error.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    provider = metadata.get("provider_name") or body.get("provider")
    availability = error.get("availability")
    wished = availability.get("retry_after") if isinstance(availability, dict) else None
    if isinstance(wished, int | float) and not isinstance(wished, bool) and 0 <= wished < 1e9 and retry_after_s is None:
        retry_after_s = float(wished)
    usage, model, message = body.get("usage"), body.get("model"), error.get("message", error.get("detail"))
    kind = _kind_of(code, error, metadata)
    return NoAnswer(
        reason=kind.reason or f"http_{code}",
        detail=f"status {status}, code {code}: {short(message if message is not None else error)}",
        transient=kind.transient,
        stops_run=kind.stops_run,
        about_endpoint=kind.about_endpoint,
        shrink=kind.shrink,
        status=code,
        provider=provider if isinstance(provider, str) else None,
        model=model if isinstance(model, str) else None,
        cost_usd=Fields().dollars(usage, "cost") if isinstance(usage, dict) else None,
        retry_after_s=retry_after_s,
    )


def refused(status: int, detail: str, retry_after_s: float | None = None) -> NoAnswer:
    """A body under an error status that says nothing of its own: the status decides."""
    kind = _KINDS.get(status) or _kind_of_status(status)
    return NoAnswer(
        reason=f"http_{status}",
        detail=f"status {status}: {detail}",
        transient=kind.transient,
        stops_run=kind.stops_run,
        # Such a page comes from something before the API, which knows nothing of the prompt.
        about_endpoint=not (kind.transient or kind.stops_run),
        status=status,
        retry_after_s=retry_after_s,
    )


def no_answer(status: int, reason: str, detail: str, retry_after_s: float | None) -> NoAnswer:
    """What a body that cannot be read is: by its status where that is an error, else a fault worth another try."""
    if not 200 <= status < 300:
        return refused(status, detail, retry_after_s)
    return NoAnswer(reason=reason, detail=detail, transient=True, status=status, retry_after_s=retry_after_s)


def _error_in(body: Json, status: int) -> Mapping[str, Json] | None:
    """The object that tells of an error: `error`, or the body itself where it is flat or stands under a status."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if error is None or error == {} or error is False:
        return body if body.get("object") == "error" or status >= 400 else None
    return error if isinstance(error, dict) else {"message": error}


def _codes(error: Mapping[str, Json]) -> Iterator[int]:
    for key in ("code", "http_status", "status_code", "status"):
        value = error.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            yield value
        elif isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            yield int(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What follows from an error; see `NoAnswer`. Without a reason it is called by its code."""

    reason: str = ""
    transient: bool = False
    stops_run: bool = False
    about_endpoint: bool = False
    shrink: bool = False


_KINDS = {401: _Kind(reason="unauthorized", stops_run=True)}
_PROMPT_ERRORS = frozenset({"content_policy_violation", "refusal"})


def _kind_of_status(status: int) -> _Kind:
    """What follows from a status alone. Only what is left, such as 400 and 422, is the prompt's own fault."""
    if status in TRANSIENT_STATUSES or status >= 500:
        return _Kind(transient=True)
    return _Kind(about_endpoint=status < 400 or status in (404, 405))


def _kind_of(code: int, error: Mapping[str, Json], metadata: Mapping[str, Json]) -> _Kind:
    error_type = metadata.get("error_type", error.get("error_type"))
    if code == 402:
        return _kind_of_402(metadata)
    if code == 403 and not ("reasons" in metadata or "flagged_input" in metadata or _is_in(error_type, _PROMPT_ERRORS)):
        # Only moderation speaks of the prompt; a limit or permission of the key would fail every request alike.
        return _Kind(reason="forbidden", stops_run=True)
    if code == 503:
        availability = error.get("availability")
        retryable = availability.get("retryable") if isinstance(availability, dict) else True
        # No provider meets the routing: it is the routing that must change, not the prompt.
        return _Kind(transient=retryable is not False, about_endpoint=retryable is False)
    if code == 400 and error_type == "model_not_found":
        return _Kind(reason="model_not_found", about_endpoint=True)
    return _KINDS.get(code) or _kind_of_status(code)


def _kind_of_402(metadata: Mapping[str, Json]) -> _Kind:
    """The three kinds of 402. What says nothing is taken for an empty account: waiting would not fill it."""
    source, why = metadata.get("limit_source"), metadata.get("reason")
    if source == "openrouter_in_flight_budget" and why in (None, "in_flight_budget_exhausted"):
        return _Kind(reason="in_flight_budget", transient=True, shrink=True)
    return _Kind(reason="key_limit" if source == "openrouter_key_limit" else "no_credit", stops_run=True)


def _is_in(value: Json, known: frozenset[str]) -> bool:
    return isinstance(value, str) and value in known


def short(value: Json, limit: int = 200) -> str:
    """A server's words, on one line and cut short."""
    try:
        words = value if isinstance(value, str) else repr(value)
    except RecursionError:
        words = f"a {type(value).__name__} nested too deeply to show"
    text = " ".join(words[: 4 * limit].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
