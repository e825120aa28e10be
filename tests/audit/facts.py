"""Judged facts for tests: whole thinking rows of one provider, with changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from toolkit.audit.evidence import Judged, judge
from toolkit.contract import Contract

from .test_evidence import fact as bare_fact
from .test_evidence import frame


def fact(**changes: Any) -> dict[str, Any]:
    """A whole thinking row of Chutes, finished, with reasoning and content."""
    fields: dict[str, Any] = {
        "finish_reason": "stop",
        "reasoning_leading_space": True,
        "reasoning_trailing_space": False,
        "content_leading_space": False,
        "content_trailing_space": False,
    }
    return bare_fact(**fields | changes)


def numbered(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with names and times of their own, a second apart."""
    return [{"created": 1_000 + i, **row, "sample_id": f"s{i}", "row_index": i} for i, row in enumerate(rows)]


def judged_of(contract: Contract, rows: Sequence[dict[str, Any]], **options: Any) -> Judged:
    return judge(frame(rows), contract, **options)


def judged_facts(contract: Contract, rows: Sequence[dict[str, Any]], **options: Any) -> pl.DataFrame:
    return judged_of(contract, rows, **options).facts
