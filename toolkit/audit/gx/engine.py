"""The execution engine: Great Expectations' metrics as questions about a LazyFrame, answered in one pass.

Great Expectations resolves metrics in waves. The partials of all expectations of a suite are one wave: here each is a
question, checked against the frame's schema, so that one that cannot be asked fails by itself. The next
wave is one call of `resolve_metric_bundle` with all of them, and that is one `collect`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
from great_expectations.core.batch import BatchData, BatchMarkers
from great_expectations.core.id_dict import BatchSpec
from great_expectations.exceptions.exceptions import BatchSpecError, GreatExpectationsError, InvalidBatchIdError
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.expectations.row_conditions import Condition, Operator, deserialize_row_condition

from toolkit.audit.gx.comparing import compare, equals_any, plain
from toolkit.audit.gx.passing import answer_apart
from toolkit.audit.gx.questions import Rows, Unanswered, both
from toolkit.errors import SuiteError


class LazyFrameData(BatchData):
    """A batch: the frame, its schema once it was asked for, the row conditions and sets of rows that were asked about,
    and the answers of a wave that is asked for again because one of them failed."""

    def __init__(self, execution_engine: PolarsExecutionEngine, frame: pl.LazyFrame) -> None:
        super().__init__(execution_engine=execution_engine)
        self.engine = execution_engine
        self.frame = frame
        self.selections: dict[object, pl.Expr] = {}
        self.sets: dict[tuple[object, ...], Rows] = {}
        self.answers: dict[Any, Any] = {}
        self._schema: pl.Schema | None = None
        self._no_rows: pl.DataFrame | None = None

    @property
    def no_rows(self) -> pl.DataFrame:
        """The frame's columns without a row, to try expressions on."""
        if self._no_rows is None:
            self._no_rows = pl.DataFrame(schema=self.schema)
        return self._no_rows

    @property
    def schema(self) -> pl.Schema:
        """Columns and types."""
        if self._schema is None:
            self._schema = self.frame.collect_schema()
        return self._schema


class ParquetSpec(BatchSpec):
    """`{"path": file or glob, "reader_options": keywords of polars.scan_parquet}`."""


class LazyFrameSpec(BatchSpec):
    """Stands for a frame in memory; the frame is an attribute, since a specification is written as JSON."""

    frame: pl.LazyFrame

    @classmethod
    def of(cls, frame: pl.LazyFrame) -> LazyFrameSpec:
        """The specification of one frame."""
        spec = cls(batch_data="LazyFrame")
        object.__setattr__(spec, "frame", frame)
        return spec


class PolarsExecutionEngine(ExecutionEngine):  # type: ignore[type-arg]
    """Runs expectations on polars LazyFrames.

    Attributes:
        passes: One line for each query over data, since the engine was made.
        n_rows: Rows of the batch that was asked last; None before.
        tables: Frames by name, for expectations that compare with another table.
        example_columns: Where given, positions of failing rows come as `FailingRows`: an array, and these
            columns of the first rows.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.passes: list[str] = []
        self.n_rows: int | None = None
        self.tables: dict[str, pl.LazyFrame] = {}
        self.example_columns: tuple[str, ...] | None = None
        super().__init__(*args, **kwargs)

    # --- batches --------------------------------------------------------------------------------

    def load_batch_data(self, batch_id: str, batch_data: Any) -> None:
        """Make a frame a batch.

        Raises:
            GreatExpectationsError: It is no polars frame.
        """
        if isinstance(batch_data, pl.DataFrame | pl.LazyFrame):
            batch_data = LazyFrameData(self, batch_data.lazy())
        if not isinstance(batch_data, LazyFrameData):
            raise GreatExpectationsError(
                f"expected a polars LazyFrame or DataFrame as batch, found {type(batch_data).__name__}"
            )
        super().load_batch_data(batch_id=batch_id, batch_data=batch_data)

    def get_batch_data_and_markers(self, batch_spec: Any) -> tuple[LazyFrameData, BatchMarkers]:
        """The frame that a specification stands for; nothing of it is read.

        Raises:
            BatchSpecError: The specification is another engine's.
        """
        if isinstance(batch_spec, LazyFrameSpec):
            frame = batch_spec.frame
        elif isinstance(batch_spec, ParquetSpec):
            frame = pl.scan_parquet(batch_spec["path"], **(batch_spec.get("reader_options") or {}))
        else:
            raise BatchSpecError(f"expected a specification of polars, found {type(batch_spec).__name__}")
        loaded = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        return LazyFrameData(self, frame), BatchMarkers({"ge_load_time": loaded})

    def batch(self, domain: Mapping[str, Any]) -> LazyFrameData:
        """The batch of a domain; without one, that which was loaded last.

        Raises:
            InvalidBatchIdError: No such batch was loaded.
        """
        name = domain.get("batch_id") or self.batch_manager.active_batch_data_id
        found = self.batch_manager.batch_data_cache.get(str(name))
        if not isinstance(found, LazyFrameData):
            raise InvalidBatchIdError(f"no batch {name!r} was loaded")
        return found

    # --- domains --------------------------------------------------------------------------------

    def mask_of(self, domain: Mapping[str, Any]) -> pl.Expr | None:
        """The rows of a domain, by row condition and `ignore_row_if`, as one expression; None: all of them.

        Raises:
            SuiteError: The condition cannot be asked of these columns.
        """
        condition = deserialize_row_condition(domain.get("row_condition"))
        if condition is None or condition == "":
            selected = None
        elif isinstance(condition, Condition):
            selected = self._selected(self.batch(domain), condition)
        else:
            raise SuiteError(_no_string(condition))
        return both(selected, self._complete(domain))

    def _selected(self, data: LazyFrameData, condition: Condition) -> pl.Expr:
        """The rows of a row condition. Every metric asks for it anew, and most of a suite's ask with the same few."""
        written = _written(condition.dict())
        if written not in data.selections:
            self._schema = data.schema
            data.selections[written] = self.condition_to_filter_clause(condition).fill_null(False)
        return data.selections[written]

    def _complete(self, domain: Mapping[str, Any]) -> pl.Expr | None:
        rule = domain.get("ignore_row_if")
        names = domain.get("column_list") or [domain[k] for k in ("column_A", "column_B") if domain.get(k)]
        if rule in (None, "neither", "never") or not names:
            return None
        schema = self.batch(domain).schema
        known = [plain(name, _dtype(schema, name)).is_not_null() for name in names]
        if rule in ("both_values_are_missing", "all_values_are_missing"):
            return pl.any_horizontal(known)
        if rule in ("either_value_is_missing", "any_value_is_missing"):
            return pl.all_horizontal(known)
        raise SuiteError(f"expected a rule for missing values in ignore_row_if, found {rule!r}")

    def get_domain_records(self, domain_kwargs: dict[str, Any]) -> pl.LazyFrame:
        """The rows of a domain, as a frame."""
        frame, mask = self.batch(domain_kwargs).frame, self.mask_of(domain_kwargs)
        return frame if mask is None else frame.filter(mask)

    def get_compute_domain(
        self, domain_kwargs: dict[str, Any], domain_type: Any, accessor_keys: Iterable[str] | None = None
    ) -> tuple[pl.LazyFrame, dict[str, Any], dict[str, Any]]:
        """As Great Expectations asks for it: frame, what selects its rows, what selects within them."""
        split = self._partition_domain_kwargs(domain_kwargs, domain_type, accessor_keys)
        return self.get_domain_records(domain_kwargs), split.compute, split.accessor

    def condition_to_filter_clause(self, condition: Any) -> pl.Expr:
        """A row condition as an expression.

        Raises:
            SuiteError: It is written for another engine, as text.
        """
        if text := getattr(condition, "pass_through_filter", None):
            raise SuiteError(_no_string(text))
        clause: pl.Expr = super().condition_to_filter_clause(condition)
        return clause

    def _comparison_condition_to_filter_clause(self, condition: Any) -> pl.Expr:
        name, value = condition.column.name, condition.parameter
        dtype = _dtype(self._schema, name)
        column = plain(name, dtype)
        operator = Operator(condition.operator)
        if operator in (Operator.EQUAL, Operator.NOT_EQUAL, Operator.IN, Operator.NOT_IN):
            single = operator in (Operator.EQUAL, Operator.NOT_EQUAL)
            equal = equals_any(column, dtype, [value] if single else value).fill_null(False)
            # As in Great Expectations' pandas engine, a missing value differs from every other.
            return equal if operator in (Operator.EQUAL, Operator.IN) else ~equal
        return compare(column, dtype, operator.value, value)

    def _nullity_condition_to_filter_clause(self, condition: Any) -> pl.Expr:
        name = condition.column.name
        column = plain(name, _dtype(self._schema, name))
        return column.is_null() if condition.is_null else column.is_not_null()

    def _and_condition_to_filter_clause(self, condition: Any) -> pl.Expr:
        return pl.all_horizontal([self.condition_to_filter_clause(c).fill_null(False) for c in condition.conditions])

    def _or_condition_to_filter_clause(self, condition: Any) -> pl.Expr:
        return pl.any_horizontal([self.condition_to_filter_clause(c).fill_null(False) for c in condition.conditions])

    # --- the pass -------------------------------------------------------------------------------

    def resolve_metric_bundle(self, metric_fn_bundle: Sequence[Any]) -> dict[Any, Any]:
        """All metrics of a wave: one pass for each batch that they ask about.

        Raises:
            GreatExpectationsError: One of them could not be answered. Great Expectations then asks for each by
                itself, three times; these are told what is known already.
        """
        by_batch: dict[int, tuple[LazyFrameData, list[Any]]] = {}
        for computation in metric_fn_bundle:
            data = self.batch(computation.compute_domain_kwargs)
            by_batch.setdefault(id(data), (data, []))[1].append(computation)
        resolved: dict[Any, Any] = {}
        for data, computations in by_batch.values():
            resolved |= self._answers(data, computations)
        for value in resolved.values():
            if isinstance(value, Unanswered):
                raise GreatExpectationsError(str(value.error)) from value.error
        return resolved

    def _answers(self, data: LazyFrameData, computations: Sequence[Any]) -> dict[Any, Any]:
        ids = [computation.metric_configuration.id for computation in computations]
        if not all(id_ in data.answers for id_ in ids):
            answers = answer_apart(data.frame, [computation.metric_fn for computation in computations])
            self.passes += answers.passes
            self.n_rows = answers.n_rows
            found = dict(zip(ids, answers.values, strict=True))
            if not any(isinstance(value, Unanswered) for value in answers.values):
                return found
            data.answers = found
        return {id_: data.answers[id_] for id_ in ids}


def dtype_of(data: LazyFrameData, name: Any) -> pl.DataType:
    """The type of a column.

    Raises:
        SuiteError: There is no such column.
    """
    return _dtype(data.schema, name)


def _written(value: Any) -> object:
    """What only values of the same types and the same content share; to equality, 1 and true are the same."""
    if isinstance(value, Mapping):
        return tuple((name, _written(one)) for name, one in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return tuple(map(_written, value))
    return type(value), repr(value)


def _dtype(schema: pl.Schema, name: Any) -> pl.DataType:
    if not isinstance(name, str) or name not in schema:
        # The words and quotes are Great Expectations' own, so that its users know them.
        raise SuiteError(f'the column "{name}" does not exist in the batch')
    return schema[name]


def _no_string(text: Any) -> str:
    return (
        f"expected a row condition of Column objects or of the parser 'great_expectations', found {text!r}: "
        "what pandas or Spark would run is not run on polars"
    )
