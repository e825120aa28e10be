"""The key in what an endpoint says of itself: names of providers go into reports, and into further requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from toolkit.config import Secret
from toolkit.generate.secrecy import KeyWatch
from toolkit.generate.summary import RunSummary
from toolkit.generate.unechoed import unechoed
from toolkit.store.workspace import Dataset

from .conftest import KEY as PLAIN_KEY
from .conftest import endpoint_at, write_prompts
from .server import Scripted, completion, json_reply
from .test_secrecy import DRESSES, KEY


@pytest.mark.parametrize("dress", [d[1] for d in DRESSES], ids=[d[0] for d in DRESSES])
def test_the_key_is_cut_out_or_nothing_is_read(dress: str):
    body = json.dumps({"data": {"tag": "MARK"}})
    raw = body.replace("MARK", json.dumps(dress)[1:-1] if "\0" in dress else dress).encode()
    left = unechoed(raw, Secret(KEY))
    assert left is None or not KeyWatch(Secret(KEY)).finds_in_body(left.decode())


@pytest.mark.parametrize("body", [b'{"data": {"tag": "chutes/int4"}}', b"", b"\xff\xfe no text"])
def test_other_bodies_stay_as_they_are(body: bytes):
    assert unechoed(body, Secret(KEY)) == body
    assert unechoed(body, None) == body


def test_a_provider_that_is_listed_under_the_key_is_not_ignored_by_it(
    dataset: Dataset, run: Callable[..., RunSummary], scripted: tuple[Scripted, str]
):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(40)])
    listed: dict[str, Any] = {"provider_name": "Chutes", "tag": PLAIN_KEY, "pricing": {}}
    other = {"provider_name": "Moonshot AI", "tag": "moonshotai/int4", "pricing": {}}
    server.pages["/models/moonshotai/kimi-k2.5/endpoints"] = lambda: {"data": {"endpoints": [listed, other]}}
    down = {"error": {"code": 502, "message": "down", "metadata": {"provider_name": "Chutes"}}}

    async def reply(request: web.Request) -> web.Response:
        is_resting = "ignore" in (await request.json()).get("provider", {})
        return json_reply(completion(provider="Moonshot AI")) if is_resting else json_reply(down, 502)

    server.default = [reply]
    run(endpoint_at(url, concurrency=2, max_tries=12))
    assert any("ignore" in body.get("provider", {}) for body in server.bodies)
    assert PLAIN_KEY not in json.dumps(server.bodies)
