"""JSON Schemas of the files that machines read, made from the types that write them.

The schema of each version is published with the tool, so that whoever reads `verdict.json` can hold it against
what it promises; a test holds the published file against the types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from toolkit.errors import ConfigError
from toolkit.records import VERDICT_VERSION, Json, Verdict

_FOLDER = Path(__file__).parent
_DRAFT = "https://json-schema.org/draft/2020-12/schema"

_ATTRIBUTE = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)

_DESCRIBED: Mapping[str, tuple[type, int, str]] = {
    "verdict": (Verdict, VERDICT_VERSION, "What an audit found: reports/NAME/verdict.json"),
}

NAMES = tuple(_DESCRIBED)
"""What there is a schema of."""


def schema_file(name: str) -> Path:
    """Where the published schema lies.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in _DESCRIBED:
        raise ConfigError(f"schema {name[:80]!r}: expected one of {', '.join(NAMES)}")
    return _FOLDER / f"{name}.schema.json"


def read_schema(name: str) -> str:
    """The published JSON Schema as text.

    Raises:
        ConfigError: there is none of that name.
    """
    return schema_file(name).read_text(encoding="utf-8")


def make_schema(name: str) -> str:
    """The JSON Schema that follows from the types as they are now, as text.

    Everything that is always written is required, and the version is one value. Further properties are allowed:
    a reader should not break where a later release of the same version tells more.

    Raises:
        ConfigError: there is none of that name.
    """
    import msgspec

    schema_file(name)
    kind, version, title = _DESCRIBED[name]
    made: dict[str, Json] = msgspec.json.schema(kind)
    definitions: dict[str, dict[str, Json]] = made.pop("$defs")
    for definition in definitions.values():
        _describe(definition)
    whole = definitions.pop(kind.__name__)
    whole["properties"]["version"] = {"const": version}
    whole["required"] = [*whole["required"], "version"]
    described = {"$schema": _DRAFT, "$id": f"urn:tokenproof:{name}:{version}", **whole, "title": title}
    return json.dumps({**described, "$defs": definitions}, indent=2, ensure_ascii=False) + "\n"


def _describe(definition: dict[str, Json]) -> None:
    """Divide a type's docstring: what it says of single attributes goes to these."""
    text, _, attributes = definition.get("description", "").partition("Attributes:\n")
    definition["description"] = text.strip()
    for names, says in _ATTRIBUTE.findall(attributes):
        for name in names.split(", "):
            if name in definition.get("properties", {}):
                definition["properties"][name]["description"] = " ".join(says.split())
