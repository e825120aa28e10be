"""The simulated servers over HTTP, on this machine only.

OpenRouter: POST /api/v1/chat/completions; GET /api/v1/key, /credits, /generation, /models/{author}/{slug}/endpoints.
Engine: POST /v1/chat/completions, /generate; GET /health, /health_generate, /get_model_info; POST /flush_cache.
Books: GET /_ledger (`?ids=1` with ids, `?after_s=N`: limits counted from that second on), and GET /simulator/ledger.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import ipaddress
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
from aiohttp import web

from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.simulate import side
from toolkit.simulate.behaviours import Face
from toolkit.simulate.bodies import endpoints_body
from toolkit.simulate.faces import reply_to
from toolkit.simulate.ledger import Ledger
from toolkit.simulate.refusals import Refusal, error_body
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.sending import EVENTS, Sending
from toolkit.simulate.simulation import Simulation, Turn
from toolkit.vocabulary import Vocabulary

_MAX_BODY_BYTES = 32 * 2**20
_SLAB_BYTES = 4096
"""Streams are written in slabs of this size, which end anywhere: inside an event, inside a character."""
_SPREAD_STEPS = 40
_BACKLOG = 4096
_SHUTDOWN_S = 1.0

_SIMULATION = web.AppKey("simulation", Simulation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that listens: `url` is `http://127.0.0.1:PORT`, `simulation` what it remembers."""

    url: str
    simulation: Simulation


def build_app(
    contract: Contract, vocabulary: Vocabulary, scenario: Scenario, *, ledger: Path | None = None
) -> web.Application:
    """The server as an application, bound to nothing yet; `ledger` is a file to append the books to.

    Raises:
        ConfigError: the scenario's replies bear a model that the contract does not know.
        StoreError: the ledger's file cannot be opened.
    """
    if scenario.reply_model is not None and not contract.accepts_model(scenario.reply_model):
        raise ConfigError(
            f"scenario: reply_model: expected one of {', '.join(contract.models)} ({contract.name}), "
            f"found {scenario.reply_model!r}"
        )
    app = web.Application(middlewares=[_as_json, _with_key], client_max_size=_MAX_BODY_BYTES)
    app[_SIMULATION] = Simulation(contract, vocabulary, scenario, Ledger(ledger))
    app.on_startup.append(_warm)
    app.on_cleanup.append(_close)
    app.add_routes(
        [
            web.post("/api/v1/chat/completions", _completions("openrouter")),
            web.get("/api/v1/key", _key),
            web.get("/api/v1/credits", _credits),
            web.get("/api/v1/generation", _generation),
            web.get("/api/v1/models/{author}/{slug}/endpoints", _endpoints),
            web.post("/v1/chat/completions", _completions("chat")),
            web.post("/generate", _completions("sglang")),
            web.put("/generate", _completions("sglang")),
            web.get("/health", _health),
            web.get("/health_generate", _health),
            web.get("/get_model_info", _model_info),
            web.route("*", "/flush_cache", _flush_cache),
            web.get("/_ledger", _ledger),
            web.get("/simulator/ledger", _old_ledger),
        ]
    )
    return app


def run(
    contract: Contract,
    vocabulary: Vocabulary,
    scenario: Scenario,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ledger: Path | None = None,
    announce: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT; blocks, and belongs in the main thread.

    Port 0 takes any free one. `announce` is called with `http://HOST:PORT` once the server listens.

    Raises:
        ConfigError: the host is not this machine's loopback, or the port cannot be had.
        StoreError: the ledger's file cannot be opened.
    """
    _check_loopback(host)
    app = build_app(contract, vocabulary, scenario, ledger=ledger)

    # Books grow with every request and hold no cycles: looking through them all the time costs a quarter of the speed.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)

    async def until_signal() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with _listening(app, host, port) as base_url:
            announce(base_url)
            await stop.wait()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(until_signal())


@asynccontextmanager
async def simulating(
    contract: Contract, vocabulary: Vocabulary, scenario: Scenario, *, ledger: Path | None = None
) -> AsyncIterator[Running]:
    """Serve on a free port of 127.0.0.1 inside the running loop; gives the URL and the simulation behind it."""
    app = build_app(contract, vocabulary, scenario, ledger=ledger)
    async with _listening(app, "127.0.0.1", 0) as url:
        yield Running(url=url, simulation=app[_SIMULATION])


@asynccontextmanager
async def serving(contract: Contract, vocabulary: Vocabulary, scenario: Scenario) -> AsyncIterator[str]:
    """Serve on a free port of 127.0.0.1 inside the running loop; gives `http://127.0.0.1:PORT`."""
    async with simulating(contract, vocabulary, scenario) as running:
        yield running.url


@asynccontextmanager
async def _listening(app: web.Application, host: str, port: int) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
        except (OSError, OverflowError) as error:
            raise ConfigError(f"{host}:{port}: cannot listen: {error}") from None
        bound = runner.addresses[0][1]
        yield f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}"
    finally:
        await runner.cleanup()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed: it is not needed, only faster."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


def _check_loopback(host: str) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise ConfigError(f"host: expected a loopback address such as 127.0.0.1, found {host!r}")


async def _warm(app: web.Application) -> None:
    app[_SIMULATION].warm()


async def _close(app: web.Application) -> None:
    app[_SIMULATION].ledger.close()


# --- around every request -----------------------------------------------------------------------

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _as_json(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """What the server itself refuses, in OpenRouter's error shape."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _replied(Refusal(status=error.status, body=error_body(error.status, error.reason)))


@web.middleware
async def _with_key(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """OpenRouter takes any bearer token, but there must be one; it is not kept."""
    if request.path.startswith("/api/") and not _token_of(request):
        return _replied(Refusal(status=401, body=error_body(401, "Missing Authentication header")))
    return await handler(request)


def _token_of(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


# --- completions --------------------------------------------------------------------------------


def _completions(face: Face) -> _Handler:
    """The handler of completions at one face."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        simulation = request.app[_SIMULATION]
        turn = simulation.open(face, body)
        return await _send(request, turn, reply_to(simulation, turn, body))

    return handle


async def _send(request: web.Request, turn: Turn, sending: Sending) -> web.StreamResponse:
    """Carry out `sending`: settle the books once the answer would be there, then send the last bytes.

    Whoever hangs up meanwhile pays all the same: the model goes on answering.
    """
    turn.receive()
    delivered = False
    try:
        response = _response(sending)
        if sending.early:
            await _keep_alive(request, response, sending)
        elif sending.wait_s:
            await asyncio.sleep(sending.wait_s)
        turn.settle(sending.status)
        try:
            await _write(request, response, sending)
            delivered = sending.is_whole and request.transport is not None and not request.transport.is_closing()
        except ConnectionError:
            pass
        return response
    finally:
        turn.end(delivered=delivered)


def _response(sending: Sending) -> web.StreamResponse:
    reason = "A Timeout Occurred" if sending.status == 524 else None
    if sending.is_plain:
        return web.Response(
            body=sending.body,
            status=sending.status,
            reason=reason,
            headers=sending.headers,
            content_type=sending.content_type,
        )
    headers = {**sending.headers, "Content-Type": sending.content_type}
    if sending.content_type != EVENTS and not sending.early:
        headers["Content-Length"] = str(len(sending.body))
    return web.StreamResponse(status=sending.status, reason=reason, headers=headers)


async def _keep_alive(request: web.Request, response: web.StreamResponse, sending: Sending) -> None:
    """Wait for the answer with signs of life: headers and `early` at once, `early` again every now and then."""
    loop = asyncio.get_running_loop()
    ready = loop.time() + sending.wait_s
    gone = False
    while True:
        if not gone:
            try:
                await response.prepare(request)
                await response.write(sending.early)
            except ConnectionError:
                gone = True
        left = ready - loop.time()
        if left <= 0:
            return
        await asyncio.sleep(left if gone else min(left, sending.keep_alive_s))


async def _write(request: web.Request, response: web.StreamResponse, sending: Sending) -> None:
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client has hung up")
    if sending.bare:
        transport.abort()
        return
    await response.prepare(request)
    if sending.is_plain:
        await response.write_eof()
        return
    body = sending.body
    if sending.cut_at is not None:
        body = body[: int(len(body) * sending.cut_at)]
    await _spread(response, body, sending.spread_s)
    if sending.cut_at is not None and sending.tears:
        transport.abort()
    else:
        await response.write_eof()


async def _spread(response: web.StreamResponse, body: bytes, spread_s: float) -> None:
    """Write `body` in slabs, over `spread_s` seconds."""
    size = _SLAB_BYTES if not spread_s else max(1, -(-len(body) // _SPREAD_STEPS))
    starts = range(0, len(body), size)
    for start in starts:
        if spread_s:
            await asyncio.sleep(spread_s / len(starts))
        await response.write(body[start : start + size])


# --- beside completions -------------------------------------------------------------------------


async def _key(request: web.Request) -> web.Response:
    return _json(side.key_body(request.app[_SIMULATION], is_management=_manages(request)))


async def _credits(request: web.Request) -> web.Response:
    return _replied(side.credits_of(request.app[_SIMULATION], is_management=_manages(request)))


async def _generation(request: web.Request) -> web.Response:
    return _replied(side.generation_of(request.app[_SIMULATION], request.query.get("id", "")))


async def _endpoints(request: web.Request) -> web.Response:
    simulation = request.app[_SIMULATION]
    model = f"{request.match_info['author']}/{request.match_info['slug']}"
    if not simulation.contract.accepts_model(model):
        return _replied(Refusal(status=404, body=error_body(404, "Model not found")))
    return _json(endpoints_body(simulation.scenario.providers, model, simulation.contract.title))


async def _health(request: web.Request) -> web.Response:
    return web.Response(status=200 if request.app[_SIMULATION].scenario.healthy else 503)


async def _model_info(request: web.Request) -> web.Response:
    return _json(side.model_info_body(request.app[_SIMULATION]))


async def _flush_cache(request: web.Request) -> web.Response:
    busy = request.app[_SIMULATION].limiter.in_flight > 0
    return web.Response(text="Cache not flushed.\n" if busy else "Cache flushed.\n", status=400 if busy else 200)


async def _ledger(request: web.Request) -> web.Response:
    after = request.query.get("after_s", "0")
    body = side.ledger_body(
        request.app[_SIMULATION],
        with_ids=request.query.get("ids") == "1",
        after_s=int(after) if after.isascii() and after.isdigit() and len(after) < 10 else 0,
    )
    return _json(body)


async def _old_ledger(request: web.Request) -> web.Response:
    return _json(side.old_ledger_body(request.app[_SIMULATION], with_ids=request.query.get("ids") != "0"))


def _manages(request: web.Request) -> bool:
    return _token_of(request) == request.app[_SIMULATION].scenario.account.management_key


# --- small things -------------------------------------------------------------------------------


def _json(body: object) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _replied(refusal: Refusal) -> web.Response:
    return web.Response(
        body=orjson.dumps(refusal.body),
        status=refusal.status,
        headers=refusal.headers,
        content_type="application/json",
    )
