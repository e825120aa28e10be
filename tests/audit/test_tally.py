"""What a verdict says beside its expectations: rows that a merge leaves out, and whose suite and contract it was."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl

from tests.conftest import ROOT
from toolkit.audit.suite import read_suite, shipped_suite
from toolkit.audit.tally import SHIPPED_LIST, left_out_of_merge, standing_of_contract, standing_of_suite
from toolkit.contract import SHIPPED, Contract
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
    # The reasons that a dataset itself gives come first; the others are a merge's own.
    assert list(found) == list(Dropped)[:4]
    assert left_out_of_merge(judged[:1]) == {}


def test_a_suite_of_ones_own_is_told_from_the_shipped_one(tmp_path: Path) -> None:
    shipped = shipped_suite("kimi-k2.5")
    assert standing_of_suite(read_suite(shipped), shipped) is Standing.SHIPPED
    same = tmp_path / "kimi-k2.5.json"
    same.write_bytes(shipped.read_bytes())
    assert standing_of_suite(read_suite(same), same) is Standing.SHIPPED
    same.write_bytes(shipped.read_bytes() + b"\n")
    assert standing_of_suite(read_suite(same), same) is Standing.EDITED
    other = same.rename(tmp_path / "mine.json")
    assert standing_of_suite(read_suite(other), other) is Standing.OWN


def test_a_contract_of_ones_own_is_told_from_the_shipped_one(kimi: Contract) -> None:
    assert standing_of_contract(kimi) is Standing.SHIPPED
    assert standing_of_contract(msgspec.structs.replace(kimi, sha256="0" * 64)) is Standing.EDITED
    for name in ("mine", "../kimi-k2.5", ""):
        assert standing_of_contract(msgspec.structs.replace(kimi, name=name, sha256="0" * 64)) is Standing.OWN


def test_the_list_of_what_is_shipped_is_that_of_the_files() -> None:
    """Where this fails, a suite or a contract was changed: `python scripts/suites.py` writes the list anew."""
    found = {
        kind: {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob(f"*.{end}")}
        for kind, folder, end in (("suites", ROOT / "expectations", "json"), ("contracts", SHIPPED, "toml"))
    }
    assert json.loads(SHIPPED_LIST.read_text()) == found


def test_a_shipped_file_that_was_edited_where_it_lies_is_told(tmp_path: Path) -> None:
    """Not the path decides, but the bytes: a clone's expectations/ is where shipped suites lie."""
    shipped = shipped_suite("kimi-k2.5")
    edited = replace(read_suite(shipped), sha256="0" * 64)
    assert standing_of_suite(edited, shipped) is Standing.EDITED
    assert standing_of_suite(edited, shipped.with_name("phi-4.json")) is Standing.OWN
    copy = tmp_path / "mine.json"
    copy.write_bytes(shipped.read_bytes())
    assert standing_of_suite(read_suite(copy), copy) is Standing.SHIPPED
