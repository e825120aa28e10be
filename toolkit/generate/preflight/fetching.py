"""What costs nothing: GET requests to an endpoint's side, each with a deadline of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolkit.config import EndpointSettings
from toolkit.errors import RequestError
from toolkit.generate.transport import Transport
from toolkit.generate.unechoed import unechoed
from toolkit.records import Json
from toolkit.wire.json import NotJsonError, load_json

_TIMEOUT_S = 20.0
_LARGEST_BODY = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What came of one GET.

    Attributes:
        status: HTTP status; None where no whole reply came.
        body: The bytes of a reply of any status.
        fault: The code of what broke the request (see `Transport.post`), where no whole reply came.
    """

    path: str
    status: int | None = None
    body: bytes = b""
    fault: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether it was answered with status 200."""
        return self.status == 200

    @property
    def value(self) -> Json:
        """The body as JSON; None where it is none, or larger than any such answer."""
        if len(self.body) > _LARGEST_BODY:
            return None
        try:
            return load_json(self.body) if self.body.strip() else None
        except NotJsonError:
            return None

    @property
    def words(self) -> str:
        """`GET /key: status 503`."""
        return f"GET {self.path}: {self.fault or f'status {self.status}'}"


async def fetch(
    transport: Transport, endpoint: EndpointSettings, headers: Mapping[str, str], path: str, *, base: str | None = None
) -> Fetched:
    """GET `path` below the endpoint's URL, or below `base`; the key is cut out of what comes.

    Raises:
        ConfigError: the endpoint's key is missing.
    """
    url = f"{endpoint.url if base is None else base}{path}"
    try:
        response = await transport.get(url, headers=headers, timeout_s=min(_TIMEOUT_S, endpoint.timeout_s))
    except RequestError as error:
        return Fetched(path=path, fault=error.reason)
    body = unechoed(response.body, endpoint.key())
    if body is None:
        return Fetched(path=path, fault="secret_echoed")
    return Fetched(path=path, status=response.status, body=body)
