"""One file of a train set."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.columns import TRAIN_SCHEMA
from toolkit.merge.names import NAMED
from toolkit.store.files import write_whole

TEXTS = ["messages", "tools", "reasoning", "content", "tool_calls"]
"""Columns of long texts."""

_ROWS_PER_GROUP = 4_096
_IDS_LEAF = "input_ids.list.element"

_REPEATED = [*NAMED, "tools"]
"""Columns with few values: the only ones that gain from a dictionary."""

_WITH_STATISTICS = [
    name
    for name, kind in zip(TRAIN_SCHEMA.names, TRAIN_SCHEMA.types, strict=True)
    if name not in TEXTS and not pa.types.is_list(kind)
]
"""Columns whose least and greatest value are kept for each row group: of long texts and of lists nobody asks them."""


def write_train_file(path: Path, train: pa.Table) -> None:
    """Write rows of `TRAIN_SCHEMA`, in one chunk; the same rows give the same bytes.

    Raises:
        StoreError: it cannot be written.
    """

    def write(temporary: Path) -> None:
        pq.write_table(
            train,
            temporary,
            compression="zstd",
            compression_level=1,
            use_dictionary=_REPEATED,
            # The bytes of ids apart: a fifth smaller and half as dear as ids one after the other.
            column_encoding={_IDS_LEAF: "BYTE_STREAM_SPLIT"},
            row_group_size=_ROWS_PER_GROUP,
            write_statistics=_WITH_STATISTICS,
            write_page_checksum=True,
        )

    write_whole(path, write)
