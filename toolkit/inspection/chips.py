"""Ids as chips: what each one spells, alone and with its neighbours. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from toolkit.audit.where import bytes_of
from toolkit.inspection.model import Chip, ChipKind, Fault, Part, Window
from toolkit.records import Json
from toolkit.vocabulary import Vocabulary

_LONGEST_CHARACTER = 4
"""Bytes of one character in UTF-8."""

_EDGE = 6
"""Ids that are shown of each end of an output."""

_PROMPT_TAIL = 12
"""Ids that are shown of a prompt's end, where not all are."""


def chips_of(ids: Sequence[int], vocabulary: Vocabulary) -> tuple[Chip, ...]:
    """A chip for each id. Neighbours that together spell one character say which."""
    pieces = [bytes_of(token_id, vocabulary) for token_id in ids]
    chips: list[Chip] = []
    at = 0
    while at < len(ids):
        kind = _kind(ids[at], vocabulary)
        end = at + 1
        if kind is ChipKind.TEXT and not _is_whole(pieces[at]):
            end = _end_of_character(pieces, at)
            whole = b"".join(pieces[at:end])
            spells = whole.decode() if _is_whole(whole) else ""
            chips += [
                Chip(id=ids[i], text=pieces[i].decode("utf-8", "backslashreplace"), kind=ChipKind.BYTES, spells=spells)
                for i in range(at, end)
            ]
        else:
            chips.append(Chip(id=ids[at], text=pieces[at].decode("utf-8", "backslashreplace"), kind=kind))
        at = end
    return tuple(chips)


def _kind(token_id: int, vocabulary: Vocabulary) -> ChipKind:
    if not 0 <= token_id < vocabulary.size:
        return ChipKind.OUTSIDE
    if vocabulary.spelling_of(token_id) is not None:
        return ChipKind.CONTROL
    return ChipKind.TEXT if bytes_of(token_id, vocabulary) else ChipKind.OUTSIDE


def _is_whole(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def _end_of_character(pieces: Sequence[bytes], at: int) -> int:
    """Index behind the ids that spell whole characters together, from `at` on; `at + 1` where they never do."""
    text = b""
    for end in range(at, min(at + 2 * _LONGEST_CHARACTER, len(pieces))):
        text += pieces[end]
        if _is_whole(text):
            return end + 1
    return at + 1


def windows_of(
    prompt: Sequence[int] | None,
    output: Sequence[int] | None,
    faults: Sequence[Fault],
    vocabulary: Vocabulary,
    *,
    room: int | None,
) -> tuple[Window, ...]:
    """The ids that are shown, in their order.

    Args:
        room: About how many of them; None: all.
    """
    windows = []
    for part, ids in ((Part.PROMPT, prompt), (Part.OUTPUT, output)):
        if ids is not None:
            places = [(f.at, f.until if f.until is not None else f.at + 1)
                      for f in faults if f.part is part and f.at is not None]  # fmt: skip
            spans = [(0, len(ids))] if room is None else list(_spans(len(ids), places, part, room))
            windows += [
                Window(part=part, start=start, chips=chips_of(ids[start:stop], vocabulary)) for start, stop in spans
            ]
    return tuple(windows)


def _spans(count: int, places: Sequence[tuple[int, int]], part: Part, room: int) -> Iterator[tuple[int, int]]:
    """(first, behind the last) of the stretches that are shown, apart from each other."""
    edge = _EDGE if room > 4 * _EDGE else max(room // 6, 2)
    wanted = [(max(count - _PROMPT_TAIL, 0), count)] if part is Part.PROMPT else [(0, edge), (count - edge, count)]
    around = max((room - 2 * edge) // (2 * max(len(places), 1)), 3)
    if part is Part.OUTPUT and not places:
        wanted.append((0, room - edge))
    # A long stretch is shown by its beginning: the exact place is what a reader looks for.
    wanted += [(at - around, min(max(until, at + 1), at + around) + around // 2) for at, until in places]
    clipped = sorted((max(start, 0), min(stop, count)) for start, stop in wanted)
    merged: list[list[int]] = []
    for start, stop in clipped:
        if merged and start <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], stop)
        elif stop > start:
            merged.append([start, stop])
    yield from ((start, stop) for start, stop in merged)


def clipped_json(text: str, limit: int, room: int) -> str:
    """A JSON body as it came, its long strings and lists clipped in their middle, at most `room` characters.

    What is no JSON is clipped as a whole.
    """
    try:
        body: Json = json.loads(text) if len(text) <= _PARSED else None
    except (ValueError, RecursionError):
        body = None
    if body is None:
        return _clipped(text, room)
    try:
        return _clipped(json.dumps(_shortened(body, limit), ensure_ascii=False), room)
    except RecursionError:
        return _clipped(text, room)


_PARSED = 1 << 24
"""Characters of a body that is parsed to be shown."""


def _shortened(value: Json, limit: int) -> Json:
    if isinstance(value, str):
        return _clipped(value, limit)
    if isinstance(value, list):
        shown = [_shortened(one, limit) for one in value[:8]]
        return [*shown, f"… {len(value) - 8:,} more"] if len(value) > 8 else shown
    if isinstance(value, dict):
        # Hostile bodies have a million keys: what is shown is bounded, and an absent value says nothing.
        return {_clipped(k, 60): _shortened(v, limit) for k, v in list(value.items())[:60] if v is not None}
    return value


def _clipped(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    left = (limit * 2) // 3
    return f"{text[:left]} […{len(text) - limit:,} more…] {text[len(text) - (limit - left) :]}"
