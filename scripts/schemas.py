"""Write the published JSON Schemas anew from the types."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from toolkit.schemas import NAMES, make_schema, schema_file


def main() -> None:
    """Write toolkit/schemas/*.schema.json."""
    for name in NAMES:
        schema_file(name).write_text(make_schema(name), encoding="utf-8")


if __name__ == "__main__":
    main()
