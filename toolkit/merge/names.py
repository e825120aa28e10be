"""Columns with few values, as numbers: what a row carries from the first pass to the second in place of the text."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int32]

NAMED = ("dataset", "shard", "source", "provider", "model", "mode", "ids_source", "prompt_ids_source", "finish_reason",
         "contract", "contract_sha256")  # fmt: skip
"""Columns with few values: rows carry a number in their place, −1 for null."""

OF_THE_SHARD = NAMED[:2]
"""Those of them that are one and the same for a whole shard."""

IN_SHARDS = NAMED[2:]
"""Those that stand in shards, row by row."""


class Names:
    """Texts that stand in many rows, as numbers. Which number a text has depends on who asked first: nothing that is
    written may show it."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def numbers_of(self, texts: pa.ChunkedArray) -> Numbers:
        """The number of each text, which are dictionary-encoded; −1 for null."""
        found = [self._of_chunk(chunk) for chunk in texts.chunks]
        return np.concatenate(found) if found else np.zeros(0, np.int32)

    def _of_chunk(self, texts: pa.DictionaryArray) -> Numbers:
        numbers = np.array([-1 if text is None else self.number_of(text) for text in texts.dictionary.to_pylist()])
        places = np.asarray(texts.indices.fill_null(len(numbers)), np.int64)
        return np.append(numbers, -1).astype(np.int32)[places]

    def number_of(self, text: str) -> int:
        """The number of one text."""
        with self._lock:
            return self._numbers.setdefault(text, len(self._numbers))

    def texts_of(self, numbers: Numbers) -> pa.Array:
        """The texts again."""
        return pa.array(self.texts, pa.string()).take(pa.array(numbers, mask=numbers < 0))

    @property
    def texts(self) -> list[str]:
        """All of them, by number."""
        return list(self._numbers)
