"""Shards in object storage, measured wherever a task happens to run: fetch one shard, measure it, put its facts.

A task needs nothing of the machine that gave it but its words: credentials are those of the machine it runs on, and a
folder of contracts is fetched with the shard. On disk lie one shard and its facts, for as long as the task runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from toolkit.audit.shard_facts import ShardStatus, ShardTask, facts_of_shard
from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.store.facts import FactsFile, facts_path, receipt_path
from toolkit.store.files import sha256_of
from toolkit.store.remote import Bucket, place_of
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

_FOLDER = "folder:"


def facts_of_stored_shard(task: ShardTask, load_vocabulary: Callable[[Contract], Vocabulary]) -> ShardStatus:
    """Do one task for a dataset that lies in object storage; its facts are kept there, beside the dataset.

    Args:
        task: What to do; its dataset has a `place`.
        load_vocabulary: Vocabulary of a contract.

    Returns:
        The status; its facts bear the name that they have on the machine that gave the task (see `facts_at_hand`).

    Raises:
        UnreachableError: the storage does not answer: another try may do.
        ConfigError: the vocabulary cannot be loaded.
        StoreError: the facts cannot be written, or another version of the kernel is asked for.
    """
    bucket = Bucket(place_of(task.dataset.place or ""))
    with tempfile.TemporaryDirectory(prefix="tokenproof-") as temporary:
        root = Path(temporary)
        here = Workspace(root).dataset_named(task.dataset.name)
        facts = facts_path(here, task.shard, task.contract, phrases=task.phrases)
        names = [str(path.relative_to(root)) for path in (facts, receipt_path(facts))]
        for name in (f"datasets/{here.name}/{task.shard.path}", *names):
            bucket.fetch(name, root)  # what is not there is the status' business
        own = replace(task, dataset=here, folder=None, verify=True)
        status = facts_of_shard(own, lambda: load_vocabulary(_contract_here(bucket, task, root)))
        if status.measured:
            for name in names:
                bucket.put(root, name)
        if status.facts is None:
            return status
        return replace(status, facts=replace(status.facts, path=task.dataset.facts / facts.name))


def facts_at_hand(task: ShardTask, status: ShardStatus) -> ShardStatus:
    """See that the facts of a task that ran elsewhere lie on the machine that gave it: fetch them where the dataset
    lies in object storage, and hold their bytes against the status.

    Returns:
        The same status, or one with a fault where the facts cannot be had.
    """
    if status.facts is None:
        return status
    try:
        if task.dataset.place is not None:
            _fetch(task.dataset, status.facts)
        if (found := sha256_of(status.facts.path)) != status.facts.sha256:
            raise StoreError(f"expected sha256 {status.facts.sha256[:16]}… as they were written, found {found[:16]}…")
    except StoreError as error:
        return ShardStatus(shard=status.shard, doubts=status.doubts, fault=f"{task.where}: its facts: {error}")
    return status


def _fetch(dataset: Dataset, facts: FactsFile) -> None:
    bucket = Bucket(place_of(dataset.place or ""))
    root = dataset.folder.parents[1]
    for path in (facts.path, receipt_path(facts.path)):
        bucket.fetch(str(path.relative_to(root)), root)


def _contract_here(bucket: Bucket, task: ShardTask, root: Path) -> Contract:
    """The contract; a vocabulary that lies in the workspace is fetched below `root`, and looked for there."""
    spec = task.contract.vocabulary
    folder = Path(spec.source.removeprefix(_FOLDER))
    theirs = task.dataset.folder.parents[1]
    if not spec.source.startswith(_FOLDER) or not folder.is_relative_to(theirs):
        return task.contract
    name = str(folder.relative_to(theirs))
    bucket.fetch_all([name], root)
    return structs.replace(task.contract, vocabulary=structs.replace(spec, source=f"{_FOLDER}{root / name}"))
