"""Facts of all live shards: kept ones where they hold (`held_facts`), else measured; on all cores, never in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

from toolkit.audit.fact_files import FactFiles
from toolkit.audit.held_facts import MEASURED_FROM, SAMPLED_IDS, SAMPLED_ROWS, SAMPLED_ROWS_PER_SHARD
from toolkit.audit.measure import measure
from toolkit.audit.on_processes import affordable, unit_processes
from toolkit.audit.probes import read_comparisons
from toolkit.audit.shard_facts import UNIT_BYTES, ShardStatus, ShardTask
from toolkit.audit.spread import Executor, LocalExecutor
from toolkit.audit.workers import cores
from toolkit.contract import Contract
from toolkit.errors import ShardError
from toolkit.findings import ProbeComparison
from toolkit.phrases import SHIPPED, Phrases, read_phrases
from toolkit.records import LiveShard
from toolkit.store.facts import FactsFile, facts_path
from toolkit.store.shards import read_shard
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

_MUCH_BYTES = 256 << 20
"""Of shards: what two cores measure in three seconds, and so worth the second that processes need to begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Facts of all readable shards.

    Attributes:
        facts: Their files, shard after shard.
        files: sha256 of each readable shard → sha256 of the file that its facts were taken from or written to; shards
            whose facts were measured and not kept are missing.
        measured_shards: How many were measured whole.
        unreadable: One sentence for each shard that cannot be read.
        probes: Probe rows held against the rows of the same question.
    """

    facts: FactFiles
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
    scratch: Path | None = None,
    believed: Mapping[str, str] | None = None,
    sampled_rows: int = SAMPLED_ROWS,
    text_health: bool = True,
    workers: int | None = None,
    executor: Executor | None = None,
    verify: bool = True,
    unit_bytes: int = UNIT_BYTES,
    before_writing: Callable[[], object] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
    advance: Callable[[int], None] = lambda _: None,
) -> Gathered:
    """Facts of shards. What comes out does not depend on how many workers there are.

    Args:
        dataset: Whose shards they are.
        shards: Which of them.
        contract: What they are measured under.
        load_vocabulary: Its vocabulary; called at most once.
        seed: Chooses the sample: another seed, other rows.
        scratch: Folder for what is measured, where it is not to be kept; None: it is kept in facts/.
        believed: sha256 of a shard → that of the only facts file that is taken for it; None: any that is whole.
        sampled_rows: How many rows of all shards to measure again, spread over them: every row of a dataset that has
            no more; of others as many rows as hold about `SAMPLED_IDS` ids, if that is fewer, and never fewer than
            `SAMPLED_ROWS_PER_SHARD` of each shard. With n rows in all, a share p of forged rows that are spread evenly
            stays unseen with the probability (1 − p) ** n or so (see `held_facts`).
        text_health: Measure the facts of text health, with the workspace's phrases; else they are null.
        workers: How many units of rows are measured side by side; None: as many as there are cores.
        executor: Who runs the tasks; None: this machine, on threads, or where there is much to measure on processes,
            which load the contract's vocabulary themselves.
        verify: Hold each shard's bytes against shards.json first; only leave it out where it was just done.
        unit_bytes: What is measured at once (see `shard_facts.UNIT_BYTES`).
        before_writing: Called before facts are written; what it raises ends the work.
        tell: Told in a sentence of kept facts that did not hold.
        advance: Told the number of rows of each shard that is done.

    Raises:
        ConfigError: the workspace's phrases have faults.
        StoreError: facts cannot be written.
    """
    phrases = read_phrases(dataset.folder.parents[1]) if text_health else None
    in_full = sum(shard.rows for shard in shards) <= sampled_rows
    share = max(math.ceil(sampled_rows / max(len(shards), 1)), SAMPLED_ROWS_PER_SHARD)
    tasks = [
        ShardTask(
            dataset=dataset, shard=shard, contract=contract, phrases=phrases, seed=seed,
            sampled_rows=shard.rows if in_full else share,
            sampled_ids=None if in_full else SAMPLED_IDS // len(shards),
            believed=None if believed is None else believed.get(shard.sha256, ""),
            folder=scratch, verify=verify, unit_bytes=unit_bytes,
        )
        for shard in shards
    ]  # fmt: skip
    ended: dict[str, ShardStatus] = {}
    if tasks:
        with ExitStack() as stack:
            if executor is None:
                count = _processes_for(tasks, workers)
                processes = stack.enter_context(unit_processes(contract, count)) if count > 1 else None
                executor = LocalExecutor(cache(load_vocabulary), workers, before_writing, processes)
            else:
                before_writing()  # others write as soon as a shard is done, wherever that is
            for status in stack.enter_context(closing(executor.run(tasks))):
                ended[status.shard.path] = status
                advance(status.shard.rows)
    statuses = [_status_of(shard, ended) for shard in shards]
    for doubt in (doubt for status in statuses for doubt in status.doubts):
        tell(doubt)
    return _gathered(dataset, statuses)


def _processes_for(tasks: Sequence[ShardTask], workers: int | None) -> int:
    """How many processes what is to be measured is worth, and this machine has memory for."""
    size = sum(_bytes_to_measure(task) for task in tasks)
    return affordable(workers or cores()) if size >= _MUCH_BYTES else 0


def _bytes_to_measure(task: ShardTask) -> int:
    """Of a shard's file; 0 where there are facts of it that may hold, or no file."""
    facts = facts_path(task.dataset, task.shard, task.contract, phrases=task.phrases)
    if task.believed != "" and facts.is_file():
        return 0
    try:
        return (task.dataset.folder / task.shard.path).stat().st_size
    except OSError:
        return 0


def _status_of(shard: LiveShard, ended: Mapping[str, ShardStatus]) -> ShardStatus:
    """The status of a shard; one that nobody gave is no row that was passed over."""
    status = ended.get(shard.path)
    if status is None:
        return ShardStatus(shard=shard, fault=f"{shard.path}: its measuring gave no status")
    return status


def _gathered(dataset: Dataset, statuses: Sequence[ShardStatus]) -> Gathered:
    readable: list[tuple[ShardStatus, FactsFile]] = [(s, s.facts) for s in statuses if s.facts is not None]
    unreadable = [status.fault for status in statuses if status.fault is not None]
    facts = FactFiles(tuple(file for _, file in readable))
    try:
        probes = tuple(read_comparisons(dataset, [status.shard for status, _ in readable], facts.scan()))
    except ShardError as error:
        probes = ()
        unreadable.append(str(error))
    return Gathered(
        facts=facts,
        files={status.shard.sha256: file.sha256 for status, file in readable if status.kept},
        measured_shards=sum(status.measured for status in statuses),
        unreadable=tuple(unreadable),
        probes=probes,
    )


def measure_shard(
    dataset: Dataset,
    shard: LiveShard,
    contract: Contract,
    vocabulary: Vocabulary,
    *,
    phrases: Phrases | None = SHIPPED,
) -> pa.Table:
    """Facts of one shard, in memory; its bytes were just held against shards.json; `phrases` as in `measure`.

    Raises:
        ShardError: its rows are not what this version writes.
    """
    rows = read_shard(dataset, shard, MEASURED_FROM, verify=False)
    return measure(rows, contract, vocabulary, shard_sha256=shard.sha256, phrases=phrases)
