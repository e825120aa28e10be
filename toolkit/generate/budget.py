"""What may still be spent, in tokens or dollars. Pure.

A request that was sent is paid for, whatever becomes of it. So a budget is kept by what is *admitted*: only while
what was kept, and the most that every request in flight can still cost, and the most that one more can cost, fit
into it together. Nothing is ever cancelled, and the sum ends within one request's most of the limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit.errors import ConfigError
from toolkit.records import Json


@dataclass(slots=True, kw_only=True)
class Budget:
    """A limit, what was kept below it, and what is in flight.

    Attributes:
        limit: Most that may be kept; None: no limit.
        credit: Beyond this there is nothing left to spend, whatever the limit allows; None: not known.
        kept: What replies came to, in the limit's unit.
        reserved: The most that requests in flight can come to.
        in_flight: How many requests `reserved` belongs to.
    """

    limit: float | None
    credit: float | None = None
    kept: float = 0.0
    reserved: float = 0.0
    in_flight: int = 0

    @property
    def most(self) -> float:
        """The lower of limit and credit; infinite where neither is known."""
        limit = math.inf if self.limit is None else self.limit
        credit = math.inf if self.credit is None else self.credit
        return min(limit, credit)

    def admits(self, most: float) -> bool:
        """Whether one more request fits that can come to `most`."""
        return self.kept + self.reserved + most <= self.most

    def is_spent(self, most: float) -> bool:
        """Whether such a request will never fit: nothing is in flight that could come to less than feared."""
        return self.in_flight == 0 and not self.admits(most)

    def reserve(self, most: float) -> None:
        """One more request is in flight."""
        self.reserved += most
        self.in_flight += 1

    def settle(self, most: float, came: float) -> None:
        """A request for which `most` was reserved has come to `came`."""
        self.in_flight -= 1
        # Sums of floats leave crumbs, which would count as a request in flight for ever.
        self.reserved = self.reserved - most if self.in_flight else 0.0
        self.kept += came


_PROVIDERS = 256
"""Of so many at most prices are learned: a server may invent a name for each reply, and each request asks for all."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for one token of the prompt, and for one of the completion."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """US dollars."""
        return self.prompt * prompt_tokens + self.completion * completion_tokens


@dataclass(slots=True, kw_only=True)
class Prices:
    """What a request can cost at most, from what is known of an endpoint's prices.

    Attributes:
        ceiling: Above this nobody may answer (OpenRouter's `max_price`).
        listed: The highest price among those who may answer, where the endpoint lists its prices.
        is_free: The endpoint is the user's own: without a word about cost, it costs nothing.
    """

    ceiling: Price | None = None
    listed: Price | None = None
    is_free: bool = False
    _observed: dict[str, Price] = field(default_factory=dict)

    def learn(
        self, provider: str, *, prompt_tokens: int | None, completion_tokens: int | None, cost_usd: float
    ) -> None:
        """Take a reply's cost for a bound: its completion cannot have cost more than the whole.

        Nor does a token of a prompt cost more than one of a completion, with anybody who sells both.
        Each further reply of a provider can only lower its bounds, so they close in on its prices from above. A reply
        that cost no more than the list says teaches nothing.
        """
        if cost_usd <= 0 or not completion_tokens:
            return
        if self.listed is not None and cost_usd <= 1.001 * self.listed.of(prompt_tokens or 0, completion_tokens):
            return
        before = self._observed.get(provider)
        if before is None:
            if len(self._observed) >= _PROVIDERS:
                return
            before = Price(math.inf, math.inf)
        completion = min(before.completion, cost_usd / completion_tokens)
        prompt = min(before.prompt, completion, cost_usd / prompt_tokens if prompt_tokens else math.inf)
        self._observed[provider] = Price(prompt, completion)

    def most_usd(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """US dollars that such a request can cost at most; None where nothing is known.

        Args:
            prompt_tokens: No fewer than it has; its bytes will do.
            completion_tokens: Its cap.
        """
        known = [*self._observed.values(), *([self.listed] if self.listed else [])]
        if not known:
            if self.ceiling is not None:
                return self.ceiling.of(prompt_tokens, completion_tokens)
            return 0.0 if self.is_free else None
        most = Price(max(price.prompt for price in known), max(price.completion for price in known))
        if self.ceiling is not None:
            most = Price(min(most.prompt, self.ceiling.prompt), min(most.completion, self.ceiling.completion))
        return most.of(prompt_tokens, completion_tokens)


def ceiling_of(max_price: Mapping[Any, Json] | None) -> Price | None:
    """OpenRouter's `max_price` (US dollars for a million tokens) as a price; None where it leaves a kind open.

    Raises:
        ConfigError: a price is no number.
    """
    if max_price is None or "prompt" not in max_price or "completion" not in max_price:
        return None
    try:
        prompt, completion = (float(max_price[kind]) / 1e6 for kind in ("prompt", "completion"))
    except (TypeError, ValueError):
        raise ConfigError(f"provider.max_price: expected numbers, found {dict(max_price)!r:.80}") from None
    return Price(prompt, completion) if prompt >= 0 and completion >= 0 else None
