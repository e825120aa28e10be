"""Reads that neither hang nor guess, atomic writes, hashes and locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from toolkit.errors import StoreError

_BLOCK = 1 << 20
_NO_SUCH_NAME = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL})
"""Errors of a name that nothing can have, or nothing has."""


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened for reading.

    A pipe would let a reader wait for ever, a device may have no end, and neither can be read a second time to
    hold its bytes against a hash: both are refused, also where a link leads to them.

    Raises:
        OSError: it cannot be opened, or is no regular file; `strerror` says which.
    """
    handle = os.open(_checked(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle).st_mode
        if stat.S_ISDIR(found):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found):
            raise OSError(errno.EINVAL, f"expected a regular file, found a {_kind_of(found)}", str(path))
        return os.fdopen(handle, "rb")
    except OSError:
        os.close(handle)
        raise


def read_regular(path: Path) -> bytes:
    """A regular file's bytes, for callers whose own error says what the file is for.

    Raises:
        OSError: as `open_regular`.
    """
    with open_regular(path) as file:
        return file.read()


def read_bytes(path: Path) -> bytes:
    """A regular file's bytes.

    Raises:
        StoreError: it cannot be read, or is no regular file.
    """
    try:
        return read_regular(path)
    except OSError as error:
        raise unreadable(path, error) from None


def sha256_of(path: Path) -> str:
    """sha256 of a regular file's bytes.

    Raises:
        StoreError: it cannot be read, or is no regular file.
    """
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise unreadable(path, error) from None
    return digest.hexdigest()


def stands(path: Path) -> bool:
    """Whether anything has this name. A link that leads nowhere counts: reading it then says what is wrong with it,
    where `Path.exists` would let a default take its place.

    Raises:
        StoreError: that cannot be found out.
    """
    try:
        os.lstat(_checked(path))
    except OSError as error:
        if error.errno in _NO_SUCH_NAME:
            return False
        raise unreadable(path, error) from None
    return True


def files_in(folder: Path, suffix: str) -> list[Path]:
    """What a folder holds under names with this ending, sorted; nothing where there is no such folder.

    Raises:
        StoreError: the folder cannot be listed (`Path.glob` would call it empty).
    """
    try:
        return sorted(path for path in _checked(folder).iterdir() if path.name.endswith(suffix))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(folder, error) from None


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1; without line ends, and without a byte order mark.

    Raises:
        OSError: it cannot be read, or is no regular file; whose file it is decides what that means.
    """
    with open_regular(path) as file:
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
        _checked(path).parent.mkdir(parents=True, exist_ok=True)
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
        raise _unwritable(path, error) from None
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
        _checked(path).parent.mkdir(parents=True, exist_ok=True)
        # Not blocking: a pipe of that name would wait for a reader.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _unwritable(path, error) from None
    with os.fdopen(handle, "wb"):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{path.parent}: another process is writing to this dataset; wait until it ends") from None
        except OSError as error:
            raise StoreError(f"{path}: cannot be locked: {error.strerror or error}") from None
        yield


def unreadable(path: Path, error: OSError) -> StoreError:
    """The StoreError for a file that cannot be read."""
    return StoreError(f"{path}: cannot be read: {error.strerror or error}")


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path}: cannot be written: {error.strerror or error}")


def _checked(path: Path) -> Path:
    """`path`, unless no file can have that name: the system's calls answer those with a ValueError."""
    try:
        if b"\0" not in os.fsencode(path):
            return path
        problem = "its name holds a NUL character"
    except UnicodeEncodeError:
        problem = "its name holds half a surrogate pair"
    raise OSError(errno.EINVAL, problem, repr(str(path)))


def _kind_of(mode: int) -> str:
    """What a file is that is neither regular nor a folder."""
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def remove_empty(path: Path) -> None:
    """Remove a file that nothing was written to; one that is not there is fine.

    Raises:
        StoreError: it cannot be removed.
    """
    try:
        if path.exists() and path.stat().st_size == 0:
            path.unlink()
    except OSError as error:
        raise StoreError(f"{path}: cannot be removed: {error.strerror}") from None
