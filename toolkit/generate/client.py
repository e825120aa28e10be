"""The HTTP client: one thin layer over aiohttp, which nothing else of generation imports."""

from __future__ import annotations

import resource
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

from toolkit.errors import TransientError
from toolkit.generate.transport import Response

_MAX_BODY_BYTES = 256 << 20
"""More than the longest stream of 262,144 tokens, and no more than a machine can hold."""

_SPARE_FILES = 256
"""Open files beside the connections: shards, journals, libraries."""


class HttpTransport:
    """POSTs over one session. The pool is never the limit: callers bound what is in flight."""

    def __init__(self, session: aiohttp.ClientSession):
        self._session = session

    async def post(self, url: str, *, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Response:
        """POST `body`; see `Transport.post`."""
        began = time.monotonic()
        deadline = aiohttp.ClientTimeout(total=timeout_s)
        try:
            # Following a redirect would carry the key to wherever it points.
            async with self._session.post(
                url, data=body, headers=headers, timeout=deadline, allow_redirects=False
            ) as response:
                content = await _read(response)
                found = {name.lower(): value for name, value in response.headers.items()}
                status = response.status
        except TimeoutError:
            raise TransientError(f"no whole reply within {timeout_s:g} s", reason="timeout") from None
        except (aiohttp.ClientError, OSError) as error:
            told = str(error) or type(error).__name__
            raise TransientError(f"no whole reply: {told[:300]}", reason="connection_failed") from None
        return Response(status=status, headers=found, body=content, latency_s=time.monotonic() - began)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for block in response.content.iter_any():
        content += block
        if len(content) > _MAX_BODY_BYTES:
            raise TransientError(
                f"expected at most {_MAX_BODY_BYTES:,} bytes, found more",
                reason="body_too_large",
                status=response.status,
            )
    return bytes(content)


@asynccontextmanager
async def connected(*, concurrency: int, use_proxies: bool) -> AsyncIterator[HttpTransport]:
    """A transport for `concurrency` requests at a time, closed at the end.

    Args:
        concurrency: Requests in flight; the limit of open files is raised as far as they need and it may.
        use_proxies: Obey HTTPS_PROXY and its kin.
    """
    _allow_files(concurrency + _SPARE_FILES)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, trust_env=use_proxies) as session:
        yield HttpTransport(session)


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
