"""On-policy or not: whether the assistant's part of a row's prompt is what we ourselves answered before.

A draft model learns from answers to prompts. Where the history holds answers that the target model never gave, the
row teaches it what follows upon somebody else's words. `said_hash` and `history_hashes` are facts of single rows, made
by `said` below; here they are laid beside each other over the whole dataset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.texts import frame_of_calls
from toolkit.findings import History
from toolkit.records import Json

OWN, FOREIGN, GIVEN = "own", "foreign", "given"

_KEY = ["sample_id", "sample_index", "_turn", "_hash"]


def history_facts(rows: pa.Table) -> dict[str, pa.Array]:
    """Hashes of what each row says, and of what the assistant says in its prompt.

    Reasoning is left out: templates drop it from histories. So are tool ids: they are rewritten on the way.

    Args:
        rows: Columns `content`, `tool_calls` and `messages` of a shard.

    Returns:
        `said_hash` (int64): of the content and the calls; null where there is neither. `history_hashes` (list<int64>):
        one for each message of the assistant in the prompt, in order; null where there is none or no prompt is known.
    """
    content, calls = (_whole(rows.column(name)) for name in ("content", "tool_calls"))
    signed = _signed_calls(calls)
    spoken = [
        None if text is None and not call else _hash(text or b"", call)
        for text, call in zip(content.cast(pa.binary()).to_pylist(), signed, strict=True)
    ]
    messages = _whole(rows.column("messages"))
    history: list[list[int] | None] = [None] * len(messages)
    speaks = pc.fill_null(pc.match_substring(messages, '"assistant"'), False)
    at = np.flatnonzero(speaks.to_numpy(zero_copy_only=False))
    for row, text in zip(at.tolist(), messages.take(pa.array(at)).to_pylist(), strict=True):
        history[row] = _said_before(text) or None
    return {
        "said_hash": pa.array(spoken, pa.int64()),
        "history_hashes": pa.array(history, pa.list_(pa.int64())),
    }


def said(content: str, calls: Sequence[tuple[str, str]]) -> int:
    """The hash of one answer: its content, and (name, arguments) of each call exactly as they are spelled."""
    return _hash(content.encode("utf-8", "replace"), calls)


def _hash(content: bytes, calls: Sequence[tuple[str, str]]) -> int:
    digest = hashlib.sha256(content)
    for name, arguments in calls:
        digest.update(f"\x00{len(name)}:{name}{arguments}".encode("utf-8", "replace"))
    return int.from_bytes(digest.digest()[:8], "little", signed=True)


def _signed_calls(column: pa.Array) -> list[Sequence[tuple[str, str]]]:
    found: list[Sequence[tuple[str, str]]] = [()] * len(column)
    if column.null_count < len(column):
        frame = frame_of_calls(column).select("row", "name", "arguments")
        for row, name, arguments in frame.iter_rows():
            found[row] = (*found[row], (name, arguments))
    return found


def _said_before(text: str) -> list[int]:
    """Hashes of the assistant's messages of a prompt; a message that has no OpenAI form gets one that fits nothing."""
    try:
        messages = orjson.loads(text)
    except ValueError:
        return []
    if not isinstance(messages, list):
        return []
    spoken = [m for m in messages if isinstance(m, dict) and m.get("role") == "assistant"]
    return [said(_text_of(message.get("content")), _calls_of(message.get("tool_calls"))) for message in spoken]


def _text_of(content: Json) -> str:
    """A message's content: a string, or OpenAI's list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _calls_of(calls: Json) -> list[tuple[str, str]]:
    functions = [c.get("function") for c in calls if isinstance(c, dict)] if isinstance(calls, list) else []
    return [(str(f.get("name") or ""), str(f.get("arguments") or "")) for f in functions if isinstance(f, dict)]


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# --- over the dataset ---------------------------------------------------------------------------


def judge_history(facts: pl.DataFrame) -> pl.DataFrame:
    """Whose words the history is, for every row in the same order.

    Args:
        facts: Columns `sample_id`, `turn`, `sample_index`, `probe`, `said_hash`, `history_hashes`.

    Returns:
        `history`: `own` (the last `turn` answers of the history are ours, of the earlier turns of the same sample),
        `foreign` (a later turn whose history is not, or whose earlier answers are not in the dataset), `given` (a first
        turn: the prompt's author wrote it), null where the prompt has no answer of the assistant or is not known;
        `history_own`: true for `own`, false for `foreign`, null for the others.
    """
    numbered = facts.select("sample_id", "turn", "sample_index", "probe", "said_hash", "history_hashes").with_row_index(
        "_row"
    )
    later = numbered.filter(pl.col("history_hashes").is_not_null() & (pl.col("turn") > 0))
    own = _own_rows(later, numbered)
    state = (
        pl.when(pl.col("history_hashes").is_null())
        .then(None)
        .when(pl.col("turn") <= 0)
        .then(pl.lit(GIVEN))
        .when(pl.col("_own").fill_null(False))
        .then(pl.lit(OWN))
        .otherwise(pl.lit(FOREIGN))
    )
    return (
        numbered.join(own, on="_row", how="left", maintain_order="left")
        .select(state.alias("history"))
        .with_columns(
            pl.when(pl.col("history").is_in([OWN, FOREIGN])).then(pl.col("history") == OWN).alias("history_own")
        )
    )


def _own_rows(later: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """`_row` and `_own`: whether each answer of the history that an earlier turn should have given is one it gave.

    Where a history is longer than the turns before, its beginning was written by the prompt's author.
    """
    answers = rows.filter(~pl.col("probe") & pl.col("said_hash").is_not_null()).select(
        "sample_id", "sample_index", pl.col("turn").cast(pl.Int64).alias("_turn"), pl.col("said_hash").alias("_hash")
    )
    length = pl.col("history_hashes").list.len().cast(pl.Int64)
    told = (
        later.with_columns(pl.int_ranges(pl.col("turn").cast(pl.Int64) - length, pl.col("turn")).alias("_turn"))
        .explode("history_hashes", "_turn")
        .rename({"history_hashes": "_hash"})
        .filter(pl.col("_turn") >= 0)
    )
    matched = told.join(answers.unique(_KEY).with_columns(_there=pl.lit(True)), on=_KEY, how="left")
    return matched.group_by("_row").agg(pl.col("_there").fill_null(False).all().alias("_own"))


def count_history(judged: pl.DataFrame) -> History:
    """Rows by whose words their history is; `judged` has the column `history`."""
    found = judged["history"]
    return History(**{name: int((found == name).sum()) for name in (OWN, FOREIGN, GIVEN)})
