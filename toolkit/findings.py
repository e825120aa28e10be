"""What an audit learns beside its expectations, in the form that verdict.json holds. Data only.

Every sequence here is bounded by whoever makes it: a hostile server can invent names, not the size of a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ROWS_NAMED = 3
"""Rows that speak against a convention and are named in a verdict, for each convention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that shows in many rows together and in no single one. It is shown; suites alone close the gate.

    Attributes:
        code: Short and stable, for machines: `completion_convention_changed`, `trait_changed` …
        severity: `warning` or `info`.
        says: One plain sentence.
        shard: sha256 of the shard in which it begins; None where it has no beginning.
        row: `sample_id/turn/sample_index` of the first row of it.
        created: The reply's own time of that row, seconds since 1970.
        rows: How many rows it concerns.
    """

    code: str
    severity: str
    says: str
    source: str | None = None
    provider: str | None = None
    model: str | None = None
    mode: str | None = None
    shard: str | None = None
    row: str | None = None
    created: int | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A convention that was not chosen, how many rows speak against it, and some of them by name."""

    name: str
    rows: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How one kind of count is made, learned from rows.

    Attributes:
        name: The convention in words; `unknown` where none was learned, and then `why` says why not.
        rows: Rows that could be compared.
        support: Rows that the convention explains.
        explained: Rows that any convention explains.
        confidence: Lower end of the 95 % Wilson interval of support / explained, 0 to 1.
        same: Conventions that say the same of every row.
        excluded: The others, with rows that speak against each.
    """

    name: str
    rows: int
    support: int
    explained: int
    confidence: float
    why: str = ""
    same: tuple[str, ...] = ()
    excluded: tuple[Rival, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A shape of answers that its group counts in a way of its own."""

    mode: str
    truncated: bool
    calls: bool
    count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ConventionFound:
    """How one (source, provider, model, streamed) counts completions, reasoning and prompts."""

    source: str
    provider: str | None
    model: str | None
    streamed: bool | None
    completion: Count
    reasoning: Count
    prompt: Count
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterationFound:
    """What one provider does to text, recognised by shares.

    Attributes:
        code: `trims` or `reserialises`.
        says: What its texts lack.
        rows: Parts that could have it; `hits` of them do.
        reference: Who has it; `reference_share` is the lower end of that share's 95 % interval, 0 to 1.
    """

    source: str
    provider: str | None
    model: str | None
    mode: str
    code: str
    says: str
    rows: int
    hits: int
    reference: str
    reference_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationClass:
    """One class of text of the calibration. Shares are 0 to 1; `low` and `high` are 95 % Wilson bounds.

    Attributes:
        name: `all`, or a value of the fact `text_class`.
        rows: Engine rows of that class that were rebuilt from their own text.
        ids: Their ids.
        differing: Rows whose ids the rules do not give exactly; `differing_low` and `differing_high` bound its share.
        agreeing: Rows for which the rules give as many ids as the engine.
        wrong: Rows of these whose ids are others all the same; `wrong_low` and `wrong_high` bound its share.
    """

    name: str
    rows: int
    ids: int
    differing: int
    differing_low: float
    differing_high: float
    agreeing: int
    wrong: int
    wrong_low: float
    wrong_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How often our rules give an engine's own ids from its text.

    Attributes:
        says: What follows for rows whose ids were rebuilt, with its limits.
        left_out: Engine rows that cannot be compared: no text, a text that is not the ids', or a wrong structure.
        classes: `all` first, then the classes that occur.
    """

    says: str
    left_out: int
    classes: tuple[CalibrationClass, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeComparison:
    """Answers of two sources to the same questions, held against each other.

    Attributes:
        source, provider: Who gave the dataset's own answers; `probe_source`, `probe_provider`: who was asked again.
        pairs: Questions that both answered, in the same mode, with ids.
        exact: Pairs whose ids are the same throughout.
        first_difference: Median index of the first id that differs; None where no pair differs.
        length_ratio: Median of the probe's ids over ours.
    """

    source: str
    provider: str | None
    probe_source: str
    probe_provider: str | None
    mode: str
    pairs: int
    exact: int
    first_difference: float | None
    length_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFacts:
    """One line of the providers table; `columns.PROVIDER_COLUMNS` says what each value and each None means."""

    name: str
    source: str
    provider: str | None
    mode: str
    rows: int
    share: float
    models: int
    foreign_model_rows: int
    not_allowed_rows: int
    proved_share: float
    unverified_share: float
    contradicted_share: float
    finish_rows: int
    length_share: float | None
    length_gap: float | None
    length_z: float | None
    tool_calls_share: float | None
    tool_calls_gap: float | None
    tool_calls_z: float | None
    measured_rows: int
    other_rows: int
    median_ids: float | None
    median_ratio: float | None
    ks_distance: float | None
    ks_p: float | None
    empty_reasoning_share: float | None
    empty_answer_share: float
    marker_rows: int
    tool_rows: int
    schema_ok_rows: int
    schema_lower: float | None
    schema_upper: float | None
    tool_id_faults: int
    trigger_reference: str | None
    trigger_prompts: int
    trigger_calls: int
    trigger_f1: float | None
    usage_rows: int
    usage_drift_share: float | None
    convention_changes: int
    cost_per_million_usd: float | None
    latency_p50_s: float | None
    latency_p95_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Rows by who said the assistant's part of their prompt; rows without such a part are not counted.

    Attributes:
        own: Our own answers to the earlier turns of the same sample.
        foreign: A later turn whose history is not what we answered before: off-policy.
        given: The prompt's author wrote it.
    """

    own: int = 0
    foreign: int = 0
    given: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Everything of this module that one audit found."""

    conventions: tuple[ConventionFound, ...] = ()
    alterations: tuple[AlterationFound, ...] = ()
    findings: tuple[Finding, ...] = ()
    calibration: Calibration | None = None
    probes: tuple[ProbeComparison, ...] = ()
    providers: tuple[ProviderFacts, ...] = ()
    history: History = field(default_factory=History)
    left_off: Mapping[str, int] = field(default_factory=dict)
    """What was too long for a verdict: name of the field → how many are not named."""
