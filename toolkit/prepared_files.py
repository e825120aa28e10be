"""Prepared datasets that are no JSON lines: Parquet, Arrow, and the folder that `Dataset.save_to_disk` writes.

Their rows are handed on as JSON lines, so that everything behind has one form to read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.errors import ConfigError
from toolkit.store.files import open_regular
from toolkit.wire.json import dump_json
from toolkit.wire.prepared import MASKS

_ROWS_AT_ONCE = 256
_STATE = "state.json"
_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"

_READ = frozenset({
    "input_ids", *MASKS, "attention_mask", "id", "sample_id", "conversation_id", "data_id", "turn", "sample_index",
    "reasoning", "content", "tool_calls", "finish_reason", "native_finish_reason", "provider", "model", "mode",
    "source", "usage", "prompt_tokens", "completion_tokens", "reasoning_tokens",
})  # fmt: skip
"""Columns that a line of a prepared dataset may have; the others stay in their file."""


def files_of(path: Path) -> list[Path]:
    """The files of a dataset's folder in their order; of anything else itself.

    Raises:
        ConfigError: a folder that no `Dataset.save_to_disk` has written.
    """
    try:
        if not path.is_dir():
            return [path]
        if (path / "dataset_dict.json").is_file():
            splits = json.loads((path / "dataset_dict.json").read_bytes()).get("splits")
            raise ConfigError(f"{path}: expected one split of this dataset, name its folder: {str(splits)[:80]}")
        state = json.loads((path / _STATE).read_bytes())
        names = [file["filename"] for file in state["_data_files"]]
    except OSError as error:
        raise ConfigError(f"{path}: expected a dataset's folder with {_STATE}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{path / _STATE}: expected what Dataset.save_to_disk writes, found something else") from None
    if not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise ConfigError(f"{path / _STATE}: expected names of files beside it, found {str(names)[:80]}")
    return [path / name for name in names]


def is_table(path: Path) -> bool:
    """Whether a file is Parquet or Arrow.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        start = file.read(8)
    return start.startswith((_PARQUET, _ARROW_FILE, _ARROW_STREAM))


def table_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Rows of a Parquet or Arrow file as JSON lines, with their numbers from 1.

    Raises:
        ConfigError: it cannot be read, or has no ids and mask.
    """
    number = 0
    try:
        for batch in _batches(path):
            for row in batch.to_pylist():
                number += 1
                yield number, dump_json({name: value for name, value in row.items() if value is not None}).encode()
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as a table: {str(error)[:200]}") from None


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with open_regular(path) as file:
        start = file.read(8)
        file.seek(0)
        if start.startswith(_PARQUET):
            parquet = pq.ParquetFile(file)
            yield from parquet.iter_batches(_ROWS_AT_ONCE, columns=_columns(parquet.schema_arrow, path))
            return
        opened: Any = pa.ipc.open_file(file) if start.startswith(_ARROW_FILE) else pa.ipc.open_stream(file)
        columns = _columns(opened.schema, path)
        whole = (
            (opened.get_batch(n) for n in range(opened.num_record_batches)) if start.startswith(_ARROW_FILE) else opened
        )
        for batch in whole:
            chosen = batch.select(columns)
            for first in range(0, chosen.num_rows, _ROWS_AT_ONCE):
                yield chosen.slice(first, _ROWS_AT_ONCE)


def _columns(schema: pa.Schema, path: Path) -> list[str]:
    if "input_ids" not in schema.names or not set(MASKS) & set(schema.names):
        found = ", ".join(schema.names)[:200]
        raise ConfigError(f"{path}: expected columns input_ids and one of {', '.join(MASKS)}, found {found}")
    return [name for name in schema.names if name in _READ]
