"""Refusals and boilerplate: phrases as regular expressions, and the texts that hold them.

The expressions are those of polars' engine, which takes linear time whatever the pattern and the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.blocks import Bools
from toolkit.phrases import Phrases

OPENING_CHARACTERS = 300
"""Characters of an answer in which a refusal is looked for."""

# A sentence begins with the text, or after the end of another and what closes it: not inside a quotation.
_SENTENCE_BEGINS = r"(?:^|[.!?…。！？\n>][\"”’»」』)*_\s]*)[\s*_#]*"
# White space as polars' engine knows it.
_SPACE = r"[^\S\x1c-\x1f]+"
_NEVER = r"[^\s\S]"


@dataclass(frozen=True, slots=True)
class Wording:
    """Patterns of a list of phrases, for lower-case text."""

    refusal: str
    boilerplate: str


@lru_cache(maxsize=8)
def wording_of(phrases: Phrases) -> Wording:
    """The patterns of a list of phrases."""
    refusals = _alternatives(phrases.refusals)
    return Wording(
        refusal=f"{_SENTENCE_BEGINS}{refusals}" if phrases.refusals else _NEVER,
        boilerplate=_alternatives(phrases.boilerplate) if phrases.boilerplate else _NEVER,
    )


def find_refusals(content: pa.Array, wording: Wording) -> pa.Array:
    """Whether each answer begins by refusing (bool); null where there is none."""
    head = pc.utf8_slice_codeunits(content, 0, OPENING_CHARACTERS)
    opening = pl.Series("opening", head.cast(pa.large_string()), dtype=pl.String).str.to_lowercase()
    return opening.str.contains(wording.refusal).to_arrow().cast(pa.bool_())


def find_boilerplate(text: pl.Series, wording: Wording) -> Bools:
    """Whether each text holds boilerplate.

    Args:
        text: Strings without nulls, ASCII letters in lower case.
        wording: Patterns to look for.
    """
    return np.asarray(text.str.contains(wording.boilerplate).to_numpy(), dtype=bool)


def _alternatives(phrases: Iterable[str]) -> str:
    return "(?:" + "|".join(_pattern(phrase.lower()) for phrase in phrases) + ")"


def _pattern(phrase: str) -> str:
    """One phrase as a regular expression. Parentheses and bars are those of the phrase."""
    pieces = []
    for piece in re.findall(rf"{_SPACE}|[,，](?:{_SPACE})?|['’]|.", phrase, re.DOTALL):
        if re.fullmatch(_SPACE, piece):
            pieces.append(r"\s+")
        elif piece[0] in ",，":
            pieces.append(r"\s*[,，、]?\s*")
        elif piece in "'’":
            pieces.append("['’]")
        elif piece in "()|":
            pieces.append("(?:" if piece == "(" else piece)
        else:
            pieces.append(piece if piece.isalnum() else f"\\x{{{ord(piece):x}}}")
    # Only ASCII is put in lower case in the texts, for speed: letters that have two cases are few beyond it.
    cased = any(ord(c) > 127 and c.upper() != c for c in phrase)
    return f"(?i:{''.join(pieces)})" if cased else "".join(pieces)
