"""A folder for `datasets.load_from_disk`, written with Arrow alone: IPC streams, `state.json` and `dataset_info.json`.

No features are stated: their spelling has changed between versions of `datasets` (Sequence, List), and without them
every version takes the columns' types from the Arrow schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from toolkit.export.window import Rows

_IDS_AT_ONCE = 4_000_000
_IDS_PER_FILE = 100_000_000

_IGNORED = np.int32(-100)
"""The label that loss functions leave out."""

Columns = Callable[[Rows], Mapping[str, pa.Array]]


def speculators_columns(rows: Rows) -> Mapping[str, pa.Array]:
    """input_ids, loss_mask and seq_len, which its batch sampler reads."""
    return {
        "input_ids": _lists(rows, pa.array(rows.ids)),
        "loss_mask": _lists(rows, pa.array(rows.mask)),
        "seq_len": pa.array(rows.lengths),
    }


def trl_columns(rows: Rows) -> Mapping[str, pa.Array]:
    """input_ids and labels; completion_mask for versions that build the labels themselves."""
    return {
        "input_ids": _lists(rows, pa.array(rows.ids)),
        "labels": _lists(rows, _labels(rows)),
        "completion_mask": _lists(rows, pa.array(rows.mask)),
    }


def labels_columns(rows: Rows) -> Mapping[str, pa.Array]:
    """input_ids, attention_mask (all ones) and labels."""
    return {
        "input_ids": _lists(rows, pa.array(rows.ids)),
        "attention_mask": _lists(rows, pa.array(np.ones(len(rows.ids), np.int8))),
        "labels": _lists(rows, _labels(rows)),
    }


class HfDataset:
    """The files of one dataset.

    Args:
        folder: Where they go; it exists.
        columns: Rows → columns.
        as_torch: Rows are handed out as tensors (`set_format("torch")`).
    """

    def __init__(self, folder: Path, columns: Columns, *, as_torch: bool = False):
        self._folder = folder
        self._columns = columns
        self._format = "torch" if as_torch else None
        self._files = 0
        self._ids = 0
        self._sink: pa.OSFile | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, rows: Rows) -> None:
        """Write rows."""
        for piece in rows.pieces(_IDS_AT_ONCE):
            batch = pa.RecordBatch.from_pydict(dict(self._columns(piece)))
            if self._writer is None or self._ids >= _IDS_PER_FILE:
                self._next_file(batch.schema)
            assert self._writer is not None
            self._writer.write_batch(batch)
            self._ids += len(piece.ids)

    def finish(self, data_sha256: str) -> None:
        """Nothing more comes; the files get their names, which say how many they are.

        Args:
            data_sha256: Of the rows; `datasets` keys its caches by its beginning.
        """
        self.close()
        names = [f"data-{number:05d}-of-{self._files:05d}.arrow" for number in range(self._files)]
        for number, name in enumerate(names):
            self._unfinished(number).rename(self._folder / name)
        state: dict[str, object] = {
            "_data_files": [{"filename": name} for name in names],
            "_fingerprint": data_sha256[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": self._format,
            "_output_all_columns": False,
            "_split": None,
        }
        info = {"citation": "", "description": "", "homepage": "", "license": ""}
        for name, content in (("state.json", state), ("dataset_info.json", info)):
            (self._folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def close(self) -> None:
        """Let the open file go, whole or not."""
        if self._writer is not None and self._sink is not None:
            self._writer.close()
            self._sink.close()
            self._writer = self._sink = None

    def _next_file(self, schema: pa.Schema) -> None:
        self.close()
        self._sink = pa.OSFile(str(self._unfinished(self._files)), "wb")
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self._files += 1
        self._ids = 0

    def _unfinished(self, number: int) -> Path:
        return self._folder / f"data-{number:05d}.arrow"


def _lists(rows: Rows, flat: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(rows.offsets.astype(np.int32)), flat)


def _labels(rows: Rows) -> pa.Array:
    return pa.array(np.where(rows.mask == 1, rows.ids, _IGNORED))
