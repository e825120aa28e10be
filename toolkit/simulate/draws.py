"""Choices that look random and depend only on what they are drawn for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")
_BLOCK_BYTES = 512
_DRAW_BYTES = 4


class Draws:
    """An endless row of draws for `parts`: the same parts give the same row on every machine."""

    def __init__(self, *parts: str | int):
        # Each part with its length, so that ("a", "bc") and ("ab", "c") do not meet.
        texts = [str(part) for part in parts]
        self._name = "".join(f"{len(text)}:{text}" for text in texts).encode("utf-8", "surrogatepass")
        self._block = b""
        self._blocks = 0
        self._at = 0

    def unit(self) -> float:
        """A number from 0 (included) to 1 (excluded)."""
        if self._at >= len(self._block):
            self._block = hashlib.shake_256(b"%d/" % self._blocks + self._name).digest(_BLOCK_BYTES)
            self._blocks += 1
            self._at = 0
        drawn = int.from_bytes(self._block[self._at : self._at + _DRAW_BYTES], "big")
        self._at += _DRAW_BYTES
        return drawn / (1 << 8 * _DRAW_BYTES)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self.unit() * (high - low + 1))

    def pick(self, items: Sequence[_T]) -> _T:
        """One of `items`, which must not be empty."""
        return items[int(self.unit() * len(items))]

    def chance(self, share: float) -> bool:
        """True in `share` (0 to 1) of the cases."""
        return self.unit() < share
