"""The limiter against every kind of limit, on a simulated clock: goodput and refused share once settled, as a table.

Rates of 10, 40, 200 and 1,000 requests a second; token buckets and fixed windows; every form of Retry-After; answers
after 0.05 s, 0.05 to 0.5 s and 4 to 6 s. A line is one limit and one form of Retry-After: the worst of the latencies.
Nothing is timed: the figures are the same on every machine. With `--live`, whole runs against the simulated server by
the real clock come first; of these, a busy machine spoils the figures. Ends with 1 where a line misses 90 % or 5 %.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.generate import storm
from tests.generate.played import LATENCIES_S, LIMITS, WISHES, Storm
from toolkit.contract import read_contract
from toolkit.store.workspace import Workspace
from toolkit.vocabulary import load_vocabulary

RATES = (10, 40, 200, 1000)
Measured = tuple[float, float]
"""Goodput as a share of what is allowed, share of requests refused."""


def main() -> int:
    """Play and print; the exit code."""
    parser = argparse.ArgumentParser(description="The limiter against every kind of limit.")
    parser.add_argument("--rates", type=float, nargs="*", default=RATES, help="requests a second")
    parser.add_argument("--live", action="store_true", help="whole runs by the real clock, too: eleven minutes")
    options = parser.parse_args()
    live = run_live() if options.live else []
    played = [one for per_s in options.rates for one in play_rate(per_s)]
    for name, found in (("live", live), ("played", played)):
        if found:
            missed = sum(map(misses, found))
            least, most = min(one[0] for one in found), max(one[1] for one in found)
            print(
                f"\n{name}: {len(found)} settings, {missed} missed; least goodput {least:.1%}, most refused {most:.1%}"
            )
    return 1 if any(map(misses, live + played)) else 0


def misses(measured: Measured) -> bool:
    """Whether too little of what is allowed was used, or too much refused."""
    goodput, refused = measured
    return goodput < 0.9 or refused > 0.05


def run_live() -> list[Measured]:
    """Whole runs over the loopback, a line each."""
    os.environ["OPENROUTER_API_KEY"] = "sk-or-v1-not-a-real-key"
    kimi = read_contract("kimi-k2.5")
    vocabulary = load_vocabulary(kimi)
    found = []
    for name, limit in storm.LIMITS.items():
        with tempfile.TemporaryDirectory() as folder:
            dataset = Workspace(Path(folder)).dataset_named("live")
            goodput, refused = storm.weather(dataset, kimi, vocabulary, limit)
        print(f"{name}: goodput {goodput:.1%}, refused {refused:.1%}", flush=True)
        found.append((goodput, refused))
    return found


def play_rate(per_s: float) -> list[Measured]:
    """Every limit of so many requests a second, a table line each."""
    print(f"\n| {per_s:,.0f} a second | " + " | ".join(WISHES) + " |")
    print("|---|" + "---|" * len(WISHES))
    found = []
    for limit in LIMITS:
        cells = []
        for wish in WISHES:
            measured = [Storm(per_s, limit, wish, latency).measure() for latency in LATENCIES_S]
            cells.append(f"{min(one[0] for one in measured):.1%}, {max(one[1] for one in measured):.1%}")
            found += measured
        print(f"| {limit} | " + " | ".join(cells) + " |", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
