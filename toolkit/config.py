"""tokenproof.toml as frozen settings. Keys come from the environment only, and are never shown.

::

    [defaults]            what holds for every dataset
    [datasets.NAME]       what holds for one; a key given here replaces the default's, whole
    [endpoints.NAME]      where to ask; `openrouter` is there without a table

A key that is misspelt, of another type or out of range is an error that names the file and the place.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from toolkit.errors import ConfigError
from toolkit.records import SAMPLING_KEYS, SOURCES_WITH_PROVIDERS, Json, Source
from toolkit.store.files import read_bytes
from toolkit.store.workspace import Workspace

FILE_NAME = "tokenproof.toml"
OPENROUTER_URL = "https://openrouter.ai/api/v1"
OPENROUTER_KEY_ENV = "OPENROUTER_API_KEY"

EXTRA_KEYS = frozenset(
    {
        "cache_salt", "debug", "logprobs", "metadata", "priority", "raw_output", "request_id", "return_token_ids",
        "return_tokens_as_token_ids", "service_tier", "session_id", "skip_special_tokens",
        "spaces_between_special_tokens", "stream_options", "top_logprobs", "usage", "user",
    }
)  # fmt: skip
"""Further body fields that may be sent: they change how a reply is told, never what is asked."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_SHORTEST_HIDDEN = 8
"""Keys shorter than this are not looked for in texts: hiding a short word would alter replies."""

Count = Annotated[int, Meta(ge=1, lt=2**31)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Limits = dict[Literal["p50", "p75", "p90", "p99"], float]
Quantization = Literal[
    "int4", "int8", "fp4", "mxfp4", "nvfp4", "fp6", "fp8", "mxfp8", "fp16", "bf16", "fp32", "unknown"
]


class Secret:
    """A key that shows as *** wherever it is printed, formatted or logged."""

    __slots__ = ("_text",)

    def __init__(self, text: str):
        self._text = text

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written anywhere")

    def reveal(self) -> str:
        """The key itself: for the header of a request, and for nothing else."""
        return self._text

    def hide_in(self, text: str) -> str:
        """`text` with the key replaced by ***: servers echo headers in their errors."""
        return text.replace(self._text, "***") if len(self._text) >= _SHORTEST_HIDDEN else text


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Sort(_Strict, frozen=True, kw_only=True):
    """OpenRouter's long form of `provider.sort`."""

    by: Literal["price", "throughput", "latency"]
    partition: Literal["model", "none"] = "model"


class Routing(_Strict, frozen=True, kw_only=True, omit_defaults=True):
    """OpenRouter's `provider` object: who may answer. Providers are named by slug, not as replies name them."""

    order: tuple[str, ...] | None = None
    only: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    allow_fallbacks: bool | None = None
    require_parameters: bool | None = None
    data_collection: Literal["allow", "deny"] | None = None
    zdr: bool | None = None
    enforce_distillable_text: bool | None = None
    quantizations: tuple[Quantization, ...] | None = None
    sort: Literal["price", "throughput", "latency"] | Sort | None = None
    max_price: dict[Literal["prompt", "completion", "request", "image", "audio"], float | str] | None = None
    preferred_min_throughput: float | Limits | None = None
    preferred_max_latency: float | Limits | None = None

    def as_json(self) -> dict[str, Json]:
        """The object to send; empty where nothing was set."""
        sent: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(self))
        return sent


class DatasetSettings(_Strict, frozen=True, kw_only=True):
    """How one dataset is generated and audited.

    Attributes:
        contract: Name or path of the contract.
        mode: Mode of prompts that name none; the contract's default when None.
        model: Model to ask for; the contract's first when None.
        max_tokens: Cap of a completion in ids, for prompts that name none.
        samples: Answers to each prompt.
        sampling: Sampling fields of the request (`SAMPLING_KEYS`); part of a request's identity.
        suites: Suites that must have passed before a merge; the contract's own when none are named.
        providers: Display names of the providers that the audit allows; empty: any.
        endpoint: Name of the endpoint to ask.
    """

    contract: str = "kimi-k2.5"
    mode: str | None = None
    model: str | None = None
    max_tokens: Count = 8192
    samples: Count = 1
    sampling: dict[str, Json] = {}
    suites: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    endpoint: str = "openrouter"


class EndpointSettings(_Strict, frozen=True, kw_only=True):
    """Where and how to ask.

    Attributes:
        url: Base of the API; `/chat/completions` is appended.
        key_env: Name of the environment variable that holds the key; empty: no key is sent.
        source: What rows call it: `openrouter`, `sglang`, `vllm` or a name of its own.
        concurrency: Requests in flight.
        timeout_s: Deadline of one request, from the first byte sent to the last received.
        max_tries: Requests for one ask, the first included.
        stream: Ask for a stream of events.
        max_tokens_field: What this API calls the cap.
        provider: OpenRouter's routing.
        extra: Further fields of the body (`EXTRA_KEYS`).
    """

    name: str
    url: str
    key_env: str = ""
    source: str
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 32
    timeout_s: Seconds = 600.0
    max_tries: Annotated[int, Meta(ge=1, le=100)] = 5
    stream: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    provider: Routing = Routing()
    extra: dict[str, Json] = {}

    def key(self, environ: Mapping[str, str] = os.environ) -> Secret | None:
        """The key from the environment; None where this endpoint needs none.

        Raises:
            ConfigError: the variable is not set, or holds what no header can carry.
        """
        if not self.key_env:
            return None
        text = environ.get(self.key_env, "").strip()
        if not text:
            raise ConfigError(f"endpoint {self.name}: expected a key in the environment variable {self.key_env}")
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ConfigError(f"endpoint {self.name}: {self.key_env}: expected printable ASCII without spaces")
        return Secret(text)


class Settings(_Strict, frozen=True, kw_only=True):
    """Everything that tokenproof.toml says, checked."""

    where: str
    defaults: DatasetSettings
    datasets: dict[str, DatasetSettings]
    endpoints: dict[str, EndpointSettings]

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
    samples: Count | UnsetType = UNSET
    sampling: dict[str, Json] | UnsetType = UNSET
    suites: tuple[str, ...] | UnsetType = UNSET
    providers: tuple[str, ...] | UnsetType = UNSET
    endpoint: str | UnsetType = UNSET


class _EndpointTable(_Strict, frozen=True, kw_only=True, omit_defaults=True):
    url: str | UnsetType = UNSET
    key_env: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET
    timeout_s: Seconds | UnsetType = UNSET
    max_tries: Annotated[int, Meta(ge=1, le=100)] | UnsetType = UNSET
    stream: bool | UnsetType = UNSET
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | UnsetType = UNSET
    provider: Routing | UnsetType = UNSET
    extra: dict[str, Json] | UnsetType = UNSET


class _File(_Strict, frozen=True, kw_only=True):
    defaults: _DatasetTable = _DatasetTable()
    datasets: dict[str, _DatasetTable] = {}
    endpoints: dict[str, _EndpointTable] = {}


def read_settings(workspace: Workspace) -> Settings:
    """Read tokenproof.toml of a workspace; the defaults where there is none.

    Raises:
        ConfigError: it is not TOML, or anything in it is misspelt, of another type or out of range.
        StoreError: it cannot be read.
    """
    path = workspace.root / FILE_NAME
    if not path.exists():
        return parse_settings(b"", FILE_NAME)
    return parse_settings(read_bytes(path), FILE_NAME, folders=workspace.dataset_names())


def parse_settings(content: bytes, where: str, *, folders: list[str] | None = None) -> Settings:
    """Settings from the bytes of a file; `where` names it in errors, `folders` are the datasets that exist.

    Raises:
        ConfigError: as `read_settings`.
    """
    try:
        file = msgspec.toml.decode(content, type=_File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: expected TOML in UTF-8: {error}") from None
    endpoints = {name: _endpoint_of(name, table, where) for name, table in file.endpoints.items()}
    endpoints.setdefault("openrouter", _endpoint_of("openrouter", _EndpointTable(), where))
    settings = Settings(
        where=where,
        defaults=_dataset_of(file.defaults),
        datasets={name: _dataset_of(file.defaults, table) for name, table in file.datasets.items()},
        endpoints=endpoints,
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
    return msgspec.structs.replace(settings, suites=(own,))


def _endpoint_of(name: str, table: _EndpointTable, where: str) -> EndpointSettings:
    given = _given(table)
    source = given.setdefault("source", name)
    if source == Source.OPENROUTER:
        # Only here is there a default key: another server must never be sent OpenRouter's by oversight.
        given.setdefault("url", OPENROUTER_URL)
        given.setdefault("key_env", OPENROUTER_KEY_ENV)
    if "url" not in given:
        raise ConfigError(f"{where}: endpoints.{name}: url is missing; expected the base of its API, with http(s)://")
    given["url"] = given["url"].rstrip("/")
    return EndpointSettings(name=name, **given)


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
        longer = [folder for folder in folders if folder.startswith(name)]
        if longer and name not in folders:
            yield f"datasets.{name}: expected the whole name of a dataset folder ({', '.join(longer)}), found its start"
    for name, endpoint in settings.endpoints.items():
        yield from (f"endpoints.{name}{fault}" for fault in _endpoint_faults(endpoint))


def sampling_faults(sampling: Mapping[str, Json]) -> Iterator[str]:
    """What is wrong with sampling fields; each fault begins with the field's name."""
    for key, value in sampling.items():
        if key not in SAMPLING_KEYS:
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


def check_endpoint(endpoint: EndpointSettings) -> None:
    """Check settings that did not come from a file, or were changed since.

    Raises:
        ConfigError: they would not be accepted in tokenproof.toml.
    """
    faults = [f"endpoint {endpoint.name}{fault}" for fault in _endpoint_faults(endpoint)]
    if faults:
        raise ConfigError("\n".join(faults))


def _endpoint_faults(endpoint: EndpointSettings) -> Iterator[str]:
    if not _NAME.fullmatch(endpoint.name):
        yield ": expected a name of lower-case letters, digits, _ . and -"
    if not _NAME.fullmatch(endpoint.source):
        yield f".source: expected lower-case letters, digits, _ . and -, found {endpoint.source!r:.80}"
    yield from _url_faults(endpoint)
    if endpoint.source not in SOURCES_WITH_PROVIDERS and endpoint.provider.as_json():
        yield f".provider: only OpenRouter routes; source is {endpoint.source!r}"
    unknown = sorted(set(endpoint.extra) - EXTRA_KEYS)
    if unknown:
        yield (
            f".extra: {', '.join(unknown)}: expected only {', '.join(sorted(EXTRA_KEYS))}; what changes the question "
            "belongs to mode, max_tokens, sampling or prompts.jsonl, and stop strings cannot be rebuilt into ids"
        )


def _url_faults(endpoint: EndpointSettings) -> Iterator[str]:
    try:
        parts = urlsplit(endpoint.url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        yield f".url: expected http(s)://HOST/…, found {endpoint.url!r:.80}"
        return
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        yield ".url: expected no user, password, query or fragment: secrets belong in the environment"
    elif parts.scheme not in ("http", "https") or not host:
        yield f".url: expected http(s)://HOST/…, found {endpoint.url!r:.80}"
    elif parts.scheme == "http" and endpoint.source == Source.OPENROUTER and not is_loopback(parts):
        yield f".url: expected https for a paid API that is not on this machine, found {endpoint.url!r:.80}"


def is_loopback(parts: SplitResult) -> bool:
    """Whether a URL names this machine."""
    host = parts.hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
