"""Keeping the key out of all that is kept: servers echo headers, in errors and elsewhere, in many spellings. Pure."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote, unquote

from toolkit.config import Secret
from toolkit.records import Reply
from toolkit.vocabulary import Vocabulary
from toolkit.wire.sse import is_stream, without_keep_alives
from toolkit.wire.strings import strings_of

_SHORTEST = 8
"""Keys shorter than this are not looked for: hiding a short word would alter replies."""
_ROUNDS = 4
"""How often a text is unwrapped: an upstream error quoted in an error is escaped twice."""

_CODES = r"(?:00|2[356BDEbde]|3[0-9ABDabd]|4[1-9A-Fa-f]|5[0-9ACFacf]|6[1-9A-Fa-f]|7[0-9AEae])"
"""What may be a letter of a plain key, of its spellings, of an escape of one (`%25`, `&#`), or a NUL between two.
Common ones such as 20, 22, 2F and 3C are not."""
_MARKS = (
    ("%", re.compile(f"%{_CODES}")),
    ("&", re.compile(r"&(?:#|(?!(?:lt|gt|quot|apos|nbsp);)[A-Za-z]+[;&#])")),
    ("u00", re.compile(rf"\\u00{_CODES}")),
)
"""What may stand for such a letter, behind what stands in all of it: one search for all would read every letter of a
text. No such key has a / in any spelling, so that it is no matter if that is escaped."""
# `\\\\*` stands for `\\+`: what begins with one certain letter is looked for ten times as fast.
_ASCII_ESCAPE = re.compile(r"\\\\*u00([0-7][0-9a-fA-F])")
_BACKSLASHES = re.compile(r"\\\\*([\"'/\\])")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.+=:~-]+")
"""Keys in which no encoding of text needs to change a letter."""


class KeyWatch:
    """Looks for one key; without a key, it finds nothing and hides nothing."""

    __slots__ = ("_plain", "_spellings")

    def __init__(self, key: Secret | None):
        text = "" if key is None else key.reveal()
        self._spellings = tuple(_spellings_of(text)) if len(text) >= _SHORTEST else ()
        self._plain = _PLAIN_KEY.fullmatch(text) is not None

    def __repr__(self) -> str:
        return "KeyWatch(***)"

    def hide_in(self, text: str) -> str:
        """`text` with every plain, URL-encoded or base64 spelling of the key replaced by ***."""
        for spelling in self._spellings:
            if spelling in text:
                text = text.replace(spelling, "***")
        return text

    def finds_in(self, text: str) -> bool:
        """Whether a text holds the key in any spelling, however often it was escaped."""
        if not self._spellings:
            return False
        for _ in range(_ROUNDS):
            if self._is_spelled_in(text):
                return True
            bare = _unwrapped(text) if self._may_hide(text) else text
            if bare == text:
                return False
            text = bare
        return self._is_spelled_in(text)

    def finds_in_body(self, body: str) -> bool:
        """Whether a body holds the key, in its raw text or in what it decodes to, deltas joined."""
        if not self._spellings:
            return False
        return self._is_spelled_in(body) or self.finds_in_decoded(body)

    def finds_in_decoded(self, body: str) -> bool:
        """The same of a body in whose raw text `hide_in` found nothing."""
        if not self._spellings or self.is_plain(body):
            return False
        # All at once: no escape and no key goes over the end of a line.
        return self.finds_in("\n".join(strings_of(body)))

    def is_plain(self, body: str) -> bool:
        """Whether each string of a body, by itself, can hold the key only where the body's raw text does."""
        return not self._may_hide(body) and not is_stream(without_keep_alives(body))

    def _may_hide(self, text: str) -> bool:
        """Whether anything in a text may decode to a letter of the key."""
        if not self._plain or "\0" in text:
            return True
        # From the end: a search from the start looks longer at letters that are as common as these.
        for mark, escape in _MARKS:  # noqa: SIM110 (a generator costs as much as a search)
            if text.rfind(mark) >= 0 and escape.search(text):
                return True
        return False

    def _is_spelled_in(self, text: str) -> bool:
        for spelling in self._spellings:  # noqa: SIM110 (a generator costs as much as three searches)
            if spelling in text:
                return True
        return False

    def finds_in_reply(self, reply: Reply, vocabulary: Vocabulary, *, plain: bool = False) -> bool:
        """Whether the texts of a reply, put together from whatever pieces, or its ids hold the key.

        Args:
            reply: What was read of a body.
            vocabulary: What its ids stand for.
            plain: The key does not stand in the body, which `is_plain`: then only what was joined can hold it.
        """
        if not self._spellings:
            return False
        texts: list[str | None] = [reply.reasoning]  # may be joined from its details
        if not plain or "content_parts" in reply.notes:
            texts.append(reply.content)
        if not plain:
            texts += [reply.undivided, reply.provider, reply.model, reply.request_id]
            texts += [text for call in reply.tool_calls for text in (call.id, call.name, call.arguments)]
        if reply.pieces:
            texts.append(b"".join(reply.pieces).decode(errors="replace"))
        if reply.output_ids:
            texts.append(_spoken(reply.output_ids, vocabulary))
        return any(text and self._is_spelled_in(text) for text in texts)


def _spoken(ids: Sequence[int], vocabulary: Vocabulary) -> str:
    inside = [token_id for token_id in ids if 0 <= token_id < vocabulary.size]
    return vocabulary.decode_bytes(inside).decode(errors="replace")


def _spellings_of(key: str) -> Iterator[str]:
    yield key
    yield from {quote(key, safe=""), quote(key, safe="").lower(), quote(key)} - {key}
    raw = key.encode()
    for offset in range(3):
        # Inside a longer text the key may begin at any of three places of a base64 group; these letters are its own.
        letters = base64.b64encode(bytes(offset) + raw).decode()
        own = letters[-(-offset * 8 // 6) : (offset + len(raw)) * 8 // 6]
        yield own
        if "+" in own or "/" in own:
            yield own.replace("+", "-").replace("/", "_")
    yield raw.hex()
    yield raw.hex().upper()


def _unwrapped(text: str) -> str:
    """A text with one layer of escapes taken off, as far as a key may be made of them."""
    bare = _ASCII_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text.replace("\0", ""))
    return html.unescape(unquote(_BACKSLASHES.sub(r"\1", bare)))
