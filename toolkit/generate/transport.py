"""What a run needs of HTTP. `client.HttpTransport` is the real one; any other can be injected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole reply of any status.

    Attributes:
        headers: By lower-case name; of a name that came twice, the last.
        body: The bytes that came, decompressed.
        latency_s: From the request's first byte to the reply's last.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    latency_s: float


class Transport(Protocol):
    """Sends one request and waits for the whole reply."""

    async def post(self, url: str, *, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Response:
        """POST `body`. Redirects are not followed.

        Raises:
            TransientError: no whole reply within `timeout_s` (reason `timeout`), no connection or a broken one
                (`connection_failed`), or one that is too long (`body_too_large`).
        """
        ...
