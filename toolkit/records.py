"""Types and schemas of everything that crosses a file boundary.

Column names, their types and what a null means stand here and nowhere else; the tables in
ARCHITECTURE.md are held against them by a test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson
import pyarrow as pa

SCHEMA_VERSION = 1
"""Version of the shard schema; a shard of another version is refused."""

KERNEL_VERSION = 2
"""Version of `measure`: part of the name of cached facts and of every verdict. Raise it with each change of a fact."""

DEFAULT_MAX_QUARANTINED_SHARE = 0.05
"""The largest share of rows in quarantine, 0 to 1, where a suite states none."""

VERDICT_VERSION = 1
"""Version of verdict.json's form."""

Json = Any
"""A decoded JSON value."""


class Source(StrEnum):
    """Who produced the ids or the text. Other OpenAI-compatible APIs bear their endpoint's name."""

    SGLANG = "sglang"
    VLLM = "vllm"
    OPENROUTER = "openrouter"


SOURCES_WITH_PROVIDERS = frozenset({Source.OPENROUTER})
SOURCES_WITH_IDS = frozenset({Source.SGLANG, Source.VLLM})


class Origin(StrEnum):
    """How a row got here."""

    GENERATE = "generate"
    IMPORT = "import"
    REBUILD = "rebuild"


class IdsSource(StrEnum):
    """Where `output_ids` come from."""

    ENGINE = "engine"
    GIVEN = "given"
    LOGPROBS = "logprobs"
    REBUILT = "rebuilt"


class RebuildStatus(StrEnum):
    """What the rules could say about the ids of a reply."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    AMBIGUOUS = "ambiguous"
    ANSWER_MISSING = "answer_missing"
    REASONING_MISSING = "reasoning_missing"


class Evidence(StrEnum):
    """How we know that the ids of a row are right (ordered from best to worst)."""

    ENGINE = "engine"
    LOGPROBS = "logprobs"
    COUNTED = "counted"
    UNVERIFIED = "unverified"
    CONTRADICTED = "contradicted"


class Severity(StrEnum):
    """`critical` closes the gate, `warning` and `info` are shown."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


SAMPLING_KEYS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "reasoning_effort",
)
"""Fields of a request that change what a model says, and so belong to its identity."""


# --- what came over the wire -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One structured call of a reply; `arguments` is the string exactly as received."""

    id: str | None
    name: str | None
    arguments: str | None

    def as_json(self) -> dict[str, str | None]:
        """The form that the shard column `tool_calls` holds."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer as it came, its text untouched. `None` means that the field was absent or null."""

    request_id: str | None = None
    provider: str | None = None
    model: str | None = None
    created: int | None = None
    reasoning: str | None = None
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    output_ids: Sequence[int] | None = None
    ids_source: IdsSource | None = None
    prompt_ids: Sequence[int] | None = None
    streamed: bool | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What of the request decides how a reply is read.

    Attributes:
        mode: A mode of the contract.
        max_tokens: The completion's cap in ids, where one was sent.
        stop: The stop strings that were sent.
    """

    mode: str
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One line of prompts.jsonl: chat messages in OpenAI's form, and options of its own."""

    id: str
    messages: list[dict[str, Json]]
    tools: list[dict[str, Json]] | None = None
    mode: str | None = None
    max_tokens: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a journal: what was asked, and the raw reply. Everything in a row is derived from it.

    Attributes:
        row_key: Identity of the request (`row_key_of`), or of the imported sample.
        form: How `body` is to be read: a name of `toolkit.wire.FORMS`.
        body: The reply's bytes as text, exactly as they came.
        request: The body that was sent, without headers.
        ids_are: What ids that come in the body are taken for.
        assumed: Fields that the user's options filled in because the line lacked them.
        tool_ids: Tool ids of the prompt that were rewritten, old → new.
    """

    row_key: str
    sample_id: str
    turn: int = 0
    sample_index: int = 0
    probe: bool = False
    source: str
    origin: Origin
    contract: str
    mode: str
    model: str | None = None
    form: str
    body: str
    status: int = 200
    messages: list[dict[str, Json]] | None = None
    tools: list[dict[str, Json]] | None = None
    request: dict[str, Json] | None = None
    sampling: dict[str, Json] | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ids_are: IdsSource = IdsSource.GIVEN
    assumed: tuple[str, ...] = ()
    tool_ids: dict[str, str] | None = None
    received_at: float | None = None
    latency_s: float | None = None
    streamed: bool | None = None

    @property
    def identity(self) -> tuple[str, int, int]:
        """(sample_id, turn, sample_index): unique within a dataset."""
        return (self.sample_id, self.turn, self.sample_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A request or an imported line that gave no row.

    Attributes:
        reason: A short code, counted in reports (`model_mismatch`, `no_choices`, `http_429` …).
        detail: One sentence for a person: what, expected, found.
        final: False where asking again may give an answer.
        where: The file and line of an imported line, or the endpoint.
        body: What came, in full for paid replies, so that nothing is lost.
    """

    reason: str
    detail: str
    final: bool
    where: str
    sample_id: str | None = None
    turn: int = 0
    sample_index: int = 0
    row_key: str | None = None
    provider: str | None = None
    model: str | None = None
    status: int | None = None
    cost_usd: float | None = None
    at: float | None = None
    body: str | None = None


# --- columns -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """One column: Arrow type, what a null means ("" = never null), and where the value comes from."""

    name: str
    type: pa.DataType
    null_means: str
    source: str

    def field(self) -> pa.Field:
        """The Arrow field; a column that is never null is declared so."""
        return pa.field(self.name, self.type, nullable=bool(self.null_means))


_IDENTITY: tuple[Column, ...] = (
    Column("row_key", pa.string(), "", "sha256 of what identifies the request (records.row_key_of)"),
    Column("sample_id", pa.string(), "", "the prompt's id, or the imported line's"),
    Column("turn", pa.int32(), "", "which generated turn of the conversation, from 0"),
    Column("sample_index", pa.int32(), "", "which answer to the same prompt, from 0"),
    Column("probe", pa.bool_(), "", "true: a second answer for comparison, never merged"),
    Column("source", pa.string(), "", "who produced it: sglang, vllm, openrouter, or the endpoint's name"),
    Column("origin", pa.string(), "", "how it got here: generate, import, rebuild"),
    Column("provider", pa.string(), "the source has no providers", "reply: display name of who answered"),
    Column("model", pa.string(), "the reply named none and none was assumed", "reply"),
    Column("mode", pa.string(), "", "a mode of the contract: asked for, or assumed (see notes)"),
    Column("contract", pa.string(), "", "name of the contract that the ids were rebuilt under"),
    Column("contract_sha256", pa.string(), "", "sha256 of that contract file"),
)

_PROVENANCE: tuple[Column, ...] = (
    Column("finish_reason", pa.string(), "absent in the reply", "reply, as received"),
    Column("native_finish_reason", pa.string(), "absent in the reply", "reply, as received"),
    Column("prompt_tokens", pa.int32(), "not reported", "reply: usage"),
    Column("completion_tokens", pa.int32(), "not reported", "reply: usage"),
    Column("reasoning_tokens", pa.int32(), "not reported", "reply: usage details"),
    Column("cost_usd", pa.float64(), "not reported", "reply: usage.cost, US dollars"),
    Column("request_id", pa.string(), "absent in the reply", "reply: id"),
    Column("created", pa.int64(), "absent in the reply", "reply: seconds since 1970"),
    Column("latency_s", pa.float64(), "not measured (imports)", "our clock: request sent to reply whole"),
    Column("streamed", pa.bool_(), "unknown (imports)", "how the reply came"),
)

SHARD_COLUMNS: tuple[Column, ...] = (
    *_IDENTITY,
    Column("messages", pa.string(), "the prompt is not known", "JSON: the messages as sent, tool ids rewritten"),
    Column("tools", pa.string(), "no tools were declared", "JSON: the tools as sent"),
    Column("payload", pa.string(), "", "JSON: request and raw reply; enough to rebuild without asking again"),
    Column(
        "reasoning", pa.string(), "absent or null in the reply", "reply; parts in the wrong place moved (see notes)"
    ),
    Column("content", pa.string(), "absent or null in the reply", "reply; parts in the wrong place moved (see notes)"),
    Column("tool_calls", pa.string(), "no call", "JSON list of {id, name, arguments}; arguments as received"),
    *_PROVENANCE,
    Column("output_ids", pa.list_(pa.int32()), "no rule gives ids: rebuild_status says why", "see ids_source"),
    Column("ids_source", pa.string(), "output_ids is null", "engine, given, logprobs, rebuilt"),
    Column(
        "prompt_ids", pa.list_(pa.int32()), "the prompt is not known or cannot be rendered", "see prompt_ids_source"
    ),
    Column("prompt_ids_source", pa.string(), "prompt_ids is null", "engine, given, rendered"),
    Column("rebuild_status", pa.string(), "", "complete, truncated, ambiguous, answer_missing, reasoning_missing"),
    Column("notes", pa.list_(pa.string()), "", "codes of everything the rules noticed or assumed"),
)

MEASURED_COLUMNS: tuple[Column, ...] = (
    Column("n_ids", pa.int32(), "no output_ids", "length of output_ids"),
    Column("n_prompt_ids", pa.int32(), "no prompt_ids", "length of prompt_ids"),
    Column("last_id", pa.int32(), "no output_ids, or empty", "last of output_ids"),
    Column("n_terminal", pa.int32(), "no output_ids", "ids that are a terminal of the contract"),
    Column("n_end_think", pa.int32(), "no output_ids", "ids that end thinking"),
    Column("end_think_at", pa.int32(), "no such id", "index of the first id that ends thinking"),
    Column("n_begin_think", pa.int32(), "no output_ids", "ids that begin thinking"),
    Column("n_tool_calls", pa.int32(), "no output_ids", "ids that begin a tool call"),
    Column("n_control_ids", pa.int32(), "no output_ids", "special ids that belong in no completion"),
    Column("min_id", pa.int32(), "no output_ids, or empty", "smallest id"),
    Column("max_id", pa.int32(), "no output_ids, or empty", "largest id"),
    Column(
        "truncated", pa.bool_(), "", "the answer was cut: engine ids end without a terminal; else as finish reasons say"
    ),
    Column(
        "text_equal",
        pa.bool_(),
        "no output_ids, or no text in the reply",
        "decoded ids are byte for byte the row's text",
    ),
    Column(
        "reencode_equal",
        pa.bool_(),
        "no output_ids, or no text in the reply",
        "the row's text, encoded part by part with another engine than the rebuild's, gives these ids",
    ),
    Column("n_replaced", pa.int32(), "", "U+FFFD in reasoning and content"),
    Column("leading_spaces", pa.int32(), "no text in the reply", "reasoning and content that begin in white space"),
    Column("trailing_spaces", pa.int32(), "no text in the reply", "reasoning and content that end in white space"),
    Column(
        "count_difference", pa.int32(), "no output_ids, or completion_tokens not reported", "n_ids − completion_tokens"
    ),
    Column(
        "reasoning_difference",
        pa.int32(),
        "no id ends thinking, or reasoning_tokens not reported",
        "end_think_at − reasoning_tokens",
    ),
    Column(
        "prompt_difference", pa.int32(), "no prompt_ids, or prompt_tokens not reported", "n_prompt_ids − prompt_tokens"
    ),
    Column(
        "structure",
        pa.string(),
        "nothing wrong, or no output_ids",
        "code of the first thing that the contract's form forbids",
    ),
    Column("provider_matches_source", pa.bool_(), "", "a provider is named if and only if the source has providers"),
)

JUDGED_COLUMNS: tuple[Column, ...] = (
    Column("evidence", pa.string(), "", "engine, logprobs, counted, unverified, contradicted"),
    Column(
        "evidence_reason",
        pa.string(),
        "evidence is engine, logprobs or counted",
        "what is missing or speaks against the ids",
    ),
    Column(
        "count_unexplained",
        pa.int32(),
        "no convention is known, or nothing to compare",
        "count_difference − what the provider's convention predicts",
    ),
    Column("prompt_unexplained", pa.int32(), "nothing to compare", "prompt_difference − the provider's usual one"),
    Column(
        "provider_allowed",
        pa.bool_(),
        "no allow list is configured, or no provider",
        "the provider is on the dataset's allow list",
    ),
)

FACT_COLUMNS: tuple[Column, ...] = (
    *_IDENTITY,
    *_PROVENANCE,
    Column("ids_source", pa.string(), "output_ids is null", "engine, given, logprobs, rebuilt"),
    Column("prompt_ids_source", pa.string(), "prompt_ids is null", "engine, given, rendered"),
    Column("rebuild_status", pa.string(), "", "complete, truncated, ambiguous, answer_missing, reasoning_missing"),
    Column("notes", pa.list_(pa.string()), "", "codes of everything the rules noticed or assumed"),
    Column("shard", pa.string(), "", "sha256 of the shard file"),
    Column("row_index", pa.int32(), "", "position in that shard, from 0"),
    *MEASURED_COLUMNS,
)

QUARANTINE_COLUMNS: tuple[Column, ...] = (
    Column("row_key", pa.string(), "", "as in the shard"),
    Column("sample_id", pa.string(), "", "as in the shard"),
    Column("turn", pa.int32(), "", "as in the shard"),
    Column("sample_index", pa.int32(), "", "as in the shard"),
    Column("shard", pa.string(), "", "sha256 of the shard file"),
    Column("row_index", pa.int32(), "", "position in that shard, from 0"),
    Column("reasons", pa.list_(pa.string()), "", "ids of the critical expectations that the row fails"),
)

TRAIN_COLUMNS: tuple[Column, ...] = (
    Column("id", pa.string(), "", "dataset/sample_id/turn/sample_index"),
    Column("row_key", pa.string(), "", "as in the shard"),
    Column("dataset", pa.string(), "", "folder name"),
    Column("input_ids", pa.list_(pa.int32()), "", "prompt_ids followed by output_ids"),
    Column("loss_mask", pa.list_(pa.int8()), "", "0 on the prompt, 1 on the completion"),
    Column("prompt_len", pa.int32(), "", "number of prompt ids"),
    Column("seq_len", pa.int32(), "", "number of input_ids"),
    Column("n_supervised", pa.int32(), "", "number of ones in loss_mask"),
    Column("source", pa.string(), "", "as in the shard"),
    Column("provider", pa.string(), "the source has no providers", "as in the shard"),
    Column("model", pa.string(), "as in the shard", "as in the shard"),
    Column("mode", pa.string(), "", "as in the shard"),
    Column("ids_source", pa.string(), "", "as in the shard"),
    Column("prompt_ids_source", pa.string(), "", "as in the shard"),
    Column("finish_reason", pa.string(), "absent in the reply", "as in the shard"),
    Column("prompt_tokens", pa.int32(), "not reported", "as in the shard"),
    Column("completion_tokens", pa.int32(), "not reported", "as in the shard"),
    Column("request_id", pa.string(), "absent in the reply", "as in the shard"),
    Column("created", pa.int64(), "absent in the reply", "as in the shard"),
    Column("contract", pa.string(), "", "as in the shard"),
    Column("contract_sha256", pa.string(), "", "as in the shard"),
    Column("messages", pa.string(), "the prompt is not known", "as in the shard"),
    Column("tools", pa.string(), "no tools were declared", "as in the shard"),
    Column("reasoning", pa.string(), "absent in the reply", "as in the shard"),
    Column("content", pa.string(), "absent in the reply", "as in the shard"),
    Column("tool_calls", pa.string(), "no call", "as in the shard"),
    Column("shard", pa.string(), "", "sha256 of the shard file"),
)


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of a column list."""
    return pa.schema([column.field() for column in columns])


SHARD_SCHEMA = schema_of(SHARD_COLUMNS)
FACTS_SCHEMA = schema_of(FACT_COLUMNS)
JUDGED_SCHEMA = schema_of((*FACT_COLUMNS, *JUDGED_COLUMNS))
QUARANTINE_SCHEMA = schema_of(QUARANTINE_COLUMNS)
TRAIN_SCHEMA = schema_of(TRAIN_COLUMNS)


# --- files beside the shards --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveShard:
    """One line of shards.json: a sealed shard that audit and merge read."""

    path: str
    sha256: str
    rows: int
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Asked = answered + failed + unanswered. `asked` is None where there is no prompts.jsonl."""

    asked: int | None
    rows: int
    answered: int | None
    failed: int
    unanswered: int | None
    unsealed: int
    failures_by_reason: Mapping[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Nothing is left to ask and nothing waits in a journal."""
        return self.unsealed == 0 and not self.unanswered


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationResult:
    """The outcome of one expectation of a suite.

    Attributes:
        id: Unique within the suite and short enough for a table; quarantine reasons are such ids.
        scope: "row" (each row passes or fails) or "dataset".
        element_count: Rows that the expectation looked at (after its row condition); None for datasets'.
        unexpected_count: Rows that fail it; None for datasets'.
        observed: What a dataset expectation measured, as text.
        error: Why it could not be evaluated: then it fails.
        examples: A few failing rows: {sample_id, turn, sample_index, value}.
    """

    id: str
    type: str
    severity: Severity
    scope: str
    success: bool
    kwargs: Mapping[str, Json]
    description: str
    mostly: float | None = None
    element_count: int | None = None
    unexpected_count: int | None = None
    observed: str | None = None
    error: str | None = None
    success_after_quarantine: bool | None = None
    examples: tuple[Mapping[str, Json], ...] = ()

    @property
    def unexpected_share(self) -> float | None:
        """Failing rows over rows looked at, 0 to 1."""
        if self.element_count is None or self.unexpected_count is None:
            return None
        return self.unexpected_count / self.element_count if self.element_count else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """One suite, and what came of each of its expectations. `path` is the name of its file."""

    name: str
    path: str
    sha256: str
    max_quarantined_share: float
    results: tuple[ExpectationResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSummary:
    """One line of the table of sources and providers. Token counts are sums over the group's rows."""

    source: str
    provider: str | None
    rows: int
    quarantined: int
    ids: int
    completion_tokens: int
    cost_usd: float
    truncated: int
    evidence: Mapping[str, int]
    convention: str
    convention_support: int
    prompt_offset: int | None
    difference_counts: Mapping[str, int] = field(default_factory=dict)
    median_ids: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an audit found. `passed` follows from the results; `reasons` says in words why not."""

    dataset: str
    created_at: str
    tool_version: str
    kernel_version: int
    contract: str
    contract_sha256: str
    shards: tuple[LiveShard, ...]
    suites: tuple[SuiteRun, ...]
    rows: int
    ids: int
    accounting: Accounting
    sources: Mapping[str, int]
    origins: Mapping[str, int]
    providers: tuple[ProviderSummary, ...]
    evidence: Mapping[str, int]
    statuses: Mapping[str, int]
    notes: Mapping[str, int]
    nulls: Mapping[str, int]
    quarantined: int
    quarantined_by_reason: Mapping[str, int]
    quarantine_sha256: str
    unreadable: tuple[str, ...]
    complete: bool
    passed: bool
    reasons: tuple[str, ...]
    measured_shards: int = 0
    elapsed_s: float = 0.0
    version: int = VERDICT_VERSION


# --- identity -----------------------------------------------------------------------------------


def canonical_json(value: Json) -> bytes:
    """JSON with sorted keys and no spaces, UTF-8: the same bytes for equal values.

    Lone surrogates, which JSON can spell and UTF-8 cannot, become U+FFFD.

    Raises:
        ValueError: nested more than 250 levels deep.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        pass
    try:
        return orjson.dumps(_storable(value), option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):
        raise ValueError("nested too deeply") from None


def _storable(value: Json) -> Json:
    """`value` with lone surrogates replaced and integers beyond 64 bits spelled as text."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, Mapping):
        return {storable_text(str(k)): _storable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(v) for v in value]
    return value


def storable_text(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def row_key_of(
    *,
    contract: str,
    messages: Json,
    tools: Json,
    mode: str,
    sampling: Mapping[str, Json] | None,
    max_tokens: int | None,
    sample_index: int,
    turn: int,
) -> str:
    """Identity of a request: what is asked, never where or how it is sent."""
    return _sha256(
        {
            "contract": contract,
            "messages": messages,
            "tools": tools,
            "mode": mode,
            "sampling": sampling or {},
            "max_tokens": max_tokens,
            "sample_index": sample_index,
            "turn": turn,
        }
    )


def imported_row_key(*, dataset: str, sample_id: str, sample_index: int, turn: int) -> str:
    """Identity of an imported sample whose request is not known."""
    return _sha256({"dataset": dataset, "sample_id": sample_id, "sample_index": sample_index, "turn": turn})


def _sha256(value: Json) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()
