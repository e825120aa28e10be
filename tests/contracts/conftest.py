"""Tests of one contract follow each other, so that its vocabulary can be loaded once and be let go again."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests of each module of this folder by the contract that they name; modules stay where they are."""
    mine = [position for position, item in enumerate(items) if _HERE in item.path.parents]
    modules = {path: number for number, path in enumerate(dict.fromkeys(items[at].path for at in mine))}
    ordered = sorted((items[at] for at in mine), key=lambda item: (modules[item.path], _contract_of(item)))
    for position, item in zip(mine, ordered, strict=True):
        items[position] = item


def _contract_of(item: pytest.Item) -> str:
    """What its parameter `name` is; "" where it has none."""
    given = getattr(item, "callspec", None)
    return str(given.params.get("name", "")) if given is not None else ""
