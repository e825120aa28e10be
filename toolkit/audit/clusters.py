"""Several answers to one prompt: how much less they say than as many answers to different prompts.

Samples of one prompt, and turns of one conversation, resemble each other. A share of so many rows is then less certain
than its binomial variance says, by what survey statisticians call the design effect (L. Kish, Survey Sampling, 1965):
the variance over whole prompts, divided by the binomial one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from toolkit.audit.fact_files import collected

_EXACT_ROWS = 1 << 18
_GROUPS = 1 << 16
"""Prompts of more rows than these are put together at random into so many groups: independent ones add up to the same
variance, the standard error of which is then 0.6 %, and memory does not grow with the data."""

MIN_OF_A_KIND = 5
"""Prompts that show what a share counts, and prompts that do not: fewer tell no variance."""

_OWN = (("h", "h"), ("h", "n"), ("n", "n"), ("h", "H"), ("h", "N"), ("n", "H"), ("n", "N"))
_ALL = (("H", "H"), ("H", "N"), ("N", "N"))

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """A share that is compared: which rows count, and which of those have it. Both are names of boolean columns; no row
    has it that does not count."""

    trials: str
    hits: str


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums of products over prompts, all of them whole numbers and so the same in any order.

    Attributes:
        trials, hits: By share.
        products: By share and pair of letters: n and h are trials and hits of the line in one prompt, N and H those of
            all lines of its mode.
    """

    trials: Mapping[str, int]
    hits: Mapping[str, int]
    products: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Clusters:
    """What the prompts of a dataset say about its lines (source, provider, mode). A line's key ends with its mode."""

    lines: Mapping[Key, _Sums]
    modes: Mapping[object, _Sums]

    def effective_prompts(self, line: Key, share: str) -> tuple[float, float]:
        """As how many equal prompts those of this line, and those of all others of its mode, weigh in a share:
        (Σn)²/Σn² over the n rows of each prompt that count. One prompt with most of the rows is hardly more than one.
        """
        mine, every = self.lines[line], self.modes[line[-1]]
        own, whole = mine.products[share], every.products[share]
        n, others = mine.trials[share], every.trials[share] - mine.trials[share]
        squares = whole["NN"] - 2 * own["nN"] + own["nn"]
        return n * n / own["nn"] if n else 0.0, others * others / squares if others else 0.0

    def is_told(self, line: Key, share: str) -> bool:
        """Whether a line's prompts are enough to tell its variance: five of each kind, as it has them or as all
        together do. Of a rare thing that no prompt of a few shows, the variance looks like none.
        """
        mine, every = self.lines[line], self.modes[line[-1]]
        if not mine.trials[share]:
            return False
        own, pooled = (sums.hits[share] / sums.trials[share] for sums in (mine, every))
        enough = MIN_OF_A_KIND / self.effective_prompts(line, share)[0]
        return max(own, pooled) >= enough and max(1 - own, 1 - pooled) >= enough

    def design_effect(self, line: Key, share: str) -> float:
        """By how much the variance of a line's share minus that of all others of its mode is larger than if each of
        their rows answered another prompt; 1 or more. Prompts that both sides answered are counted on both.
        """
        mine, every = self.lines[line], self.modes[line[-1]]
        n, h = mine.trials[share], mine.hits[share]
        others, other_hits = every.trials[share] - n, every.hits[share] - h
        if not n or not others:
            return 1.0
        p, q = h / n, other_hits / others
        alone = p * (1 - p) / n + q * (1 - q) / others
        if not alone:
            return 1.0
        # The prompts' part of the difference is linear in their (h, n, H, N).
        weights = np.array([1 / n + 1 / others, -(p / n + q / others), -1 / others, q / others])
        of = {**every.products[share], **mine.products[share]}
        moments = np.array(
            [
                [of["hh"], of["hn"], of["hH"], of["hN"]],
                [of["hn"], of["nn"], of["nH"], of["nN"]],
                [of["hH"], of["nH"], of["HH"], of["HN"]],
                [of["hN"], of["nN"], of["HN"], of["NN"]],
            ],
            dtype=np.float64,
        )
        return max(1.0, float(weights @ moments @ weights) / alone)

    def distance_effect(self, line: Key, shares: Sequence[str]) -> float:
        """The largest design effect among shares that divide one distribution at several places, each against the
        variance in its middle, which is that by which the distance of two distributions is judged."""
        every = self.modes[line[-1]]
        found = [1.0]
        for share in shares:
            trials, hits = every.trials[share], every.hits[share]
            pooled = hits / trials if trials else 0.0
            found.append(4 * pooled * (1 - pooled) * self.design_effect(line, share))
        return max(found)


def clusters(
    rows: pl.LazyFrame,
    line: Sequence[str],
    prompt: Sequence[str],
    shares: Mapping[str, Share],
    wanted: Collection[Key],
) -> Clusters:
    """Sums over the prompts of all rows.

    Args:
        rows: With the columns that are named here.
        line: Columns that name a line; the last is the mode.
        prompt: Columns that name a prompt, the mode among them.
        shares: By name.
        wanted: Lines that are kept; of the others there may be any number.
    """
    *_, mode = line
    flags = {f"{kind}_{name}": getattr(share, kind) for name, share in shares.items() for kind in ("trials", "hits")}
    counted = {name: pl.col(flag).sum().cast(pl.Int64) for name, flag in flags.items()}
    hashed = rows.select(
        *set(flags.values()), pl.struct(*line).hash().alias("_line"), pl.struct(*prompt).hash().alias("_prompt")
    )
    if int(collected(rows.select(pl.len())).item()) > _EXACT_ROWS:
        hashed = hashed.with_columns(pl.col("_prompt") % _GROUPS)
    own = collected(hashed.group_by("_line", "_prompt").agg(e.alias(name) for name, e in counted.items()))
    names = collected(rows.select(*line, pl.struct(*line).hash().alias("_line")).unique())
    own = own.join(names, on="_line")
    own = own.with_columns(pl.col(name).sum().over(mode, "_prompt").alias(f"all_{name}") for name in counted)
    by_line = own.group_by(*line).agg(_line_sums(shares)).iter_rows(named=True)
    by_mode = own.unique([mode, "_prompt"]).group_by(mode).agg(_mode_sums(shares)).iter_rows(named=True)
    return Clusters(
        {key: _sums(row, shares, _OWN) for row in by_line if (key := tuple(row[name] for name in line)) in wanted},
        {row[mode]: _sums(row, shares, _ALL) for row in by_mode},
    )


def _line_sums(shares: Mapping[str, Share]) -> list[pl.Expr]:
    """Sums over the prompts of one line, from its own counts and those of its mode."""
    found = []
    for name in shares:
        of = {
            "h": pl.col(f"hits_{name}"),
            "n": pl.col(f"trials_{name}"),
            "H": pl.col(f"all_hits_{name}"),
            "N": pl.col(f"all_trials_{name}"),
        }
        found += [pl.col(f"hits_{name}").sum(), pl.col(f"trials_{name}").sum()]
        found += [(of[one] * of[other]).sum().alias(f"{one}{other}_{name}") for one, other in _OWN]
    return found


def _mode_sums(shares: Mapping[str, Share]) -> list[pl.Expr]:
    """The same over the prompts of one mode."""
    found = []
    for name in shares:
        of = {"H": pl.col(f"all_hits_{name}"), "N": pl.col(f"all_trials_{name}")}
        found += [of["H"].sum().alias(f"hits_{name}"), of["N"].sum().alias(f"trials_{name}")]
        found += [(of[one] * of[other]).sum().alias(f"{one}{other}_{name}") for one, other in _ALL]
    return found


def _sums(row: Mapping[str, int], shares: Mapping[str, Share], pairs: Sequence[tuple[str, str]]) -> _Sums:
    return _Sums(
        trials={name: row[f"trials_{name}"] for name in shares},
        hits={name: row[f"hits_{name}"] for name in shares},
        products={name: {one + other: row[f"{one}{other}_{name}"] for one, other in pairs} for name in shares},
    )
