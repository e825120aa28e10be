"""Habits that change what is said: what the model emits, what the provider makes of it, and what it reports. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolkit.contract import Contract
from toolkit.records import ToolCall
from toolkit.simulate.answers import Answer
from toolkit.simulate.shown import Body, Shown

Habits = frozenset[str]


def emitted(answer: Answer, habits: Habits, contract: Contract) -> Answer:
    """What the model emits where a habit is its own; the ids change with the text. Cut answers are left alone."""
    if not answer.has_terminal or not habits & {"no_think_end", "empty_content", "tools_in_reasoning"}:
        return answer
    end = answer.ids[-1:]
    if "tools_in_reasoning" in habits and answer.has_think_end and answer.tool_calls and contract.tools is not None:
        section = answer.ids[answer.ids.index(contract.id_of(contract.tools.section_begin)) : -1]
        ids = answer.ids[: answer.reasoning_ids - 1] + section
        text = (answer.reasoning or "") + spelled_calls(answer.tool_calls, contract)
        return _stopped(answer, ids + end, text, "", has_think_end=False, reasoning_ids=len(ids))
    if "no_think_end" in habits and answer.has_think_end:
        ids = answer.ids[: answer.reasoning_ids - 1]
        return _stopped(answer, ids + end, answer.reasoning, None, has_think_end=False, reasoning_ids=len(ids))
    if "empty_content" in habits:
        ids = answer.ids[: answer.reasoning_ids]
        return _stopped(
            answer, ids + end, answer.reasoning, "", has_think_end=answer.has_think_end, reasoning_ids=len(ids)
        )
    return answer


def altered(shown: Shown, answer: Answer, habits: Habits, contract: Contract) -> Shown:
    """What the provider's habits make of a reply; the model's ids stay as they are."""
    if not habits:
        return shown
    if "trimmed_text" in habits:
        shown = replace(shown, reasoning=_stripped(shown.reasoning), content=_stripped(shown.content))
    if "tools_in_content" in habits and shown.tool_calls and answer.has_terminal:
        text = (shown.content or "") + spelled_calls(shown.tool_calls, contract)
        shown = replace(shown, content=text, tool_calls=(), finish_reason="stop", native_finish_reason="stop")
    return _reasons(_places(shown, answer, habits, contract), answer, habits)


def reported(usage: Body, answer: Answer, habits: Habits) -> Body | None:
    """The usage that is told; what is charged does not change with it."""
    if "usage_missing" in habits:
        return None
    completion, prompt = usage["completion_tokens"], usage["prompt_tokens"]
    details = usage.get("completion_tokens_details")
    if "usage_zero" in habits:
        prompt = completion = 0
        details = details and {**details, "reasoning_tokens": 0}
    if "usage_off_by_one" in habits:
        completion += 1
    if "reasoning_outside" in habits:
        # An engine's own server has no details to put it beside.
        completion = max(0, completion - answer.reasoning_ids)
    told = {**usage, "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if details is not None:
        told["completion_tokens_details"] = details
    return told


def spelled_calls(calls: Sequence[ToolCall], contract: Contract) -> str:
    """The tool section of `calls` as text, markers spelled out; empty where the contract has no tools."""
    form = contract.tools
    if form is None:
        return ""
    texts = [form.section_begin]
    for call in calls:
        parts = {"{id}": call.id or "", "{arguments}": call.arguments or ""}
        texts += [parts.get(piece, piece) for piece in form.call]
    return "".join([*texts, form.section_end])


def _stopped(
    answer: Answer,
    ids: tuple[int, ...],
    reasoning: str | None,
    content: str | None,
    *,
    has_think_end: bool,
    reasoning_ids: int,
) -> Answer:
    """`answer` with these ids and texts, ended by the terminal and without calls."""
    return replace(
        answer,
        ids=ids,
        reasoning=reasoning,
        content=content,
        tool_calls=(),
        finish="stop",
        has_think_end=has_think_end,
        reasoning_ids=reasoning_ids,
    )


def _places(shown: Shown, answer: Answer, habits: Habits, contract: Contract) -> Shown:
    """The texts where a provider puts them; at most one of these habits meets a reply, the first in this order."""
    reasoning, content = shown.reasoning, shown.content
    if "all_in_reasoning" in habits and content:
        shown = replace(shown, reasoning=(reasoning or "") + content, content="")
    elif "reasoning_in_content" in habits and reasoning is not None and contract.think is not None:
        marker = contract.think.end if answer.has_think_end else ""
        shown = replace(shown, reasoning=None, content=reasoning + marker + (content or ""))
    elif "reasoning_unmarked" in habits and reasoning is not None:
        shown = replace(shown, reasoning=None, content=reasoning + (content or ""))
    elif "reasoning_null" in habits:
        shown = replace(shown, reasoning=None)
    elif "reasoning_empty" in habits and reasoning is not None:
        shown = replace(shown, reasoning="")
    if "terminal_in_text" in habits and answer.has_terminal and not shown.tool_calls:
        shown = replace(shown, content=(shown.content or "") + contract.terminals["stop"])
    return shown


def _reasons(shown: Shown, answer: Answer, habits: Habits) -> Shown:
    if "length_with_terminal" in habits and answer.has_terminal:
        shown = replace(shown, finish_reason="length", native_finish_reason="length")
    if "finish_disagrees" in habits and answer.finish != "stop":
        told = "stop" if answer.finish == "length" else shown.finish_reason
        native = "length" if answer.finish == "length" else "stop"
        shown = replace(shown, finish_reason=told, native_finish_reason=native)
    if "finish_null" in habits:
        shown = replace(shown, finish_reason=None, native_finish_reason=None)
    return replace(shown, names_finish=False) if "finish_missing" in habits else shown


def _stripped(text: str | None) -> str | None:
    return text.strip() if text else text
