"""Servers of the tests, on 127.0.0.1 and in a thread of their own: the simulated OpenRouter, and one with a script."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@contextmanager
def in_thread(server: AbstractAsyncContextManager[str]) -> Iterator[str]:
    """Run an asynchronous server beside the test; gives its base URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        url = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(30)
        try:
            yield url
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def completion(text: str = "Hello.", **changes: Any) -> dict[str, Any]:
    """A body as OpenRouter sends it; `changes` replace its top-level fields."""
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "native_finish_reason": "stop",
        "message": {"role": "assistant", "content": text, "reasoning": "Greet."},
    }
    body = {
        "id": "gen-1",
        "provider": "Chutes",
        "model": "moonshotai/kimi-k2.5-0127",
        "object": "chat.completion",
        "created": 1769472000,
        "choices": [choice],
        "usage": {"prompt_tokens": 9, "completion_tokens": 6, "cost": 0.001},
    }
    return body | changes


def json_reply(body: Any, status: int = 200, **headers: str) -> web.Response:
    return web.Response(body=json.dumps(body).encode(), status=status, headers=headers, content_type="application/json")


def error_reply(status: int, message: str = "no", **headers: str) -> web.Response:
    return json_reply({"error": {"code": status, "message": message}}, status, **headers)


Step = Callable[[web.Request], Awaitable[web.StreamResponse] | web.StreamResponse]


@dataclass
class Scripted:
    """Answers by the text of the last message: the n-th request for it gets the n-th step, the last one repeats."""

    steps: dict[str, list[Step]] = field(default_factory=dict)
    default: list[Step] = field(default_factory=lambda: [lambda _: json_reply(completion())])
    seen: Counter[str] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    pages: dict[str, Callable[[], Any]] = field(default_factory=dict)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """GET: what `pages` has for the path below /api/v1; 404 where it has nothing."""
        page = self.pages.get(request.path.removeprefix("/api/v1"))
        return web.Response(status=404) if page is None else json_reply(page())

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        text = body["messages"][-1]["content"]
        steps = self.steps.get(text, self.default)
        step = steps[min(self.seen[text], len(steps) - 1)]
        self.seen[text] += 1
        reply = step(request)
        return reply if isinstance(reply, web.StreamResponse) else await reply

    @asynccontextmanager
    async def serving(self, more: Callable[[web.Application], None] = lambda _: None) -> AsyncIterator[str]:
        app = web.Application()
        more(app)
        app.router.add_post("/api/v1/chat/completions", self.handle)
        app.router.add_get("/{path:.*}", self.show)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
