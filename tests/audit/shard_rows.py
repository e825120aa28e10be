"""Rows of a shard as the tool itself makes them: a reply's bytes through `RowBuilder`, then an Arrow table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from toolkit.audit.measure import measure
from toolkit.columns import SHARD_SCHEMA
from toolkit.records import Entry, IdsSource, Origin, Reply
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary

MODEL = "moonshotai/kimi-k2.5"
SHA = "5a" * 32


def entry(body: str, *, sample_id: str = "s", **changes: Any) -> Entry:
    """What stands in a journal: an answer of OpenRouter to "hi", in thinking mode."""
    fields: dict[str, Any] = {
        "row_key": hashlib.sha256(sample_id.encode()).hexdigest(),
        "sample_id": sample_id,
        "source": "openrouter",
        "origin": Origin.GENERATE,
        "contract": "kimi-k2.5",
        "mode": "thinking",
        "model": MODEL,
        "form": "openai",
        "body": body,
        "messages": [{"role": "user", "content": "hi"}],
    }
    return Entry(**fields | changes)


def body(
    message: Mapping[str, Any],
    finish: str | None = "stop",
    *,
    usage: Mapping[str, Any] | None = None,
    choice: Mapping[str, Any] | None = None,
    **head: Any,
) -> str:
    """The bytes of a reply."""
    fields: dict[str, Any] = {"provider": "Chutes", "model": MODEL, "usage": usage} | head
    return json.dumps({**fields, "choices": [{"finish_reason": finish, "message": message, **(choice or {})}]})


def row(builder: RowBuilder, message: Mapping[str, Any], finish: str | None = "stop", **options: Any) -> dict[str, Any]:
    """The row of a reply. `options`: `usage`, `choice`, `head` for the reply; anything else for the entry."""
    parts = {name: options.pop(name) for name in ("usage", "choice") if name in options}
    asked = entry(body(message, finish, **parts, **options.pop("head", {})), **options)
    reply = builder.read(asked, where="here")
    assert isinstance(reply, Reply), reply
    return builder.build(asked, reply)


def engine_row(
    builder: RowBuilder, message: Mapping[str, Any], ids: Sequence[int] | None, finish: str = "stop", **options: Any
) -> dict[str, Any]:
    """The row of a reply of a local server with ids (`given=True`: ids that came in a file)."""
    given = options.pop("given", False)
    return row(
        builder,
        message,
        finish,
        choice={"token_ids": ids},
        head={"provider": None},
        source="sglang",
        ids_are=IdsSource.GIVEN if given else IdsSource.ENGINE,
        **options,
    )


def table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A shard's table."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=SHARD_SCHEMA)


def facts_of(rows: Sequence[Mapping[str, Any]], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """The facts of rows."""
    return measure(table(rows), vocabulary.contract, vocabulary, shard_sha256=SHA).to_pylist()
