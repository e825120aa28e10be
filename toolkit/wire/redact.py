"""Keys and headers out of what somebody recorded: they belong neither in a shard nor in a failure.

What a model said is never touched: an answer may well show how an Authorization header is written, and with one letter
changed its ids would be others. So values are taken out by the names of the fields around the texts, and words in
running text only where there is no answer to keep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolkit.records import Json

HIDDEN = "***"

_SECRET_FIELDS = frozenset({
    "accesstoken", "authorization", "authtoken", "bearertoken", "clientsecret", "cookie", "cookies", "password",
    "proxyauthorization", "secret", "setcookie", "xauthtoken",
})  # fmt: skip
_SECRET_ENDINGS = ("apikey", "headers")

_TEXT_FIELDS = frozenset({
    "choices", "content", "functions", "input", "logprobs", "messages", "output_ids", "prompt", "prompt_ids",
    "reasoning", "reasoning_content", "reasoning_details", "response_format", "text", "tool_calls", "tools", "usage",
})  # fmt: skip
"""Fields that hold what was asked and what came, word for word; nothing below them is looked at."""

_IN_TEXT = (
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[^\s\"'\\,;]+"), rf"\1\2{HIDDEN}"),
    (
        re.compile(
            r"(?i)\b((?:proxy-)?authorization|(?:x-)?api[-_]?key|(?:set-)?cookie)((?:\\*[\"'])?\s*[:=,]\s*(?:\\*[\"'])?)"
            r"[^\"'\\\r\n,}]+"
        ),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), HIDDEN),
)


def without_secrets(value: Json) -> Json:
    """A JSON value whose headers and keys are hidden; the very same object where it holds none.

    `value` must not be nested more than a few hundred levels deep.
    """
    if isinstance(value, Mapping):
        clean = {key: _field(key, item) for key, item in value.items()}
        return value if all(clean[key] is item for key, item in value.items()) else clean
    if isinstance(value, list):
        items = [without_secrets(item) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _field(key: str, value: Json) -> Json:
    if key in _TEXT_FIELDS:
        return value
    name = re.sub(r"[-_\s]", "", key.casefold())
    if name in _SECRET_FIELDS or name.endswith(_SECRET_ENDINGS):
        return value if value is None else HIDDEN
    return without_secrets(value)


def hide_in_text(text: str) -> str:
    """Running text without what looks like a key or the value of a secret header: for texts that are no answer."""
    for pattern, shown in _IN_TEXT:
        text = pattern.sub(shown, text)
    return text
