"""Rows of a shard, and datasets with an audit's verdict, for tests of what comes after the audit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from toolkit.columns import QUARANTINE_SCHEMA
from toolkit.contract import Contract
from toolkit.records import KERNEL_VERSION, Accounting, Entry, ExpectationResult, Failure, Severity, SuiteRun, Verdict
from toolkit.rows import RowBuilder
from toolkit.store.files import sha256_of
from toolkit.store.listing import seal_rows
from toolkit.store.shards import read_live, read_shard
from toolkit.store.verdicts import write_quarantine, write_verdict
from toolkit.store.workspace import Dataset, Workspace

SUITE = "strict"


def key_of(text: str) -> str:
    """A row_key that belongs to `text`."""
    return hashlib.sha256(text.encode()).hexdigest()


def row(sample_id: str = "a", **changes: Any) -> dict[str, Any]:
    """One row with a value for every shard column: a short whole answer of a local server."""
    fields: dict[str, Any] = {
        "row_key": key_of(f"{sample_id}/{changes.get('turn', 0)}/{changes.get('sample_index', 0)}"),
        "sample_id": sample_id,
        "turn": 0,
        "sample_index": 0,
        "probe": False,
        "source": "sglang",
        "origin": "generate",
        "provider": None,
        "model": "kimi-k2.5",
        "mode": "thinking",
        "contract": "kimi-k2.5",
        "contract_sha256": "c0" * 32,
        "messages": '[{"role":"user","content":"hi"}]',
        "tools": None,
        "payload": "{}",
        "reasoning": "so",
        "content": "yes",
        "tool_calls": None,
        "finish_reason": "stop",
        "native_finish_reason": None,
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "reasoning_tokens": None,
        "cost_usd": None,
        "request_id": "r-1",
        "created": 1_770_000_000,
        "latency_s": 0.5,
        "streamed": False,
        "output_ids": [20, 163607, 21, 163586],
        "ids_source": "engine",
        "prompt_ids": [10, 11, 163606],
        "prompt_ids_source": "engine",
        "rebuild_status": "complete",
        "notes": [],
    }
    return fields | changes


def suite_path(workspace: Workspace) -> Path:
    """The suite that `audit` says a dataset has passed; written if it is not there."""
    path = workspace.expectations / f"{SUITE}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"name": "strict"}\n', encoding="utf-8")
    return path


def result(**changes: Any) -> ExpectationResult:
    """A row expectation that holds for ten rows."""
    fields: dict[str, Any] = {
        "id": "terminal_last",
        "type": "expect_column_values_to_be_in_set",
        "severity": Severity.CRITICAL,
        "scope": "row",
        "success": True,
        "kwargs": {"column": "last_id", "value_set": [163586]},
        "description": "an answer ends with its terminal",
        "mostly": 0.9,
        "element_count": 10,
        "unexpected_count": 0,
    }
    return ExpectationResult(**fields | changes)


def add_dataset(workspace: Workspace, name: str, *shards: Sequence[Mapping[str, Any]]) -> Dataset:
    """A dataset with one shard for each sequence of rows; not audited."""
    dataset = workspace.dataset_named(name)
    for rows in shards:
        seal_rows(dataset, [dict(row) for row in rows], contract="kimi-k2.5")
    return dataset


def audit(
    workspace: Workspace,
    dataset: Dataset,
    contract: Contract,
    *,
    quarantine: Mapping[tuple[int, int], Sequence[str]] | None = None,
    results: Sequence[ExpectationResult] = (),
    **changes: Any,
) -> Verdict:
    """Leave the files of a passed audit of what lies there now.

    Args:
        quarantine: (number of the shard, row index) → expectations that the row fails.
        results: Of the one suite; one that holds when none are given.
        changes: Fields of the verdict.
    """
    live = read_live(dataset)
    listed = []
    for (number, index), reasons in (quarantine or {}).items():
        shard = live.shards[number]
        found = read_shard(dataset, shard, ["row_key", "sample_id", "turn", "sample_index"]).slice(index, 1).to_pylist()
        listed.append({**found[0], "shard": shard.sha256, "row_index": index, "reasons": list(reasons)})
    stated = [
        {
            "type": r.type,
            "severity": str(r.severity),
            "kwargs": dict(r.kwargs) | ({"mostly": r.mostly} if r.mostly else {}),
        }
        for r in (tuple(results) or (result(),))
    ]
    meta = {"tokenproof": {"max_quarantined_share": 0.5}}
    suite_path(workspace).write_text(
        json.dumps({"name": SUITE, "expectations": stated, "meta": meta}), encoding="utf-8"
    )
    suite = SuiteRun(
        name=SUITE,
        path=f"{SUITE}.json",
        sha256=sha256_of(suite_path(workspace)),
        max_quarantined_share=0.5,
        results=tuple(results) or (result(),),
    )
    fields: dict[str, Any] = {
        "dataset": dataset.name,
        "created_at": "2026-03-14T09:26:53+00:00",
        "tool_version": "0.1.0",
        "kernel_version": KERNEL_VERSION,
        "contract": contract.name,
        "contract_sha256": contract.sha256,
        "shards": live.shards,
        "suites": (suite,),
        "rows": live.rows,
        "ids": 0,
        "accounting": Accounting(
            asked=live.rows, rows=live.rows, answered=live.rows, failed=0, unanswered=0, unsealed=0
        ),
        "sources": {},
        "origins": {},
        "providers": (),
        "evidence": {},
        "statuses": {},
        "notes": {},
        "nulls": {},
        "quarantined": len(listed),
        "quarantined_by_reason": {},
        "quarantine_sha256": write_quarantine(
            dataset.quarantine, pa.Table.from_pylist(listed, schema=QUARANTINE_SCHEMA)
        ),
        "unreadable": (),
        "complete": True,
        "passed": True,
        "reasons": (),
    }
    verdict = Verdict(**fields | changes)
    write_verdict(dataset.verdict, verdict)
    return verdict


def build_rows(
    builder: RowBuilder, entries: Iterable[Entry], failures: list[Failure], *, where: str
) -> Iterator[dict[str, Any]]:
    """Rows of all entries that are answers; the others are added to `failures`."""
    for entry in entries:
        reply = builder.read(entry, where=where)
        if isinstance(reply, Failure):
            failures.append(reply)
        else:
            yield builder.build(entry, reply)
