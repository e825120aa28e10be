"""How a provider shapes the model's answer into a body: what it counts, what it does to text, its own words.

Bodies, chunks and errors have the shape of recorded OpenRouter traffic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from toolkit.records import Json, ToolCall
from toolkit.simulate.answers import Answer

Body = dict[str, Any]
Uncounted = Literal["nothing", "terminal", "terminal_and_think"]

PROCESSING = b": OPENROUTER PROCESSING\n\n"
DONE = b"data: [DONE]\n\n"
BLANK_LINES = b"\n         \n" * 12
_WORDS_PER_DELTA = 2
_WORD = re.compile(r"\s*\S{1,16}|\s+")

EDGE_TIMEOUT_PAGE = (
    '<!DOCTYPE html>\n<html lang="en-US">\n<head><title>openrouter.ai | 524: A timeout occurred</title></head>\n'
    "<body><h1>A timeout occurred <span>Error code 524</span></h1></body>\n</html>\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedProvider:
    """One provider behind the simulated OpenRouter.

    Attributes:
        name: The display name that replies bear.
        slug: What requests call it.
        share: Its weight among the providers that a request allows.
        counts: Which ids completion_tokens leaves out.
        reasoning_inside: False: completion_tokens leaves out the reasoning, which is reported beside it.
        prompt_offset_with_tools: What it reports above the rendered prompt as soon as a tool is declared.
        sees_reasoning: False: the reasoning of earlier turns never reaches the model.
        native_finish: Its own words for finish reasons; the same word where it has none.
        trims_text: Whether it strips reasoning and content.
        rewrites_arguments: Whether it parses and writes anew the arguments of calls.
        prompt_usd, completion_usd: Price per token, US dollars.
    """

    name: str
    slug: str
    share: float = 1.0
    counts: Uncounted = "nothing"
    reasoning_inside: bool = True
    prompt_offset_with_tools: int = 0
    sees_reasoning: bool = True
    native_finish: Mapping[str, str] = field(default_factory=dict)
    trims_text: bool = False
    rewrites_arguments: bool = False
    quantization: str = "int4"
    prompt_usd: float = 0.44e-6
    completion_usd: float = 2.0e-6


PROVIDERS = (
    SimulatedProvider(name="Chutes", slug="chutes", share=0.45),
    SimulatedProvider(name="Inceptron", slug="inceptron", share=0.3, counts="terminal", completion_usd=2.2e-6),
    SimulatedProvider(name="ModelRun", slug="modelrun", share=0.25, prompt_usd=0.5e-6, completion_usd=2.4e-6),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What of an answer one provider lets through; the texts after its changes."""

    reasoning: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    native_finish_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The fields that every body and chunk of one reply bears; `created` in seconds since 1970."""

    id: str
    created: int
    model: str
    provider: str


def show(answer: Answer, provider: SimulatedProvider, *, shows_reasoning: bool = True) -> Shown:
    """`answer` as `provider` passes it on."""
    strip = provider.trims_text
    reasoning = answer.reasoning if shows_reasoning else None
    return Shown(
        reasoning=reasoning.strip() if strip and reasoning else reasoning,
        content=answer.content.strip() or None if strip and answer.content else answer.content,
        tool_calls=tuple(map(_rewritten, answer.tool_calls)) if provider.rewrites_arguments else answer.tool_calls,
        finish_reason=answer.finish,
        native_finish_reason=provider.native_finish.get(answer.finish, answer.finish),
    )


def usage_of(answer: Answer, provider: SimulatedProvider, *, prompt_ids: int, has_tools: bool) -> Body:
    """The `usage` that `provider` reports for an answer to a prompt of `prompt_ids` ids."""
    counted = len(answer.ids)
    if provider.counts != "nothing":
        counted -= answer.has_terminal
    if provider.counts == "terminal_and_think":
        counted -= answer.has_think_end
    prompt = prompt_ids + (provider.prompt_offset_with_tools if has_tools else 0)
    prompt_usd, completion_usd = prompt * provider.prompt_usd, counted * provider.completion_usd
    completion = counted if provider.reasoning_inside else counted - answer.reasoning_ids
    cost = round(prompt_usd + completion_usd, 10)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "cost": cost,
        "is_byok": False,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 0, "video_tokens": 0},
        "cost_details": {
            "upstream_inference_cost": cost,
            "upstream_inference_prompt_cost": round(prompt_usd, 10),
            "upstream_inference_completions_cost": round(completion_usd, 10),
        },
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning_ids, "image_tokens": 0, "audio_tokens": 0},
    }


def body_of(shown: Shown, envelope: Envelope, usage: Body) -> Body:
    """The body of a reply that is not streamed."""
    message: Body = {"role": "assistant", "content": shown.content, "refusal": None, "reasoning": shown.reasoning}
    if shown.tool_calls:
        message["tool_calls"] = [
            {"type": "function", "index": i, "id": c.id, "function": {"name": c.name, "arguments": c.arguments}}
            for i, c in enumerate(shown.tool_calls)
        ]
    if shown.reasoning is not None:
        message["reasoning_details"] = _details(shown.reasoning)
    return {
        **_head(envelope, "chat.completion"),
        "system_fingerprint": None,
        "choices": [
            {
                "index": 0,
                "logprobs": None,
                "finish_reason": shown.finish_reason,
                "native_finish_reason": shown.native_finish_reason,
                "message": message,
            }
        ],
        "usage": usage,
    }


# --- streams -----------------------------------------------------------------------------------


def deltas_of(shown: Shown) -> tuple[bytes, ...]:
    """The deltas of a stream, as JSON, in order: reasoning, content, calls, each a few words at a time."""
    return tuple(orjson.dumps(delta) for delta in _deltas(shown))


def events_of(deltas: Sequence[bytes], shown: Shown, envelope: Envelope, usage: Body) -> Iterator[bytes]:
    """The events of a stream, without [DONE]: deltas, the end, and the chunk with usage."""
    # Only the delta differs from event to event, so the rest is made once.
    head = b"data: " + orjson.dumps(_head(envelope, "chat.completion.chunk"))[:-1]
    open_end = b',"finish_reason":null,"native_finish_reason":null}]}\n\n'
    reasons = {"finish_reason": shown.finish_reason, "native_finish_reason": shown.native_finish_reason}
    closed = b"," + orjson.dumps(reasons)[1:] + b"]"
    for delta in deltas:
        yield head + b',"choices":[{"index":0,"delta":' + delta + open_end
    last = b'{"content":"","role":"assistant","reasoning":null}'
    yield head + b',"choices":[{"index":0,"delta":' + last + closed + b"}\n\n"
    again = b'{"content":"","role":"assistant"}'
    yield head + b',"choices":[{"index":0,"delta":' + again + closed + b',"usage":' + orjson.dumps(usage) + b"}\n\n"


def _deltas(shown: Shown) -> Iterator[Body]:
    for text in _split(shown.reasoning or ""):
        yield {"content": "", "role": "assistant", "reasoning": text, "reasoning_details": _details(text)}
    for text in _split(shown.content or ""):
        yield {"content": text, "role": "assistant"}
    for i, call in enumerate(shown.tool_calls):
        opening = {"index": i, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield {"content": None, "role": "assistant", "tool_calls": [opening]}
        for text in _split(call.arguments or ""):
            step = {"index": i, "function": {"arguments": text}}
            yield {"content": None, "role": "assistant", "tool_calls": [step]}


def _split(text: str) -> Iterator[str]:
    words = _WORD.findall(text)
    for at in range(0, len(words), _WORDS_PER_DELTA):
        yield "".join(words[at : at + _WORDS_PER_DELTA])


# --- errors ------------------------------------------------------------------------------------


def error_body(status: int, message: str, provider: SimulatedProvider | None = None) -> Body:
    """OpenRouter's error shape; with `provider`, the one for errors that came from upstream."""
    error: Body = {"message": message, "code": status}
    if provider is not None:
        error["metadata"] = {"provider_name": provider.name, "raw": f"{provider.name} answered with status {status}"}
    return {"error": error}


def error_in_200(provider: SimulatedProvider) -> Body:
    """The body of a failure that comes with status 200: every field null but the error."""
    fields: Body = dict.fromkeys(("id", "object", "created", "model", "provider", "choices", "usage"))
    return {**fields, **error_body(502, "Provider returned error", provider)}


def error_event(envelope: Envelope, provider: SimulatedProvider) -> bytes:
    """The event that ends a stream which failed in the middle."""
    choice = {"index": 0, "delta": {"content": "", "role": "assistant"}, "finish_reason": "error"}
    chunk = {**_head(envelope, "chat.completion.chunk"), **error_body(502, "Provider returned error", provider)}
    return b"data: " + orjson.dumps({**chunk, "choices": [choice]}) + b"\n\n"


def empty_choices(envelope: Envelope, kind: str = "chat.completion") -> Body:
    """A body, or a chunk, whose `choices` is an empty list."""
    return {**_head(envelope, kind), "choices": []}


def endpoints_body(providers: Sequence[SimulatedProvider], model: str, title: str) -> Body:
    """What GET /api/v1/models/{author}/{slug}/endpoints answers."""
    endpoints = [
        {
            "name": f"{provider.name} | {model}",
            "model_id": model,
            "provider_name": provider.name,
            "tag": f"{provider.slug}/{provider.quantization}",
            "quantization": provider.quantization,
            "context_length": 262144,
            "max_completion_tokens": None,
            "max_prompt_tokens": None,
            "pricing": {
                "prompt": _price(provider.prompt_usd),
                "completion": _price(provider.completion_usd),
                "request": "0",
            },
            "supported_parameters": ["max_tokens", "reasoning", "seed", "temperature", "tool_choice", "tools", "top_p"],
            "status": 0,
            "uptime_last_30m": 100,
            "supports_implicit_caching": False,
        }
        for provider in providers
    ]
    return {"data": {"id": model, "name": title, "created": 1769472000, "description": title, "endpoints": endpoints}}


# --- small shapes ------------------------------------------------------------------------------


def _head(envelope: Envelope, kind: str) -> Body:
    return {
        "id": envelope.id,
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
        "provider": envelope.provider,
    }


def _details(text: str) -> list[Json]:
    return [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]


def _price(usd: float) -> str:
    return f"{usd:.10f}".rstrip("0")


def _rewritten(call: ToolCall) -> ToolCall:
    """`call` with its arguments parsed and written anew, without spaces; as it was where they are cut short."""
    try:
        arguments = orjson.dumps(orjson.loads(call.arguments or "")).decode()
    except orjson.JSONDecodeError:
        return call
    return ToolCall(id=call.id, name=call.name, arguments=arguments)
