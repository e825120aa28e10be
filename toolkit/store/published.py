"""Files and folders that a user names for results of an audit; each is there whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from toolkit.errors import StoreError
from toolkit.records import Json
from toolkit.store.files import write_atomic

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
        if folder.exists():
            folder.rename(made / "earlier")
        site.rename(folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        if made is not None:
            with suppress(OSError):
                shutil.rmtree(made)


def _check_site(folder: Path) -> None:
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise StoreError(f"{folder}: expected a folder, found something else")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
            raise StoreError(f"{folder}: expected an empty folder or a site of an earlier run, found other files")
    except OSError as error:
        raise StoreError(f"{folder}: cannot be read: {error.strerror or error}") from None
