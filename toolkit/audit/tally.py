"""What a verdict counts and names beside its expectations: pure over the judged rows, but for shipped files."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from toolkit.audit.suite import Suite, shipped_suite
from toolkit.contract import SHIPPED, Contract
from toolkit.errors import ConfigError
from toolkit.records import Standing
from toolkit.store.files import sha256_of

_FATES = (
    ("quarantined", ~pl.col("_kept")),
    ("probe", pl.col("probe")),
    ("no_ids", pl.col("n_ids").fill_null(0) == 0),
    ("prompt_unknown", pl.col("n_prompt_ids").fill_null(0) == 0),
)
"""Why a merge does not write a row, in its own order and words; where several hold, the first counts."""


def left_out_of_merge(judged: pl.DataFrame) -> dict[str, int]:
    """Reason → rows that a merge would not write; reasons that occur in no row are left out.

    Args:
        judged: Frame of the judged facts with `_kept`: false for rows in quarantine.
    """
    fate = pl.lit(None, dtype=pl.String)
    for name, holds in reversed(_FATES):
        fate = pl.when(holds).then(pl.lit(name)).otherwise(fate)
    counted = judged.select(fate.alias("fate"))["fate"]
    return {name: count for name, _ in _FATES if (count := int((counted == name).sum()))}


def standing_of_suite(suite: Suite, path: Path) -> Standing:
    """What a suite file is to the shipped one of the same file name.

    Raises:
        StoreError: the shipped suite cannot be read.
    """
    try:
        shipped = shipped_suite(path.stem)
    except ConfigError:
        return Standing.OWN
    return _standing(suite.sha256, sha256_of(shipped))


def standing_of_contract(contract: Contract) -> Standing:
    """What a contract is to the shipped one of the same name.

    Raises:
        StoreError: the shipped contract cannot be read.
    """
    path = SHIPPED / f"{contract.name}.toml"
    if Path(contract.name).name != contract.name or not path.is_file():
        return Standing.OWN
    return _standing(contract.sha256, sha256_of(path))


def _standing(found: str, shipped: str) -> Standing:
    return Standing.SHIPPED if found == shipped else Standing.SHADOWING
