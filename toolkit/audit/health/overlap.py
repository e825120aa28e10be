"""Overlap with evaluation prompts: 13 words in a row that stand in both. Opt-in, since it splits every text into words.

Words are runs of letters and digits in lower case; of scripts that put no spaces between words, each character is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import ConfigError, StoreError
from toolkit.records import Json
from toolkit.store.files import read_bytes

WORDS = 13
"""Words in a row."""

_WORD = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]|[\p{L}\p{M}\p{N}--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]]+"
_TEXT_KEYS = ("prompt", "question", "problem", "instruction", "input", "text", "content", "query")
_SHOWN_FAULTS = 10
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ROWS_AT_ONCE = 512

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class EvaluationGrams:
    """Hashes of all stretches of `WORDS` words of a set of prompts, sorted, each once; and how many prompts they are
    of, how many were too short to have one."""

    hashes: Hashes
    prompts: int
    too_short: int


def read_evaluation(*paths: Path) -> EvaluationGrams:
    """Prompts of files.

    Args:
        paths: JSON lines (.jsonl: strings, or objects with `messages` or one of prompt, question, problem, instruction,
            input, text, content, query), or plain text, in which empty lines stand between prompts.

    Raises:
        ConfigError: a file cannot be read, a line has no text, or a file has no prompt that is long enough to be
            looked for.
    """
    parts = [evaluation_grams(_prompts_in(path), path.name) for path in paths]
    return EvaluationGrams(
        np.unique(np.concatenate([part.hashes for part in parts])),
        sum(part.prompts for part in parts),
        sum(part.too_short for part in parts),
    )


def _prompts_in(path: Path) -> list[str]:
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name}: expected UTF-8, found another byte at {error.start:,}") from None
    except StoreError as error:
        raise ConfigError(str(error)) from None
    if path.suffix != ".jsonl":
        return [part for part in text.replace("\r\n", "\n").split("\n\n") if part.strip()]
    faults: list[str] = []
    prompts: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            found = list(_texts_of_line(line))
            prompts += found
            if not found:
                faults.append(f"{path.name}: line {number}: expected a prompt ({', '.join(_TEXT_KEYS)} or messages)")
    if faults:
        raise ConfigError("\n".join(faults[:_SHOWN_FAULTS]))
    return prompts


def evaluation_grams(prompts: Sequence[str], where: str) -> EvaluationGrams:
    """Stretches of prompts; `where` names them in errors.

    Raises:
        ConfigError: none has `WORDS` words.
    """
    hashes, row = _gram_hashes(pl.Series("text", prompts, dtype=pl.String))
    if not len(hashes):
        raise ConfigError(f"{where}: expected prompts of at least {WORDS} words, found none among {len(prompts):,}")
    return EvaluationGrams(np.unique(hashes), len(prompts), len(prompts) - len(np.unique(row)))


def count_overlaps(rows: pa.Table, evaluation: EvaluationGrams) -> pa.Array:
    """Stretches of each row that also stand in the evaluation prompts, each as often as it stands there (int32).

    Args:
        rows: Columns `messages` (JSON), `reasoning` and `content` of a shard.
        evaluation: What to look for.
    """
    counts = [
        _count_overlaps(rows.slice(first, _ROWS_AT_ONCE), evaluation) for first in range(0, len(rows), _ROWS_AT_ONCE)
    ]
    return pa.array(np.concatenate(counts) if counts else np.zeros(0, dtype=np.int64), pa.int32())


def _count_overlaps(rows: pa.Table, evaluation: EvaluationGrams) -> npt.NDArray[np.int64]:
    counts = np.zeros(len(rows), dtype=np.int64)
    said = [" \n".join(_texts_of_line(text)) if text else "" for text in rows["messages"].to_pylist()]
    for column in (pa.array(said, pa.large_string()), rows["reasoning"], rows["content"]):
        texts = pl.Series("text", pc.fill_null(column.cast(pa.large_string()), ""), dtype=pl.String)
        hashes, row = _gram_hashes(texts)
        place = np.minimum(np.searchsorted(evaluation.hashes, hashes), len(evaluation.hashes) - 1)
        counts += np.bincount(row[evaluation.hashes[place] == hashes], minlength=len(rows))
    return counts


def _gram_hashes(texts: pl.Series) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """(a hash of each `WORDS` words in a row, the row of each)."""
    words = texts.str.to_lowercase().str.extract_all(_WORD)
    lengths = words.list.len().to_numpy().astype(np.int64)
    row = np.repeat(np.arange(len(texts)), lengths)
    if len(row) < WORDS:
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    # Hashes of one process, which are never written: both sides of the comparison are made by it.
    word = words.explode(empty_as_null=False, keep_nulls=False).hash().to_numpy()
    hashes = np.zeros(len(word) - WORDS + 1, dtype=np.uint64)
    for place in range(WORDS):
        hashes = (hashes ^ word[place : place + len(hashes)]) * _MIX
        hashes ^= hashes >> np.uint64(31)
    inside = row[: len(hashes)] == row[WORDS - 1 :]
    return hashes[inside], row[: len(hashes)][inside]


def _texts_of_line(line: str) -> Iterator[str]:
    """The prompts of one JSON value: a string, a list of messages, or an object that holds either."""
    try:
        value: Json = orjson.loads(line)
    except ValueError:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (text for message in value for text in _texts_of_message(message))
    elif isinstance(value, dict):
        if isinstance(value.get("messages"), list):
            yield from (text for message in value["messages"] for text in _texts_of_message(message))
        else:
            yield from (value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str))


def _texts_of_message(message: Json) -> Iterator[str]:
    """What the user says in one message."""
    if not isinstance(message, dict) or message.get("role") != "user":
        return
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        yield from (text for text in parts if isinstance(text, str))
