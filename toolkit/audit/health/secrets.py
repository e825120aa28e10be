"""Secrets and e-mail addresses in texts: which kinds and how many, never what they are.

Most texts hold neither, so one pass over all looks for the beginnings of keys, and only texts with one are read by the
patterns of each kind. What looks like a key must also look drawn at random: documentation is full of placeholders.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import polars as pl

from toolkit.audit.blocks import Ints

FEWEST_BITS = 3.0
"""Entropy of a key's characters, bits each; 20 random hexadecimal digits have 3.4 or so."""

_BEGINS = r"(?-u:\b)"

PATTERNS: dict[str, str] = {
    "aws": _BEGINS + r"(?:AKIA|ASIA)([A-Z2-7]{16})(?:[^A-Za-z0-9]|$)",
    "github": _BEGINS + r"(?:gh[pousr]_|github_pat_)([A-Za-z0-9_]{36,})",
    "gitlab": _BEGINS + r"glpat-([A-Za-z0-9_-]{20,64})",
    "openai": r"(?:^|[^A-Za-z0-9_-])sk-((?:[a-z0-9]{2,8}-){0,3}[A-Za-z0-9_-]{20,})",
    "slack": _BEGINS + r"xox[abeoprs]-([0-9A-Za-z-]{20,})",
    "google": _BEGINS + r"AIza([0-9A-Za-z_-]{35})",
    "stripe": _BEGINS + r"[rs]k_live_([0-9A-Za-z]{24,})",
    "huggingface": _BEGINS + r"hf_([A-Za-z0-9]{30,64})",
    "npm": _BEGINS + r"npm_([A-Za-z0-9]{36})",
    "jwt": _BEGINS + r"eyJ[A-Za-z0-9_-]{10,}\.(eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,})",
    "private_key": (
        r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:\s|\\[nr]|[A-Za-z-]{3,20}: [^\n]{0,200}\n)*([A-Za-z0-9+/=]{32,})"
    ),
}
"""Kind → pattern of polars' engine; what it captures must look random."""

_ANY = (
    r"AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|(?:^|[^A-Za-z0-9_-])sk-[A-Za-z0-9_-]{20}|xox[abeoprs]-|AIza|[rs]k_live_"
    r"|hf_[A-Za-z0-9]{30}|npm_[A-Za-z0-9]{36}|eyJ[A-Za-z0-9_-]{10}|PRIVATE KEY"
)
_PLACEHOLDER = re.compile(
    r"example|placeholder|redacted|123456789|abcdefgh|deadbeef|(.)\1{5}"
    # Short words stand in random text too, but not between separators.
    r"|(?:^|[_-])(?:your?|my|here|insert|replace|sample|secret|dummy|fake|test|token|key|x{3,})(?:$|[_-])",
    re.IGNORECASE,
)
# {"sub":"1234567890" in base64: the web token of every tutorial.
_OF_TUTORIALS = "eyJzdWIiOiIxMjM0NTY3ODkwI"
_LONGEST_JUDGED = 400

_URL_OR_ADDRESS = (
    r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]*"
    r"|[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}\.)+[A-Za-z]{2,24}[(:\w]?"
)
_DOMAINS = (
    "com|org|net|edu|gov|mil|int|info|biz|io|ai|dev|app|co|me|tv|cc|xyz|online|site|tech|cloud|name|pro|email|"
    "ac|at|au|be|bg|br|ca|ch|cl|cn|cz|de|dk|ee|es|eu|fi|fr|gr|hk|hu|id|ie|il|in|ir|is|it|jp|kr|lt|lu|lv|ma|mx|my|ng|"
    "nl|no|nz|pe|ph|pk|pl|pt|ro|rs|ru|sa|se|sg|si|sk|th|tr|tw|ua|uk|us|vn|za"
)
_ADDRESS = rf"(?i)^[^@:/]+@[^@:/]+\.(?:{_DOMAINS})$"
_NOBODY = (
    r"(?i)^git@|^(?:no-?reply|user|username|you|your[._-]?\w*|name|foo|bar|someone|somebody|test)@"
    r"|@(?:[\w-]+\.)*(?:example|test|invalid|localhost|domain|email|mail|yourdomain|yourcompany|company|mydomain|site)\."
    r"|@(?:[\w-]+\.)*(?:example|test|invalid|localhost)$"
)


@dataclass(frozen=True, slots=True)
class Secrets:
    """What each text holds.

    Attributes:
        counts: How many secrets. Shape (rows,).
        kinds: Names of `PATTERNS`, sorted, each once, joined by ", "; "" where there are none.
    """

    counts: Ints
    kinds: list[str]


def find_secrets(text: pl.Series) -> Secrets:
    """Secrets of each text; `text` holds no nulls."""
    counts = np.zeros(len(text), dtype=np.int64)
    kinds = [""] * len(text)
    suspects = np.flatnonzero(text.str.contains(_ANY).to_numpy())
    if len(suspects):
        suspected = text.gather(suspects)
        found: dict[int, Counter[str]] = {}
        for kind, pattern in PATTERNS.items():
            for row, body in _captured(suspected, pattern):
                if looks_random(body):
                    found.setdefault(int(suspects[row]), Counter())[kind] += 1
        for row, by_kind in found.items():
            counts[row] = by_kind.total()
            kinds[row] = ", ".join(sorted(by_kind))
    return Secrets(counts, kinds)


def looks_random(body: str) -> bool:
    """Whether the part of a key that should be random looks so: no placeholder, no words, no few characters."""
    body = body[:_LONGEST_JUDGED]
    if _PLACEHOLDER.search(body) or _OF_TUTORIALS in body:
        return False
    drawn = re.sub(r"[^A-Za-z0-9+/]", "", body)
    digits = sum(character.isdigit() for character in drawn)
    capitals = sum(character.isupper() for character in drawn)
    # Words that are written together have no digits, and capitals at their beginnings only.
    if digits == len(drawn) or (not digits and not 0.2 <= capitals / max(len(drawn), 1) <= 0.8):
        return False
    return _entropy(drawn) >= FEWEST_BITS


def count_addresses(text: pl.Series) -> Ints:
    """E-mail addresses of each text; reserved domains and words that stand for anybody are not counted."""
    counts = np.zeros(len(text), dtype=np.int64)
    suspects = np.flatnonzero(text.str.contains("@", literal=True).to_numpy())
    if len(suspects):
        frame = pl.DataFrame({"row": suspects, "found": text.gather(suspects).str.extract_all(_URL_OR_ADDRESS)})
        addresses = (
            frame.explode("found")
            .drop_nulls()
            .filter(pl.col("found").str.contains(_ADDRESS) & ~pl.col("found").str.contains(_NOBODY))
        )
        np.add.at(counts, addresses["row"].to_numpy(), 1)
    return counts


def _captured(text: pl.Series, pattern: str) -> list[tuple[int, str]]:
    """(row, what the pattern captures) for every match."""
    matches = pl.DataFrame({"row": np.arange(len(text)), "match": text.str.extract_all(pattern)}).explode("match")
    bodies = matches.drop_nulls().with_columns(pl.col("match").str.extract(pattern))
    return list(bodies.drop_nulls().iter_rows())


def _entropy(text: str) -> float:
    """Bits a character, of the characters as often as they stand there."""
    total = len(text)
    return -sum(n / total * math.log2(n / total) for n in Counter(text).values())
