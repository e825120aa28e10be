"""The simulated OpenRouter over HTTP, on this machine only.

Answers POST /api/v1/chat/completions, GET /api/v1/key, /api/v1/credits and /api/v1/models/{author}/{slug}/endpoints;
GET /simulator/ledger tells what was billed, ids included (`?ids=0` leaves them out).
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import orjson
from aiohttp import web

from toolkit.contract import Contract
from toolkit.errors import ConfigError, PermanentError
from toolkit.records import Json
from toolkit.simulate.answers import prompt_key
from toolkit.simulate.asked import read_request
from toolkit.simulate.providers import (
    BLANK_LINES,
    DONE,
    EDGE_TIMEOUT_PAGE,
    PROCESSING,
    Body,
    Envelope,
    body_of,
    deltas_of,
    empty_choices,
    endpoints_body,
    error_body,
    error_event,
    error_in_200,
    events_of,
    show,
    usage_of,
)
from toolkit.simulate.scenario import Fate, Scenario, fate_of
from toolkit.simulate.simulation import Simulation
from toolkit.vocabulary import Vocabulary

_MAX_BODY_BYTES = 32 * 2**20
_SLAB_BYTES = 4096
"""Streams are written in slabs of this size, which end anywhere: inside an event, inside a character."""
_BACKLOG = 4096
_SHUTDOWN_S = 1.0

_SIMULATION = web.AppKey("simulation", Simulation)


def build_app(contract: Contract, vocabulary: Vocabulary, scenario: Scenario) -> web.Application:
    """The server as an application, bound to nothing yet.

    Raises:
        ConfigError: the scenario's replies bear a model that the contract does not know.
    """
    if not contract.accepts_model(scenario.reply_model):
        raise ConfigError(
            f"scenario: reply_model: expected one of {', '.join(contract.models)} ({contract.name}), "
            f"found {scenario.reply_model!r}"
        )
    app = web.Application(middlewares=[_as_json, _with_key], client_max_size=_MAX_BODY_BYTES)
    app[_SIMULATION] = Simulation(contract, vocabulary, scenario)
    app.on_startup.append(_warm)
    app.add_routes(
        [
            web.post("/api/v1/chat/completions", _chat),
            web.get("/api/v1/key", _key),
            web.get("/api/v1/credits", _credits),
            web.get("/api/v1/models/{author}/{slug}/endpoints", _endpoints),
            web.get("/simulator/ledger", _ledger),
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
    announce: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT; blocks, and belongs in the main thread.

    Port 0 takes any free one. `announce` is called with `http://HOST:PORT` once the server listens.

    Raises:
        ConfigError: the host is not this machine's loopback, or the port cannot be had.
    """
    _check_loopback(host)
    app = build_app(contract, vocabulary, scenario)

    async def until_signal() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with _listening(app, host, port) as base_url:
            announce(base_url)
            await stop.wait()

    asyncio.run(until_signal())


@asynccontextmanager
async def serving(contract: Contract, vocabulary: Vocabulary, scenario: Scenario) -> AsyncIterator[str]:
    """Serve on a free port of 127.0.0.1 inside the running loop; gives `http://127.0.0.1:PORT`."""
    async with _listening(build_app(contract, vocabulary, scenario), "127.0.0.1", 0) as base_url:
        yield base_url


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


def _check_loopback(host: str) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise ConfigError(f"host: expected a loopback address such as 127.0.0.1, found {host!r}")


async def _warm(app: web.Application) -> None:
    app[_SIMULATION].warm()


# --- around every request -----------------------------------------------------------------------

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _as_json(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refusals in OpenRouter's error shape, whoever made them."""
    try:
        return await handler(request)
    except PermanentError as error:
        status = error.status or 400
        return _json(error_body(status, str(error)), status=status)
    except web.HTTPException as error:
        return _json(error_body(error.status, error.reason), status=error.status)


@web.middleware
async def _with_key(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Any bearer token will do, but there must be one; it is neither kept nor compared."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if request.path.startswith("/api/") and (scheme.lower() != "bearer" or not token.strip()):
        return _json(error_body(401, "Missing Authentication header"), status=401)
    return await handler(request)


# --- chat completions ---------------------------------------------------------------------------


async def _chat(request: web.Request) -> web.StreamResponse:
    simulation = request.app[_SIMULATION]
    scenario = simulation.scenario
    asked = read_request(_decoded(await request.read()), simulation.contract)
    key = prompt_key(asked.messages, asked.tools, asked.mode)
    attempt = simulation.requests[key]
    simulation.requests[key] += 1
    if scenario.varies and asked.nonce == 0:
        asked = replace(asked, nonce=attempt)
    fate = fate_of(scenario, asked.routing, key, attempt, stream=asked.stream)
    created = int(time.time())
    serial = hashlib.sha256(f"{scenario.seed} {key} {attempt}".encode()).hexdigest()[:20]
    envelope = Envelope(
        id=f"gen-{created}-{serial}", created=created, model=scenario.reply_model, provider=fate.provider.name
    )
    if fate.fault is not None:
        simulation.faults[fate.fault] += 1
        if fate.fault != "cut_stream":
            await asyncio.sleep(fate.latency_s)
            return _faulty(fate, envelope, scenario, stream=asked.stream)
    made = simulation.answer_to(asked, key)
    prompt_ids = simulation.prompt_ids(asked, key, fate.provider)
    usage = usage_of(made, fate.provider, prompt_ids=prompt_ids, has_tools=asked.tools is not None)
    shown = show(made, fate.provider, shows_reasoning=asked.shows_reasoning)
    # Billed before it is sent: who hangs up while the model answers pays all the same.
    simulation.bill(envelope, key, made, usage)
    if asked.stream:
        events = b"".join(events_of(deltas_of(shown), shown, envelope, usage)) + DONE
        return await _stream(request, events, fate, envelope)
    if fate.latency_s:
        await asyncio.sleep(fate.latency_s)
    body = orjson.dumps(body_of(shown, envelope, usage))
    return _raw_json(BLANK_LINES + body if fate.blank_lines else body, {"X-Generation-Id": envelope.id})


async def _stream(request: web.Request, events: bytes, fate: Fate, envelope: Envelope) -> web.StreamResponse:
    """Send `events` behind a few comments; with the fault `cut_stream` only the first part of them."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Generation-Id": envelope.id})
    cut = fate.fault == "cut_stream"
    if cut:
        events = events[: int(len(events) * fate.cut_at)]
    try:
        await response.prepare(request)
        await response.write(PROCESSING)
        await asyncio.sleep(fate.latency_s)
        await response.write(PROCESSING)
        for at in range(0, len(events), _SLAB_BYTES):
            await response.write(events[at : at + _SLAB_BYTES])
        if cut and fate.aborts and request.transport is not None:
            request.transport.abort()
        else:
            await response.write_eof()
    except ConnectionError:
        pass  # the client has hung up; what it was sent stays billed
    return response


def _faulty(fate: Fate, envelope: Envelope, scenario: Scenario, *, stream: bool) -> web.Response:
    """The reply that a fault puts in place of an answer. Nothing is billed for it."""
    provider = fate.provider
    if fate.fault == "http_429":
        wish = {} if scenario.retry_after_s is None else {"Retry-After": str(scenario.retry_after_s)}
        return _json(error_body(429, "Provider returned error", provider), status=429, headers=wish)
    if fate.fault == "http_502":
        return _json(error_body(502, "Provider returned error", provider), status=502)
    if fate.fault == "http_524":
        return web.Response(text=EDGE_TIMEOUT_PAGE, content_type="text/html", status=524, reason="A Timeout Occurred")
    if stream:
        chunk = orjson.dumps(empty_choices(envelope, "chat.completion.chunk"))
        failed = error_event(envelope, provider)
        events = failed if fate.fault == "error_in_200" else b"data: " + chunk + b"\n\n" + DONE
        return web.Response(body=PROCESSING + events, content_type="text/event-stream")
    return _json(error_in_200(provider) if fate.fault == "error_in_200" else empty_choices(envelope))


# --- side endpoints -----------------------------------------------------------------------------


async def _key(request: web.Request) -> web.Response:
    usage = request.app[_SIMULATION].cost_usd
    data = {
        "label": "simulated",
        "limit": None,
        "limit_remaining": None,
        "limit_reset": None,
        "include_byok_in_limit": False,
        "usage": usage,
        "usage_daily": usage,
        "usage_weekly": usage,
        "usage_monthly": usage,
        "is_free_tier": False,
        "is_management_key": False,
        "expires_at": None,
    }
    return _json({"data": data})


async def _credits(request: web.Request) -> web.Response:
    return _json(error_body(403, "Only management keys can fetch credits for an account"), status=403)


async def _endpoints(request: web.Request) -> web.Response:
    simulation = request.app[_SIMULATION]
    model = f"{request.match_info['author']}/{request.match_info['slug']}"
    if not simulation.contract.accepts_model(model):
        return _json(error_body(404, "Model not found"), status=404)
    return _json(endpoints_body(simulation.scenario.providers, model, simulation.contract.title))


async def _ledger(request: web.Request) -> web.Response:
    simulation = request.app[_SIMULATION]
    billed = simulation.billed
    if request.query.get("ids") == "0":
        billed = [replace(entry, output_ids=None) for entry in billed]
    return _json(
        {
            "billed": billed,
            "cost_usd": simulation.cost_usd,
            "requests": dict(simulation.requests),
            "faults": dict(simulation.faults),
        }
    )


# --- small things -------------------------------------------------------------------------------


def _decoded(body: bytes) -> Json:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise PermanentError(f"the body: expected JSON: {error}", reason="invalid_request", status=400) from None


def _json(body: Body, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return _raw_json(orjson.dumps(body), headers, status)


def _raw_json(body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> web.Response:
    return web.Response(body=body, content_type="application/json", status=status, headers=headers)
