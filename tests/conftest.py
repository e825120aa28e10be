"""What all tests share: the real vocabulary, and the shared recordings and golden files where they lie."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import toolkit.vocabulary
from toolkit.contract import Contract, read_contract
from toolkit.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("TOKENPROOF_SHARED", ROOT.parent / "shared"))


def absent(reason: str) -> NoReturn:
    """What a test needs is not on this machine: it is skipped and says so, but in CI, which installs all, it fails."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def shared_file(name: str) -> Path:
    """A file of the shared material; the test is skipped, and says so, where it is not there."""
    path = SHARED / name
    if not path.is_file():
        absent(f"{path} is missing: set TOKENPROOF_SHARED to the folder that holds {name}")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with slow tests come first: with these last, one worker would be at them long after the others ended."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def kimi() -> Contract:
    return read_contract("kimi-k2.5")


@pytest.fixture(scope="session")
def vocabulary(kimi: Contract) -> Vocabulary:
    return toolkit.vocabulary.load_vocabulary(kimi)


@pytest.fixture(scope="session", autouse=True)
def commands_find_the_vocabulary_loaded(kimi: Contract) -> Iterator[None]:
    """A command that runs in this process takes the shipped vocabulary of Kimi-K2.5 from the last one, as it is: to
    load and prove it, and to make its engines, takes longer than all that most of these commands do. Of any other
    contract, or of the same from elsewhere, it is loaded; so it is for who imported `load_vocabulary` by name."""
    load = toolkit.vocabulary.load_vocabulary
    loaded: list[Vocabulary] = []

    def found(contract: Contract, source: str | None = None) -> Vocabulary:
        if source is not None or contract != kimi:
            return load(contract, source)
        if not loaded:
            loaded.append(load(contract))
        return loaded[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toolkit.vocabulary, "load_vocabulary", found)
        yield


@pytest.fixture(scope="session")
def recordings() -> list[dict[str, Any]]:
    lines = shared_file("recordings/chat_completions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
