"""What a run needs of HTTP. `client.HttpTransport` is the real one; any other can be injected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from toolkit.records import Json


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, ready to be sent.

    Attributes:
        body: The JSON to send, as bytes.
        sent: What the row keeps of it: the body, less prompt ids that can be rendered again.
        form: How the reply is read: a name of `toolkit.wire.FORMS`.
    """

    url: str
    body: bytes
    sent: dict[str, Json]
    form: str


class Response(msgspec.Struct, frozen=True, kw_only=True):
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
            TransientError: no whole reply within `timeout_s` (reason `timeout`), no connection (`dns_failed`,
                `connection_refused`, `tls_failed`), a broken one (`connection_reset`, `connection_failed`), or a body
                that is cut (`body_cut`), too long (`body_too_large`) or cannot be decompressed (`body_encoding`). Its
                message may hold anything that the server said.
        """
        ...

    async def get(self, url: str, *, headers: Mapping[str, str], timeout_s: float) -> Response:
        """GET what costs nothing: credits, endpoint lists, health. Raises as `post`."""
        ...
