"""Datasets of any size, made in seconds: rows whose ids and texts are stretches of two long strips."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.columns import SHARD_SCHEMA
from toolkit.records import LiveShard
from toolkit.store.files import sha256_of
from toolkit.store.shard_writer import write_parquet
from toolkit.store.shards import LiveShards, write_live
from toolkit.store.workspace import Dataset

Ints = npt.NDArray[np.int64]

_IDS, _CHARACTERS = 1 << 20, 1 << 21
_WORDS = 20_000
TERMINAL = 163586
END_THINK = 163607
MEAN_PROMPT_IDS = 60
MEAN_OUTPUT_IDS = 240


class Strips:
    """What rows are cut from: ids that are as uneven as those of a text, and words that are as uneven."""

    def __init__(self, seed: int = 0):
        draw = np.random.default_rng(seed)
        self.ids = np.minimum(draw.zipf(1.3, _IDS), 163_583).astype(np.int32)
        letters = draw.integers(97, 123, (_WORDS, 6), np.uint8)
        letters[:, 5] = 32
        chosen = letters[np.minimum(draw.zipf(1.3, _CHARACTERS // 6), _WORDS - 1)]
        self.text = chosen.reshape(-1).astype(np.uint8)


def add_generated(dataset: Dataset, *, rows: int, shards: int, strips: Strips, seed: int, sources: int = 2) -> None:
    """Give a dataset `rows` rows of about 300 ids each, in `shards` shards."""
    draw = np.random.default_rng(seed)
    dataset.shards.mkdir(parents=True)
    live = []
    for number, count in enumerate(np.diff(np.linspace(0, rows, shards + 1).astype(int)).tolist()):
        path = dataset.shards / f"part-{number:05d}.parquet"
        first = sum(shard.rows for shard in live)
        write_parquet(path, _batches(dataset.name, first, count, strips, draw, sources))
        live.append(LiveShard(path=f"shards/{path.name}", sha256=sha256_of(path), rows=count))
    write_live(dataset, LiveShards("kimi-k2.5", tuple(live)))


def _batches(
    name: str, first: int, count: int, strips: Strips, draw: np.random.Generator, sources: int
) -> Iterator[pa.RecordBatch]:
    for start in range(first, first + count, 4_096):
        yield _batch(name, start, min(4_096, first + count - start), strips, draw, sources)


def _batch(
    name: str, first: int, count: int, strips: Strips, draw: np.random.Generator, sources: int
) -> pa.RecordBatch:
    prompt_len = draw.integers(8, 2 * MEAN_PROMPT_IDS - 8, count)
    output_len = draw.integers(8, 2 * MEAN_OUTPUT_IDS - 8, count)
    names = [f"s{number}" for number in range(first, first + count)]
    outputs = _stretches(strips.ids, output_len, draw)
    ends = np.cumsum(output_len)
    outputs[ends - 1] = TERMINAL
    outputs[ends - output_len // 2 - 1] = END_THINK
    made = {
        "row_key": pa.array([hashlib.sha256(f"{name}/{one}".encode()).hexdigest() for one in names]),
        "sample_id": pa.array(names),
        "output_ids": _lists(output_len, outputs),
        "prompt_ids": _lists(prompt_len, _stretches(strips.ids, prompt_len, draw)),
        "source": pa.array(np.array([f"engine-{n}" for n in range(sources)])[draw.integers(0, sources, count)]),
        "messages": _messages(prompt_len * 4, strips, draw),
        "reasoning": _texts(output_len * 2, strips, draw),
        "content": _texts(output_len * 2, strips, draw),
    }
    same = {
        "turn": 0, "sample_index": 0, "probe": False, "origin": "generate", "model": "kimi-k2.5", "mode": "thinking",
        "contract": "kimi-k2.5", "contract_sha256": "c0" * 32, "payload": "{}", "finish_reason": "stop",
        "ids_source": "engine", "prompt_ids_source": "engine", "rebuild_status": "complete", "streamed": False,
        "created": 1_770_000_000,
    }  # fmt: skip
    columns = []
    for field in SHARD_SCHEMA:
        if field.name in made:
            columns.append(made[field.name].cast(field.type))
        elif field.name == "notes":
            columns.append(pa.array([[]] * count, field.type))
        else:
            columns.append(pa.repeat(pa.scalar(same.get(field.name), field.type), count))
    return pa.RecordBatch.from_arrays(columns, schema=SHARD_SCHEMA)


def _stretches(strip: npt.NDArray[np.generic], lengths: Ints, draw: np.random.Generator) -> npt.NDArray[np.generic]:
    begins = draw.integers(0, len(strip) - int(lengths.max()), len(lengths))
    ends = np.cumsum(lengths)
    return strip[np.repeat(begins - (ends - lengths), lengths) + np.arange(ends[-1])]


def _lists(lengths: Ints, flat: npt.NDArray[np.generic]) -> pa.ListArray:
    return pa.ListArray.from_arrays(_offsets(lengths), pa.array(flat))


def _texts(lengths: Ints, strips: Strips, draw: np.random.Generator) -> pa.StringArray:
    flat = np.ascontiguousarray(_stretches(strips.text, lengths, draw))
    return pa.StringArray.from_buffers(len(lengths), _offsets(lengths).buffers()[1], pa.py_buffer(flat))


def _messages(lengths: Ints, strips: Strips, draw: np.random.Generator) -> pa.StringArray:
    around = (b'[{"content":"', b'","role":"user"}]')
    texts = _texts(lengths, strips, draw).cast(pa.binary())
    parts = (pa.scalar(around[0]), texts, pa.scalar(around[1]), pa.scalar(b""))
    return pc.binary_join_element_wise(*parts).cast(pa.string())


def _offsets(lengths: Ints) -> pa.Int32Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
