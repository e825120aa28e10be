"""What a run ran out of, and what has to be raised before another can go on. Pure."""

from __future__ import annotations

from typing import Literal

Spent = Literal["", "tokens", "dollars", "credit"]
"""What ran out; empty where nothing did."""

_MORE: dict[Spent, str] = {
    "tokens": "raise the budget of tokens (--tokens, or max_total_tokens in tokenproof.toml)",
    "dollars": "raise the budget in dollars (--dollars, or [budget] in tokenproof.toml)",
    "credit": "raise the key's limit or buy credit",
}


def what_to_raise(spent: Spent) -> str:
    """What has to be done before the same command can go on; empty where it can as it is."""
    return _MORE.get(spent, "")
