"""Evidence: how we know that each row's ids are right, from the facts of a whole dataset.

What a provider leaves out of its counts is learned (`conventions`), and who alters text is recognised by shares
(`alterations`). Here both are laid over the rows, and each row gets one evidence and, where it is not proved, why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from toolkit.audit.alterations import Alteration, find_alterations
from toolkit.audit.conventions import (
    COUNTS_ALL,
    MIN_EXPLAINED_SHARE,
    MIN_SUPPORT,
    UNKNOWN,
    Hypothesis,
    Learned,
    completion_hypotheses,
    learn,
    prompt_hypotheses,
    reasoning_hypotheses,
)
from toolkit.audit.health.judging import judge_health
from toolkit.audit.onpolicy import judge_history
from toolkit.columns import JUDGED_COLUMNS
from toolkit.contract import Contract
from toolkit.records import Evidence, IdsSource, RebuildStatus

__all__ = ["COUNTS_ALL", "MIN_SUPPORT", "UNKNOWN", "Convention", "Judged", "judge"]

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
class Judged:
    """The facts with `JUDGED_COLUMNS`, rows in the same order, and what was learned about each group."""

    facts: pl.DataFrame
    conventions: list[Convention]
    alterations: list[Alteration]


@dataclass(frozen=True, slots=True)
class _Count:
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


def judge(facts: pl.DataFrame, contract: Contract, *, allowed_providers: tuple[str, ...] = ()) -> Judged:
    """Judge the facts of all shards of a dataset.

    Args:
        facts: Frame of `FACT_COLUMNS`, all shards.
        contract: The dataset's contract.
        allowed_providers: Display names; empty = any.
    """
    completion = _Count("count_difference", "_c", completion_hypotheses(contract))
    prompt = _Count("prompt_difference", "_p", prompt_hypotheses(contract))
    reasoning = _Count("_reasoning_difference", "_r", reasoning_hypotheses())
    rows = facts.with_columns(
        (pl.col("n_tool_markers").fill_null(0) > 0).alias("_calls"),
        is_sound().alias("_sound"),
        # A count of 0 beside a long reasoning is a field that nobody fills in.
        pl.when(pl.col("reasoning_tokens") > 0).then(pl.col("reasoning_difference")).alias("_reasoning_difference"),
    ).with_columns(*completion.columns(), *prompt.columns(), *reasoning.columns())
    conventions = [_learn_group(key, group, completion, prompt, reasoning) for key, group in _groups(rows)]
    alterations = find_alterations(facts)
    named = _with_names(rows, conventions).join(
        _altered(alterations, facts), on=["source", "provider", "model", "mode"], how="left", nulls_equal=True,
        maintain_order="left",
    )  # fmt: skip
    judged = named.with_columns(
        completion.unexplained("_count").alias("count_unexplained"),
        prompt.unexplained("_prompt").alias("prompt_unexplained"),
        # Only a convention that was learned says what this count means: many servers estimate it.
        (pl.col("_reasoning_difference") - reasoning.predicted("_reasoning")).alias("reasoning_unexplained"),
        _allowed(allowed_providers).alias("provider_allowed"),
        (pl.col("model").is_not_null() & ~pl.col("notes").list.contains("model_assumed")).alias("model_named"),
    ).with_columns(_reason().alias("evidence_reason"))
    judged = judged.with_columns(
        _evidence().alias("evidence"),
        pl.col("evidence_reason").str.replace("^(contradicted|unverified):", ""),
        _prompt_evidence().alias("prompt_evidence"),
    )
    judged = judge_health(judged).hstack(judge_history(judged))
    columns = [column.name for column in JUDGED_COLUMNS]
    return Judged(judged.select(*facts.columns, *columns), conventions, alterations)


# --- learning --------------------------------------------------------------------------------------


def is_sound() -> pl.Expr:
    """Rows that can teach a convention: ids rebuilt or given, and nothing wrong with them but the count."""
    from_text = pl.col("ids_source").is_in([str(IdsSource.REBUILT), str(IdsSource.GIVEN)])
    return from_text & pl.col("structure").is_null() & pl.col("text_equal").fill_null(False)


def _groups(rows: pl.DataFrame) -> Iterator[tuple[tuple[object, ...], pl.DataFrame]]:
    yield from rows.group_by(*GROUP, maintain_order=True)


def _learn_group(
    key: Sequence[object], group: pl.DataFrame, completion: _Count, prompt: _Count, reasoning: _Count
) -> Convention:
    source, provider, model, streamed = key
    sound = group.filter(pl.col("_sound"))
    learned = learn(sound, completion.observed, _columns(completion))
    learned_prompt = learn(group, prompt.observed, _columns(prompt))
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
        learned_reasoning=learn(sound, reasoning.observed, _columns(reasoning)),
        learned_prompt=learned_prompt,
        shapes=_learn_shapes(sound, learned, completion),
    )


def _learn_shapes(sound: pl.DataFrame, whole: Learned, count: _Count) -> dict[tuple[str, bool, bool], Learned]:
    """Shapes that the group's own convention does not explain, with what was learned from them alone."""
    shapes: dict[tuple[str, bool, bool], Learned] = {}
    compared = sound.filter(pl.col(count.observed).is_not_null()).with_columns(pl.lit(whole.name).alias("_whole"))
    for (mode, truncated, calls), rows in compared.group_by(*SHAPE, maintain_order=True):
        if len(rows) < MIN_SUPPORT:
            continue
        holds = int(rows.select((pl.col(count.observed) == count.predicted("_whole")).sum()).item())
        if holds >= MIN_EXPLAINED_SHARE * len(rows):
            continue
        learned = learn(rows, count.observed, _columns(count))
        if learned.known:
            shapes[(str(mode), bool(truncated), bool(calls))] = learned
    return shapes


def _columns(count: _Count) -> list[Hypothesis]:
    """The hypotheses over the columns that were computed once for all groups."""
    return [Hypothesis(h.name, pl.col(f"{count.prefix}{i}")) for i, h in enumerate(count.hypotheses)]


def _with_names(rows: pl.DataFrame, conventions: Sequence[Convention]) -> pl.DataFrame:
    """Columns `_count`, `_prompt` and `_reasoning`: the name of the convention of each row."""
    groups = pl.DataFrame(
        [(c.source, c.provider, c.model, c.streamed, c.completion, c.prompt, c.learned_reasoning.name)
         for c in conventions],
        schema={**_GROUP_TYPES, "_whole": pl.String, "_prompt": pl.String, "_reasoning": pl.String},
        orient="row",
    )  # fmt: skip
    shapes = pl.DataFrame(
        [(c.source, c.provider, c.model, c.streamed, *shape, learned.name)
         for c in conventions for shape, learned in c.shapes.items()],
        schema={**_GROUP_TYPES, "mode": pl.String, "truncated": pl.Boolean, "_calls": pl.Boolean, "_shape": pl.String},
        orient="row",
    )  # fmt: skip
    named = rows.join(groups, on=list(GROUP), how="left", nulls_equal=True, maintain_order="left")
    named = named.join(shapes, on=[*GROUP, *SHAPE], how="left", nulls_equal=True, maintain_order="left")
    return named.with_columns(pl.coalesce("_shape", "_whole").alias("_count"))


_GROUP_TYPES: dict[str, type[pl.DataType]] = {
    "source": pl.String, "provider": pl.String, "model": pl.String, "streamed": pl.Boolean,
}  # fmt: skip


def _altered(alterations: Sequence[Alteration], facts: pl.DataFrame) -> pl.DataFrame:
    """Column `text_altered`: what a group does to text."""
    found = {(a.source, a.provider, a.model, a.mode): a.code for a in reversed(alterations)}
    names = ("source", "provider", "model", "mode")
    return pl.DataFrame(
        [(*key, code) for key, code in found.items()],
        schema={**{name: facts.schema[name] for name in names}, "text_altered": pl.String},
        orient="row",
    )


# --- judging ---------------------------------------------------------------------------------------


def _allowed(providers: tuple[str, ...]) -> pl.Expr:
    if not providers:
        return pl.lit(None, dtype=pl.Boolean)
    return pl.col("provider").str.to_lowercase().is_in([provider.lower() for provider in providers])


def _reason() -> pl.Expr:
    """Why a row is not proved, `kind:reason`; null for rows that are. The first that holds."""
    source = pl.col("ids_source")
    own = source.is_in([str(IdsSource.ENGINE), str(IdsSource.LOGPROBS)]).fill_null(False)
    off = pl.col("count_unexplained").fill_null(0)
    rules: list[tuple[pl.Expr, str]] = [
        (source.is_null(), "unverified:no_ids"),
        (pl.col("structure").is_not_null(), "contradicted:structure"),
        (~pl.col("text_equal").fill_null(True), "contradicted:text"),
        # An engine counts what it sends: another count says that ids are missing, whatever the text shows.
        ((source == str(IdsSource.ENGINE)) & (pl.col("count_difference").fill_null(0) != 0), "contradicted:count"),
        (own, ""),
        ((source == str(IdsSource.REBUILT)) & ~pl.col("reencode_equal").fill_null(True), "contradicted:encoding"),
        # With a space after each separator the count would agree: the server wrote the arguments anew.
        ((off != 0) & (off + pl.col("respaced_ids").fill_null(0) == 0), "contradicted:tool_json_reserialised"),
        (off != 0, "contradicted:count"),
        (pl.col("reasoning_unexplained").fill_null(0) != 0, "contradicted:reasoning_count"),
        (pl.col("text_equal").is_null(), "unverified:no_text"),
        (~pl.col("rebuild_status").is_in(_SETTLED), "unverified:rebuild_status"),
        (pl.col("completion_tokens").is_null(), "unverified:no_count"),
        (pl.col("count_unexplained").is_null(), "unverified:convention_unknown"),
        (pl.col("text_altered").is_not_null(), "unverified:text_altered"),
    ]
    reason = pl.lit("")
    for condition, code in reversed(rules):
        reason = pl.when(condition).then(pl.lit(code)).otherwise(reason)
    return pl.when(reason == "").then(None).otherwise(reason)


_SETTLED = [str(RebuildStatus.COMPLETE), str(RebuildStatus.TRUNCATED)]


def _evidence() -> pl.Expr:
    reason = pl.col("evidence_reason")
    return (
        pl.when(reason.str.starts_with("contradicted:"))
        .then(pl.lit(str(Evidence.CONTRADICTED)))
        .when(reason.is_not_null())
        .then(pl.lit(str(Evidence.UNVERIFIED)))
        .when(pl.col("ids_source") == str(IdsSource.ENGINE))
        .then(pl.lit(str(Evidence.ENGINE)))
        .when(pl.col("ids_source") == str(IdsSource.LOGPROBS))
        .then(pl.lit(str(Evidence.LOGPROBS)))
        .otherwise(pl.lit(str(Evidence.COUNTED)))
    )


def _prompt_evidence() -> pl.Expr:
    """The same words for the prompt: whether the answer is one to the prompt that we would train on."""
    return (
        pl.when(pl.col("n_prompt_ids").is_null())
        .then(pl.lit(str(Evidence.UNVERIFIED)))
        .when(pl.col("prompt_unexplained").fill_null(0) != 0)
        .then(pl.lit(str(Evidence.CONTRADICTED)))
        .when(pl.col("prompt_ids_source") == str(IdsSource.ENGINE))
        .then(pl.lit(str(Evidence.ENGINE)))
        .when(pl.col("prompt_unexplained").is_null())
        .then(pl.lit(str(Evidence.UNVERIFIED)))
        .otherwise(pl.lit(str(Evidence.COUNTED)))
    )
