"""Metrics of whole columns and tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from toolkit.audit.gx.comparing import compare, equals_any, kind_of, not_among, plain
from toolkit.audit.gx.engine import PolarsExecutionEngine, dtype_of
from toolkit.audit.gx.metrics import Asked, Values, aggregate_metric, rows_counted, value_metric
from toolkit.audit.gx.questions import AboutRows, Aggregate, Distinct, Found, Question, RowsOf
from toolkit.audit.gx.row_metrics import BOUNDS, within
from toolkit.errors import SuiteError

_LISTED = 20
"""Distinct values that a result lists at most, as in Great Expectations."""

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _single(expr: pl.Expr) -> Aggregate:
    return Aggregate((expr,), lambda values: values[0])


# --- tables -------------------------------------------------------------------------------------


@value_metric("table.columns")
def _columns(engine: PolarsExecutionEngine, domain: Values, values: Values) -> list[str]:
    return list(engine.batch(domain).schema)


@value_metric("table.column_count")
def _column_count(engine: PolarsExecutionEngine, domain: Values, values: Values) -> int:
    return len(engine.batch(domain).schema)


@value_metric("table.column_types", keys=("include_nested",))
def _column_types(engine: PolarsExecutionEngine, domain: Values, values: Values) -> list[Any]:
    raise SuiteError(
        "Great Expectations compares types by names that polars has not: "
        "expected expect_column_dtype_to_be_in_set, found an expectation of another engine's types"
    )


@value_metric("table.head", keys=("n_rows", "fetch_all"))
def _head(engine: PolarsExecutionEngine, domain: Values, values: Values) -> Any:
    frame, wanted = engine.get_domain_records(dict(domain)), values.get("n_rows")
    wanted = 5 if wanted is None else int(wanted)
    engine.passes.append("head")
    if values.get("fetch_all"):
        return frame.collect(engine="streaming").to_pandas()
    if wanted < 0:
        return frame.collect(engine="streaming").head(wanted).to_pandas()
    return frame.head(wanted).collect(engine="streaming").to_pandas()


@value_metric("column.partition", "column", keys=("bins", "n_bins", "allow_relative_error"))
def _partition(engine: PolarsExecutionEngine, domain: Values, values: Values) -> list[float]:
    """Ten bins of one width over the column: with them a column is compared with itself, and never differs."""
    column = plain(domain["column"], dtype_of(engine.batch(domain), domain["column"])).cast(pl.Float64)
    engine.passes.append("smallest and largest value")
    ends = engine.get_domain_records(dict(domain)).select(column.min().alias("low"), column.max().alias("high"))
    low, high = ends.collect(engine="streaming").row(0)
    low, high = (0.0, 1.0) if low is None else (low, high if high > low else low + 1)
    return [low + (high - low) * number / 10 for number in range(10)] + [high]


@aggregate_metric("table.row_count", "table")
def _row_count(asked: Asked) -> Question:
    if not asked.table:
        return rows_counted(asked)
    tables = asked.data.engine.tables
    if asked.table not in tables:
        known = ", ".join(map(repr, sorted(tables))) or "none"
        raise SuiteError(f"expected the name of another asset of the data source ({known}), found {asked.table!r}")
    return RowsOf(tables[asked.table])


# --- one column ---------------------------------------------------------------------------------


def _of_numbers(asked: Asked, *, moments: bool = False) -> pl.Expr:
    """The column in the rows that count, flags as numbers.

    Raises:
        SuiteError: It holds something else.
    """
    kind = kind_of(asked.dtype())
    if kind in ("flag", "null"):
        return asked.kept().cast(pl.Int64)
    if kind != "number" and not (moments and kind == "moment"):
        raise SuiteError(f"expected a column of numbers, found {asked.columns[0]!r}: {asked.dtype()}")
    return asked.kept()


def _of_single_values(asked: Asked) -> pl.Expr:
    if kind_of(asked.dtype()) in ("nested", "object"):
        raise SuiteError(f"expected a column of single values, found {asked.columns[0]!r}: {asked.dtype()}")
    return asked.kept()


@aggregate_metric("column.max")
def _max(asked: Asked) -> Question:
    return _single(_of_single_values(asked).max())


@aggregate_metric("column.min")
def _min(asked: Asked) -> Question:
    return _single(_of_single_values(asked).min())


@aggregate_metric("column.mean")
def _mean(asked: Asked) -> Question:
    return _single(_of_numbers(asked, moments=True).mean())


@aggregate_metric("column.median")
def _median(asked: Asked) -> Question:
    return _single(_of_numbers(asked, moments=True).median())


@aggregate_metric("column.standard_deviation")
def _deviation(asked: Asked) -> Question:
    return _single(_of_numbers(asked).std())


@aggregate_metric("column.sum")
def _sum(asked: Asked) -> Question:
    column = _of_numbers(asked)
    # 64-bit sums wrap around.
    return _single((column.cast(pl.Int128) if asked.dtype() in (pl.Int64, pl.UInt64) else column).sum())


@aggregate_metric("column.quantile_values", keys=("quantiles", "allow_relative_error"))
def _quantiles(asked: Asked) -> Question:
    how = asked.values.get("allow_relative_error") or "nearest"
    if how not in _INTERPOLATIONS:
        raise SuiteError(f"expected allow_relative_error to be one of {', '.join(_INTERPOLATIONS)}, found {how!r}")
    shares = [float(share) for share in asked.values["quantiles"]]
    if not all(0 <= share <= 1 for share in shares):
        raise SuiteError(f"expected quantiles from 0 to 1, found {shares!r}")
    column = _of_numbers(asked, moments=True)
    ordered, known = column.drop_nulls().sort(), column.count()
    ends: list[pl.Expr] = []
    for share in shares:
        place = (known.cast(pl.Float64) - 1) * share
        ends += [_at(ordered, place.floor()), _at(ordered, place.ceil())]

    def finish(values: Sequence[Any]) -> list[Any]:
        count, *found = values
        places = [(count - 1) * share for share in shares]
        return [_interpolated(found[2 * i], found[2 * i + 1], place, how) for i, place in enumerate(places)]

    return Aggregate((known, *ends), finish)


def _at(ordered: pl.Expr, place: pl.Expr) -> pl.Expr:
    # Of no values nothing is taken: place −1 would count from the end.
    return ordered.get(place.clip(0).cast(pl.Int64), null_on_oob=True)


def _interpolated(low: Any, high: Any, place: float, how: str) -> Any:
    """The value at a place between two neighbours; halves go to the even place, as in numpy."""
    if low is None:
        return None
    part = place - math.floor(place)
    if how == "nearest":
        return low if round(place) == math.floor(place) else high
    if how in ("lower", "higher"):
        return low if how == "lower" else high
    return low + (high - low) * (0.5 if how == "midpoint" and part else part)


@aggregate_metric("column.most_common_value")
def _most_common(asked: Asked) -> Question:
    def finish(values: Sequence[Any]) -> list[Any]:
        return sorted(values[0])

    return Aggregate((_of_single_values(asked).drop_nulls().mode().implode(),), finish)


@aggregate_metric("column.distinct_values")
def _distinct(asked: Asked) -> Question:
    return _of_values(_of_single_values(asked), lambda values: set(values.to_list()))


@aggregate_metric("column.distinct_values.count")
def _distinct_count(asked: Asked) -> Question:
    return _single(_of_single_values(asked).drop_nulls().n_unique())


@aggregate_metric("column.distinct_values.count.under_threshold", keys=("threshold",))
def _few_distinct(asked: Asked) -> Question:
    threshold = asked.values["threshold"]
    return Aggregate((_of_single_values(asked).drop_nulls().n_unique(),), lambda values: values[0] < threshold)


def _of_values(value: pl.Expr, finish: Callable[[pl.Series], Any]) -> Question:
    """What follows from the distinct values of an expression, nulls left out."""

    def finished(found: Found) -> Any:
        return finish(found.first.to_series())

    return AboutRows(Distinct(value), finished)


def _outside(asked: Asked, finish: Callable[[pl.Series], Any]) -> Question:
    """What follows from the distinct values of the column that are not in the set."""
    column = _of_single_values(asked)
    inside = equals_any(column, asked.dtype(), asked.values.get("value_set") or [])
    return _of_values(pl.when(~inside).then(column), finish)


@aggregate_metric("column.distinct_values.not_in_set.count", keys=("value_set",))
def _outside_count(asked: Asked) -> Question:
    return _outside(asked, len)


@aggregate_metric("column.distinct_values.not_in_set", keys=("value_set", "limit"))
def _outside_list(asked: Asked) -> Question:
    return _outside(asked, lambda values: values.sort().head(_LISTED).to_list())


def _missing(asked: Asked, finish: Callable[[list[Any]], Any]) -> Question:
    column, wanted = _of_single_values(asked), list(asked.values.get("value_set") or [])
    found = pl.when(equals_any(column, asked.dtype(), wanted)).then(column)
    return _of_values(found, lambda values: finish(not_among(wanted, asked.dtype(), values.to_list())))


@aggregate_metric("column.distinct_values.missing_from_column.count", keys=("value_set",))
def _missing_count(asked: Asked) -> Question:
    return _missing(asked, len)


@aggregate_metric("column.distinct_values.missing_from_column", keys=("value_set", "limit"))
def _missing_list(asked: Asked) -> Question:
    return _missing(asked, lambda missing: missing[:_LISTED])


@aggregate_metric("column.unique_proportion")
def _unique_share(asked: Asked) -> Question:
    column = _of_single_values(asked)

    def finish(values: Sequence[Any]) -> float:
        distinct, known = values
        return distinct / known if known else 0.0

    return Aggregate((column.drop_nulls().n_unique(), column.count()), finish)


@aggregate_metric("column.non_null_proportion")
def _known_share(asked: Asked) -> Question:
    rows = rows_counted(asked)
    assert isinstance(rows, Aggregate)

    def finish(values: Sequence[Any]) -> float:
        known, all_rows = values[0], rows.finish(values[1:])
        return known / all_rows if all_rows else 0.0

    return Aggregate((asked.kept().count(), *rows.exprs), finish)


@aggregate_metric("column.non_null_count")
def _known_count(asked: Asked) -> Question:
    return _single(asked.kept().count())


@aggregate_metric("column_values.nonnull.count")
def _nonnull_count(asked: Asked) -> Question:
    return _single(asked.kept().count())


@aggregate_metric("column_values.null.count")
def _null_count(asked: Asked) -> Question:
    rows = rows_counted(asked)
    assert isinstance(rows, Aggregate)
    exprs = (asked.kept().count(), *rows.exprs)
    return Aggregate(exprs, lambda values: rows.finish(values[1:]) - values[0])


@aggregate_metric("column_values.between.count", keys=BOUNDS)
def _between_count(asked: Asked) -> Question:
    column, dtype = asked.kept(), asked.dtype()
    inside = within(asked.values, lambda operator, bound: compare(column, dtype, operator, bound))
    return Aggregate((inside.sum(),), lambda values: int(values[0] or 0))


@aggregate_metric("column.histogram", keys=("bins",))
def _histogram(asked: Asked) -> Question:
    bins = list(asked.values["bins"])
    if len(bins) < 2 or any(low >= high for low, high in itertools.pairwise(bins)):
        raise SuiteError(f"expected at least two bounds of bins, ascending, found {bins!r}")
    column, dtype = _of_numbers(asked), asked.dtype()
    counts = []
    for number, (low, high) in enumerate(itertools.pairwise(bins)):
        last = number == len(bins) - 2
        above = compare(column, dtype, ">=", low)
        counts.append((above & compare(column, dtype, "<=" if last else "<", high)).sum())
    return Aggregate(tuple(counts), lambda values: [int(value or 0) for value in values])


@aggregate_metric("column.value_counts", keys=("sort", "collate"))
def _value_counts(asked: Asked) -> Question:
    def finish(values: Sequence[Any]) -> Any:
        import pandas as pd

        counts = {next(iter(one.values())): one["count"] for one in values[0]}
        by_count = asked.values.get("sort") == "count"
        order = sorted(counts, key=counts.__getitem__) if by_count else sorted(counts)
        index = pd.Index(order, name="value")
        return pd.Series([counts[value] for value in order], index=index, name="count", dtype="int64")

    counted = _of_single_values(asked).drop_nulls().alias("value").value_counts().implode()
    return Aggregate((counted,), finish)
