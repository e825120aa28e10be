"""Shards of made-up answers for the benches of the audit, written in a process of their own.

python scripts/bench_rows.py FOLDER --ids 100000000

Answers are stretches of reasoning, prose, code, Han text, maths, JSON and tables (`bench_texts.Writer` says of what
each is made), 2,000 ids in the mean and very unequal in length, by two providers that count differently and one engine.
Texts are made and encoded once, as `_PARTS` pieces of reasoning and as many of content; every row joins another pair of
them, so no two answers are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))

from bench_texts import Writer

from toolkit.columns import SHARD_SCHEMA
from toolkit.contract import Contract, read_contract
from toolkit.records import LiveShard
from toolkit.store.arrays import ids_array, list_array
from toolkit.store.files import sha256_of, write_whole
from toolkit.store.shard_writer import ROWS_PER_BATCH, write_parquet
from toolkit.store.shards import LiveShards, read_live, write_live
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary, load_vocabulary

NAME = "BENCH"
CONTRACT = "kimi-k2.5"
ROWS_A_SHARD = 8_192
MEAN_IDS = 2_000
_PARTS = 3_000
_SPREAD = 0.7
"""Of the logarithm of lengths."""
_CHARACTERS_PER_ID = 2.75
"""With the spread of lengths, this gives `MEAN_IDS`."""
_SHORTEST, _LONGEST = 120, 24_000
"""Characters of one part."""

_ANSWERS = (
    # source, provider, ids_source, ids that the count leaves out
    ("openrouter", "Chutes", "rebuilt", 0),
    ("openrouter", "Inceptron", "rebuilt", 1),
    ("sglang", None, "engine", 0),
)

Ids32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of an answer."""

    text: str
    ids: Ids32


class Rows:
    """Rows by number: the same ones for the same number, and no two alike."""

    def __init__(self, contract: Contract, vocabulary: Vocabulary, ids: int = MEAN_IDS):
        self.contract = contract
        self.end = np.array([contract.id_of("</think>")], np.int32)
        self.terminal = np.array([contract.id_of("<|im_end|>")], np.int32)
        writer = Writer(11, vocabulary)
        draw = random.Random(12)
        self.reasoning = [self._part(writer, draw, vocabulary, ids / 2) for _ in range(_PARTS)]
        self.content = [self._part(writer, draw, vocabulary, ids / 2) for _ in range(_PARTS)]
        self.asked = [writer.prose(200) for _ in range(_PARTS)]
        asked = f"<|im_user|>user<|im_middle|>{self.asked[0]}<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
        self.prompt_ids = np.array(vocabulary.encode_rendered(asked), np.int32)

    @staticmethod
    def _part(writer: Writer, draw: random.Random, vocabulary: Vocabulary, ids: float) -> Part:
        characters = draw.lognormvariate(0, _SPREAD) * ids * _CHARACTERS_PER_ID
        text = writer.answer(int(min(max(characters, _SHORTEST), _LONGEST)))
        return Part(text, np.array(vocabulary.encode_ordinary(text), np.int32))

    def batch(self, first: int, last: int) -> pa.RecordBatch:
        """Rows `first` to `last`, the latter left out."""
        numbers = range(first, last)
        thoughts = [self.reasoning[n % _PARTS] for n in numbers]
        answers = [self.content[(n + n // _PARTS) % _PARTS] for n in numbers]
        pieces = [(t.ids, self.end, a.ids, self.terminal) for t, a in zip(thoughts, answers, strict=True)]
        sizes = [sum(map(len, row)) for row in pieces]
        kinds = [_ANSWERS[n * 7919 % 10 % 3] for n in numbers]
        names = [f"s{n}" for n in numbers]
        same = dict.fromkeys(SHARD_SCHEMA.names)
        same |= {
            "turn": 0, "sample_index": 0, "probe": False, "origin": "generate", "model": "moonshotai/kimi-k2.5-0127",
            "mode": "thinking", "contract": self.contract.name, "contract_sha256": self.contract.sha256,
            "finish_reason": "stop", "native_finish_reason": "stop", "prompt_tokens": len(self.prompt_ids),
            "prompt_ids_source": "rendered", "rebuild_status": "complete", "streamed": False, "latency_s": 8.5,
            "cost_usd": 0.0031,
        }  # fmt: skip
        own = {
            "row_key": [hashlib.sha256(name.encode()).hexdigest() for name in names],
            "sample_id": names,
            "source": [kind[0] for kind in kinds],
            "provider": [kind[1] for kind in kinds],
            "messages": [json.dumps([{"role": "user", "content": f"{n}: {self.asked[n % _PARTS]}"}]) for n in numbers],
            "payload": [json.dumps({"reasoning": t.text, "content": a.text}, ensure_ascii=False)
                        for t, a in zip(thoughts, answers, strict=True)],
            "reasoning": [part.text for part in thoughts],
            "content": [part.text for part in answers],
            "completion_tokens": [size - kind[3] for size, kind in zip(sizes, kinds, strict=True)],
            "request_id": [f"gen-{n}" for n in numbers],
            "created": [1_780_000_000 + n for n in numbers],
            "ids_source": [kind[2] for kind in kinds],
            "notes": [[]] * len(names),
        }  # fmt: skip
        ids = {
            "output_ids": _lists([np.concatenate(row) for row in pieces]),
            "prompt_ids": _lists([self.prompt_ids] * len(names)),
        }
        columns = [
            ids.get(f.name) if f.name in ids else pa.array(own.get(f.name, [same[f.name]] * len(names)), f.type)
            for f in SHARD_SCHEMA
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SHARD_SCHEMA)

    def shard(self, first: int, rows: int) -> Iterator[pa.RecordBatch]:
        """One shard of so many rows, a multiple of `ROWS_PER_BATCH`."""
        for at in range(first, first + rows, ROWS_PER_BATCH):
            yield self.batch(at, at + ROWS_PER_BATCH)


def _lists(rows: list[Ids32]) -> pa.Array:
    return list_array([len(row) for row in rows], ids_array(np.concatenate(rows)), pa.list_(pa.int32()))


def add_shards(dataset: Dataset, rows: Rows, ids: int) -> None:
    """Shards until the dataset holds about so many ids more; the last one may be a small one."""
    live = read_live(dataset)
    made = list(live.shards)
    added = 0
    while added < ids:
        first, path = ROWS_A_SHARD * len(made), dataset.shards / f"part-{len(made):05d}.parquet"
        counted: list[int] = []
        batches_left = -(-(ids - added) // (MEAN_IDS * ROWS_PER_BATCH))
        size = min(ROWS_A_SHARD, batches_left * ROWS_PER_BATCH)

        def write(temporary: Path, first: int = first, size: int = size, counted: list[int] = counted) -> None:
            def batches() -> Iterator[pa.RecordBatch]:
                for batch in rows.shard(first, size):
                    counted.append(len(batch.column("output_ids").flatten()))
                    yield batch

            write_parquet(temporary, batches())

        write_whole(path, write)
        made.append(LiveShard(path=f"shards/{path.name}", sha256=sha256_of(path), rows=size))
        added += sum(counted)
    write_live(dataset, LiveShards(CONTRACT, tuple(made)))
    print(json.dumps({"shards": len(made), "ids_added": added}))


def main() -> None:
    """Add shards to a folder's dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ids", type=int, default=100_000_000)
    options = parser.parse_args()
    contract = read_contract(CONTRACT)
    dataset = Workspace(options.folder).dataset_named(NAME)
    add_shards(dataset, Rows(contract, load_vocabulary(contract)), options.ids)


if __name__ == "__main__":
    main()
