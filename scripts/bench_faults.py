"""The fault bench: good rows with the real vocabulary, faults of every kind in them, and what the audit says.

PYTHONPATH=. python scripts/bench_faults.py [--rows 200000] [--seed N] [--write docs/faults.md]

Exits 1 where a fault that leaves a trace was not found for the right reason, or too many good rows were told off.
"""

from __future__ import annotations

import argparse
import resource
import secrets
import sys
import time
from pathlib import Path

from tests.faults.bench import Bench, page, summary
from toolkit.contract import read_contract
from toolkit.vocabulary import load_vocabulary

SEED = 20_260_117


def main() -> None:
    """Run the bench, print its table, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=SEED, help=f"default {SEED}; 0 draws a fresh one")
    parser.add_argument("--write", type=Path, help="write the table of the documentation to this file")
    options = parser.parse_args()
    started = time.perf_counter()

    def tell(words: str) -> None:
        print(f"{time.perf_counter() - started:7.1f} s  {words}", file=sys.stderr, flush=True)

    vocabulary = load_vocabulary(read_contract("kimi-k2.5"))
    report = Bench(options.rows, options.seed or secrets.randbits(32), vocabulary, tell).run()
    print(summary(report))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{time.perf_counter() - started:.0f} s, {peak:,.0f} MB at most")
    if options.write:
        options.write.write_text(page(report), encoding="utf-8")
    if report.failures:
        print("\n".join(report.failures), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
