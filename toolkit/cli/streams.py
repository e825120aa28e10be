"""Standard streams that commands can rely on, and what it means when one of them fails.

What a command found is worth nothing where it cannot be delivered: a standard output that is closed, full or no
longer read ends with an error, never with exit code 0. Standard error only carries progress and messages, so
its failures are swallowed: a reader that goes away must not end a run that is being paid for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from toolkit.errors import StoreError

_STDOUT, _STDERR = 1, 2


class _Output:
    """Standard output whose failures are errors of this project.

    Libraries that print, rich and typer among them, answer a broken pipe with exit code 1, which here means that
    the gate is closed.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise _undelivered(error) from None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise _undelivered(error) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Messages:
    """Standard error that never fails."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def standard_streams() -> Iterator[bool]:
    """Put both streams under this module's care; yields whether there is a standard output at all.

    Characters that a stream's encoding lacks are written as escapes.
    """
    is_open = _fill_closed()
    before = sys.stdout, sys.stderr
    out, err = before[0] or _devnull(), before[1] or _devnull()
    for stream in (out, err):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = cast(TextIO, _Output(out)), cast(TextIO, _Messages(err))
    try:
        yield is_open
    finally:
        sys.stdout, sys.stderr = before
        _give_up_unwritten(out, _STDOUT)
        _give_up_unwritten(err, _STDERR)


def _fill_closed() -> bool:
    """Open /dev/null for each standard stream that is closed; False if standard output was.

    The next file to be opened would get its number, and whatever prints would write into that file.
    """
    closed = [number for number in (0, _STDOUT, _STDERR) if not _is_open(number)]
    for _ in closed:  # the lowest free number is taken, so each call fills one
        os.open(os.devnull, os.O_RDWR)
    return _STDOUT not in closed


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _devnull() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 (a stream for the rest of the process)


def _give_up_unwritten(stream: TextIO, number: int) -> None:
    """Let what a stream could not deliver go nowhere: the interpreter would try again, and end with code 120."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)


def _undelivered(error: OSError) -> StoreError:
    if isinstance(error, BrokenPipeError):
        return StoreError("standard output: its reader went away before everything was written")
    return StoreError(f"standard output: cannot be written: {error.strerror or error}")
