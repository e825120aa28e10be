"""Providers that alter text, recognised by shares: no single row and no count shows that a space was trimmed.

Models begin and end parts in white space now and then, and write the separators of JSON in a style of their own.
Where one provider never does what others do often, with the same model in the same mode, it alters the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from toolkit.audit.conventions import wilson_lower
from toolkit.audit.fact_files import AT
from toolkit.records import IdsSource

MIN_ROWS = 30
"""Parts that a provider, and a reference, must have sent before their shares are compared."""

MIN_REFERENCE_SHARE = 0.03
"""What happens more rarely than this elsewhere proves nothing by its absence."""

MAX_RATIO = 0.1
"""A share below this part of the reference's is an alteration, not another mix of prompts."""

MAX_CHANCE = 1e-5
"""How likely so few would be by chance, at half the reference's share."""


@dataclass(frozen=True, slots=True)
class _Trait:
    """Something that text does by itself and an alteration takes away: a boolean fact, null where it does not apply."""

    column: str
    code: str
    words: str
    whole_only: bool


TRAITS = (
    _Trait("reasoning_leading_space", "trims", "reasoning that begins in white space", False),
    _Trait("content_leading_space", "trims", "content that begins in white space", False),
    _Trait("reasoning_trailing_space", "trims", "reasoning that ends in white space", True),
    _Trait("content_trailing_space", "trims", "content that ends in white space", True),
    _Trait("arguments_spaced", "reserialises", "tool arguments with spaces after separators", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What one group never does and others do.

    Attributes:
        code: `trims` or `reserialises`.
        words: What is missing, for a report.
        rows: Parts of the group; `hits` of them have it.
        reference: Who has it, `source` or `source/provider`; `reference_share` is the lower end of its interval.
    """

    source: str
    provider: str | None
    model: str | None
    mode: str
    code: str
    words: str
    rows: int
    hits: int
    reference: str
    reference_share: float


@dataclass(frozen=True, slots=True)
class _Share:
    source: str
    provider: str | None
    model: str | None
    mode: str
    engine: bool
    rows: int
    hits: int

    @property
    def name(self) -> str:
        return self.source if self.provider is None else f"{self.source}/{self.provider}"


TRAITS_READ = ("source", "provider", "model", "mode", "ids_source", "truncated", *(trait.column for trait in TRAITS))
"""Columns of the facts that `count_traits` reads, beside the position."""

_GROUP = ("source", "provider", "model", "mode", "engine")


def count_traits(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """For each trait, who has it how often, of one part of a dataset: rows with `_at` and `TRAITS_READ`.

    Rows with the engine's own ids are references, and are never accused: their ids do not depend on the text.
    """
    engine = (pl.col("ids_source") == str(IdsSource.ENGINE)).fill_null(False).alias("engine")
    counted = []
    for trait in TRAITS:
        can = pl.col(trait.column).is_not_null() & (~pl.col("truncated") if trait.whole_only else pl.lit(True))
        counted.append(
            rows.filter(can)
            .group_by(*_GROUP[:-1], engine)
            .agg(
                pl.len().cast(pl.Int64).alias("rows"),
                pl.col(trait.column).sum().cast(pl.Int64).alias("hits"),
                pl.col(AT).min(),
            )
        )
    return counted


def find_alterations(parts: Sequence[Sequence[pl.DataFrame]]) -> list[Alteration]:
    """Alterations of every (source, provider, model) in each mode.

    Args:
        parts: What `count_traits` gives of each part of a dataset.
    """
    found: list[Alteration] = []
    for i, trait in enumerate(TRAITS):
        joined = pl.concat([part[i] for part in parts])
        added = joined.group_by(*_GROUP).agg(pl.col("rows").sum(), pl.col("hits").sum(), pl.col(AT).min()).sort(AT)
        found += _find(trait, [_Share(*values) for values in added.drop(AT).iter_rows()])
    return found


def _find(trait: _Trait, shares: Sequence[_Share]) -> Iterator[Alteration]:
    for share in shares:
        if share.engine or share.rows < MIN_ROWS:
            continue
        reference = _reference(share, shares)
        if reference is None:
            continue
        expected = wilson_lower(reference.hits, reference.rows)
        if _never_does(share, expected):
            yield Alteration(
                source=share.source,
                provider=share.provider,
                model=share.model,
                mode=share.mode,
                code=trait.code,
                words=trait.words,
                rows=share.rows,
                hits=share.hits,
                reference=reference.name,
                reference_share=expected,
            )


def _reference(share: _Share, shares: Sequence[_Share]) -> _Share | None:
    """Who shows the trait most surely: an engine where there is one, else the other provider that has most of it.

    Not the average of the others: where most providers trim, the one that does not is the witness.
    """
    others = [
        other
        for other in shares
        if other.mode == share.mode and other.rows >= MIN_ROWS and (other.source, other.provider) != (
            share.source, share.provider
        )
    ]  # fmt: skip
    engines = [other for other in others if other.engine]
    return max(engines or others, key=lambda other: wilson_lower(other.hits, other.rows), default=None)


def _never_does(share: _Share, expected: float) -> bool:
    if expected < MIN_REFERENCE_SHARE or share.hits > MAX_RATIO * expected * share.rows:
        return False
    return binomial_at_most(share.hits, share.rows, expected / 2) < MAX_CHANCE


def binomial_at_most(hits: int, trials: int, share: float) -> float:
    """P(X ≤ hits) for X ~ Binomial(trials, share), 0 < share < 1."""
    log_terms = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(share)
        + (trials - k) * math.log1p(-share)
        for k in range(hits + 1)
    ]
    most = max(log_terms)
    return math.exp(most) * math.fsum(math.exp(term - most) for term in log_terms)
