"""Characters of texts, counted on their UTF-8 bytes: control characters, and letters by script.

ASCII letters are counted as bits. Of everything else the first two bytes say what it is, and only those are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.audit.blocks import Bools, Ints

SCRIPTS = ("latin", "cyrillic", "arabic", "han", "kana", "hangul", "other")
"""`other`: letters of any other script, such as Greek, Hebrew, Thai and Devanagari."""
WEIGHTS = np.array([1, 1, 1, 3, 3, 3, 1], dtype=np.int64)
"""Letters that one character of each script counts for: a Han character says what a short word says."""

Bytes = npt.NDArray[np.uint8]

_STRETCH_BYTES = 1 << 20
_LATIN = SCRIPTS.index("latin")
_NOTHING, _C1, _GENERAL = len(SCRIPTS), len(SCRIPTS) + 1, len(SCRIPTS) + 2
_KINDS = len(SCRIPTS) + 3


@dataclass(frozen=True, slots=True)
class Characters:
    """Counts of each text; null texts have none.

    Attributes:
        controls: C0 (but tab, line feed and carriage return), DEL and C1. Shape (rows,).
        bidi: Characters that override the direction of text, U+202A–202E and U+2066–2069. Shape (rows,).
        letters: Letters by script, weighted. Shape (rows, len(SCRIPTS)).
    """

    controls: Ints
    bidi: Ints
    letters: Ints


def count_characters(column: pa.Array) -> Characters:
    """Characters of a string column."""
    rows = len(column)
    found = Characters(
        np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64), np.zeros((rows, len(SCRIPTS)), dtype=np.int64)
    )
    for first, last, text, edges in _stretches(column):
        ascii_controls = np.frombuffer(text.tobytes().translate(_CONTROL_TABLE), dtype=np.uint8)
        found.controls[first:last] = _between(np.flatnonzero(ascii_controls), edges)
        kinds, bidi = _beyond_ascii(text, edges)
        found.controls[first:last] += kinds[:, _C1]
        found.bidi[first:last] = bidi
        letters = kinds[:, : len(SCRIPTS)]
        letters[:, _LATIN] += _count_bits(((text | 0x20) - np.uint8(ord("a"))) < 26, edges)
        found.letters[first:last] = letters * WEIGHTS
    return found


def _stretches(column: pa.Array) -> Iterator[tuple[int, int, Bytes, Ints]]:
    """(first row, row after the last, their bytes, where each begins and ends in these)."""
    array = column.cast(pa.large_string())
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return
    edges = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    text = np.frombuffer(data, dtype=np.uint8)
    first = 0
    while first < len(array):
        last = int(np.searchsorted(edges, edges[first] + _STRETCH_BYTES, side="right")) - 1
        last = min(max(last, first + 1), len(array))
        yield first, last, text[edges[first] : edges[last]], edges[first : last + 1] - edges[first]
        first = last


def _between(positions: Ints, edges: Ints) -> Ints:
    """How many of the sorted positions lie between neighbouring edges."""
    counts: Ints = np.diff(np.searchsorted(positions, edges))
    return counts


def _count_bits(flags: Bools, edges: Ints) -> Ints:
    """How many flags are set between neighbouring edges, counted a byte of flags at a time."""
    packed = np.append(np.packbits(flags), np.uint8(0))
    before = np.zeros(len(packed), dtype=np.int64)
    np.cumsum(np.bitwise_count(packed[:-1]), out=before[1:])
    partial = packed[edges >> 3] >> (8 - (edges & 7)).astype(np.uint8)
    counts: Ints = np.diff(before[edges >> 3] + np.bitwise_count(partial))
    return counts


def _beyond_ascii(text: Bytes, edges: Ints) -> tuple[Ints, Ints]:
    """(characters of each row and kind, characters that override direction)."""
    rows = len(edges) - 1
    at = np.flatnonzero(text >= 0xC2)
    if not len(at):
        return np.zeros((rows, _KINDS), dtype=np.int64), np.zeros(rows, dtype=np.int64)
    end = len(text) - 1
    kinds = _KIND_OF[(text[at].astype(np.uint16) << 8) | text[np.minimum(at + 1, end)]]
    row = np.repeat(np.arange(rows), _between(at, edges))
    counts = np.bincount(row * _KINDS + kinds, minlength=rows * _KINDS).reshape(rows, _KINDS)
    general = np.flatnonzero(kinds == _GENERAL)
    second, third = text[np.minimum(at[general] + 1, end)], text[np.minimum(at[general] + 2, end)]
    overrides = np.where(second == 0x80, (third >= 0xAA) & (third <= 0xAE), (third >= 0xA6) & (third <= 0xA9))
    return counts.astype(np.int64), np.bincount(row[general[overrides]], minlength=rows).astype(np.int64)


def _kind_table() -> Bytes:
    """What the first two bytes of a character say of it; the index is (first << 8) | second."""
    table = np.full((256, 256), _NOTHING, dtype=np.uint8)

    def put(script: str, first: int, last: int) -> None:
        """All characters whose first two bytes are those of `first` to `last`, code points."""
        begin, end = (int.from_bytes(chr(point).encode()[:2], "big") for point in (first, last))
        table.reshape(-1)[begin : end + 1] = SCRIPTS.index(script)

    for script, first, last in _RANGES:
        put(script, first, last)
    for point in (0xD7, 0xF7):  # × and ÷
        lead, second = chr(point).encode()
        table[lead, second] = _NOTHING
    table[0xC2, 0x80:0xA0] = _C1
    table[0xE2, 0x80:0x82] = _GENERAL
    return table.reshape(-1)


_RANGES = (
    ("latin", 0xC0, 0x2AF),
    ("other", 0x370, 0x3FF),  # Greek
    ("cyrillic", 0x400, 0x52F),
    ("other", 0x530, 0x5FF),  # Armenian, Hebrew
    ("arabic", 0x600, 0x6FF),
    ("other", 0x700, 0x73F),
    ("arabic", 0x740, 0x77F),
    ("other", 0x780, 0x7FF),
    ("other", 0x800, 0x10FF),  # Devanagari to Georgian
    ("hangul", 0x1100, 0x11FF),
    ("other", 0x1200, 0x1DFF),
    ("latin", 0x1E00, 0x1EFF),
    ("other", 0x1F00, 0x1FFF),
    ("kana", 0x3040, 0x30FF),
    ("han", 0x3400, 0x4DBF),
    ("han", 0x4E00, 0x9FFF),
    ("other", 0xA000, 0xABFF),
    ("hangul", 0xAC00, 0xD7BF),
    ("han", 0xF900, 0xFAFF),
    ("han", 0x20000, 0x3FFFF),
)
"""Script, first and last code point. Two bytes tell blocks of 64 characters apart, which is as fine as this needs."""

_KIND_OF = _kind_table()
_CONTROL_TABLE = bytes(int((code < 0x20 and chr(code) not in "\t\n\r") or code == 0x7F) for code in range(256))
