"""A dataset with prompts in a fresh workspace, and a run against a server with short waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkit.config import DatasetSettings, EndpointSettings, parse_settings
from toolkit.contract import Contract
from toolkit.generate.run import Surroundings, generate
from toolkit.generate.summary import RunSummary
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .server import Scripted, in_thread

KEY = "sk-or-v1-0123456789abcdef-not-a-real-key"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    return Workspace(tmp_path)


@pytest.fixture
def dataset(workspace: Workspace) -> Dataset:
    return workspace.dataset_named("B3")


@pytest.fixture
def scripted() -> Iterator[tuple[Scripted, str]]:
    server = Scripted()
    with in_thread(server.serving()) as url:
        yield server, url


def write_prompts(dataset: Dataset, texts: list[str], **options: Any) -> None:
    dataset.folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {"id": f"p{i}", "messages": [{"role": "user", "content": text}], **options} for i, text in enumerate(texts)
    ]
    dataset.prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def endpoint_at(url: str, **options: Any) -> EndpointSettings:
    table = {"url": f"{url}/api/v1", "concurrency": 8, "timeout_s": 10, **options}
    lines = "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
    return parse_settings(f"[endpoints.openrouter]\n{lines}".encode(), "tokenproof.toml").endpoint("openrouter")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


class PassingTime:
    """A clock that a wait moves on at once, so that none takes any time; waits are recorded."""

    def __init__(self, waits: list[float] | None = None):
        self.waits = [] if waits is None else waits
        self._skipped_s = 0.0

    def ticks(self) -> float:
        return time.monotonic() + self._skipped_s

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._skipped_s += seconds
        await asyncio.sleep(0)


@pytest.fixture
def run(dataset: Dataset, kimi: Contract, vocabulary: Vocabulary) -> Callable[..., RunSummary]:
    """`generate` on the fixture's dataset; waits between tries are recorded in `waits`, and last no time."""

    def go(
        endpoint: EndpointSettings, *, waits: list[float] | None = None, dollars: float | None = None, **settings: Any
    ) -> RunSummary:
        passing = PassingTime(waits)
        return generate(
            dataset, DatasetSettings(max_tokens=256, **settings), endpoint, kimi, vocabulary, dollars=dollars,
            surroundings=Surroundings(sleep=passing.sleep, ticks=passing.ticks, chance=lambda: 0.5),
        )  # fmt: skip

    return go
