"""Endpoints: whom to ask, where and how, and with which key, which comes from the environment and is never shown."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from toolkit.errors import ConfigError
from toolkit.records import SOURCES_WITH_PROVIDERS, Json, Source

OPENROUTER_URL = "https://openrouter.ai/api/v1"
OPENROUTER_KEY_ENV = "OPENROUTER_API_KEY"

EXTRA_KEYS = frozenset(
    {
        "cache_salt", "debug", "metadata", "priority", "raw_output", "request_id", "return_tokens_as_token_ids",
        "service_tier", "skip_special_tokens", "spaces_between_special_tokens", "stream_options", "usage",
    }
)  # fmt: skip
"""Further body fields that may be sent: they change how a reply is told, never what is asked."""

_OPTIONS_OF_THEIR_OWN = {
    "return_token_ids": "ids", "logprobs": "logprobs", "top_logprobs": "top_logprobs", "session_id": "session_id",
    "user": "user",
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Json]] = {
    # Only here is there a default key: another server must never be sent OpenRouter's by oversight.
    Source.OPENROUTER: {
        "url": OPENROUTER_URL, "key_env": OPENROUTER_KEY_ENV, "max_tokens_field": "max_completion_tokens",
    },
    Source.SGLANG: {"api": "generate", "ids": "ask"},
    Source.VLLM: {"ids": "ask"},
}  # fmt: skip
"""What an endpoint of a source is, where its table does not say otherwise."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_FIELD = re.compile(r"[a-z][a-z0-9_]*")
_LONGEST_SESSION = 256
_SHORTEST_HIDDEN = 8
"""Keys shorter than this are not looked for in texts: hiding a short word would alter replies."""

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Concurrency = Annotated[int, Meta(ge=1, le=10_000)]
Tries = Annotated[int, Meta(ge=1, le=100)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
Api = Literal["chat", "generate"]
Ids = Literal["ask", "require", "off"]
MaxTokensField = Literal["max_tokens", "max_completion_tokens"]
Limits = dict[Literal["p50", "p75", "p90", "p99"], float]
Quantization = Literal[
    "int4", "int8", "fp4", "mxfp4", "nvfp4", "fp6", "fp8", "mxfp8", "fp16", "bf16", "fp32", "unknown"
]


def is_name(text: str) -> bool:
    """Whether an endpoint or a source may be called so: lower-case letters, digits, _ . and -."""
    return _NAME.fullmatch(text) is not None


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


class EndpointSettings(_Strict, frozen=True, kw_only=True):
    """Where and how to ask.

    Attributes:
        url: Base of the API; `/chat/completions`, or the server's `/generate`, is appended.
        key_env: Name of the environment variable that holds the key; empty: no key is sent.
        source: What rows call it: `openrouter`, `sglang`, `vllm` or a name of its own.
        api: `chat`: OpenAI's chat completions. `generate`: SGLang's native API, prompt ids in and ids out; the
            default for the source `sglang`.
        ids: Whether chat completions are asked for the engine's token ids. `ask` (the default for `sglang` and
            `vllm`): where none come the row is rebuilt from text, and says so. `require`: then it is a failure.
            `off` (the default for others): they are not asked for, and ids that come all the same are only given.
        concurrency: Requests in flight.
        timeout_s: Deadline of one request, from the first byte sent to the last received.
        max_tries: Requests for one ask, the first included.
        stream: Ask for a stream of events.
        max_tokens_field: What this API calls the cap; `max_completion_tokens` for OpenRouter, of whose providers some
            take no cap below 16.
        provider: OpenRouter's routing.
        logprobs: Ask for the log probability, and so the bytes, of each sampled token.
        top_logprobs: With `logprobs`, how many alternatives to show, 0 to 20.
        session_id: OpenRouter's key for sticky providers, at most 256 characters.
        user: A stable name for whoever asks; without it, OpenRouter's provider policies may block a whole account.
        referer: OpenRouter's HTTP-Referer header.
        title: OpenRouter's X-Title header.
        seed_field: With `generate`, the name of the sampling parameter that takes a seed; without it a seed is an
            error, for versions of the server differ.
        extra: Further fields of the body of chat completions (`EXTRA_KEYS`).
    """

    name: str
    url: str
    key_env: str = ""
    source: str
    api: Api = "chat"
    ids: Ids = "off"
    concurrency: Concurrency = 32
    timeout_s: Seconds = 600.0
    max_tries: Tries = 5
    stream: bool = False
    max_tokens_field: MaxTokensField = "max_tokens"
    provider: Routing = Routing()
    logprobs: bool = False
    top_logprobs: TopLogprobs | None = None
    session_id: str | None = None
    user: str | None = None
    referer: str | None = None
    title: str | None = None
    seed_field: str | None = None
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


class EndpointTable(_Strict, frozen=True, kw_only=True, omit_defaults=True):
    """A table [endpoints.NAME] as it was written; see `EndpointSettings`."""

    url: str | UnsetType = UNSET
    key_env: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    api: Api | UnsetType = UNSET
    ids: Ids | UnsetType = UNSET
    concurrency: Concurrency | UnsetType = UNSET
    timeout_s: Seconds | UnsetType = UNSET
    max_tries: Tries | UnsetType = UNSET
    stream: bool | UnsetType = UNSET
    max_tokens_field: MaxTokensField | UnsetType = UNSET
    provider: Routing | UnsetType = UNSET
    logprobs: bool | UnsetType = UNSET
    top_logprobs: TopLogprobs | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    referer: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    seed_field: str | UnsetType = UNSET
    extra: dict[str, Json] | UnsetType = UNSET


def endpoint_of(name: str, table: EndpointTable, where: str) -> EndpointSettings:
    """Settings of a table, completed by what its source is by default; `where` names the file in errors.

    Raises:
        ConfigError: there is no url.
    """
    given = {key: value for key, value in msgspec.structs.asdict(table).items() if value is not UNSET}
    given.setdefault("source", name)
    given = {**_DEFAULTS.get(given["source"], {}), **given}
    if "url" not in given:
        raise ConfigError(f"{where}: endpoints.{name}: url is missing; expected the base of its API, with http(s)://")
    return EndpointSettings(name=name, **given | {"url": given["url"].rstrip("/")})


def check_endpoint(endpoint: EndpointSettings) -> None:
    """Check settings that did not come from a file, or were changed since.

    Raises:
        ConfigError: they would not be accepted in tokenproof.toml.
    """
    faults = [f"endpoint {endpoint.name}{fault}" for fault in endpoint_faults(endpoint)]
    if faults:
        raise ConfigError("\n".join(faults))


def endpoint_faults(endpoint: EndpointSettings) -> Iterator[str]:
    """What is wrong with an endpoint; each fault begins with the field's name."""
    if not is_name(endpoint.name):
        yield ": expected a name of lower-case letters, digits, _ . and -"
    if not is_name(endpoint.source):
        yield f".source: expected lower-case letters, digits, _ . and -, found {endpoint.source!r:.80}"
    yield from _url_faults(endpoint)
    if endpoint.source not in SOURCES_WITH_PROVIDERS and endpoint.provider.as_json():
        yield f".provider: only OpenRouter routes; source is {endpoint.source!r}"
    yield from _api_faults(endpoint)
    yield from _openrouter_faults(endpoint)
    if endpoint.top_logprobs is not None and not endpoint.logprobs:
        yield ".top_logprobs: expected logprobs = true beside it"
    if endpoint.user is not None and not endpoint.user.strip():
        yield ".user: expected a name, found nothing"
    misplaced = sorted(set(endpoint.extra) & set(_OPTIONS_OF_THEIR_OWN))
    for key in misplaced:
        yield f".extra: {key}: expected the option {_OPTIONS_OF_THEIR_OWN[key]} of the endpoint instead"
    unknown = sorted(set(endpoint.extra) - EXTRA_KEYS - set(misplaced))
    if unknown:
        yield (
            f".extra: {', '.join(unknown)}: expected only {', '.join(sorted(EXTRA_KEYS))}; what changes the question "
            "belongs to mode, max_tokens, sampling or prompts.jsonl, and stop strings cannot be rebuilt into ids"
        )


def _api_faults(endpoint: EndpointSettings) -> Iterator[str]:
    if endpoint.api == "chat":
        if endpoint.seed_field is not None:
            yield '.seed_field: expected api = "generate"; chat completions take a seed as seed'
        return
    if endpoint.source == Source.OPENROUTER:
        yield '.api: expected "chat": OpenRouter has no /generate'
    if endpoint.ids == "off":
        yield '.ids: expected "ask" or "require": /generate always returns ids'
    if endpoint.logprobs or endpoint.extra:
        yield '.api: "generate" takes neither logprobs nor extra: it returns the ids themselves'
    if endpoint.seed_field is not None and not _FIELD.fullmatch(endpoint.seed_field):
        yield f".seed_field: expected the name of a sampling parameter, found {endpoint.seed_field!r:.80}"


def _openrouter_faults(endpoint: EndpointSettings) -> Iterator[str]:
    if endpoint.source == Source.OPENROUTER and endpoint.ids != "off":
        yield f'.ids: expected "off": OpenRouter returns no ids, found {endpoint.ids!r}'
    for name in ("session_id", "referer", "title"):
        value = getattr(endpoint, name)
        if value is None:
            continue
        if endpoint.source != Source.OPENROUTER:
            yield f".{name}: only OpenRouter takes it; source is {endpoint.source!r}"
        elif not value.strip() or not (value.isascii() and value.isprintable()):
            yield f".{name}: expected printable ASCII, found {value!r:.80}"
    if endpoint.session_id is not None and len(endpoint.session_id) > _LONGEST_SESSION:
        yield f".session_id: expected at most {_LONGEST_SESSION} characters, found {len(endpoint.session_id)}"


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
