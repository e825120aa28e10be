"""What a run will take: tokens, dollars, time, each as a range, with what the range rests on. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolkit.generate.budget import Price
from toolkit.records import Json

FEWEST_ROWS = 30
"""Rows from which a mean is taken for the dataset's."""
_SETTING_ROOM = 1.5
"""`expected_tokens` is somebody's word: half as much again, or that much less."""
_REPLY_ROOM = 3.0
"""Answers to a few short prompts say little of the others."""
_Z = 2.0

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`."""

    low: float
    high: float

    def times(self, other: Range) -> Range:
        """The range of the product of two quantities that are not negative."""
        return Range(self.low * other.low, self.high * other.high)

    def as_json(self) -> dict[str, Json]:
        """For machines; what has no end is null."""
        return {"low": self.low, "high": self.high if math.isfinite(self.high) else None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one reply of the preflight took."""

    tokens: int
    latency_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What is left of one dataset.

    Attributes:
        asks: Answers to ask for.
        prompt_tokens, completion_tokens: In all.
        completion_basis: What the completion tokens rest on.
        usd: US dollars, between the cheapest and the dearest who may answer; None where no price is known.
        usd_by_provider: The same if one provider answered everything.
        seconds: None where nothing was timed.
    """

    dataset: str
    asks: int
    prompt_tokens: Range
    completion_tokens: Range
    completion_basis: str
    usd: Range | None
    usd_by_provider: dict[str, Range]
    seconds: Range | None

    def as_json(self) -> dict[str, Json]:
        """For machines."""
        return {
            "dataset": self.dataset,
            "asks": self.asks,
            "prompt_tokens": self.prompt_tokens.as_json(),
            "completion_tokens": self.completion_tokens.as_json(),
            "completion_basis": self.completion_basis,
            "usd": None if self.usd is None else self.usd.as_json(),
            "usd_by_provider": {name: usd.as_json() for name, usd in self.usd_by_provider.items()},
            "seconds": None if self.seconds is None else self.seconds.as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What an estimate is made from.

    Attributes:
        prompt_ids: Lengths of a sample of prompts.
        prompt_bytes: Bytes of a line of prompts.jsonl: where no prompt can be rendered, it has no more ids than that.
        sampled_all: Whether the sample is all of them.
        shares_history: Conversations are asked turn by turn: a question is only the beginning of its prompt.
        max_tokens: The cap of an answer.
        expected_tokens: What the user says that an answer has.
        row_tokens, row_latencies_s: Of rows that are there.
        seen: Replies of the preflight.
        prices: By provider.
        concurrency: Requests in flight.
    """

    dataset: str
    asks: int
    prompt_ids: Numbers
    prompt_bytes: float
    sampled_all: bool
    shares_history: bool
    max_tokens: int
    expected_tokens: int | None
    row_tokens: Numbers
    row_latencies_s: Numbers
    seen: Sequence[Seen]
    prices: dict[str, Price]
    concurrency: int
    is_free: bool


def estimate(known: Known) -> Estimate:
    """The estimate for what is left of one dataset."""
    asks = Range(known.asks, known.asks)
    prompt = _prompt_tokens(known)
    completion, basis = completion_tokens(known)
    prompts = asks.times(prompt)
    completions = asks.times(completion)
    by_provider = {name: _cost(prompts, completions, price) for name, price in known.prices.items()}
    usd = _hull(list(by_provider.values()))
    return Estimate(
        dataset=known.dataset, asks=known.asks, prompt_tokens=prompts, completion_tokens=completions,
        completion_basis=basis, usd=Range(0.0, 0.0) if known.is_free and usd is None else usd,
        usd_by_provider=by_provider, seconds=_seconds(known, completion),
    )  # fmt: skip


def completion_tokens(known: Known) -> tuple[Range, str]:
    """Completion tokens of one answer, and what they rest on: the best that is known, the cap at the worst."""
    cap = float(known.max_tokens)
    if known.expected_tokens is not None:
        expected = float(known.expected_tokens)
        found = Range(expected / _SETTING_ROOM, min(cap, expected * _SETTING_ROOM))
        return _ordered(found), f"expected_tokens = {known.expected_tokens:,}"
    if len(known.row_tokens) >= FEWEST_ROWS:
        return _ordered(
            _mean(known.row_tokens, cap)
        ), f"{len(known.row_tokens):,} {'row that is' if len(known.row_tokens) == 1 else 'rows that are'} there"
    if known.seen:
        tokens = [float(reply.tokens) for reply in known.seen]
        found = Range(min(tokens) / _REPLY_ROOM, min(cap, max(tokens) * _REPLY_ROOM))
        count = "1 reply" if len(tokens) == 1 else f"{len(tokens)} replies"
        return _ordered(found), f"{count} of the preflight, to short prompts"
    return Range(0.0, cap), "nothing but max_tokens: set expected_tokens to narrow it"


def _ordered(found: Range) -> Range:
    return Range(min(found.low, found.high), found.high)


def _mean(values: Numbers, cap: float) -> Range:
    """Where the mean of the whole lies, from a part of it."""
    mean, error = float(values.mean()), float(values.std()) / math.sqrt(len(values))
    return Range(max(0.0, mean - _Z * error), min(cap, mean + _Z * error))


def _prompt_tokens(known: Known) -> Range:
    if not len(known.prompt_ids):
        return Range(0.0, known.prompt_bytes)
    mean = float(known.prompt_ids.mean())
    found = Range(mean, mean) if known.sampled_all else _mean(known.prompt_ids, math.inf)
    # A question of a conversation is any part of it, the whole at most; our own answers may be longer than those.
    return Range(0.0, found.high) if known.shares_history else found


def _cost(prompts: Range, completions: Range, price: Price) -> Range:
    return Range(
        prompts.low * price.prompt + completions.low * price.completion,
        prompts.high * price.prompt + completions.high * price.completion,
    )


def _hull(ranges: Sequence[Range]) -> Range | None:
    if not ranges:
        return None
    return Range(min(one.low for one in ranges), max(one.high for one in ranges))


def _seconds(known: Known, completion: Range) -> Range | None:
    """Time for all asks at the concurrency that is set, if the server keeps up with it."""
    latency = _latency(known, completion)
    if latency is None or not known.asks:
        return None if known.asks else Range(0.0, 0.0)
    waves = known.asks / min(known.concurrency, known.asks)
    return Range(latency.low * waves, latency.high * waves)


def _latency(known: Known, completion: Range) -> Range | None:
    """Seconds of one answer."""
    if len(known.row_latencies_s) >= FEWEST_ROWS:
        return _mean(known.row_latencies_s, math.inf)
    timed = [(reply.latency_s, max(reply.tokens, 1)) for reply in known.seen if reply.latency_s is not None]
    if not timed:
        return None
    fastest = min(latency for latency, _ in timed)
    per_token = max(latency / tokens for latency, tokens in timed)
    return Range(fastest, max(fastest, per_token * completion.high))
