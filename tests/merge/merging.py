"""Merges generated datasets in a process of its own and tells what it took: `python -m tests.merge.merging ROOT OUT`.

Peak memory is that of this process alone; whoever starts it made the rows elsewhere.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests.rows import audit
from toolkit.contract import read_contract
from toolkit.manifest import Manifest
from toolkit.mix import MergeSettings
from toolkit.store.shards import LiveShards, read_live, write_live
from toolkit.store.workspace import Workspace

from .gates import merge, opened
from .generated import Strips, add_generated

DATASETS = 8


def make(root: Path, rows: int, *, shards: int = 25) -> None:
    """B1 … B8 with `rows` rows in all, audited."""
    workspace, kimi, strips = Workspace(root), read_contract("kimi-k2.5"), Strips()
    for number in range(DATASETS):
        dataset = workspace.dataset_named(f"B{number + 1}")
        add_generated(dataset, rows=rows // DATASETS, shards=shards, strips=strips, seed=number)
        audit(workspace, dataset, kimi)


def merge_all(root: Path, output: Path, *, backwards: bool = False) -> Manifest:
    """Merge B1 … B8; `backwards`: datasets named and shards listed in the opposite order."""
    workspace, kimi = Workspace(root), read_contract("kimi-k2.5")
    datasets = [workspace.dataset_named(name) for name in workspace.dataset_names()]
    if backwards:
        datasets.reverse()
        for dataset in datasets:
            live = read_live(dataset)
            write_live(dataset, LiveShards(live.contract, live.shards[::-1]))
    return merge([opened(workspace, d, kimi) for d in datasets], output, mix=MergeSettings(seed=1), replace=True)


def die_at(step: int) -> None:
    """Let this process end as by kill -9 before the `step`th file or folder gets its name."""
    steps = count(1)

    def wrapped(real: Callable[..., Path]) -> Callable[..., Path]:
        def named(path: Path, target: Path) -> Path:
            if next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(path, target)

        return named

    Path.replace = wrapped(Path.replace)  # type: ignore[method-assign]
    Path.rename = wrapped(Path.rename)  # type: ignore[method-assign]


def peak_mb() -> float:
    """The most memory that this program held. `ru_maxrss` would begin with that of whoever started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    """Merge, and print one line of JSON."""
    for word in sys.argv:
        if word.startswith("--die-at="):
            die_at(int(word.partition("=")[2]))
    root, output = Path(sys.argv[1]), Path(sys.argv[2])
    wall, cpu = time.perf_counter(), time.process_time()
    manifest = merge_all(root, output, backwards="--backwards" in sys.argv)
    found = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "rss_mb": peak_mb(),
        "rows": manifest.totals.written,
        "ids": manifest.totals.ids,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
