"""Scripts of answers, and whether an answer is in another script than its prompt.

Scripts stand for languages as far as they differ in letters: Chinese and English do, French and English do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from toolkit.audit.blocks import Bools, Ints
from toolkit.audit.health.characters import SCRIPTS, count_characters
from toolkit.records import Json

FEWEST_LETTERS = 24
"""Letters of a text whose script is told; Han, kana and Hangul count three each."""
DOMINANT_SHARE = 0.6
"""Of the letters, where prompt and answer are compared."""
ABSENT_SHARE = 0.05
"""Of the answer's letters: what has fewer of the prompt's script is in another."""

_HAN, _KANA = SCRIPTS.index("han"), SCRIPTS.index("kana")
_KANA_SHARE = 0.15
_FEWEST_OTHER = 12
# Prompts that speak of languages ask for answers in another than their own.
_OF_LANGUAGES = (
    r"(?i)translat|languag|chinese|mandarin|japanese|korean|russian|arabic|hindi|greek|hebrew|thai|english|french|german"
    r"|spanish|unicode|emoji|alphabet|翻译|翻譯|译成|譯成|英文|英语|英語|中文|汉语|日语|日文|韩语|俄语|法语|德语|语言|語言|訳|日本語"
    r"|번역|영어|한국어|중국어|일본어|перевед|перевод|английск|китайск|язык|ترجم|الإنجليزية"
)


@dataclass(frozen=True, slots=True)
class Scripts:
    """Scripts of texts.

    Attributes:
        first: Index into `SCRIPTS` of the script with most letters; −1 where there are too few to tell.
        second_share: Letters of all other scripts but the first's nearest, as a share of all; of the second script.
    """

    first: Ints
    second_share: np.ndarray[tuple[int], np.dtype[np.float64]]


def scripts_of(letters: Ints) -> Scripts:
    """Scripts from letters by script, shape (rows, len(SCRIPTS)). Japanese is kana with its Han."""
    merged = _with_japanese(letters)
    total = merged.sum(axis=1)
    order = np.sort(merged, axis=1)
    first = np.where(total >= FEWEST_LETTERS, merged.argmax(axis=1), -1).astype(np.int64)
    return Scripts(first, order[:, -2] / np.maximum(total, 1))


def language_differs(content: pa.Array, letters: Ints, messages: pa.Array) -> pa.Array:
    """Whether the answer is in another script than the last message of the user (bool).

    False where the messages hold no letters of another script to speak of. Null where there is too little of either, no
    script dominates, the prompt speaks of languages, or the answer may be code or data. Messages are JSON and are read
    one by one, but only where they hold letters of another script than the answer.

    Args:
        content: Answers.
        letters: Their letters by script.
        messages: JSON of the messages that were sent.
    """
    differs = np.zeros(len(content), dtype=bool)
    known = np.zeros(len(content), dtype=bool)
    answers = _with_japanese(letters)
    total, first = answers.sum(axis=1), answers.argmax(axis=1)
    rows = np.arange(len(content))
    clear = (total >= 2 * FEWEST_LETTERS) & (answers[rows, first] >= DOMINANT_SHARE * total)
    asked = count_characters(messages).letters
    same = asked[rows, first]
    known |= clear & np.asarray(messages.is_valid()) & (asked.sum(axis=1) - same < _FEWEST_OTHER)
    open_rows = np.flatnonzero(clear & ~known & np.asarray(messages.is_valid()))
    if len(open_rows):
        index = pa.array(open_rows)
        told, other = _compare(content.take(index), answers[open_rows], messages.take(index))
        known[open_rows], differs[open_rows] = told, other
    return pa.array(differs, mask=~known)


def _compare(content: pa.Array, answers: Ints, messages: pa.Array) -> tuple[Bools, Bools]:
    """(whether prompt and answer can be compared, whether they differ)."""
    questions = [_last_question(text) for text in messages.to_pylist()]
    column = pa.array(questions, pa.large_string())
    prompts = _with_japanese(count_characters(column).letters)
    total, first = prompts.sum(axis=1), prompts.argmax(axis=1)
    rows = np.arange(len(questions))
    clear = (total >= FEWEST_LETTERS) & (prompts[rows, first] >= DOMINANT_SHARE * total)
    absent = answers[rows, first] < ABSENT_SHARE * answers.sum(axis=1)
    frame = pl.DataFrame({"question": column, "content": content.cast(pa.large_string())})
    excused = frame.select(
        pl.col("question").str.contains(_OF_LANGUAGES)
        | pl.col("content").str.contains(r"```|^\s*[\[{<(]|[;{}]\s*\n|\\\(|\$")
    ).to_series()
    told = clear & ~(absent & excused.fill_null(False).to_numpy())
    return told, told & absent


def _with_japanese(letters: Ints) -> Ints:
    """Letters by script, Han counted as kana where a text has both as Japanese has."""
    both = letters[:, _HAN] + letters[:, _KANA]
    japanese = letters[:, _KANA] > _KANA_SHARE * both
    merged = letters.copy()
    merged[japanese, _KANA] = both[japanese]
    merged[japanese, _HAN] = 0
    return merged


def _last_question(text: str) -> str:
    """What the user said last; "" where nobody did."""
    try:
        messages = orjson.loads(text)
    except ValueError:
        return ""
    if not isinstance(messages, list):
        return ""
    said = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    return _text_of(said[-1]) if said else ""


def _text_of(content: Json) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))
