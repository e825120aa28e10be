"""What the rows of a dataset teach together, before any of them is judged: how providers count, and what they alter.

Facts are read once, a shard at a time and in few columns; what is kept of a shard are sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from toolkit.audit.alterations import TRAITS_READ, Alteration, count_traits, find_alterations
from toolkit.audit.conventions import (
    MIN_EXPLAINED_SHARE,
    MIN_SUPPORT,
    Learned,
    completion_hypotheses,
    learn_from,
    prompt_hypotheses,
    reasoning_hypotheses,
)
from toolkit.audit.fact_files import AT, FactSource
from toolkit.audit.tallies import Hypothesis, Lines, add_up, tally
from toolkit.contract import Contract
from toolkit.records import IdsSource

GROUP = ("source", "provider", "model", "streamed")
"""A convention belongs to one of these."""

SHAPE = ("mode", "truncated", "_calls")
"""Where a group counts shapes of answers in different ways, each shape has a convention of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """How one group counts.

    Attributes:
        completion: The convention of completion_tokens, `UNKNOWN` where none was learned.
        completion_support: Rows that it explains.
        shapes: Shapes that are counted otherwise: (mode, truncated, has calls) → what was learned there.
    """

    source: str
    provider: str | None
    model: str | None
    streamed: bool | None
    completion: str
    completion_support: int
    prompt: str
    prompt_support: int
    learned: Learned
    learned_reasoning: Learned
    learned_prompt: Learned
    shapes: dict[tuple[str, bool, bool], Learned]


@dataclass(frozen=True, slots=True)
class Count:
    """One kind of count: the fact with its difference, and what may explain it."""

    observed: str
    prefix: str
    hypotheses: list[Hypothesis]

    def columns(self) -> Iterator[pl.Expr]:
        """What each hypothesis predicts, as columns `prefix0`, `prefix1` …"""
        for i, hypothesis in enumerate(self.hypotheses):
            yield hypothesis.difference.cast(pl.Int32).alias(f"{self.prefix}{i}")

    def predicted(self, by: str) -> pl.Expr:
        """The difference that the convention named in column `by` predicts; null where it is unknown."""
        predicted = pl.lit(None, dtype=pl.Int32)
        for i, hypothesis in enumerate(self.hypotheses):
            predicted = pl.when(pl.col(by) == hypothesis.name).then(pl.col(f"{self.prefix}{i}")).otherwise(predicted)
        return predicted

    def explainable(self) -> pl.Expr:
        """Whether any convention explains the row's difference."""
        hits = (
            (pl.col(self.observed) == pl.col(f"{self.prefix}{i}")).fill_null(False) for i in range(len(self.hypotheses))
        )
        return pl.any_horizontal(*hits)

    def unexplained(self, by: str) -> pl.Expr:
        """Difference − prediction; null where nothing is known and some convention may explain it.

        What no convention explains is a fault of the row even where none was learned.
        """
        observed = pl.col(self.observed)
        return observed - pl.coalesce(
            self.predicted(by), pl.when(self.explainable()).then(None).otherwise(pl.lit(0, dtype=pl.Int32))
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """The three counts that a reply reports."""

    completion: Count
    prompt: Count
    reasoning: Count

    @classmethod
    def of(cls, contract: Contract) -> Counts:
        """What may explain each under a contract."""
        return cls(
            Count("count_difference", "_c", completion_hypotheses(contract)),
            Count("prompt_difference", "_p", prompt_hypotheses(contract)),
            Count("_reasoning_difference", "_r", reasoning_hypotheses()),
        )

    def prepared(self, facts: pl.DataFrame) -> pl.DataFrame:
        """The facts with what learning and judging read: `_calls`, `_sound`, `_reasoning_difference`, and what each
        hypothesis predicts."""
        return facts.with_columns(
            (pl.col("n_tool_markers").fill_null(0) > 0).alias("_calls"),
            is_sound().alias("_sound"),
            # A count of 0 beside a long reasoning is a field that nobody fills in.
            pl.when(pl.col("reasoning_tokens") > 0).then(pl.col("reasoning_difference")).alias("_reasoning_difference"),
        ).with_columns(*self.completion.columns(), *self.prompt.columns(), *self.reasoning.columns())

    def reads(self) -> tuple[str, ...]:
        """Columns of the facts that `prepared` reads."""
        hypotheses = (*self.completion.hypotheses, *self.prompt.hypotheses, *self.reasoning.hypotheses)
        roots = [name for h in hypotheses for name in h.difference.meta.root_names()]
        return tuple(dict.fromkeys([*_READ, *roots]))


_READ = (
    *GROUP, "mode", "truncated", "sample_id", "turn", "sample_index", "ids_source", "structure", "text_equal",
    "n_tool_markers", "count_difference", "prompt_difference", "reasoning_difference", "reasoning_tokens",
)  # fmt: skip


def is_sound() -> pl.Expr:
    """Rows that can teach a convention: ids rebuilt or given, and nothing wrong with them but the count."""
    from_text = pl.col("ids_source").is_in([str(IdsSource.REBUILT), str(IdsSource.GIVEN)])
    return from_text & pl.col("structure").is_null() & pl.col("text_equal").fill_null(False)


@dataclass(slots=True)
class _Sums:
    """What is kept of the shards."""

    groups: list[pl.DataFrame] = field(default_factory=list)
    completion: list[pl.DataFrame] = field(default_factory=list)
    prompt: list[pl.DataFrame] = field(default_factory=list)
    reasoning: list[pl.DataFrame] = field(default_factory=list)
    traits: list[list[pl.DataFrame]] = field(default_factory=list)


def learn_providers(facts: FactSource, counts: Counts) -> tuple[list[Convention], list[Alteration]]:
    """What each group counts and alters, in the order in which the groups appear."""
    sums = _Sums()
    for first, part in facts.each(list(dict.fromkeys([*counts.reads(), *TRAITS_READ]))):
        rows = counts.prepared(part.with_row_index(AT, first))
        sound = rows.filter("_sound")
        sums.groups.append(rows.group_by(*GROUP).agg(pl.col(AT).min()))
        for kept, keys, taught, count in (
            (sums.completion, (*GROUP, *SHAPE), sound, counts.completion),
            (sums.reasoning, GROUP, sound, counts.reasoning),
            (sums.prompt, GROUP, rows, counts.prompt),
        ):
            kept.append(tally(taught, keys, count.observed, _computed(count)))
        sums.traits.append(count_traits(rows))
    if not sums.groups:
        return [], []
    return _conventions(sums, counts), find_alterations(sums.traits)


def _computed(count: Count) -> list[Hypothesis]:
    """The hypotheses over the columns that were computed once for all groups."""
    return [Hypothesis(h.name, pl.col(f"{count.prefix}{i}")) for i, h in enumerate(count.hypotheses)]


def _conventions(sums: _Sums, counts: Counts) -> list[Convention]:
    groups = pl.concat(sums.groups).group_by(*GROUP).agg(pl.col(AT).min()).sort(AT)
    completion = add_up(sums.completion, (*GROUP, *SHAPE))
    prompt, reasoning = add_up(sums.prompt, GROUP), add_up(sums.reasoning, GROUP)
    tallies = (completion, prompt, reasoning)
    by_group = [tallied.partition_by(*GROUP, as_dict=True) for tallied in tallies]
    found = []
    for key in groups.select(GROUP).iter_rows():
        parts = (by.get(key, whole.clear()) for by, whole in zip(by_group, tallies, strict=True))
        found.append(_convention(key, *parts, counts=counts))
    return found


def _convention(
    key: Sequence[object], completion: pl.DataFrame, prompt: pl.DataFrame, reasoning: pl.DataFrame, *, counts: Counts
) -> Convention:
    source, provider, model, streamed = key
    learned = learn_from(completion, counts.completion.hypotheses)
    learned_prompt = learn_from(prompt, counts.prompt.hypotheses)
    return Convention(
        source=str(source),
        provider=None if provider is None else str(provider),
        model=None if model is None else str(model),
        streamed=None if streamed is None else bool(streamed),
        completion=learned.name,
        completion_support=learned.support,
        prompt=learned_prompt.name,
        prompt_support=learned_prompt.support,
        learned=learned,
        learned_reasoning=learn_from(reasoning, counts.reasoning.hypotheses),
        learned_prompt=learned_prompt,
        shapes=_learn_shapes(completion, learned, counts.completion),
    )


def _learn_shapes(tallied: pl.DataFrame, whole: Learned, count: Count) -> dict[tuple[str, bool, bool], Learned]:
    """Shapes that the group's own convention does not explain, with what was learned from them alone."""
    shapes: dict[tuple[str, bool, bool], Learned] = {}
    names = [hypothesis.name for hypothesis in count.hypotheses]
    for (mode, truncated, calls), own in tallied.group_by(*SHAPE, maintain_order=True):
        lines = Lines.of(own)
        rows = int(lines.rows.sum())
        if rows < MIN_SUPPORT:
            continue
        holds = lines.count(lines.hit(names.index(whole.name))) if whole.known else 0
        if holds >= MIN_EXPLAINED_SHARE * rows:
            continue
        learned = learn_from(own, count.hypotheses)
        if learned.known:
            shapes[(str(mode), bool(truncated), bool(calls))] = learned
    return shapes
