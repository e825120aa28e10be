"""Markdown as GitHub, GitLab and the hub read it, in which nothing that came from outside is live.

Words of letters, digits and plain punctuation stand as they are; every other word stands in a code span, where
Markdown knows no links, mentions or markup. A pipe cannot stand in a table's code span without a backslash, whose own
meaning differs between readers, so it stands between two spans as an entity.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

_LINES = 30

_PLAIN_WORD = re.compile(r"[(“]?(?:[^\W\d_]+(?:[’'-][^\W\d_]+)*|\d+(?:[.,]\d+)*%?|[%·–—→/]|× ?)[)”]?[.,;:?…]?")
"""No character in it starts anything in Markdown, and no host name, mention or hash can match it."""


def prose(sentence: str) -> str:
    """A clean sentence in which every word that Markdown might read in its own way is in a code span."""
    runs = itertools.groupby(sentence.split(), key=lambda word: _PLAIN_WORD.fullmatch(word) is not None)
    return " ".join(" ".join(words) if plain else _quote(" ".join(words)) for plain, words in runs)


def _quote(words: str) -> str:
    """Words as a code span, the punctuation that ends them outside of it."""
    inner = words.rstrip(".,;:")
    return code(inner) + words[len(inner) :]


def code(text: str) -> str:
    """A clean text as code span, whatever is in it; safe inside a table cell."""
    return "&#124;".join(_span(piece) if piece else "" for piece in text.split("|"))


def _span(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    # One space at both ends is taken off by Markdown; it keeps backticks and spaces of the text itself.
    pad = " " if text.strip(" ") and (text[0] in " `" or text[-1] in " `") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def bullets(title: str, items: Iterable[str]) -> str:
    """A list of Markdown items under a title; nothing where there are none."""
    lines = [f"- {item}" for item in items]
    return "\n".join([f"**{title}**", "", *lines]) if lines else ""


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table of cells that are Markdown already; columns in `right` are set to the right."""
    rule = ["---:" if index in right else "---" for index in range(len(heading))]
    shown = [heading, rule, *rows[:_LINES]]
    if len(rows) > _LINES:
        shown.append([f"and {len(rows) - _LINES} more", *[""] * (len(heading) - 1)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in shown)
