"""What a verdict counts and names beside its expectations: pure over the judged rows, but for shipped files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
import polars as pl

from toolkit.audit.fact_files import Frame, collected
from toolkit.audit.suite import Suite
from toolkit.contract import Contract
from toolkit.records import Standing

SHIPPED_LIST = Path(__file__).parents[1] / "shipped.json"
"""Name → sha256 of the suites and contracts that come with the tool, as they were released."""


class _Shipped(msgspec.Struct):
    suites: dict[str, str]
    contracts: dict[str, str]


_FATES = (
    ("quarantined", ~pl.col("_kept")),
    ("probe", pl.col("probe")),
    ("no_ids", pl.col("n_ids").fill_null(0) == 0),
    ("prompt_unknown", pl.col("n_prompt_ids").fill_null(0) == 0),
)
"""Why a merge does not write a row, in its own order and words; where several hold, the first counts."""


def left_out_of_merge(judged: Frame) -> dict[str, int]:
    """Reason → rows that a merge would not write; reasons that occur in no row are left out.

    Args:
        judged: Frame of the judged facts with `_kept`: false for rows in quarantine.
    """
    fate = pl.lit(None, dtype=pl.String)
    for name, holds in reversed(_FATES):
        fate = pl.when(holds).then(pl.lit(name)).otherwise(fate)
    counted = dict(collected(judged.lazy().group_by(fate.alias("fate")).len()).iter_rows())
    return {name: int(counted[name]) for name, _ in _FATES if name in counted}


def standing_of_suite(suite: Suite, path: Path) -> Standing:
    """What a suite file is to the shipped one of the same file name."""
    return _standing(path.stem, suite.sha256, _shipped().suites)


def standing_of_contract(contract: Contract) -> Standing:
    """What a contract is to the shipped one of the same name."""
    return _standing(contract.name, contract.sha256, _shipped().contracts)


def _standing(name: str, sha256: str, shipped: Mapping[str, str]) -> Standing:
    """By bytes, wherever the file lies: in a clone the shipped file itself may have been edited."""
    if name in shipped:
        return Standing.SHIPPED if sha256 == shipped[name] else Standing.EDITED
    return Standing.SHIPPED if sha256 in shipped.values() else Standing.OWN


@lru_cache(maxsize=1)
def _shipped() -> _Shipped:
    return msgspec.json.decode(SHIPPED_LIST.read_bytes(), type=_Shipped)
