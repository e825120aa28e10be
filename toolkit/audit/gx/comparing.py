"""Values of a suite held against polars columns, without a guess: which can be equal, and on which side of a bound.

polars refuses `string == 3`, and compares whole numbers with fractions as floats, which are exact up to 2**53
only. Here a value is first brought into the column's own type; one that no value of the column can equal
equals nothing, and a bound that has no order with the column is an error.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Literal

import polars as pl
from dateutil.parser import ParserError  # type: ignore[import-untyped]
from dateutil.parser import parse as parse_moment

from toolkit.errors import SuiteError

Kind = Literal["number", "flag", "text", "moment", "duration", "clock", "binary", "nested", "null", "object"]
Operator = Literal["<", "<=", ">", ">="]

_SIMPLE: Mapping[type[pl.DataType], Kind] = {
    pl.Boolean: "flag",
    pl.String: "text",
    pl.Categorical: "text",
    pl.Enum: "text",
    pl.Date: "moment",
    pl.Datetime: "moment",
    pl.Duration: "duration",
    pl.Time: "clock",
    pl.Binary: "binary",
    pl.List: "nested",
    pl.Array: "nested",
    pl.Struct: "nested",
    pl.Null: "null",
}
_COMPARE: Mapping[Operator, Callable[[pl.Expr, Any], pl.Expr]] = {
    "<": lambda expr, bound: expr < bound,
    "<=": lambda expr, bound: expr <= bound,
    ">": lambda expr, bound: expr > bound,
    ">=": lambda expr, bound: expr >= bound,
}


def kind_of(dtype: pl.DataType) -> Kind:
    """What values of a polars type are; whole numbers, fractions and decimals are all numbers."""
    if dtype.is_numeric():
        return "number"
    return _SIMPLE.get(dtype.base_type(), "object")


def plain(column: str, dtype: pl.DataType) -> pl.Expr:
    """A column whose every missing value is null (NaN is missing, as in Great Expectations) and whose texts are
    strings."""
    if dtype.is_float():
        return pl.col(column).fill_nan(None)
    if dtype in (pl.Categorical, pl.Enum):
        return pl.col(column).cast(pl.String)
    return pl.col(column)


def equals_any(expr: pl.Expr, dtype: pl.DataType, values: Iterable[Any]) -> pl.Expr:
    """Whether a plain column equals one of some values, as Python says equal: 1, 1.0 and true are, "1" is not.

    Null where the column is. Values that it cannot hold, nulls among them, are passed over. Text that stands
    for a moment is read as one where the column holds moments.

    Raises:
        SuiteError: The column is nested, or of Python objects.
    """
    kind = kind_of(dtype)
    if kind in ("nested", "object"):
        raise SuiteError(f"expected a column of single values, found {dtype}")
    if kind == "null":
        return pl.lit(None, dtype=pl.Boolean)
    own = [found for value in values if (found := _own_value(value, dtype, kind)) is not None]
    held = pl.Float64() if dtype.is_float() else pl.String() if kind == "text" else dtype
    if not own:
        return pl.when(expr.is_not_null()).then(pl.lit(False))
    return expr.cast(held).is_in(pl.Series(own, dtype=held).implode())


def not_among(values: Iterable[Any], dtype: pl.DataType, found: Iterable[Any]) -> list[Any]:
    """Those of some values, each once, that are equal to none of the values that a column holds."""
    kind, held = kind_of(dtype), set(found)
    missing: list[Any] = []
    for value in values:
        own = _own_value(value, dtype, kind) if kind not in ("null", "object") else None
        if (own is None or own not in held) and not any(value == other for other in missing):
            missing.append(value)
    return missing


def compare(expr: pl.Expr, dtype: pl.DataType, operator: Operator, bound: Any) -> pl.Expr:
    """Whether a plain column stands on one side of a bound; null where the column is null.

    Raises:
        SuiteError: Values of the column have no order with the bound.
    """
    kind = kind_of(dtype)
    if kind == "null":
        return pl.lit(None, dtype=pl.Boolean)
    if kind in ("number", "flag") and isinstance(bound, int | float | Decimal):
        return _compare_number(expr.cast(pl.Int8) if kind == "flag" else expr, dtype, operator, bound)
    if kind == "text" and isinstance(bound, str):
        return _COMPARE[operator](expr, pl.lit(bound))
    if kind == "moment" and isinstance(bound, str | dt.date):
        return _compare_moment(expr, dtype, operator, bound)
    if (kind == "duration" and isinstance(bound, dt.timedelta)) or (kind == "clock" and isinstance(bound, dt.time)):
        return _COMPARE[operator](expr, pl.lit(bound))
    raise SuiteError(f"expected a bound that {dtype} can be compared with, found {bound!r}")


def comparable(left: pl.DataType, right: pl.DataType) -> bool:
    """Whether values of two columns can be held against each other."""
    kinds = {kind_of(left), kind_of(right)}
    if "nested" in kinds:
        return left == right
    return len(kinds - {"null"}) <= 1 or kinds <= {"number", "flag", "null"}


def exact(expr: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The same numbers in a type in which two whole columns, signed and unsigned, compare exactly."""
    return expr.cast(pl.Int128) if dtype.is_integer() or dtype == pl.Boolean else expr


def _own_value(value: Any, dtype: pl.DataType, kind: Kind) -> Any:
    """A value as the column would hold it, or None where it cannot."""
    if kind in ("number", "flag"):
        return _own_number(value, dtype)
    if kind == "moment":
        return _own_moment(value, dtype)
    types: Mapping[Kind, type] = {"text": str, "duration": dt.timedelta, "clock": dt.time, "binary": bytes}
    return value if isinstance(value, types[kind]) else None


def _own_number(value: Any, dtype: pl.DataType) -> Any:
    if not isinstance(value, int | float | Decimal) or value != value or value in (math.inf, -math.inf):
        return float(value) if dtype.is_float() and isinstance(value, float) and value == value else None
    if dtype == pl.Boolean:
        return bool(value) if value in (0, 1) else None
    if dtype.is_float():
        try:
            return float(value) if float(value) == value else None
        except OverflowError:
            return None
    if isinstance(dtype, pl.Decimal):
        return _own_decimal(value, dtype)
    whole = int(value)
    low, high = _range_of(dtype)
    return whole if whole == value and low <= whole <= high else None


def _own_decimal(value: float | Decimal, dtype: pl.Decimal) -> Decimal | None:
    """A number written out, as a decimal of the column's scale; None where it has more digits."""
    written = Decimal(str(int(value) if isinstance(value, bool) else value))
    precision: Any = dtype.precision
    try:
        with localcontext(prec=80):
            scaled = written.quantize(Decimal(1).scaleb(-dtype.scale))
    except InvalidOperation:
        return None
    return scaled if scaled == written and len(scaled.as_tuple().digits) <= (precision or 38) else None


def _range_of(dtype: pl.DataType) -> tuple[int, int]:
    """Smallest and largest number of a whole type."""
    low, high = pl.select(low=dtype.min(), high=dtype.max()).row(0)  # type: ignore[attr-defined]
    return int(low), int(high)


def _own_moment(value: Any, dtype: pl.DataType) -> Any:
    moment = _moment_of(value)
    if moment is None:
        return None
    if not isinstance(dtype, pl.Datetime):
        return moment.date() if moment.tzinfo is None and moment.time() == dt.time() else None
    if dtype.time_unit == "ms" and moment.microsecond % 1000:
        return None
    if dtype.time_zone is None:
        return moment if moment.tzinfo is None else None
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)


def _moment_of(value: Any) -> dt.datetime | None:
    if isinstance(value, str):
        try:
            moment: dt.datetime = parse_moment(value)
        except (ParserError, OverflowError):
            return None
        return moment
    if isinstance(value, dt.datetime):
        return value
    return dt.datetime.combine(value, dt.time()) if isinstance(value, dt.date) else None


def _compare_moment(expr: pl.Expr, dtype: pl.DataType, operator: Operator, bound: str | dt.date) -> pl.Expr:
    moment = _moment_of(bound)
    if moment is None:
        raise SuiteError(f"expected a date or time, found {bound!r}")
    zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
    if (zone is None) != (moment.tzinfo is None) and isinstance(bound, dt.datetime):
        raise SuiteError(f"expected a bound {'without' if zone is None else 'with'} a time zone, found {bound!r}")
    if zone is None:
        return _COMPARE[operator](expr.cast(pl.Datetime("us")), pl.lit(moment.replace(tzinfo=None)))
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return _COMPARE[operator](expr.dt.convert_time_zone("UTC"), pl.lit(aware.astimezone(dt.UTC)))


def _compare_number(expr: pl.Expr, dtype: pl.DataType, operator: Operator, bound: float | Decimal) -> pl.Expr:
    if bound != bound:
        raise SuiteError("expected a bound that is a number, found NaN")
    if dtype.is_float():
        return _COMPARE[operator](expr.cast(pl.Float64), pl.lit(float(bound)))
    if bound in (math.inf, -math.inf):
        always = (bound > 0) == (operator in ("<", "<="))
        return pl.when(expr.is_not_null()).then(pl.lit(always))
    if isinstance(dtype, pl.Decimal):
        return _COMPARE[operator](expr, pl.lit(Decimal(str(bound))))
    # x < 2.5 and x <= 2 hold for the same whole numbers: the bound is moved to a whole one.
    whole = math.ceil(bound) if operator in ("<", ">=") else math.floor(bound)
    return _COMPARE[operator](expr.cast(pl.Int128), pl.lit(max(-(2**126), min(2**126, whole)), dtype=pl.Int128))
