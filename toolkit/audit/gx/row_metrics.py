"""Which rows fail each expectation that rows pass or fail. A missing value is judged only where it is the question."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars as pl

from toolkit.audit.gx.comparing import Operator, comparable, compare, equals_any, exact, kind_of
from toolkit.audit.gx.metrics import Asked, Values, row_metric
from toolkit.audit.gx.parsing import fits_format, fits_schema, holds_for, is_date, is_json
from toolkit.audit.gx.patterns import as_text, like, matches
from toolkit.audit.gx.questions import Measured, Repeated, Rows, Unordered, Where, both
from toolkit.errors import SuiteError

BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")


def _judged(asked: Asked, passes: pl.Expr, of: pl.Expr | None = None) -> Where:
    """The rows that count, have a value and do not pass."""
    known = (asked.column() if of is None else of).is_not_null()
    failing = both(asked.mask, known, passes.fill_null(False).not_())
    assert failing is not None
    return Where(failing)


def within(values: Values, stands: Callable[[Operator, Any], pl.Expr]) -> pl.Expr:
    """Whether something is between the bounds that an expectation names.

    Raises:
        SuiteError: It names none, or the lower one above the upper.
    """
    low, high = values.get("min_value"), values.get("max_value")
    if low is None and high is None:
        raise SuiteError("expected min_value or max_value, found neither")
    try:
        if low is not None and high is not None and low > high:
            raise SuiteError(f"expected min_value to be at most max_value, found {low!r} and {high!r}")
    except TypeError as error:
        raise SuiteError(f"expected min_value and max_value of one kind, found {low!r} and {high!r}") from error
    parts = []
    if low is not None:
        parts.append(stands(">" if values.get("strict_min") else ">=", low))
    if high is not None:
        parts.append(stands("<" if values.get("strict_max") else "<=", high))
    inside = both(*parts)
    assert inside is not None
    return inside


# --- one column ---------------------------------------------------------------------------------


@row_metric("column_values.nonnull")
def _nonnull(asked: Asked) -> Rows:
    return asked.failing(asked.column().is_not_null())


@row_metric("column_values.null")
def _null(asked: Asked) -> Rows:
    return asked.failing(asked.column().is_null())


@row_metric("column_values.in_set", keys=("value_set",))
def _in_set(asked: Asked) -> Rows:
    return _judged(asked, equals_any(asked.column(), asked.dtype(), _listed(asked.values, "value_set")))


@row_metric("column_values.not_in_set", keys=("value_set",))
def _not_in_set(asked: Asked) -> Rows:
    return _judged(asked, ~equals_any(asked.column(), asked.dtype(), _listed(asked.values, "value_set")))


@row_metric("column_values.between", keys=BOUNDS)
def _between(asked: Asked) -> Rows:
    column, dtype = asked.column(), asked.dtype()
    return _judged(asked, within(asked.values, lambda operator, bound: compare(column, dtype, operator, bound)))


@row_metric("column_values.value_length.between", keys=BOUNDS)
def _length_between(asked: Asked) -> Rows:
    length = as_text(asked.column(), asked.dtype()).str.len_chars()
    return _judged(asked, within(asked.values, lambda operator, bound: compare(length, pl.UInt32(), operator, bound)))


@row_metric("column_values.value_length.equals", keys=("value",))
def _length_equals(asked: Asked) -> Rows:
    length = as_text(asked.column(), asked.dtype()).str.len_chars()
    return _judged(asked, equals_any(length, pl.UInt32(), [asked.values["value"]]))


@row_metric("column_values.match_regex", keys=("regex",))
def _match_regex(asked: Asked) -> Rows:
    return _judged(asked, matches(as_text(asked.column(), asked.dtype()), asked.values["regex"]))


@row_metric("column_values.not_match_regex", keys=("regex",))
def _not_match_regex(asked: Asked) -> Rows:
    return _judged(asked, ~matches(as_text(asked.column(), asked.dtype()), asked.values["regex"]))


@row_metric("column_values.match_regex_list", keys=("regex_list", "match_on"))
def _match_regex_list(asked: Asked) -> Rows:
    text = as_text(asked.column(), asked.dtype())
    found = [matches(text, pattern) for pattern in _listed(asked.values, "regex_list")]
    return _judged(asked, _any_or_all(found, asked.values.get("match_on")))


@row_metric("column_values.not_match_regex_list", keys=("regex_list",))
def _not_match_regex_list(asked: Asked) -> Rows:
    text = as_text(asked.column(), asked.dtype())
    return _judged(asked, ~pl.any_horizontal([matches(text, p) for p in _listed(asked.values, "regex_list")]))


@row_metric("column_values.match_like_pattern", keys=("like_pattern", "escape"))
def _match_like(asked: Asked) -> Rows:
    text, values = as_text(asked.column(), asked.dtype()), asked.values
    return _judged(asked, like(text, values["like_pattern"], values.get("escape")))


@row_metric("column_values.not_match_like_pattern", keys=("like_pattern", "escape"))
def _not_match_like(asked: Asked) -> Rows:
    text, values = as_text(asked.column(), asked.dtype()), asked.values
    return _judged(asked, ~like(text, values["like_pattern"], values.get("escape")))


@row_metric("column_values.match_like_pattern_list", keys=("like_pattern_list", "match_on", "escape"))
def _match_like_list(asked: Asked) -> Rows:
    return _judged(asked, _any_or_all(_likes(asked), asked.values.get("match_on")))


@row_metric("column_values.not_match_like_pattern_list", keys=("like_pattern_list", "escape"))
def _not_match_like_list(asked: Asked) -> Rows:
    return _judged(asked, ~pl.any_horizontal(_likes(asked)))


@row_metric("column_values.dateutil_parseable")
def _dateutil(asked: Asked) -> Rows:
    return _judged(asked, holds_for(asked.column(), asked.dtype(), is_date))


@row_metric("column_values.match_strftime_format", keys=("strftime_format",))
def _strftime(asked: Asked) -> Rows:
    return _judged(asked, holds_for(asked.column(), asked.dtype(), fits_format(asked.values["strftime_format"])))


@row_metric("column_values.json_parseable")
def _json(asked: Asked) -> Rows:
    return _judged(asked, holds_for(asked.column(), asked.dtype(), is_json))


@row_metric("column_values.match_json_schema", keys=("json_schema",))
def _json_schema(asked: Asked) -> Rows:
    return _judged(asked, holds_for(asked.column(), asked.dtype(), fits_schema(asked.values["json_schema"])))


@row_metric("column_values.increasing", keys=("strictly",))
def _increasing(asked: Asked) -> Rows:
    if asked.values.get("strictly"):
        return _ordered(asked, lambda later, earlier: later > earlier, "strictly increasing")
    return _ordered(asked, lambda later, earlier: later >= earlier, "increasing")


@row_metric("column_values.decreasing", keys=("strictly",))
def _decreasing(asked: Asked) -> Rows:
    if asked.values.get("strictly"):
        return _ordered(asked, lambda later, earlier: later < earlier, "strictly decreasing")
    return _ordered(asked, lambda later, earlier: later <= earlier, "decreasing")


@row_metric("column_values.unique")
def _unique(asked: Asked) -> Rows:
    return Repeated((asked.column(),), both(asked.mask, asked.column().is_not_null()))


@row_metric("column_values.z_score.under_threshold", keys=("double_sided", "threshold"))
def _z_score(asked: Asked) -> Rows:
    threshold, double = asked.values["threshold"], asked.values.get("double_sided", True)
    column = _numbers(asked)

    def mask_of(measured: Sequence[Any]) -> pl.Expr:
        mean, deviation = measured
        if not deviation:
            return pl.lit(False)
        score = (column - mean) / deviation
        under = score.abs() < abs(threshold) if double else score < threshold
        return _judged(asked, under).mask

    kept = column if asked.mask is None else pl.when(asked.mask).then(column)
    return Measured((kept.mean(), kept.std()), mask_of, f"z-score {threshold!r} {double!r}")


@row_metric("column_values.not_outliers", keys=("method", "multiplier"))
def _not_outliers(asked: Asked) -> Rows:
    method, multiplier = asked.values.get("method") or "iqr", asked.values.get("multiplier")
    multiplier = 1.5 if multiplier is None else multiplier
    column = _numbers(asked)
    kept = column if asked.mask is None else pl.when(asked.mask).then(column)
    quartiles = (kept.quantile(0.25, "linear"), kept.quantile(0.75, "linear"))
    if method not in ("iqr", "std"):
        raise SuiteError(f"expected method iqr or std, found {method!r}")

    def mask_of(measured: Sequence[Any]) -> pl.Expr:
        low, high = measured
        if low is None or high is None:
            return pl.lit(False)
        if method == "iqr":
            spread = (high - low) * multiplier
            return _judged(asked, (column >= low - spread) & (column <= high + spread)).mask
        reach = high * multiplier
        usual = (column - low).abs() < reach if reach > 0 else column == low
        return _judged(asked, usual).mask

    measures = quartiles if method == "iqr" else (kept.mean(), kept.std())
    return Measured(measures, mask_of, f"outliers {method} {multiplier!r}")


# --- several columns ----------------------------------------------------------------------------


@row_metric("column_pair_values.equal", "pair")
def _pair_equal(asked: Asked) -> Rows:
    left, right = _pair(asked)
    return asked.failing(left == right)


@row_metric("column_pair_values.a_greater_than_b", "pair", keys=("or_equal",))
def _pair_greater(asked: Asked) -> Rows:
    left, right = _pair(asked)
    return asked.failing(left >= right if asked.values.get("or_equal") else left > right)


@row_metric("column_pair_values.in_set", "pair", keys=("value_pairs_set",))
def _pair_in_set(asked: Asked) -> Rows:
    seconds: dict[Any, list[Any]] = {}
    for pair in _listed(asked.values, "value_pairs_set"):
        if len(pair) != 2:
            raise SuiteError(f"expected pairs of values, found {pair!r}")
        seconds.setdefault(pair[0], []).append(pair[1])
    found = [_is_one_of(asked, 0, [first]) & _is_one_of(asked, 1, allowed) for first, allowed in seconds.items()]
    return asked.failing(pl.any_horizontal(found) if found else pl.lit(False))


@row_metric("compound_columns.unique", "multicolumn")
def _compound(asked: Asked) -> Rows:
    return Repeated(tuple(asked.column(number) for number in range(len(asked.columns))), asked.mask)


@row_metric("multicolumn_sum.equal", "multicolumn", keys=("sum_total",))
def _sum_equal(asked: Asked) -> Rows:
    kinds = [kind_of(asked.dtype(number)) for number in range(len(asked.columns))]
    if not set(kinds) <= {"number", "flag", "null"}:
        raise SuiteError(f"expected columns of numbers, found {', '.join(asked.columns)}: {', '.join(kinds)}")
    whole = all(asked.dtype(number).is_integer() or kind != "number" for number, kind in enumerate(kinds))
    dtype: pl.DataType = pl.Int128() if whole else pl.Float64()
    total = pl.lit(0, dtype=pl.Int128)
    for number in range(len(asked.columns)):
        total = total + exact(asked.column(number), asked.dtype(number))
    return asked.failing(equals_any(total.cast(dtype), dtype, [asked.values["sum_total"]]))


@row_metric("select_column_values.unique.within_record", "multicolumn")
def _unique_within(asked: Asked) -> Rows:
    pairs = list(itertools.combinations(range(len(asked.columns)), 2))
    same = [_same(asked, a, b) for a, b in pairs]
    return asked.failing(~pl.any_horizontal(same) if same else pl.lit(True))


@row_metric("multicolumn_values.equal", "multicolumn")
def _all_equal(asked: Asked) -> Rows:
    same = [_same(asked, 0, number) for number in range(1, len(asked.columns))]
    return asked.failing(pl.all_horizontal(same) if same else pl.lit(True))


# --- pieces -------------------------------------------------------------------------------------


def _listed(values: Values, key: str) -> list[Any]:
    given = values.get(key)
    if not isinstance(given, list | tuple | set):
        raise SuiteError(f"expected a list in {key}, found {given!r}")
    return list(given)


def _any_or_all(found: Iterable[pl.Expr], match_on: Any) -> pl.Expr:
    if match_on not in (None, "any", "all"):
        raise SuiteError(f"expected match_on any or all, found {match_on!r}")
    return pl.all_horizontal(found) if match_on == "all" else pl.any_horizontal(found)


def _likes(asked: Asked) -> list[pl.Expr]:
    text, escape = as_text(asked.column(), asked.dtype()), asked.values.get("escape")
    return [like(text, pattern, escape) for pattern in _listed(asked.values, "like_pattern_list")]


def _ordered(asked: Asked, in_order: Callable[[Any, Any], Any], name: str) -> Rows:
    if kind_of(asked.dtype()) not in ("number", "flag", "moment", "duration", "clock", "null"):
        raise SuiteError(f"expected a column of numbers or times, found {asked.columns[0]!r}: {asked.dtype()}")
    return Unordered(asked.kept(), in_order, name)


def _numbers(asked: Asked) -> pl.Expr:
    if kind_of(asked.dtype()) not in ("number", "flag", "null"):
        raise SuiteError(f"expected a column of numbers, found {asked.columns[0]!r}: {asked.dtype()}")
    return asked.column().cast(pl.Float64)


def _pair(asked: Asked, a: int = 0, b: int = 1) -> tuple[pl.Expr, pl.Expr]:
    left, right = asked.dtype(a), asked.dtype(b)
    if not comparable(left, right):
        names = f"{asked.columns[a]!r}: {left}, {asked.columns[b]!r}: {right}"
        raise SuiteError(f"expected two columns that can be compared, found {names}")
    if left == right or not {kind_of(left), kind_of(right)} <= {"number", "flag"}:
        return asked.column(a), asked.column(b)
    return exact(asked.column(a), left), exact(asked.column(b), right)


def _same(asked: Asked, a: int, b: int) -> pl.Expr:
    """Whether two columns hold the same value, two missing ones included; values of two kinds never are."""
    missing = asked.column(a).is_null() & asked.column(b).is_null()
    if not comparable(asked.dtype(a), asked.dtype(b)):
        return missing
    left, right = _pair(asked, a, b)
    return missing | (left == right).fill_null(False)


def _is_one_of(asked: Asked, number: int, values: Sequence[Any]) -> pl.Expr:
    column = asked.column(number)
    found = equals_any(column, asked.dtype(number), values).fill_null(False)
    return found | column.is_null() if any(value is None or value != value for value in values) else found
