"""Python values as Arrow arrays, put together from their buffers.

`pa.array` and `pa.scalar` import pandas at their first call, which takes 60 MB and half a second: more than a run with
thousands of requests in flight has to spare for a library that it does not use.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Value = str | int | float | bool | Sequence[str] | None

Columns = Mapping[str, Sequence[Any]]
"""Rows as they become Arrow: the values of each column, equally many of all."""

_CODES = {pa.int32(): "i", pa.int64(): "q", pa.float64(): "d"}


def array_of(values: Sequence[Value], kind: pa.DataType) -> pa.Array:
    """`pa.array(values, kind)` for texts, truth values, numbers and lists of texts.

    Raises:
        TypeError: a value is not of `kind`, or that is none of them.
        OverflowError: a number does not fit, or all texts together are longer than 2³¹ − 1 bytes.
        UnicodeEncodeError: a text holds a lone surrogate.
    """
    if kind == pa.string():
        return _texts(values)
    if kind == pa.bool_():
        return _truth(values)
    if kind == pa.list_(pa.string()):
        lists = [[] if value is None else _list(value) for value in values]
        texts = _texts(list(chain.from_iterable(lists)))
        buffers = [_present(values), _buffer(offsets_of([len(one) for one in lists]))]
        return pa.Array.from_buffers(kind, len(values), buffers, children=[texts])
    if kind in _CODES:
        # Unlike NumPy's, these arrays take no number that they would have to round.
        numbers: list[Any] = [0 if value is None else value for value in values]
        return pa.Array.from_buffers(kind, len(values), [_present(values), pa.py_buffer(array(_CODES[kind], numbers))])
    raise TypeError(f"expected texts, truth values, numbers or lists of texts, found {kind}")


def encoded_array(texts: Sequence[bytes]) -> pa.StringArray:
    """Texts that are UTF-8 already."""
    return _string_array(None, [*map(len, texts)], b"".join(texts))


def ids_array(ids: bytes | npt.NDArray[np.int32]) -> pa.Int32Array:
    """Ids as they lie in memory, 4 bytes each."""
    buffer = pa.py_buffer(ids)
    return pa.Array.from_buffers(pa.int32(), buffer.size // 4, [None, buffer])


def list_array(lengths: Sequence[int | None], flat: pa.Array, kind: pa.DataType) -> pa.ListArray:
    """Lists that lie behind each other in `flat`; a length of None is a null."""
    offsets = offsets_of([length or 0 for length in lengths])
    return pa.Array.from_buffers(kind, len(lengths), [_present(lengths), _buffer(offsets)], children=[flat])


def offsets_of(lengths: Sequence[int]) -> npt.NDArray[np.int32]:
    """Where things of these lengths begin and end that lie behind each other, from 0.

    Raises:
        OverflowError: together they are longer than 2³¹ − 1.
    """
    ends = np.cumsum(np.array([0, *lengths], dtype=np.int64))
    if ends[-1] >= 2**31:
        raise OverflowError(f"expected at most {2**31 - 1:,} bytes or ids in a batch, found {ends[-1]:,}")
    return ends.astype(np.int32)


def _texts(values: Sequence[Value]) -> pa.StringArray:
    present = _present(values)
    texts: Sequence[Any] = values if present is None else ["" if value is None else value for value in values]
    if texts and isinstance(texts[0], str) and texts.count(texts[0]) == len(texts):
        # Most columns say the same of all rows.
        encoded = texts[0].encode()
        return _string_array(present, [len(encoded)] * len(texts), encoded * len(texts))
    try:
        # Of letters that are a byte each, nothing has to be made for every text.
        plain = all(map(str.isascii, texts))
    except TypeError:
        wrong = next(text for text in texts if not isinstance(text, str))
        raise TypeError(f"expected a text, found {wrong!r:.80}") from None
    if plain:
        return _string_array(present, [*map(len, texts)], "".join(texts).encode())
    every = [*map(str.encode, texts)]
    return _string_array(present, [*map(len, every)], b"".join(every))


def _string_array(present: pa.Buffer | None, lengths: Sequence[int], data: bytes) -> pa.StringArray:
    buffers = [present, _buffer(offsets_of(lengths)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)


def _list(value: Value) -> Sequence[str]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"expected a list of texts, found {value!r:.80}")
    return value


def _truth(values: Sequence[Value]) -> pa.BooleanArray:
    for value in values:
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"expected true or false, found {value!r:.80}")
    return pa.Array.from_buffers(pa.bool_(), len(values), [_present(values), _bits([bool(value) for value in values])])


def _present(values: Sequence[object]) -> pa.Buffer | None:
    """The bitmap of what is no null; none where nothing is."""
    return _bits([value is not None for value in values]) if None in values else None


def _bits(values: Sequence[bool]) -> pa.Buffer:
    return _buffer(np.packbits(np.array(values, dtype=np.bool_), bitorder="little"))


def _buffer(values: npt.NDArray[np.int32] | npt.NDArray[np.uint8]) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values))
