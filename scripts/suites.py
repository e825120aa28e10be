"""Write the shipped suites anew from that of Kimi-K2.5 and each contract, and list what is shipped, with its sha256.

Run it after a suite or a contract was changed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.contracts.suites import path_of, suite_of
from toolkit.audit.tally import SHIPPED_LIST
from toolkit.contract import SHIPPED as CONTRACTS
from toolkit.contract import read_contract, shipped_contracts

EXPECTATIONS = Path(__file__).parents[1] / "expectations"


def main() -> None:
    """Write one suite for each shipped contract, then the list."""
    for name in shipped_contracts():
        path_of(name).write_text(suite_of(read_contract(name)), encoding="utf-8")
    SHIPPED_LIST.write_text(json.dumps(shipped(), indent=2) + "\n", encoding="utf-8")


def shipped() -> dict[str, dict[str, str]]:
    """`suites` and `contracts`: name → sha256 of the file."""
    folders = {"suites": (EXPECTATIONS, "json"), "contracts": (CONTRACTS, "toml")}
    return {
        kind: {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob(f"*.{end}"))}
        for kind, (folder, end) in folders.items()
    }


if __name__ == "__main__":
    main()
