"""Judged facts on disk: what the whole dataset taught is laid over one shard after the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from toolkit.audit.alterations import Alteration
from toolkit.audit.evidence import Convention, judge_part, learn_all
from toolkit.audit.fact_files import FactFiles, scan_files
from toolkit.audit.workers import cores, in_order, threads
from toolkit.columns import JUDGED_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import StoreError


@dataclass(frozen=True, slots=True)
class JudgedFiles:
    """The facts with `JUDGED_COLUMNS` as a frame over files, rows in the facts' order, and what was learned about each
    group. The files belong to the folder that they were written to."""

    facts: pl.LazyFrame
    rows: int
    conventions: list[Convention]
    alterations: list[Alteration]


def judge_files(
    facts: FactFiles,
    contract: Contract,
    folder: Path,
    *,
    allowed_providers: tuple[str, ...] = (),
    workers: int | None = None,
) -> JudgedFiles:
    """Judge facts that are on disk; memory holds one shard's facts for each worker.

    Args:
        facts: Facts of a dataset.
        contract: The dataset's contract.
        folder: Where the judged facts go, a file for each shard.
        allowed_providers: Display names; empty = any.
        workers: Shards that are judged side by side.

    Raises:
        StoreError: a file cannot be written or read.
    """
    workers = min(workers or cores(), max(len(facts.files), 1))
    lessons = learn_all(facts, contract)

    def judge_one(number: int) -> Path:
        path = folder / f"judged-{number:06d}.parquet"
        file = facts.files[number]
        try:
            part = pl.read_parquet(file.path, glob=False)
            judged = judge_part(part, lessons, contract, allowed_providers=allowed_providers)
            judged.select(JUDGED_SCHEMA.names).write_parquet(path, compression="lz4", statistics=False)
        except (OSError, pl.exceptions.ComputeError) as error:
            said = str(error).splitlines()[0][:200]
            raise StoreError(f"{file.path.name}: judged facts cannot be written to {folder}: {said}") from None
        return path

    with threads(workers) as pool:
        paths = list(
            in_order(lambda number: pool.submit(judge_one, number), range(len(facts.files)), ahead=2 * workers)
        )
    return JudgedFiles(scan_files(paths, JUDGED_SCHEMA), facts.rows, lessons.conventions, lessons.alterations)
