"""Several answers to one prompt: how much less they say than as many answers to different prompts.

Samples of one prompt, and turns of one conversation, resemble each other. A share of so many rows is then less certain
than its binomial variance says, by what survey statisticians call the design effect (L. Kish, Survey Sampling, 1965):
the variance over whole prompts, divided by the binomial one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from toolkit.audit.fact_files import collected

_EXACT_ROWS = 1 << 18
_GROUPS = 1 << 16
"""Prompts of more rows than these are put together at random into so many groups: independent ones add up to the same
variance, the standard error of which is then 0.6 %, and memory does not grow with the data."""

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
        prompts: Prompts, or groups of them.
        alone: Prompts that nobody else of the mode answered.
        trials, hits: By share.
        products: By share and pair of letters: n and h are trials and hits of the line in one prompt, N and H those of
            all lines of its mode.
    """

    prompts: int
    alone: int
    trials: Mapping[str, int]
    hits: Mapping[str, int]
    products: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Clusters:
    """What the prompts of a dataset say about its lines (source, provider, mode). A line's key ends with its mode."""

    lines: Mapping[Key, _Sums]
    modes: Mapping[object, _Sums]

    def prompts(self, line: Key) -> tuple[int, int]:
        """Prompts that this line answered, and that any other of its mode answered."""
        return self.lines[line].prompts, self.modes[line[-1]].prompts - self.lines[line].alone

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


def clusters(rows: pl.LazyFrame, line: Sequence[str], prompt: Sequence[str], shares: Mapping[str, Share]) -> Clusters:
    """Sums over the prompts of all rows.

    Args:
        rows: With the columns that are named here.
        line: Columns that name a line; the last is the mode.
        prompt: Columns that name a prompt, the mode among them.
        shares: By name.
    """
    *_, mode = line
    flags = {f"{kind}_{name}": getattr(share, kind) for name, share in shares.items() for kind in ("trials", "hits")}
    counted = {"rows": pl.len().cast(pl.Int64)}
    counted |= {name: pl.col(flag).sum().cast(pl.Int64) for name, flag in flags.items()}
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
        {tuple(row[name] for name in line): _sums(row, shares, _OWN) for row in by_line},
        {row[mode]: _sums(row, shares, _ALL) for row in by_mode},
    )


def _line_sums(shares: Mapping[str, Share]) -> list[pl.Expr]:
    """Sums over the prompts of one line, from its own counts and those of its mode."""
    found = [
        pl.len().alias("prompts"),
        (pl.col("rows") == pl.col("all_rows")).sum().alias("alone"),
    ]
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
    found = [pl.len().alias("prompts"), pl.len().alias("alone")]
    for name in shares:
        of = {"H": pl.col(f"all_hits_{name}"), "N": pl.col(f"all_trials_{name}")}
        found += [of["H"].sum().alias(f"hits_{name}"), of["N"].sum().alias(f"trials_{name}")]
        found += [(of[one] * of[other]).sum().alias(f"{one}{other}_{name}") for one, other in _ALL]
    return found


def _sums(row: Mapping[str, int], shares: Mapping[str, Share], pairs: Sequence[tuple[str, str]]) -> _Sums:
    return _Sums(
        prompts=row["prompts"],
        alone=row["alone"],
        trials={name: row[f"trials_{name}"] for name in shares},
        hits={name: row[f"hits_{name}"] for name in shares},
        products={name: {one + other: row[f"{one}{other}_{name}"] for one, other in pairs} for name in shares},
    )
