"""Evaluate a suite over the facts table with Great Expectations' pandas engine.

Great Expectations decides: every result here is read off an `ExpectationSuiteValidationResult`. This
module brings the facts into a frame that keeps nulls, whole numbers and flags apart, asks for the
positions of all failing rows, and fails whatever could not be evaluated.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.audit.gx.build import build_gx_suite, check_suite, load_gx
from toolkit.audit.gx.columns import ROW_TYPES, named_columns
from toolkit.audit.suite import Expectation, Suite
from toolkit.records import ExpectationResult, Json

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_EXAMPLES", "Evaluation", "check_suite", "evaluate"]

Positions = npt.NDArray[np.int64]

MAX_EXAMPLES = 20
_MAX_TEXT = 200
_MAX_ERROR = 300
_LINES_NAMED = 5
_EXAMPLE_COLUMNS = ("sample_id", "turn", "sample_index", "provider")
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
    """

    results: tuple[ExpectationResult, ...]
    failing: Mapping[str, Positions]


def evaluate(suite: Suite, facts: pa.Table) -> Evaluation:
    """Hold every row of the facts against a suite.

    Args:
        suite: A suite as `toolkit.audit.suite.read_suite` gives it.
        facts: The table that the suite judges: the judged facts, one row per shard row, in the columns of
            `JUDGED_SCHEMA`, or the providers table.

    Returns:
        The results. An expectation that raised, and every expectation over zero rows, fails and has `error`
        set. `element_count` counts the rows that were judged: after the row condition, without the nulls
        that Great Expectations skips.

    Raises:
        SuiteError: The suite cannot be checked as written.
    """
    gx_suite = build_gx_suite(suite)
    if not facts.num_rows:
        results = [_failed(expectation, _ZERO_ROWS) for expectation in suite.expectations]
        return Evaluation(results=tuple(results), failing={result.id: _positions([]) for result in results})
    outcomes = _validate(gx_suite, _frame_of(facts, suite))
    results, failing = [], {}
    for expectation in suite.expectations:
        result, positions = _read_outcome(expectation, outcomes.get(expectation.id), facts)
        results.append(result)
        failing[expectation.id] = positions
    return Evaluation(results=tuple(results), failing=failing)


def _frame_of(facts: pa.Table, suite: Suite) -> pd.DataFrame:
    """The columns that a suite reads, as a frame whose index is the row's position in `facts`.

    Nullable types throughout: NumPy's would turn whole numbers with nulls into floats, and flags with
    nulls into objects that compare as neither true nor false. A column that is missing stays missing,
    and Great Expectations says so.
    """
    import pandas as pd

    types: Mapping[pa.DataType, Any] = {
        pa.bool_(): pd.BooleanDtype(),
        pa.int32(): pd.Int64Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.string(): pd.StringDtype("pyarrow"),
    }
    read = {column for expectation in suite.expectations for column in expectation.columns}
    # A frame without columns has no rows, and a suite may only count them.
    names = [name for name in facts.column_names if name in read] or facts.column_names[:1]
    frame: pd.DataFrame = facts.select(names).to_pandas(types_mapper=types.get)
    return frame


def _validate(gx_suite: Any, frame: pd.DataFrame) -> Mapping[str, Any]:
    """Our expectation ids → Great Expectations' results (which it gives in an order of its own)."""
    gx = load_gx()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        asset = context.data_sources.add_pandas("facts").add_dataframe_asset("facts")
        batch = asset.add_batch_definition_whole_dataframe("facts").get_batch({"dataframe": frame})
        validated = batch.validate(gx_suite, result_format=_RESULT_FORMAT)
    return {outcome.expectation_config.meta["id"]: outcome for outcome in validated.results}


def _read_outcome(expectation: Expectation, outcome: Any, facts: pa.Table) -> tuple[ExpectationResult, Positions]:
    if outcome is None:
        return _failed(expectation, "no result from Great Expectations"), _positions([])
    if error := _raised(outcome.exception_info):
        return _failed(expectation, error), _positions([])
    found: Mapping[str, Any] = outcome.result or {}
    if expectation.scope == "dataset" and expectation.type not in ROW_TYPES:
        return _result(expectation, success=bool(outcome.success), observed=_observed(found)), _positions([])
    positions = _positions(found.get("unexpected_index_list") or [])
    unexpected, elements = found.get("unexpected_count"), found.get("element_count")
    if elements is None or unexpected != len(positions):
        said = f"{unexpected} failing rows of {elements}, and the positions of {len(positions)}"
        return _failed(expectation, f"result of Great Expectations contradicts itself: {said}"), _positions([])
    if expectation.scope == "dataset":
        named = _named_lines(expectation, positions, facts)
        return _result(expectation, success=bool(outcome.success), observed=named), _positions([])
    result = _result(
        expectation,
        success=bool(outcome.success),
        element_count=int(elements) - int(found.get("missing_count") or 0),
        unexpected_count=len(positions),
        examples=_examples(expectation, positions[:MAX_EXAMPLES], facts),
    )
    return result, positions


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


def _named_lines(expectation: Expectation, positions: Positions, lines: pa.Table) -> str | None:
    """The lines of a providers table that fail, with their values: `openrouter/Chutes (thinking): 0.31`; None where
    none does."""
    columns = dict.fromkeys(named_columns(expectation.kwargs))
    rows = lines.select([name for name in lines.column_names if name in {"name", "mode", *columns}]).take(positions)
    told = [
        f"{_short(row['name'])} ({_short(row['mode'])}): {_value_text(list(columns), row)}"
        for row in rows.slice(0, _LINES_NAMED).to_pylist()
    ]
    more = [f"and {len(positions) - _LINES_NAMED:,} more"] if len(positions) > _LINES_NAMED else []
    return "; ".join([*told, *more]) or None


def _as_json(value: object) -> Json:
    return value.item() if isinstance(value, np.generic) else str(value)


def _examples(expectation: Expectation, positions: Positions, facts: pa.Table) -> tuple[Mapping[str, Json], ...]:
    """The first failing rows: who they are, and the values that fail."""
    columns = [name for name in dict.fromkeys(named_columns(expectation.kwargs)) if name in facts.column_names]
    names = [name for name in _EXAMPLE_COLUMNS if name in facts.column_names]
    rows = facts.select([*names, *(c for c in columns if c not in names)]).take(positions).to_pylist()
    return tuple({name: _short(row[name]) for name in names} | {"value": _value_text(columns, row)} for row in rows)


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


def _positions(values: Sequence[int]) -> Positions:
    return np.sort(np.asarray(values, dtype=np.int64))
