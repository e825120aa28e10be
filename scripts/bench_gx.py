"""Thirty expectations over made-up facts: Great Expectations on polars, beside plain polars, pandas and pointblank.

    python scripts/bench_gx.py [--rows 1000000 10000000] [--folder FOLDER]

Each way is a process of its own; CPU seconds are of all its threads, memory is its largest. `plain` is one polars
`select` that counts the same, written by hand. What importing Great Expectations costs is measured in the process that
needs it (`import_cpu_s`). The facts lie as an audit leaves them: a file for each shard, of 16,384 rows at most.
pandas and pointblank are asked at the first size only.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

SOURCES, PROVIDERS = ("sglang", "openrouter", "vllm"), ("Chutes", "Inceptron", "Avian")
ROWS_PER_FILE = 16_384

NUMBERS = ("n_ids", "last_id", "n_terminal", "completion_tokens")
ROWWISE: list[tuple[str, dict[str, Any]]] = [
    *(("column_values_to_not_be_null", {"column": name}) for name in ("row_key", "source", *NUMBERS)),
    ("column_values_to_be_in_set", {"column": "source", "value_set": [*SOURCES]}),
    ("column_values_to_be_in_set", {"column": "mode", "value_set": ["thinking", "instant"]}),
    ("column_values_to_be_in_set", {"column": "provider", "value_set": [*PROVIDERS]}),
    ("column_values_to_be_in_set", {"column": "last_id", "value_set": [163586], "mostly": 0.99}),
    ("column_values_to_be_in_set", {"column": "truncated", "value_set": [False], "mostly": 0.9}),
    ("column_values_to_be_between", {"column": "n_ids", "min_value": 1, "max_value": 4000}),
    ("column_values_to_be_between", {"column": "completion_tokens", "min_value": 1, "max_value": 4000}),
    ("column_values_to_be_between", {"column": "n_terminal", "min_value": 0, "max_value": 1}),
    ("column_values_to_be_between", {"column": "cost", "min_value": 0, "max_value": 0.0099, "mostly": 0.9}),
    ("column_values_to_be_between", {"column": "latency", "min_value": 0}),
    ("column_value_lengths_to_equal", {"column": "row_key", "value": 64}),
    ("column_values_to_match_regex", {"column": "row_key", "regex": "^[0-9a-f]{64}$"}),
    ("column_values_to_not_match_regex", {"column": "provider", "regex": "[0-9]"}),
    ("column_pair_values_to_be_equal", {"column_A": "n_ids", "column_B": "completion_tokens", "mostly": 0.99}),
    ("column_pair_values_a_to_be_greater_than_b", {"column_A": "n_ids", "column_B": "n_terminal"}),
    ("column_values_to_be_unique", {"column": "row_key"}),
]
DATASETWISE: list[tuple[str, dict[str, Any]]] = [
    ("table_row_count_to_be_between", {"min_value": 1}),
    ("column_mean_to_be_between", {"column": "n_ids", "min_value": 1}),
    ("column_max_to_be_between", {"column": "n_ids", "max_value": 4000}),
    ("column_min_to_be_between", {"column": "n_ids", "min_value": 1}),
    ("column_sum_to_be_between", {"column": "cost", "min_value": 0}),
    ("column_stdev_to_be_between", {"column": "latency", "min_value": 0}),
    ("column_distinct_values_to_be_in_set", {"column": "source", "value_set": [*SOURCES]}),
    ("column_distinct_values_to_contain_set", {"column": "mode", "value_set": ["thinking", "instant"]}),
]
EXPECTATIONS = [*ROWWISE, *DATASETWISE]


def write(folder: Path, rows: int) -> None:
    """Facts in Parquet files of `ROWS_PER_FILE` rows; a few of each kind of fault."""
    random = np.random.default_rng(7)
    for part, base in enumerate(range(0, rows, ROWS_PER_FILE)):
        n = min(ROWS_PER_FILE, rows - base)
        lengths = random.integers(20, 3900, n).astype(np.int32)
        index = np.arange(base, base + n)
        index[random.random(n) < 12 / rows] = 3
        pl.DataFrame(
            {
                "row_key": pl.Series(index).cast(pl.String).str.zfill(64),
                "source": pl.Series(SOURCES).gather(random.integers(0, 3, n)),
                "provider": pl.Series([*PROVIDERS, None]).gather(random.integers(0, 4, n)),
                "mode": pl.Series(["thinking", "instant"]).gather(random.integers(0, 2, n)),
                "n_ids": lengths,
                "completion_tokens": lengths + (random.random(n) < 0.001).astype(np.int32),
                "last_id": np.where(random.random(n) < 0.005, 7, 163586).astype(np.int32),
                "n_terminal": np.ones(n, dtype=np.int32),
                "truncated": random.random(n) < 0.05,
                "cost": random.random(n) * 0.01,
                "latency": random.random(n) * 20,
            }
        ).write_parquet(folder / f"part-{part:05d}.parquet")


def gx_suite() -> Any:
    """The expectations as a suite of Great Expectations."""
    import great_expectations as gx  # noqa: TID251
    from great_expectations.expectations.expectation_configuration import (  # noqa: TID251
        ExpectationConfiguration,
    )

    configured = [ExpectationConfiguration(type=f"expect_{name}", kwargs=kwargs) for name, kwargs in EXPECTATIONS]
    return gx.ExpectationSuite(name="facts", expectations=configured)


def on_polars(folder: Path) -> dict[str, Any]:
    """Great Expectations on our engine."""
    began = time.process_time()
    import great_expectations as gx  # noqa: TID251

    import toolkit.audit.gx  # noqa: F401

    imported = round(time.process_time() - began, 2)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_polars("facts")
    asset = source.add_parquet_asset("facts", path=str(folder / "*.parquet"))
    results = asset.add_batch_definition_whole("all").get_batch().validate(gx_suite(), result_format="SUMMARY").results
    assert not any(one.exception_info.get("raised_exception") for one in results)
    failed, passes = sum(not one.success for one in results), source.get_execution_engine().passes
    return {"failed": failed, "import_cpu_s": imported, "passes": passes}


def on_pandas(folder: Path) -> dict[str, Any]:
    """Great Expectations on its own pandas engine."""
    import great_expectations as gx  # noqa: TID251

    frame = pl.read_parquet(folder / "*.parquet").to_pandas()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("facts").add_dataframe_asset("facts")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    return {"failed": sum(not one.success for one in batch.validate(gx_suite(), result_format="SUMMARY").results)}


def plain(folder: Path) -> dict[str, Any]:
    """The same counts in one polars query, by hand; duplicates by the number of distinct values."""
    frame = pl.scan_parquet(folder / "*.parquet")
    column = pl.col
    counts = [
        *(column(name).null_count() for name in ("row_key", "source", *NUMBERS)),
        (~column("source").is_in(SOURCES)).sum(),
        (~column("mode").is_in(["thinking", "instant"])).sum(),
        (~column("provider").is_in(PROVIDERS)).sum(),
        (column("last_id") != 163586).sum(),
        column("truncated").sum(),
        *((~column(name).is_between(1, 4000)).sum() for name in ("n_ids", "completion_tokens")),
        (~column("n_terminal").is_between(0, 1)).sum(),
        (~column("cost").is_between(0, 0.0099)).sum(),
        (column("latency") < 0).sum(),
        (column("row_key").str.len_chars() != 64).sum(),
        (~column("row_key").str.contains("^[0-9a-f]{64}$")).sum(),
        column("provider").str.contains("[0-9]").sum(),
        (column("n_ids") != column("completion_tokens")).sum(),
        (column("n_ids") <= column("n_terminal")).sum(),
        pl.len() - column("row_key").n_unique(),
        pl.len(),
        column("n_ids").mean(),
        column("n_ids").max(),
        column("n_ids").min(),
        column("cost").sum(),
        column("latency").std(),
        column("source").n_unique(),
        column("mode").n_unique(),
    ]
    row = frame.select(expr.alias(str(number)) for number, expr in enumerate(counts)).collect(engine="streaming").row(0)
    return {"failed": len(row)}


def on_pointblank(folder: Path) -> dict[str, Any]:
    """pointblank on a polars frame; what it has no step for is left out."""
    import pointblank as pb

    steps = pb.Validate(data=pl.read_parquet(folder / "*.parquet"))
    asked = 0
    for name, kwargs in ROWWISE:
        column = kwargs.get("column")
        asked += 1
        if name == "column_values_to_not_be_null":
            steps = steps.col_vals_not_null(columns=column)
        elif name == "column_values_to_be_in_set":
            steps = steps.col_vals_in_set(columns=column, set=kwargs["value_set"])
        elif name == "column_values_to_be_between":
            high = kwargs.get("max_value", float("inf"))
            steps = steps.col_vals_between(columns=column, left=kwargs["min_value"], right=high, na_pass=True)
        elif name == "column_values_to_match_regex":
            steps = steps.col_vals_regex(columns=column, pattern=kwargs["regex"])
        elif name == "column_values_to_be_unique":
            steps = steps.rows_distinct(columns_subset=column)
        else:
            asked -= 1
    interrogated = steps.interrogate()
    failed = sum(int(n or 0) > 0 for n in interrogated.n_failed().values())
    return {"failed": failed, "asked": asked}


WAYS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "plain": plain,
    "polars": on_polars,
    "pointblank": on_pointblank,
    "pandas": on_pandas,
}


def measure(way: str, folder: Path) -> dict[str, Any]:
    """Run one way in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:100]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run_one(way: str, folder: Path) -> None:
    """Measure this process."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = WAYS[way](folder)
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "wall_s": round(time.perf_counter() - began, 2),
        "mb": used.ru_maxrss // 1024,
    }
    print(json.dumps(figures | told))


def compare(rows: int, ways: list[str]) -> int:
    """Write facts, ask them in each way, and print a line for each.

    Returns:
        The largest memory of our engine's process, in MB.
    """
    with tempfile.TemporaryDirectory(prefix="bench_gx_") as name:
        folder = Path(name)
        write(folder, rows)
        print(f"{rows:,} rows, {len(EXPECTATIONS)} expectations")
        figures = {way: measure(way, folder) for way in ways}
    for way, found in figures.items():
        told = {key: value for key, value in found.items() if key not in ("cpu_s", "wall_s", "mb", "passes")}
        print(f"  {way:<11}", *(f"{found.get(key, '–')!s:>8} {key}" for key in ("cpu_s", "wall_s", "mb")), told or "")
    ours, by_hand = figures["polars"], figures["plain"]["cpu_s"]
    print("  passes:", "; ".join(ours["passes"]))
    imported = ours["import_cpu_s"]
    whole, alone = ours["cpu_s"] / (by_hand + imported), (ours["cpu_s"] - imported) / by_hand
    print(f"  polars is {whole:.2f} × (plain plus the import); without the import {alone:.2f} × plain")
    return int(ours["mb"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=list(WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        run_one(options.way, options.folder)
        return
    sizes = [compare(rows, list(WAYS) if at == 0 else ["plain", "polars"]) for at, rows in enumerate(options.rows)]
    print(f"memory of the last size: {sizes[-1] / sizes[0]:.2f} × that of the first")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
