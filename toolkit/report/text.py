"""Text that is safe to show, and numbers that people can read.

Sample ids, provider names, reasons and values come from models and servers. They may hold terminal
escapes, markup, text that reorders its neighbours, or a megabyte of anything. `clean` is the one gate
through which they pass; what it returns is one line without control characters, and legal in XML 1.0.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable

_MAX_STACKED_MARKS = 2
"""Combining marks after one character that are shown as they are; taller stacks draw over other lines."""

_NAMED = {"\n": "⏎", "\x7f": "␡"}

_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, formats (bidi overrides, zero-width, tags), surrogates, private use, unassigned, separators."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Letters and marks that draw nothing; the categories above do not hold them."""


def clean(value: object, limit: int) -> str:
    """`value` as one harmless line of at most `limit` characters.

    A string stands as it is, anything else as JSON. Controls become their pictures (`␛`, `⏎`), other
    invisible or reordering characters and lone surrogates become escapes such as `\\u202e`, and what
    is too long loses its middle to `…`. Cleaning a cleaned text again changes nothing.

    Args:
        limit: Characters of the result, at least 1.
    """
    text = value if isinstance(value, str) else _spell(value)
    if len(text) <= limit:
        whole = _visible(text)
        if sum(map(len, whole)) <= limit:
            return "".join(whole)
    room = max(limit - 1, 0)
    head = _fitting(_visible(text[:limit]), room - room // 2)
    tail = _fitting(reversed(_visible(text[-limit:])), room // 2)
    return "".join(head) + "…" + "".join(reversed(tail))


def _spell(value: object) -> str:
    """Any value as text. What JSON cannot say (a cycle, a depth) is named by its type alone."""
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except (RecursionError, TypeError, ValueError):
        # Python refuses to write out integers of thousands of digits in decimal, never in hexadecimal.
        return hex(value) if isinstance(value, int) else f"<{type(value).__name__}>"


def _visible(text: str) -> list[str]:
    """One piece per character: itself, its picture, or its escape."""
    pieces = []
    marks = _MAX_STACKED_MARKS  # a mark without a base would sit on whatever stands before the text
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        hidden = category in _ESCAPED_CATEGORIES or char in _BLANK or _is_variation_selector(char)
        odd_space = category == "Zs" and char != " "
        pieces.append(_escape(char) if hidden or odd_space or marks > _MAX_STACKED_MARKS else char)
    return pieces


def _is_variation_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _escape(char: str) -> str:
    """The visible name of one character: `␛`, `\\u202e`, `\\U000e0041`."""
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if code < 0x20:
        return chr(0x2400 + code)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _fitting(pieces: Iterable[str], room: int) -> list[str]:
    """The first pieces that fit into `room` characters; an escape is never cut in two."""
    kept = []
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            break
        kept.append(piece)
    return kept


def number(value: int) -> str:
    """`3,383`."""
    return f"{value:,}"


def quantity(value: int, noun: str, plural: str | None = None) -> str:
    """`1 row`, `3,383 rows`: a count with its noun. The plural is given where an s does not make it."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def share(part: int, whole: int) -> str:
    """A part of a whole in per cent. Something is never shown as 0 %, nor not quite all as 100 %."""
    if whole <= 0:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %" if part not in (0, whole) else f"{percent:.0f} %"


def bound(value: float) -> str:
    """A limit that someone wrote down (0 to 1), in per cent and without rounding it away: `99.95 %`."""
    return f"{100 * value:.6g} %"


def readable(sentence: str) -> str:
    """A sentence of the audit as a report writes it: `(55.56%; allowed 5.00%)` → `(55.56 %; allowed 5 %)`, `1 row`."""
    spaced = re.sub(r"(?<=\d)%(?!\w)", " %", sentence)
    trimmed = re.sub(r"(\d\.\d*?)0+ %", lambda found: f"{found[1].rstrip('.')} %", spaced)
    return re.sub(r"(?<![\d.,/])1 rows\b", "1 row", trimmed)


def duration(seconds: float) -> str:
    """`0.8 s`, `42 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def dollars(value: float) -> str:
    """`$12.30`; below a cent with the digits that say something."""
    return f"${value:,.2f}" if value == 0 or value >= 0.01 else f"${value:.2g}"


def fingerprint(sha256: str) -> str:
    """The first twelve digits of a hash: enough to compare by eye."""
    return clean(sha256[:12], 12)
