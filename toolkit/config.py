"""tokenproof.toml as frozen settings. Keys come from the environment only, and are never shown.

::

    [defaults]            what holds for every dataset
    [datasets.NAME]       what holds for one; a key given here replaces the default's, whole
    [endpoints.NAME]      where to ask; `openrouter` is there without a table
    [budget]              what one run may cost, all of its datasets together
    [merge]               what a train set is mixed of, and where loss falls (`toolkit.mix`)

A key that is misspelt, of another type or out of range is an error that names the file and the place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from toolkit.endpoint import EndpointSettings as EndpointSettings
from toolkit.endpoint import EndpointTable, endpoint_faults, endpoint_of
from toolkit.endpoint import Routing as Routing
from toolkit.endpoint import Secret as Secret
from toolkit.endpoint import check_endpoint as check_endpoint
from toolkit.endpoint import is_loopback as is_loopback
from toolkit.endpoint import is_name as is_name
from toolkit.errors import ConfigError
from toolkit.mix import MergeSettings, mix_faults
from toolkit.records import SAMPLING_KEYS, Json
from toolkit.store.files import read_bytes, stands
from toolkit.store.workspace import Workspace
from toolkit.toml import TomlError, read_toml

FILE_NAME = "tokenproof.toml"

Count = Annotated[int, Meta(ge=1, lt=2**31)]
Total = Annotated[int, Meta(ge=1, lt=2**53)]
Dollars = Annotated[float, Meta(gt=0, le=1e9)]
Turns = Literal["last", "every"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class DatasetSettings(_Strict, frozen=True, kw_only=True):
    """How one dataset is generated and audited.

    Attributes:
        contract: Name or path of the contract.
        mode: Mode of prompts that name none; the contract's default when None.
        model: Model to ask for; the contract's first when None.
        max_tokens: Cap of a completion in ids, for prompts that name none.
        expected_tokens: What a completion usually has, for estimates; None where nobody knows.
        max_total_tokens: Completion tokens that the dataset may hold, those of earlier runs included; None: no limit.
        turns: Of a conversation, answer the `last` turn to the history as it is written, or `every` turn on our own
            answers, one row each.
        samples: Answers to each prompt.
        sampling: Sampling fields of the request (`SAMPLING_KEYS`); part of a request's identity.
        suites: Suites that must have passed before a merge; when none are named, the contract's own and `providers`,
            and `on-policy` where every turn is generated.
        providers: Display names of the providers that the audit allows; empty: any.
        endpoint: Name of the endpoint to ask.
    """

    contract: str = "kimi-k2.5"
    mode: str | None = None
    model: str | None = None
    max_tokens: Count = 8192
    expected_tokens: Count | None = None
    max_total_tokens: Total | None = None
    turns: Turns = "last"
    samples: Count = 1
    sampling: dict[str, Json] = {}
    suites: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    endpoint: str = "openrouter"


class BudgetSettings(_Strict, frozen=True, kw_only=True):
    """What one run may cost.

    Attributes:
        dollars: US dollars that replies may come to, all datasets of the run together; None: no limit.
    """

    dollars: Dollars | None = None


class Settings(_Strict, frozen=True, kw_only=True):
    """Everything that tokenproof.toml says, checked."""

    where: str
    defaults: DatasetSettings
    datasets: dict[str, DatasetSettings]
    endpoints: dict[str, EndpointSettings]
    budget: BudgetSettings = BudgetSettings()
    merge: MergeSettings = MergeSettings()

    def dataset(self, name: str) -> DatasetSettings:
        """Settings of the dataset whose folder is called `name`."""
        return self.datasets.get(name, self.defaults)

    def endpoint(self, name: str) -> EndpointSettings:
        """The endpoint called `name`.

        Raises:
            ConfigError: there is none.
        """
        if name not in self.endpoints:
            known = ", ".join(sorted(self.endpoints))
            raise ConfigError(
                f"{self.where}: endpoint {name!r}: expected one of {known}, or a table [endpoints.{name}]"
            )
        return self.endpoints[name]


# --- reading ------------------------------------------------------------------------------------


class _DatasetTable(_Strict, frozen=True, kw_only=True, omit_defaults=True):
    contract: str | UnsetType = UNSET
    mode: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    max_tokens: Count | UnsetType = UNSET
    expected_tokens: Count | UnsetType = UNSET
    max_total_tokens: Total | UnsetType = UNSET
    turns: Turns | UnsetType = UNSET
    samples: Count | UnsetType = UNSET
    sampling: dict[str, Json] | UnsetType = UNSET
    suites: tuple[str, ...] | UnsetType = UNSET
    providers: tuple[str, ...] | UnsetType = UNSET
    endpoint: str | UnsetType = UNSET


class _File(_Strict, frozen=True, kw_only=True):
    defaults: _DatasetTable = _DatasetTable()
    datasets: dict[str, _DatasetTable] = {}
    endpoints: dict[str, EndpointTable] = {}
    budget: BudgetSettings = BudgetSettings()
    merge: MergeSettings = MergeSettings()


def read_settings(workspace: Workspace) -> Settings:
    """Read tokenproof.toml of a workspace; the defaults where there is none.

    Raises:
        ConfigError: it is not TOML, or anything in it is misspelt, of another type or out of range.
        StoreError: it cannot be read.
    """
    path = workspace.root / FILE_NAME
    if not stands(path):
        return parse_settings(b"", FILE_NAME)
    return parse_settings(read_bytes(path), FILE_NAME, folders=workspace.dataset_names())


def parse_settings(content: bytes, where: str, *, folders: list[str] | None = None) -> Settings:
    """Settings from the bytes of a file; `where` names it in errors, `folders` are the datasets that exist.

    Raises:
        ConfigError: as `read_settings`.
    """
    try:
        file = read_toml(content, _File)
    except TomlError as error:
        raise ConfigError("\n".join(f"{where}: {fault}" for fault in error.faults)) from None
    endpoints = {name: endpoint_of(name, table, where) for name, table in file.endpoints.items()}
    endpoints.setdefault("openrouter", endpoint_of("openrouter", EndpointTable(), where))
    settings = Settings(
        where=where,
        defaults=_dataset_of(file.defaults),
        datasets={name: _dataset_of(file.defaults, table) for name, table in file.datasets.items()},
        endpoints=endpoints,
        budget=file.budget,
        merge=file.merge,
    )
    faults = list(_faults(file, settings, folders or []))
    if faults:
        raise ConfigError(f"{where}: " + f"\n{where}: ".join(faults))
    return settings


def _dataset_of(*tables: _DatasetTable) -> DatasetSettings:
    """One dataset's settings; later tables replace earlier ones key by key."""
    merged: dict[str, Json] = {}
    for table in tables:
        merged |= _given(table)
    settings = DatasetSettings(**merged)
    if settings.suites:
        return settings
    own = settings.contract.rpartition("/")[2].removesuffix(".toml")
    suites = (own, "providers") if settings.turns == "last" else (own, "providers", "on-policy")
    return msgspec.structs.replace(settings, suites=suites)


def _given(table: msgspec.Struct) -> dict[str, Json]:
    """The fields that the user wrote."""
    return {name: value for name, value in msgspec.structs.asdict(table).items() if value is not UNSET}


# --- checks beyond types --------------------------------------------------------------------------


def _faults(file: _File, settings: Settings, folders: list[str]) -> Iterator[str]:
    tables = {"defaults": file.defaults, **{f"datasets.{name}": table for name, table in file.datasets.items()}}
    for place, table in tables.items():
        if table.sampling is not UNSET:
            yield from (f"{place}.sampling.{fault}" for fault in sampling_faults(table.sampling))
        if table.endpoint is not UNSET and table.endpoint not in settings.endpoints:
            known = ", ".join(sorted(settings.endpoints))
            yield f"{place}.endpoint: expected one of {known}, found {table.endpoint!r}"
    for name in file.datasets:
        if name in folders:
            continue
        same = [folder for folder in folders if folder.casefold() == name.casefold()]
        longer = [folder for folder in folders if folder.startswith(name)]
        if same:
            yield f"datasets.{name}: no dataset folder is called so; did you mean {' or '.join(same)}?"
        elif longer:
            yield f"datasets.{name}: expected the whole name of a dataset folder ({', '.join(longer)}), found its start"
    yield from (f"merge.{fault}" for fault in mix_faults(file.merge))
    for name, endpoint in settings.endpoints.items():
        yield from (f"endpoints.{name}{fault}" for fault in endpoint_faults(endpoint))


def sampling_faults(sampling: Mapping[str, Json]) -> Iterator[str]:
    """What is wrong with sampling fields; each fault begins with the field's name."""
    for key, value in sampling.items():
        if key == "stop":
            yield (
                f"{key}: unknown; text that was cut at a stop string does not say which ids were sampled there, "
                "so it is never sent"
            )
        elif key not in SAMPLING_KEYS:
            yield f"{key}: unknown; expected one of {', '.join(SAMPLING_KEYS)}"
        elif key == "logit_bias":
            if not isinstance(value, dict):
                yield f"{key}: expected a table of ids and numbers, found {value!r:.80}"
        elif key == "reasoning_effort":
            if not isinstance(value, str) or value == "none":
                yield f"{key}: expected an effort (thinking is switched off with mode), found {value!r:.80}"
        elif key in ("seed", "top_k"):
            if type(value) is not int:
                yield f"{key}: expected a whole number, found {value!r:.80}"
        elif type(value) not in (int, float) or not math.isfinite(value):
            yield f"{key}: expected a number, found {value!r:.80}"
