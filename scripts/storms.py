"""The limiter against every kind of limit, on a simulated clock: goodput and refused share once settled, as a table.

Rates of 10, 40, 200 and 1,000 requests a second; token buckets and fixed windows; every form of Retry-After; answers
after 0.05 s, 0.05 to 0.5 s and 4 to 6 s. A line is one limit and one form of Retry-After: the worst of the latencies.
Nothing is timed: the figures are the same on every machine. Ends with 1 where a line misses 90 % or 5 %.
"""

from __future__ import annotations

import argparse
import sys

from tests.generate.played import LATENCIES_S, LIMITS, WISHES, Storm

RATES = (10, 40, 200, 1000)


def main() -> int:
    """Play and print; the exit code."""
    parser = argparse.ArgumentParser(description="The limiter against every kind of limit.")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="requests a second")
    rates = parser.parse_args().rates
    missed = played = 0
    least, most = 1.0, 0.0
    for per_s in rates:
        print(f"\n| {per_s:,.0f} a second | " + " | ".join(WISHES) + " |")
        print("|---|" + "---|" * len(WISHES))
        for limit in LIMITS:
            cells = []
            for wish in WISHES:
                measured = [Storm(per_s, limit, wish, latency).measure() for latency in LATENCIES_S]
                goodput = min(one[0] for one in measured)
                refused = max(one[1] for one in measured)
                least, most = min(least, goodput), max(most, refused)
                played += len(measured)
                missed += sum(one[0] < 0.9 or one[1] > 0.05 for one in measured)
                cells.append(f"{goodput:.1%}, {refused:.1%}")
            print(f"| {limit} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n{played} settings, {missed} missed; least goodput {least:.1%}, most refused {most:.1%}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
