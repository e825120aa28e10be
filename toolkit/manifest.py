"""What a train set says of itself, and how a new one takes the place of an old one.

The manifest is written last, into a folder that nobody looks into yet; only then does the folder get
its name. A folder that has its name and a manifest is whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from toolkit.errors import ConfigError, StoreError
from toolkit.records import LiveShard
from toolkit.report.text import clean, quantity
from toolkit.store.files import read_bytes, sole_writer, sync_folder, write_atomic

MANIFEST_VERSION = 2
"""Version of manifest.json's form."""

MANIFEST_NAME = "manifest.json"
SHARDS_NAME = "shards"
_TOOL: Literal["tokenproof"] = "tokenproof"
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteInput:
    """A suite that a dataset has passed; `path` is its file as the verdict names it."""

    name: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInput:
    """One dataset: what was read, and where its rows went. rows = written + the sum of `dropped`.

    Attributes:
        prompts_sha256: Of prompts.jsonl; None where there is none.
        allowed_providers: The allow list that it was audited by; empty: any provider.
        dropped: Reason → rows; each row has one reason, the first that holds.
        quarantined_by_expectation: Expectation id → rows; a row that fails two is counted twice.
    """

    name: str
    verdict_sha256: str
    kernel_version: int
    prompts_sha256: str | None
    allowed_providers: tuple[str, ...]
    quarantine_sha256: str
    suites: tuple[SuiteInput, ...]
    shards: tuple[LiveShard, ...]
    rows: int
    written: int
    dropped: Mapping[str, int]
    quarantined_by_expectation: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceShare:
    """What one source, or one provider behind it, gave to the train set. Ids are summed over its rows.

    `ids` counts all of them, `prompt_ids` and `supervised_ids` those without and with loss.
    """

    source: str
    provider: str | None
    rows: int
    ids: int
    prompt_ids: int
    supervised_ids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The whole train set. rows = written + the sum of `dropped`.

    Attributes:
        repeated: Rows written whose row_key is that of a row written before (of another dataset, as a rule).
    """

    rows: int
    written: int
    dropped: Mapping[str, int]
    quarantined_by_expectation: Mapping[str, int]
    repeated: int
    prompt_ids: int
    supervised_ids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """One file of the train set; `path` is relative to its folder."""

    path: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """manifest.json. Two merges of the same inputs differ in `created_at` alone."""

    tool_version: str
    created_at: str
    seed: int
    columns: tuple[str, ...]
    contract: str
    contract_sha256: str
    inputs: tuple[DatasetInput, ...]
    sources: tuple[SourceShare, ...]
    totals: Totals
    outputs: tuple[OutputFile, ...]
    tool: Literal["tokenproof"] = _TOOL
    version: int = MANIFEST_VERSION


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json into the folder of a train set.

    Raises:
        StoreError: it cannot be written.
    """
    write_atomic(folder / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a train set.

    Raises:
        StoreError: missing, not a manifest of ours, or of another version.
    """
    path = folder / MANIFEST_NAME
    content = read_bytes(path)
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(f"{path}: expected a manifest: {error}") from None
    if manifest.version != MANIFEST_VERSION:
        raise StoreError(f"{path}: expected manifest version {MANIFEST_VERSION}, found {manifest.version}; merge again")
    return manifest


def check_sums(manifest: Manifest) -> None:
    """Hold what was counted on reading against what was counted on writing.

    Raises:
        StoreError: a row was lost or doubled on the way.
    """
    totals = manifest.totals
    for name, rows, written, dropped in (
        *((f"dataset {i.name}", i.rows, i.written, i.dropped) for i in manifest.inputs),
        ("all datasets", totals.rows, totals.written, totals.dropped),
    ):
        left_out = sum(dropped.values())
        if rows != written + left_out:
            raise StoreError(
                f"{name}: the counts do not add up: expected {rows} rows, "
                f"found {written} written and {left_out} left out"
            )
    for name, found in (
        ("datasets", sum(i.written for i in manifest.inputs)),
        ("sources", sum(s.rows for s in manifest.sources)),
        ("files", sum(o.rows for o in manifest.outputs)),
    ):
        if found != totals.written:
            raise StoreError(f"{name}: the counts do not add up: expected {totals.written} rows written, found {found}")


def render_manifest(manifest: Manifest) -> list[str]:
    """Plain sentences for a terminal: what was written, what was left out and why, how many ids."""
    totals = manifest.totals
    files = quantity(len(manifest.outputs), "file")
    datasets = quantity(len(manifest.inputs), "dataset")
    lines = [f"{quantity(totals.written, 'row')} of {totals.rows:,} written to {files}, from {datasets}"]
    left_out = _tally(totals.dropped)
    if left_out:
        lines.append(f"{quantity(totals.rows - totals.written, 'row')} left out: {left_out}")
    quarantined = _tally(totals.quarantined_by_expectation)
    if quarantined:
        lines.append(f"quarantined, by expectation: {quarantined}")
    unknown = totals.dropped.get("prompt_unknown", 0)
    if unknown:
        lines.append(
            f"{quantity(unknown, 'row')} left out only for want of the prompt's ids; the audit's report says what helps"
        )
    if totals.repeated:
        lines.append(f"{quantity(totals.repeated, 'row')} written whose request is that of another row")
    ids = totals.prompt_ids + totals.supervised_ids
    lines.append(f"{quantity(ids, 'token')}: {totals.prompt_ids:,} of prompts, {totals.supervised_ids:,} supervised")
    return lines


def _tally(counts: Mapping[str, int]) -> str:
    """`terminal_last 12, evidence_given 3`: most frequent first, what did not occur left out."""
    found = sorted((-count, name) for name, count in counts.items() if count)
    return ", ".join(f"{clean(name, _SHOWN_CHARACTERS)} {-count:,}" for count, name in found)


# --- the folder ----------------------------------------------------------------------------------


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """A new, empty folder that takes the place of `output` once the block ends without an error.

    It lies in a hidden folder beside `output`, so that a killed merge leaves nothing under that name;
    what such a merge left is removed here first. Until the new folder is whole the old one stays.

    Raises:
        ConfigError: `output` is no folder, or holds something that is not ours to replace.
        StoreError: another merge writes there, or the file system refuses.
    """
    output = output.resolve()
    if not output.name:
        raise ConfigError(f"{output}: expected a folder below another one to write the train set to")
    work = output.with_name(f".{output.name}.merging")
    try:
        check_replaceable(output)
        with sole_writer(output.with_name(f".{output.name}.lock")):
            _clear(output, work)
            try:
                fresh = work / "new"
                fresh.mkdir(parents=True)
                yield fresh
                _swap(fresh, output, work / "old")
            finally:
                _clear(output, work)
    except OSError as error:
        raise StoreError(f"{error.filename or output}: cannot be read or written: {error.strerror or error}") from None


def check_replaceable(output: Path) -> None:
    """See that nothing but an earlier train set of ours would be replaced.

    Raises:
        ConfigError: `output` is no folder, or holds anything else.
    """
    if not output.exists():
        return
    if not output.is_dir():
        raise ConfigError(f"{output}: expected a folder to write the train set to, found a file")
    if _is_free(output):
        return
    if not _is_ours(output / MANIFEST_NAME):
        raise ConfigError(
            f"{output}: expected a new or empty folder, or an earlier train set; found files without a "
            f"{MANIFEST_NAME} of tokenproof; they are left as they are"
        )
    foreign = next(_foreign(output), None)
    if foreign is not None:
        raise ConfigError(
            f"{output}: expected nothing but the earlier train set, found {foreign.relative_to(output)}; move it away"
        )


def check_same_datasets(output: Path, names: Collection[str]) -> None:
    """See that an earlier train set that would be replaced was made of the same datasets.

    Raises:
        ConfigError: it was made of others, or its manifest does not say of which.
    """
    if _is_free(output):
        return
    try:
        manifest = read_manifest(output)
    except StoreError as error:
        raise ConfigError(f"{error}; merge into another folder, or replace what stands there with --replace") from None
    there = {made.name for made in manifest.inputs}
    if there != set(names):
        raise ConfigError(
            f"{output}: expected a train set of {_listed(names)}, found one of {_listed(there)} "
            f"({quantity(manifest.totals.written, 'row')}, {clean(manifest.created_at, _SHOWN_CHARACTERS)}); "
            "merge into another folder, or replace it with --replace"
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(clean(name, _SHOWN_CHARACTERS) for name in sorted(names)) or "no dataset"


def _is_ours(path: Path) -> bool:
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(content, dict) and content.get("tool") == _TOOL


def _foreign(output: Path) -> Iterator[Path]:
    """Files in a train set's folder that merge does not write."""
    for path in sorted(output.iterdir()):
        if path.name == SHARDS_NAME and path.is_dir():
            yield from (p for p in sorted(path.iterdir()) if not (p.match("part-*.parquet") and p.is_file()))
        elif path.name != MANIFEST_NAME:
            yield path


def _is_free(output: Path) -> bool:
    return not output.exists() or (output.is_dir() and next(output.iterdir(), None) is None)


def _swap(fresh: Path, output: Path, old: Path) -> None:
    """Give the new folder its name. Between the two renames both are whole, and `_clear` puts the old one back."""
    check_replaceable(output)
    if not _is_free(output):
        output.rename(old)
    fresh.rename(output)
    sync_folder(output.parent)


def _clear(output: Path, work: Path) -> None:
    """Remove what a merge left. A train set that it had moved out of the way goes back first."""
    old = work / "old"
    if old.exists() and _is_free(output):
        old.rename(output)
    shutil.rmtree(work, ignore_errors=True)
