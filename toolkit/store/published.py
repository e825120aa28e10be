"""Files and folders that a user names for results; each is there whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkit.errors import ConfigError, StoreError
from toolkit.records import Json
from toolkit.store.files import sole_writer, sync_folder, write_atomic

MARK = ".tokenproof"
"""A file in each site that was written here: only a folder that has it is replaced or removed."""


def write_documents(path: Path, documents: Sequence[Mapping[str, Json]]) -> None:
    """Replace a file by a JSON list, in ASCII: whatever the texts hold, every reader and terminal can take it.

    Raises:
        StoreError: it cannot be written.
    """
    write_atomic(path, json.dumps(list(documents), allow_nan=False, indent=2).encode("ascii") + b"\n")


def remove_file(path: Path) -> None:
    """Remove a file, if it is there.

    Raises:
        StoreError: it is no file, or cannot be removed.
    """
    if path.is_dir():
        raise StoreError(f"{path}: expected a file, found a folder")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be removed: {error.strerror or error}") from None


def remove_site(folder: Path) -> None:
    """Remove a site that was written here, if it is there.

    Raises:
        StoreError: it is no folder, holds something else, or cannot be removed.
    """
    _check_site(folder)
    try:
        if folder.is_dir():
            shutil.rmtree(folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be removed: {error.strerror or error}") from None


def write_site(folder: Path, build: Callable[[Path], None]) -> None:
    """Let `build` fill an empty folder beside it, then put that in the place of `folder`.

    Raises:
        StoreError: it cannot be written, or holds something else than an earlier site.
    """
    _check_site(folder)
    made: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
        site = made / "site"
        site.mkdir()
        build(site)
        (site / MARK).write_text("Written by tokenproof, and replaced by its next run.\n", encoding="utf-8")
        _take_place(site, folder, made / "earlier")
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        if made is not None:
            with suppress(OSError):
                shutil.rmtree(made)


def _take_place(fresh: Path, folder: Path, earlier: Path) -> None:
    """Give a folder its name; what had it before goes to `earlier`, and comes back if the name is not to be had."""
    if folder.exists():
        folder.rename(earlier)
    try:
        fresh.rename(folder)
    except OSError:
        if earlier.exists():
            earlier.rename(folder)
        raise


@contextmanager
def replacing(output: Path, check: Callable[[Path], None], *, doing: str) -> Iterator[Path]:
    """A new, empty folder that takes the place of `output` once the block ends without an error.

    It lies in a hidden folder beside `output`, so that who is killed leaves nothing under that name; what such a one
    left is removed here first. Until the new folder is whole the old one stays.

    Args:
        output: The folder.
        check: Raises ConfigError where it holds anything that is not ours to replace.
        doing: What is done, `merging`: a part of the hidden folder's name.

    Raises:
        ConfigError: `output` cannot be a folder's name, or as `check`.
        StoreError: another process writes there, or the file system refuses.
    """
    output = output.resolve()
    if not output.name:
        raise ConfigError(f"{output}: expected a folder below another one to write to")
    work = output.with_name(f".{output.name}.{doing}")
    try:
        check(output)
        with sole_writer(output.with_name(f".{output.name}.lock")):
            _clear(output, work)
            try:
                fresh = work / "new"
                fresh.mkdir(parents=True)
                yield fresh
                check(output)
                # Between the two renames both are whole, and `_clear` puts the old one back.
                if not is_free(output):
                    output.rename(work / "old")
                fresh.rename(output)
                sync_folder(output.parent)
            finally:
                _clear(output, work)
    except OSError as error:
        raise StoreError(f"{error.filename or output}: cannot be read or written: {error.strerror or error}") from None


def is_free(output: Path) -> bool:
    """Whether nothing has this name, or an empty folder."""
    return not output.exists() or (output.is_dir() and next(output.iterdir(), None) is None)


def _clear(output: Path, work: Path) -> None:
    """Remove what was left there. What had been moved out of the way goes back first."""
    old = work / "old"
    if old.exists() and is_free(output):
        old.rename(output)
    shutil.rmtree(work, ignore_errors=True)


def _check_site(folder: Path) -> None:
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise StoreError(f"{folder}: expected a folder, found something else")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
            raise StoreError(f"{folder}: expected an empty folder or a site of an earlier run, found other files")
    except OSError as error:
        raise StoreError(f"{folder}: cannot be read: {error.strerror or error}") from None
