"""Time and memory of an audit, beside what people write instead, on the same rows in the same run.

python scripts/bench_audit.py [--ids 100000000] [--runs 3] [--keep FOLDER]
python scripts/bench_audit.py --growth 1 10 100 [--keep FOLDER]

Rows are written by a process of their own (`bench_rows.py`), and every figure is that of another one and of those that
it starts, so its peak of memory is its own. Prints one JSON object for each phase; with `--growth` (millions of ids) a
table line for each size.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))

from bench_processes import Family
from bench_rows import CONTRACT, NAME

from toolkit.audit.gather import gather
from toolkit.audit.on_processes import unit_processes
from toolkit.audit.run import audit
from toolkit.audit.spread import LocalExecutor
from toolkit.audit.suite import read_suite, shipped_suite
from toolkit.audit.workers import cores
from toolkit.contract import read_contract
from toolkit.records import Accounting, Verdict
from toolkit.store.shards import read_live
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary, load_vocabulary

FAMILY = Family()
_RIVAL_ROWS = 2_048


class Phase:
    """What one process measures."""

    def __init__(self, folder: Path, runs: int, workers: int | None):
        self.contract = read_contract(CONTRACT)
        self.dataset = Workspace(folder).dataset_named(NAME)
        self.runs, self.workers = runs, workers

    def run(self, name: str) -> dict[str, Any]:
        """Figures of one phase, and its own peak of memory."""
        return {**PHASES[name](self), "peak_mb": FAMILY.peak_mb()}

    def vocabulary(self) -> Vocabulary:
        """The vocabulary, with its engines."""
        made = load_vocabulary(self.contract)
        made.make_engines()
        return made

    def kernel(self, *, text_health: bool, on_threads: bool = False) -> dict[str, Any]:
        """Hashes, reading, the kernel and writing of facts; vocabularies are there, the processes that have them too,
        and nothing is concluded. A first run does not count."""
        shards = read_live(self.dataset).shards
        runs = []
        with nullcontext(None) if on_threads else unit_processes(self.contract, self.workers or cores()) as processes:
            executor = LocalExecutor(cache(self.vocabulary), self.workers, processes=processes)
            for _ in range(self.runs + 1):
                with tempfile.TemporaryDirectory(dir=self.dataset.folder) as scratch, _timed() as took:
                    found = gather(
                        self.dataset, shards, self.contract, self.vocabulary, seed="", scratch=Path(scratch),
                        believed={}, text_health=text_health, executor=executor,
                    )  # fmt: skip
                    ids = int(found.facts.scan().select("n_ids").collect()["n_ids"].sum())
                assert (found.unreadable, found.measured_shards) == ((), len(shards))
                runs.append(took)
        return _speed(ids, runs[1:])

    def cold(self) -> dict[str, Any]:
        """One whole audit that finds no facts, text health off."""
        live = read_live(self.dataset)
        self.forget()
        verdict, took = self.audit(shipped_suite(CONTRACT))
        assert verdict.measured_shards == len(live.shards)
        return {"rows": verdict.rows, "shards": len(live.shards), **_speed(verdict.ids, [took])}

    def kept(self, suite: str) -> dict[str, Any]:
        """A whole audit that finds the facts of all shards: of the unchanged dataset, or with another suite."""
        return self.one_more(suite, measured=0)

    def added(self) -> dict[str, Any]:
        """A whole audit that finds the facts of all shards but the last."""
        last = read_live(self.dataset).shards[-1]
        for path in self.dataset.facts.glob(f"{last.sha256[:32]}-*"):
            path.unlink()
        return self.one_more(CONTRACT, measured=1)

    def one_more(self, suite: str, *, measured: int) -> dict[str, Any]:
        """One audit by a shipped suite, which must measure so many shards whole."""
        verdict, took = self.audit(shipped_suite(suite))
        assert verdict.measured_shards == measured, verdict.measured_shards
        return {"measured_shards": measured, **_speed(verdict.ids, [took])}

    def audit(self, suite: Path) -> tuple[Verdict, dict[str, float]]:
        """A whole audit, the vocabulary loaded anew."""
        rows = read_live(self.dataset).rows
        account = Accounting(asked=None, rows=rows, answered=None, failed=0, unanswered=None, unsealed=0)
        with _timed() as took:
            verdict = audit(
                self.dataset, self.contract, self.vocabulary, [(read_suite(suite), suite)], account,
                text_health=False, workers=self.workers,
            )  # fmt: skip
        return verdict, took

    def forget(self) -> None:
        """Remove kept facts."""
        for path in self.dataset.facts.glob("*"):
            path.unlink()

    def rivals(self) -> dict[str, Any]:
        """The usual loops, on some rows: tiktoken row by row and in batches, JSON lines with checks of single ids. Ours
        begins with files, as only the loops over shards and over lines do."""
        vocabulary = self.vocabulary()
        end, terminal = vocabulary.special["</think>"], vocabulary.special["<|im_end|>"]
        path = self.dataset.folder / read_live(self.dataset).shards[0].path

        def from_shard() -> Iterator[dict[str, Any]]:
            read = 0
            for batch in pq.ParquetFile(path).iter_batches(1_024, columns=["reasoning", "content", "output_ids"]):
                yield from batch.slice(0, _RIVAL_ROWS - read).to_pylist()
                read += batch.num_rows
                if read >= _RIVAL_ROWS:
                    return

        rows = list(from_shard())
        ids = sum(len(row["output_ids"]) for row in rows)
        lines = [json.dumps(row) for row in rows]
        texts = [row[part] for row in rows for part in ("reasoning", "content")]
        referee = vocabulary.referee

        def compare(read: Iterable[Mapping[str, Any]]) -> None:
            for row in read:
                encoded = [*referee.encode(row["reasoning"]), end, *referee.encode(row["content"]), terminal]
                assert encoded == row["output_ids"]

        def json_lines() -> None:
            for line in lines:
                output = json.loads(line)["output_ids"]
                assert output[-1] == terminal
                assert output.count(end) == 1
                assert all(0 <= i < self.contract.vocab_size for i in output)

        rivals: dict[str, Callable[[], object]] = {
            "tiktoken, row by row, rows in memory": lambda: compare(rows),
            "tiktoken, row by row, from the shards": lambda: compare(from_shard()),
            "tiktoken, row by row, from JSON lines": lambda: compare(map(json.loads, lines)),
            "tiktoken, in batches on two threads": lambda: referee.encode_batch(texts),
            "JSON lines in Python, no re-encoding": json_lines,
        }
        figures: dict[str, Any] = {"rows": len(rows)}
        for name, work in rivals.items():
            runs = []
            for _ in range(self.runs):
                with _timed() as took:
                    work()
                runs.append(took)
            figures[name] = _speed(ids, runs)
        return figures


COLD = "whole audit, cold"
PHASES: dict[str, Callable[[Phase], dict[str, Any]]] = {
    "kernel, structure and re-encoding": lambda phase: phase.kernel(text_health=False),
    "kernel, the same on threads": lambda phase: phase.kernel(text_health=False, on_threads=True),
    "kernel, with text health": lambda phase: phase.kernel(text_health=True),
    COLD: Phase.cold,
    "whole audit, unchanged": lambda phase: phase.kept(CONTRACT),
    "whole audit, another suite": lambda phase: phase.kept("providers"),
    "whole audit, one shard added": Phase.added,
    "rivals": Phase.rivals,
}


@contextmanager
def _timed() -> Iterator[dict[str, float]]:
    """Seconds by the clock (`wall`) and of processors (`cpu`), filled in at the end of the block."""
    took: dict[str, float] = {}
    wall, cpu = time.perf_counter(), FAMILY.cpu_s()
    yield took
    took |= {"wall": time.perf_counter() - wall, "cpu": FAMILY.cpu_s() - cpu}


def _speed(ids: int, runs: list[dict[str, float]]) -> dict[str, Any]:
    """Medians. On a machine that others use, ids for a second of one processor say more than those by the clock."""
    wall, cpu = (statistics.median(run[kind] for run in runs) for kind in ("wall", "cpu"))
    return {
        "ids": ids,
        "seconds": round(wall, 2),
        "million_ids_per_s": round(ids / wall / 1e6, 2),
        "million_ids_per_processor_s": round(ids / cpu / 1e6, 2),
        "processors_busy": round(cpu / wall, 2),
    }


def _write_rows(folder: Path, ids: int) -> None:
    script = Path(__file__).with_name("bench_rows.py")
    subprocess.run([sys.executable, str(script), str(folder), "--ids", str(ids)], check=True, capture_output=True)


def _cold(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The median of cold audits, each in a process of its own, and the largest of their peaks: an audit after another
    one finds memory that the first has taken."""
    found = [_measured(COLD, folder, options) for _ in range(options.runs)]
    middle = sorted(found, key=lambda figures: figures["seconds"])[len(found) // 2]
    return {**middle, "peak_mb": max(figures["peak_mb"] for figures in found)}


def _measured(phase: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A phase in a process of its own."""
    command = [sys.executable, __file__, "--phase", phase, "--keep", str(folder), "--runs", str(options.runs)]
    command += ["--workers", str(options.workers)] if options.workers else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{phase}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _growth(folder: Path, sizes: list[int], options: argparse.Namespace) -> None:
    """One line of a Markdown table for each size, over rows that are added to one dataset."""
    print("| ids | rows | seconds | processor seconds | M ids/s | M ids/s of one processor | peak MB |")
    print("|---|---|---|---|---|---|---|", flush=True)
    held = 0
    for size in sorted(sizes):
        _write_rows(folder, size * 1_000_000 - held)
        found = _measured(COLD, folder, options)
        held = found["ids"]
        cpu = found["seconds"] * found["processors_busy"]
        print(
            f"| {found['ids'] / 1e6:,.1f} M | {found['rows']:,} | {found['seconds']:.1f} | {cpu:.1f} "
            f"| {found['million_ids_per_s']:.1f} | {found['million_ids_per_processor_s']:.1f} | {found['peak_mb']:,} |",
            flush=True,
        )


def main() -> None:
    """Make the rows, run each phase in a process of its own, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=100_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--growth", type=int, nargs="*", help="millions of ids, a line of the table each")
    parser.add_argument("--keep", type=Path, help="folder for the rows; kept, and used again")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        json.dump(Phase(options.keep, options.runs, options.workers).run(options.phase), sys.stdout)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        if options.growth:
            _growth(folder, options.growth, options)
            return
        dataset: Dataset = Workspace(folder).dataset_named(NAME)
        if not read_live(dataset).shards:
            _write_rows(folder, options.ids)
        print(json.dumps({"processors": cores(), "load": os.getloadavg()[0]}), flush=True)
        for phase in PHASES:
            found = _cold(folder, options) if phase == COLD else _measured(phase, folder, options)
            print(json.dumps({phase: found}, indent=2), flush=True)


if __name__ == "__main__":
    main()
