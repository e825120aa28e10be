"""An answer as one provider passes it on: text, calls, finish reasons, and the usage that it reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from toolkit.records import ToolCall
from toolkit.simulate.answers import Answer
from toolkit.simulate.providers import SimulatedProvider

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What of an answer one provider lets through; the texts after its changes.

    `names_finish` False: the reply has neither finish_reason nor native_finish_reason.
    """

    reasoning: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    native_finish_reason: str | None
    names_finish: bool = True


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


def _rewritten(call: ToolCall) -> ToolCall:
    """`call` with its arguments parsed and written anew, without spaces; as it was where they are cut short."""
    try:
        arguments = orjson.dumps(orjson.loads(call.arguments or "")).decode()
    except orjson.JSONDecodeError:
        return call
    return ToolCall(id=call.id, name=call.name, arguments=arguments)
