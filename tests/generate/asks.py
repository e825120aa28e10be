"""Asks, planned as a run plans them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.generate.plan import Planned, asking
from toolkit.records import Prompt, row_key_of
from toolkit.rows import rewrite_tool_ids


def ask_of(
    contract: Contract,
    *,
    messages: list[dict[str, Any]] | None = None,
    tools: list[dict[str, Any]] | None = None,
    mode: str = "thinking",
    max_tokens: int = 256,
    sampling: dict[str, Any] | None = None,
    sample_index: int = 0,
) -> Planned:
    """The ask of one prompt, tool ids rewritten."""
    asked, tool_ids = rewrite_tool_ids(messages or [{"role": "user", "content": "hi"}], contract)
    identity = {
        "messages": asked, "tools": tools, "mode": mode, "sampling": sampling or {}, "max_tokens": max_tokens,
        "sample_index": sample_index,
    }  # fmt: skip
    return Planned(
        row_key=row_key_of(contract=contract.name, turn=0, **identity), sample_id="p0", tool_ids=tool_ids or None,
        model=contract.default_model, **identity,
    )  # fmt: skip


def plan_asks(prompts: Sequence[Prompt], settings: DatasetSettings, contract: Contract) -> list[Planned]:
    """All asks of a few prompts, in their order. `plan_of` is for datasets.

    Raises:
        ConfigError: as `asking`.
    """
    way = asking(settings, contract)
    return [ask for prompt in prompts for ask in way.asks_of(prompt)]
