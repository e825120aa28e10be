"""What can be asked of a LazyFrame in one pass over it, as values. Pure polars; `passing` answers.

A question is either an `Aggregate`, or asks about a set of `Rows`: how many there are, where, and what
the first of them look like. Five kinds of sets cover everything:

- `Where`: rows for which an expression is true;
- `Repeated`: rows whose values occur in another row too;
- `Unordered`: rows that are out of order with the row before;
- `Measured`: rows that an expression picks out once some aggregates of the whole frame are known;
- `Distinct`: one row for each value of an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Positions = npt.NDArray[np.int64]

ROW = "__row__"
"""The column that holds a row's position in the frame, from 0."""


@dataclass(frozen=True, slots=True)
class Where:
    """Rows for which `mask` is true; null counts as false."""

    mask: pl.Expr

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal sets."""
        return ("where", serialized(self.mask))


@dataclass(frozen=True, slots=True)
class Repeated:
    """Rows within `domain` (None: all) whose `values` stand in another such row too; nulls are equal to each other."""

    values: tuple[pl.Expr, ...]
    domain: pl.Expr | None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal sets."""
        return ("repeated", *map(serialized, self.values), serialized(self.domain))


@dataclass(frozen=True, slots=True)
class Unordered:
    """Rows whose `value` is out of order with the last one before that is not null.

    Attributes:
        in_order: (later, earlier) → whether the later one may follow; both expressions and single values are asked.
    """

    value: pl.Expr
    in_order: Callable[[Any, Any], Any]
    name: str

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal sets."""
        return ("unordered", self.name, serialized(self.value))


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows for which `mask_of(values of the measures)` is true: it takes a second pass to find them."""

    measures: tuple[pl.Expr, ...]
    mask_of: Callable[[Sequence[Any]], pl.Expr]
    name: str

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal sets; `name` tells how the mask follows from the measures."""
        return ("measured", self.name, *map(serialized, self.measures))


@dataclass(frozen=True, slots=True)
class Distinct:
    """The values of `value` other than null, each once, in no order. They come in `Found.first`, as its one column;
    memory grows with them, not with the rows."""

    value: pl.Expr

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal sets."""
        return ("distinct", serialized(self.value))


Rows = Where | Repeated | Unordered | Measured | Distinct


@dataclass(frozen=True, slots=True)
class Found:
    """A set of rows that was found.

    Attributes:
        count: How many they are.
        positions: All of them, ascending; None where nobody asked.
        first: The first of them in order: `ROW` and the columns that were asked for. Of `Distinct` all values.
    """

    count: int
    positions: Positions | None
    first: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Expressions that each give one value; `finish` makes the answer of these."""

    exprs: tuple[pl.Expr, ...]
    finish: Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class AboutRows:
    """A question about a set of rows.

    Attributes:
        rows: The set.
        finish: Makes the answer.
        columns: Columns to show of the first rows.
        limit: How many rows to show.
        positions: Whether all positions are wanted.
    """

    rows: Rows
    finish: Callable[[Found], Any]
    columns: tuple[str, ...] = ()
    limit: int = 0
    positions: bool = False


@dataclass(frozen=True, slots=True)
class RowsOf:
    """How many rows another frame has: a query of its own."""

    frame: pl.LazyFrame = field(repr=False)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Stands where a question failed; the others of its pass are answered all the same."""

    error: Exception


Question = Aggregate | AboutRows | RowsOf


def both(*masks: pl.Expr | None) -> pl.Expr | None:
    """All of some masks; None stands for one that is always true."""
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    return given[0] if len(given) == 1 else pl.all_horizontal(given)


def serialized(expr: pl.Expr | None) -> bytes | None:
    """An expression as bytes: equal ones do the same; those with Python functions are equal to themselves alone."""
    if expr is None:
        return None
    try:
        return expr.meta.serialize()
    except (pl.exceptions.ComputeError, TypeError, AttributeError, ValueError):
        return str(id(expr)).encode()
