"""What a train set says of itself: the manifest, read, written, checked and told."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from toolkit.errors import StoreError
from toolkit.mix import MergeSettings
from toolkit.records import LiveShard, Severity
from toolkit.report.text import clean, quantity
from toolkit.store.files import read_bytes, sha256_of, write_atomic

MANIFEST_VERSION = 3
"""Version of manifest.json's form."""

MANIFEST_NAME = "manifest.json"
CARD_NAME = "README.md"
"""A dataset card beside the manifest that it was written from."""

_CARD_MARK = "\n<!-- tokenproof: sha256 of all above "

SHARDS_NAME = "shards"
VALIDATION_NAME = "validation"
TOOL: Literal["tokenproof"] = "tokenproof"
_SHOWN_CHARACTERS = 60
_OUTPUT_PATH = re.compile(rf"({SHARDS_NAME}|{VALIDATION_NAME})/part-[0-9]+\.parquet")
"""What a manifest may name: nothing outside its folder."""


class _Versioned(msgspec.Struct):
    version: int


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
        written: Rows of it in the train set, those on the validation side included; so the ids.
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
    validation_rows: int
    ids: int
    prompt_ids: int
    supervised_ids: int
    dropped: Mapping[str, int]
    quarantined_by_expectation: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceShare:
    """What one source, or one provider behind it, gave to the train set. Ids are summed over its rows.

    `ids` counts all of them, `prompt_ids` those of prompts, `supervised_ids` those that bear loss.
    """

    source: str
    provider: str | None
    rows: int
    validation_rows: int
    ids: int
    prompt_ids: int
    supervised_ids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The whole train set. rows = written + the sum of `dropped`.

    Attributes:
        written: On both sides of the split; `validation_rows` of them on the validation side.
        repeated: Rows written whose row_key is that of another row that is written.
    """

    rows: int
    written: int
    validation_rows: int
    dropped: Mapping[str, int]
    quarantined_by_expectation: Mapping[str, int]
    repeated: int
    ids: int
    prompt_ids: int
    supervised_ids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """One file of the train set; `path` is relative to its folder."""

    path: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """What came of one expectation over the written rows; counts are None for those of the set as a whole."""

    id: str
    severity: Severity
    success: bool
    element_count: int | None
    unexpected_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The suite that the written rows were held against, and what came of it."""

    suite: SuiteInput
    results: tuple[Proved, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """manifest.json. Two merges of the same inputs with the same options write the same bytes.

    Attributes:
        mix: The options, those of datasets that took no part left out.
        outputs: Files of the train side, in the order of their rows.
        validation_outputs: Files of the validation side; empty where none was asked for.
        proof: None only until the rows were held against the suite.
    """

    tool_version: str
    seed: int
    mix: MergeSettings
    columns: tuple[str, ...]
    contract: str
    contract_sha256: str
    inputs: tuple[DatasetInput, ...]
    sources: tuple[SourceShare, ...]
    totals: Totals
    outputs: tuple[OutputFile, ...]
    validation_outputs: tuple[OutputFile, ...] = ()
    proof: Proof | None = None
    tool: Literal["tokenproof"] = TOOL
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
        StoreError: missing, not a manifest of ours, of another version, or it names a file twice or one
            that lies elsewhere.
    """
    path = folder / MANIFEST_NAME
    content = read_bytes(path)
    try:
        version = msgspec.json.decode(content, type=_Versioned).version
        if version != MANIFEST_VERSION:
            raise StoreError(f"{path}: expected manifest version {MANIFEST_VERSION}, found {version}; merge again")
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(f"{path}: expected a manifest: {error}") from None
    named: set[str] = set()
    for output in (*manifest.outputs, *manifest.validation_outputs):
        if output.path in named:
            raise StoreError(f"{path}: expected each file once, found {output.path!r} twice")
        named.add(output.path)
        if not _OUTPUT_PATH.fullmatch(output.path):
            raise StoreError(f"{path}: expected files of {SHARDS_NAME}/ and {VALIDATION_NAME}/, found {output.path!r}")
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
    read = sum(i.rows for i in manifest.inputs)
    if read != totals.rows:
        raise StoreError(f"datasets: the counts do not add up: expected {totals.rows} rows, found {read}")
    for name, found in (
        ("datasets", sum(i.written for i in manifest.inputs)),
        ("sources", sum(s.rows for s in manifest.sources)),
        ("files", sum(o.rows for o in (*manifest.outputs, *manifest.validation_outputs))),
    ):
        if found != totals.written:
            raise StoreError(f"{name}: the counts do not add up: expected {totals.written} rows written, found {found}")


def render_manifest(manifest: Manifest) -> list[str]:
    """Plain sentences for a terminal: what was written, what was left out and why, how many ids."""
    totals = manifest.totals
    files = quantity(len(manifest.outputs) + len(manifest.validation_outputs), "file")
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
    if totals.validation_rows:
        lines.append(f"{quantity(totals.validation_rows, 'row')} of them for validation, no prompt on both sides")
    masked = totals.ids - totals.prompt_ids - totals.supervised_ids
    more = f", {masked:,} of completions masked" if masked else ""
    lines.append(
        f"{quantity(totals.ids, 'token')}: {totals.prompt_ids:,} of prompts, {totals.supervised_ids:,} supervised{more}"
    )
    if manifest.proof is not None:
        lines += _proof_lines(manifest.proof)
    return lines


def _proof_lines(proof: Proof) -> list[str]:
    failed = [r for r in proof.results if not r.success]
    said = f"suite {clean(proof.suite.name, _SHOWN_CHARACTERS)}: {len(proof.results) - len(failed)} of "
    said += f"{quantity(len(proof.results), 'expectation')} hold on the written rows"
    counts = [f"{clean(r.id, _SHOWN_CHARACTERS)} {r.unexpected_count or 0:,}" for r in failed]
    return [said + (f"; {', '.join(counts)}" if counts else "")]


def _tally(counts: Mapping[str, int]) -> str:
    """`terminal_last 12, evidence_given 3`: most frequent first, what did not occur left out."""
    found = sorted((-count, name) for name, count in counts.items() if count)
    return ", ".join(f"{clean(name, _SHOWN_CHARACTERS)} {-count:,}" for count, name in found)


def marked_card(text: str) -> str:
    """A dataset card with a last line that lets tell later whether it was changed."""
    return f"{text}{_CARD_MARK}{hashlib.sha256(text.encode()).hexdigest()} -->\n"


def is_card(path: Path) -> bool:
    """Whether a file is the dataset card of the train set that it lies in: a card names its manifest's sha256. One of
    an earlier train set is none, and so is what somebody else wrote."""
    try:
        return sha256_of(path.with_name(MANIFEST_NAME)).encode() in read_bytes(path)
    except StoreError:
        return False


def is_unchanged_card(path: Path) -> bool:
    """Whether it is a card as it was written: what somebody added to one, a license too, is not to be lost."""
    if not is_card(path):
        return False
    text, mark, _ = read_bytes(path).decode(errors="replace").rpartition(_CARD_MARK)
    return bool(mark) and marked_card(text).encode() == read_bytes(path)


def foreign_files(folder: Path, manifest: Manifest) -> list[str]:
    """What lies in a train set's folder, is not named by its manifest and is not its card, sorted.

    Raises:
        StoreError: the folder cannot be read.
    """
    named = {MANIFEST_NAME, *(output.path for output in (*manifest.outputs, *manifest.validation_outputs))}
    try:
        files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
        found = [path.relative_to(folder).as_posix() for path in files]
    except OSError as error:
        raise StoreError(f"{folder}: cannot be read: {error.strerror or error}") from None
    return sorted(name for name in found if name not in named and not (name == CARD_NAME and is_card(folder / name)))
