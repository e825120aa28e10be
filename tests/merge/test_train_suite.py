"""What the suite of train sets says of rows as people have them: masks, windows, terminals, sets of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.conftest import shared_file
from toolkit.audit.gx.evaluate import check_suite, evaluate
from toolkit.audit.suite import Suite, shipped_suite
from toolkit.columns import TRAIN_FACTS_SCHEMA, TRAIN_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import SuiteError
from toolkit.masks import MaskForm, mask_form
from toolkit.mix import MaskSettings
from toolkit.train_facts import measure_train
from toolkit.train_suite import read_train_suite

# The made-up vocabulary of the shared rows: 4 ends an answer, 5 and 6 begin and end thinking.
TERMINAL, BEGIN, END = 4, 5, 6

JUDGED_HERE = (4, 5, 6, 7, 11, *range(19, 25))
"""Rows whose every fault is one of mask, window or prompt."""


@pytest.fixture(scope="module")
def suite() -> Suite:
    return read_train_suite(shipped_suite("train-set"))


def form_of(**changes: Any) -> MaskForm:
    fields: dict[str, Any] = {
        "terminals": frozenset({TERMINAL}),
        "begin_think": BEGIN,
        "end_think": END,
        "thinking_modes": frozenset({"think"}),
    }
    return MaskForm(**fields | changes)


def train_row(ids: list[int], mask: list[int | None], prompt_len: int, **changes: Any) -> dict[str, Any]:
    """A row of a train set that is what it says, but for ids and mask."""
    fields = {
        **dict.fromkeys(TRAIN_SCHEMA.names),
        "id": "B3/a/0/0", "row_key": "k", "dataset": "B3", "input_ids": ids, "loss_mask": mask,
        "prompt_len": prompt_len, "seq_len": len(ids), "n_supervised": mask.count(1), "source": "sglang",
        "mode": "think", "ids_source": "rebuilt", "prompt_ids_source": "rendered", "finish_reason": "stop",
        "contract": "kimi-k2.5", "contract_sha256": "c0", "shard": "5a",
    }  # fmt: skip
    return fields | changes


def facts_of(rows: list[dict[str, Any]], contract: Contract, form: MaskForm) -> pa.Table:
    return measure_train(pa.Table.from_pylist(rows, schema=TRAIN_SCHEMA), contract, form, "train")


def fails(rows: list[dict[str, Any]], suite: Suite, contract: Contract, form: MaskForm) -> list[str]:
    """Ids of the expectations that do not hold."""
    results = evaluate(suite, facts_of(rows, contract, form)).results
    assert [r.error for r in results if r.error] == []
    return [r.id for r in results if not r.success]


def shared_rows() -> list[dict[str, Any]]:
    lines = shared_file("rows.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def shared_case(number: int) -> tuple[dict[str, Any], MaskForm, list[str]]:
    case = next(case for case in shared_rows() if case["name"].startswith(f"{number:02} "))
    found = case["row"]
    form = form_of(window=case["args"].get("train_len"), adjacent_pair=case["args"].get("profile") == "dflash")
    made = train_row(
        found["input_ids"],
        found["loss_mask"],
        len(found["prompt_ids"]),
        mode=found["mode"],
        finish_reason=found["finish_reason"],
    )
    return made, form, case["expect"]


@pytest.mark.parametrize("number", JUDGED_HERE)
def test_shared_rows_are_judged_as_stated(number: int, suite: Suite, kimi: Contract) -> None:
    made, form, expected = shared_case(number)
    assert fails([made], suite, kimi, form) == expected


def test_the_other_shared_rows_fail_only_what_the_suite_speaks_of(suite: Suite, kimi: Contract) -> None:
    ids = {expectation.id for expectation in suite.expectations}
    for number in range(1, 19):
        if number not in JUDGED_HERE:
            made, form, expected = shared_case(number)
            assert fails([made], suite, kimi, form) == [code for code in expected if code in ids], number


def test_all_shared_rows_in_one_table_are_told_apart(suite: Suite, kimi: Contract) -> None:
    numbers = [number for number in JUDGED_HERE if number not in (20, 21, 22)]
    cases = [shared_case(number) for number in numbers]
    rows = [made | {"id": f"B3/{number}/0/0"} for number, (made, _, _) in zip(numbers, cases, strict=True)]
    failing = evaluate(suite, facts_of(rows, kimi, form_of())).failing
    found = {
        number: [name for name, positions in failing.items() if place in positions]
        for place, number in enumerate(numbers)
    }
    assert found == {number: expected for number, (_, _, expected) in zip(numbers, cases, strict=True)}


GOOD = train_row([1, 2, 5, 50, 6, 60, 4], [0, 0, 1, 1, 1, 1, 1], 2)


@pytest.mark.parametrize(
    ("rows", "failing"),
    [
        ([GOOD], []),
        ([GOOD, GOOD], ["id_repeated"]),
        ([GOOD | {"seq_len": 8}], ["seq_len_stated"]),
        ([GOOD | {"n_supervised": 4}], ["n_supervised_stated"]),
        ([GOOD | {"loss_mask": [0, 0, 1, 0, 1, 1, 1], "n_supervised": 4}], ["mask_with_gaps"]),
        ([GOOD | {"loss_mask": [0, 0, 1, 1, None, 1, 1], "n_supervised": 4}], ["mask_not_binary", "mask_with_gaps"]),
        ([GOOD | {"loss_mask": [0, 0, 1, 1, 1, 1, 1, 1]}], ["len_mismatch"]),
        ([train_row([1, 2, 5, 50, 51], [0, 0, 1, 1, 0], 2, finish_reason="length")], ["completion_end_masked"]),
        ([train_row([1, 2, 5, 50, 51], [0, 0, 1, 1, 1], 2, finish_reason="length")], []),
        # A template's terminal behind an answer that was cut; an engine may sample one at the cap.
        ([GOOD | {"finish_reason": "length"}], ["false_end_after_length"]),
        ([GOOD | {"finish_reason": "length", "ids_source": "engine"}], []),
        ([GOOD | {"input_ids": [1, 2, 5, -1, 6, 163840, 4]}], ["id_out_of_vocab"]),
        # The empty block at a prompt's end is the mode's own; a block in the middle is an earlier answer's.
        ([train_row([1, 5, 9, 6, 9, 60, 4], [0] * 5 + [1, 1], 5, mode="instant")], []),
        ([train_row([1, 5, 9, 6, 7, 7, 7, 60, 4], [0] * 7 + [1, 1], 7, mode="instant")], ["history_reasoning_kept"]),
        ([train_row([1, 5, 6, 7, 7, 7, 7, 60, 4], [0] * 7 + [1, 1], 7, mode="instant")], []),
    ],
)
def test_what_each_expectation_sees(
    rows: list[dict[str, Any]], failing: list[str], suite: Suite, kimi: Contract
) -> None:
    assert fails(rows, suite, kimi, form_of()) == failing


@pytest.mark.parametrize(
    ("mask", "options", "failing"),
    [
        ([0, 0, 1, 1, 1, 1, 0], {"terminal_supervised": False}, []),
        ([0, 0, 1, 1, 1, 1, 1], {"terminal_supervised": False}, ["end_token_not_supervised"]),
        ([0, 0, 0, 0, 0, 1, 1], {"reasoning_supervised": False}, []),
        ([0, 0, 1, 1, 1, 1, 1], {"reasoning_supervised": False}, ["completion_start_masked"]),
        ([0, 0, 0, 0, 0, 1, 0], {"reasoning_supervised": False, "terminal_supervised": False}, []),
        ([0, 0, 1, 1, 1, 1, 1], {"window": 5}, ["clipped_at_train_len"]),
        ([0, 0, 1, 1, 1, 1, 1], {"window": 7}, []),
        ([0, 0, 1, 1, 1, 1, 1], {"window": 2}, ["nothing_supervised_after_clip"]),
        (
            [0, 0, 1, 1, 1, 1, 1],
            {"window": 3, "adjacent_pair": True},
            ["clipped_at_train_len", "dflash_needs_two_adjacent"],
        ),
    ],
)  # fmt: skip
def test_masks_are_held_against_the_options(
    mask: list[int], options: dict[str, Any], failing: list[str], suite: Suite, kimi: Contract
) -> None:
    rows = [GOOD | {"loss_mask": mask, "n_supervised": mask.count(1)}]
    assert fails(rows, suite, kimi, form_of(**options)) == failing


def test_great_expectations_knows_all_of_the_suite(suite: Suite) -> None:
    check_suite(suite)
    assert {column for e in suite.expectations for column in e.columns} <= set(TRAIN_FACTS_SCHEMA.names)


def test_reasoning_cannot_be_masked_where_no_id_ends_it() -> None:
    from toolkit.contract import read_contract
    from toolkit.errors import ConfigError

    with pytest.raises(ConfigError, match=r"no single id of contract gpt-oss ends the reasoning"):
        mask_form(read_contract("gpt-oss"), MaskSettings(reasoning="masked"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kwargs": {"column": "n_supervisd", "value_set": [0]}}, r"expectations\[0\] \(x\): kwargs: unknown column"),
        ({"kwargs": {"column": "n_gaps", "value_set": ["0"]}}, r"expected a number"),
        ({"kwargs": {"column": "n_gaps", "value_set": [0], "mostly": 2}}, r"kwargs.mostly"),
        ({"severity": "warning"}, "at least one of severity critical"),
        ({"severity": "fatal"}, "Invalid enum value"),
        ({"tipe": "x"}, "unknown field `tipe`"),
    ],
)
def test_a_suite_that_would_not_be_checked_as_written(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    item = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "n_gaps", "value_set": [0]},
        "severity": "critical",
        "meta": {"id": "x", "says": "a", "wrong": "b"},
    }
    path = tmp_path / "own.json"
    document = {"name": "own", "expectations": [item | change], "meta": {"tokenproof": {"table": "train"}}}
    path.write_bytes(msgspec.json.encode(document))
    with pytest.raises(SuiteError, match=message):
        read_train_suite(path)
