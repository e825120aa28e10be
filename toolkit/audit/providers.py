"""The providers table: what each provider's rows look like beside all others', one line per provider and mode.

A provider that answers badly does so in many rows a little. The table lays its shares beside those of all others of
the same dataset and mode; a suite of table `providers` says which differences are too many. The measures are those of
vendor comparisons: schema accuracy with an interval, trigger F1 on shared prompts alone, distance of distributions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from toolkit.audit.clusters import Clusters, Share, clusters
from toolkit.audit.conventions import wilson_interval
from toolkit.audit.fact_files import Frame, collected
from toolkit.audit.repeats import shared, weighted_median
from toolkit.audit.samples import Counts, Numbers, ks_distance, ks_p, pooled_z
from toolkit.columns import PROVIDER_COLUMNS, PROVIDERS_SCHEMA
from toolkit.contract import Contract
from toolkit.findings import Finding, ProviderFacts
from toolkit.records import Evidence, IdsSource, Json, RebuildStatus

MIN_PROMPTS = 20
"""A share of a line is not compared where its rows, or those of all others together, weigh less than this."""

MAX_COMPARED = 200
"""Lines, the largest first, that are compared with all others; a server can invent any number of names."""

_LINE = ["source", "provider", "mode"]
_ID_FAULTS = ["tool_id", "tool_index"]
_PROVED = [str(Evidence.ENGINE), str(Evidence.LOGPROBS), str(Evidence.COUNTED)]


def provider_table(judged: Frame, contract: Contract, drift: Sequence[Finding]) -> pa.Table:
    """The table.

    Args:
        judged: Frame of the judged facts.
        contract: Says which modes think and which model names are its own.
        drift: What was found to change within the dataset.

    Returns:
        A table of `PROVIDERS_SCHEMA`, the lines with most rows first.
    """
    rows = _prepared(judged.lazy(), contract)
    changes = Counter((f.source, f.provider) for f in drift if "convention" in f.code)
    triggers = _triggers(_answers_to_shared_prompts(rows))
    counted = collected(rows.group_by(_LINE).agg(e.alias(name) for name, e in _COUNTED.items()))
    sizes = collected(rows.drop_nulls("_size").group_by(*_LINE, "_size").len())
    costs = _costs(rows)
    counted = counted.sort("rows", *_LINE, descending=[True, False, False, False], nulls_last=True)
    compared = {tuple(key) for key in counted.group_by("mode").head(MAX_COMPARED).select(_LINE).iter_rows()}
    by_mode = {
        str(mode): _Sizes.of(sizes.filter(pl.col("mode") == mode), compared) for mode in counted["mode"].unique()
    }
    shared_prompts = _clusters(rows, by_mode, compared)
    lines: list[dict[str, Json]] = []
    for (mode,), part in counted.partition_by("mode", as_dict=True, maintain_order=True).items():
        lines += _lines_of_mode(part, by_mode[str(mode)], costs, shared_prompts, compared)
    lines.sort(key=lambda line: (-line["rows"], line["name"], line["mode"]))
    for line in lines:
        line["convention_changes"] = changes[line["source"], line["provider"]]
        line |= triggers.get((line["source"], line["provider"], line["mode"]), _NO_TRIGGER)
    return pa.Table.from_pylist(lines, schema=PROVIDERS_SCHEMA)


_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_LONGER = tuple(f"longer_{quantile}" for quantile in _QUANTILES)
"""Of lengths, how many are above these quantiles of their mode: two distributions may lie apart anywhere."""

_SHARES = {
    "length": Share("_finished", "_length"),
    "tool_calls": Share("_finished", "_tool"),
    **{name: Share("_measured", f"_{name}") for name in _LONGER},
}
"""What is compared."""


def _clusters(rows: pl.LazyFrame, sizes: Mapping[str, _Sizes], compared: Collection[tuple[object, ...]]) -> Clusters:
    """How the shares of all lines cluster by prompt. A conversation is one prompt: its turns resemble each other."""
    longer = []
    for name, quantile in zip(_LONGER, _QUANTILES, strict=True):
        at = {mode: found.quantile(quantile) for mode, found in sizes.items() if len(found.values)}
        bound = pl.col("mode").replace_strict(at, default=None, return_dtype=pl.Float64)
        longer.append((pl.col("_size") > bound).fill_null(False).alias(f"_{name}"))
    measured = pl.col("_size").is_not_null().alias("_measured")
    flags = rows.select(*_LINE, "sample_id", "_finished", "_length", "_tool", measured, *longer)
    return clusters(flags, _LINE, ["sample_id", "mode"], _SHARES, compared)


def provider_facts(table: pa.Table, limit: int) -> tuple[ProviderFacts, ...]:
    """The first lines of a providers table as a verdict holds them."""
    return tuple(ProviderFacts(**line) for line in table.slice(0, limit).to_pylist())


def _prepared(judged: pl.LazyFrame, contract: Contract) -> pl.LazyFrame:
    """Rows with what is counted of them, one flag each."""
    thinks = [name for name, mode in contract.modes.items() if mode.thinks]
    models = collected(judged.select(pl.col("model").drop_nulls().unique()))["model"].to_list()
    foreign = [model for model in models if not contract.accepts_model(model)]
    reason = pl.col("finish_reason").str.to_lowercase()
    calls = pl.col("n_tool_calls").fill_null(0) > 0
    tool = (reason == "tool_calls").fill_null(False)
    id_fault = pl.col("tool_fault").is_in(_ID_FAULTS).fill_null(False)
    missing = pl.col("rebuild_status") == str(RebuildStatus.ANSWER_MISSING)
    empty_content = pl.col("content_leading_space").is_null()
    return judged.select(
        *_LINE, "sample_id", "turn", "sample_index", "ids_source", "model", "cost_usd", "completion_tokens",
        "latency_s",
        pl.col("model").is_in(foreign).fill_null(False).alias("_foreign"),
        (~pl.col("provider_allowed")).fill_null(False).alias("_not_allowed"),
        pl.col("evidence").is_in(_PROVED).alias("_proved"),
        (pl.col("evidence") == str(Evidence.UNVERIFIED)).alias("_unverified"),
        (pl.col("evidence") == str(Evidence.CONTRADICTED)).alias("_contradicted"),
        pl.col("finish_reason").is_not_null().alias("_finished"),
        (reason == "length").fill_null(False).alias("_length"),
        tool.alias("_tool"),
        pl.coalesce("n_ids", "completion_tokens").cast(pl.Float64).alias("_size"),
        pl.when(pl.col("mode").is_in(thinks)).then(pl.col("reasoning_leading_space").is_null()).alias("_unthought"),
        (missing | (~pl.col("truncated") & empty_content & ~calls & pl.col("tool_fault").is_null())).alias("_empty"),
        pl.col("notes").list.eval(pl.element().str.starts_with("marker_in_")).list.any().alias("_marker"),
        (tool & ~id_fault).alias("_schema_row"),
        # Calls are known from ids alone; where there are none, an answer that is missing has none either.
        (tool & ~id_fault & pl.col("tool_fault").is_null() & (calls | (pl.col("n_ids").is_null() & ~missing)))
        .alias("_schema_ok"),
        id_fault.alias("_id_fault"),
        (calls | tool).alias("_calls"),
        (~pl.col("truncated") & ~missing).alias("_whole"),
        pl.col("count_unexplained").is_not_null().alias("_usage"),
        (pl.col("count_unexplained").abs() > 1).fill_null(False).alias("_drifts"),
    )  # fmt: skip


_COUNTED = {
    "rows": pl.len(),
    "models": pl.col("model").drop_nulls().n_unique(),
    "foreign_model_rows": pl.col("_foreign").sum(),
    "not_allowed_rows": pl.col("_not_allowed").sum(),
    "proved_share": pl.col("_proved").mean(),
    "unverified_share": pl.col("_unverified").mean(),
    "contradicted_share": pl.col("_contradicted").mean(),
    "finish_rows": pl.col("_finished").sum(),
    "measured_rows": pl.col("_size").count(),
    "median_ids": pl.col("_size").median(),
    "empty_reasoning_share": pl.col("_unthought").mean(),
    "empty_answer_share": pl.col("_empty").mean(),
    "marker_rows": pl.col("_marker").sum(),
    "tool_rows": pl.col("_schema_row").sum(),
    "schema_ok_rows": pl.col("_schema_ok").sum(),
    "tool_id_faults": pl.col("_id_fault").sum(),
    "usage_rows": pl.col("_usage").sum(),
    "_off": pl.col("_drifts").sum(),
    "_lengths": pl.col("_length").sum(),
    "_tools": pl.col("_tool").sum(),
    "latency_p50_s": pl.col("latency_s").quantile(0.5, "lower"),
    "latency_p95_s": pl.col("latency_s").quantile(0.95, "lower"),
}


def _lines_of_mode(
    counted: pl.DataFrame,
    sizes: _Sizes,
    costs: Mapping[tuple[object, ...], float],
    prompts: Clusters,
    compared: Collection[tuple[object, ...]],
) -> Iterator[dict[str, Json]]:
    """One line for each (source, provider) of one mode, from what was counted of each, and the sizes of its answers."""
    totals = {name: int(counted[name].sum()) for name in ("rows", "finish_rows", "measured_rows", "_lengths", "_tools")}
    for line in counted.iter_rows(named=True):
        key = tuple(line[name] for name in _LINE)
        made = dict(line)
        made |= _finish(line, totals, prompts, key if key in compared else None)
        made |= _lengths(line, totals, sizes, prompts, key if key in compared else None)
        lower, upper = wilson_interval(line["schema_ok_rows"], line["tool_rows"])
        made |= {
            "name": line["source"] if line["provider"] is None else f"{line['source']}/{line['provider']}",
            "share": line["rows"] / totals["rows"],
            "schema_lower": lower if line["tool_rows"] else None,
            "schema_upper": upper if line["tool_rows"] else None,
            "usage_drift_share": _over(line["_off"], line["usage_rows"]),
            "cost_per_million_usd": costs.get(key),
        }
        yield {name: value for name, value in made.items() if name in _NAMES}


_NAMES = frozenset(column.name for column in PROVIDER_COLUMNS)


def _weighs_enough(prompts: Clusters, key: tuple[object, ...], share: str) -> bool:
    return min(prompts.effective_prompts(key, share)) >= MIN_PROMPTS


def _finish(
    line: Mapping[str, Json], totals: Mapping[str, int], prompts: Clusters, key: tuple[object, ...] | None
) -> dict[str, Json]:
    """Shares of finish reasons, and how far they lie from all others'; without a key they are not compared."""
    found: dict[str, Json] = {}
    mine, others = line["finish_rows"], totals["finish_rows"] - line["finish_rows"]
    for name, hits in (("length", "_lengths"), ("tool_calls", "_tools")):
        other_hits = totals[hits] - line[hits]
        share, other_share = _over(line[hits], mine), _over(other_hits, others)
        found |= {f"{name}_share": share, f"{name}_gap": None, f"{name}_z": None}
        if key is not None and share is not None and other_share is not None and _weighs_enough(prompts, key, name):
            found[f"{name}_gap"] = share - other_share
            if prompts.is_told(key, name):
                effect = prompts.design_effect(key, name)
                found[f"{name}_z"] = pooled_z(line[hits], mine, other_hits, others, effect)
    return found


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How many answers of one mode have each size: all together, and those of each line that is compared."""

    values: Numbers
    counts: Counts
    own: Mapping[tuple[object, ...], pl.DataFrame]

    @classmethod
    def of(cls, counted: pl.DataFrame, compared: Collection[tuple[object, ...]]) -> _Sizes:
        """From `_size` and `len` of each line of one mode; of those that are not compared only the sum is kept."""
        every = counted.group_by("_size").agg(pl.col("len").sum()).sort("_size")
        own = {key: part for key, part in counted.partition_by(*_LINE, as_dict=True).items() if key in compared}
        return cls(every["_size"].to_numpy(), every["len"].to_numpy().astype(np.int64), own)

    def counts_of(self, key: tuple[object, ...]) -> Counts:
        """How many answers of one line have each size: made when it is wanted, for there may be many lines."""
        counts = np.zeros(len(self.values), dtype=np.int64)
        part = self.own[key]
        counts[np.searchsorted(self.values, part["_size"].to_numpy())] = part["len"].to_numpy()
        return counts

    def quantile(self, share: float) -> float:
        """The size that this share of all answers do not exceed."""
        return float(self.values[np.searchsorted(np.cumsum(self.counts), share * self.counts.sum())])

    def median(self, counts: Counts) -> float:
        """The median of so many answers of each size."""
        some = counts > 0
        return weighted_median(self.values[some], counts[some])


def _lengths(
    line: Mapping[str, Json],
    totals: Mapping[str, int],
    sizes: _Sizes,
    prompts: Clusters,
    key: tuple[object, ...] | None,
) -> dict[str, Json]:
    """How the lengths of one line are distributed beside all others'; without a key they are not compared."""
    found: dict[str, Json] = {"other_rows": totals["measured_rows"] - line["measured_rows"]}
    if key is None or not _weighs_enough(prompts, key, _LONGER[0]):
        return found | dict.fromkeys(("median_ratio", "ks_distance", "ks_p"))
    mine = sizes.counts_of(key)
    others = sizes.counts - mine
    distance = ks_distance(mine, others)
    other_median = sizes.median(others)
    return found | {
        "median_ratio": sizes.median(mine) / other_median if other_median else None,
        "ks_distance": distance,
        "ks_p": ks_p(distance, int(mine.sum()), int(others.sum()), prompts.distance_effect(key, _LONGER)),
    }


def _costs(rows: pl.LazyFrame) -> dict[tuple[object, ...], float]:
    """Line → US dollars for a million completion tokens; the sum is exact, whatever the order of the rows."""
    both = collected(rows.select(*_LINE, "cost_usd", "completion_tokens").drop_nulls(["cost_usd", "completion_tokens"]))
    found = {}
    for key, part in both.partition_by(*_LINE, as_dict=True).items():
        tokens = int(part["completion_tokens"].cast(pl.Int64).sum())
        if tokens > 0:
            found[key] = 1e6 * math.fsum(part["cost_usd"]) / tokens
    return found


def _over(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# --- who calls tools, on the same prompts ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answer:
    """A line of the table as a key of the answers to shared prompts."""

    source: str
    provider: str | None
    mode: str

    @property
    def name(self) -> str:
        return self.source if self.provider is None else f"{self.source}/{self.provider}"


_NO_TRIGGER: Mapping[str, Json] = {
    "trigger_reference": None, "trigger_prompts": 0, "trigger_calls": 0, "trigger_f1": None,
}  # fmt: skip


def _answers_to_shared_prompts(rows: pl.LazyFrame) -> pl.DataFrame:
    """Whole answers to prompts that several lines of one mode answered; of most prompts only hashes are looked at."""
    prompt = pl.struct("sample_id", "turn", "mode").hash()
    whole = rows.filter("_whole").select(*_LINE, "sample_id", "turn", "sample_index", "ids_source", "_calls", "_whole")
    wanted = shared(whole, prompt, pl.struct("source", "provider").hash())
    return collected(whole.filter(prompt.is_in(wanted.implode()))) if len(wanted) else whole.head(0).collect()


def _triggers(rows: pl.DataFrame) -> dict[tuple[str, str | None, str], Mapping[str, Json]]:
    """Trigger F1 of each line against the reference of its mode, on prompts that both answered whole.

    The reference is the source with the engine's own ids, else the one that answered most shared prompts. Of several
    answers of one source to a prompt the first counts. Rows of different prompts say nothing about each other.
    """
    answers = (
        rows.filter("_whole")
        .sort("sample_index", maintain_order=True)
        .unique([*_LINE, "sample_id", "turn"], keep="first", maintain_order=True)
    )
    shared = answers.filter(pl.len().over("sample_id", "turn", "mode") > 1)
    found: dict[tuple[str, str | None, str], Mapping[str, Json]] = {}
    for part in shared.partition_by("mode", maintain_order=True) if len(shared) else ():
        engine = (pl.col("ids_source") == str(IdsSource.ENGINE)).fill_null(False).mean().alias("_engine")
        sizes = part.group_by("source", "provider", maintain_order=True).agg(engine, pl.len().alias("_count"))
        best = max(sizes.iter_rows(), key=lambda line: (line[2] > 0.5, line[3], line[0], line[1] or ""))
        mode = str(part["mode"][0])
        reference = _Answer(best[0], best[1], mode)
        own = pl.lit(True)
        for name, value in (("source", reference.source), ("provider", reference.provider)):
            own = own & pl.col(name).eq_missing(pl.lit(value, dtype=pl.String))
        theirs = part.filter(own).select("sample_id", "turn", pl.col("_calls").alias("_wanted"))
        table = (
            part.filter(~own)
            .join(theirs, on=["sample_id", "turn"])
            .group_by("source", "provider", maintain_order=True)
            .agg(
                pl.len().alias("prompts"),
                (pl.col("_calls") | pl.col("_wanted")).sum().alias("either"),
                (pl.col("_calls") & pl.col("_wanted")).sum().alias("both"),
            )
        )
        for source, provider, prompts, either, both in table.iter_rows():
            found[source, provider, mode] = {
                "trigger_reference": reference.name,
                "trigger_prompts": prompts,
                "trigger_calls": either,
                # 2 TP / (2 TP + FP + FN), where TP + FP + FN are the prompts for which either called.
                "trigger_f1": 2 * both / (both + either) if either else None,
            }
    return found
