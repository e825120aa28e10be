"""Evaluate a suite over the facts table with Great Expectations, on polars.

Great Expectations decides: every result here is read off an `ExpectationSuiteValidationResult`. This module gives it
the facts as a LazyFrame, asks for the positions of all failing rows and for the first of them in the
same pass, and fails whatever could not be evaluated.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from toolkit.audit.gx.build import build_gx_suite, check_suite, load_gx
from toolkit.audit.gx.engine import PolarsExecutionEngine
from toolkit.audit.gx.metrics import FailingRows
from toolkit.audit.suite import Expectation, Suite
from toolkit.audit.suite_columns import ROW_TYPES, named_columns
from toolkit.audit.suite_groups import expanded, groupings
from toolkit.errors import SuiteError
from toolkit.records import ExpectationResult, Json

__all__ = ["MAX_EXAMPLES", "Evaluation", "check_suite", "evaluate"]

Positions = npt.NDArray[np.int64]

MAX_EXAMPLES = 20
_MAX_TEXT = 200
_MAX_ERROR = 300
_LINES_NAMED = 5
_EXAMPLE_COLUMNS = ("sample_id", "turn", "sample_index", "provider")
_LINE_COLUMNS = ("name", "mode")
_RESULT_FORMAT = {
    # COMPLETE alone lists every failing row. What else it would list is capped and slow, and not used.
    "result_format": "COMPLETE",
    "partial_unexpected_count": 0,
    "include_unexpected_rows": False,
    "return_unexpected_index_query": False,
}
_ZERO_ROWS = "no rows: nothing was checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What came of a suite.

    Attributes:
        results: One per expectation, in the suite's order.
        failing: Expectation id → positions of all rows of the facts table that fail it, ascending; empty
            for dataset expectations, and for those that could not be evaluated.
        validated: Great Expectations' own `ExpectationSuiteValidationResult`; `publish` makes JSON and pages of it.
    """

    results: tuple[ExpectationResult, ...]
    failing: Mapping[str, Positions]
    validated: Any


def evaluate(suite: Suite, facts: pa.Table | pl.LazyFrame) -> Evaluation:
    """Hold every row of the facts against a suite, in one pass over them.

    Args:
        suite: A suite as `toolkit.audit.suite.read_suite` gives it.
        facts: The table that the suite judges: the judged facts, one row per shard row, in the columns of
            `JUDGED_SCHEMA`, or the providers table. Positions count its rows in their order, a scan's in the scan's.

    Returns:
        The results. An expectation that raised, and every expectation over zero rows, fails and has `error`
        set. `element_count` counts the rows that were judged: after the row condition, without the missing
        values that Great Expectations skips.

    Raises:
        SuiteError: The suite cannot be checked as written.
    """
    frame = _frame_of(facts)
    suite = _by_group(suite, frame)
    validated, n_rows = _validate(build_gx_suite(suite), frame)
    if not n_rows:
        none = tuple(_failed(expectation, _ZERO_ROWS) for expectation in suite.expectations)
        return Evaluation(results=none, failing={one.id: _no_positions() for one in none}, validated=validated)
    # Great Expectations gives results in an order of its own.
    outcomes = {outcome.expectation_config.meta["id"]: outcome for outcome in validated.results}
    results, failing = [], {}
    for expectation in suite.expectations:
        result, positions = _read_outcome(expectation, outcomes.get(expectation.id))
        results.append(result)
        failing[expectation.id] = positions
    return Evaluation(results=tuple(results), failing=failing, validated=validated)


def _by_group(suite: Suite, frame: pl.LazyFrame) -> Suite:
    """The suite with `for_each` written out: one query over these columns alone, if there are any.

    Raises:
        SuiteError: The table lacks a column of `for_each`, or has too many groups.
    """
    wanted = groupings(suite)
    if not wanted:
        return suite
    names = {column for columns in wanted for column in columns}
    if missing := names - set(frame.collect_schema()):
        raise SuiteError(f"{suite.path}: for_each: the column {sorted(missing)[0]!r} is not in the table")
    groups = [pl.struct(columns).unique().implode().alias(str(number)) for number, columns in enumerate(wanted)]
    found = frame.select(groups).collect(engine="streaming").row(0)
    return expanded(
        suite,
        {
            columns: [tuple(group[column] for column in columns) for group in values]
            for columns, values in zip(wanted, found, strict=True)
        },
    )


def _frame_of(facts: pa.Table | pl.LazyFrame) -> pl.LazyFrame:
    if isinstance(facts, pl.LazyFrame):
        return facts
    frame = pl.from_arrow(facts)
    assert isinstance(frame, pl.DataFrame)
    return frame.lazy()


def _validate(gx_suite: Any, frame: pl.LazyFrame) -> tuple[Any, int]:
    """Great Expectations' result, and the rows of the frame."""
    gx = load_gx()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        source = context.data_sources.add_polars("facts")
        engine: PolarsExecutionEngine = source.get_execution_engine()
        engine.example_columns = (*_EXAMPLE_COLUMNS, *_LINE_COLUMNS)
        definition = source.add_lazyframe_asset("facts").add_batch_definition_whole("facts")
        validated = definition.get_batch({"dataframe": frame}).validate(gx_suite, result_format=_RESULT_FORMAT)
    n_rows = engine.n_rows
    if n_rows is None:
        n_rows = int(frame.select(pl.len()).collect(engine="streaming").item())
    return validated, n_rows


def _read_outcome(expectation: Expectation, outcome: Any) -> tuple[ExpectationResult, Positions]:
    if outcome is None:
        return _failed(expectation, "no result from Great Expectations"), _no_positions()
    if error := _raised(outcome.exception_info):
        return _failed(expectation, error), _no_positions()
    found: Mapping[str, Any] = outcome.result or {}
    success = bool(outcome.success)
    if expectation.scope == "dataset" and expectation.type not in ROW_TYPES:
        return _result(expectation, success=success, observed=_observed(found)), _no_positions()
    rows = found.get("unexpected_index_list")
    unexpected, elements = found.get("unexpected_count"), found.get("element_count")
    if elements is None or not isinstance(rows, FailingRows) or unexpected != len(rows):
        listed = len(rows) if isinstance(rows, FailingRows) else "no"
        said = f"{unexpected} failing rows of {elements}, and the positions of {listed}"
        return _failed(expectation, f"result of Great Expectations contradicts itself: {said}"), _no_positions()
    first = rows.first.to_dicts()
    if expectation.scope == "dataset":
        named = _named_lines(expectation, first, len(rows))
        return _result(expectation, success=success, observed=named), _no_positions()
    result = _result(
        expectation,
        success=success,
        element_count=int(elements) - int(found.get("missing_count") or 0),
        unexpected_count=len(rows),
        examples=tuple(_example(expectation, row) for row in first[:MAX_EXAMPLES]),
    )
    return result, rows.positions


def _result(expectation: Expectation, *, success: bool, **measured: Any) -> ExpectationResult:
    return ExpectationResult(
        id=expectation.id,
        type=expectation.type,
        severity=expectation.severity,
        scope=expectation.scope,
        success=success,
        kwargs=expectation.kwargs,
        description=expectation.says,
        fault=expectation.wrong,
        mostly=expectation.mostly,
        **measured,
    )


def _failed(expectation: Expectation, error: str) -> ExpectationResult:
    return _result(expectation, success=False, error=error)


def _raised(info: Mapping[str, Any] | None) -> str | None:
    """What an expectation raised, on one line; None if it did not.

    Great Expectations gives one report, or a mapping of metric ids to reports.
    """
    if not info:
        return None
    reports: Iterable[Any] = [info] if "raised_exception" in info else info.values()
    said = [
        " ".join(str(report.get("exception_message")).split())
        for report in reports
        if isinstance(report, Mapping) and report.get("raised_exception")
    ]
    return "; ".join(dict.fromkeys(said))[:_MAX_ERROR] if said else None


def _observed(found: Mapping[str, Any]) -> str | None:
    """What a dataset expectation measured, as text; for sets of values, how many are too many or missing."""
    value = found.get("observed_value")
    if value is None:
        counts = {"outside the set": found.get("unexpected_count"), "missing": found.get("missing_count")}
        told = [f"{count} {words}" for words, count in counts.items() if count is not None]
        return ", ".join(told) or None
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, default=_as_json, ensure_ascii=False)
    return text[:_MAX_TEXT]


def _named_lines(expectation: Expectation, first: Sequence[Mapping[str, Json]], n_lines: int) -> str | None:
    """The lines of a providers table that fail, with their values: `openrouter/Chutes (thinking): 0.31`; None where
    none does."""
    columns = list(dict.fromkeys(named_columns(expectation.kwargs)))
    told = [
        f"{_short(row['name'])} ({_short(row['mode'])}): {_value_text(columns, row)}" for row in first[:_LINES_NAMED]
    ]
    more = [f"and {n_lines - _LINES_NAMED:,} more"] if n_lines > _LINES_NAMED else []
    return "; ".join([*told, *more]) or None


def _as_json(value: object) -> Json:
    return value.item() if isinstance(value, np.generic) else str(value)


def _example(expectation: Expectation, row: Mapping[str, Json]) -> Mapping[str, Json]:
    """A failing row: who it is, and the values that fail."""
    columns = [name for name in dict.fromkeys(named_columns(expectation.kwargs)) if name in row]
    who = {name: _short(row[name]) for name in _EXAMPLE_COLUMNS if name in row}
    return who | {"value": _value_text(columns, row)}


def _short(value: Json) -> Json:
    return value[:_MAX_TEXT] if isinstance(value, str) else value


def _value_text(columns: Sequence[str], row: Mapping[str, Json]) -> str:
    """The value of a single column, or `a=1, b=null` of several, cut to 200 characters."""
    texts = [_plain_text(row[column]) for column in columns]
    if len(texts) != 1:
        texts = [f"{column}={text}" for column, text in zip(columns, texts, strict=True)]
    return ", ".join(texts)[:_MAX_TEXT]


def _plain_text(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _no_positions() -> Positions:
    return np.empty(0, dtype=np.int64)
