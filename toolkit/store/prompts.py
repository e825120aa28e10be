"""prompts.jsonl: every line is checked before anything is sent, and read again when it is its turn.

A checked file is held as an index of a few bytes a line. What is read later is proved to be what was checked, block
by block: a prompt that was changed meanwhile is never sent.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import orjson

from toolkit.errors import PromptsError
from toolkit.records import Prompt
from toolkit.store.files import open_regular
from toolkit.store.identities import Hashes, Identities, IdentityIndex, hash_of, second_hash_of
from toolkit.store.prompt_lines import LONGEST_LINE, parse_prompt, plain_id, prompt_of
from toolkit.wire.json import load_json

_BLOCK = 1 << 16
_CHUNK = 16 * _BLOCK
_BOM = b"\xef\xbb\xbf"
_SHOWN_FAULTS = 50
_KEPT_FAULTS = 10_000


def read_prompts(path: Path, *, modes: Collection[str]) -> list[Prompt]:
    """All prompts of a file at once. Where there may be many, `check_prompts` takes their place.

    Raises:
        PromptsError: as `check_prompts`.
    """
    return list(check_prompts(path, modes=modes))


def check_prompts(
    path: Path, *, modes: Collection[str], advance: Callable[[int], None] = lambda _: None
) -> PromptIndex:
    """Check every line of a file, and index it.

    Args:
        path: One JSON object a line: `messages`, and optionally `id`, `tools`, `mode`, `max_tokens`, `meta`.
        modes: The contract's modes.
        advance: Called with the number of bytes that were read since.

    Raises:
        PromptsError: the file cannot be read or is empty, or any line is faulty: faults are listed by line.
    """
    check = _Check(path, frozenset(modes))
    try:
        with open_regular(path) as file:
            chunks = _Chunks(file, advance)
            check.run(chunks)
    except FileNotFoundError:
        raise PromptsError(f'{path}: missing; write one JSON object a line: {{"messages": […]}}') from None
    except OSError as error:
        raise PromptsError(f"{path}: cannot be read: {error.strerror or error}") from None
    index = check.index(chunks)
    for number, earlier, identifier in _repeated_ids(index):
        check.note(number, f"id {identifier!r} was used on line {earlier}")
    check.refuse_faults()
    if not len(index):
        raise PromptsError(f"{path}: expected at least one prompt, found none")
    return index


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromptIndex:
    """A file of prompts that was checked: where each lies, and what its id hashes to.

    Attributes:
        sha256: Of the whole file, as it was checked.
        size: Bytes of the file.
        offsets: Where each prompt's line begins, in bytes.
        lines: Line numbers from 1; None where no line is blank, so that they follow from the position.
        ids: Hashes of the ids.
        blocks: Digests of each 64 KiB.
    """

    path: Path
    sha256: str
    size: int
    offsets: Hashes
    lines: npt.NDArray[np.uint32] | None
    ids: Identities
    blocks: tuple[bytes, ...]
    _finder: list[IdentityIndex] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Prompt]:
        """All prompts in the file's order, each read when it is asked for.

        Raises:
            PromptsError: the file is not the one that was checked any more.
        """
        return (prompt for _, prompt in self.among(None))

    def among(self, wanted: npt.NDArray[np.bool_] | None) -> Iterator[tuple[int, Prompt]]:
        """(position, prompt) of those prompts for which `wanted` is true; of all where it is None.

        Raises:
            PromptsError: as iterating does.
        """
        positions = range(len(self)) if wanted is None else np.flatnonzero(wanted)
        with self._opened() as file:
            for position in positions:
                yield int(position), self._prompt(file, int(position))

    def read(self, position: int) -> Prompt:
        """One prompt, by its position from 0.

        Raises:
            PromptsError: as iterating does.
        """
        if not 0 <= position < len(self):
            raise IndexError(position)
        with self._opened() as file:
            return self._prompt(file, position)

    def find(self, sample_id: str) -> Prompt | None:
        """The prompt that bears an id; None where there is none.

        Raises:
            PromptsError: as iterating does.
        """
        if not self._finder:
            self._finder.append(IdentityIndex(self.ids))
        wanted = Identities(*(np.array([h(sample_id)], np.uint64) for h in (hash_of, second_hash_of)))
        position = int(self._finder[0].positions(wanted)[0])
        return None if position < 0 else self.read(position)

    def line(self, position: int) -> int:
        """The number of a prompt's line, from 1."""
        return position + 1 if self.lines is None else int(self.lines[position])

    def _opened(self) -> _Verified:
        return _Verified(self)

    def _prompt(self, file: _Verified, position: int) -> Prompt:
        begin = int(self.offsets[position])
        end = int(self.offsets[position + 1]) if position + 1 < len(self) else self.size
        # What follows the line is blank, or faults that refuse the file in the end.
        content = file.read(begin, min(end, begin + LONGEST_LINE + 1)).partition(b"\n")[0]
        try:
            value = orjson.loads(content)
        except ValueError:
            value = load_json(content.decode("utf-8"))
        return prompt_of(value, self.line(position))


class _Verified:
    """Reads a checked file; each block is held against its digest before anything of it is given out."""

    def __init__(self, index: PromptIndex):
        self._index = index
        self._file: BinaryIO | None = None
        self._number = -1
        self._block = b""

    def __enter__(self) -> _Verified:
        try:
            self._file = open_regular(self._index.path)
            size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise PromptsError(f"{self._index.path}: cannot be read any more: {error.strerror or error}") from None
        if size != self._index.size:
            self._file.close()
            raise self._changed(f"expected {self._index.size:,} bytes, found {size:,}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def read(self, begin: int, end: int) -> bytes:
        """Bytes from `begin` up to `end`."""
        first, last = begin // _BLOCK, (end - 1) // _BLOCK
        if first == last:
            return self._verified(first)[begin - first * _BLOCK : end - first * _BLOCK]
        whole = b"".join(self._verified(number) for number in range(first, last + 1))
        return whole[begin - first * _BLOCK : end - first * _BLOCK]

    def _verified(self, number: int) -> bytes:
        if number != self._number:
            assert self._file is not None
            try:
                block = os.pread(self._file.fileno(), _BLOCK, number * _BLOCK)
            except OSError as error:
                raise PromptsError(f"{self._index.path}: cannot be read any more: {error.strerror}") from None
            if _digest(block) != self._index.blocks[number]:
                raise self._changed(f"other content between bytes {number * _BLOCK:,} and {(number + 1) * _BLOCK:,}")
            self._number, self._block = number, block
        return self._block

    def _changed(self, how: str) -> PromptsError:
        return PromptsError(
            f"{self._index.path}: was changed after it was checked: {how}; run the command again, which checks it anew"
        )


def _digest(block: bytes | memoryview) -> bytes:
    return hashlib.blake2b(block, digest_size=16).digest()


# --- checking -----------------------------------------------------------------------------------


class _Chunks:
    """A file in large pieces; what has passed is hashed, as a whole and by block."""

    def __init__(self, file: BinaryIO, advance: Callable[[int], None]):
        self.sha256 = hashlib.sha256()
        self.blocks: list[bytes] = []
        self.size = 0
        self._file = file
        self._advance = advance

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._file.read(_CHUNK):
            self.sha256.update(chunk)
            view = memoryview(chunk)
            self.blocks += [_digest(view[at : at + _BLOCK]) for at in range(0, len(chunk), _BLOCK)]
            self.size += len(chunk)
            yield chunk
            self._advance(len(chunk))


def _split(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """(offset, line) without line ends; None for a line beyond all measure, which is never held as a whole."""
    offset = size = 0
    held: list[bytes] = []
    for chunk in chunks:
        first, *more = chunk.split(b"\n")
        held.append(first)
        size += len(first)
        if size > LONGEST_LINE:
            held.clear()
        if not more:
            continue
        yield offset, b"".join(held) if size <= LONGEST_LINE else None
        offset += size + 1
        for line in more[:-1]:
            yield offset, line
            offset += len(line) + 1
        held, size = [more[-1]], len(more[-1])
    if size:
        yield offset, b"".join(held) if size <= LONGEST_LINE else None


class _Check:
    """What one pass over a file finds: faults, and what the index is made of."""

    def __init__(self, path: Path, modes: frozenset[str]):
        self._path = path
        self._modes = modes
        self._faults: list[tuple[int, str]] = []
        self._count = 0
        self._offsets, self._first, self._second = array("Q"), array("Q"), array("Q")
        self._numbers: array[int] | None = None

    def run(self, chunks: _Chunks) -> None:
        """Check all lines."""
        modes, offsets, first, second = self._modes, self._offsets, self._first, self._second
        for number, (offset, line) in enumerate(_split(chunks), 1):
            if number == 1 and line is not None and line.startswith(_BOM):
                offset, line = offset + len(_BOM), line[len(_BOM) :]
            identifier = None if line is None else plain_id(line, modes) or self._parsed(number, line)
            if line is None:
                self.note(number, f"expected at most {LONGEST_LINE >> 20} MiB in a line, found more")
            if identifier is None:
                # From here on positions and line numbers differ.
                self._numbers = self._numbers or array("I", range(1, len(offsets) + 1))
                continue
            offsets.append(offset)
            first.append(hash_of(identifier))
            second.append(second_hash_of(identifier))
            if self._numbers is not None:
                self._numbers.append(number)

    def _parsed(self, number: int, line: bytes) -> str | None:
        """The id of a line that is not ordinary; None where it is blank or faulty."""
        if not line.strip():
            return None
        prompt, faults = parse_prompt(line, number, modes=self._modes)
        for fault in faults:
            self.note(number, fault)
        return None if prompt is None else prompt.id

    def note(self, number: int, fault: str) -> None:
        """Count a fault of a line; its words are kept while there are few enough to read."""
        self._count += 1
        if len(self._faults) < _KEPT_FAULTS:
            self._faults.append((number, fault))

    def index(self, chunks: _Chunks) -> PromptIndex:
        """The lines without a fault."""
        return PromptIndex(
            path=self._path,
            sha256=chunks.sha256.hexdigest(),
            size=chunks.size,
            offsets=np.array(self._offsets, np.uint64),
            lines=None if self._numbers is None else np.array(self._numbers, np.uint32),
            ids=Identities(np.array(self._first, np.uint64), np.array(self._second, np.uint64)),
            blocks=tuple(chunks.blocks),
        )

    def refuse_faults(self) -> None:
        """Raise what was noted, in the order of the lines."""
        if not self._count:
            return
        faults = [f"{self._path.name}: line {number}: {fault}" for number, fault in sorted(self._faults)]
        shown = faults[:_SHOWN_FAULTS]
        more = [f"… and {self._count - len(shown):,} more faults"] if self._count > len(shown) else []
        raise PromptsError("\n".join([f"{self._path}: {self._count} faults, nothing was sent", *shown, *more]), faults)


def _repeated_ids(index: PromptIndex) -> Iterator[tuple[int, int, str]]:
    """(line, earlier line, id) of prompts whose id was used before; equal hashes are settled by reading the lines."""
    order = np.argsort(index.ids.first, kind="stable")
    hashes = index.ids.first[order]
    equal = hashes[1:] == hashes[:-1]
    if not equal.any():
        return
    suspects = np.zeros(len(index), np.bool_)
    suspects[order[1:][equal]] = suspects[order[:-1][equal]] = True
    earlier: dict[str, int] = {}
    for position, prompt in index.among(suspects):
        line = earlier.setdefault(prompt.id, index.line(position))
        if line != index.line(position):
            yield index.line(position), line, prompt.id
