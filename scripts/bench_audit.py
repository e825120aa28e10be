"""Time and memory of an audit, beside what people write instead, on the same rows in the same run.

python scripts/bench_audit.py [--rows 200000] [--ids 500] [--runs 3] [--keep FOLDER]

Every phase runs in a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import pstats
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.accounting import accounting
from toolkit.audit.gather import check_shards, measure_shard
from toolkit.audit.measure import measure
from toolkit.audit.run import audit
from toolkit.audit.suite import read_suite, shipped_suite
from toolkit.columns import SHARD_SCHEMA
from toolkit.config import read_settings
from toolkit.contract import Contract, read_contract
from toolkit.phrases import SHIPPED, Phrases
from toolkit.simulate.phrases import CONTENT, REASONING
from toolkit.store.shards import read_live, read_shard, seal_rows
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary, load_vocabulary

_ROWS_A_SHARD = 20_000
_RIVAL_ROWS = 4_000
_PROFILED_ROWS = 4_096
PHASES = ("structure and re-encoding", "with text health", "whole audit", "rivals", "profile")


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


def write_dataset(dataset: Dataset, rows: int, ids: int, contract: Contract, vocabulary: Vocabulary) -> None:
    """Shards of `_ROWS_A_SHARD` rows; the texts of the first stand in all of them, under other names."""
    dataset.folder.mkdir(parents=True, exist_ok=True)
    first = list(make_rows(min(rows, _ROWS_A_SHARD), ids, contract, vocabulary))
    for number in range(0, rows, _ROWS_A_SHARD):
        named = (
            row | {"sample_id": f"s{number + i}", "row_key": hashlib.sha256(b"%d" % (number + i)).hexdigest()}
            for i, row in enumerate(first[: rows - number])
        )
        seal_rows(dataset, named, contract=contract.name)


# --- phases --------------------------------------------------------------------------------------


class Phase:
    """What one process measures."""

    def __init__(self, folder: Path, runs: int):
        self.contract = read_contract("kimi-k2.5")
        self.vocabulary = load_vocabulary(self.contract)
        self.vocabulary.make_engines()
        self.dataset = Workspace(folder).dataset_named("BENCH")
        self.runs = runs

    def run(self, name: str) -> dict[str, Any]:
        """Figures of one phase, and its own peak of memory."""
        phases: dict[str, Callable[[], dict[str, Any]]] = {
            PHASES[0]: lambda: self.kernel(None),
            PHASES[1]: lambda: self.kernel(SHIPPED),
            PHASES[2]: self.whole,
            PHASES[3]: self.rivals,
            PHASES[4]: self.profile,
        }
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        figures = phases[name]()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {**figures, "peak_mb": round(peak), "peak_before_mb": round(before)}

    def kernel(self, phrases: Phrases | None) -> dict[str, Any]:
        """Reading the shards and measuring them, nothing else."""
        shards = read_live(self.dataset).shards
        walls, cpus, ids = [], [], 0
        for _ in range(self.runs):
            started, cpu, ids = time.perf_counter(), time.process_time(), 0
            for shard in shards:
                facts = measure_shard(self.dataset, shard, self.contract, self.vocabulary, phrases=phrases)
                ids += pa.compute.sum(facts["n_ids"]).as_py()
            walls.append(time.perf_counter() - started)
            cpus.append(time.process_time() - cpu)
        wall, cpu = statistics.median(walls), statistics.median(cpus)
        return {
            "ids": ids,
            "seconds": round(wall, 2),
            "million_ids_per_s": round(ids / wall / 1e6, 1),
            "million_ids_per_processor_s": round(ids / cpu / 1e6, 1),
            "processors_busy": round(cpu / wall, 2),
        }

    def whole(self) -> dict[str, Any]:
        """An audit with the shipped suite, cold and with kept facts."""
        settings = read_settings(Workspace(self.dataset.folder.parents[1])).dataset("BENCH")
        suite = shipped_suite(self.contract.name)
        seconds = []
        for path in self.dataset.facts.glob("*.parquet"):
            path.unlink()
        for _ in range(2):
            started = time.perf_counter()
            verdict = audit(
                self.dataset, self.contract, lambda: self.vocabulary, [(read_suite(suite), suite)],
                accounting(self.dataset, self.contract, settings),
            )  # fmt: skip
            seconds.append(time.perf_counter() - started)
        assert verdict.ids
        return {"rows": verdict.rows, "cold_s": round(seconds[0], 1), "again_s": round(seconds[1], 1),
                "million_ids_per_s_cold": round(verdict.ids / seconds[0] / 1e6, 1)}  # fmt: skip

    def rivals(self) -> dict[str, Any]:
        """The usual loops, on some thousand rows: tiktoken row by row, and JSON lines with checks of single ids."""
        end, terminal = self.vocabulary.special["</think>"], self.vocabulary.special["<|im_end|>"]
        path = self.dataset.folder / read_live(self.dataset).shards[0].path
        rows = pq.read_table(path, columns=["reasoning", "content", "output_ids"]).slice(0, _RIVAL_ROWS).to_pylist()
        ids = sum(len(row["output_ids"]) for row in rows)
        lines = [json.dumps(row) for row in rows]
        referee = self.vocabulary.referee
        started = time.perf_counter()
        for row in rows:
            encoded = [*referee.encode(row["reasoning"]), end, *referee.encode(row["content"]), terminal]
            assert encoded == row["output_ids"]
        loop = time.perf_counter() - started
        texts = [row[part] for row in rows for part in ("reasoning", "content")]
        started = time.perf_counter()
        referee.encode_batch(texts)
        batch = time.perf_counter() - started
        started = time.perf_counter()
        for line in lines:
            output = json.loads(line)["output_ids"]
            assert output[-1] == terminal
            assert output.count(end) == 1
            assert all(0 <= i < self.contract.vocab_size for i in output)
        plain = time.perf_counter() - started
        return {
            "rows": len(rows),
            "tiktoken_loop_million_ids_per_s": round(ids / loop / 1e6, 2),
            "tiktoken_batch_million_ids_per_s": round(ids / batch / 1e6, 2),
            "json_lines_without_reencoding_million_ids_per_s": round(ids / plain / 1e6, 2),
        }

    def profile(self) -> dict[str, Any]:
        """Milliseconds of each part of the kernel for a million ids, on one thread."""
        shard = read_live(self.dataset).shards[0]
        rows = read_shard(self.dataset, shard).slice(0, _PROFILED_ROWS)
        ids = len(rows["output_ids"].combine_chunks().flatten())
        profiled = cProfile.Profile()
        profiled.runcall(measure, rows, self.contract, self.vocabulary, shard_sha256=shard.sha256)
        parts: dict[str, float] = {}
        for (file, _, name), (_, _, _, cumulative, callers) in pstats.Stats(profiled).stats.items():  # type: ignore[attr-defined]
            direct = sum(times[3] for (_, _, caller), times in callers.items() if caller == "_measure_slice")
            if direct and "toolkit" in file:
                parts[name] = direct
            if name in ("expected_ids", "encode_batch_flat", "equal_rows", "find_repetition", "count_characters"):
                parts[f"  {name}"] = cumulative
        ordered = sorted(parts.items(), key=lambda part: -part[1])
        return {"ids": ids, "ms_per_million_ids": {name: round(s * 1e9 / ids, 1) for name, s in ordered}}


def main() -> None:
    """Make the rows, run each phase in a process of its own, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--ids", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        json.dump(Phase(options.keep, options.runs).run(options.phase), sys.stdout)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        dataset = Workspace(folder).dataset_named("BENCH")
        contract = read_contract("kimi-k2.5")
        if not read_live(dataset).shards:
            write_dataset(dataset, options.rows, options.ids, contract, load_vocabulary(contract))
        _, faults = check_shards(dataset, read_live(dataset).shards)
        assert not faults, faults
        for phase in PHASES:
            command = [sys.executable, __file__, "--phase", phase, "--keep", str(folder), "--runs", str(options.runs)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{phase}: {done.stderr[-2000:]}")
            print(json.dumps({phase: json.loads(done.stdout)}, indent=2), flush=True)


if __name__ == "__main__":
    main()
