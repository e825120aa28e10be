"""What the simulated server remembers while it runs: answers, prompt lengths, and what was billed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import orjson

from toolkit.contract import Contract
from toolkit.prompt import PromptRenderer
from toolkit.simulate.answers import Answer, answer
from toolkit.simulate.asked import Asked
from toolkit.simulate.providers import Body, Envelope, SimulatedProvider
from toolkit.simulate.scenario import Scenario
from toolkit.vocabulary import Vocabulary

_MAX_CACHED = 20_000
_REASONING_FIELDS = frozenset({"reasoning", "reasoning_content", "reasoning_details"})

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """One reply that was paid for; `prompt_key` names its prompt, `output_ids` are the model's own."""

    id: str
    provider: str
    prompt_key: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    output_ids: tuple[int, ...] | None


class Simulation:
    """What the server remembers: answers and prompt lengths (bounded), the ledger, requests per prompt."""

    def __init__(self, contract: Contract, vocabulary: Vocabulary, scenario: Scenario):
        self.contract = contract
        self.vocabulary = vocabulary
        self.scenario = scenario
        self.billed: list[Billed] = []
        self.cost_usd = 0.0
        self.requests: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._renderer = PromptRenderer(contract, vocabulary)
        self._answers: dict[tuple[str, int, int | None, str], Answer] = {}
        self._prompt_ids: dict[tuple[str, bool], int] = {}

    def warm(self) -> None:
        """Pay for the imports of rendering before the first request does."""
        for mode in self.contract.modes:
            self._renderer.render([{"role": "user", "content": "hello"}], None, mode)

    def answer_to(self, asked: Asked, key: str) -> Answer:
        """The answer to `asked`, whose `prompt_key` is `key`."""
        choice = f"{asked.calls_tools} {asked.tool} {asked.parallel_calls}" if asked.tools else ""
        cached = (key, asked.nonce, asked.max_tokens, choice)
        return _remembered(
            self._answers,
            cached,
            lambda: answer(asked, self.contract, self.vocabulary, seed=self.scenario.seed, key=key),
        )

    def prompt_ids(self, asked: Asked, key: str, provider: SimulatedProvider) -> int:
        """How many ids the prompt has, as `provider` renders it."""
        return _remembered(self._prompt_ids, (key, provider.sees_reasoning), lambda: self._render(asked, provider))

    def bill(self, envelope: Envelope, key: str, made: Answer, usage: Body) -> None:
        """Write one reply into the ledger."""
        self.cost_usd += usage["cost"]
        self.billed.append(
            Billed(
                id=envelope.id,
                provider=envelope.provider,
                prompt_key=key,
                finish_reason=made.finish,
                prompt_tokens=usage["prompt_tokens"],
                completion_tokens=usage["completion_tokens"],
                cost_usd=usage["cost"],
                output_ids=made.ids,
            )
        )

    def _render(self, asked: Asked, provider: SimulatedProvider) -> int:
        messages = asked.messages
        if not provider.sees_reasoning:
            messages = [{k: v for k, v in message.items() if k not in _REASONING_FIELDS} for message in messages]
        ids = self._renderer.render(messages, asked.tools, asked.mode).ids
        # Without a renderer the length is only of the right size; nothing is held against it then.
        return len(ids) if ids is not None else len(self.vocabulary.encode_ordinary(orjson.dumps(messages).decode()))


def _remembered(cache: dict[_K, _V], key: _K, make: Callable[[], _V]) -> _V:
    """`cache[key]`, made when it is missing; the oldest entry leaves a full cache."""
    if key not in cache:
        if len(cache) >= _MAX_CACHED:
            del cache[next(iter(cache))]
        cache[key] = make()
    return cache[key]
