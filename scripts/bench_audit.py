"""Time and memory of an audit, beside the loop that people write, on the same rows in the same run.

python scripts/bench_audit.py [--rows 100000] [--ids 500] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from toolkit.accounting import accounting
from toolkit.audit.run import audit
from toolkit.audit.suite import read_suite, shipped_suite
from toolkit.config import read_settings
from toolkit.contract import Contract, read_contract
from toolkit.records import SHARD_SCHEMA
from toolkit.simulate.phrases import CONTENT, REASONING
from toolkit.store.shards import read_live, seal_rows
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary, load_vocabulary


def make_rows(count: int, ids: int, contract: Contract, vocabulary: Vocabulary) -> Iterator[dict[str, Any]]:
    """Rows of about `ids` ids from varied sentences, by a provider that counts every id."""
    draw = random.Random(7)
    pieces = [text for texts in (*REASONING.values(), *CONTENT.values()) for text in texts]
    encoded = {text: len(vocabulary.encode_ordinary(text)) for text in pieces}
    end, terminal = contract.id_of("</think>"), contract.id_of("<|im_end|>")

    def text_of(wanted: int) -> str:
        parts, size = [], 0
        while size < wanted:
            piece = draw.choice(pieces)
            parts.append(f"{piece} {draw.randrange(10**6)}")
            size += encoded[piece] + 3
        return " ".join(parts)

    prompt_ids = vocabulary.encode_rendered(
        "<|im_user|>user<|im_middle|>Go on.<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    )
    empty = dict.fromkeys(SHARD_SCHEMA.names)
    for i in range(count):
        reasoning, content = text_of(ids // 2), text_of(ids // 2)
        output = [*vocabulary.encode_ordinary(reasoning), end, *vocabulary.encode_ordinary(content), terminal]
        yield empty | {
            "row_key": hashlib.sha256(str(i).encode()).hexdigest(), "sample_id": f"s{i}", "turn": 0, "sample_index": 0,
            "probe": False, "source": "openrouter", "origin": "import", "provider": "Chutes",
            "model": "moonshotai/kimi-k2.5-0127", "mode": "thinking", "contract": contract.name,
            "contract_sha256": contract.sha256, "payload": "{}", "reasoning": reasoning, "content": content,
            "finish_reason": "stop", "native_finish_reason": "stop", "prompt_tokens": len(prompt_ids),
            "completion_tokens": len(output), "output_ids": output, "ids_source": "rebuilt", "prompt_ids": prompt_ids,
            "prompt_ids_source": "rendered", "rebuild_status": "complete", "notes": [],
        }  # fmt: skip


def usual_loop(dataset: Dataset, vocabulary: Vocabulary, rows: int) -> float:
    """Seconds a row of the usual loop: one row at a time, tiktoken, compare."""
    end, terminal = vocabulary.special["</think>"], vocabulary.special["<|im_end|>"]
    shard = dataset.folder / read_live(dataset).shards[0].path
    table = pq.read_table(shard, columns=["reasoning", "content", "output_ids"]).slice(0, rows).to_pylist()
    started = time.perf_counter()
    for row in table:
        ids = [*vocabulary.referee.encode(row["reasoning"]), end, *vocabulary.referee.encode(row["content"]), terminal]
        assert ids == row["output_ids"]
    return (time.perf_counter() - started) / len(table)


def main() -> None:
    """Make the rows, audit them cold and warm, print one line of figures each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--ids", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    contract = read_contract("kimi-k2.5")
    vocabulary = load_vocabulary(contract)
    suite = shipped_suite(contract.name)
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Workspace(options.keep or Path(scratch))
        dataset = workspace.dataset_named("BENCH")
        if not read_live(dataset).shards:
            dataset.folder.mkdir(parents=True, exist_ok=True)
            seal_rows(dataset, make_rows(options.rows, options.ids, contract, vocabulary), contract=contract.name)
        settings = read_settings(workspace).dataset("BENCH")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cold, warm = [], []
        verdict = None
        for _ in range(options.runs):
            for path in dataset.facts.glob("*.parquet"):
                path.unlink()
            for seconds in (cold, warm):
                started = time.perf_counter()
                verdict = audit(
                    dataset, contract, lambda: vocabulary, [(read_suite(suite), suite)],
                    accounting(dataset, contract, settings),
                )  # fmt: skip
                seconds.append(time.perf_counter() - started)
        assert verdict is not None
        assert verdict.passed, verdict.reasons
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        loop = usual_loop(dataset, vocabulary, min(options.rows, 3_000)) * verdict.rows
        figures = {
            "rows": verdict.rows,
            "ids": verdict.ids,
            "audit_cold_s": round(statistics.median(cold), 2),
            "audit_again_s": round(statistics.median(warm), 2),
            "million_ids_per_s_cold": round(verdict.ids / statistics.median(cold) / 1e6, 2),
            "tiktoken_loop_s": round(loop, 2),
            "times_the_loop": round(loop / statistics.median(cold), 1),
            "peak_mb": round(peak),
            "peak_before_audit_mb": round(before),
        }
        json.dump(figures, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
