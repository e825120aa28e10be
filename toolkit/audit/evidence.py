"""Evidence: how we know that each row's ids are right, from the facts of a whole dataset.

What a provider leaves out of its counts is learned (`conventions`), and who alters text is recognised by shares
(`alterations`). Here both are laid over the rows, and each row gets one evidence and, where it is not proved, why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from toolkit.audit.alterations import Alteration
from toolkit.audit.conventions import COUNTS_ALL, MIN_SUPPORT, UNKNOWN
from toolkit.audit.fact_files import FactSource, FactTable
from toolkit.audit.health.judging import HealthLessons, judge_health, learn_health
from toolkit.audit.learning import GROUP, SHAPE, Convention, Counts, learn_providers
from toolkit.audit.onpolicy import Spoken, judge_history, learn_spoken
from toolkit.columns import JUDGED_COLUMNS
from toolkit.contract import Contract
from toolkit.records import Evidence, IdsSource, RebuildStatus

__all__ = [
    "COUNTS_ALL", "GROUP", "MIN_SUPPORT", "UNKNOWN", "Convention", "Judged", "Lessons", "judge", "judge_part",
    "learn_all",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """The facts with `JUDGED_COLUMNS`, rows in the same order, and what was learned about each group."""

    facts: pl.DataFrame
    conventions: list[Convention]
    alterations: list[Alteration]


@dataclass(frozen=True, slots=True)
class Lessons:
    """What a whole dataset teaches about each of its rows; small, whatever the dataset's size, but for `health` and
    `spoken` (8 bytes of each repeated answer and prompt, and of each answer of a conversation)."""

    conventions: list[Convention]
    alterations: list[Alteration]
    health: HealthLessons
    spoken: Spoken


def judge(facts: pl.DataFrame, contract: Contract, *, allowed_providers: tuple[str, ...] = ()) -> Judged:
    """Judge facts that are in memory.

    Args:
        facts: Frame of `FACT_COLUMNS`, all shards.
        contract: The dataset's contract.
        allowed_providers: Display names; empty = any.
    """
    lessons = learn_all(FactTable(facts), contract)
    judged = judge_part(facts, lessons, contract, allowed_providers=allowed_providers)
    return Judged(judged, lessons.conventions, lessons.alterations)


def learn_all(facts: FactSource, contract: Contract) -> Lessons:
    """What can only be learned from all rows of a dataset."""
    conventions, alterations = learn_providers(facts, Counts.of(contract))
    return Lessons(conventions, alterations, learn_health(facts), learn_spoken(facts))


def judge_part(
    facts: pl.DataFrame, lessons: Lessons, contract: Contract, *, allowed_providers: tuple[str, ...] = ()
) -> pl.DataFrame:
    """The facts of any rows of a dataset with `JUDGED_COLUMNS`, rows in the same order.

    Args:
        facts: Frame of `FACT_COLUMNS`, such as one shard.
        lessons: What the whole dataset taught.
        contract: The dataset's contract.
        allowed_providers: Display names; empty = any.
    """
    counts = Counts.of(contract)
    named = _with_names(counts.prepared(facts), lessons.conventions).join(
        _altered(lessons.alterations, facts), on=["source", "provider", "model", "mode"], how="left", nulls_equal=True,
        maintain_order="left",
    )  # fmt: skip
    judged = named.with_columns(
        counts.completion.unexplained("_count").alias("count_unexplained"),
        counts.prompt.unexplained("_prompt").alias("prompt_unexplained"),
        # Only a convention that was learned says what this count means: many servers estimate it.
        (pl.col("_reasoning_difference") - counts.reasoning.predicted("_reasoning")).alias("reasoning_unexplained"),
        _allowed(allowed_providers).alias("provider_allowed"),
        (pl.col("model").is_not_null() & ~pl.col("notes").list.contains("model_assumed")).alias("model_named"),
    ).with_columns(_reason().alias("evidence_reason"))
    judged = judged.with_columns(
        _evidence().alias("evidence"),
        pl.col("evidence_reason").str.replace("^(contradicted|unverified):", ""),
        _prompt_evidence().alias("prompt_evidence"),
    )
    judged = judge_health(judged, lessons.health).hstack(judge_history(judged, lessons.spoken))
    columns = [column.name for column in JUDGED_COLUMNS]
    return judged.select(*facts.columns, *columns)


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
