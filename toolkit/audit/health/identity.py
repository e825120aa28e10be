"""Hashes of answers and prompts: equal texts have equal hashes, on every machine and in every version."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SEPARATOR = pa.scalar(":", pa.large_string())


def answer_hashes(reasoning: pa.Array, content: pa.Array, tool_calls: pa.Array) -> pa.Array:
    """64 bits of each row's whole answer (int64); null where there is no text at all. "" is as good as absent."""
    some = pc.greater(_length(reasoning), 0), pc.greater(_length(content), 0), pc.is_valid(tool_calls)
    return _hashes((reasoning, content, tool_calls), pc.or_(pc.or_(*some[:2]), some[2]))


def prompt_hashes(messages: pa.Array, tools: pa.Array) -> pa.Array:
    """64 bits of each row's messages and tools as they are written (int64); null where the messages are not known."""
    return _hashes((messages, tools), pc.is_valid(messages))


def _hashes(columns: tuple[pa.Array, ...], valid: pa.Array) -> pa.Array:
    """One step of Python a row, which is little beside hashing its bytes."""
    # Lengths stand before the texts, so that no two rows are joined into the same bytes.
    lengths = [_length(column).cast(pa.large_string()) for column in columns]
    texts = [pc.fill_null(column.cast(pa.large_string()), "") for column in columns]
    joined = pc.binary_join_element_wise(*lengths, *texts, _SEPARATOR)
    _, offsets, data = joined.buffers()
    edges = np.frombuffer(offsets, dtype=np.int64)[joined.offset : joined.offset + len(joined) + 1].tolist()
    view = memoryview(data) if data is not None else memoryview(b"")
    digests = b"".join(hashlib.blake2b(view[begin:end], digest_size=8).digest() for begin, end in pairwise(edges))
    hashes: npt.NDArray[np.int64] = np.frombuffer(digests, dtype="<i8").astype(np.int64)
    return pa.array(hashes, mask=~np.asarray(valid, dtype=bool))


def _length(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0)
