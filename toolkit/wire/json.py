"""JSON as it really comes: fast where it is clean, tolerant where orjson is not, bounded always."""

from __future__ import annotations

import json

import orjson

from toolkit.records import Json


class NotJsonError(ValueError):
    """The text is not one JSON value."""


def load_json(text: str | bytes) -> Json:
    """Decode one JSON value.

    orjson refuses lone surrogates and integers beyond 64 bits, both of which servers send; then the
    standard library reads the text (NaN and Infinity, which are no JSON, stay refused).

    Raises:
        NotJsonError: not JSON, or nested too deeply.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise NotJsonError("nested too deeply") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise NotJsonError(str(error)) from None


def dump_json(value: Json) -> str:
    """Encode one JSON value so that `load_json` gives it back, lone surrogates included."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, separators=(",", ":"))


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")
