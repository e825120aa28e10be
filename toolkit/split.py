"""Train or validation: all rows of a prompt stand on one side, whatever turn they answer.

The opening of a conversation is everything before its first answer. Its later turns have it too, and so have the same
prompts in other datasets, under whatever id.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import StoreError
from toolkit.records import Json, canonical_json

Bools = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

_decoder = msgspec.json.Decoder()


def openings_of(messages: pa.ChunkedArray, prompt_ids: pa.ListArray, where: str) -> Hashes:
    """The first 64 bits of the sha256 of each row's opening; of its prompt ids where the messages are not known.

    Args:
        messages: JSON lists of chat messages, or null.
        prompt_ids: Ids of the prompts, none of them null.
        where: Names the shard in errors.

    Raises:
        StoreError: messages are not a JSON list of objects.
    """
    texts = pc.dictionary_encode(messages).combine_chunks()
    of_text = np.fromiter((_of_text(text, where) for text in texts.dictionary.to_pylist()), np.uint64)
    known = np.asarray(pc.is_valid(texts).to_numpy(zero_copy_only=False))
    found = np.zeros(len(texts), np.uint64)
    found[known] = of_text[pc.fill_null(texts.indices, 0).to_numpy()[known]]
    for row in np.flatnonzero(~known).tolist():
        found[row] = _number(b"ids", prompt_ids[row].values.to_numpy().tobytes())
    return found


def _of_text(text: str, where: str) -> int:
    try:
        messages: Json = _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise StoreError(f"{where}: column messages: expected JSON: {error}") from None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise StoreError(f"{where}: column messages: expected a list of messages, found {text[:80]!r}")
    roles = [message.get("role") for message in messages]
    opening = messages[: roles.index("assistant")] if "assistant" in roles else messages
    return _number(b"messages", canonical_json(opening or messages))


def _number(kind: bytes, content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(kind + b"\0" + content).digest()[:8], "little")


def labels_of(index: pl.DataFrame) -> Hashes:
    """One number for all rows of a prompt: rows with the same opening, or the same sample of a dataset, have the same.

    Args:
        index: With `opening`, `dataset` and `sample_id`.
    """
    frame = index.select("opening", "dataset", "sample_id", label=pl.col("opening"))
    while True:
        spread = frame.with_columns(pl.col("label").min().over("dataset", "sample_id"))
        spread = spread.with_columns(pl.col("label").min().over("opening"))
        if spread["label"].equals(frame["label"]):
            return np.asarray(spread["label"].to_numpy(), np.uint64)
        frame = spread


def on_validation_side(labels: Hashes, percent: float) -> Bools:
    """Which prompts go to validation: those whose mixed label falls into the first `percent` of all numbers. It is
    independent of seed, limits and weights, so a prompt stays on its side when the mix is changed."""
    mixed = labels.copy()
    # Labels are the least of several hashes, and so not evenly spread: the finish of splitmix64 spreads them.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed < np.uint64(percent / 100 * 2**64), np.bool_)
