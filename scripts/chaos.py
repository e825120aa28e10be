"""Every fault and kill -9 at random moments, over many seeds: our books against the server's, as a table.

Each seed asks 80 prompts of a server that fails in every way it can, kills the run up to five times, and restarts it
until nothing is left. The test itself decides (tests/generate/test_chaos.py); this prints what each seed came to, and
ends as the test does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEST = (
    "tests/generate/test_chaos.py"
    "::test_each_prompt_is_answered_once_and_everything_billed_is_kept_or_was_in_flight_at_a_kill"
)
COLUMNS = ("seed", "kills", "runs", "requests", "billed", "kept", "noted", "cut", "lost", "counted_lost", "unreadable")
MEANING = """
billed = kept + noted + cut + lost
kept          rows on the disk
noted         paid for, and a failure with what came and what it cost is on file (another model, an excluded provider)
cut           paid for, and the connection broke before enough had come for anybody to use
lost          paid for, and in flight when a run was killed
counted lost  counted by a run, and on no disk
unreadable    live shards that cannot be read
"""


def line_of(cells: tuple[object, ...]) -> str:
    """One line of the table."""
    return "  ".join(str(cell).rjust(max(8, len(name))) for name, cell in zip(COLUMNS, cells, strict=True))


def main() -> int:
    """Run the seeds; the exit code of the tests."""
    parser = argparse.ArgumentParser(description="Chaos over many seeds, as a table.")
    parser.add_argument("--seeds", type=int, default=50, help="the first so many seeds")
    seeds = parser.parse_args().seeds
    command = [sys.executable, "-m", "pytest", "-n", "0", "-s", "--no-header", "--tb=short", TEST]
    environment = {**os.environ, "TOKENPROOF_CHAOS_SEEDS": str(seeds), "PYTHONUNBUFFERED": "1"}
    totals = dict.fromkeys(COLUMNS, 0)
    done = 0
    print(line_of(tuple(name.replace("_", " ") for name in COLUMNS)), flush=True)
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:
            _, found, figures = line.partition("chaos {")
            if found:
                told = json.loads("{" + figures)
                print(line_of(tuple(told[name] for name in COLUMNS)), flush=True)
                done += 1
                for name in COLUMNS[1:]:
                    totals[name] += told[name]
            elif line.strip(".\n") and not line.lstrip(".").startswith("TOKENPROOF_CHAOS_SEED="):
                print(line, end="", flush=True)
    print(line_of((f"{done} of {seeds}", *(totals[name] for name in COLUMNS[1:]))))
    print(MEANING)
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
