"""A client of the tests' own: it knows the recorded shapes and nothing of the simulation's code."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from toolkit.contract import Contract
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import simulating
from toolkit.simulate.simulation import Simulation
from toolkit.vocabulary import Vocabulary

IM_END, THINK_END = 163586, 163607
SECTION_BEGIN, SECTION_END, CALL_BEGIN, ARGUMENT_BEGIN, CALL_END = 163595, 163596, 163597, 163598, 163599

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Get weather information for a location",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string", "description": "the city"}},
            "required": ["location"],
        },
    },
}
INSTANT = {"reasoning": {"enabled": False}}
CHAT = "/api/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(slots=True)
class Client:
    session: aiohttp.ClientSession
    url: str
    simulation: Simulation = None  # type: ignore[assignment]

    async def get(self, path: str, **options: Any) -> Got:
        async with self.session.get(self.url + path, **options) as response:
            return Got(status=response.status, headers=dict(response.headers), text=await response.text())

    async def post(self, body: object, path: str = CHAT, **options: Any) -> Got:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url + path, data=data, **options) as response:
            return Got(status=response.status, headers=dict(response.headers), text=await response.text())

    async def hang_up(self, body: object, path: str = CHAT) -> None:
        """Send a request, and hang up as soon as the server has it."""
        entries = self.simulation.ledger.entries
        before = len(entries)
        task = asyncio.create_task(self.post(body, path))
        await until(lambda: len(entries) > before)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def all_ended(self) -> None:
        """Wait until the server is done with every request."""
        await until(lambda: all(entry.ended is not None for entry in self.simulation.ledger.entries))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def play(
    kimi: Contract,
    vocabulary: Vocabulary,
    scenario: Scenario,
    script: Callable[[Client], Awaitable[Any]],
    *,
    ledger: Path | None = None,
) -> Any:
    """Run `script` against a server of `scenario` on a real socket; gives what the script returns."""

    async def with_server() -> Any:
        headers = {"Authorization": "Bearer sk-or-anything"}
        async with (
            simulating(kimi, vocabulary, scenario, ledger=ledger) as running,
            aiohttp.ClientSession(headers=headers) as session,
        ):
            return await script(Client(session, running.url, running.simulation))

    return asyncio.run(with_server())


def request(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "moonshotai/kimi-k2.5", "messages": [{"role": "user", "content": text}], **fields}


def only(slug: str, **fields: Any) -> dict[str, Any]:
    return {"provider": {"only": [slug], **fields}}


def ids_of(message: dict[str, Any], vocabulary: Vocabulary, *, thinks: bool = True) -> list[int]:
    """Ids of a complete answer, from its text, written out by hand."""
    ids = []
    if thinks:
        ids += [*vocabulary.encode_ordinary(message["reasoning"]), THINK_END]
    ids += vocabulary.encode_ordinary(message["content"] or "")
    if message.get("tool_calls"):
        ids.append(SECTION_BEGIN)
        for call in message["tool_calls"]:
            arguments = vocabulary.encode_ordinary(call["function"]["arguments"])
            ids += [CALL_BEGIN, *vocabulary.encode_ordinary(call["id"]), ARGUMENT_BEGIN, *arguments, CALL_END]
        ids.append(SECTION_END)
    return [*ids, IM_END]


def chunks_of(transcript: str) -> list[dict[str, Any]]:
    """The JSON events of an SSE transcript, which must end with [DONE]."""
    events = [event for event in transcript.split("\n\n") if event and not event.startswith(":")]
    assert events.pop() == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the deltas of a stream add up to, in the form of a reply that is not streamed."""
    message: dict[str, Any] = {"reasoning": "", "content": "", "tool_calls": []}
    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        message["reasoning"] += delta.get("reasoning") or ""
        message["content"] += delta.get("content") or ""
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                message["tool_calls"].append({"id": part["id"], "function": dict(part["function"])})
            else:
                message["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    return message


def send(
    kimi: Contract, vocabulary: Vocabulary, *bodies: object, scenario: Scenario | None = None, path: str = CHAT
) -> list[Got]:
    """The replies to `bodies`, sent one after another to a server of `scenario`."""

    async def script(client: Client) -> list[Got]:
        return [await client.post(body, path) for body in bodies]

    got: list[Got] = play(kimi, vocabulary, scenario or Scenario(), script)
    return got
