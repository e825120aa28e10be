"""Texts for the benches of the audit, as models write them: of what they are made is said here, a kind a function.

Nothing is downloaded: prose is the documentation that Python brings along, code its standard library, Han text is put
together of the vocabulary's own words, often ones more often (by Zipf's law), and the rest is drawn.
"""

from __future__ import annotations

import json
import random
import re
import sysconfig
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from pydoc_data.topics import topics  # type: ignore[import-untyped]

from toolkit.vocabulary import Vocabulary

_NO_CODE = frozenset({"test", "tests", "site-packages", "idlelib", "pydoc_data", "lib2to3", "encodings"})
_HAN = re.compile("[\u4e00-\u9fff]+")
_ZIPF_SHIFT = 30
"""Added to the rank of a word: the most frequent ones of a language are not a tenth of its text each."""

_THOUGHTS = (
    "Wait, ", "Hmm, let me check this again: ", "So ", "Okay, ", "First, ", "But ", "Now ", "Actually, no. ",
    "Let me think about ", "The user wants ", "I should mention that ", "On the other hand, ",
)  # fmt: skip


class Writer:
    """Writes answers of a wanted length in characters, the same ones for the same seed."""

    def __init__(self, seed: int, vocabulary: Vocabulary):
        self.draw = random.Random(seed)
        self.pages = [text for text in topics.values() if len(text) > 2_000]
        self.sentences = [
            s.strip() for page in self.pages for s in re.split(r"(?<=[.:])\s+", page) if 20 < len(s) < 400
        ]
        self.files = _code_files()
        words = (token.decode("utf-8", "replace") for token in vocabulary.base if len(token) >= 3)
        self.han_words = [word for word in words if _HAN.fullmatch(word)]
        self.han_weights = list(accumulate(1 / (rank + _ZIPF_SHIFT) for rank in range(len(self.han_words))))
        self.kinds: dict[Callable[[int], str], int] = {
            self.reasoning: 6, self.prose: 5, self.code: 5, self.han: 3, self.maths: 2, self.data: 1, self.table: 1,
        }  # fmt: skip

    def answer(self, size: int) -> str:
        """Stretches of several kinds: of 23, 6 are thinking aloud, 5 prose, 5 code, 3 Han, 2 maths, and one each JSON
        and a table."""
        parts: list[str] = []
        while (left := size - sum(map(len, parts))) > 0:
            (kind,) = self.draw.choices(list(self.kinds), list(self.kinds.values()))
            parts.append(kind(min(left, self.draw.randrange(300, 2_000)) + 1))
        return "".join(parts)

    def reasoning(self, size: int) -> str:
        """Sentences of the documentation, thought about, in paragraphs."""
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            sentence = " ".join(self.draw.choice(self.sentences).split())
            if self.draw.random() < 0.4:
                sentence = self.draw.choice(_THOUGHTS) + sentence[0].lower() + sentence[1:]
            parts.append(sentence + self.draw.choice((" ", " ", "\n\n")))
        return "".join(parts)[:size]

    def prose(self, size: int) -> str:
        """A stretch of a page of the documentation, its lines joined to paragraphs."""
        paragraphs = self._stretch(self.pages, size).split("\n\n")
        return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs) + "\n\n"

    def code(self, size: int) -> str:
        """A stretch of a source file."""
        return f"```python\n{self._stretch(self.files, size)}\n```\n"

    def han(self, size: int) -> str:
        """Clauses of words by Zipf's law; a character counts for two or three of the others."""
        parts: list[str] = []
        while sum(map(len, parts)) < size / 2.5:
            words = self.draw.choices(self.han_words, cum_weights=self.han_weights, k=self.draw.randrange(4, 14))
            parts.append("".join(words) + self.draw.choice(("，", "，", "。", "；", "：", "。\n\n")))
        return "".join(parts)

    def maths(self, size: int) -> str:
        """Steps of calculations, in LaTeX and without."""
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            a, b = self.draw.randrange(2, 10**4), self.draw.randrange(2, 10**3)
            parts.append(
                self.draw.choice((
                    f"\\[ \\frac{{{a}}}{{{b}}} \\approx {a / b:.6f} \\]\n",
                    f"{a} × {b} = {a * b}, so {a * b} − {a} = {a * b - a}.\n",
                    f"$x^2 - {a + b}x + {a * b} = (x - {a})(x - {b})$ has the roots $x_1 = {a}$ and $x_2 = {b}$.\n",
                    f"Step {b % 9 + 1}: $\\sqrt{{{a}}} \\approx {a**0.5:.4f}$, so less than {int(a**0.5) + 1}.\n\n",
                ))
            )  # fmt: skip
        return "".join(parts)

    def data(self, size: int) -> str:
        """JSON with names, numbers and times."""
        rows: list[dict[str, object]] = []
        while 90 * len(rows) < size:
            rows.append(
                {
                    "id": f"{self.draw.getrandbits(48):012x}",
                    "name": self._word(),
                    "score": round(self.draw.random(), 4),
                    "at": f"2026-{self.draw.randrange(1, 13):02d}-{self.draw.randrange(1, 29):02d}T08:30:00Z",
                }
            )
        return f"```json\n{json.dumps(rows, indent=2)}\n```\n"

    def table(self, size: int) -> str:
        """A Markdown table of names and numbers."""
        lines = ["| name | value | share |", "| --- | --- | --- |"]
        while sum(map(len, lines)) < size:
            lines.append(f"| {self._word()} | {self.draw.randrange(10**6)} | {self.draw.random():.4f} |")
        return "\n".join(lines) + "\n"

    def _word(self) -> str:
        return self.draw.choice(self.draw.choice(self.sentences).split())[:20]

    def _stretch(self, texts: list[str], size: int) -> str:
        text = self.draw.choice(texts)
        start = self.draw.randrange(max(len(text) - size, 1))
        return text[start : start + size]


def _code_files() -> list[str]:
    """Sources of the standard library, packages too: code as people write it."""
    folder = Path(sysconfig.get_path("stdlib"))
    files = (path for path in sorted(folder.rglob("*.py")) if not _NO_CODE & set(path.relative_to(folder).parts))
    return [path.read_text(encoding="utf-8", errors="replace") for path in files]
