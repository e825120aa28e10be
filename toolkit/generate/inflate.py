"""Bodies as they were compressed, back to bytes, never more of them than allowed. Pure."""

from __future__ import annotations

import zlib

ACCEPTED = "gzip, deflate"
"""What a request says that it can read."""

_AUTO = zlib.MAX_WBITS | 32
"""gzip or zlib, as the first bytes say."""


class InflateError(ValueError):
    """A body that cannot be had in plain. `reason` is `body_encoding`, `body_cut` or `body_too_large`."""

    def __init__(self, message: str, *, reason: str):
        super().__init__(message)
        self.reason = reason


def inflate(body: bytes, encoding: str | None, *, limit: int) -> bytes:
    """The plain bytes of a body with this Content-Encoding.

    Raises:
        InflateError: another encoding than was accepted, a body that is not of it or not whole, or more than `limit`.
    """
    name = (encoding or "identity").strip().lower()
    if name in ("", "identity") or not body:
        return body
    if name not in ("gzip", "x-gzip", "deflate"):
        raise InflateError(f"expected Content-Encoding {ACCEPTED}, found {name[:40]!r}", reason="body_encoding")
    try:
        return _inflate(body, _AUTO, limit)
    except zlib.error as error:
        if name == "deflate":
            try:
                # Some servers leave out the zlib header.
                return _inflate(body, -zlib.MAX_WBITS, limit)
            except zlib.error:
                pass
        raise InflateError(f"expected {name}, found other bytes: {error}", reason="body_encoding") from None


def _inflate(body: bytes, window_bits: int, limit: int) -> bytes:
    stream = zlib.decompressobj(window_bits)
    plain = stream.decompress(body, limit + 1)
    if len(plain) > limit:
        raise InflateError(f"expected at most {limit:,} bytes, found more", reason="body_too_large")
    if not stream.eof:
        raise InflateError("expected a whole compressed body, found its start", reason="body_cut")
    if stream.unused_data:
        raise InflateError("expected one compressed body, found bytes behind it", reason="body_encoding")
    return plain
