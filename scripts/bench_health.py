"""Speed of the text-health facts on made-up answers: code, prose, Chinese and tables, under the real vocabulary.

POLARS_MAX_THREADS=1 python scripts/bench_health.py [--rows 16384] [--runs 5]
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.blocks import block_of_lists
from toolkit.audit.health.facts import HEALTH_READS, health_facts
from toolkit.contract import read_contract
from toolkit.phrases import SHIPPED
from toolkit.vocabulary import Vocabulary, load_vocabulary

ROWS_PER_SLICE = 4_096

_CHINESE = (
    "首先我们需要明确问题的含义", "然后再逐步推导出结论", "这个函数的时间复杂度是线性的", "如果输入为空则直接返回",
    "下面给出一个简单的例子", "请注意边界条件", "根据题意可以列出方程", "因此答案是", "在实际项目中更常见的做法是",
    "需要先检查参数是否合法", "这一点很容易被忽略", "换句话说", "综上所述", "北京和上海的天气差别很大",
)  # fmt: skip


def code_files() -> list[str]:
    """Sources of the standard library: code as people write it."""
    folder = Path(sysconfig.get_path("stdlib"))
    return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.py"))[:120]]


def words_of(files: list[str]) -> list[str]:
    """Words of the docstrings, as often as they stand there."""
    found: list[str] = []
    for source in files:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                found += (ast.get_docstring(node) or "").split()
    return found


class Writer:
    """Writes answers of a wanted length in characters, the same ones for the same seed."""

    def __init__(self, seed: int):
        self.draw = random.Random(seed)
        self.files = code_files()
        self.words = words_of(self.files)
        self.kinds: tuple[Callable[[int], str], ...] = (self.code, self.prose, self.prose, self.chinese, self.table)

    def code(self, size: int) -> str:
        """A stretch of a source file."""
        source = self.draw.choice(self.files)
        start = self.draw.randrange(max(len(source) - size, 1))
        return f"```python\n{source[start : start + size]}\n```\n"

    def prose(self, size: int) -> str:
        """Sentences in paragraphs."""
        parts: list[str] = []
        for _ in range(size // 80 + 1):
            words = [self.draw.choice(self.words) for _ in range(self.draw.randrange(6, 20))]
            parts.append(" ".join(words).capitalize() + self.draw.choice((". ", ".\n\n", "; ")))
        return "".join(parts)[:size]

    def chinese(self, size: int) -> str:
        """Chinese sentences; a character counts for two or three of the others."""
        parts = [self.draw.choice(_CHINESE) + self.draw.choice("，。；") for _ in range(size // 26 + 1)]
        return "".join(parts)

    def table(self, size: int) -> str:
        """A Markdown table of numbers and names."""
        lines = ["| name | value | share |", "| --- | --- | --- |"]
        while sum(map(len, lines)) < size:
            lines.append(
                f"| {self.draw.choice(self.words)[:20]} | {self.draw.randrange(10**6)} | {self.draw.random():.4f} |"
            )
        return "\n".join(lines) + "\n"

    def answer(self, size: int) -> str:
        """Stretches of several kinds."""
        parts: list[str] = []
        while (left := size - sum(map(len, parts))) > 0:
            parts.append(self.draw.choice(self.kinds)(min(left, self.draw.randrange(300, 2_000)) + 1))
        return "".join(parts)


def rows_of(count: int, vocabulary: Vocabulary, seed: int = 7) -> pa.Table:
    """Rows in the columns that text health reads."""
    writer = Writer(seed)
    sizes = [writer.draw.randrange(1_800, 7_600) for _ in range(count)]
    reasoning = [writer.answer(size // 2) for size in sizes]
    content = [writer.answer(size // 2) for size in sizes]
    end, terminal = (vocabulary.special[name] for name in ("</think>", "<|im_end|>"))
    ids = [[*vocabulary.encode_ordinary(r), end, *vocabulary.encode_ordinary(c), terminal]
           for r, c in zip(reasoning, content, strict=True)]  # fmt: skip
    messages = [json.dumps([{"role": "user", "content": writer.prose(200)}]) for _ in range(count)]
    return pa.table(
        {
            "reasoning": pa.array(reasoning, pa.string()),
            "content": pa.array(content, pa.string()),
            "tool_calls": pa.nulls(count, pa.string()),
            "messages": pa.array(messages, pa.string()),
            "tools": pa.nulls(count, pa.string()),
            "notes": pa.array([[]] * count, pa.list_(pa.string())),
            "output_ids": pa.array(ids, pa.list_(pa.int32())),
        }
    )


def measure_once(rows: pa.Table) -> float:
    """Ids a second of one slice, by the clock of the processor: what else runs on the machine does not count."""
    columns = {name: rows[name].combine_chunks() for name in HEALTH_READS}
    lists = rows["output_ids"].combine_chunks()
    ids = block_of_lists(lists)
    started = time.process_time()
    health_facts(columns, ids, np.ones(len(rows), dtype=bool), SHIPPED)
    return len(ids.ids) / (time.process_time() - started)


def measure_slices(rows: pa.Table, threads: int) -> float:
    """Ids a second of all slices, by the wall clock."""
    slices = [rows.slice(first, ROWS_PER_SLICE) for first in range(0, len(rows), ROWS_PER_SLICE)]
    count = sum(pc.sum(pc.list_value_length(rows["output_ids"])).as_py() for rows in slices)
    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(measure_once, slices))
    return count / (time.perf_counter() - started)


def main() -> None:
    """Measure slices of rows one by one and by two threads; print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=16_384)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    vocabulary = load_vocabulary(read_contract("kimi-k2.5"))
    part = rows_of(ROWS_PER_SLICE, vocabulary)
    rows = pa.concat_tables([part] * max(options.rows // ROWS_PER_SLICE, 1))
    ids = pc.sum(pc.list_value_length(part["output_ids"])).as_py()
    figures: dict[str, Any] = {
        "ids_a_row": round(ids / len(part)),
        "million_ids_per_cpu_second": _median(measure_once(part) for _ in range(options.runs)),
        "million_ids_per_s_wall_one_thread": _median(measure_slices(rows, 1) for _ in range(options.runs)),
        "million_ids_per_s_wall_two_threads": _median(measure_slices(rows, 2) for _ in range(options.runs)),
    }
    json.dump(figures, sys.stdout, indent=2)
    print()


def _median(values: Iterator[float]) -> float:
    return round(statistics.median(values) / 1e6, 2)


if __name__ == "__main__":
    main()
