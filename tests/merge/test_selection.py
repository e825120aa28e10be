"""Which rows are taken: duplicates, limits, weights, budgets, sides of the split."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest

from toolkit.errors import ConfigError, StoreError
from toolkit.merge.selection import INDEX, REASONS, TRAIN, VALIDATION, Dropped, order_of, select_rows
from toolkit.mix import MergeSettings, Share, mix_faults
from toolkit.split import labels_of, on_validation_side

DATASETS = ["B3", "B4", "B5"]
GROUPS: list[tuple[str, str | None]] = [("sglang", None), ("openrouter", "Chutes"), ("openrouter", "Avian")]


def index_of(*rows: dict[str, Any]) -> pl.DataFrame:
    """An index; what a row does not say is its own."""
    made = []
    for number, row in enumerate(rows):
        own = int.from_bytes(hashlib.sha256(str(number).encode()).digest()[:8], "big")
        fields = {
            "dataset": 0, "group": 0, "order_1": own, "order_2": own, "prompt_hash": own, "answer_hash": own,
            "opening": own, "sample_id": f"s{number}", "turn": 0, "sample_index": 0, "n_tokens": 10, "n_supervised": 4,
        }  # fmt: skip
        made.append(fields | row)
    return pl.DataFrame(made, schema=INDEX)


def told(index: pl.DataFrame, mix: MergeSettings) -> list[str]:
    fates = select_rows(index, mix, DATASETS, GROUPS)
    names = [*map(str, REASONS), "train", "validation"]
    return [names[fate] for fate in fates.tolist()]


def test_one_of_two_datasets_keeps_a_request_and_an_answer() -> None:
    index = index_of(
        {"dataset": 1, "order_1": 7, "order_2": 7},
        {"dataset": 0, "order_1": 7, "order_2": 7},
        {"dataset": 0, "order_1": 7, "order_2": 7},
        {"dataset": 2, "order_1": 7, "order_2": 8},
        {"dataset": 2, "prompt_hash": 1, "answer_hash": 2},
        {"dataset": 1, "prompt_hash": 1, "answer_hash": 2},
        {"dataset": 2, "prompt_hash": 1, "answer_hash": 3},
    )
    expected = ["duplicate_request", "train", "train", "train", "duplicate_answer", "train", "train"]
    assert told(index, MergeSettings()) == expected
    assert told(index, MergeSettings(duplicates="keep")) == ["train"] * 7
    assert told(index.reverse(), MergeSettings()) == expected[::-1]


def test_limits_take_the_first_rows_in_the_order_of_the_train_set() -> None:
    index = index_of(*({"order_1": order, "n_tokens": 10} for order in (5, 1, 4, 2, 3)))
    limited = MergeSettings(datasets={"B3": Share(max_rows=3)})
    assert told(index, limited) == ["dataset_limit", "train", "dataset_limit", "train", "train"]
    assert told(index, MergeSettings(max_tokens=29)) == ["limit", "train", "limit", "train", "limit"]
    assert told(index, MergeSettings(max_tokens=0)) == ["limit"] * 5
    assert told(index, MergeSettings(max_supervised_tokens=4)) == ["limit", "train", "limit", "limit", "limit"]


@pytest.mark.parametrize("unit", ["max_rows", "max_tokens", "max_supervised_tokens"])
def test_a_larger_limit_takes_what_a_smaller_one_takes(unit: str) -> None:
    draw = np.random.default_rng(0)
    index = index_of(*({"n_tokens": int(n), "n_supervised": int(n) // 2} for n in draw.integers(2, 90, 200)))
    taken = [
        {place for place, fate in enumerate(told(index, MergeSettings(**{unit: most}))) if fate == "train"}
        for most in (0, 3, 50, 51, 700, 10**9)
    ]
    assert all(small <= large for small, large in itertools.pairwise(taken))
    assert (len(taken[0]), len(taken[-1])) == (0, 200)


def test_a_row_belongs_to_the_more_specific_source() -> None:
    index = index_of({"group": 1}, {"group": 2}, {"group": 0}, {"group": 2})
    mix = MergeSettings(sources={"openrouter": Share(max_rows=0), "openrouter/Chutes": Share(max_rows=5)})
    assert told(index, mix) == ["train", "source_limit", "train", "source_limit"]


def test_weights_are_ratios_of_tokens_as_far_as_the_scarcest_part_reaches() -> None:
    index = index_of(*({"dataset": n % 3, "n_tokens": 10} for n in range(300)))
    mix = MergeSettings(datasets={"B3": Share(weight=2.0), "B4": Share(weight=1.0), "B5": Share(weight=0.5)})
    fates = pl.DataFrame({"dataset": index["dataset"], "fate": told(index, mix)})
    taken = fates.filter(fate="train")["dataset"].value_counts().sort("dataset")["count"].to_list()
    assert taken == [100, 50, 25]
    assert set(fates["fate"]) == {"train", "weight"}
    budget = MergeSettings(datasets=mix.datasets, max_tokens=700)
    fates = pl.DataFrame({"dataset": index["dataset"], "fate": told(index, budget)})
    assert fates.filter(fate="train")["dataset"].value_counts().sort("dataset")["count"].to_list() == [40, 20, 10]
    by_rows = MergeSettings(datasets=mix.datasets, weigh="rows", max_rows=7)
    assert told(index, by_rows).count("train") == 7


def test_weights_that_cannot_be_kept() -> None:
    index = index_of({"dataset": 0}, {"dataset": 1})
    with pytest.raises(ConfigError, match="expected a weight for each part of the mix, found none for B4"):
        told(index, MergeSettings(datasets={"B3": Share(weight=1.0)}))
    with pytest.raises(StoreError, match="no row of B5 is left"):
        told(index, MergeSettings(datasets={name: Share(weight=1.0) for name in DATASETS}))
    both = MergeSettings(datasets={"B3": Share(weight=1.0)}, sources={"sglang": Share(weight=1.0)})
    assert [fault.partition(":")[0] for fault in mix_faults(both)] == ["sources"]


def test_rows_of_one_request_stand_in_the_order_of_dataset_and_identity() -> None:
    index = index_of(
        {"dataset": 1, "order_1": 7, "order_2": 7, "sample_id": "a"},
        {"dataset": 0, "order_1": 7, "order_2": 7, "sample_id": "b", "sample_index": 1},
        {"dataset": 0, "order_1": 7, "order_2": 7, "sample_id": "b", "sample_index": 0},
        {"dataset": 2, "order_1": 2, "order_2": 9},
        {"dataset": 2, "order_1": 2, "order_2": 1},
        {"dataset": 2, "order_1": 2**64 - 1, "order_2": 1},
    )
    assert order_of(index).tolist() == [4, 3, 2, 1, 0, 5]


def test_all_rows_of_a_prompt_are_on_one_side() -> None:
    draw = np.random.default_rng(1)
    openings = draw.integers(0, 2**62, 200)[draw.integers(0, 200, 300)].tolist()
    numbers = draw.integers(0, (3, 400, 3), (300, 3)).tolist()
    rows = [
        {"dataset": dataset, "sample_id": f"s{sample}", "opening": opening, "turn": turn}
        for (dataset, sample, turn), opening in zip(numbers, openings, strict=True)
    ]
    index = index_of(*rows)
    sides = pl.Series(told(index, MergeSettings(validation_percent=30)))
    frame = index.with_columns(side=sides, label=pl.Series(labels_of(index)))
    for keys in (["dataset", "sample_id"], ["opening"], ["label"]):
        assert frame.group_by(keys).agg(pl.col("side").n_unique())["side"].max() == 1
    assert set(sides) == {"train", "validation"}


def test_a_chain_of_openings_and_samples_is_one_prompt() -> None:
    chain = [{"dataset": 0, "sample_id": f"s{n // 2}", "opening": 900 - (n + 1) // 2} for n in range(40)]
    assert len(set(labels_of(index_of(*chain)).tolist())) == 1


def test_the_share_of_validation_is_about_what_was_asked_for_and_grows_with_it() -> None:
    labels = np.random.default_rng(2).integers(0, 2**63, 50_000).astype(np.uint64)
    one, five, half = (on_validation_side(labels, percent) for percent in (1, 5, 50))
    assert 0.008 < one.mean() < 0.012
    assert 0.045 < five.mean() < 0.055
    assert 0.48 < half.mean() < 0.52
    assert (one <= five).all()
    assert (five <= half).all()
    # Labels are least hashes, so small ones are frequent.
    assert 0.04 < on_validation_side(labels >> np.uint64(20), 5).mean() < 0.06


def test_sides_do_not_depend_on_limits_or_seed() -> None:
    index = index_of(*({} for _ in range(200)))
    whole = np.array(told(index, MergeSettings(validation_percent=20)))
    some = np.array(told(index, MergeSettings(validation_percent=20, seed=9, max_rows=80)))
    kept = some != "limit"
    assert kept.sum() == 80
    assert (whole[kept] == some[kept]).all()


def test_fates_are_numbered_as_reasons_are() -> None:
    assert (len(Dropped), len(Dropped) + 1) == (TRAIN, VALIDATION)
    assert len(Dropped) < 126
