"""Every misbehaviour that the simulation can play, by name, and where it can be met.

A fault takes the place of a whole reply: at most one meets a request. A habit changes a reply, and several can meet
the same one. A name that means nothing for a request (a stream's habit for a reply that is not streamed, OpenRouter's
402 at an engine) does not meet it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Face = Literal["openrouter", "sglang", "chat"]
"""`openrouter`: /api/v1; `sglang`: POST /generate; `chat`: /v1/chat/completions of an engine."""

_ALL: frozenset[Face] = frozenset({"openrouter", "sglang", "chat"})
_TEXT: frozenset[Face] = frozenset({"openrouter", "chat"})
_OPENROUTER: frozenset[Face] = frozenset({"openrouter"})
_SGLANG: frozenset[Face] = frozenset({"sglang"})
_CHAT: frozenset[Face] = frozenset({"chat"})
_ENGINES: frozenset[Face] = frozenset({"sglang", "chat"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One name of a scenario's `faults`.

    Attributes:
        plays: What comes over the wire, in one sentence.
        kind: Whether it replaces a reply or changes one.
        faces: The servers at which it is met.
        streamed: True, False: met by such requests only; None: by both.
        billed: For a fault: the answer was made and is paid for, unless the scenario says `bills_lost = false`.
    """

    name: str
    plays: str
    kind: Literal["fault", "habit"]
    faces: frozenset[Face] = _ALL
    streamed: bool | None = None
    billed: bool = False

    def meets(self, face: Face, *, stream: bool) -> bool:
        """Whether a request of this kind can meet it."""
        return face in self.faces and self.streamed in (None, stream)


def _fault(
    name: str, plays: str, faces: frozenset[Face] = _ALL, *, streamed: bool | None = None, billed: bool = False
) -> Behaviour:
    return Behaviour(name=name, plays=plays, kind="fault", faces=faces, streamed=streamed, billed=billed)


def _habit(name: str, plays: str, faces: frozenset[Face] = _ALL, *, streamed: bool | None = None) -> Behaviour:
    return Behaviour(name=name, plays=plays, kind="habit", faces=faces, streamed=streamed)


_BEHAVIOURS = (
    # Refusals with a status of their own.
    _fault("http_429", "429 of the provider, with or without Retry-After"),
    _fault("http_429_platform", "429 of OpenRouter itself, with X-RateLimit headers", _OPENROUTER),
    _fault("http_502", "502, the provider is down or answered nonsense"),
    _fault("error_in_200", "status 200, every field null but the error (code 502); in a stream, an error event"),
    _fault("http_524", "524 of the edge, as an HTML page"),
    _fault("empty_choices", "status 200 with `choices: []`", _TEXT),
    _fault(
        "cut_stream", "a stream that ends in the middle, torn or in order, without [DONE]", streamed=True, billed=True
    ),
    _fault("http_400", "400, the provider refuses the content", _ALL),
    _fault("http_401", "401, the key is not known", _OPENROUTER),
    _fault("http_403", "403 of moderation, with reasons and the flagged words", _OPENROUTER),
    _fault("http_408", "408, timed out"),
    _fault("http_500", "500, message masked"),
    _fault("http_503_retryable", "503 with availability.retryable true and a Retry-After (engines: a flat body)"),
    _fault("http_503_final", "503 with availability.retryable false", _OPENROUTER),
    _fault("http_504", "504, the provider was too slow"),
    _fault("http_529", "529, the provider is overloaded", _OPENROUTER),
    _fault("in_flight_402", "402 in_flight_budget_exhausted, with Retry-After", _OPENROUTER),
    _fault("credits_402", "402 weight_exceeds_budget, the credits are spent", _OPENROUTER),
    _fault("key_limit_402", "402 of the key's own limit", _OPENROUTER),
    # Status 200, and no answer.
    _fault("rate_limit_in_200", "status 200, every field null, error.code 429", _OPENROUTER),
    _fault("null_choices", "status 200 with `choices: null`", _TEXT),
    _fault("no_choices", "status 200 without `choices`, usage of no completion", _TEXT),
    _fault("no_choices_charged", "status 200 without `choices`, yet with usage and a cost", _OPENROUTER, billed=True),
    _fault("error_in_choice", "status 200, part of the text, finish_reason error and an error in the choice", _TEXT),
    _fault("error_in_stream", "a stream that ends in an error event after part of the text", streamed=True),
    _fault("empty_body", "status 200 and no byte of body", billed=True),
    _fault("whitespace_body", "status 200 and blank lines only", billed=True),
    _fault("cut_before_headers", "the connection is torn before the first byte of a reply", billed=True),
    _fault("cut_body", "a JSON body that is torn in the middle", streamed=False, billed=True),
    _fault("abort", "status 200 with partial ids and finish_reason abort", _ENGINES),
    _fault("nan", "a stop id in place of a sampled one, matched 'NaN happened'", _ENGINES),
    # How a reply is carried.
    _habit("blank_lines", "blank lines before the JSON, sent while the model answers", streamed=False),
    _habit("comments", "keep-alive comments between the events of a stream", _OPENROUTER, streamed=True),
    _habit("usage_alone", "the stream's usage comes with `choices: []`", _OPENROUTER, streamed=True),
    _habit("missing_done", "a whole stream without [DONE]", streamed=True),
    _habit("duplicate_reply", "a request sent again gets the first reply once more, same id, not billed", _OPENROUTER),
    # Who answers.
    _habit("other_provider", "a provider that the request excluded answers all the same", _OPENROUTER),
    _habit("other_model", "the reply bears the name of a model that was not asked for", _TEXT),
    # What the model does.
    _habit("no_think_end", "the model stops without ending its reasoning: finish stop, no content", _ALL),
    _habit("empty_content", "the model ends its reasoning and says no more: finish stop, no content", _ALL),
    _habit("tools_in_reasoning", "calls that begin inside the reasoning, left there as text, finish stop", _TEXT),
    # What the provider does to it.
    _habit("tools_in_content", "calls left in the content as text, finish stop", _TEXT),
    _habit("all_in_reasoning", "the content at the end of the reasoning, content empty, finish stop", _TEXT),
    _habit("reasoning_in_content", "reasoning, its end marker and content in the content, reasoning null", _TEXT),
    _habit("reasoning_unmarked", "the same without the marker", _TEXT),
    _habit("reasoning_null", "reasoning null although the model thought", _TEXT),
    _habit("reasoning_empty", 'reasoning "" although the model thought', _TEXT),
    _habit("terminal_in_text", "the terminal spelled at the end of the content", _TEXT),
    _habit("trimmed_text", "white space at both ends of reasoning and content taken off", _TEXT),
    _habit("finish_null", "finish_reason and native_finish_reason null", _TEXT),
    _habit("finish_missing", "neither finish_reason nor native_finish_reason", _TEXT),
    _habit("finish_disagrees", "cut: finish stop, native length; called: finish tool_calls, native stop", _OPENROUTER),
    _habit("length_with_terminal", "finish length although the last id is the terminal", _ALL),
    _habit("usage_missing", "no usage (engine: no counts)", _TEXT),
    _habit("usage_zero", "usage with every count 0", _TEXT),
    _habit("usage_off_by_one", "completion_tokens one too many", _TEXT),
    _habit("reasoning_outside", "completion_tokens without the reasoning, which stands beside it", _TEXT),
    _habit("ids_null", "token_ids null although they were asked for", _CHAT),
)

BEHAVIOURS = {behaviour.name: behaviour for behaviour in _BEHAVIOURS}
"""All of them, by name; faults are drawn in this order."""

FAULTS = tuple(b.name for b in _BEHAVIOURS if b.kind == "fault")
HABITS = tuple(b.name for b in _BEHAVIOURS if b.kind == "habit")
