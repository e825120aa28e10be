"""What a train set is mixed of: how much of which dataset, which side of the split, and on which ids loss falls.

::

    [merge]                    seed, duplicates, contradicted_prompts, validation, weigh, and limits of the whole
    [merge.datasets.NAME]      weight and limits of one dataset
    [merge.sources.NAME]       of one source, or of one provider behind it: `openrouter`, "openrouter/Chutes"
    [merge.mask]               which ids of a completion are supervised, and what the trainer needs of a row
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Limit = Annotated[int, Meta(ge=0, lt=2**53)]
Weight = Annotated[float, Meta(gt=0, le=1e9)]
Percent = Annotated[float, Meta(ge=0, le=50)]
Unit = Literal["rows", "tokens", "supervised_tokens"]
Loss = Literal["supervised", "masked"]
Fate = Literal["drop", "keep"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class MaskSettings(_Strict, frozen=True, kw_only=True):
    """Where loss falls. The prompt never bears loss; the completion does, but for what is masked here.

    Attributes:
        terminal: Whether the id that ends a complete answer is supervised.
        reasoning: Whether what precedes the answer is: all ids of the completion up to the one that ends thinking.
        window: Ids of a row that the trainer sees; None: all. Rows with no supervised id among them are left out.
        adjacent_pair: Whether a row needs two supervised ids side by side, as block drafters (DFlash) do.
    """

    terminal: Loss = "supervised"
    reasoning: Loss = "supervised"
    window: Annotated[int, Meta(ge=1, lt=2**31)] | None = None
    adjacent_pair: bool = False


class Share(_Strict, frozen=True, kw_only=True):
    """How much of one dataset or source is taken at most, and its part of the mix; None: no limit, no weight."""

    weight: Weight | None = None
    max_rows: Limit | None = None
    max_tokens: Limit | None = None
    max_supervised_tokens: Limit | None = None


class MergeSettings(_Strict, frozen=True, kw_only=True):
    """[merge] of tokenproof.toml. All of it is written into the manifest.

    Attributes:
        seed: Rows stand in the order of sha256(seed + row_key).
        duplicates: Whether a row is left out whose request, or whose prompt and answer ids, another dataset has too.
        contradicted_prompts: Whether a row is left out whose reported prompt length contradicts our prompt ids.
        validation_percent: Of the prompts (0 to 50), with all of their samples and turns, that go to validation.
        weigh: What weights are ratios of.
        max_rows: Of the whole train set, validation included; so the next two.
        datasets: Name of a dataset → its share.
        sources: `source` or `source/provider` → its share; a row belongs to the more specific one.
    """

    seed: int = 0
    duplicates: Fate = "drop"
    contradicted_prompts: Fate = "drop"
    validation_percent: Percent = 0.0
    weigh: Unit = "tokens"
    max_rows: Limit | None = None
    max_tokens: Limit | None = None
    max_supervised_tokens: Limit | None = None
    datasets: dict[str, Share] = {}
    sources: dict[str, Share] = {}
    mask: MaskSettings = MaskSettings()


DEFAULT_MIX = MergeSettings()


def mix_faults(mix: MergeSettings) -> Iterator[str]:
    """What does not go together; each fault begins with the key's place below [merge]."""
    if weights_of(mix.datasets) and weights_of(mix.sources):
        yield "sources: expected weights of datasets or of sources, found both: the one would undo the other"


def weights_of(shares: Mapping[str, Share]) -> dict[str, float]:
    """The weights that are given."""
    return {name: share.weight for name, share in shares.items() if share.weight is not None}


def with_shares(
    shares: Mapping[str, Share], weights: Mapping[str, float], max_rows: Mapping[str, int]
) -> dict[str, Share]:
    """Shares, with weights and limits of rows that replace or join those that are there."""
    changed = dict(shares)
    for name, weight in weights.items():
        changed[name] = msgspec.structs.replace(changed.get(name, Share()), weight=weight)
    for name, rows in max_rows.items():
        changed[name] = msgspec.structs.replace(changed.get(name, Share()), max_rows=rows)
    return changed


def of_these(mix: MergeSettings, datasets: Collection[str]) -> MergeSettings:
    """The settings of one merge: shares of datasets that take no part are left out."""
    return msgspec.structs.replace(
        mix, datasets={name: share for name, share in sorted(mix.datasets.items()) if name in datasets}
    )
