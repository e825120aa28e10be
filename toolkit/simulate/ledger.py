"""The server's books: every request, what it was answered, what it cost, and whether the reply went out whole.

As lines of JSON in a file, in three steps that share a `number`: `received` when the request was read, `answered`
when its reply is settled and before its last byte is sent, `ended` when all was handed to the socket, or could not be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from toolkit.errors import StoreError
from toolkit.simulate.behaviours import Face

_RECEIVED = ("number", "face", "received", "body_sha256", "prompt_key", "identity", "attempt", "stream", "max_tokens")
_ANSWERED = (
    "number", "identity", "answered", "status", "fault", "habits", "provider", "id", "billed", "repeats",
    "finish_reason", "prompt_tokens", "completion_tokens", "cost_usd",
)  # fmt: skip
_ENDED = ("number", "identity", "ended", "delivered")


@dataclass(slots=True, kw_only=True)
class Entry:
    """One request. Times are seconds since 1970.

    Attributes:
        body_sha256: Of the request's body, byte for byte.
        prompt_key: `answers.prompt_key` of messages, tools and mode; at POST /generate the sha256 of the JSON list of
            prompt ids, without spaces. Empty where the body could not be read.
        identity: `prompt_key`, or its sha256 with seed, session and user if the request bears any (`Asked`).
        attempt: How many requests of this identity came before.
        status: Of the reply; None until it is settled.
        provider: Display name of who answered or failed.
        billed: Whether it was charged.
        repeats: Whether the reply is an earlier one, sent again and not charged.
        prompt_tokens, completion_tokens, cost_usd: What was charged; 0 where nothing was.
        output_ids: The ids that the model emitted.
        delivered: Whether the whole reply was handed to the socket while the client was there; False: lost in flight,
            or cut by a fault; None: not ended yet.
    """

    number: int
    face: Face
    received: float
    body_sha256: str
    prompt_key: str = ""
    identity: str = ""
    attempt: int = 0
    stream: bool = False
    max_tokens: int | None = None
    answered: float | None = None
    status: int | None = None
    fault: str | None = None
    habits: tuple[str, ...] = ()
    provider: str | None = None
    id: str | None = None
    billed: bool = False
    repeats: bool = False
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    output_ids: tuple[int, ...] | None = None
    ended: float | None = None
    delivered: bool | None = None

    def as_json(self, *, with_ids: bool) -> dict[str, Any]:
        """The entry as a JSON object."""
        fields = asdict(self)
        if not with_ids:
            fields["output_ids"] = None
        return fields


class Ledger:
    """All entries in the order of arrival, and their file if there is one.

    Raises:
        StoreError: the file cannot be opened or written.
    """

    def __init__(self, path: Path | None = None):
        self.entries: list[Entry] = []
        self.cost_usd = 0.0
        self._path = path
        # Unbuffered, one write a line: a line is in the file, whole, before the reply goes on.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            self._file = None if path is None else os.open(path, flags, 0o644)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from None

    def receive(self, entry: Entry) -> None:
        """Take in a request that was just read."""
        self.entries.append(entry)
        self._write("received", entry, _RECEIVED)

    def answer(self, entry: Entry) -> None:
        """Take in that the reply is settled."""
        self.cost_usd += entry.cost_usd
        self._write("answered", entry, _ANSWERED)

    def end(self, entry: Entry) -> None:
        """Take in that the reply has left, or never will."""
        self._write("ended", entry, _ENDED)

    def billed(self) -> Iterator[Entry]:
        """The entries that were charged."""
        return (entry for entry in self.entries if entry.billed)

    def close(self) -> None:
        """Close the file; entries stay."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, step: str, entry: Entry, names: tuple[str, ...]) -> None:
        if self._file is None:
            return
        fields = {"step": step, **{name: getattr(entry, name) for name in names}}
        line = orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be written: {error.strerror}") from None
        if written < len(line):
            raise StoreError(f"{self._path}: expected to write {len(line)} bytes, found room for {written}")
