"""Bodies and streams in the shape of recorded OpenRouter traffic."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from toolkit.records import Json
from toolkit.simulate.providers import SimulatedProvider
from toolkit.simulate.shown import Body, Shown
from toolkit.vocabulary import Vocabulary

PROCESSING = b": OPENROUTER PROCESSING\n\n"
DONE = b"data: [DONE]\n\n"
BLANK_LINES = b"\n         \n" * 12
_WORDS_PER_DELTA = 2
_WORD = re.compile(r"\s*\S{1,16}|\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The fields that every body and chunk of one reply bears; `created` in seconds since 1970."""

    id: str
    created: int
    model: str
    provider: str


def body_of(shown: Shown, envelope: Envelope, usage: Body | None) -> Body:
    """The body of a reply that is not streamed."""
    message: Body = {"role": "assistant", "content": shown.content, "refusal": None, "reasoning": shown.reasoning}
    if shown.tool_calls:
        message["tool_calls"] = calls_of(shown)
    if shown.reasoning is not None:
        message["reasoning_details"] = details_of(shown.reasoning)
    return {
        **head_of(envelope, "chat.completion"),
        "system_fingerprint": None,
        "choices": [{"index": 0, "logprobs": None, **reasons_of(shown), "message": message}],
        **({} if usage is None else {"usage": usage}),
    }


# --- streams -----------------------------------------------------------------------------------


def deltas_of(shown: Shown) -> tuple[bytes, ...]:
    """The deltas of a stream, as JSON, in order: reasoning, content, calls, each a few words at a time."""
    return tuple(orjson.dumps(delta) for delta in steps_of(shown))


def events_of(
    deltas: Sequence[bytes], shown: Shown, envelope: Envelope, usage: Body | None, *, usage_alone: bool = False
) -> Iterator[bytes]:
    """The events of a stream, without [DONE]: deltas, the end, and the chunk with usage.

    That chunk repeats the finish reasons, as recorded; with `usage_alone` its `choices` is empty, as documented.
    """
    # Only the delta differs from event to event, so the rest is made once.
    head = b"data: " + orjson.dumps(head_of(envelope, "chat.completion.chunk"))[:-1]
    open_end = b',"finish_reason":null,"native_finish_reason":null}]}\n\n'
    closed = (b"," + orjson.dumps(reasons_of(shown))[1:] if shown.names_finish else b"}") + b"]"
    for delta in deltas:
        yield head + b',"choices":[{"index":0,"delta":' + delta + open_end
    last = b'{"content":"","role":"assistant","reasoning":null}'
    yield head + b',"choices":[{"index":0,"delta":' + last + closed + b"}\n\n"
    reported = b"" if usage is None else b',"usage":' + orjson.dumps(usage)
    if usage_alone:
        yield head + b',"choices":[]' + reported + b"}\n\n"
        return
    again = b'{"content":"","role":"assistant"}'
    yield head + b',"choices":[{"index":0,"delta":' + again + closed + reported + b"}\n\n"


def steps_of(shown: Shown) -> Iterator[Body]:
    """The same deltas as objects."""
    for text in _split(shown.reasoning or ""):
        yield {"content": "", "role": "assistant", "reasoning": text, "reasoning_details": details_of(text)}
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


# --- side endpoints ----------------------------------------------------------------------------


def endpoints_body(providers: Sequence[SimulatedProvider], model: str, title: str) -> Body:
    """What GET /api/v1/models/{author}/{slug}/endpoints answers."""
    endpoints = [
        {
            "name": f"{provider.name} | {model}",
            "model_id": model,
            "provider_name": provider.name,
            "tag": f"{provider.slug}/{provider.quantization}",
            "quantization": provider.quantization,
            "context_length": provider.context_length,
            "max_completion_tokens": provider.max_completion_tokens,
            "max_prompt_tokens": None,
            "pricing": {
                "prompt": _price(provider.prompt_usd),
                "completion": _price(provider.completion_usd),
                "request": "0",
            },
            "supported_parameters": sorted(provider.supported_parameters),
            "status": provider.status,
            "uptime_last_5m": 100,
            "uptime_last_30m": 100,
            "uptime_last_1d": 100,
            "supports_implicit_caching": False,
        }
        for provider in providers
    ]
    return {"data": {"id": model, "name": title, "created": 1769472000, "description": title, "endpoints": endpoints}}


# --- small shapes ------------------------------------------------------------------------------


def head_of(envelope: Envelope, kind: str) -> Body:
    """The fields in front of `choices`."""
    return {
        "id": envelope.id,
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
        "provider": envelope.provider,
    }


def logprobs_of(ids: Sequence[int], vocabulary: Vocabulary) -> Body:
    """`logprobs` of a choice: each sampled token with its bytes, the control tokens spelled, as engines show them.

    The probabilities are made up; only which tokens there are means anything.
    """
    pieces = (vocabulary.decode_bytes([token_id]) for token_id in ids)
    return {
        "content": [
            {"token": piece.decode(errors="replace"), "bytes": list(piece), "logprob": -0.1, "top_logprobs": []}
            for piece in pieces
        ]
    }


def reasons_of(shown: Shown) -> Body:
    """The finish reasons of a choice; empty where the reply names none."""
    if not shown.names_finish:
        return {}
    return {"finish_reason": shown.finish_reason, "native_finish_reason": shown.native_finish_reason}


def calls_of(shown: Shown) -> list[Body]:
    """The calls of a message."""
    return [
        {"type": "function", "index": i, "id": c.id, "function": {"name": c.name, "arguments": c.arguments}}
        for i, c in enumerate(shown.tool_calls)
    ]


def details_of(text: str) -> list[Json]:
    """`reasoning_details` of a reasoning that is told as it is."""
    return [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]


def _price(usd: float) -> str:
    return f"{usd:.10f}".rstrip("0").rstrip(".")
