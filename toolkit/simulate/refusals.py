"""Replies that are no answer: OpenRouter's errors by the name of the fault, and an engine's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from toolkit.simulate.bodies import Envelope, head_of
from toolkit.simulate.limits import Limiter
from toolkit.simulate.providers import SimulatedProvider
from toolkit.simulate.shown import Body

EDGE_TIMEOUT_PAGE = (
    '<!DOCTYPE html>\n<html lang="en-US">\n<head><title>openrouter.ai | 524: A timeout occurred</title></head>\n'
    "<body><h1>A timeout occurred <span>Error code 524</span></h1></body>\n</html>\n"
)

_UPSTREAM = {
    "http_408": (408, "timeout"),
    "http_429": (429, "rate_limit_exceeded"),
    "http_502": (502, "provider_unavailable"),
    "http_504": (504, "timeout"),
    "http_529": (529, "provider_overloaded"),
}
"""Faults that are passed on from a provider: status and error_type."""

_MONEY = {
    "in_flight_402": ("openrouter_in_flight_budget", "in_flight_budget_exhausted", "Too many requests in flight"),
    "credits_402": ("openrouter_credits", "weight_exceeds_budget", "This request requires more credits"),
    "key_limit_402": ("openrouter_key_limit", None, "Key limit exceeded"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Status, headers and body of a reply that is no answer."""

    status: int
    body: Body
    headers: Mapping[str, str] = field(default_factory=dict)


def error_body(status: int, message: str, provider: SimulatedProvider | None = None, error_type: str = "") -> Body:
    """OpenRouter's error shape; with `provider`, the one for errors that came from upstream."""
    error: Body = {"message": message, "code": status}
    if provider is not None:
        error["metadata"] = {"provider_name": provider.name, "raw": f"{provider.name} answered with status {status}"}
        if error_type:
            error["metadata"]["error_type"] = error_type
    return {"error": error}


def refusal_of(fault: str, provider: SimulatedProvider, *, wish_s: int | None, model: str) -> Refusal:
    """What OpenRouter answers for a fault that has a status of its own.

    Args:
        fault: One of the faults whose names begin or end in a status, `http_524` excepted.
        provider: Who failed, where the error came from upstream.
        wish_s: Retry-After of 429, 402 and 503, in seconds; None: not stated.
        model: The model that was asked for.
    """
    wish = {} if wish_s is None else {"Retry-After": str(wish_s)}
    if fault in _UPSTREAM:
        status, error_type = _UPSTREAM[fault]
        headers = wish if status == 429 else {}
        return Refusal(
            status=status, headers=headers, body=error_body(status, "Provider returned error", provider, error_type)
        )
    if fault in _MONEY:
        source, reason, message = _MONEY[fault]
        reasons = {} if reason is None else {"reason": reason}
        error: Body = {"message": message, "code": 402, "metadata": {"limit_source": source, **reasons}}
        return Refusal(status=402, headers=wish if fault == "in_flight_402" else {}, body={"error": error})
    if fault in ("http_503_retryable", "http_503_final"):
        retryable = fault == "http_503_retryable"
        return Refusal(status=503, headers=wish if retryable else {}, body=_unavailable(retryable, wish_s, model))
    if fault == "http_429_platform":
        return platform_limit(wish_s=wish_s, limit=20, remaining=0, reset_ms=0)
    if fault == "http_400":
        body = error_body(400, "The provider refused the content", provider, "content_policy_violation")
        return Refusal(status=400, body=body)
    if fault == "http_403":
        return Refusal(status=403, body=_moderated(provider, model))
    plain = {"http_401": (401, "User not found."), "http_500": (500, "Internal Server Error")}
    status, message = plain[fault]
    return Refusal(status=status, body=error_body(status, message))


def platform_limit(*, wish_s: int | None, limit: int, remaining: int, reset_ms: int) -> Refusal:
    """OpenRouter's own 429: the only reply with X-RateLimit headers. `reset_ms`: milliseconds since 1970."""
    headers = {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset": str(reset_ms),
    }
    if wish_s is not None:
        headers["Retry-After"] = str(wish_s)
    error: Body = {"message": "Rate limit exceeded", "code": 429, "metadata": {"error_type": "rate_limit_exceeded"}}
    return Refusal(status=429, headers=headers, body={"error": error})


def restated(refusal: Refusal, limiter: Limiter, at: float) -> Refusal:
    """The refusal with Retry-After as the limit states it; `at` in seconds since 1970."""
    wish = refusal.headers.get("Retry-After")
    if wish is None:
        return refusal
    return replace(refusal, headers={**refusal.headers, "Retry-After": limiter.header(int(wish), at)})


def engine_refusal(status: int, message: str, *, flat: bool, wish_s: int | None = None) -> Refusal:
    """An engine's error: SGLang's flat body, or the nested one of an OpenAI server. `wish_s`: Retry-After, seconds."""
    kind = "BadRequestError" if status < 500 else "InternalServerError"
    error: Body = {"message": message, "type": kind, "param": None, "code": status}
    headers = {} if wish_s is None else {"Retry-After": str(wish_s)}
    return Refusal(status=status, headers=headers, body={"object": "error", **error} if flat else {"error": error})


def failed_in_200(provider: SimulatedProvider, code: int) -> Body:
    """The body of a failure that comes with status 200: every field null but the error."""
    fields: Body = dict.fromkeys(("id", "object", "created", "model", "provider", "choices", "usage"))
    return {**fields, **error_body(code, "Provider returned error", provider)}


def failed_event(envelope: Envelope, provider: SimulatedProvider, code: int) -> Body:
    """The event that ends a stream which failed in the middle."""
    choice = {"index": 0, "delta": {"content": "", "role": "assistant"}, "finish_reason": "error"}
    chunk = {**head_of(envelope, "chat.completion.chunk"), **error_body(code, "Provider returned error", provider)}
    return {**chunk, "choices": [choice]}


def without_choices(fault: str, envelope: Envelope, usage: Body | None, *, stream: bool) -> Body:
    """A body, or a chunk, whose `choices` is missing, null or empty, by the name of the fault."""
    body = head_of(envelope, "chat.completion.chunk" if stream else "chat.completion")
    if fault == "null_choices":
        body["choices"] = None
    elif fault == "empty_choices":
        body["choices"] = []
    else:
        body["usage"] = usage
    return body


def _unavailable(retryable: bool, wish_s: int | None, model: str) -> Body:
    """Availability errors state their status in words of their own, and have no `code`."""
    availability: Body = {
        "code": "provider_overloaded" if retryable else "constraint_filtered",
        "retryable": retryable,
        "requested_models": [model],
    }
    if retryable and wish_s is not None:
        availability["retry_after"] = wish_s
    error = {
        "message": "No provider is available",
        "error_type": "provider_overloaded",
        "http_status": 503,
        "availability": availability,
    }
    return {"error": error}


def _moderated(provider: SimulatedProvider, model: str) -> Body:
    metadata = {
        "reasons": ["violence"],
        "flagged_input": "a few of the prompt's words",
        "provider_name": provider.name,
        "model_slug": model,
    }
    return {"error": {"message": "The input was flagged", "code": 403, "metadata": metadata}}
