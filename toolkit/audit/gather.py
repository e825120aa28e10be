"""Facts of all live shards: kept ones where they hold, else measured.

Kept facts are not believed for being there. Their file must be the one that was written, what they carry of the
shard must stand there so, and of what was measured a sample is measured again. A shard whose facts fail any of
this is measured whole. Datasets of up to `SAMPLED_ROWS` rows are measured again in full, so there no forged fact
passes; in larger ones a share p of forged rows stays unseen with the probability (1 − p) ** SAMPLED_ROWS or so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.audit.measure import measure
from toolkit.audit.probes import read_comparisons
from toolkit.columns import FACTS_SCHEMA, MEASURED_COLUMNS, SHARD_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import ShardError, StoreError
from toolkit.findings import ProbeComparison
from toolkit.phrases import SHIPPED, Phrases, read_phrases
from toolkit.records import LiveShard
from toolkit.store.facts import Facts, read_facts, write_facts
from toolkit.store.shards import check_shard, read_shard
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

SAMPLED_ROWS = 8_192
"""Rows of a dataset, spread over its shards, that are measured again although their facts are kept."""

SAMPLED_ROWS_PER_SHARD = 64
"""At least so many of each shard (all of a smaller one)."""

_CARRIED = [name for name in FACTS_SCHEMA.names if name in SHARD_SCHEMA.names]
_MEASURED = [column.name for column in MEASURED_COLUMNS]
_MEASURED_FROM = list(
    dict.fromkeys([*_CARRIED, "reasoning", "content", "tool_calls", "tools", "messages", "output_ids", "prompt_ids"])
)
"""Columns that the kernel reads: not the payload, which is most of a shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Facts of all readable shards.

    Attributes:
        facts: A table of `FACTS_SCHEMA`, shard after shard.
        files: sha256 of each readable shard → sha256 of the file that its facts were taken from or written to; shards
            whose facts were measured and not kept are missing.
        measured_shards: How many were measured whole.
        unreadable: One sentence for each shard that cannot be read.
        probes: Probe rows held against the rows of the same question.
    """

    facts: pa.Table
    files: Mapping[str, str]
    measured_shards: int
    unreadable: tuple[str, ...]
    probes: tuple[ProbeComparison, ...] = ()


def gather(
    dataset: Dataset,
    shards: Sequence[LiveShard],
    contract: Contract,
    load_vocabulary: Callable[[], Vocabulary],
    *,
    seed: str,
    believed: Mapping[str, str] | None = None,
    keep: bool = True,
    sampled_rows: int = SAMPLED_ROWS,
    text_health: bool = True,
    tell: Callable[[str], None] = lambda _: None,
    advance: Callable[[int], None] = lambda _: None,
) -> Gathered:
    """Facts of shards.

    Args:
        dataset: Whose shards they are.
        shards: Shards whose bytes were just held against shards.json.
        contract: What they are measured under.
        load_vocabulary: Its vocabulary; called at most once.
        seed: Chooses the sample: another seed, other rows.
        believed: sha256 of a shard → that of the only facts file that is taken for it; None: any that is whole.
        keep: Write what was measured to facts/.
        sampled_rows: How many rows of all shards to measure again; never fewer than `SAMPLED_ROWS_PER_SHARD` of each.
        text_health: Measure the facts of text health, with the workspace's phrases; else they are null.
        tell: Told in a sentence of kept facts that did not hold.
        advance: Told the number of rows of each shard that is done.

    Raises:
        ConfigError: the workspace's phrases have faults.
        StoreError: facts cannot be written.
    """
    source = _Source(
        dataset,
        contract,
        cache(load_vocabulary),
        read_phrases(dataset.folder.parents[1]) if text_health else None,
        believed,
        keep,
        tell,
    )
    share = max(math.ceil(sampled_rows / max(len(shards), 1)), SAMPLED_ROWS_PER_SHARD)
    tables: list[pa.Table] = []
    files: dict[str, str] = {}
    unreadable: list[str] = []
    measured = 0
    for shard in shards:
        try:
            if (kept := source.kept(shard, seed, share)) is not None:
                table, files[shard.sha256] = kept.table, kept.sha256
            else:
                table, file_sha256 = source.measured(shard)
                measured += 1
                if file_sha256 is not None:
                    files[shard.sha256] = file_sha256
            tables.append(table)
        except ShardError as error:
            unreadable.append(str(error))
        advance(shard.rows)
    facts = pa.concat_tables(tables) if tables else FACTS_SCHEMA.empty_table()
    try:
        probes = tuple(read_comparisons(dataset, shards, facts))
    except ShardError as error:
        probes = ()
        unreadable.append(str(error))
    return Gathered(facts=facts, files=files, measured_shards=measured, unreadable=tuple(unreadable), probes=probes)


def check_shards(dataset: Dataset, shards: Sequence[LiveShard]) -> tuple[list[LiveShard], list[str]]:
    """Shards whose bytes are those that shards.json lists, and a sentence for each of the others."""
    whole: list[LiveShard] = []
    faults: list[str] = []
    for shard in shards:
        try:
            check_shard(dataset, shard)
            whole.append(shard)
        except ShardError as error:
            faults.append(str(error))
    return whole, faults


def measure_shard(
    dataset: Dataset,
    shard: LiveShard,
    contract: Contract,
    vocabulary: Vocabulary,
    *,
    phrases: Phrases | None = SHIPPED,
) -> pa.Table:
    """Facts of one shard whose bytes were just held against shards.json; `phrases` as in `measure`.

    Raises:
        ShardError: its rows are not what this version writes.
    """
    rows = read_shard(dataset, shard, _MEASURED_FROM, verify=False)
    return measure(rows, contract, vocabulary, shard_sha256=shard.sha256, phrases=phrases)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the facts of one shard come from; for the fields see `gather`."""

    dataset: Dataset
    contract: Contract
    vocabulary: Callable[[], Vocabulary]
    phrases: Phrases | None
    believed: Mapping[str, str] | None
    keep: bool
    tell: Callable[[str], None]

    def kept(self, shard: LiveShard, seed: str, share: int) -> Facts | None:
        """Kept facts that hold; a word where there are others.

        Raises:
            ShardError: the shard cannot be read.
        """
        try:
            kept = read_facts(self.dataset, shard, self.contract, phrases=self.phrases)
        except StoreError as error:
            self.tell(f"{error}; measured again")
            return None
        if kept is None:
            return None
        if self.believed is not None and self.believed.get(shard.sha256) != kept.sha256:
            fault: str | None = "not those that the audit went by"
        else:
            fault = self._disproof(shard, kept, seed, share)
        if fault is None:
            return kept
        self.tell(f"facts of {shard.path}: {fault}; measured again")
        return None

    def measured(self, shard: LiveShard) -> tuple[pa.Table, str | None]:
        """Facts measured now, and the sha256 of the file that they were kept in; None where they are not kept.

        Raises:
            ShardError: the shard cannot be read.
            StoreError: the facts cannot be written.
        """
        table = measure_shard(self.dataset, shard, self.contract, self.vocabulary(), phrases=self.phrases)
        if not self.keep:
            return table, None
        return table, write_facts(self.dataset, shard, self.contract, table, phrases=self.phrases)

    def _disproof(self, shard: LiveShard, kept: Facts, seed: str, share: int) -> str | None:
        """What shows that kept facts are not those of their shard; None where nothing does."""
        carried = read_shard(self.dataset, shard, _CARRIED, verify=False)
        if fault := carried_fault(kept.table, carried, shard.sha256):
            return fault
        rows, positions = choose_rows(self.dataset, shard, share, f"{seed}/{shard.sha256}")
        found = measure(rows, self.contract, self.vocabulary(), shard_sha256=shard.sha256, phrases=self.phrases)
        return sample_fault(kept.table.take(pa.array(positions)), found, positions)


# --- holding kept facts against their shard ------------------------------------------------------


def carried_fault(facts: pa.Table, rows: pa.Table, shard_sha256: str) -> str | None:
    """The first column that facts should carry over from their shard, but do not."""
    if not facts["row_index"].equals(pa.chunked_array([np.arange(rows.num_rows, dtype=np.int32)])):
        return "row_index: expected the rows in the shard's order, found others"
    if facts["shard"].unique().to_pylist() not in ([shard_sha256], []):
        return "shard: expected the shard's own sha256, found another"
    for name in _CARRIED:
        if not facts[name].combine_chunks().equals(rows[name].cast(FACTS_SCHEMA.field(name).type).combine_chunks()):
            return f"{name}: expected what stands in the shard, found something else"
    return None


def sample_fault(facts: pa.Table, measured: pa.Table, positions: npt.NDArray[np.int64]) -> str | None:
    """The first kept fact that measuring the same rows again does not give.

    Args:
        facts: Kept facts of the sampled rows.
        measured: Facts of the same rows in the same order, measured now.
        positions: Their positions in the shard.
    """
    for name in _MEASURED:
        if not facts[name].combine_chunks().equals(measured[name].combine_chunks()):
            kept, found = facts[name].to_pylist(), measured[name].to_pylist()
            at = next((i for i, (a, b) in enumerate(zip(kept, found, strict=True)) if a != b), 0)
            return f"row {positions[at]}: {name}: kept as {kept[at]!r:.60}, measured as {found[at]!r:.60}"
    return None


def choose_rows(dataset: Dataset, shard: LiveShard, count: int, seed: str) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Rows to measure again, in the columns that the kernel reads, and their positions in the shard, ascending.

    A large sample reads the whole shard; a small one comes from a single row group, so that the rest of a large
    shard's text is not read for it. Every row is as likely as any other.

    Args:
        dataset: Whose shard it is.
        shard: A shard whose bytes were just held against shards.json.
        count: How many rows; all of a smaller shard.
        seed: The same seed chooses the same rows.

    Raises:
        ShardError: it cannot be read.
    """
    draw = np.random.default_rng(list(hashlib.sha256(seed.encode()).digest()))
    try:
        file = pq.ParquetFile(dataset.folder / shard.path, page_checksum_verification=True)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        if count > max(sizes, default=0):
            first, rows = 0, read_shard(dataset, shard, _MEASURED_FROM, verify=False)
        else:
            group = int(draw.choice(len(sizes), p=np.array(sizes) / sum(sizes)))
            first, rows = sum(sizes[:group]), file.read_row_group(group, columns=_MEASURED_FROM)
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{dataset.name}/{shard.path}: cannot be read as Parquet: {error!s:.200}") from None
    picked = np.sort(draw.choice(rows.num_rows, size=min(count, rows.num_rows), replace=False)).astype(np.int64)
    return rows.take(pa.array(picked)), picked + first
