"""Which rows fail expectations of columns of lists, and the types of columns."""

from __future__ import annotations

import polars as pl

from toolkit.audit.gx.comparing import compare, equals_any, kind_of
from toolkit.audit.gx.engine import PolarsExecutionEngine, dtype_of
from toolkit.audit.gx.metrics import Asked, Values, row_metric, value_metric
from toolkit.audit.gx.questions import Rows, Where, both
from toolkit.audit.gx.row_metrics import BOUNDS, within
from toolkit.errors import SuiteError


def _lists(asked: Asked) -> tuple[pl.Expr, pl.DataType]:
    """The lists, and the type of their elements.

    Raises:
        SuiteError: The column holds no lists.
    """
    dtype = asked.dtype()
    if not isinstance(dtype, pl.List | pl.Array):
        raise SuiteError(f"expected a column of lists, found {asked.columns[0]!r}: {dtype}")
    inner = dtype.inner() if isinstance(dtype.inner, type) else dtype.inner
    return (asked.column().arr.to_list() if isinstance(dtype, pl.Array) else asked.column()), inner


def _judged(asked: Asked, passes: pl.Expr) -> Where:
    failing = both(asked.mask, asked.column().is_not_null(), passes.fill_null(False).not_())
    assert failing is not None
    return Where(failing)


def _element(lists: pl.Expr, inner: pl.DataType, first: bool) -> pl.Expr:
    element = lists.list.first() if first else lists.list.last()
    return element.fill_nan(None) if inner.is_float() else element


def _times(asked: Asked) -> pl.Expr:
    """How often each list holds the element."""
    lists, inner = _lists(asked)
    equal = equals_any(pl.element(), inner, [asked.values["element"]]).fill_null(False)
    return lists.list.eval(equal.cast(pl.UInt32)).list.sum()


@row_metric("column_lists.length.between", keys=BOUNDS)
def _length(asked: Asked) -> Rows:
    length = _lists(asked)[0].list.len()
    return _judged(asked, within(asked.values, lambda operator, bound: compare(length, pl.UInt32(), operator, bound)))


@row_metric("column_lists.element_count.between", keys=("element", *BOUNDS))
def _element_count(asked: Asked) -> Rows:
    times = _times(asked)
    return _judged(asked, within(asked.values, lambda operator, bound: compare(times, pl.UInt32(), operator, bound)))


@row_metric("column_lists.contain", keys=("element",))
def _contain(asked: Asked) -> Rows:
    return _judged(asked, _times(asked) > 0)


@row_metric("column_lists.first.in_set", keys=("value_set",))
def _first(asked: Asked) -> Rows:
    lists, inner = _lists(asked)
    return _judged(asked, equals_any(_element(lists, inner, first=True), inner, asked.values["value_set"]))


@row_metric("column_lists.last.in_set", keys=("value_set",))
def _last(asked: Asked) -> Rows:
    lists, inner = _lists(asked)
    return _judged(asked, equals_any(_element(lists, inner, first=False), inner, asked.values["value_set"]))


@value_metric("column.dtype", "column")
def _dtype(engine: PolarsExecutionEngine, domain: Values, values: Values) -> tuple[str, ...]:
    """The name of the column's type, then the kinds that it belongs to."""
    dtype = dtype_of(engine.batch(domain), domain["column"])
    kinds = {"number": dtype.is_numeric(), "integer": dtype.is_integer(), "float": dtype.is_float()}
    kinds |= {"text": kind_of(dtype) == "text", "moment": kind_of(dtype) == "moment"}
    kinds |= {"list": isinstance(dtype, pl.List | pl.Array)}
    return (str(dtype), *(kind for kind, holds in kinds.items() if holds))
