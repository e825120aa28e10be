"""What a verdict says beside its expectations: rows that a merge leaves out, and whose suite and contract it was."""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl

from toolkit.audit.suite import read_suite, shipped_suite
from toolkit.audit.tally import left_out_of_merge, standing_of_contract, standing_of_suite
from toolkit.contract import Contract
from toolkit.merge import Dropped
from toolkit.records import Standing


def test_a_row_is_left_out_for_the_first_reason_that_holds() -> None:
    judged = pl.DataFrame(
        [
            (True, False, 5, 3),
            (False, True, None, None),
            (True, True, None, None),
            (True, False, None, None),
            (True, False, 0, 3),
            (True, False, 5, None),
            (True, False, 5, 0),
        ],
        schema={"_kept": pl.Boolean, "probe": pl.Boolean, "n_ids": pl.Int32, "n_prompt_ids": pl.Int32},
        orient="row",
    )
    found = left_out_of_merge(judged)
    assert found == {"quarantined": 1, "probe": 1, "no_ids": 2, "prompt_unknown": 2}
    assert list(found) == list(Dropped)
    assert left_out_of_merge(judged[:1]) == {}


def test_a_suite_of_ones_own_is_told_from_the_shipped_one(tmp_path: Path) -> None:
    shipped = shipped_suite("kimi-k2.5")
    assert standing_of_suite(read_suite(shipped), shipped) is Standing.SHIPPED
    same = tmp_path / "kimi-k2.5.json"
    same.write_bytes(shipped.read_bytes())
    assert standing_of_suite(read_suite(same), same) is Standing.SHIPPED
    same.write_bytes(shipped.read_bytes() + b"\n")
    assert standing_of_suite(read_suite(same), same) is Standing.SHADOWING
    other = same.rename(tmp_path / "mine.json")
    assert standing_of_suite(read_suite(other), other) is Standing.OWN


def test_a_contract_of_ones_own_is_told_from_the_shipped_one(kimi: Contract) -> None:
    assert standing_of_contract(kimi) is Standing.SHIPPED
    assert standing_of_contract(msgspec.structs.replace(kimi, sha256="0" * 64)) is Standing.SHADOWING
    for name in ("mine", "../kimi-k2.5", ""):
        assert standing_of_contract(msgspec.structs.replace(kimi, name=name)) is Standing.OWN
