"""Evidence: how we know that each row's ids are right, from the facts of a whole dataset.

Providers count differently: some leave out the terminal, some every special id. What a provider leaves
out is learned from its rows, and only from what the contract can explain: an unexplainable difference
is a fault of the row, however many rows show it.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from toolkit.contract import Contract
from toolkit.records import Evidence, IdsSource, RebuildStatus

GROUP = ("source", "provider", "model")
"""A convention belongs to one of these."""

MIN_SUPPORT = 30
"""Rows that must tell a convention from "counts every id" before it is believed."""

MAX_RIVAL_SHARE = 0.2
"""Two conventions that both explain more than this share of rows, which the other does not: unknown."""

UNKNOWN = "unknown"
COUNTS_ALL = "counts every id"


@dataclass(frozen=True, slots=True)
class _Hypothesis:
    name: str
    difference: pl.Expr


def _count_hypotheses(contract: Contract) -> list[_Hypothesis]:
    """What completion_tokens may leave out, simplest first: n_ids − completion_tokens as each predicts it."""
    terminal, end_think = pl.col("n_terminal"), pl.col("n_end_think")
    hypotheses = [_Hypothesis(COUNTS_ALL, pl.lit(0)), _Hypothesis("leaves out the terminal", terminal)]
    if contract.think is not None:
        hypotheses += [
            _Hypothesis("leaves out the end of thinking", end_think),
            _Hypothesis("leaves out the terminal and the end of thinking", terminal + end_think),
        ]
    if contract.tools is not None:
        calls = pl.col("n_tool_calls")
        markers = pl.when(calls > 0).then(2 + 3 * calls).otherwise(0)
        hypotheses.append(_Hypothesis("leaves out every special id", terminal + end_think + markers))
    return hypotheses


def _prompt_hypotheses(contract: Contract) -> list[_Hypothesis]:
    """What prompt_tokens may leave out. A surplus has no explanation: it is another prompt."""
    tail = pl.col("mode").replace_strict(
        {name: len(mode.prompt_ends_with) for name, mode in contract.modes.items()}, default=0, return_dtype=pl.Int32
    )
    return [_Hypothesis(COUNTS_ALL, pl.lit(0)), _Hypothesis("leaves out the prompt's tail", tail)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """How one group counts. `support`: the rows that the convention explains."""

    source: str
    provider: str | None
    model: str | None
    completion: str
    completion_support: int
    prompt: str
    prompt_support: int


def judge(
    facts: pl.DataFrame, contract: Contract, *, allowed_providers: tuple[str, ...] = ()
) -> tuple[pl.DataFrame, list[Convention]]:
    """Add `JUDGED_COLUMNS` to the facts of all shards of a dataset.

    Args:
        facts: Frame of `FACT_COLUMNS`, all shards.
        contract: The dataset's contract.
        allowed_providers: Display names; empty = any.

    Returns:
        The frame with the judged columns, rows in the same order, and what was learned for each group.
    """
    learned = facts.with_columns(
        _sound().alias("_sound"),
        *(h.difference.cast(pl.Int32).alias(f"_c{i}") for i, h in enumerate(_count_hypotheses(contract))),
        *(h.difference.cast(pl.Int32).alias(f"_p{i}") for i, h in enumerate(_prompt_hypotheses(contract))),
    )
    conventions = _learn(learned, contract)
    names = _count_hypotheses(contract), _prompt_hypotheses(contract)
    table = pl.DataFrame(
        [(c.source, c.provider, c.model, c.completion, c.prompt) for c in conventions],
        schema=dict.fromkeys((*GROUP, "_count", "_prompt"), pl.String),
        orient="row",
    )
    joined = learned.join(table, on=list(GROUP), how="left", nulls_equal=True, maintain_order="left")
    joined = joined.with_columns(
        (pl.col("count_difference") - _predicted("_count", "_c", names[0])).alias("count_unexplained"),
        (pl.col("prompt_difference") - _predicted("_prompt", "_p", names[1])).alias("prompt_unexplained"),
        _allowed(allowed_providers).alias("provider_allowed"),
    ).with_columns(_reason().alias("evidence_reason"))
    judged = joined.with_columns(
        _evidence().alias("evidence"),
        pl.col("evidence_reason").str.replace("^(contradicted|unverified):", ""),
    )
    columns = ["evidence", "evidence_reason", "count_unexplained", "prompt_unexplained", "provider_allowed"]
    return judged.select(*facts.columns, *columns), conventions


def _sound() -> pl.Expr:
    """Rows that can teach a convention: ids rebuilt or given, and nothing wrong with them but the count."""
    from_text = pl.col("ids_source").is_in([str(IdsSource.REBUILT), str(IdsSource.GIVEN)])
    return from_text & pl.col("structure").is_null() & pl.col("text_equal").fill_null(False)


def _learn(facts: pl.DataFrame, contract: Contract) -> list[Convention]:
    counts, prompts = _count_hypotheses(contract), _prompt_hypotheses(contract)
    conventions = []
    for key, group in facts.group_by(*GROUP, maintain_order=True):
        sound = group.filter(pl.col("_sound") & pl.col("count_difference").is_not_null())
        asked = group.filter(pl.col("prompt_difference").is_not_null())
        completion, support = _best(sound, "count_difference", "_c", counts)
        prompt, prompt_support = _best(asked, "prompt_difference", "_p", prompts)
        if len(asked) and prompt == UNKNOWN and prompt_support == 0:
            # Nothing explains what was reported: the rows answer another prompt, and each must show it.
            prompt = COUNTS_ALL
        source, provider, model = key
        conventions.append(
            Convention(
                source=str(source),
                provider=None if provider is None else str(provider),
                model=None if model is None else str(model),
                completion=completion,
                completion_support=support,
                prompt=prompt,
                prompt_support=prompt_support,
            )
        )
    return conventions


def _best(rows: pl.DataFrame, column: str, prefix: str, hypotheses: list[_Hypothesis]) -> tuple[str, int]:
    """The hypothesis that explains most rows, the simpler one of equals; unknown where that is not clear."""
    hits = rows.select(*((pl.col(column) == pl.col(f"{prefix}{i}")).alias(str(i)) for i in range(len(hypotheses))))
    matches = [int(hits[str(i)].sum()) for i in range(len(hypotheses))]
    explained = int(hits.select(pl.any_horizontal(pl.all()).sum()).item()) if len(hits) else 0
    if explained == 0:
        return UNKNOWN, 0
    best = max(range(len(matches)), key=lambda i: (matches[i], -i))
    mine = hits[str(best)]
    for rival in range(len(hypotheses)):
        theirs = hits[str(rival)]
        only_theirs, only_mine = int((theirs & ~mine).sum()), int((mine & ~theirs).sum())
        if rival != best and min(only_theirs, only_mine) > MAX_RIVAL_SHARE * explained:
            return UNKNOWN, 0
    if best != 0 and int((mine & ~hits["0"]).sum()) < MIN_SUPPORT:
        return UNKNOWN, 0
    return hypotheses[best].name, matches[best]


def _predicted(column: str, prefix: str, hypotheses: list[_Hypothesis]) -> pl.Expr:
    """The difference that the row's convention predicts; null where the convention is unknown."""
    predicted = pl.lit(None, dtype=pl.Int32)
    for i, hypothesis in enumerate(hypotheses):
        predicted = pl.when(pl.col(column) == hypothesis.name).then(pl.col(f"{prefix}{i}")).otherwise(predicted)
    return predicted


def _allowed(providers: tuple[str, ...]) -> pl.Expr:
    if not providers:
        return pl.lit(None, dtype=pl.Boolean)
    return pl.col("provider").str.to_lowercase().is_in([provider.lower() for provider in providers])


def _reason() -> pl.Expr:
    """Why a row is not proved, `kind:reason`; null for rows that are. The first that holds."""
    source = pl.col("ids_source")
    own = source.is_in([str(IdsSource.ENGINE), str(IdsSource.LOGPROBS)]).fill_null(False)
    rules: list[tuple[pl.Expr, str]] = [
        (source.is_null(), "unverified:no_ids"),
        (pl.col("structure").is_not_null(), "contradicted:structure"),
        (~pl.col("text_equal").fill_null(True), "contradicted:text"),
        # An engine counts what it sends: another count says that ids are missing, whatever the text shows.
        ((source == str(IdsSource.ENGINE)) & (pl.col("count_difference").fill_null(0) != 0), "contradicted:count"),
        (own, ""),
        ((source == str(IdsSource.REBUILT)) & ~pl.col("reencode_equal").fill_null(True), "contradicted:encoding"),
        (pl.col("count_unexplained").fill_null(0) != 0, "contradicted:count"),
        (pl.col("text_equal").is_null(), "unverified:no_text"),
        (~pl.col("rebuild_status").is_in(_SETTLED), "unverified:rebuild_status"),
        (pl.col("completion_tokens").is_null(), "unverified:no_count"),
        (pl.col("count_unexplained").is_null(), "unverified:convention_unknown"),
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
