"""Arguments for a tool call: a JSON value that satisfies the tool's JSON schema.

Known: type (also a list), enum, const, default, examples, properties, required, items, minItems, minimum, maximum,
exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, format, anyOf, oneOf, allOf, and $ref within the
schema. Other keywords (pattern, if, not …) are not obeyed; `examples` and `default` help there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from toolkit.records import Json
from toolkit.simulate.draws import Draws
from toolkit.simulate.phrases import CITIES, NAMES

_MAX_DEPTH = 12
"""Schemas that go deeper, or into themselves, end in null."""

_MAX_VALUES = 500
"""Values in one call: what would come after them is null, so that a schema cannot make the server write megabytes."""

_MAX_LENGTH = 256
"""Cap for minItems and minLength."""

_STEPS = (1e-6, 1e9)
"""The range in which multipleOf is obeyed."""

_BY_FORMAT = {
    "date": "2026-03-14",
    "date-time": "2026-03-14T09:26:53Z",
    "time": "09:26:53Z",
    "email": "amara@example.org",
    "uri": "https://example.org/report",
    "uuid": "3f2b8c1e-9a4d-4f6b-8e21-5c7d9e0a1b34",
    "ipv4": "192.0.2.7",
}
_WORDS = (
    *CITIES,
    *NAMES,
    "quarterly report",
    "blue suède shoes",
    "雨のち晴れ",
    "line one\nline two",
    'a "quoted" word',
)


def arguments_for(schema: Mapping[str, Json], draws: Draws) -> dict[str, Json]:
    """An object that satisfies `schema`, the `parameters` of a tool; empty when it is not an object schema."""
    value = _Maker(schema, draws).value(schema, 0)
    return value if isinstance(value, dict) else {}


class _Maker:
    """Makes values for the parts of one schema, `root`, up to `_MAX_VALUES` of them."""

    def __init__(self, root: Mapping[str, Json], draws: Draws):
        self._root = root
        self._draws = draws
        self._made = 0

    def value(self, schema: Json, depth: int) -> Json:
        schema = _resolved(schema, self._root)
        self._made += 1
        if not schema or depth > _MAX_DEPTH or self._made > _MAX_VALUES:
            return None
        if "const" in schema:
            return schema["const"]
        for name in ("enum", "examples"):
            if isinstance(schema.get(name), list) and schema[name]:
                return self._draws.pick(schema[name])
        if "default" in schema:
            return schema["default"]
        for name in ("anyOf", "oneOf"):
            options = schema.get(name)
            if isinstance(options, list) and options:
                return self.value(options[0], depth + 1)
        return self._by_type(schema, depth)

    def _by_type(self, schema: Mapping[str, Json], depth: int) -> Json:
        kind = _kind_of(schema)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            count = min(self._draws.between(1, 3), _limit(schema, "maxItems", _MAX_LENGTH))
            return [
                self.value(schema.get("items"), depth + 1) for _ in range(max(count, _limit(schema, "minItems", 0)))
            ]
        if kind in ("integer", "number"):
            return _number(schema, self._draws, whole=kind == "integer")
        if kind == "boolean":
            return self._draws.chance(0.5)
        return _text(schema, self._draws) if kind == "string" else None

    def _object(self, schema: Mapping[str, Json], depth: int) -> dict[str, Json]:
        """All required properties, and some of the others, in the order in which the schema lists them."""
        properties = schema.get("properties")
        required = schema.get("required")
        properties = properties if isinstance(properties, dict) else {}
        required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        names = [name for name in properties if name in required or (depth < 3 and self._draws.chance(0.4))]
        names += [name for name in required if name not in properties]
        return {name: self.value(properties.get(name, {"type": "string"}), depth + 1) for name in names}


def _resolved(schema: Json, root: Mapping[str, Json]) -> dict[str, Json]:
    """The schema behind `$ref`, with the members of `allOf` merged into it; empty when there is none."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            break
        target: Json = root
        for step in ref.removeprefix("#").strip("/").split("/"):
            if step:
                target = target.get(step) if isinstance(target, dict) else None
        schema = target
    if not isinstance(schema, dict):
        return {}
    merged = dict(schema)
    for member in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        for key, value in member.items() if isinstance(member, dict) else ():
            both_objects = isinstance(value, dict) and isinstance(merged.get(key), dict)
            both_lists = isinstance(value, list) and isinstance(merged.get(key), list)
            merged[key] = {**merged[key], **value} if both_objects else merged[key] + value if both_lists else value
    return merged


def _kind_of(schema: Mapping[str, Json]) -> str | None:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), None)
    if kind is None and "properties" in schema:
        return "object"
    return kind if isinstance(kind, str) else None


def _number(schema: Mapping[str, Json], draws: Draws, *, whole: bool) -> int | float:
    step = _bound(schema, "multipleOf", 0)
    if not _STEPS[0] <= step <= _STEPS[1]:
        step = 1 if whole else 0.25
    low, high = _bound(schema, "minimum", -math.inf), _bound(schema, "maximum", math.inf)
    low = max(low, _bound(schema, "exclusiveMinimum", -math.inf) + step)
    high = min(high, _bound(schema, "exclusiveMaximum", math.inf) - step)
    if low == -math.inf:
        low = high - 40 * step if high < 1 else 1
    first, last = math.ceil(low / step), math.floor(min(high, low + 40 * step) / step)
    found = step * draws.between(first, max(first, last))
    return int(found) if whole else round(float(found), 6)


def _bound(schema: Mapping[str, Json], name: str, default: float) -> float:
    value = schema.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) >= 1e15:
        return default
    return value


def _limit(schema: Mapping[str, Json], name: str, default: int) -> int:
    """A count of the schema, from 0 to `_MAX_LENGTH`."""
    return int(min(max(_bound(schema, name, default), 0), _MAX_LENGTH))


def _text(schema: Mapping[str, Json], draws: Draws) -> str:
    wanted = schema.get("format")
    if isinstance(wanted, str) and wanted in _BY_FORMAT:
        return _BY_FORMAT[wanted]
    text = draws.pick(_WORDS).ljust(_limit(schema, "minLength", 0), "x")
    return text[: _limit(schema, "maxLength", _MAX_LENGTH)]
