"""TorchSpec's cache of a tokenized dataset: one `.pt` file, a list of dicts. Its ids lie in one tensor storage.

Read from TorchSpec's `data/dataset.py` (`load_conversation_dataset`) and `data/utils.py` (`pack_loss_mask`), commit
09aa71b. Its name in TorchSpec's cache is an md5 of the path, size and time of the training file, the model and options:
TorchSpec says it ("cache will be saved to …") before it tokenizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from toolkit.export.torch_file import Tensor, Value, opcodes_of_list, write_torch
from toolkit.export.window import Rows

NAME = "torchspec.pt"


class TorchSpecCache:
    """One cache file, put together beside itself, so that rows of any number need little memory.

    Args:
        folder: Where it goes; it exists.
    """

    def __init__(self, folder: Path):
        self._path = folder / NAME
        self._ids_path = folder / f".{NAME}.ids"
        self._ids_file = self._ids_path.open("wb")
        self._entries: list[tuple[str, int, str]] = []
        self._total = 0

    def add(self, rows: Rows) -> None:
        """Take rows."""
        self._ids_file.write(rows.ids.astype("<i8").tobytes())
        for name, length, packed in zip(rows.names, rows.lengths.tolist(), packed_masks(rows), strict=True):
            self._entries.append((name, length, packed))
        self._total += len(rows.ids)

    def finish(self, data_sha256: str) -> None:
        """Nothing more comes; write the file."""
        del data_sha256
        self.close()
        write_torch(self._path, opcodes_of_list(self._values()), {"0": self._ids_path})
        self._ids_path.unlink()

    def close(self) -> None:
        """Let the ids' file go, whole or not."""
        self._ids_file.close()

    def _values(self) -> Iterator[Value]:
        offset = 0
        for name, length, packed in self._entries:
            yield {
                "data_id": name,
                "metadata": {},
                "multimodal_inputs": None,
                "formatted_prompt": "",
                "input_ids": Tensor(storage="0", kind="int64", of=self._total, shape=(1, length), offset=offset),
                "packed_loss_mask": packed,
            }
            offset += length


def packed_masks(rows: Rows) -> list[str]:
    """Lengths of runs, zeros first, as text: [0, 0, 1, 1, 0] is `2,2,1`, and [1, 1] is `0,2`."""
    changes = np.flatnonzero(np.diff(rows.mask)) + 1
    bounds = np.union1d(changes, rows.offsets)
    lengths = np.diff(bounds)
    first_run = np.searchsorted(bounds, rows.offsets)
    packed = []
    for row in range(len(rows)):
        runs = lengths[first_run[row] : first_run[row + 1]].tolist()
        packed.append(",".join(map(str, [0, *runs] if rows.mask[rows.offsets[row]] else runs)))
    return packed
