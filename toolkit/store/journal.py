"""The write-ahead journal: a reply is on disk here before it is counted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import structs

from toolkit.errors import StoreError
from toolkit.records import Entry, Failure
from toolkit.store.files import files_in, open_regular, sync_folder, unreadable, write_atomic

_SPELLER = msgspec.json.Encoder()


def spelled(text: str) -> bytes:
    """A text as JSON, for all who write it: it is most of a line.

    Raises:
        UnicodeEncodeError: it holds a lone surrogate.
    """
    return _SPELLER.encode(text)


class LineWriter:
    """Appends JSON lines. A line counts once `flush` has returned.

    Opening cuts a torn last line off: it was never counted, and a record glued to it would be lost.

    Attributes:
        size: Bytes of the file, once all is flushed.

    Raises:
        StoreError: the file cannot be opened or written. A failed write stops the run.
    """

    def __init__(self, path: Path):
        self.path = path
        self._encoder = msgspec.json.Encoder()
        self._is_behind = False
        self._flushing = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=1 << 20)
            _cut_torn_line(path)
            self.size = path.stat().st_size
            sync_folder(path.parent)
        except OSError as error:
            raise self._unwritable(error) from None

    def write(self, record: Entry | Failure, body: bytes | None = None) -> None:
        """Buffer one line.

        Args:
            record: What to write.
            body: `spelled(record.body)` of an entry, where it is at hand: the line is the same without.
        """
        if body is not None and isinstance(record, Entry):
            raw: Any = msgspec.Raw(body)
            record = structs.replace(record, body=raw)
        line = self._encoder.encode(record) + b"\n"
        try:
            self._file.write(line)
        except OSError as error:
            raise self._unwritable(error) from None
        # Last, for a flush may go on in another thread: then the next one looks again.
        self._is_behind = True
        self.size += len(line)

    def flush(self) -> None:
        """Bring everything written so far onto the disk; that is no work where all of it is there."""
        # One at a time: while another thread's is not over, nothing of what it took is known to be there.
        with self._flushing:
            if not self._is_behind:
                return
            self._is_behind, is_done = False, False
            try:
                self._file.flush()
                os.fdatasync(self._file.fileno())
                is_done = True
            except OSError as error:
                raise self._unwritable(error) from None
            finally:
                if not is_done:
                    self._is_behind = True

    def close(self) -> None:
        """Flush and close."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def __enter__(self) -> LineWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(f"{self.path}: cannot be written: {error.strerror}")


def _cut_torn_line(path: Path) -> None:
    """Cut `path` after its last newline."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        at = size
        while at > 0:
            step = min(1 << 16, at)
            file.seek(at - step)
            newline = file.read(step).rfind(b"\n")
            if newline >= 0:
                at = at - step + newline + 1
                break
            at -= step
        if at != size:
            file.truncate(at)
            os.fsync(file.fileno())


def journal_files(folder: Path) -> list[Path]:
    """All files of a journal, oldest name first.

    Raises:
        StoreError: the folder cannot be listed.
    """
    return files_in(folder, ".jsonl")


def read_entries(path: Path) -> Iterator[Entry]:
    """The whole lines of one journal file; a torn last line (no newline) was never counted and is left out.

    Raises:
        StoreError: the file cannot be read, or a whole line is no entry.
    """
    for _, entry in numbered_entries(path):
        yield entry


def numbered_entries(path: Path) -> Iterator[tuple[int, Entry]]:
    """`read_entries` with the number of each line, from 1.

    Raises:
        StoreError: the file cannot be read, or a whole line is no entry.
    """
    decoder = msgspec.json.Decoder(Entry)
    for number, line in _whole_lines(path):
        try:
            yield number, decoder.decode(line)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise StoreError(f"{path}: line {number}: expected a journal entry: {error}") from None


def count_entries(folder: Path) -> int:
    """Whole lines in all files of a journal."""
    return sum(1 for path in journal_files(folder) for _ in _whole_lines(path))


def _whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with open_regular(path) as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n") and line.strip():
                    yield number, line
    except OSError as error:
        raise unreadable(path, error) from None


# --- failures ------------------------------------------------------------------------------------


def read_failures(folder: Path) -> Iterator[Failure]:
    """All recorded failures.

    Raises:
        StoreError: a file cannot be read, or a whole line is no failure.
    """
    decoder = msgspec.json.Decoder(Failure)
    for path in journal_files(folder):
        for number, line in _whole_lines(path):
            try:
                yield decoder.decode(line)
            except (msgspec.ValidationError, msgspec.DecodeError) as error:
                raise StoreError(f"{path}: line {number}: expected a failure: {error}") from None


def write_failures(path: Path, failures: list[Failure]) -> None:
    """Replace one file of failures."""
    encoder = msgspec.json.Encoder()
    write_atomic(path, b"".join(encoder.encode(failure) + b"\n" for failure in failures))
