"""Whether what a train set was made of still stands: verdicts, quarantines and shards, by their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from toolkit.errors import ConfigError, StoreError
from toolkit.manifest import DatasetInput, Manifest
from toolkit.store.files import sha256_of, stands
from toolkit.store.shards import check_shard, read_live
from toolkit.store.verdicts import read_verdict
from toolkit.store.workspace import Dataset, Workspace


def at_hand(workspace: Workspace, manifest: Manifest) -> tuple[list[str], list[str]]:
    """Names of a train set's datasets: those that lie in the workspace, and those that do not.

    Raises:
        StoreError: the workspace cannot be read.
    """
    there = set(workspace.dataset_names())
    names = [one.name for one in manifest.inputs]
    return [name for name in names if name in there], [name for name in names if name not in there]


def check_origins(workspace: Workspace, manifest: Manifest, names: Sequence[str]) -> list[str]:
    """What of these datasets is not any more as it was merged, a sentence each.

    Shards that were added since, or that took others' places, are named as well: the verdict was on exactly those.
    """
    return [f"{one.name}: {fault}" for one in manifest.inputs if one.name in names for fault in _faults(workspace, one)]


def _faults(workspace: Workspace, merged: DatasetInput) -> Iterator[str]:
    try:
        dataset = workspace.dataset_named(merged.name)
    except ConfigError as error:
        yield str(error)
        return
    yield from _changed(dataset.verdict, merged.verdict_sha256, "the verdict that it was merged by")
    yield from _changed(dataset.quarantine, merged.quarantine_sha256, "the quarantine that it was merged by")
    if merged.prompts_sha256 is not None:
        yield from _changed(dataset.prompts, merged.prompts_sha256, "the prompts that it was merged with")
    elif stands(dataset.prompts):
        yield f"{dataset.prompts.name}: was added since the merge"
    try:
        verdict = read_verdict(dataset.verdict)
        if not (verdict.passed and verdict.complete):
            yield f"{dataset.verdict.name}: does not pass"
    except StoreError as error:
        yield str(error)
    yield from _shard_faults(dataset, merged)


def _changed(path: Path, expected: str, what: str) -> Iterator[str]:
    try:
        if not stands(path):
            yield f"{path.name}: {what} is missing"
        elif (found := sha256_of(path)) != expected:
            yield f"{path.name}: expected {what}, sha256 {expected[:16]}…, found {found[:16]}…"
    except StoreError as error:
        yield str(error)


def _shard_faults(dataset: Dataset, merged: DatasetInput) -> Iterator[str]:
    try:
        live = {shard.path: shard for shard in read_live(dataset).shards}
    except StoreError as error:
        yield str(error)
        return
    then = {shard.path: shard for shard in merged.shards}
    for path in sorted(live.keys() - then.keys()):
        yield f"{path}: was added since the merge"
    for path, shard in sorted(then.items()):
        if path not in live:
            yield f"{path}: was merged, and is not listed in shards.json any more"
        elif live[path] != shard:
            yield f"{path}: was replaced since the merge"
        else:
            try:
                check_shard(dataset, shard)
            except StoreError as error:
                yield str(error).removeprefix(f"{dataset.name}/")
