"""Types and schemas of everything that crosses a file boundary.

What is made and changed for every reply is a struct: frozen dataclasses take six times as long to make, and thirty
times as long to copy with a change.

Column names, their types and what a null means stand here and nowhere else; the tables in
ARCHITECTURE.md are held against them by a test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import orjson

from toolkit.findings import Learned

SCHEMA_VERSION = 1
"""Version of the shard schema; a shard of another version is refused."""

KERNEL_VERSION = 6
"""Version of `measure`: part of the name of cached facts and of every verdict. Raise it with each change of a fact."""

DEFAULT_MAX_QUARANTINED_SHARE = 0.05
"""The largest share of rows in quarantine, 0 to 1, where a suite states none."""

MISSING_NAMED = 20
"""Asks without an answer that a verdict names; the others are counted."""

VERDICT_VERSION = 2
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


class Standing(StrEnum):
    """What a suite or contract file is to the one of the same name that comes with the tool.

    `shipped`: the same bytes; `own`: there is none of that name; `edited`: the name of a shipped one, other bytes.
    """

    SHIPPED = "shipped"
    OWN = "own"
    EDITED = "edited"


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


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it came, its text untouched. `None` means that the field was absent or null.

    Attributes:
        pieces: Bytes of each sampled token, where per-token logprobs showed all of them.
        undivided: The whole output as the engine decoded it, not divided into parts ("" where it decodes nothing):
            then the row's parts are read from the ids.
    """

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
    pieces: tuple[bytes, ...] | None = None
    undivided: str | None = None
    notes: tuple[str, ...] = ()


class Ask(msgspec.Struct, frozen=True, kw_only=True):
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


class Entry(msgspec.Struct, frozen=True, kw_only=True):
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
    probe: bool = False
    row_key: str | None = None
    provider: str | None = None
    model: str | None = None
    status: int | None = None
    cost_usd: float | None = None
    at: float | None = None
    body: str | None = None


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
    """Asked = answered + failed + unanswered. `asked` is None where there is no prompts.jsonl.

    Attributes:
        failures_by_reason: The sum of the next three.
        failed_by_reason: Asks that failed for good and are not repeated.
        repeated_by_reason: Asks without an answer that failed before and are asked again, by the latest failure.
        lines_by_reason: Imported lines that gave no row.
        missing: (sample_id, turn, sample_index) of the first asks without an answer, at most `MISSING_NAMED`.
        missing_reasons: For each of `missing` why what came for it gave no row; empty where nothing came.
        changed: Of the answered asks those whose row answers another request than prompts and settings state now.
        changed_imports: Of the answered asks those whose imported row holds another prompt than stands there now.
        first_changed, first_changed_imports: (sample_id, turn, sample_index) of the first of them.
        journaled: Lines of the journal, those included that a shard holds already and those of probes.
        at_work: Whether a run over the dataset is at work.
    """

    asked: int | None
    rows: int
    answered: int | None
    failed: int
    unanswered: int | None
    unsealed: int
    failures_by_reason: Mapping[str, int] = field(default_factory=dict)
    failed_by_reason: Mapping[str, int] = field(default_factory=dict)
    repeated_by_reason: Mapping[str, int] = field(default_factory=dict)
    lines_by_reason: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[tuple[str, int, int], ...] = ()
    missing_reasons: tuple[str, ...] = ()
    changed: int = 0
    changed_imports: int = 0
    first_changed: tuple[tuple[str, int, int], ...] = ()
    first_changed_imports: tuple[tuple[str, int, int], ...] = ()
    journaled: int = 0
    at_work: bool = False

    @property
    def complete(self) -> bool:
        """Nothing is left to ask, every row answers what is asked now, and no run has anything under way."""
        return not (self.unsettled or self.unanswered or self.changed or self.changed_imports)

    @property
    def unsettled(self) -> bool:
        """A run is at work, or was killed and left replies in the journal: the rows are not yet what they will be."""
        return self.at_work or self.unsealed > 0 or self.journaled > 0


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
        fault: What is wrong where it fails, in a sentence; None where the suite states none.
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
    fault: str | None = None

    @property
    def unexpected_share(self) -> float | None:
        """Failing rows over rows looked at, 0 to 1."""
        if self.element_count is None or self.unexpected_count is None:
            return None
        return self.unexpected_count / self.element_count if self.element_count else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """One suite, and what came of each of its expectations.

    `path` is its file as seen from the workspace, or the file's own name where it lies elsewhere.
    """

    name: str
    path: str
    sha256: str
    max_quarantined_share: float
    results: tuple[ExpectationResult, ...]
    standing: Standing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSummary:
    """One line of the table of sources and providers. Token counts are sums over the group's rows.

    `evidence_reasons` counts the codes of rows that are unverified or contradicted.
    """

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
    evidence_reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an audit found. `passed` follows from the results; `reasons` says in words why not.

    Attributes:
        allowed_providers: The dataset's allow list; empty: any provider.
        evidence_reasons: Codes of the rows that are unverified or contradicted, and how many rows bear each.
        left_out: Rows that a merge would not write, by the first reason that holds; None in older verdicts.
        prompts_sha256: Of prompts.jsonl as it was audited; None where there was none.
        facts: sha256 of each shard → sha256 of the file of its facts.
        learned: What shows in many rows together: conventions, drift, calibration, the providers table.
        has_renderer: Whether the contract renders prompts; None in older verdicts.
        strays: Files among the shards that shards.json does not list; with any of them nothing is complete.
    """

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
    contract_standing: Standing | None = None
    allowed_providers: tuple[str, ...] | None = None
    evidence_reasons: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] | None = None
    prompts_sha256: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    learned: Learned = field(default_factory=Learned)
    has_renderer: bool | None = None
    strays: tuple[str, ...] = ()
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
    if is_storable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_storable(text: str) -> bool:
    """Whether `text` can be written as UTF-8: whether it holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
