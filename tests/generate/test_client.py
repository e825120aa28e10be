"""The HTTP layer against real sockets: what comes whole, and each way in which it does not."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import sys
import types
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from toolkit.errors import TransientError
from toolkit.generate.client import HttpTransport, connected, reason_of
from toolkit.generate.inflate import InflateError, inflate
from toolkit.generate.loop import run_async
from toolkit.generate.transport import Response

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=2048).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def post(transport: HttpTransport, url: str, *, timeout_s: float = 10) -> Response:
    return await transport.post(url, body=b"{}", headers={"Content-Type": "application/json"}, timeout_s=timeout_s)


def response_to(handler: Handler, *, timeout_s: float = 10, **options: Any) -> Response:
    """What one POST to a server with this handler gives."""

    async def go() -> Response:
        async with serving(handler) as url, connected(concurrency=4, use_proxies=False, **options) as transport:
            return await post(transport, url, timeout_s=timeout_s)

    return run_async(go())


def reason_at(url: str) -> str:
    async def go() -> Response:
        async with connected(concurrency=4, use_proxies=False) as transport:
            return await post(transport, url)

    with pytest.raises(TransientError) as caught:
        run_async(go())
    return caught.value.reason


def test_a_post_and_a_get():
    async def handle(request: web.Request) -> web.Response:
        seen = [request.method, await request.text(), request.headers.get("X-A")]
        return web.json_response(seen, status=418, headers={"Retry-After": "7"})

    async def go() -> list[Response]:
        async with serving(handle) as url, connected(concurrency=4, use_proxies=False) as transport:
            headers = {"X-A": "a"}
            return [
                await transport.post(url, body=b"{}", headers=headers, timeout_s=5),
                await transport.get(f"{url}/key", headers=headers, timeout_s=5),
            ]

    posted, got = run_async(go())
    assert json.loads(posted.body) == ["POST", "{}", "a"]
    assert json.loads(got.body) == ["GET", "", "a"]
    assert (got.status, got.headers["retry-after"]) == (418, "7")


def test_the_pool_is_never_the_limit():
    """Case 7: every request is at the server at the same time, however many there are."""
    number = 400

    async def go() -> int:
        there = 0
        everybody = asyncio.Event()

        async def handle(_: web.Request) -> web.Response:
            nonlocal there
            there += 1
            if there == number:
                everybody.set()
            await everybody.wait()
            return web.Response(text="{}")

        async with serving(handle) as url, connected(concurrency=number, use_proxies=False) as transport:
            replies = await asyncio.gather(*(post(transport, url, timeout_s=60) for _ in range(number)))
        return sum(reply.status == 200 for reply in replies)

    assert run_async(go()) == number


def test_a_redirect_is_not_followed():
    async def handle(request: web.Request) -> web.Response:
        assert request.path == "/"
        raise web.HTTPFound("/elsewhere")

    assert response_to(handle).status == 302


def test_a_server_that_keeps_sending_blank_lines_meets_the_deadline():
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(500):
            await response.write(b"\n")
            await asyncio.sleep(0.01)
        return response

    with pytest.raises(TransientError, match=r"within 0\.2 s") as caught:
        response_to(handle, timeout_s=0.2)
    assert caught.value.reason == "timeout"


def test_a_server_that_is_silent_for_a_while_is_waited_for():
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(0.1)
        await response.write(b"{}")
        return response

    assert response_to(handle).body == b"{}"


# --- connections --------------------------------------------------------------------------------------


@asynccontextmanager
async def saying(*replies: bytes, close: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that says these bytes, one after the other, whatever is asked; and what it was asked, by connection."""
    asked: list[bytes] = []
    left = list(replies)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(asked)
        asked.append(b"")
        while left:
            head = await reader.readuntil(b"\r\n\r\n")
            asked[place] += head + await reader.readexactly(2 * head.startswith(b"POST"))
            writer.write(left.pop(0))
            if close:
                break
        if not close:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", asked
    finally:
        server.close()


def said(*replies: bytes, close: bool = False, posts: int = 1) -> tuple[list[Response], list[bytes]]:
    """What so many posts give, one after the other, and what the server saw on each of its connections."""

    async def go() -> tuple[list[Response], list[bytes]]:
        async with (
            saying(*replies, close=close) as (url, asked),
            connected(concurrency=4, use_proxies=False) as transport,
        ):
            return [await post(transport, url) for _ in range(posts)], asked

    return run_async(go())


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_what_is_sent():
    _, (asked,) = said(PLAIN)
    line, *headers = asked.decode().removesuffix("\r\n\r\n{}").split("\r\n")
    assert line == "POST /v1 HTTP/1.1"
    names = dict(header.split(": ") for header in headers)
    assert names.pop("Host").startswith("127.0.0.1:")
    assert names.pop("User-Agent").startswith("Python/")
    assert names == {
        "Accept": "*/*", "Accept-Encoding": "gzip, deflate", "Content-Type": "application/json", "Content-Length": "2",
    }  # fmt: skip


def test_a_connection_serves_one_request_after_the_other():
    replies, asked = said(PLAIN, PLAIN, PLAIN, posts=3)
    assert [reply.body for reply in replies] == [b"{}"] * 3
    assert [there.count(b"POST ") for there in asked] == [3]


def test_a_connection_that_the_server_gives_up_is_not_used_again():
    _, asked = said(PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), PLAIN, posts=2)
    assert [there.count(b"POST ") for there in asked] == [1, 1]


def test_a_reply_that_comes_too_late_is_not_the_next_ones():
    """The connection of a request whose deadline has passed is closed: what comes on it belongs to nobody."""
    late: list[asyncio.Task[None]] = []

    async def handle(request: web.Request) -> web.Response:
        if not late:
            late.append(asyncio.ensure_future(asyncio.sleep(0.3)))
            await late[0]
            return web.Response(text="late")
        return web.Response(text="in time")

    async def go() -> Response:
        async with serving(handle) as url, connected(concurrency=4, use_proxies=False) as transport:
            with pytest.raises(TransientError, match=r"within 0\.1 s"):
                await post(transport, url, timeout_s=0.1)
            await asyncio.wait(late)
            return await post(transport, url)

    assert run_async(go()).body == b"in time"


def test_word_that_a_reply_is_on_its_way_is_no_reply():
    (reply,), _ = said(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + PLAIN)
    assert (reply.status, reply.body) == (200, b"{}")


def test_a_body_without_a_length_ends_with_its_connection():
    (reply,), _ = said(b"HTTP/1.1 200 OK\r\n\r\n{}", close=True)
    assert reply.body == b"{}"


def test_a_body_in_chunks():
    (reply,), _ = said(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n")
    assert reply.body == b"{}"


def test_what_is_no_http():
    with pytest.raises(TransientError) as caught:
        said(b"SSH-2.0-OpenSSH_9.2\r\n", close=True)
    assert caught.value.reason == "connection_failed"


def test_a_header_cannot_hold_another():
    async def go() -> None:
        async with connected(concurrency=4, use_proxies=False) as transport:
            await transport.get("http://127.0.0.1", headers={"X-A": "a\r\nX-B: b"}, timeout_s=1)

    with pytest.raises(ValueError, match="line ends"):
        run_async(go())


def test_a_proxy_is_asked_for_the_whole_url(monkeypatch: pytest.MonkeyPatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)

    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.raw_path} {request.headers['X-A']} {await request.text()}")

    async def go() -> Response:
        async with serving(handle) as proxy, connected(concurrency=4, use_proxies=True) as transport:
            monkeypatch.setenv("http_proxy", proxy)
            return await transport.post("http://api.invalid/v1", body=b"{}", headers={"X-A": "a"}, timeout_s=5)

    assert run_async(go()).body == b"http://api.invalid/v1 a {}"


# --- what breaks --------------------------------------------------------------------------------------


def test_a_body_that_is_cut():
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices"')
        assert request.transport is not None
        request.transport.abort()
        return response

    with pytest.raises(TransientError) as caught:
        response_to(handle)
    assert caught.value.reason in ("body_cut", "connection_reset")


def test_a_connection_that_is_reset_before_any_reply():
    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    with pytest.raises(TransientError) as caught:
        response_to(handle)
    assert caught.value.reason == "connection_reset"


def test_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert reason_at(f"http://127.0.0.1:{port}") == "connection_refused"


def test_a_name_that_does_not_exist():
    assert reason_at("http://no-such-host.invalid/") == "dns_failed"


def test_a_server_that_does_not_speak_tls():
    async def go() -> str:
        async def handle(_: web.Request) -> web.Response:
            return web.Response()

        async with serving(handle) as url, connected(concurrency=4, use_proxies=False) as transport:
            with pytest.raises(TransientError) as caught:
                await post(transport, url.replace("http:", "https:"))
            return caught.value.reason

    assert run_async(go()) == "tls_failed"


def test_errors_without_a_code_of_their_own():
    assert reason_of(aiohttp.ClientError("odd")) == "connection_failed"
    assert reason_of(ssl.SSLError("odd")) == "tls_failed"
    assert reason_of(BrokenPipeError()) == "connection_reset"


def test_what_the_server_said_is_not_cut_here():
    """Whoever shows it hides the key first, and a cut key is still most of one."""
    long = "x" * 5000

    class Broken:
        trust_env = False

        @property
        def connector(self) -> Any:
            return self

        async def connect(self, *_: Any, **__: Any) -> Any:
            raise aiohttp.ClientError(long)

    transport = HttpTransport(Broken())  # type: ignore[arg-type]
    with pytest.raises(TransientError, match=long):
        run_async(post(transport, "http://127.0.0.1"))


# --- long and compressed bodies ------------------------------------------------------------------------


def handler_of(body: bytes, encoding: str | None = None) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "gzip, deflate"
        return web.Response(body=body, headers={} if encoding is None else {"Content-Encoding": encoding})

    return handle


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"{}" * 100, None),
        (gzip.compress(b"{}" * 100, mtime=0), "gzip"),
        (zlib.compress(b"{}" * 100), "deflate"),
        (zlib.compress(b"{}" * 100, wbits=-15), "deflate"),
    ],
)
def test_bodies_come_in_plain(body: bytes, encoding: str | None):
    assert response_to(handler_of(body, encoding)).body == b"{}" * 100


BOMB = gzip.compress(bytes(50 << 20))


@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        (bytes(2 << 20), None, "body_too_large"),
        (BOMB, "gzip", "body_too_large"),
        (gzip.compress(b"{}", mtime=0)[:-4], "gzip", "body_cut"),
        (b"{}", "gzip", "body_encoding"),
        (gzip.compress(b"{}", mtime=0) * 2, "gzip", "body_encoding"),
        (b"{}", "br", "body_encoding"),
        (b"{}", "gzip, gzip", "body_encoding"),
    ],
    ids=["long", "bomb", "cut", "not compressed", "two members", "another encoding", "twice"],
)
def test_bodies_that_are_too_long_or_cannot_be_read(body: bytes, encoding: str | None, reason: str):
    assert len(BOMB) < 1 << 20
    with pytest.raises(TransientError) as caught:
        response_to(handler_of(body, encoding), max_body_bytes=1 << 20)
    assert (caught.value.reason, caught.value.status) == (reason, 200)


def test_the_limit_is_the_longest_body_that_passes():
    assert inflate(gzip.compress(bytes(100)), "gzip", limit=100) == bytes(100)
    with pytest.raises(InflateError) as caught:
        inflate(gzip.compress(bytes(101)), "gzip", limit=100)
    assert caught.value.reason == "body_too_large"
    assert inflate(b"", "gzip", limit=100) == b""


# --- the loop --------------------------------------------------------------------------------------------


def test_uvloop_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch):
    made: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        made.append(asyncio.new_event_loop())
        return made[-1]

    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    stand_in = types.ModuleType("uvloop")
    stand_in.new_event_loop = new_event_loop  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uvloop", stand_in)
    assert run_async(loop()) is made[0]
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_async(loop()) not in made
