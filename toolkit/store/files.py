"""Atomic writes, hashes and locks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkit.errors import StoreError

_BLOCK = 1 << 20


def sha256_of(path: Path) -> str:
    """sha256 of a file's bytes.

    Raises:
        StoreError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise unreadable(path, error) from None
    return digest.hexdigest()


def read_bytes(path: Path) -> bytes:
    """A file's bytes.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1; without line ends, and without a byte order mark.

    Raises:
        OSError: it cannot be read; whose file it is decides what that means.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if content.strip():
                yield number, content.rstrip(b"\r\n")


def write_atomic(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: after a crash there is the old file or the new one, never a part.

    Raises:
        StoreError: it cannot be written; what was there stays.
    """

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_whole(path, write)


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file in the same folder, then fsync and rename it to `path`.

    Raises:
        StoreError: it cannot be written; what was there stays.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Hold a lock file; it ends with the process, however it ends.

    Raises:
        StoreError: another process holds it, or it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(f"{path.parent}: another process is writing to this dataset; wait until it ends") from None
        yield


def unreadable(path: Path, error: OSError) -> StoreError:
    """The StoreError for a file that cannot be read."""
    return StoreError(f"{path}: cannot be read: {error.strerror or error}")
