"""Files that `torch.load` reads, written without torch.

The container, as `torch.save` has written it since PyTorch 1.6: a zip file whose entries are stored, not packed, below
one folder: `data.pkl` (protocol 2, each tensor a call of `torch._utils._rebuild_tensor_v2` on a storage by key and
offset), `data/KEY` (the bytes of each storage), `byteorder` and `version`. Only the opcodes, globals and types that
`torch.load(weights_only=True)` admits are written. Tensors that share a storage are how a million rows need one entry.
"""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

_FOLDER = "archive"
_BEGIN, _STOP = b"\x80\x02", b"."
_DATE = (1980, 1, 1, 0, 0, 0)
"""The same bytes whenever they are written."""

_STORAGES = {"int64": b"LongStorage", "bool": b"BoolStorage"}

Storage = npt.NDArray[np.int64] | npt.NDArray[np.bool_] | Path
"""Values, or a file of little-endian int64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor, rows before columns, within a storage.

    Attributes:
        storage: Key of the storage.
        kind: `int64` or `bool`.
        of: Elements of the whole storage.
        offset: Where in it the tensor begins, in elements.
    """

    storage: str
    kind: str
    of: int
    shape: tuple[int, ...]
    offset: int = 0


Value = None | str | int | Tensor | Sequence["Value"] | Mapping[str, "Value"] | Mapping[int, "Value"]


def write_torch(path: Path, value: Iterable[bytes], storages: Mapping[str, Storage]) -> None:
    """Write a file for `torch.load`.

    Args:
        path: The file; made anew.
        value: The value's opcodes (`opcodes`, `opcodes_of_list`).
        storages: Key → what tensors with this key lie in.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as file:
        with _entry(file, "data.pkl") as entry:
            entry.write(_BEGIN)
            entry.writelines(value)
            entry.write(_STOP)
        for name, content in (("byteorder", b"little"), ("version", b"3\n")):
            with _entry(file, name) as entry:
                entry.write(content)
        for key, storage in storages.items():
            with _entry(file, f"data/{key}") as entry:
                _copy(storage, entry)


def write_tensors(path: Path, **arrays: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> None:
    """Write a dict of one-dimensional tensors; an array called `_` is written by itself, without the dict."""
    storages = {str(number): array for number, array in enumerate(arrays.values())}
    tensors = {
        name: Tensor(storage=key, kind=array.dtype.name, of=len(array), shape=array.shape)
        for (key, array), name in zip(storages.items(), arrays, strict=True)
    }
    value: Value = tensors["_"] if list(tensors) == ["_"] else dict(tensors)
    write_torch(path, [opcodes(value)], storages)


def opcodes(value: Value) -> bytes:
    """The opcodes that put a value on the unpickler's stack."""
    if value is None:
        return b"N"
    if isinstance(value, str):
        text = value.encode()
        return b"X" + struct.pack("<I", len(text)) + text
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, Mapping):
        inner = b"".join(opcodes(key) + opcodes(item) for key, item in value.items())
        return b"}(" + inner + b"u"
    return b"".join(opcodes_of_list(value))


def opcodes_of_list(values: Iterable[Value]) -> Iterator[bytes]:
    """The opcodes of a list, item by item."""
    yield b"]("
    for value in values:
        yield opcodes(value)
    yield b"e"


def opcodes_of_counts(keys: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> bytes:
    """The opcodes of a dict of whole numbers, put together without a loop."""
    if len(counts) and max(int(keys.max()), int(counts.max())) >= 2**31:
        return opcodes(dict(zip(keys.tolist(), counts.tolist(), strict=True)))
    pairs = np.empty(len(keys), np.dtype([("j", "S1"), ("key", "<i4"), ("k", "S1"), ("count", "<i4")]))
    pairs["j"] = pairs["k"] = b"J"
    pairs["key"], pairs["count"] = keys, counts
    return b"}(" + pairs.tobytes() + b"u"


def _number(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    length = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([length]) + value.to_bytes(length, "little", signed=True)


def _tensor(tensor: Tensor) -> bytes:
    strides = [int(np.prod(tensor.shape[axis + 1 :], dtype=np.int64)) for axis in range(len(tensor.shape))]
    storage = (
        b"("
        + opcodes("storage")
        + b"ctorch\n" + _STORAGES[tensor.kind] + b"\n"
        + opcodes(tensor.storage)
        + opcodes("cpu")
        + _number(tensor.of)
        + b"tQ"
    )  # fmt: skip
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + _number(tensor.offset)
        + b"(" + b"".join(map(_number, tensor.shape)) + b"t"
        + b"(" + b"".join(map(_number, strides)) + b"t"
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )  # fmt: skip


def _entry(file: zipfile.ZipFile, name: str) -> BinaryIO:
    return file.open(zipfile.ZipInfo(f"{_FOLDER}/{name}", _DATE), "w", force_zip64=True)  # type: ignore[return-value]


def _copy(storage: Storage, entry: BinaryIO) -> None:
    if isinstance(storage, Path):
        with storage.open("rb") as source:
            shutil.copyfileobj(source, entry, 1 << 20)
        return
    little = storage.astype(storage.dtype.newbyteorder("<"), copy=False)
    entry.write(np.ascontiguousarray(little).tobytes())
