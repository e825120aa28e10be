"""Which rows of all that may be trained on are taken, and for which side of the split. Pure, over a narrow index.

Whatever is decided here depends on what the rows hold and on the options, never on how rows lie in shards or in which
order datasets were named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import polars as pl

from toolkit.errors import ConfigError, StoreError
from toolkit.mix import MergeSettings, Share, Unit, weights_of
from toolkit.split import labels_of, on_validation_side

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]


class Dropped(StrEnum):
    """Why a row is not in the train set; where several hold, the first counts."""

    QUARANTINED = "quarantined"
    PROBE = "probe"
    NO_IDS = "no_ids"
    PROMPT_UNKNOWN = "prompt_unknown"
    PROMPT_CONTRADICTED = "prompt_contradicted"
    NOTHING_SUPERVISED = "nothing_supervised"
    OUTSIDE_WINDOW = "outside_window"
    NO_ADJACENT_PAIR = "no_adjacent_pair"
    DUPLICATE_REQUEST = "duplicate_request"
    DUPLICATE_ANSWER = "duplicate_answer"
    DATASET_LIMIT = "dataset_limit"
    SOURCE_LIMIT = "source_limit"
    WEIGHT = "weight"
    LIMIT = "limit"


REASONS = tuple(Dropped)
TRAIN = len(REASONS)
VALIDATION = TRAIN + 1
"""Fates of rows: an index of `REASONS`, or one of these."""

_UNITS: Mapping[Unit, str] = {
    "rows": "n_rows",
    "tokens": "n_tokens",
    "supervised_tokens": "n_supervised",
}

INDEX = {
    "dataset": pl.Int32,
    "group": pl.Int32,
    "order_1": pl.UInt64,
    "order_2": pl.UInt64,
    "prompt_hash": pl.UInt64,
    "answer_hash": pl.UInt64,
    "opening": pl.UInt64,
    "sample_id": pl.String,
    "turn": pl.Int32,
    "sample_index": pl.Int32,
    "n_tokens": pl.Int32,
    "n_supervised": pl.Int32,
}
"""The index: a line for each row that may be trained on. `dataset` and `group` are places in lists of datasets and of
(source, provider); `order_1` and `order_2` the first 128 bits of the hash that rows are sorted by; the hashes of ids
are equal where the ids are."""


def select_rows(
    index: pl.DataFrame, mix: MergeSettings, datasets: Sequence[str], groups: Sequence[tuple[str, str | None]]
) -> Codes:
    """The fate of each row of the index.

    Args:
        index: Columns of `INDEX`; in any order of rows.
        mix: The options.
        datasets: Names, sorted.
        groups: (source, provider), as `group` counts them.

    Raises:
        ConfigError: weights are given for some datasets or sources, and not for all.
        StoreError: a dataset or source that has a weight has no row left.
    """
    fates = np.full(len(index), TRAIN, np.int8)
    if mix.duplicates == "drop" and len(datasets) > 1:
        for fate, keys in (
            (Dropped.DUPLICATE_REQUEST, ["order_1", "order_2"]),
            (Dropped.DUPLICATE_ANSWER, ["prompt_hash", "answer_hash"]),
        ):
            _set(fates, _seen_in_an_earlier_dataset(index, keys), fate)
    part = index["dataset"].to_numpy()
    _apply_shares(index, fates, mix, Dropped.DATASET_LIMIT, list(datasets), part, mix.datasets)
    names, of_group = _source_names(groups, mix.sources)
    _apply_shares(index, fates, mix, Dropped.SOURCE_LIMIT, names, of_group[index["group"].to_numpy()], mix.sources)
    whole = Share(max_rows=mix.max_rows, max_tokens=mix.max_tokens, max_supervised_tokens=mix.max_supervised_tokens)
    _limit(index, fates, whole, np.ones(len(fates), np.bool_), Dropped.LIMIT)
    if mix.validation_percent:
        fates[(fates == TRAIN) & on_validation_side(labels_of(index), mix.validation_percent)] = VALIDATION
    return fates


def _set(fates: Codes, rows: Bools, fate: Dropped) -> None:
    fates[rows & (fates == TRAIN)] = REASONS.index(fate)


# --- duplicates -----------------------------------------------------------------------------------


def _seen_in_an_earlier_dataset(index: pl.DataFrame, keys: list[str]) -> Bools:
    """Rows whose key a dataset has too that comes before theirs by name. Within a dataset nothing is a duplicate: two
    samples may be asked the same, and answers to one prompt may be alike."""
    first = index.select((pl.col("dataset") > pl.col("dataset").min().over(keys)).alias("later"))
    return np.asarray(first["later"].to_numpy(), np.bool_)


# --- limits and weights ---------------------------------------------------------------------------


def _apply_shares(
    index: pl.DataFrame,
    fates: Codes,
    mix: MergeSettings,
    fate: Dropped,
    names: Sequence[str],
    part: npt.NDArray[np.int32],
    shares: Mapping[str, Share],
) -> None:
    """Limits of parts (datasets or sources), then their weights. `part` is each row's place in `names`."""
    for place, name in enumerate(names):
        if name in shares:
            _limit(index, fates, shares[name], part == place, fate)
    weights = weights_of({name: shares[name] for name in names if name in shares})
    if not weights:
        return
    missing = [
        name for name in names if name not in weights and bool((fates[part == names.index(name)] == TRAIN).any())
    ]
    if missing:
        raise ConfigError(f"merge: expected a weight for each part of the mix, found none for {', '.join(missing)}")
    amounts = _amounts(index, mix.weigh)
    there = {name: int(amounts[(part == names.index(name)) & (fates == TRAIN)].sum()) for name in weights}
    empty = [name for name, amount in there.items() if not amount]
    if empty:
        raise StoreError(f"merge: no row of {', '.join(empty)} is left, so no weight of it can be kept")
    for name, most in _targets(there, weights, _most_of_all(mix)).items():
        rows = (part == names.index(name)) & (fates == TRAIN)
        _set(fates, rows & ~_first_rows(index, rows, amounts, most), Dropped.WEIGHT)


def _targets(there: Mapping[str, int], weights: Mapping[str, float], most: int | None) -> dict[str, int]:
    """How much of each part is taken: as its weight says, and as much as the scarcest part and the limit allow."""
    exact = {name: Fraction(weight) for name, weight in weights.items()}
    scale = min(Fraction(there[name]) / exact[name] for name in exact)
    if most is not None:
        scale = min(scale, Fraction(most) / sum(exact.values()))
    return {name: int(scale * weight) for name, weight in exact.items()}


def _most_of_all(mix: MergeSettings) -> int | None:
    """The limit of the whole in the unit of the weights."""
    return {"rows": mix.max_rows, "tokens": mix.max_tokens, "supervised_tokens": mix.max_supervised_tokens}[mix.weigh]


def _limit(index: pl.DataFrame, fates: Codes, share: Share, rows: Bools, fate: Dropped) -> None:
    limits: Mapping[Unit, int | None] = {
        "rows": share.max_rows,
        "tokens": share.max_tokens,
        "supervised_tokens": share.max_supervised_tokens,
    }
    for unit, most in limits.items():
        if most is not None:
            living = rows & (fates == TRAIN)
            _set(fates, living & ~_first_rows(index, living, _amounts(index, unit), most), fate)


def _amounts(index: pl.DataFrame, unit: Unit) -> Ints:
    if unit == "rows":
        return np.ones(len(index), np.int64)
    return index[_UNITS[unit]].cast(pl.Int64).to_numpy()


def _first_rows(index: pl.DataFrame, rows: Bools, amounts: Ints, most: int) -> Bools:
    """Of `rows`, in the order of the train set, the longest beginning whose amounts sum to at most `most`."""
    chosen = np.zeros(len(rows), np.bool_)
    at = np.flatnonzero(rows)
    if int(amounts[at].sum()) <= most:
        chosen[at] = True
        return chosen
    ordered = at[order_of(index[at])]
    chosen[ordered[: int(np.searchsorted(np.cumsum(amounts[ordered]), most, side="right"))]] = True
    return chosen


def order_of(index: pl.DataFrame) -> Ints:
    """Places of the rows in the order of the train set; rows of one request by dataset and identity."""
    keys = ["order_1", "order_2", "dataset", "sample_id", "turn", "sample_index"]
    return np.asarray(index.select(pl.arg_sort_by(keys))[keys[0]].to_numpy(), np.int64)


def _source_names(
    groups: Sequence[tuple[str, str | None]], shares: Mapping[str, Share]
) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Names of sources as the options call them, sorted, and the place of each (source, provider) among them."""
    called = [f"{source}/{provider}" if f"{source}/{provider}" in shares else source for source, provider in groups]
    names = sorted(set(called))
    return names, np.array([names.index(name) for name in called], np.int32)
