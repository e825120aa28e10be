"""What the simulated server remembers while it runs: answers, prompt lengths, limits, money, and its books."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import orjson

from toolkit.contract import Contract
from toolkit.prompt import PromptRenderer
from toolkit.simulate.account import Account
from toolkit.simulate.answers import Answer, answer, prompt_key
from toolkit.simulate.asked import Asked
from toolkit.simulate.behaviours import Face
from toolkit.simulate.bodies import Envelope
from toolkit.simulate.canned import canned_answers
from toolkit.simulate.defects import emitted
from toolkit.simulate.fate import Fate
from toolkit.simulate.ledger import Entry, Ledger
from toolkit.simulate.limits import Limiter
from toolkit.simulate.providers import SimulatedProvider
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.shown import Body
from toolkit.vocabulary import Vocabulary

_MAX_CACHED = 20_000
_CANNED_PROMPT_IDS = 32
_REASONING_FIELDS = frozenset({"reasoning", "reasoning_content", "reasoning_details"})

_K = TypeVar("_K")
_V = TypeVar("_V")


class Simulation:
    """The state behind one server; `ledger`, `account`, `limiter` and `limiters` (by slug) are for tests to read."""

    def __init__(self, contract: Contract, vocabulary: Vocabulary, scenario: Scenario, ledger: Ledger | None = None):
        self.contract = contract
        self.vocabulary = vocabulary
        self.scenario = scenario
        self.reply_model = scenario.reply_model or _dated_model(contract)
        self.ledger = ledger or Ledger()
        self.account = Account(scenario.account)
        self.limiter = Limiter(scenario.limit)
        self.limiters = {p.slug: Limiter(p.limit) for p in scenario.providers if p.limit is not None}
        self.requests: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.generations: dict[str, Generation] = {}
        self.first_replies: dict[str, FirstReply] = {}
        rates = (scenario.faults, *(provider.faults for provider in scenario.providers))
        self.keeps_first_replies = any(names.get("duplicate_reply") for names in rates)
        self._attempts: Counter[str] = Counter()
        self._renderer = PromptRenderer(contract, vocabulary)
        self._answers: dict[tuple[str, int, int | None, str], Answer] = {}
        self._prompt_ids: dict[tuple[str, bool], tuple[int, ...] | int] = {}
        size = scenario.canned_bytes
        self._canned = () if size is None else canned_answers(contract, vocabulary, size)

    def warm(self) -> None:
        """Pay for the imports of rendering before the first request does."""
        if not self._canned:
            for mode in self.contract.modes:
                self._renderer.render([{"role": "user", "content": "hello"}], None, mode)

    def open(self, face: Face, body: bytes) -> Turn:
        """A request that was just read; nothing of it is in the books before `Turn.receive`."""
        entry = Entry(
            number=len(self.ledger.entries),
            face=face,
            received=time.time(),
            body_sha256=hashlib.sha256(body).hexdigest(),
        )
        return Turn(simulation=self, entry=entry)

    def answer_to(self, asked: Asked, key: str, nonce: int, habits: frozenset[str]) -> Answer:
        """The answer to `asked`, whose `prompt_key` is `key`; another `nonce` gives another one."""
        if self._canned:
            return self._canned[int(key[:8], 16) % len(self._canned)]
        choice = f"{asked.calls_tools} {asked.tool} {asked.parallel_calls}" if asked.tools else ""
        made = _remembered(
            self._answers,
            (key, nonce, asked.max_tokens, choice),
            lambda: answer(
                replace(asked, nonce=nonce), self.contract, self.vocabulary, seed=self.scenario.seed, key=key
            ),
        )
        return emitted(made, habits, self.contract)

    def prompt_ids(self, asked: Asked, key: str, *, sees_reasoning: bool) -> tuple[int, ...] | int:
        """Ids of the prompt as a server renders it; only their number where no renderer knows them."""
        if self._canned:
            return _CANNED_PROMPT_IDS
        return _remembered(self._prompt_ids, (key, sees_reasoning), lambda: self._render(asked, sees_reasoning))

    def prompt_length(self, asked: Asked, key: str, provider: SimulatedProvider) -> int:
        """How many ids the prompt has, as `provider` renders it."""
        ids = self.prompt_ids(asked, key, sees_reasoning=provider.sees_reasoning)
        return ids if isinstance(ids, int) else len(ids)

    def count_attempt(self, identity: str, key: str) -> int:
        """Count one more request; how many of this identity came before."""
        attempt = self._attempts[identity]
        self._attempts[identity] += 1
        self.requests[key] += 1
        return attempt

    def _render(self, asked: Asked, sees_reasoning: bool) -> tuple[int, ...] | int:
        messages = asked.messages
        if not sees_reasoning:
            messages = [{k: v for k, v in message.items() if k not in _REASONING_FIELDS} for message in messages]
        ids = self._renderer.render(messages, asked.tools, asked.mode).ids
        if ids is not None:
            return tuple(ids)
        # Without a renderer the length is only of the right size; nothing is held against it then.
        return len(self.vocabulary.encode_ordinary(orjson.dumps(messages).decode()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What GET /generation tells of one reply, from `ready` (seconds since 1970) on; made when it is asked for."""

    ready: float
    data: Callable[[], Body]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstReply:
    """The reply that a request got when it first was answered: what a duplicate repeats."""

    envelope: Envelope
    nonce: int
    provider: SimulatedProvider
    habits: frozenset[str]


@dataclass(slots=True, kw_only=True)
class Turn:
    """One request on its way through the server, and what it holds until it is answered."""

    simulation: Simulation
    entry: Entry
    charges: bool = False
    generation: Callable[[], Body] | None = None
    _received: bool = False
    _hold_usd: float = 0.0
    _limiters: list[Limiter] = field(default_factory=list)

    def receive(self, asked: Asked | None = None, key: str = "") -> None:
        """Write the request into the books; without `asked`, as one that could not be read."""
        if self._received:
            return
        self._received = True
        if asked is not None:
            entry = self.entry
            entry.prompt_key = key
            entry.identity = asked.identity_of(key)
            entry.stream, entry.max_tokens = asked.stream, asked.max_tokens
            entry.attempt = self.simulation.count_attempt(entry.identity, key)
        self.simulation.ledger.receive(self.entry)

    def enter(self, limiter: Limiter) -> bool:
        """Pass a limiter, or be refused by it."""
        if not limiter.admit(time.monotonic()):
            return False
        self._limiters.append(limiter)
        return True

    def leave_all(self) -> None:
        """Leave every limiter that let this request in."""
        for limiter in self._limiters:
            limiter.leave()
        self._limiters.clear()

    def hold(self, hold_usd: float) -> str | None:
        """Reserve money; the 402 that the request gets where there is none."""
        refused = self.simulation.account.reserve(hold_usd)
        if refused is None:
            self._hold_usd = hold_usd
        return refused

    def meet(self, fate: Fate) -> None:
        """Note what becomes of the request."""
        self.entry.fault = fate.fault
        self.entry.habits = tuple(sorted(fate.habits))
        if fate.fault is not None:
            self.simulation.faults[fate.fault] += 1

    def charge(self, made: Answer, usage: Body) -> None:
        """Have the answer paid for once it is settled."""
        entry = self.entry
        self.charges = True
        entry.finish_reason = made.finish
        entry.output_ids = made.ids
        entry.prompt_tokens, entry.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        entry.cost_usd = usage.get("cost", 0.0)

    def settle(self, status: int) -> None:
        """The reply is made: charge it and write it down, before its last byte is sent."""
        simulation, entry = self.simulation, self.entry
        self.receive()
        entry.status, entry.answered, entry.billed = status, time.time(), self.charges
        if self.charges:
            simulation.account.spend(entry.cost_usd)
        simulation.account.release(self._hold_usd)
        self._hold_usd = 0.0
        if self.generation is not None and entry.id is not None:
            ready = entry.answered + simulation.scenario.generation_after_s
            simulation.generations[entry.id] = Generation(ready=ready, data=self.generation)
        simulation.ledger.answer(entry)

    def end(self, *, delivered: bool) -> None:
        """The reply has left, or never will: give back what is held."""
        self.leave_all()
        self.simulation.account.release(self._hold_usd)
        self._hold_usd = 0.0
        self.entry.ended, self.entry.delivered = time.time(), delivered
        self.simulation.ledger.end(self.entry)


def key_of(asked: Asked) -> str:
    """The `prompt_key` of a request."""
    return prompt_key(asked.messages, asked.tools, asked.mode)


def _dated_model(contract: Contract) -> str:
    """A name as OpenRouter's replies bear it: the first pattern of the contract, with a date in place of the star."""
    return next((name for name in contract.models if "*" in name), contract.default_model).replace("*", "0127")


def _remembered(cache: dict[_K, _V], key: _K, make: Callable[[], _V]) -> _V:
    """`cache[key]`, made when it is missing; the oldest entry leaves a full cache."""
    if key not in cache:
        if len(cache) >= _MAX_CACHED:
            del cache[next(iter(cache))]
        cache[key] = make()
    return cache[key]
