"""OpenRouter's face: who answers a request, for what money, and what is sent. No sockets."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import partial

import orjson

from toolkit.simulate.answers import Answer
from toolkit.simulate.asked import Asked
from toolkit.simulate.behaviours import BEHAVIOURS
from toolkit.simulate.bodies import BLANK_LINES, DONE, PROCESSING, Envelope, body_of, deltas_of, events_of, logprobs_of
from toolkit.simulate.defects import altered, reported
from toolkit.simulate.draws import Draws
from toolkit.simulate.fate import Fate, fate_of
from toolkit.simulate.providers import SimulatedProvider
from toolkit.simulate.refusals import (
    EDGE_TIMEOUT_PAGE,
    error_body,
    failed_event,
    failed_in_200,
    platform_limit,
    refusal_of,
    restated,
    without_choices,
)
from toolkit.simulate.routing import ranked
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.sending import EVENTS, HTML, Sending, sent
from toolkit.simulate.shown import Body, Shown, show, usage_of
from toolkit.simulate.simulation import FirstReply, Simulation, Turn

OTHER_MODEL = "elsewhere/another-model"
STRANGER = SimulatedProvider(name="Stranger", slug="stranger")
"""Who answers as `other_provider` where a request excludes nobody."""

_COMMENT_EVERY = 5
_ERROR_IN_CHOICE = 502


def play(simulation: Simulation, turn: Turn, asked: Asked, key: str) -> Sending:
    """What a request for a completion gets; the books are told through `turn`.

    Raises:
        PermanentError: status 404; the routing leaves no provider.
    """
    scenario, entry = simulation.scenario, turn.entry
    if not turn.enter(simulation.limiter):
        return _limited(simulation, Draws(scenario.seed, "wish", entry.identity, entry.attempt))
    again = () if scenario.sticky else (entry.attempt,)
    candidates = ranked(scenario.providers, asked.routing, Draws(scenario.seed, "provider", key, *again))
    provider = _first_free(simulation, turn, candidates, falls_back=asked.routing.allow_fallbacks)
    entry.provider = (provider or candidates[0]).name
    if provider is None:
        limiter = simulation.limiters[candidates[0].slug]
        states = Draws(scenario.seed, "wish", entry.identity, entry.attempt).chance(limiter.limit.retry_after_share)
        wish = limiter.wish_s() if states else None
        refusal = refusal_of("http_429", candidates[0], wish_s=wish, model=asked.model)
        return sent(restated(refusal, limiter, time.time()))
    refused = turn.hold(_hold_of(simulation, asked, key, provider))
    if refused is not None:
        wish = scenario.account.retry_after_s
        return sent(refusal_of(refused, provider, wish_s=wish, model=asked.model))
    fate = fate_of(scenario, provider, entry.identity, entry.attempt, face="openrouter", stream=asked.stream)
    turn.meet(fate)
    if fate.fault is not None and not BEHAVIOURS[fate.fault].billed and fate.fault not in _PARTIAL:
        return _failed(simulation, turn, asked, provider, fate)
    return _answered(simulation, turn, asked, key, provider, fate)


# --- before an answer ---------------------------------------------------------------------------


def _limited(simulation: Simulation, draws: Draws) -> Sending:
    limiter = simulation.limiter
    wish = limiter.wish_s() if draws.chance(limiter.limit.retry_after_share) else None
    limit = limiter.limit.per_s or limiter.limit.in_flight or 0
    reset_ms = int(time.time() * 1000) + 1000 * (wish or 1)
    refusal = platform_limit(wish_s=wish, limit=int(limit), remaining=limiter.remaining, reset_ms=reset_ms)
    return sent(restated(refusal, limiter, time.time()))


def _first_free(
    simulation: Simulation, turn: Turn, candidates: Sequence[SimulatedProvider], *, falls_back: bool
) -> SimulatedProvider | None:
    """The first provider whose limit lets the request in; the first one only, where nothing falls back."""
    asked = candidates if simulation.scenario.falls_back and falls_back else candidates[:1]
    for provider in asked:
        limiter = simulation.limiters.get(provider.slug)
        if limiter is None or turn.enter(limiter):
            return provider
    return None


def _hold_of(simulation: Simulation, asked: Asked, key: str, provider: SimulatedProvider) -> float:
    if not simulation.scenario.account.hold_below_usd:
        return 0.0
    return simulation.account.hold_of(
        prompt_tokens=simulation.prompt_length(asked, key, provider),
        max_tokens=asked.max_tokens,
        prompt_usd=provider.prompt_usd,
        completion_usd=provider.completion_usd,
    )


def _envelope(simulation: Simulation, turn: Turn, provider: SimulatedProvider) -> Envelope:
    scenario, entry = simulation.scenario, turn.entry
    created = int(entry.received)
    serial = hashlib.sha256(f"{scenario.seed} {entry.identity} {entry.attempt}".encode()).hexdigest()[:20]
    return Envelope(id=f"gen-{created}-{serial}", created=created, model=simulation.reply_model, provider=provider.name)


# --- no answer ----------------------------------------------------------------------------------

_PARTIAL = frozenset({"error_in_choice", "error_in_stream"})
"""Faults that need the answer's text and are not charged: finish_reason error is insured."""

_IN_200 = {"error_in_200": 502, "rate_limit_in_200": 429}


def _failed(simulation: Simulation, turn: Turn, asked: Asked, provider: SimulatedProvider, fate: Fate) -> Sending:
    """The reply that a fault puts in place of an answer. Nothing is charged for it."""
    fault = fate.fault or ""
    if fault == "http_524":
        return Sending(status=524, content_type=HTML, body=EDGE_TIMEOUT_PAGE.encode(), wait_s=fate.latency_s)
    envelope = _envelope(simulation, turn, provider)
    if fault in _IN_200:
        code = _IN_200[fault]
        body = failed_event(envelope, provider, code) if asked.stream else failed_in_200(provider, code)
        return _in_200(body, asked, fate, done=False)
    if fault in ("empty_choices", "null_choices", "no_choices"):
        usage = {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}
        return _in_200(without_choices(fault, envelope, usage, stream=asked.stream), asked, fate, done=True)
    wish = _wish_of(fault, simulation.scenario) if fate.states_wish else None
    return sent(refusal_of(fault, provider, wish_s=wish, model=asked.model), wait_s=fate.latency_s)


def _wish_of(fault: str, scenario: Scenario) -> int | None:
    return scenario.account.retry_after_s if fault == "in_flight_402" else scenario.retry_after_s


def _in_200(body: Body, asked: Asked, fate: Fate, *, done: bool) -> Sending:
    content = orjson.dumps(body)
    if not asked.stream:
        return Sending(body=content, wait_s=fate.latency_s)
    events = b"data: " + content + b"\n\n" + (DONE if done else b"")
    return Sending(content_type=EVENTS, early=PROCESSING, body=events, wait_s=fate.latency_s)


# --- an answer ----------------------------------------------------------------------------------


def _answered(
    simulation: Simulation, turn: Turn, asked: Asked, key: str, provider: SimulatedProvider, fate: Fate
) -> Sending:
    reply = _reply_of(simulation, turn, asked, provider, fate)
    turn.entry.id, turn.entry.provider = reply.envelope.id, reply.envelope.provider
    made = simulation.answer_to(asked, key, reply.nonce, reply.habits)
    length = simulation.prompt_length(asked, key, reply.provider)
    usage = usage_of(made, reply.provider, prompt_ids=length, has_tools=asked.tools is not None)
    shown = show(made, reply.provider, shows_reasoning=asked.shows_reasoning)
    shown = altered(shown, made, reply.habits, simulation.contract)
    if not turn.entry.repeats and fate.fault not in _PARTIAL and (fate.fault is None or simulation.scenario.bills_lost):
        turn.charge(made, usage)
        turn.generation = partial(_generation, reply.envelope, made, shown, usage, asked, fate)
    return _carried(simulation, asked, fate, reply, made, shown, usage)


def _reply_of(simulation: Simulation, turn: Turn, asked: Asked, provider: SimulatedProvider, fate: Fate) -> FirstReply:
    """Who answers under which id: as drawn, or as the first time where the reply is a duplicate."""
    entry, scenario = turn.entry, simulation.scenario
    first = simulation.first_replies.get(entry.identity) if "duplicate_reply" in fate.habits else None
    if first is not None:
        entry.repeats = True
        return first
    if "other_provider" in fate.habits:
        excluded = [p for p in scenario.providers if not asked.routing.allows(p)]
        provider = excluded[0] if excluded else STRANGER
    envelope = _envelope(simulation, turn, provider)
    if "other_model" in fate.habits:
        envelope = Envelope(id=envelope.id, created=envelope.created, model=OTHER_MODEL, provider=envelope.provider)
    nonce = asked.nonce
    if scenario.varies and nonce == 0:
        nonce = simulation.requests[turn.entry.prompt_key] - 1
    reply = FirstReply(envelope=envelope, nonce=nonce, provider=provider, habits=fate.habits)
    if simulation.keeps_first_replies and fate.fault not in _PARTIAL:
        simulation.first_replies.setdefault(entry.identity, reply)
    return reply


def _carried(
    simulation: Simulation, asked: Asked, fate: Fate, reply: FirstReply, made: Answer, shown: Shown, usage: Body
) -> Sending:
    """The bytes, and how they go out."""
    scenario, fault = simulation.scenario, fate.fault
    headers = {"X-Generation-Id": reply.envelope.id}
    thinking_s = fate.latency_s
    answering_s = fate.per_token_s * len(made.ids)
    told = reported(usage, made, reply.habits)
    if asked.stream:
        body, early = _events(reply, fate, shown, told), PROCESSING
    else:
        document = _document(reply, fate, shown, told)
        if asked.shows_logprobs:
            document["choices"][0]["logprobs"] = logprobs_of(made.ids, simulation.vocabulary)
        body, early = orjson.dumps(document), b""
        thinking_s, answering_s = thinking_s + answering_s, 0.0
        early = BLANK_LINES if "blank_lines" in fate.habits else b""
    if fault == "no_choices_charged":
        charged = orjson.dumps(without_choices(fault, reply.envelope, usage, stream=asked.stream))
        body = b"data: " + charged + b"\n\n" + DONE if asked.stream else charged
    elif fault == "empty_body":
        body, early = b"", b""
    elif fault == "whitespace_body":
        body, early = BLANK_LINES, b""
    return Sending(
        headers=headers,
        content_type=EVENTS if asked.stream else "application/json",
        body=body,
        early=early,
        wait_s=thinking_s,
        spread_s=answering_s,
        keep_alive_s=scenario.keep_alive_s,
        cut_at=fate.cut_at if fault in ("cut_stream", "cut_body") else None,
        tears=fault == "cut_body" or fate.aborts,
        bare=fault == "cut_before_headers",
    )


def _document(reply: FirstReply, fate: Fate, shown: Shown, told: Body | None) -> Body:
    if fate.fault != "error_in_choice":
        return body_of(shown, reply.envelope, told)
    content, reasoning = _part(shown.content, fate.cut_at), shown.reasoning
    partial = Shown(
        reasoning=reasoning, content=content, tool_calls=(), finish_reason="error", native_finish_reason=None
    )
    usage = told and {**told, "cost": 0}
    document = body_of(partial, reply.envelope, usage)
    document["choices"][0]["error"] = error_body(_ERROR_IN_CHOICE, "Provider returned error", reply.provider)["error"]
    return document


def _events(reply: FirstReply, fate: Fate, shown: Shown, told: Body | None) -> bytes:
    deltas = deltas_of(shown)
    if fate.fault in _PARTIAL:
        deltas = deltas[: max(1, int(len(deltas) * fate.cut_at))]
        events = list(events_of(deltas, shown, reply.envelope, told))[: len(deltas)]
        failed = orjson.dumps(failed_event(reply.envelope, reply.provider, _ERROR_IN_CHOICE))
        return b"".join(events) + b"data: " + failed + b"\n\n"
    events = list(events_of(deltas, shown, reply.envelope, told, usage_alone="usage_alone" in reply.habits))
    if "comments" in fate.habits:
        events = [PROCESSING + event if i % _COMMENT_EVERY == 0 else event for i, event in enumerate(events)]
    return b"".join(events) + (b"" if "missing_done" in fate.habits else DONE)


def _part(text: str | None, share: float) -> str | None:
    return text and text[: max(1, int(len(text) * share))]


def _generation(envelope: Envelope, made: Answer, shown: Shown, usage: Body, asked: Asked, fate: Fate) -> Body:
    """What GET /generation will tell: native counts are the provider's, the others of another tokenizer."""
    prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
    return {
        "id": envelope.id,
        "model": envelope.model,
        "provider_name": envelope.provider,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(envelope.created)),
        "streamed": asked.stream,
        "cancelled": False,
        "finish_reason": shown.finish_reason,
        "native_finish_reason": shown.native_finish_reason,
        "tokens_prompt": prompt,
        "tokens_completion": completion,
        "native_tokens_prompt": prompt,
        "native_tokens_completion": completion,
        "native_tokens_reasoning": made.reasoning_ids,
        "native_tokens_cached": 0,
        "total_cost": usage["cost"],
        "usage": usage["cost"],
        "upstream_inference_cost": usage["cost"],
        "latency": int(fate.latency_s * 1000),
        "generation_time": int(fate.per_token_s * len(made.ids) * 1000),
        "upstream_id": None,
        "request_id": envelope.id,
        "provider_responses": None,
        "router": None,
    }
