"""Write the column tables of ARCHITECTURE.md anew from the schemas."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.test_architecture import table_of

PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"


def main() -> None:
    """Replace what stands between `<!-- NAME -->` and `<!-- end -->`."""
    text = PAGE.read_text(encoding="utf-8")
    for name in re.findall(r"<!-- ([A-Z_]+) -->", text):
        table = "\n".join(table_of(name))
        text = re.sub(
            rf"<!-- {name} -->\n.*?<!-- end -->", f"<!-- {name} -->\n{table}\n<!-- end -->", text, flags=re.DOTALL
        )
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
