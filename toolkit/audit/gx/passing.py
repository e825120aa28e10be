"""Answer any number of questions with one pass over a LazyFrame, and a second one only for what the first found.

The pass is a single streaming `select`. Masks are columns of it, counted by polars; behind them stands a tap, a
Python function that sees every stretch of rows once, and keeps the positions of failing rows and the first
few of them. What is kept grows with the rows that fail, not with those that pass; a question for repeated
values holds 4 bytes a row, most of a hash, until the pass is over.

The second pass reads the rows of which these bits occur twice, and decides by their values. It also finds the rows
that depend on a measure of the whole frame, such as a z-score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from toolkit.audit.gx.questions import (
    ROW,
    AboutRows,
    Aggregate,
    Distinct,
    Found,
    Measured,
    Question,
    Repeated,
    Rows,
    Unanswered,
    Unordered,
    Where,
    serialized,
)
from toolkit.audit.gx.tap import (
    Collector,
    DistinctCollector,
    HashCollector,
    MaskCollector,
    OrderCollector,
    RepeatCollector,
    Tap,
)
from toolkit.errors import SuiteError

Hashes = npt.NDArray[np.uint64]
Key = tuple[object, ...]


@dataclass(slots=True)
class Wanted:
    """All that is asked about one set of rows."""

    rows: Rows
    columns: dict[str, None] = field(default_factory=dict)
    limit: int = 0
    positions: bool = False

    def add(self, question: AboutRows) -> None:
        """Widen what is kept, so that this question is answered too."""
        self.columns.update(dict.fromkeys(question.columns))
        self.limit = max(self.limit, question.limit)
        self.positions = self.positions or question.positions


@dataclass(slots=True)
class Answers:
    """The answers, in the questions' order, and what they cost.

    Attributes:
        n_rows: Rows of the frame; None where no pass was needed.
        passes: One line for each query over the data.
    """

    values: list[Any]
    n_rows: int | None
    passes: list[str]


def answer(frame: pl.LazyFrame, questions: Sequence[Question]) -> Answers:
    """Answer questions about a frame.

    Args:
        frame: Its row order is that of the scan.
        questions: Expressions must be valid for the frame's columns.

    Raises:
        polars.exceptions.PolarsError: The frame cannot be read, or an expression fails on its values.
    """
    wanted: dict[Key, Wanted] = {}
    keys = [question.rows.key if isinstance(question, AboutRows) else () for question in questions]
    for question, key in zip(questions, keys, strict=True):
        if isinstance(question, AboutRows):
            wanted.setdefault(key, Wanted(question.rows)).add(question)
    passes: list[str] = []
    select = _Select()
    slots = [[select.slot(e) for e in q.exprs] if isinstance(q, Aggregate) else [] for q in questions]
    measures = {k: [select.slot(e) for e in w.rows.measures] for k, w in wanted.items() if isinstance(w.rows, Measured)}
    found: dict[Key, Found] = {}
    n_rows: int | None = None
    values: list[Any] = []
    if wanted or select.exprs:
        first = {key: want for key, want in wanted.items() if not isinstance(want.rows, Measured)}
        taps, n_rows, values = _run(frame, first, select, passes)
        found |= {key: tap.found for key, tap in taps.items() if not isinstance(tap, HashCollector)}
        again = {key: tap.twice() for key, tap in taps.items() if isinstance(tap, HashCollector)}
        later = {key: ([values[s] for s in ours]) for key, ours in measures.items()}
        found |= _second(frame, wanted, again, later, passes)
    answers = [
        _finished(question, [values[s] for s in ours], found.get(key), passes)
        for question, key, ours in zip(questions, keys, slots, strict=True)
    ]
    return Answers(values=answers, n_rows=n_rows, passes=passes)


def answer_apart(frame: pl.LazyFrame, questions: Sequence[Question], limit: int | None = None) -> Answers:
    """As `answer`, where a question whose values make a pass fail does not take the others with it.

    A pass that fails is split in two until those that fail are alone. Where many do, the frame itself cannot
    be read: after `limit` failures (None: as many as finding three single questions takes) the rest has failed too.
    """
    left = 3 * (len(questions).bit_length() + 1) if limit is None else limit
    try:
        return answer(frame, questions)
    except (pl.exceptions.PolarsError, OSError, SuiteError) as error:
        if len(questions) == 1 or left <= 1:
            return Answers([Unanswered(error)] * len(questions), None, ["a pass that failed"])
    half = len(questions) // 2
    before = answer_apart(frame, questions[:half], left - 1)
    failed = sum(1 for line in before.passes if line == "a pass that failed")
    after = answer_apart(frame, questions[half:], left - 1 - failed)
    n_rows = before.n_rows if before.n_rows is not None else after.n_rows
    return Answers(before.values + after.values, n_rows, ["a pass that failed", *before.passes, *after.passes])


def _finished(question: Question, values: list[Any], found: Found | None, passes: list[str]) -> Any:
    """One answer. Values of data decide whether it can be given (a set of lists cannot), so any error is its own."""
    try:
        if isinstance(question, Aggregate):
            return question.finish(values)
        if isinstance(question, AboutRows):
            assert found is not None
            return question.finish(found)
        passes.append("rows of another table")
        return int(question.frame.select(pl.len()).collect(engine="streaming").item())
    except (ArithmeticError, LookupError, TypeError, ValueError, OSError, pl.exceptions.PolarsError) as error:
        return Unanswered(error)


def _second(
    frame: pl.LazyFrame,
    wanted: dict[Key, Wanted],
    again: dict[Key, Hashes],
    measured: dict[Key, list[Any]],
    passes: list[str],
) -> dict[Key, Found]:
    """Rows that the first pass could only point at."""
    found = {key: _nothing(wanted[key]) for key, hashes in again.items() if not len(hashes)}
    open_: dict[Key, Wanted] = {}
    for key, values in measured.items():
        rows = wanted[key].rows
        assert isinstance(rows, Measured)
        want = wanted[key]
        open_[key] = Wanted(Where(rows.mask_of(values)), want.columns, want.limit, want.positions)
    open_ |= {key: wanted[key] for key, hashes in again.items() if len(hashes)}
    if open_:
        taps, _, _ = _run(frame, open_, _Select(), passes, again)
        found |= {key: tap.found for key, tap in taps.items()}
    return found


def _nothing(want: Wanted) -> Found:
    empty = pl.DataFrame(schema={ROW: pl.UInt32, **dict.fromkeys(want.columns, pl.Null)})
    return Found(0, np.empty(0, dtype=np.int64) if want.positions else None, empty)


class _Select:
    """Aggregates of one `select`; equal ones share a slot."""

    def __init__(self) -> None:
        self.exprs: list[pl.Expr] = []
        self._known: dict[bytes | None, int] = {}

    def slot(self, expr: pl.Expr) -> int:
        """The index of an expression's value in the selected row."""
        number = self._known.setdefault(serialized(expr), len(self.exprs))
        if number == len(self.exprs):
            self.exprs.append(expr)
        return number


def _run(
    frame: pl.LazyFrame,
    wanted: dict[Key, Wanted],
    select: _Select,
    passes: list[str],
    hashes: dict[Key, Hashes] | None = None,
) -> tuple[dict[Key, Collector], int, list[Any]]:
    """One pass. With `hashes`, repeated values are looked for among these; without, hashes are gathered."""
    made: list[pl.Expr] = []
    collectors: dict[Key, Collector] = {}
    for number, (key, want) in enumerate(wanted.items()):
        name = f"__rows_{number}__"
        exprs, collector = _collector(want, name, None if hashes is None else hashes.get(key))
        made += exprs
        collectors[key] = collector
    aggregates = [expr.alias(str(number)) for number, expr in enumerate(select.exprs)]
    counted = [c for c in collectors.values() if isinstance(c, MaskCollector)]
    counts = [pl.col(c.name).sum().alias(f"n{number}") for number, c in enumerate(counted)]
    # The tap passes on only what is read behind it or shown from it: whole columns would be decoded for nothing.
    shown = {column for want in wanted.values() for column in want.columns}
    needed = {root for expr in aggregates for root in expr.meta.root_names()} | shown
    lazy = frame
    taps = [c for c in collectors.values() if c.looks]
    if made or taps:
        roots = sorted({root for expr in made for root in expr.meta.root_names()} | needed)
        lazy = lazy.select(roots or frame.collect_schema().names()[:1]).with_row_index(ROW)
        lazy = lazy.select(ROW, *sorted(needed), *made)
    if taps:
        # A tap must see every row, and each with its position.
        lazy = lazy.map_batches(
            Tap(taps),
            streamable=True,
            predicate_pushdown=False,
            projection_pushdown=False,
            slice_pushdown=False,
            validate_output_schema=False,
        )
    row = lazy.select(pl.len().alias("rows"), *aggregates, *counts).collect(engine="streaming").row(0)
    passes.append(f"{len(aggregates)} aggregates, {len(wanted)} sets of rows, {len(taps)} of them tapped")
    for collector, count in zip(counted, row[1 + len(aggregates) :], strict=True):
        collector.count = int(count or 0)
    return collectors, int(row[0]), list(row[1 : 1 + len(aggregates)])


def _collector(want: Wanted, name: str, hashes: Hashes | None) -> tuple[list[pl.Expr], Collector]:
    """The columns that a set of rows needs behind the scan, and who watches them."""
    rows = want.rows
    shown = tuple(want.columns)
    if isinstance(rows, Where):
        return [rows.mask.fill_null(False).alias(name)], MaskCollector(name, shown, want.limit, want.positions)
    if isinstance(rows, Unordered):
        return [rows.value.alias(name)], OrderCollector(name, shown, want.limit, want.positions, rows.in_order)
    if isinstance(rows, Distinct):
        return [rows.value.alias(name)], DistinctCollector(name)
    assert isinstance(rows, Repeated)
    hashed = pl.struct(value.alias(str(number)) for number, value in enumerate(rows.values)).hash(seed=11)
    if rows.domain is not None:
        hashed = pl.when(rows.domain.fill_null(False)).then(hashed)
    if hashes is None:
        return [hashed.alias(name)], HashCollector(name)
    values = [value.alias(f"{name}{number}") for number, value in enumerate(rows.values)]
    keys = tuple(f"{name}{number}" for number in range(len(values)))
    return [hashed.alias(name), *values], RepeatCollector(name, shown, want.limit, want.positions, keys, hashes)
