"""Scenarios from TOML files, read strictly: docs/simulator.md lists every key."""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from pathlib import Path

import msgspec

from toolkit.errors import ConfigError
from toolkit.records import Json
from toolkit.simulate.account import AccountSettings
from toolkit.simulate.limits import Limit
from toolkit.simulate.providers import PROVIDERS, SimulatedProvider
from toolkit.simulate.scenario import Scenario

SHIPPED = Path(__file__).parent / "scenarios"

_NESTED: dict[tuple[type, str], type] = {
    (Scenario, "limit"): Limit,
    (Scenario, "account"): AccountSettings,
    (SimulatedProvider, "limit"): Limit,
}


def shipped_scenarios() -> list[str]:
    """Names of the scenarios that come with the tool."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_scenario(name: str) -> Scenario:
    """Read a scenario by the name of a shipped one, or by the path of a `.toml` file.

    Raises:
        ConfigError: there is no such file, or it is not a scenario; the message names the key.
    """
    is_path = name.endswith(".toml") or "/" in name
    path = Path(name) if is_path else SHIPPED / f"{name}.toml"
    try:
        content = path.read_bytes()
    except OSError as error:
        if not is_path:
            known = ", ".join(shipped_scenarios())
            raise ConfigError(
                f"scenario {name!r} not found; expected one of {known}, or the path of a .toml file"
            ) from None
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_scenario(content, str(path))


def parse_scenario(content: bytes, where: str) -> Scenario:
    """A scenario from the bytes of its file; `where` names the file in errors.

    `[[providers]]` takes the place of the default ones. A provider of the default names starts from that one's values.

    Raises:
        ConfigError: not TOML, an unknown key, a value of another type or out of range.
    """
    try:
        table = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: not TOML: {error}") from None
    providers = table.pop("providers", None)
    fields = _read(Scenario, table, where)
    if providers is not None:
        if not isinstance(providers, list):
            raise ConfigError(f"{where}: providers: expected an array of tables, found {type(providers).__name__}")
        fields["providers"] = tuple(_provider(item, f"{where}: providers[{i}]") for i, item in enumerate(providers))
    return _made(Scenario, fields, where)


def _provider(table: Json, where: str) -> SimulatedProvider:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected a table, found {type(table).__name__}")
    fields = _read(SimulatedProvider, table, where)
    known = next((p for p in PROVIDERS if p.slug == fields.get("slug")), None)
    if known is not None:
        return dataclasses.replace(known, **fields)
    for name in ("name", "slug"):
        if name not in fields:
            raise ConfigError(f"{where}: expected the key {name}")
    return _made(SimulatedProvider, fields, where)


def _read(kind: type, table: dict[str, Json], where: str) -> dict[str, Json]:
    """The fields of `table` as `kind` has them; every key must be one of its fields."""
    types = typing.get_type_hints(kind)
    fields: dict[str, Json] = {}
    for key, value in table.items():
        if key not in types:
            raise ConfigError(f"{where}: unknown key {key!r}; expected one of: {', '.join(sorted(types))}")
        nested = _NESTED.get((kind, key))
        if nested is not None:
            if not isinstance(value, dict):
                raise ConfigError(f"{where}: {key}: expected a table, found {type(value).__name__}")
            fields[key] = _made(nested, _read(nested, value, f"{where}: {key}"), f"{where}: {key}")
            continue
        try:
            fields[key] = msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            raise ConfigError(f"{where}: {key}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    return fields


_Made = typing.TypeVar("_Made")


def _made(kind: type[_Made], fields: dict[str, Json], where: str) -> _Made:
    try:
        return kind(**fields)
    except ConfigError as error:
        raise ConfigError(f"{where}: {str(error).removeprefix('scenario: ')}") from None
