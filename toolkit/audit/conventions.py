"""How each provider counts, learned from its rows, and only from what the contract can explain.

A convention says what a reported count leaves out (or puts beside it). Difference 0 stands alone; every other
convention needs support, must explain most of what was counted, and must hold on rows that tell it from its
rivals. A difference that no convention explains is a fault of its row, however many rows show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from toolkit.audit.fact_files import AT
from toolkit.audit.tallies import Hypothesis, Key, Lines, add_up, tally
from toolkit.contract import Contract

__all__ = [
    "COUNTS_ALL", "MAX_RIVAL_SHARE", "MIN_EXPLAINED_SHARE", "MIN_SUPPORT", "UNKNOWN", "Excluded", "Hypothesis", "Key",
    "Learned", "completion_hypotheses", "learn", "learn_from", "prompt_hypotheses", "reasoning_hypotheses",
    "wilson_interval", "wilson_lower",
]  # fmt: skip

MIN_SUPPORT = 30
"""Rows that can tell a convention from "counts every id", whatever they say, before it is believed."""

MAX_RIVAL_SHARE = 0.2
"""Two conventions that each explain more than this share of the explained rows, which the other does not: unknown."""

MIN_EXPLAINED_SHARE = 0.5
"""A convention that explains fewer of the counted rows than this is a coincidence."""

UNKNOWN = "unknown"
COUNTS_ALL = "counts every id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A convention that was not chosen, how many sound rows speak against it, and some of them."""

    name: str
    rows: int
    examples: tuple[Key, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What one group of rows teaches.

    Attributes:
        name: The convention, or `UNKNOWN`.
        rows: Rows that could be compared.
        support: Rows that the convention explains.
        explained: Rows that any convention explains.
        confidence: Lower end of the 95 % Wilson interval of support / explained; 0 where nothing was learned.
        why: Why nothing was learned; empty otherwise.
        same: Conventions that say the same of every row of the group, and so cannot be told from it.
        excluded: The others, each with rows that speak against it.
    """

    name: str = UNKNOWN
    rows: int = 0
    support: int = 0
    explained: int = 0
    confidence: float = 0.0
    why: str = ""
    same: tuple[str, ...] = ()
    excluded: tuple[Excluded, ...] = ()

    @property
    def known(self) -> bool:
        """Whether a convention was learned."""
        return self.name != UNKNOWN


def completion_hypotheses(contract: Contract) -> list[Hypothesis]:
    """What completion_tokens may leave out, simplest first: n_ids − completion_tokens as each predicts it.

    Sources: servers that count every id (SGLang, vLLM), replies that lack the terminal, and replies whose
    reasoning stands beside completion_tokens instead of inside.
    """
    parts = list(_special_parts(contract))
    subsets = [chosen for size in range(len(parts) + 1) for chosen in combinations(parts, size)]
    hypotheses = [
        Hypothesis(
            f"leaves out {_and([name for name, _ in chosen])}" if chosen else COUNTS_ALL,
            pl.sum_horizontal(pl.lit(0), *(expression for _, expression in chosen)),
        )
        for chosen in subsets
    ]
    if contract.think is not None:
        hypotheses += [
            Hypothesis(
                "counts reasoning beside, "
                + (f"and leaves out {_and([name for name, _ in chosen])}" if chosen else "and every id in one of both"),
                pl.col("reasoning_tokens") + pl.sum_horizontal(pl.lit(0), *(expression for _, expression in chosen)),
            )
            for chosen in subsets
        ]
    return hypotheses


def _special_parts(contract: Contract) -> Iterator[tuple[str, pl.Expr]]:
    yield "the terminal", pl.col("n_terminal")
    if contract.think is not None:
        yield "the end of thinking", pl.col("n_end_think")
    if contract.tools is not None:
        yield "the tool markers", pl.col("n_tool_markers")


def reasoning_hypotheses() -> list[Hypothesis]:
    """What reasoning_tokens may count: end_think_at − reasoning_tokens as each predicts it."""
    return [
        Hypothesis("counts the ids of the reasoning", pl.lit(0)),
        Hypothesis("counts the end of thinking too", pl.lit(-1)),
    ]


def prompt_hypotheses(contract: Contract) -> list[Hypothesis]:
    """What prompt_tokens may leave out: n_prompt_ids − prompt_tokens. A surplus has no explanation: it is another
    prompt."""
    tails = {name: len(mode.prompt_ends_with) for name, mode in contract.modes.items()}
    tail = pl.col("mode").replace_strict(tails, default=0, return_dtype=pl.Int32)
    return [Hypothesis(COUNTS_ALL, pl.lit(0)), Hypothesis("leaves out the prompt's tail", tail)]


def learn(rows: pl.DataFrame, observed: str, hypotheses: Sequence[Hypothesis]) -> Learned:
    """The convention of one group whose rows are in memory.

    Args:
        rows: Sound rows of one group; `observed` and the columns that the hypotheses read, and the identity columns.
        observed: Name of the column with the difference that was found; rows where it is null are left out.
        hypotheses: Simplest first; the first is "difference 0", or what stands alone without support.
    """
    return learn_from(add_up([tally(rows.with_row_index(AT), (), observed, hypotheses)], ()), hypotheses)


def learn_from(tallied: pl.DataFrame, hypotheses: Sequence[Hypothesis]) -> Learned:
    """The convention of one group.

    Args:
        tallied: The group's lines, as `tallies.add_up` gives them.
        hypotheses: Those that were tallied.
    """
    lines = Lines.of(tallied)
    rows = int(lines.rows.sum())
    if not rows:
        return Learned(why="no rows to compare")
    matches = [lines.count(lines.hit(i)) for i in range(len(hypotheses))]
    explained = lines.count(lines.hits != 0)
    best = max(range(len(matches)), key=lambda i: (matches[i], -i))
    why = _why_not(lines, matches, best, explained)
    if why:
        return Learned(rows=rows, explained=explained, why=why, excluded=())
    mine = lines.hit(best)
    same, excluded = [], []
    for i, hypothesis in enumerate(hypotheses):
        against = mine & ~lines.hit(i)
        if i != best and not against.any():
            same.append(hypothesis.name)
        elif i != best:
            excluded.append(Excluded(name=hypothesis.name, rows=lines.count(against), examples=lines.named(against)))
    return Learned(
        name=hypotheses[best].name,
        rows=rows,
        support=matches[best],
        explained=explained,
        confidence=wilson_lower(matches[best], explained),
        same=tuple(same),
        excluded=tuple(excluded),
    )


def _why_not(lines: Lines, matches: Sequence[int], best: int, explained: int) -> str:
    """Why the best hypothesis is not believed; empty where it is."""
    rows = int(lines.rows.sum())
    if explained == 0:
        return "no convention explains any row"
    if matches[best] < MIN_EXPLAINED_SHARE * rows:
        return f"the best convention explains {matches[best]:,} of {rows:,} rows"
    mine = lines.hit(best)
    for rival in range(len(matches)):
        theirs = lines.hit(rival)
        only_theirs, only_mine = lines.count(theirs & ~mine), lines.count(mine & ~theirs)
        if rival != best and min(only_theirs, only_mine) > MAX_RIVAL_SHARE * explained:
            return f"two conventions: {only_mine:,} rows speak for one alone and {only_theirs:,} for another"
    if best != 0:
        telling = lines.differs(best)
        told, hold = lines.count(telling), lines.count(mine & telling)
        if told < MIN_SUPPORT:
            return f"{told:,} rows tell it from counting every id; {MIN_SUPPORT} are needed"
        if hold < MIN_EXPLAINED_SHARE * told:
            return f"the best convention explains {hold:,} of {told:,} rows that tell it from counting every id"
    return ""


def wilson_lower(hits: int, trials: int, z: float = 1.96) -> float:
    """Lower end of the Wilson score interval of hits / trials; 0 for no trials."""
    return wilson_interval(hits, trials, z)[0]


def wilson_interval(hits: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a share, (0, 1) for no trials."""
    if trials == 0:
        return 0.0, 1.0
    share = hits / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    bottom = 1 + z * z / trials
    return max(0.0, (centre - spread) / bottom), min(1.0, (centre + spread) / bottom)


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
