"""Merge beside `datasets` and DuckDB, over the same shards in the same run: time, processor time, peak memory.

python scripts/bench_merge.py [--rows 1000000] [--runs 1] [--keep FOLDER] [--beside "datasets, save_to_disk"]

Eight datasets of 25 shards each, about 300 ids and 1.2 KB of text a row. Every tool runs in a process of its own:

- tokenproof: merge, from reading shards to the proof of the written train set (Parquet, zstd; ids joined, masks made);
- datasets: load_dataset of the columns that a train set has, concatenate, shuffle, save_to_disk (Arrow, uncompressed);
  and the same saved with to_parquet, which is the kind of file that the other two write;
- duckdb: COPY (SELECT … ORDER BY sha256(seed || row_key)) TO Parquet, zstd, with as much memory as ours is allowed.

None of the rivals leaves out quarantined rows, makes masks, looks for duplicates or proves what it wrote.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.merge.merging import make  # noqa: E402

COLUMNS = [
    *("row_key", "sample_id", "turn", "sample_index", "source", "provider", "model", "mode", "ids_source"),
    *("prompt_ids_source", "finish_reason", "prompt_tokens", "completion_tokens", "request_id", "created", "contract"),
    *("contract_sha256", "messages", "tools", "reasoning", "content", "tool_calls", "prompt_ids", "output_ids"),
]

_TIMED = """
import json, os, resource, sys, time
os.environ["HF_HUB_OFFLINE"] = "1"
from pathlib import Path
root, out, columns = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split(",")
folders = sorted((root / "datasets").iterdir())
wall, cpu = time.perf_counter(), time.process_time()
{body}
print(json.dumps({{
    "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu,
    "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "rows": rows,
}}))
"""

_LOAD = """
import datasets
datasets.disable_progress_bars()
parts = [
    datasets.load_dataset(
        "parquet", data_files=sorted(map(str, folder.glob("shards/*.parquet"))), columns=columns, split="train",
        cache_dir=str(out / "cache"),
    )
    for folder in folders
]
whole = datasets.concatenate_datasets(parts).shuffle(seed=1)
"""

RIVALS = {
    "datasets, save_to_disk": _LOAD + 'whole.save_to_disk(str(out / "saved"))\nrows = len(whole)',
    "datasets, to_parquet": _LOAD + 'whole.to_parquet(str(out / "saved.parquet"))\nrows = len(whole)',
    "duckdb": """
import duckdb
connection = duckdb.connect(str(out / "scratch.db"))
connection.execute(f"SET memory_limit = '1500MB'; SET temp_directory = '{out / 'spill'}'")
chosen, files = ", ".join(columns), [str(p) for folder in folders for p in sorted(folder.glob("shards/*.parquet"))]
connection.execute(
    f"COPY (SELECT {chosen} FROM read_parquet({files}) ORDER BY sha256('1' || row_key)) "
    f"TO '{out / 'saved.parquet'}' (FORMAT parquet, COMPRESSION zstd)"
)
rows = connection.execute(f"SELECT count(*) FROM '{out / 'saved.parquet'}'").fetchone()[0]
""",
}


def main() -> None:
    """Make the rows, run everything, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="make the rows here, or use those that are here")
    parser.add_argument("--beside", nargs="*", choices=[*RIVALS], default=[*RIVALS], help="only these of the rivals")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = options.keep or Path(folder) / "rows"
        if not (root / "datasets").is_dir():
            # In a process of its own: its memory is not ours.
            subprocess.run([sys.executable, __file__, "--rows", str(options.rows), "--make", str(root)], check=True)
        runs: dict[str, list[dict[str, float]]] = {}
        for _ in range(options.runs):
            for name in ("tokenproof", *options.beside):
                out = Path(folder) / "out"
                out.mkdir()
                runs.setdefault(name, []).append(run(name, root, out))
                shutil.rmtree(out)
    report(runs)


def run(name: str, root: Path, out: Path) -> dict[str, float]:
    """One tool in a process of its own; what it printed last."""
    command = [sys.executable, "-m", "tests.merge.merging", str(root), str(out / "train")]
    if name in RIVALS:
        command = [sys.executable, "-c", _TIMED.format(body=RIVALS[name]), str(root), str(out), ",".join(COLUMNS)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def report(runs: dict[str, list[dict[str, float]]]) -> None:
    """Medians, and how often ours fits into each."""
    middle = {
        name: {key: statistics.median(run[key] for run in found) for key in ("wall_s", "cpu_s", "rss_mb", "rows")}
        for name, found in runs.items()
    }
    ours = middle["tokenproof"]
    print(f"{ours['rows']:,.0f} rows; medians of {len(runs['tokenproof'])}")
    print(f"{'':24}{'wall s':>9}{'cpu s':>9}{'peak MB':>9}{'x wall':>8}{'x cpu':>8}")
    for name, found in middle.items():
        ratios = f"{found['wall_s'] / ours['wall_s']:8.1f}{found['cpu_s'] / ours['cpu_s']:8.1f}"
        print(f"{name:24}{found['wall_s']:9.1f}{found['cpu_s']:9.1f}{found['rss_mb']:9.0f}{ratios}")


if __name__ == "__main__":
    if "--make" in sys.argv:
        make(Path(sys.argv[sys.argv.index("--make") + 1]), int(sys.argv[sys.argv.index("--rows") + 1]))
    else:
        main()
