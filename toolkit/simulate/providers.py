"""Providers: what one counts, what it does to text, its own words, prices and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from toolkit.simulate.limits import Limit

Uncounted = Literal["nothing", "terminal", "terminal_and_think"]

PARAMETERS = frozenset(
    {
        "max_tokens", "min_p", "reasoning", "repetition_penalty", "response_format", "seed", "stop", "temperature",
        "tool_choice", "tools", "top_k", "top_p",
    }
)  # fmt: skip
"""What a provider supports unless it says otherwise."""


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
        max_completion_tokens: The longest answer that it returns; None: no limit of its own.
        status: What the endpoint list says of it; 0 is normal.
        faults: Its own rates, by the names in `behaviours`, in place of the scenario's.
        latency_s: Its own shortest and longest latency; None: the scenario's.
        per_token_s: Its own time for each completion token; None: the scenario's.
        limit: What it lets through; refusals are 429 with its name.
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
    max_completion_tokens: int | None = None
    context_length: int = 262_144
    supported_parameters: frozenset[str] = PARAMETERS
    status: int = 0
    faults: Mapping[str, float] = field(default_factory=dict)
    latency_s: tuple[float, float] | None = None
    per_token_s: float | None = None
    limit: Limit | None = None


PROVIDERS = (
    SimulatedProvider(name="Chutes", slug="chutes", share=0.45),
    SimulatedProvider(name="Inceptron", slug="inceptron", share=0.3, counts="terminal", completion_usd=2.2e-6),
    SimulatedProvider(name="ModelRun", slug="modelrun", share=0.25, prompt_usd=0.5e-6, completion_usd=2.4e-6),
)

ENGINE = SimulatedProvider(name="engine", slug="engine", prompt_usd=0.0, completion_usd=0.0)
"""The engine behind the faces without providers: it counts every id and changes nothing."""
