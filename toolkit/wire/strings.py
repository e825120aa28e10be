"""Every text that a body holds once it is decoded, the pieces of a stream joined."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.records import Json
from toolkit.wire.json import NotJsonError, load_json
from toolkit.wire.sse import events_of, is_stream, without_keep_alives

_Path = tuple[str, ...]


def strings_of(body: str) -> Iterator[str]:
    """The strings of a body, keys too.

    Strings at one place of successive events, or of a list, are given joined as well: what is cut into deltas shows
    nowhere else. A body that is no JSON has none.
    """
    text = without_keep_alives(body)
    parts = list(events_of(text)) if is_stream(text) else [text]
    joined: dict[_Path, list[str]] = {}
    for part in parts:
        try:
            document = load_json(part)
        except NotJsonError:
            yield part
            continue
        for path, string in _walk(document):
            joined.setdefault(path, []).append(string)
    for pieces in joined.values():
        yield "".join(pieces)


def _walk(document: Json) -> Iterator[tuple[_Path, str]]:
    """Strings with their place; positions in lists are left out of it, so that pieces in a list are joined."""
    waiting: list[tuple[_Path, Json]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            waiting.extend(((*path, key), item) for key, item in value.items())
            for key in value:
                yield (*path, "keys of", key), key
        elif isinstance(value, list):
            waiting.extend((path, item) for item in reversed(value))
