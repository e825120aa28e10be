"""The same expectations on polars and on Great Expectations' own pandas engine, and their results made comparable."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import great_expectations as gx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from great_expectations.expectations.expectation import (
    ColumnMapExpectation,
    ColumnPairMapExpectation,
    MulticolumnMapExpectation,
)
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.registry import get_expectation_impl

import toolkit.audit.gx  # noqa: F401 — registers the polars data source
from toolkit.audit.gx.engine import PolarsExecutionEngine

# Types that keep nulls apart: NumPy's would turn whole numbers with nulls into fractions.
_TYPES: Mapping[pa.DataType, Any] = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.large_string(): pd.StringDtype("pyarrow"),
}

Outcome = tuple[bool, dict[str, Any], str | None]
"""Success, result, and what was raised."""


class Engines:
    """Both engines in one ephemeral context."""

    def __init__(self) -> None:
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        self._source = context.data_sources.add_polars("polars")
        self._polars = self._source.add_lazyframe_asset("frame").add_batch_definition_whole("all")
        pandas = context.data_sources.add_pandas("pandas").add_dataframe_asset("frame")
        self._pandas = pandas.add_batch_definition_whole_dataframe("all")

    @property
    def engine(self) -> PolarsExecutionEngine:
        """The polars engine."""
        engine: PolarsExecutionEngine = self._source.get_execution_engine()
        return engine

    def polars(self, frame: pl.DataFrame | pl.LazyFrame, suite: Any, how: Any = "COMPLETE") -> dict[str, Outcome]:
        """Results by `meta["id"]`."""
        return _run(self._polars, frame, suite, how)

    def pandas(self, frame: pl.DataFrame, suite: Any, how: Any = "COMPLETE") -> dict[str, Outcome]:
        """The same on pandas."""
        return _run(self._pandas, frame.to_arrow().to_pandas(types_mapper=_TYPES.get), suite, how)


def suite_of(*items: tuple[str, dict[str, Any]], condition: Any = None, mostly: float | None = None) -> Any:
    """A suite of (type without `expect_`, kwargs), each with the id `type/number`; with a row condition and `mostly`
    where it has these."""
    configured, counts = [], dict.fromkeys((name for name, _ in items), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kwargs in items:
            fields = get_expectation_impl(f"expect_{name}").__fields__
            extra = {"row_condition": condition} if condition is not None and "row_condition" in fields else {}
            extra |= {"mostly": mostly} if mostly is not None and "mostly" in fields else {}
            meta = {"id": f"{name}/{counts[name]}"}
            configured.append(ExpectationConfiguration(type=f"expect_{name}", kwargs={**kwargs, **extra}, meta=meta))
            counts[name] += 1
        suite = gx.ExpectationSuite(name="suite", expectations=configured)
    assert len(suite.expectations) == len(items), "an expectation was dropped"
    return suite


def names_rows(name: str) -> bool:
    """Whether an expectation (without `expect_`) says of each row whether it holds."""
    kinds = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)
    return issubclass(get_expectation_impl(f"expect_{name}"), kinds)


def _run(definition: Any, frame: Any, suite: Any, how: Any) -> dict[str, Outcome]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        validated = definition.get_batch({"dataframe": frame}).validate(suite, result_format=how)
    return {one.expectation_config.meta["id"]: _outcome(one) for one in validated.results}


def _outcome(one: Any) -> Outcome:
    info = one.exception_info or {}
    reports = [info] if "raised_exception" in info else info.values()
    raised = [str(report["exception_message"]) for report in reports if report.get("raised_exception")]
    found = {key: plain(value) for key, value in (one.result or {}).items() if key != "unexpected_index_query"}
    return bool(one.success), {k: v for k, v in found.items() if v is not None}, raised[0] if raised else None


def plain(value: Any) -> Any:
    """A value as Python's own; missing ones are None, fractions rounded, sets and values without order sorted."""
    if isinstance(value, dict):
        ordered = {"partial_missing_list"}
        return {k: sorted(map(plain, v), key=str) if k in ordered else plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    if value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 9)
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value


def alike(ours: Outcome, theirs: Outcome, ignored: Sequence[str] = ()) -> bool:
    """Whether two outcomes are the same but for some fields; two errors are."""
    if ours[2] is not None and theirs[2] is not None:
        return ours[0] == theirs[0]
    left, right = ({k: v for k, v in one[1].items() if k not in ignored} for one in (ours, theirs))
    return (ours[0], left, ours[2]) == (theirs[0], right, theirs[2])
