"""An engine's /v1/chat/completions, as vLLM or SGLang serve it: text and, where asked for, ids. No sockets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import orjson

from toolkit.simulate.answers import Answer
from toolkit.simulate.asked import Asked
from toolkit.simulate.behaviours import BEHAVIOURS
from toolkit.simulate.bodies import DONE, calls_of, logprobs_of, steps_of
from toolkit.simulate.defects import altered, reported
from toolkit.simulate.engine import NAN, carried, error_event, failed, limited
from toolkit.simulate.fate import Fate, fate_of
from toolkit.simulate.openrouter import OTHER_MODEL
from toolkit.simulate.providers import ENGINE
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.sending import Sending
from toolkit.simulate.shown import Body, Shown, show
from toolkit.simulate.simulation import Simulation, Turn
from toolkit.vocabulary import Vocabulary

_WITHOUT_CHOICES = ("null_choices", "no_choices", "empty_choices")


def play(simulation: Simulation, turn: Turn, asked: Asked, key: str) -> Sending:
    """What a request for a completion gets; the books are told through `turn`."""
    scenario, entry = simulation.scenario, turn.entry
    flat = scenario.engine == "sglang"
    if not turn.enter(simulation.limiter):
        return limited(simulation, turn, flat=flat)
    fate = fate_of(scenario, ENGINE, entry.identity, entry.attempt, face="chat", stream=asked.stream)
    if fate.fault == "nan" and not flat:
        fate = replace(fate, fault=None)
    turn.meet(fate)
    refused = failed(fate, scenario, stream=asked.stream, flat=flat)
    if refused is not None:
        return refused
    nonce = simulation.requests[key] - 1 if scenario.varies and asked.nonce == 0 else asked.nonce
    made = _met(simulation.answer_to(asked, key, nonce, fate.habits), fate)
    prompt = simulation.prompt_ids(asked, key, sees_reasoning=True)
    usage = _usage(made, prompt if isinstance(prompt, int) else len(prompt))
    entry.id = f"chatcmpl-{entry.identity[:24]}{entry.attempt}"
    if fate.fault is None or (BEHAVIOURS[fate.fault].billed and scenario.bills_lost):
        turn.charge(made, usage)
    shown = altered(_shown(made, asked, scenario), made, fate.habits, simulation.contract)
    if fate.fault == "abort":
        shown = replace(shown, finish_reason="abort")
    reply = _Reply(
        asked, scenario, fate, shown, made, prompt, reported(usage, made, fate.habits), entry.id, entry.received,
        simulation.vocabulary,
    )  # fmt: skip
    body = b"".join(reply.events()) if asked.stream else orjson.dumps(reply.document())
    return carried(body, fate, scenario, stream=asked.stream, n_ids=len(made.ids))


def _met(made: Answer, fate: Fate) -> Answer:
    """What is left of the answer where the engine gives up: some of its ids."""
    if fate.fault not in ("abort", "nan"):
        return made
    n = max(1, int(len(made.ids) * fate.cut_at))
    ids = made.ids[:n] if fate.fault == "abort" else (*made.ids[:n], made.ids[-1])
    return replace(made, ids=ids, tool_calls=(), content=None, finish="stop")


def _shown(made: Answer, asked: Asked, scenario: Scenario) -> Shown:
    """SGLang looks at the length first, so that a terminal at the cap is a `length`."""
    shown = show(made, ENGINE)
    at_cap = asked.max_tokens is not None and len(made.ids) >= asked.max_tokens
    return replace(shown, finish_reason="length") if scenario.engine == "sglang" and at_cap else shown


def _usage(made: Answer, prompt_ids: int) -> Body:
    completion = len(made.ids)
    return {
        "prompt_tokens": prompt_ids,
        "total_tokens": prompt_ids + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
    }


class _Reply:
    """One reply, whole or as events."""

    def __init__(
        self,
        asked: Asked,
        scenario: Scenario,
        fate: Fate,
        shown: Shown,
        made: Answer,
        prompt: tuple[int, ...] | int,
        usage: Body | None,
        reply_id: str,
        received: float,
        vocabulary: Vocabulary,
    ):
        self._asked, self._scenario, self._fate = asked, scenario, fate
        self._shown, self._made, self._usage, self._vocabulary = shown, made, usage, vocabulary
        self._prompt = None if isinstance(prompt, int) else prompt
        model = OTHER_MODEL if "other_model" in fate.habits else asked.model
        self._head: Body = {"id": reply_id, "created": int(received), "model": model}

    def document(self) -> Body:
        """The body of a reply that is not streamed."""
        shown, fault = self._shown, self._fate.fault
        head = {**self._head, "object": "chat.completion"}
        if fault in _WITHOUT_CHOICES:
            return _without_choices(head, fault)
        message: Body = {"role": "assistant", "content": shown.content or None}
        message[self._scenario.reasoning_field] = shown.reasoning
        if shown.tool_calls:
            message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in calls_of(shown)]
        ids = self._made.ids
        choice = {"index": 0, "message": message, **self._logprobs(ids), **self._end(), **self._ids(ids)}
        if fault == "error_in_choice":
            choice |= {"finish_reason": "error", "error": {"code": 500, "message": "The engine failed"}}
        usage = {} if self._usage is None else {"usage": self._usage}
        return {**head, "choices": [choice], **usage, **self._prompt_ids()}

    def events(self) -> Iterator[bytes]:
        """The stream: role and prompt ids, deltas with their ids, usage where asked for, [DONE]."""
        head = {**self._head, "object": "chat.completion.chunk"}
        fault, ids = self._fate.fault, self._made.ids
        if fault in _WITHOUT_CHOICES:
            yield _event(_without_choices(head, fault))
            yield DONE
            return
        opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        yield _event({**head, "choices": [opening], **self._prompt_ids()})
        steps = [self._step(step) for step in steps_of(self._shown)] or [{}]
        sent = len(steps)
        if fault in ("error_in_stream", "error_in_choice"):
            sent = max(1, int(len(steps) * self._fate.cut_at))
        for i, step in enumerate(steps[:sent]):
            # Ids are spread over the deltas; only their sum means anything, as on a real server.
            run = ids[len(ids) * i // len(steps) : len(ids) * (i + 1) // len(steps)]
            last = self._end() if i == len(steps) - 1 and sent == len(steps) else {"finish_reason": None}
            choice = {"index": 0, "delta": step, **self._logprobs(run), **last, **self._ids(run)}
            yield _event({**head, "choices": [choice]})
        if fault in ("error_in_stream", "error_in_choice"):
            yield error_event("The engine failed")
            return
        if self._asked.includes_usage and self._usage is not None:
            yield _event({**head, "choices": [], "usage": self._usage})
        if "missing_done" not in self._fate.habits:
            yield DONE

    def _step(self, step: Body) -> Body:
        """A delta under this server's names."""
        named = {k: v for k, v in step.items() if k not in ("role", "reasoning", "reasoning_details")}
        if "reasoning" in step:
            named = {self._scenario.reasoning_field: step["reasoning"]}
        return named

    def _end(self) -> Body:
        """The choice's end: finish_reason, and what stopped the engine under its engine's name."""
        told: Body = {"finish_reason": self._shown.finish_reason} if self._shown.names_finish else {}
        if self._scenario.engine == "vllm":
            return {**told, "stop_reason": None}
        matched = self._made.ids[-1] if self._shown.finish_reason in ("stop", "tool_calls") else None
        return {**told, "matched_stop": NAN if self._fate.fault == "nan" else matched}

    def _ids(self, ids: tuple[int, ...]) -> Body:
        if not self._asked.returns_ids:
            return {}
        return {"token_ids": None if "ids_null" in self._fate.habits else ids}

    def _logprobs(self, ids: tuple[int, ...]) -> Body:
        return {"logprobs": logprobs_of(ids, self._vocabulary) if self._asked.shows_logprobs and ids else None}

    def _prompt_ids(self) -> Body:
        return {"prompt_token_ids": self._prompt} if self._asked.returns_ids else {}


def _without_choices(head: Body, fault: str) -> Body:
    if fault == "no_choices":
        return head
    return {**head, "choices": None if fault == "null_choices" else []}


def _event(chunk: Body) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
