"""What the faces of an engine share: errors, limits, and ends that are none."""

from __future__ import annotations

import time

import orjson

from toolkit.simulate.bodies import BLANK_LINES, DONE
from toolkit.simulate.draws import Draws
from toolkit.simulate.fate import Fate
from toolkit.simulate.limits import Limiter
from toolkit.simulate.refusals import EDGE_TIMEOUT_PAGE, engine_refusal, restated
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.sending import EVENTS, HTML, JSON, Sending, sent
from toolkit.simulate.simulation import Simulation, Turn

NAN = "NaN happened"

_STATUSES = {
    "http_400": (400, "The request is not valid"),
    "http_408": (408, "The request took too long"),
    "http_429": (429, "Too many requests"),
    "http_500": (500, "Internal server error"),
    "http_502": (502, "Bad gateway"),
    "http_503_retryable": (503, "The server is busy"),
    "http_504": (504, "Gateway timeout"),
}


def limited(simulation: Simulation, turn: Turn, *, flat: bool) -> Sending:
    """503 where the server's limit is reached."""
    wish = _stated(simulation.limiter, Draws(simulation.scenario.seed, "wish", turn.entry.identity, turn.entry.attempt))
    refusal = engine_refusal(503, "The server is busy", flat=flat, wish_s=wish)
    return sent(restated(refusal, simulation.limiter, time.time()))


def failed(fate: Fate, scenario: Scenario, *, stream: bool, flat: bool) -> Sending | None:
    """The reply that a fault puts in place of an answer, whatever was asked; None for faults that need the answer."""
    fault = fate.fault
    if fault == "http_524":
        return Sending(status=524, content_type=HTML, body=EDGE_TIMEOUT_PAGE.encode(), wait_s=fate.latency_s)
    if fault in _STATUSES:
        status, message = _STATUSES[fault]
        wish = scenario.retry_after_s if fate.states_wish and status in (429, 503) else None
        return sent(engine_refusal(status, message, flat=flat, wish_s=wish), wait_s=fate.latency_s)
    if fault == "error_in_200":
        if stream:
            return Sending(content_type=EVENTS, body=error_event("The engine failed"), wait_s=fate.latency_s)
        body = engine_refusal(500, "The engine failed", flat=flat).body
        return Sending(body=orjson.dumps(body), wait_s=fate.latency_s)
    return None


def error_event(message: str) -> bytes:
    """How a stream of an engine tells an error: one event, and the end."""
    return b"data: " + orjson.dumps({"error": {"message": message}}) + b"\n\n" + DONE


def carried(body: bytes, fate: Fate, scenario: Scenario, *, stream: bool, n_ids: int) -> Sending:
    """An answer's bytes, and how they go out."""
    answering_s, thinking_s = fate.per_token_s * n_ids, fate.latency_s
    early = b""
    if not stream:
        thinking_s, answering_s = thinking_s + answering_s, 0.0
        early = BLANK_LINES if "blank_lines" in fate.habits else b""
    if fate.fault == "empty_body":
        body, early = b"", b""
    elif fate.fault == "whitespace_body":
        body, early = BLANK_LINES, b""
    return Sending(
        content_type=EVENTS if stream else JSON,
        body=body,
        early=early,
        wait_s=thinking_s,
        spread_s=answering_s,
        keep_alive_s=scenario.keep_alive_s,
        cut_at=fate.cut_at if fate.fault in ("cut_stream", "cut_body") else None,
        tears=fate.fault == "cut_body" or fate.aborts,
        bare=fate.fault == "cut_before_headers",
    )


def _stated(limiter: Limiter, draws: Draws) -> int | None:
    return limiter.wish_s() if draws.chance(limiter.limit.retry_after_share) else None
