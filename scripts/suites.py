"""Write the shipped suites anew from that of Kimi-K2.5 and each contract. Run it after that suite was changed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.contracts.suites import path_of, suite_of
from toolkit.contract import read_contract, shipped_contracts


def main() -> None:
    """Write one suite for each shipped contract."""
    for name in shipped_contracts():
        path_of(name).write_text(suite_of(read_contract(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
