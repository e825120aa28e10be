"""On-policy or not: whether the assistant's part of a row's prompt is what we ourselves answered before.

A draft model learns from answers to prompts. Where the history holds answers that the target model never gave, the
row teaches it what follows upon somebody else's words. `said_hash` and `history_hashes` are facts of single rows, made
by `said` below; here they are laid beside each other over the whole dataset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64, xxh3_64_intdigest

from toolkit.audit.characters import text_buffers
from toolkit.audit.fact_files import FactSource, FactTable, Frame, collected
from toolkit.audit.texts import frame_of_calls
from toolkit.findings import History
from toolkit.records import Json

OWN, FOREIGN, GIVEN = "own", "foreign", "given"


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
    letters, edges = text_buffers(content)
    whole, ends = letters.data, edges.tolist()
    spoken: list[int | None] = [
        _hash(whole[begin:end], call) for begin, end, call in zip(ends, ends[1:], signed, strict=False)
    ]
    silent = np.flatnonzero(pc.and_(pc.is_null(content), pc.is_null(calls)).to_numpy(zero_copy_only=False))
    for row in silent.tolist():
        spoken[row] = None
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


def _hash(content: bytes | memoryview, calls: Sequence[tuple[str, str]]) -> int:
    # XXH3 of 64 bits: no defence against who makes two texts of one hash, which would gain them nothing. sha256 takes
    # ten times as long, and gives the interpreter away and waits for it again at every row.
    if not calls:
        return _signed(xxh3_64_intdigest(content))
    digest = xxh3_64(content)
    for name, arguments in calls:
        digest.update(f"\x00{len(name)}:{name}{arguments}".encode("utf-8", "replace"))
    return _signed(digest.intdigest())


def _signed(number: int) -> int:
    """64 bits as Arrow and polars have them."""
    return number - (1 << 64) if number >> 63 else number


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
    """A column in one piece; what is one already is not copied."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# --- over the dataset ---------------------------------------------------------------------------

_ANSWERED = ("sample_id", "turn", "sample_index", "probe", "said_hash", "history_hashes")


@dataclass(frozen=True, slots=True)
class Spoken:
    """Our own answers, as sorted 64-bit hashes of who gave them and what they said; none where no row has a history
    that could hold one."""

    answers: npt.NDArray[np.uint64]

    def hold(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of these are among the answers."""
        if not len(self.answers):
            return np.zeros(len(keys), dtype=bool)
        at = np.minimum(np.searchsorted(self.answers, keys), len(self.answers) - 1)
        found: npt.NDArray[np.bool_] = self.answers[at] == keys
        return found


def learn_spoken(facts: FactSource) -> Spoken:
    """The answers of a dataset's conversations."""
    asked = [
        part.lazy().filter(_later()).select(pl.col("sample_id").hash().unique()).collect().to_series()
        for _, part in facts.each(("sample_id", "turn", "history_hashes"))
    ]
    samples = pl.concat(asked).unique() if asked else pl.Series(dtype=pl.UInt64)
    if samples.is_empty():
        return Spoken(np.zeros(0, dtype=np.uint64))
    answers = [
        part.lazy()
        .filter(~pl.col("probe") & pl.col("said_hash").is_not_null())
        .filter(pl.col("sample_id").hash().is_in(samples.implode()))
        .select(_key(pl.col("turn"), pl.col("said_hash")))
        .collect()
        .to_series()
        for _, part in facts.each(_ANSWERED[:-1])
    ]
    return Spoken(np.unique(pl.concat(answers).to_numpy()))


def _later() -> pl.Expr:
    """Rows whose history should hold answers of ours."""
    return pl.col("history_hashes").is_not_null() & (pl.col("turn") > 0)


def _key(turn: pl.Expr, said_hash: pl.Expr) -> pl.Expr:
    """One number for who answered what; it is compared within one process and never kept."""
    parts = (
        pl.col("sample_id").hash(1),
        pl.col("sample_index").cast(pl.Int64).hash(2),
        turn.cast(pl.Int64).hash(3),
        said_hash.hash(4),
    )
    return pl.struct(*(part.alias(str(i)) for i, part in enumerate(parts))).hash(5)


def judge_history(facts: pl.DataFrame, spoken: Spoken | None = None) -> pl.DataFrame:
    """Whose words the history is, for every row in the same order.

    Args:
        facts: Columns `sample_id`, `turn`, `sample_index`, `probe`, `said_hash`, `history_hashes`.
        spoken: The answers of the dataset that these rows belong to; None: these are all of its rows.

    Returns:
        `history`: `own` (the last `turn` answers of the history are ours, of the earlier turns of the same sample),
        `foreign` (a later turn whose history is not, or whose earlier answers are not in the dataset), `given` (a first
        turn: the prompt's author wrote it), null where the prompt has no answer of the assistant or is not known;
        `history_own`: true for `own`, false for `foreign`, null for the others.
    """
    spoken = learn_spoken(FactTable(facts)) if spoken is None else spoken
    numbered = facts.select(_ANSWERED).with_row_index("_row")
    own = _own_rows(numbered.filter(_later()), spoken)
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


def _own_rows(later: pl.DataFrame, spoken: Spoken) -> pl.DataFrame:
    """`_row` and `_own`: whether each answer of the history that an earlier turn should have given is one it gave.

    Where a history is longer than the turns before, its beginning was written by the prompt's author.
    """
    length = pl.col("history_hashes").list.len().cast(pl.Int64)
    told = (
        later.with_columns(pl.int_ranges(pl.col("turn").cast(pl.Int64) - length, pl.col("turn")).alias("_turn"))
        .explode("history_hashes", "_turn")
        .filter(pl.col("_turn") >= 0)
        .select("_row", _key(pl.col("_turn"), pl.col("history_hashes")).alias("_key"))
    )
    there = pl.Series("_there", spoken.hold(told["_key"].to_numpy()))
    return told.with_columns(there).group_by("_row").agg(pl.col("_there").all().alias("_own"))


def count_history(judged: Frame) -> History:
    """Rows by whose words their history is; `judged` has the column `history`."""
    counted = collected(judged.lazy().group_by("history").len())
    found = dict(counted.iter_rows())
    return History(**{name: int(found.get(name, 0)) for name in (OWN, FOREIGN, GIVEN)})
