"""The HTTP client: one thin layer over aiohttp, which nothing else of generation imports.

aiohttp finds and keeps connections, speaks TLS and parses what comes. What its session does around that for each
request (cookies, redirects, hooks, a response object) is three fifths of a request's CPU and nothing that is wanted
here, so requests are written to its connections as they are. Only what goes through a proxy is left to the session.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.request import getproxies, proxy_bypass

import aiohttp
import aiohttp.http
from yarl import URL

from toolkit.errors import TransientError
from toolkit.generate.deadlines import TimeLimit
from toolkit.generate.inflate import ACCEPTED, InflateError, inflate
from toolkit.generate.transport import Response

MAX_BODY_BYTES = 256 << 20
"""More than the longest stream of 262,144 tokens, and no more than a machine can hold."""

_SPARE_FILES = 256
"""Open files beside the connections: shards, journals, libraries."""

_BLOCK = 1 << 18
"""Bytes of a body that are held before a connection waits for its reader."""
_NO_DEADLINE = aiohttp.ClientTimeout(total=None)
"""aiohttp's own: there is one deadline for the whole of a request, and it is not aiohttp's."""
_DEFAULTS = {"Accept-Encoding": ACCEPTED}

_Came = tuple[int, Mapping[str, str], bytes]
"""Status, headers by their lower-case names, and the body as it was sent."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How one URL is asked, the same for each request: what names its connections, and the start of what is written.

    `head` ends behind the last header but for the blank line, and for a Content-Length where a body is sent.
    """

    target: aiohttp.ClientRequest
    head: bytes


class HttpTransport:
    """Requests over one session. The pool is never the limit: callers bound what is in flight."""

    def __init__(self, session: aiohttp.ClientSession, *, max_body_bytes: int = MAX_BODY_BYTES):
        self._session = session
        self._max_body_bytes = max_body_bytes
        self._ways: dict[tuple[object, ...], _Way | None] = {}
        self._limits: dict[float, TimeLimit] = {}

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
        try:
            way = self._way(method, url, headers)
            asking = self._by_proxy(method, url, body, headers) if way is None else self._directly(way, body)
            # One deadline for the whole: servers that are alive send blank lines or nothing at all for minutes.
            status, found, content = await self._limit(timeout_s).bound(asking)
        except TimeoutError:
            raise TransientError(f"no whole reply within {timeout_s:g} s", reason="timeout") from None
        except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError) as error:
            told = str(error) or type(error).__name__
            # Not cut: whoever shows it must first look for the key in it.
            raise TransientError(f"no whole reply: {told}", reason=reason_of(error)) from None
        try:
            content = inflate(content, found.get("content-encoding"), limit=self._max_body_bytes)
        except InflateError as error:
            raise TransientError(str(error), reason=error.reason, status=status) from None
        return Response(status=status, headers=found, body=content, latency_s=time.monotonic() - began)

    def _limit(self, seconds: float) -> TimeLimit:
        limit = self._limits.get(seconds)
        if limit is None:
            limit = self._limits[seconds] = TimeLimit(seconds)
        return limit

    # --- over a connection of our own ----------------------------------------------------------------

    async def _directly(self, way: _Way, body: bytes | None) -> _Came:
        assert self._session.connector is not None
        connection = await self._session.connector.connect(way.target, traces=[], timeout=_NO_DEADLINE)
        is_whole = False
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None:
                raise aiohttp.ServerDisconnectedError
            # aiohttp bounds what a compressed body grows to in some versions only.
            protocol.set_response_params(read_until_eof=True, auto_decompress=False, read_bufsize=_BLOCK)
            # At once: two small packets would wait for each other's acknowledgement.
            transport.write(
                way.head + (b"\r\n" if body is None else b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            )
            message, payload = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, payload = await protocol.read()
            content = await self._read(payload, message.code)
            is_whole = True
        finally:
            if is_whole:
                connection.release()
            else:
                # What may still come on it would be taken for the reply to another request.
                connection.close()
        return message.code, _by_name(message.headers), content

    def _way(self, method: str, url: str, headers: Mapping[str, str]) -> _Way | None:
        """How this is asked; None: through a proxy."""
        key = (method, url, *headers.items())
        if key not in self._ways:
            self._ways[key] = None if self._has_proxy(url) else self._make_way(method, url, headers)
        return self._ways[key]

    def _has_proxy(self, url: str) -> bool:
        at = URL(url)
        return self._session.trust_env and at.scheme in getproxies() and not proxy_bypass(at.host or "")

    def _make_way(self, method: str, url: str, headers: Mapping[str, str]) -> _Way:
        target = aiohttp.ClientRequest(
            method, URL(url), headers={**_DEFAULTS, **headers}, loop=asyncio.get_running_loop(), session=self._session
        )
        named = [(name, value) for name, value in target.headers.items() if name.lower() != "content-length"]
        lines = [f"{method} {target.url.raw_path_qs} HTTP/1.1", *(f"{name}: {value}" for name, value in named)]
        if any(sign in line for line in lines for sign in "\r\n\0"):
            raise ValueError(f"headers of {target.url.host}: expected no line ends or NULs in them")
        return _Way(target, "".join(f"{line}\r\n" for line in lines).encode())

    # --- over the session ----------------------------------------------------------------------------

    async def _by_proxy(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> _Came:
        # Following a redirect would carry the key to wherever it points.
        async with self._session.request(
            method, url, data=body, headers=headers, timeout=_NO_DEADLINE, allow_redirects=False
        ) as response:
            content = await self._read(response.content, response.status)
            return response.status, _by_name(response.headers), content

    async def _read(self, payload: aiohttp.StreamReader, status: int) -> bytes:
        if payload.is_eof():
            # Mostly the whole body is there already.
            content = payload.read_nowait()
            self._check_size(len(content), status)
            return content
        blocks = bytearray()
        async for block in payload.iter_any():
            blocks += block
            self._check_size(len(blocks), status)
        return bytes(blocks)

    def _check_size(self, size: int, status: int) -> None:
        if size > self._max_body_bytes:
            raise TransientError(
                f"expected at most {self._max_body_bytes:,} bytes, found more", reason="body_too_large", status=status
            )


def _by_name(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by their lower-case names; of a name that came twice, the last."""
    return {name.lower(): value for name, value in headers.items()}


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
        headers=_DEFAULTS,
        # One endpoint's cookies are nobody's business in the next request.
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield HttpTransport(session, max_body_bytes=max_body_bytes)


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
