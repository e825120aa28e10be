"""What all tests share: the real vocabulary, and the shared recordings and golden files where they lie."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from toolkit.contract import Contract, read_contract
from toolkit.vocabulary import Vocabulary, load_vocabulary

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


@pytest.fixture(scope="session")
def kimi() -> Contract:
    return read_contract("kimi-k2.5")


@pytest.fixture(scope="session")
def vocabulary(kimi: Contract) -> Vocabulary:
    return load_vocabulary(kimi)


@pytest.fixture(scope="session")
def recordings() -> list[dict[str, Any]]:
    lines = shared_file("recordings/chat_completions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
