"""How a new train set takes the place of an old one.

The manifest is written last, into a folder that nobody looks into yet; only then does the folder get
its name. A folder that has its name and a manifest is whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from toolkit.errors import ConfigError, StoreError
from toolkit.manifest import MANIFEST_NAME, SHARDS_NAME, TOOL, VALIDATION_NAME, read_manifest
from toolkit.report.text import clean, quantity
from toolkit.store.files import sole_writer, sync_folder

_SHOWN_CHARACTERS = 60


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
            f"({quantity(manifest.totals.written, 'row')}); "
            "merge into another folder, or replace it with --replace"
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(clean(name, _SHOWN_CHARACTERS) for name in sorted(names)) or "no dataset"


def _is_ours(path: Path) -> bool:
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(content, dict) and content.get("tool") == TOOL


def _foreign(output: Path) -> Iterator[Path]:
    """Files in a train set's folder that merge does not write."""
    for path in sorted(output.iterdir()):
        if path.name in (SHARDS_NAME, VALIDATION_NAME) and path.is_dir():
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
