"""The HTTP client: one thin layer over aiohttp, which nothing else of generation imports."""

from __future__ import annotations

import resource
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

from toolkit.errors import TransientError
from toolkit.generate.inflate import ACCEPTED, InflateError, inflate
from toolkit.generate.transport import Response

MAX_BODY_BYTES = 256 << 20
"""More than the longest stream of 262,144 tokens, and no more than a machine can hold."""

_SPARE_FILES = 256
"""Open files beside the connections: shards, journals, libraries."""


class HttpTransport:
    """Requests over one session. The pool is never the limit: callers bound what is in flight."""

    def __init__(self, session: aiohttp.ClientSession, *, max_body_bytes: int = MAX_BODY_BYTES):
        self._session = session
        self._max_body_bytes = max_body_bytes

    async def post(self, url: str, *, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Response:
        """POST `body`; see `Transport.post`."""
        return await self._request("POST", url, body=body, headers=headers, timeout_s=timeout_s)

    async def get(self, url: str, *, headers: Mapping[str, str], timeout_s: float) -> Response:
        """GET; see `Transport.get`."""
        return await self._request("GET", url, body=None, headers=headers, timeout_s=timeout_s)

    async def _request(
        self, method: str, url: str, *, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> Response:
        began = time.monotonic()
        # One deadline for the whole: servers that are alive send blank lines or nothing at all for minutes.
        deadline = aiohttp.ClientTimeout(total=timeout_s)
        try:
            # Following a redirect would carry the key to wherever it points.
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=deadline, allow_redirects=False
            ) as response:
                content = await self._read(response)
                found = {name.lower(): value for name, value in response.headers.items()}
                status = response.status
            content = inflate(content, found.get("content-encoding"), limit=self._max_body_bytes)
        except TimeoutError:
            raise TransientError(f"no whole reply within {timeout_s:g} s", reason="timeout") from None
        except InflateError as error:
            raise TransientError(str(error), reason=error.reason, status=status) from None
        except (aiohttp.ClientError, OSError) as error:
            told = str(error) or type(error).__name__
            # Not cut: whoever shows it must first look for the key in it.
            raise TransientError(f"no whole reply: {told}", reason=reason_of(error)) from None
        return Response(status=status, headers=found, body=content, latency_s=time.monotonic() - began)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for block in response.content.iter_any():
            content += block
            if len(content) > self._max_body_bytes:
                raise TransientError(
                    f"expected at most {self._max_body_bytes:,} bytes, found more",
                    reason="body_too_large",
                    status=response.status,
                )
        return bytes(content)


def reason_of(error: Exception) -> str:
    """The code of what broke a request: see `Transport.post`."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns_failed"
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError | ssl.SSLError):
        return "tls_failed"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "body_cut"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ConnectionRefusedError):
        return "connection_refused"
    if isinstance(cause, ConnectionResetError | BrokenPipeError | aiohttp.ServerDisconnectedError):
        return "connection_reset"
    return "connection_failed"


@asynccontextmanager
async def connected(
    *, concurrency: int, use_proxies: bool, max_body_bytes: int = MAX_BODY_BYTES
) -> AsyncIterator[HttpTransport]:
    """A transport for `concurrency` requests at a time, closed at the end.

    Args:
        concurrency: Requests in flight; the limit of open files is raised as far as they need and it may.
        use_proxies: Obey HTTPS_PROXY and its kin.
        max_body_bytes: The longest body that is read, compressed or not.
    """
    _allow_files(concurrency + _SPARE_FILES)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector,
        trust_env=use_proxies,
        # aiohttp bounds what a compressed body grows to in some versions only.
        auto_decompress=False,
        headers={"Accept-Encoding": ACCEPTED},
        # One endpoint's cookies are nobody's business in the next request.
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield HttpTransport(session, max_body_bytes=max_body_bytes)


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
