"""Server-sent events: whether a body is a transcript of them, and the data of each."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FIELD = re.compile(r"(?:data|event|id|retry):")
_COMMENTS = re.compile(r"(?:[ \t]*(?::[^\r\n]*)?(?:\r\n|\r|\n))+")


def without_keep_alives(body: str) -> str:
    """`body` without the white space and the comment lines that a slow server sends before anything else.

    Comments were seen before plain JSON, too. A body of nothing else keeps its comments: it is a stream without events.
    """
    text = body.lstrip()
    while text.startswith(":"):
        match = _COMMENTS.match(text)
        rest = text[match.end() :].lstrip() if match else ""
        if not rest:
            return text
        text = rest
    return text


def is_stream(text: str) -> bool:
    """Whether a text, without its keep-alives, is a transcript of events."""
    return text.startswith(":") or _FIELD.match(text) is not None


def events_of(text: str) -> Iterator[str]:
    """The data of each event; comments are skipped, the lines of one event joined."""
    data: list[str] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            if data:
                yield "\n".join(data)
                data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    if data:
        yield "\n".join(data)
