"""The account behind OpenRouter's key: credits, the key's limit, and holds on what is in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toolkit.errors import ConfigError

NoMoney = Literal["in_flight_402", "credits_402", "key_limit_402"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """What there is to spend.

    Attributes:
        credits_usd: Credits bought, US dollars; None: they never end.
        key_limit_usd: The key's own limit; None: it has none.
        hold_below_usd: Holds apply while the balance is below this; 0: never. A request then reserves the price of
            its prompt and of `max_tokens`, and is refused with 402 where that is more than balance less holds.
        hold_cap_tokens: The most completion tokens that one request reserves, and what it reserves without max_tokens.
        retry_after_s: What the 402 of a hold states, in seconds.
        management_key: The bearer token that may read /credits; every other one gets 403.

    Raises:
        ConfigError: a negative number.
    """

    credits_usd: float | None = None
    key_limit_usd: float | None = None
    hold_below_usd: float = 0.0
    hold_cap_tokens: int = 65_536
    retry_after_s: int = 7
    management_key: str = "management"

    def __post_init__(self) -> None:
        for name in ("credits_usd", "key_limit_usd", "hold_below_usd", "hold_cap_tokens", "retry_after_s"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigError(f"scenario: account.{name}: expected 0 or more, found {value}")


@dataclass(slots=True)
class Account:
    """What was spent and what is held, US dollars."""

    settings: AccountSettings
    spent_usd: float = 0.0
    held_usd: float = 0.0

    @property
    def balance_usd(self) -> float | None:
        """Credits that are left, holds not taken off; None: endless."""
        bought = self.settings.credits_usd
        return None if bought is None else bought - self.spent_usd

    @property
    def key_remaining_usd(self) -> float | None:
        """What the key may still spend, never below 0; None: no limit."""
        limit = self.settings.key_limit_usd
        return None if limit is None else max(0.0, limit - self.spent_usd)

    def hold_of(self, *, prompt_tokens: int, max_tokens: int | None, prompt_usd: float, completion_usd: float) -> float:
        """What a request reserves, US dollars; 0 where holds do not apply. Prices are per token."""
        balance = self.balance_usd
        if balance is None or balance >= self.settings.hold_below_usd:
            return 0.0
        cap = self.settings.hold_cap_tokens
        return prompt_tokens * prompt_usd + (cap if max_tokens is None else min(cap, max_tokens)) * completion_usd

    def reserve(self, hold_usd: float) -> NoMoney | None:
        """Reserve `hold_usd`, or say which 402 the request gets; what was reserved must be released."""
        if self.key_remaining_usd == 0:
            return "key_limit_402"
        balance = self.balance_usd
        if balance is not None:
            if balance <= 0:
                return "credits_402"
            if hold_usd > balance - self.held_usd:
                # With nothing in flight, waiting would not help.
                return "in_flight_402" if hold_usd <= balance and self.held_usd > 0 else "credits_402"
        self.held_usd += hold_usd
        return None

    def release(self, hold_usd: float) -> None:
        """Give back what `reserve` took."""
        self.held_usd = max(0.0, self.held_usd - hold_usd)

    def spend(self, cost_usd: float) -> None:
        """Charge one reply."""
        self.spent_usd += cost_usd
