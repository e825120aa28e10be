"""Metrics of Great Expectations as questions, and how they are registered for the polars engine.

Great Expectations' own decorators know three engines and refuse a fourth, so metrics are registered by name. Each
gets a sibling `NAME.aggregate_fn` that makes the question; Great Expectations then asks all
questions of a suite at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl
from great_expectations import constants
from great_expectations.core import IDDict
from great_expectations.core.metric_function_types import MetricFunctionTypes, MetricPartialFunctionTypes
from great_expectations.expectations import registry
from great_expectations.expectations.metrics.metric_provider import MetricProvider

from toolkit.audit.gx.comparing import plain
from toolkit.audit.gx.engine import LazyFrameData, PolarsExecutionEngine, dtype_of
from toolkit.audit.gx.questions import (
    ROW,
    AboutRows,
    Aggregate,
    Distinct,
    Found,
    Measured,
    Positions,
    Question,
    Repeated,
    Rows,
    Unordered,
    Where,
    both,
)
from toolkit.errors import SuiteError

Scope = Literal["table", "column", "pair", "multicolumn"]
Values = Mapping[str, Any]
ValueOf = Callable[[PolarsExecutionEngine, Values, Values], Any]
"""(engine, domain, values) → the value of a metric."""

MAX_VALUES: int = getattr(constants, "MAX_RESULT_RECORDS", 200)
"""Failing values and rows that a result lists at most, as in Great Expectations; positions are never cut."""

_TABLE = ("batch_id", "table", "row_condition", "condition_parser")
DOMAINS: Mapping[Scope, tuple[str, ...]] = {
    "table": _TABLE,
    "column": (*_TABLE, "column"),
    "pair": (*_TABLE, "column_A", "column_B", "ignore_row_if"),
    "multicolumn": (*_TABLE, "column_list", "ignore_row_if"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a metric is asked of.

    Attributes:
        data: The batch.
        mask: The rows that count; None: all.
        columns: The columns, in the order in which the expectation names them.
        values: The metric's arguments.
        table: The name of another table to ask instead, or None.
    """

    data: LazyFrameData
    mask: pl.Expr | None
    columns: tuple[str, ...]
    values: Values
    table: str | None

    def dtype(self, number: int = 0) -> pl.DataType:
        """The type of one of the columns."""
        return dtype_of(self.data, self.columns[number])

    def column(self, number: int = 0) -> pl.Expr:
        """One of the columns, missing values as null."""
        return plain(self.columns[number], self.dtype(number))

    def kept(self, number: int = 0) -> pl.Expr:
        """The column in the rows that count; null in all others."""
        column = self.column(number)
        return column if self.mask is None else pl.when(self.mask).then(column)

    def failing(self, passes: pl.Expr) -> Where:
        """The rows that count and do not pass; what is neither true nor false does not."""
        failing = both(self.mask, passes.fill_null(False).not_())
        assert failing is not None
        return Where(failing)


@dataclass(frozen=True, slots=True)
class FailingRows:
    """Positions of all failing rows, and the first of them; cut like a list."""

    positions: Positions
    first: pl.DataFrame

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, part: slice) -> list[int]:
        return [int(position) for position in self.positions[part]]


def row_metric(
    name: str, scope: Scope = "column", keys: Sequence[str] = ()
) -> Callable[[Callable[[Asked], Rows]], Callable[[Asked], Rows]]:
    """Decorator: `rows_of(asked)` gives the failing rows of a map expectation; registers all that is asked about them.

    Args:
        name: Great Expectations' name of the map metric.
        scope: Which columns it looks at.
        keys: The expectation's arguments that it needs.
    """

    def register(rows_of: Callable[[Asked], Rows]) -> Callable[[Asked], Rows]:
        listed = (*keys, "result_format")
        metrics: dict[str, tuple[Sequence[str], Callable[[Asked, Rows, PolarsExecutionEngine], Question]]] = {
            "unexpected_count": (keys, _count),
            "unexpected_values": (listed, lambda asked, rows, engine: _values(asked, rows, scope, engine)),
            "unexpected_index_list": (listed, _index),
            "unexpected_rows": (listed, _rows),
        }
        for suffix, (value_keys, make) in metrics.items():
            _register(f"{name}.{suffix}", scope, value_keys, _asking(scope, rows_of, make))
        _register_value(f"{name}.unexpected_index_query", scope, listed, _asking(scope, rows_of, _query))
        if scope in ("pair", "multicolumn"):
            _register(f"{name}.filtered_row_count", scope, listed, _asking(scope, rows_of, _domain_count))
        return rows_of

    return register


def aggregate_metric(
    name: str, scope: Scope = "column", keys: Sequence[str] = ()
) -> Callable[[Callable[[Asked], Question]], Callable[[Asked], Question]]:
    """Decorator: `question_of(asked)` gives the question of an aggregate metric."""

    def register(question_of: Callable[[Asked], Question]) -> Callable[[Asked], Question]:
        def ask(engine: PolarsExecutionEngine, domain: Values, values: Values) -> Question:
            asked = _asked(engine, domain, values, scope)
            question = question_of(asked)
            if isinstance(question, Aggregate):
                _try(asked, question.exprs)
            elif isinstance(question, AboutRows):
                _try(asked, _exprs_of(question.rows))
            return question

        _register(name, scope, keys, ask)
        return question_of

    return register


def value_metric(name: str, scope: Scope = "table", keys: Sequence[str] = ()) -> Callable[[ValueOf], ValueOf]:
    """Decorator: `value_of(engine, domain, values)` gives the metric's value without a pass over the data."""

    def register(value_of: ValueOf) -> ValueOf:
        _register_value(name, scope, keys, value_of)
        return value_of

    return register


# --- what is asked about failing rows -----------------------------------------------------------


def _count(asked: Asked, rows: Rows, engine: PolarsExecutionEngine) -> Question:
    return AboutRows(rows, lambda found: found.count)


def _domain_count(asked: Asked, rows: Rows, engine: PolarsExecutionEngine) -> Question:
    return rows_counted(asked)


def rows_counted(asked: Asked) -> Question:
    """How many rows count."""
    if asked.mask is None:
        return Aggregate((pl.len(),), lambda values: int(values[0]))
    return Aggregate((asked.mask.sum(),), lambda values: int(values[0] or 0))


def _values(asked: Asked, rows: Rows, scope: Scope, engine: PolarsExecutionEngine) -> Question:
    if engine.example_columns is not None:
        return AboutRows(rows, lambda _: [])
    columns, limit = asked.columns, _limit(asked.values)

    def finish(found: Found) -> list[Any]:
        shown = told(found.first.select(list(dict.fromkeys(columns))).head(limit))
        if scope == "column":
            return [row[columns[0]] for row in shown]
        return [tuple(row[column] for column in columns) for row in shown] if scope == "pair" else shown

    return AboutRows(rows, finish, columns, limit)


def told(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows as Great Expectations can write them: lists by their first elements, durations as text."""
    return [{name: _told(value) for name, value in row.items()} for row in rows.to_dicts()]


def _told(value: Any) -> Any:
    if isinstance(value, list):
        return [_told(one) for one in value[:_ELEMENTS]]
    if isinstance(value, dict):
        return {name: _told(one) for name, one in value.items()}
    return str(value) if isinstance(value, dt.timedelta) else value


def _index(asked: Asked, rows: Rows, engine: PolarsExecutionEngine) -> Question:
    if engine.example_columns is not None:
        extra = [name for name in engine.example_columns if name in asked.data.schema]
        shown = tuple(dict.fromkeys([*extra, *asked.columns]))
        return AboutRows(rows, _failing_rows, shown, _EXAMPLES, positions=True)
    how = asked.values.get("result_format") or {}
    whole = how.get("result_format") == "COMPLETE"
    limit = None if whole else int(how.get("partial_unexpected_count", 20))
    names = how.get("unexpected_index_column_names")
    if not names:
        if whole:
            return AboutRows(rows, _all_positions, positions=True)
        return AboutRows(rows, lambda found: found.first[ROW].head(limit or 0).to_list(), (), limit or 0)
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        dtype_of(asked.data, name)
    excluded = bool(how.get("exclude_unexpected_values"))
    shown = tuple(dict.fromkeys(names if excluded else [*asked.columns, *names]))

    def finish(found: Found) -> list[Any]:
        first = found.first.select(shown) if limit is None else found.first.select(shown).head(limit)
        if excluded and first.height:
            return [{name: [row[name] for row in told(first)] for name in first.columns}]
        return told(first)

    return AboutRows(rows, finish, shown, _NO_LIMIT if limit is None else limit)


_EXAMPLES = 20
_ELEMENTS = 20
"""Elements of a list that are shown: lists of ids are long."""
_NO_LIMIT = 2**62


def _all_positions(found: Found) -> list[int]:
    assert found.positions is not None
    return [int(position) for position in found.positions]


def _failing_rows(found: Found) -> FailingRows:
    assert found.positions is not None
    return FailingRows(found.positions, found.first.head(_EXAMPLES))


def _rows(asked: Asked, rows: Rows, engine: PolarsExecutionEngine) -> Question:
    columns = tuple(asked.data.schema)
    limit = _limit(asked.values)
    return AboutRows(rows, lambda found: told(found.first.select(columns).head(limit)), columns, limit)


def _query(asked: Asked, rows: Rows, engine: PolarsExecutionEngine) -> str | None:
    how = asked.values.get("result_format") or {}
    if engine.example_columns is not None or how.get("return_unexpected_index_query") is False:
        return None
    return f"frame.filter({rows.mask})" if isinstance(rows, Where) else None


def _limit(values: Values) -> int:
    how = values.get("result_format") or {}
    if how.get("result_format") == "COMPLETE":
        return MAX_VALUES
    return min(int(how.get("partial_unexpected_count", 20)), MAX_VALUES)


# --- asking -------------------------------------------------------------------------------------


def _asked(engine: PolarsExecutionEngine, domain: Values, values: Values, scope: Scope) -> Asked:
    data = engine.batch(domain)
    if scope == "column":
        columns: tuple[str, ...] = (domain["column"],)
    elif scope == "pair":
        columns = (domain["column_A"], domain["column_B"])
    else:
        columns = tuple(domain["column_list"]) if scope == "multicolumn" else ()
    for name in columns:
        dtype_of(data, name)
    return Asked(data, engine.mask_of(domain), columns, values, domain.get("table"))


def _asking(
    scope: Scope,
    rows_of: Callable[[Asked], Rows],
    make: Callable[[Asked, Rows, PolarsExecutionEngine], Any],
) -> ValueOf:
    """Metrics of one expectation share its set of rows, and so the work of finding it."""

    def ask(engine: PolarsExecutionEngine, domain: Values, values: Values) -> Any:
        asked = _asked(engine, domain, values, scope)
        arguments = {key: value for key, value in values.items() if key != "result_format"}
        key = (rows_of, _id_of(domain), _id_of(arguments))
        if key not in asked.data.sets:
            rows = rows_of(asked)
            _try(asked, _exprs_of(rows))
            asked.data.sets[key] = rows
        return make(asked, asked.data.sets[key], engine)

    return ask


def _id_of(arguments: Values) -> object:
    return IDDict(arguments).to_id()


def _try(asked: Asked, exprs: Sequence[pl.Expr]) -> None:
    """Evaluate expressions on no rows: one that fails shall not fail the pass that it would be part of.

    Raises:
        SuiteError: One does not fit the columns.
    """
    try:
        asked.data.no_rows.select(e.alias(str(number)) for number, e in enumerate(exprs))
    except pl.exceptions.PolarsError as error:
        raise SuiteError(f"cannot be asked of {', '.join(map(repr, asked.columns))}: {error}") from error


def _exprs_of(rows: Rows) -> list[pl.Expr]:
    if isinstance(rows, Where):
        return [rows.mask]
    if isinstance(rows, Repeated):
        hashed = pl.struct(value.alias(str(number)) for number, value in enumerate(rows.values)).hash()
        return [hashed, *([rows.domain] if rows.domain is not None else [])]
    if isinstance(rows, Unordered | Distinct):
        return [rows.value]
    assert isinstance(rows, Measured)
    return list(rows.measures)


# --- registration -------------------------------------------------------------------------------


def _register(
    name: str, scope: Scope, keys: Sequence[str], ask: Callable[[PolarsExecutionEngine, Values, Values], Question]
) -> None:
    """A metric that is answered in the pass."""

    def partial(
        cls: type,
        execution_engine: PolarsExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> tuple[Question, dict[str, Any], dict[str, Any]]:
        question = ask(execution_engine, metric_domain_kwargs, metric_value_kwargs or {})
        return question, dict(metric_domain_kwargs), {}

    kind = MetricPartialFunctionTypes.AGGREGATE_FN
    _put(f"{name}.{kind.metric_suffix}", scope, keys, partial, kind)
    _put(name, scope, keys, None, MetricFunctionTypes.VALUE)


def _register_value(name: str, scope: Scope, keys: Sequence[str], value_of: ValueOf) -> None:
    """A metric that needs no pass."""

    def value(
        cls: type,
        execution_engine: PolarsExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> Any:
        return value_of(execution_engine, metric_domain_kwargs, metric_value_kwargs or {})

    _put(name, scope, keys, value, MetricFunctionTypes.VALUE)


def _put(name: str, scope: Scope, keys: Sequence[str], provider: Any, kind: Any) -> None:
    """Register under the keys that Great Expectations knows the metric by; a new one gets ours.

    Where its keys leave out the row condition (pairs in a set), the condition would be dropped without a
    word and every row be judged: the key is added, for all engines.
    """
    known = registry._registered_metrics.get(name)
    if known is None:
        domain, value_keys = DOMAINS[scope], tuple(keys)
    else:
        conditions = () if scope == "table" else ("row_condition", "condition_parser")
        missing = [key for key in conditions if key not in known["metric_domain_keys"]]
        known["metric_domain_keys"] = domain = (*known["metric_domain_keys"], *missing)
        value_keys = known["metric_value_keys"]
    registry.register_metric(
        metric_name=name,
        metric_domain_keys=domain,
        metric_value_keys=value_keys,
        execution_engine=PolarsExecutionEngine,
        metric_class=type(f"Polars_{name}", (MetricProvider,), {"domain_keys": domain, "value_keys": value_keys}),
        metric_provider=provider,
        metric_fn_type=kind,
    )
