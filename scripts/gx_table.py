"""Write the tables of docs/great-expectations.md anew from the code; a test holds the page against them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from toolkit.audit.expectation_types import DATASET_TYPES, NOT_OF_FACTS, NOTES, ROW_TYPES, UNSUPPORTED

PAGE = Path(__file__).parents[1] / "docs" / "great-expectations.md"


def expectations_table() -> str:
    """Each expectation: whether the engine answers it, and what to know of it."""
    rows = ["| expectation | on polars | over facts | note |", "|---|---|---|---|"]
    for name in sorted({*ROW_TYPES, *DATASET_TYPES, *NOT_OF_FACTS, *UNSUPPORTED}):
        answered = "no" if name in UNSUPPORTED else "yes"
        scope = "rows" if name in ROW_TYPES else "dataset" if name in DATASET_TYPES else "no"
        note = UNSUPPORTED.get(name) or "; ".join(filter(None, (NOTES.get(name), NOT_OF_FACTS.get(name))))
        rows.append(f"| `{name}` | {answered} | {scope} | {note} |")
    return "\n".join(rows)


def differences_table() -> str:
    """Where pandas answers otherwise, and why."""
    from tests.audit.gx.differences import DIFFERENCES

    rows = ["| expectation | difference |", "|---|---|"]
    rows += [f"| `expect_{name}` | {difference.why} |" for name, difference in DIFFERENCES.items()]
    return "\n".join(rows)


def filled(page: str) -> str:
    """The page with both tables as the code has them."""
    for name, table in (("EXPECTATIONS", expectations_table()), ("DIFFERENCES", differences_table())):
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = marked.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
