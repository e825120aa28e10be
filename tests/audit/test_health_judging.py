"""What only other rows show: literal facts in, expected columns out."""

from __future__ import annotations

from typing import Any

import polars as pl

from toolkit.audit.health.judging import judge_health

SCHEMA = {
    "sample_id": pl.String, "mode": pl.String, "n_ids": pl.Int32, "loop_ids": pl.Int32, "answer_hash": pl.Int64,
    "prompt_hash": pl.Int64,
}  # fmt: skip
GOOD: dict[str, Any] = {
    "sample_id": "a", "mode": "thinking", "n_ids": 100, "loop_ids": 0, "answer_hash": 1, "prompt_hash": 1,
}  # fmt: skip


def judged(*rows: dict[str, Any]) -> pl.DataFrame:
    frame = pl.DataFrame([GOOD | row for row in rows], schema=SCHEMA)
    found = judge_health(frame)
    assert found.select(frame.columns).equals(frame)
    return found


def test_the_same_answer_to_another_prompt() -> None:
    found = judged(
        {"answer_hash": 1, "prompt_hash": 1, "sample_id": "a"},
        {"answer_hash": 1, "prompt_hash": 2, "sample_id": "b"},
        {"answer_hash": 2, "prompt_hash": 3, "sample_id": "c"},
        {"answer_hash": 2, "prompt_hash": 3, "sample_id": "c"},
        {"answer_hash": 3, "prompt_hash": 4, "n_ids": 31},
        {"answer_hash": 3, "prompt_hash": 5, "n_ids": 31},
        {"answer_hash": 4, "prompt_hash": 6, "n_ids": 32},
        {"answer_hash": 4, "prompt_hash": None, "n_ids": 32, "sample_id": "d"},
        {"answer_hash": 5, "prompt_hash": None, "sample_id": "e"},
        {"answer_hash": 5, "prompt_hash": None, "sample_id": "e"},
        {"answer_hash": None, "prompt_hash": 7},
        {"answer_hash": None, "prompt_hash": 8},
        {"answer_hash": 6, "prompt_hash": 9, "n_ids": None},
        {"answer_hash": 6, "prompt_hash": 10, "n_ids": None},
    )
    assert found["duplicate_answer"].to_list() == [
        True, True, False, False, False, False, True, True, False, False, None, None, None, None,
    ]  # fmt: skip


def test_the_same_prompt_under_another_name() -> None:
    found = judged(
        {"prompt_hash": 1, "sample_id": "a"},
        {"prompt_hash": 1, "sample_id": "a"},
        {"prompt_hash": 2, "sample_id": "b"},
        {"prompt_hash": 2, "sample_id": "c"},
        {"prompt_hash": None, "sample_id": "d"},
        {"prompt_hash": None, "sample_id": "e"},
    )
    assert found["duplicate_prompt"].to_list() == [False, False, True, True, None, None]


def test_lengths_are_judged_within_their_mode() -> None:
    usual = [{"n_ids": 100 + i} for i in range(60)]
    instant = [{"n_ids": 2_000 + i, "mode": "instant"} for i in range(60)]
    found = judged(*usual, *instant, {"n_ids": 20_000}, {"n_ids": 2}, {"n_ids": 0}, {"n_ids": None})
    z = found["length_z"].to_list()
    assert max(abs(value) for value in z[:120]) < 2
    assert z[120] > 6
    assert z[121] < -6
    assert z[122:] == [None, None]


def test_few_rows_and_rows_without_health_have_no_usual_length() -> None:
    assert judged(*[{"n_ids": 100}] * 29)["length_z"].null_count() == 29
    off = judged(*[{"n_ids": 100, "loop_ids": None, "answer_hash": None, "prompt_hash": None}] * 40)
    assert [off[name].null_count() for name in ("length_z", "duplicate_answer", "duplicate_prompt")] == [40] * 3


def test_equal_lengths_make_no_outlier_of_one_a_little_longer() -> None:
    assert judged(*[{"n_ids": 500}] * 50, {"n_ids": 700})["length_z"].to_list()[-1] < 2


def test_no_rows() -> None:
    assert len(judge_health(pl.DataFrame(schema=SCHEMA))) == 0
