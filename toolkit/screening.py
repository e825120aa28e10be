"""Screening: answers that are nearly another's, and rows that hold evaluation prompts. Read once more, on request.

What is found is listed in files beside the reports; it closes no gate. Rows leave a dataset by `discard`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolkit.audit.health.near import THRESHOLD, NearDuplicates, find_near_duplicates
from toolkit.audit.health.overlap import EvaluationGrams, count_overlaps
from toolkit.columns import OVERLAP_SCHEMA
from toolkit.errors import StoreError
from toolkit.store.files import write_atomic, write_whole
from toolkit.store.shards import LiveShards, iter_shard, read_live
from toolkit.store.workspace import Dataset

FOLDER = "screen"
NEAR, OVERLAP = "near-duplicates", "evaluation-overlap"
"""Below reports/NAME/screen/: KIND.parquet with everything, KIND.ids with sample_ids for `discard --where @FILE`."""

_IDENTITY = ["row_key", "sample_id", "turn", "sample_index", "probe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What one screening found.

    Attributes:
        kind: `NEAR` or `OVERLAP`.
        compared: Rows that were looked at, probes aside; of near duplicates those that are long enough.
        found: Rows that were found; near duplicates of an answer to the same prompt are not among them.
        same_prompt: Near duplicates of an answer to the same prompt: several samples that say the same.
        table: The file with all of them.
        ids: The file with their sample_ids; those of the same prompt are not in it.
    """

    kind: str
    compared: int
    found: int
    same_prompt: int
    table: Path
    ids: Path

    @property
    def share(self) -> float:
        """Found among compared, 0 to 1."""
        return self.found / self.compared if self.compared else 0.0


def screen_near_duplicates(
    dataset: Dataset, *, threshold: float = THRESHOLD, advance: Callable[[int], None] = lambda _: None
) -> Screened:
    """Answers that share most 5-grams of ids with an earlier answer of the dataset.

    Args:
        dataset: Whose live shards are read.
        threshold: Estimated share of 5-grams in common from which two are told, 0 to 1.
        advance: Told of rows as they are read.

    Raises:
        ConfigError: the package that sketches them is not installed.
        StoreError: there are no rows, a shard cannot be read, or a file cannot be written.
    """
    table, ids = _fresh_files(dataset, NEAR)
    near = find_near_duplicates(_rows(dataset, [*_IDENTITY, "output_ids"], advance), threshold=threshold)
    _write(table, near.table)
    found = near.table.filter(pc.invert(near.table["same_prompt"]))
    _write_ids(ids, found["sample_id"])
    return _near(near, found.num_rows, table, ids)


def _near(near: NearDuplicates, found: int, table: Path, ids: Path) -> Screened:
    same = near.table.num_rows - found
    return Screened(kind=NEAR, compared=near.compared, found=found, same_prompt=same, table=table, ids=ids)


def screen_overlap(
    dataset: Dataset, evaluation: EvaluationGrams, *, advance: Callable[[int], None] = lambda _: None
) -> Screened:
    """Rows that share a stretch of words with evaluation prompts, in their user messages, reasoning or content.

    Raises:
        StoreError: there are no rows, a shard cannot be read, or a file cannot be written.
    """
    table, ids = _fresh_files(dataset, OVERLAP)
    compared = 0
    parts = [OVERLAP_SCHEMA.empty_table()]
    for rows in _rows(dataset, [*_IDENTITY, "messages", "reasoning", "content"], advance):
        compared += rows.num_rows
        counts = count_overlaps(rows, evaluation)
        held = rows.select(_IDENTITY[:-1]).append_column("stretches", counts)
        parts.append(held.filter(pc.greater(counts, 0)).cast(OVERLAP_SCHEMA))
    found = pa.concat_tables(parts)
    _write(table, found)
    _write_ids(ids, found["sample_id"])
    return Screened(kind=OVERLAP, compared=compared, found=found.num_rows, same_prompt=0, table=table, ids=ids)


def _rows(dataset: Dataset, columns: Sequence[str], advance: Callable[[int], None]) -> Iterator[pa.Table]:
    """Rows of all live shards, some thousand at a time; probes, which are never merged, are left out."""
    live = read_live(dataset)
    if not live.rows:
        raise StoreError(f"dataset {dataset.name}: no rows in {dataset.live}; generate or import answers first")
    for batch in _batches(dataset, live, list(columns)):
        rows = pa.Table.from_batches([batch])
        yield rows.filter(pc.invert(rows["probe"]))
        advance(batch.num_rows)


def _batches(dataset: Dataset, live: LiveShards, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for shard in live.shards:
        yield from iter_shard(dataset, shard, columns)


def _fresh_files(dataset: Dataset, name: str) -> tuple[Path, Path]:
    """Where the list is to stand; what an earlier screening left is removed, so that nobody goes by it."""
    folder = dataset.reports / FOLDER
    paths = folder / f"{name}.parquet", folder / f"{name}.ids"
    try:
        for path in paths:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: an earlier list cannot be removed: {error.strerror or error}") from None
    return paths


def _write(path: Path, table: pa.Table) -> None:
    write_whole(path, lambda temporary: pq.write_table(table, temporary, compression="zstd", write_page_checksum=True))


def _write_ids(path: Path, sample_ids: pa.ChunkedArray) -> None:
    """The sample_ids, each once, in the order of the rows; one that holds a line break cannot stand in such a file."""
    names = dict.fromkeys(sample_ids.to_pylist())
    lines = [name for name in names if name.strip() and len(name.splitlines()) == 1]
    write_atomic(path, "".join(f"{line}\n" for line in lines).encode())
