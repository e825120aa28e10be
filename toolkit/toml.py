"""TOML into a frozen struct, or everything that is wrong with it at once.

Each fault names its key, what was expected and what was found; a misspelt key comes with the likely one.
Nothing in a file can make reading it crash: depth and size are bounded.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_LARGEST_BYTES = 4 << 20
_DEEPEST = 32
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BOM = b"\xef\xbb\xbf"


class TomlError(ValueError):
    """What is wrong with a file: `faults` holds one sentence each, the first words say where in the file."""

    def __init__(self, *faults: str):
        super().__init__("\n".join(faults))
        self.faults = faults


def read_toml(content: bytes, kind: type[T]) -> T:
    """A struct from the bytes of a TOML file. Keys are strict: none is passed over.

    Raises:
        TomlError: not TOML in UTF-8, too large, too deep, or keys and values that are not those of `kind`.
    """
    document = parse_toml(content)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise TomlError(*(list(_faults(document, kind, "")) or [_told(error, None)])) from None


def parse_toml(content: bytes) -> dict[str, Any]:
    """The tables of a TOML file, for callers who judge keys and values themselves.

    Raises:
        TomlError: not TOML in UTF-8, too large or too deep.
    """
    if len(content) > _LARGEST_BYTES:
        raise TomlError(f"expected at most {_LARGEST_BYTES:,} bytes, found {len(content):,}")
    too_deep = f"expected tables and lists in at most {_DEEPEST} levels, found more"
    try:
        document = tomllib.loads(content.removeprefix(_BOM).decode())
    except UnicodeDecodeError as error:
        raise TomlError(f"not UTF-8: byte {error.start} is {content[error.start : error.start + 1]!r}") from None
    except RecursionError:
        raise TomlError(too_deep) from None
    except ValueError as error:  # a fault of the syntax, or a number of thousands of digits
        reason = str(error)
        raise TomlError(f"not TOML: {reason[:1].lower()}{reason[1:200]}") from None
    if not _is_shallow(document):
        raise TomlError(too_deep)
    return document


def _is_shallow(document: dict[str, Any]) -> bool:
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        level = [child for value in level for child in _children(value)]
        if not level:
            return True
    return False


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


# --- what does not fit --------------------------------------------------------------------------


def _faults(value: Any, kind: Any, at: str) -> Iterator[str]:
    """Why `value` is no `kind`, down to the smallest part that is to blame. `at` is its key, empty for the file."""
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if one not in (NoneType, msgspec.UnsetType)]
        kind = kinds[0] if len(kinds) == 1 else kind
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _table_faults(value, kind, at)
    elif origin is dict:
        yield from _dict_faults(value, inner, at)
    elif origin in (tuple, list, frozenset):
        if isinstance(value, list):
            for number, item in enumerate(value):
                yield from _faults(item, inner[0], f"{at}[{number}]")
        else:
            yield f"{at}: expected a list, found {_shown(value)}"
    elif origin is Literal:
        if value not in inner:
            yield f"{at}: expected one of {', '.join(map(repr, inner))}, found {_shown(value)}"
    else:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            yield f"{at}: {_told(error, value)}"


def _table_faults(value: Any, kind: type[msgspec.Struct], at: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{at}: expected a table, found {_shown(value)}"
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    misspelt = set()
    for key in value:
        if key in fields:
            continue
        meant = _closest(key, [name for name in fields if name not in value])
        misspelt.add(meant)
        hint = f"did you mean {meant}?" if meant else f"expected one of {', '.join(fields)}"
        yield f"{_below(at, key)}: unknown key; {hint}"
    for name, field in fields.items():
        if name in value:
            yield from _faults(value[name], field.type, _below(at, name))
        elif field.required and name not in misspelt:
            yield f"{_below(at, name)}: missing"


def _dict_faults(value: Any, inner: tuple[Any, Any], at: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{at}: expected a table, found {_shown(value)}"
        return
    keys = get_args(inner[0]) if get_origin(inner[0]) is Literal else None
    for key, item in value.items():
        if keys is not None and key not in keys:
            meant = _closest(key, keys)
            hint = f"did you mean {meant}?" if meant else f"expected one of {', '.join(keys)}"
            yield f"{_below(at, key)}: unknown key; {hint}"
        else:
            yield from _faults(item, inner[1], _below(at, key))


def _closest(key: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(key[:100], list(names), n=1)), None)


def _below(at: str, key: str) -> str:
    name = key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
    name = name if len(name) <= 80 else f"{name[:79]}…"
    return f"{at}.{name}" if at else name


_NAMES = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}


def _told(error: msgspec.ValidationError, value: Any) -> str:
    """msgspec's sentence in the words of TOML, with the value that it speaks of."""
    sentence = str(error).partition(" - at ")[0]
    expected = re.fullmatch(r"Expected `(\w+)`, got `\w+`", sentence)
    if expected is not None:
        return f"expected {_NAMES.get(expected[1], expected[1])}, found {_shown(value)}"
    return f"{sentence[:1].lower()}{sentence[1:].replace('`', '')}, found {_shown(value)}"


def _shown(value: Any) -> str:
    """A value for a message: itself where it is short, else what it is."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # Python does not write out integers of thousands of digits
        return "a huge number"
    return text if len(text) <= 80 else f"{text[:79]}…"
