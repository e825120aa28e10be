"""The engine as Great Expectations' users meet it: passes, positions, errors that stay apart, contexts in files."""

from __future__ import annotations

import datetime as dt
import json
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import great_expectations as gx
import great_expectations.expectations as gxe
import numpy as np
import polars as pl
import pytest
from great_expectations.exceptions.exceptions import BuildBatchRequestError
from great_expectations.expectations.row_conditions import Column
from polars.io.plugins import register_io_source

from toolkit.audit.gx import PolarsDatasource
from toolkit.audit.gx.comparing import compare
from toolkit.audit.gx.engine import PolarsExecutionEngine
from toolkit.audit.gx.expectations import ExpectColumnDtypeToBeInSet, ExpectColumnListLengthsToBeBetween
from toolkit.audit.gx.passing import answer, answer_apart
from toolkit.audit.gx.questions import AboutRows, Aggregate, Measured, Repeated, Unanswered, Unordered, Where

from .engines import Engines, suite_of

SMALL = pl.DataFrame({"k": ["a", "b", "a", None, "c"], "i": [1, 2, 3, 3, 2], "l": [[1], [], None, [2, 3], [4]]})


@pytest.fixture(scope="module")
def engines() -> Engines:
    return Engines()


def one(engines: Engines, name: str, frame: Any = SMALL, how: Any = "COMPLETE", **kwargs: Any) -> Any:
    return engines.polars(frame, suite_of((name, kwargs)), how)[f"{name}/0"]


# --- passes -------------------------------------------------------------------------------------


def passes(engines: Engines, *items: tuple[str, dict[str, Any]], how: str = "COMPLETE") -> int:
    before = len(engines.engine.passes)
    engines.polars(SMALL, suite_of(*items), how)
    return len(engines.engine.passes) - before


ROWWISE = [
    ("column_values_to_not_be_null", {"column": "k"}),
    ("column_values_to_be_in_set", {"column": "k", "value_set": ["a"]}),
    ("column_values_to_be_increasing", {"column": "i"}),
    ("column_median_to_be_between", {"column": "i", "min_value": 1}),
    ("column_distinct_values_to_equal_set", {"column": "k", "value_set": ["a", "z"]}),
    ("column_list_lengths_to_be_between", {"column": "l", "min_value": 1}),
    ("table_row_count_to_equal", {"value": 5}),
]


@pytest.mark.parametrize("how", ["BOOLEAN_ONLY", "BASIC", "SUMMARY", "COMPLETE"])
def test_a_suite_is_one_pass(engines: Engines, how: str) -> None:
    assert passes(engines, *ROWWISE, how=how) == 1


def test_only_duplicates_that_exist_take_a_second_pass(engines: Engines) -> None:
    unique = {"column_list": ["k", "i"]}
    assert passes(engines, *ROWWISE, ("compound_columns_to_be_unique", unique)) == 1
    assert passes(engines, *ROWWISE, ("column_values_to_be_unique", {"column": "i"})) == 2
    several = [("column_values_to_be_unique", {"column": name}) for name in ("i", "k")]
    assert passes(engines, *several, ("column_value_z_scores_to_be_less_than", _Z)) == 2


_Z = {"column": "i", "threshold": 1.0, "double_sided": True}


def test_what_the_schema_knows_takes_no_pass(engines: Engines) -> None:
    assert passes(engines, ("column_to_exist", {"column": "k"}), ("table_column_count_to_equal", {"value": 3})) == 0


def test_files_are_scanned_once(engines: Engines, tmp_path: Path) -> None:
    """Counted by a scan that polars asks for its batches, whatever the number of expectations."""
    scans: list[int] = []

    def source(with_columns: Any, predicate: Any, n_rows: Any, batch_size: Any) -> Any:
        scans.append(1)
        yield SMALL if with_columns is None else SMALL.select(with_columns)

    frame = register_io_source(source, schema=SMALL.schema)
    engines.polars(frame, suite_of(*ROWWISE), "COMPLETE")
    assert len(scans) == 1


# --- many rows: several stretches, seen in any order ----------------------------------------------

MANY = 300_000


@pytest.fixture(scope="module")
def many() -> pl.LazyFrame:
    random = np.random.default_rng(5)
    return pl.DataFrame(
        {
            "n": random.integers(0, 1000, MANY),
            "key": [f"k{number}" for number in random.permutation(MANY)],
            "step": np.sort(random.integers(0, 10**9, MANY)),
        }
    ).lazy()


def positions_of(frame: pl.LazyFrame, rows: Any) -> np.ndarray[Any, Any]:
    question = AboutRows(rows, lambda found: found, ("n",), 7, True)
    found = answer(frame, [question]).values[0]
    assert found.count == len(found.positions)
    assert found.first["__row__"].to_list() == found.positions[:7].tolist()
    return np.asarray(found.positions)


def test_positions_of_many_rows_are_all_there_and_in_order(many: pl.LazyFrame) -> None:
    values = many.collect()["n"].to_numpy()
    np.testing.assert_array_equal(positions_of(many, Where(pl.col("n") > 900)), np.flatnonzero(values > 900))


def test_duplicates_are_found_across_stretches(many: pl.LazyFrame) -> None:
    keys = pl.when(pl.int_range(pl.len()).is_in([3, 299_000])).then(pl.lit("same")).otherwise(pl.col("key"))
    frame = many.with_columns(keys.alias("key")).collect().lazy()
    assert positions_of(frame, Repeated((pl.col("key"),), None)).tolist() == [3, 299_000]
    assert positions_of(many, Repeated((pl.col("key"),), None)).tolist() == []
    values = many.collect()["n"].to_numpy()
    assert len(positions_of(many, Repeated((pl.col("n"),), pl.col("n") < 500))) == (values < 500).sum()


def test_order_is_judged_across_the_seams_of_stretches(many: pl.LazyFrame) -> None:
    ordered = Unordered(pl.col("step"), lambda later, earlier: later >= earlier, "increasing")
    assert positions_of(many, ordered).tolist() == []
    falling = Unordered(pl.col("step"), lambda later, earlier: later <= earlier, "decreasing")
    steps = many.collect()["step"].to_numpy()
    np.testing.assert_array_equal(positions_of(many, falling), np.flatnonzero(np.diff(steps) > 0) + 1)


def test_rows_that_depend_on_a_measure_are_found(many: pl.LazyFrame) -> None:
    above = Measured((pl.col("n").mean(),), lambda measured: pl.col("n") > measured[0], "above the mean")
    values = many.collect()["n"].to_numpy()
    np.testing.assert_array_equal(positions_of(many, above), np.flatnonzero(values > values.mean()))


def test_equal_hashes_of_different_values_are_no_duplicates(
    monkeypatch: pytest.MonkeyPatch, many: pl.LazyFrame
) -> None:
    monkeypatch.setattr(pl.Expr, "hash", lambda self, *_, **__: (self.struct.field("0") * 0).cast(pl.UInt64))
    frame = pl.LazyFrame({"n": [4, 5, 6, 5]})
    assert positions_of(frame, Repeated((pl.col("n"),), None)).tolist() == [1, 3]


# --- errors -------------------------------------------------------------------------------------


def test_an_expectation_that_cannot_be_asked_fails_alone(engines: Engines) -> None:
    faulty = [
        ("column_values_to_not_be_null", {"column": "zz"}),
        ("column_values_to_be_between", {"column": "k", "min_value": 1}),
        ("column_values_to_match_regex", {"column": "k", "regex": "("}),
        ("column_mean_to_be_between", {"column": "k", "min_value": 1}),
        ("column_values_to_be_unique", {"column": "zz"}),
        *([("column_type_to_be", {"column": "k", "type_": "String"})] if hasattr(gxe, "ExpectColumnTypeToBe") else []),
        ("column_values_to_be_of_type", {"column": "k", "type_": "String"}),
    ]
    before = len(engines.engine.passes)
    found = engines.polars(SMALL, suite_of(*faulty, *ROWWISE), "COMPLETE")
    assert len(engines.engine.passes) - before == 1
    failed = {name for name, outcome in found.items() if outcome[2] is not None}
    expected = {"column_values_to_not_be_null/0"} | {f"{name}/0" for name, _ in faulty}
    assert failed == expected
    assert not any(found[name][0] for name in failed)
    assert found["column_values_to_not_be_null/1"][1]["unexpected_count"] == 1
    assert "'k': String" in str(found["column_mean_to_be_between/0"][2])
    assert "expect_column_dtype_to_be_in_set" in str(found["column_values_to_be_of_type/0"][2])


def test_a_question_that_fails_on_values_does_not_take_the_others_with_it() -> None:
    frame = pl.LazyFrame({"s": ["1", "x"], "n": [1, 2]})
    bad = Aggregate((pl.col("s").cast(pl.Int64).sum(),), lambda values: values[0])
    good = Aggregate((pl.col("n").sum(),), lambda values: values[0])
    clumsy = Aggregate((pl.col("n").sum(),), lambda values: values[3])
    first, second, third, fourth = answer_apart(frame, [good, bad, clumsy, good]).values
    assert (first, fourth) == (3, 3)
    assert isinstance(second, Unanswered)
    assert isinstance(third, Unanswered)


def test_a_frame_that_cannot_be_read_is_given_up_soon(engines: Engines, tmp_path: Path) -> None:
    frame = pl.scan_parquet(tmp_path / "none.parquet", schema={"k": pl.String, "i": pl.Int64, "l": pl.List(pl.Int64)})
    before = len(engines.engine.passes)
    found = engines.polars(frame, suite_of(*ROWWISE), "COMPLETE")
    assert not any(outcome[0] for outcome in found.values())
    assert all(outcome[2] for outcome in found.values())
    assert len(engines.engine.passes) - before < 40


# --- conditions and domains -----------------------------------------------------------------------


def test_a_condition_is_translated_once_for_all_who_ask_with_it(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated: list[Any] = []
    real = PolarsExecutionEngine.condition_to_filter_clause

    def counted(self: PolarsExecutionEngine, condition: Any) -> pl.Expr:
        translated.append(condition)
        return real(self, condition)

    monkeypatch.setattr(PolarsExecutionEngine, "condition_to_filter_clause", counted)
    items = [("column_values_to_be_in_set", {"column": "i", "value_set": [number]}) for number in range(3)]
    engines.polars(SMALL, suite_of(*items, condition=Column("k") == "a"))
    assert len(translated) == 1


def test_conditions_that_only_look_alike_are_not_taken_for_each_other(engines: Engines) -> None:
    frame = pl.DataFrame({"k": ["a", "b", "a, b"], "f": [1.0, 2.0, 0.5]})
    conditions = [
        Column("k").is_in(["a", "b"]),
        Column("k").is_in(["a, b"]),
        Column("f") > 1,
        Column("f") >= 1,
    ]
    items = [
        ("column_values_to_be_in_set", {"column": "k", "value_set": ["z"], "row_condition": condition})
        for condition in conditions
    ]
    found = engines.polars(frame, suite_of(*items))
    assert [outcome[1]["unexpected_count"] for outcome in found.values()] == [2, 1, 1, 2]


def with_condition(condition: Any, parser: str | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gxe.ExpectColumnValuesToBeInSet(
            column="i", value_set=[1], row_condition=condition, condition_parser=parser
        )


def validate(expectation: Any, frame: pl.DataFrame = SMALL, how: Any = "COMPLETE") -> Any:
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_polars("d").add_lazyframe_asset("a")
    batch = asset.add_batch_definition_whole("b").get_batch({"dataframe": frame})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return batch.validate(expectation, result_format=how)


def test_conditions_are_objects_or_great_expectations_own_strings() -> None:
    for condition, parser in ((Column("k") == "a", None), ('col("k") == "a"', "great_expectations")):
        assert validate(with_condition(condition, parser)).result["unexpected_index_list"] == [2]
    refused = validate(with_condition('k == "a"', "pandas"))
    assert refused.success is False
    assert "what pandas or Spark would run is not run on polars" in str(refused.exception_info)


def test_a_condition_holds_for_pairs_in_a_set_too() -> None:
    """Great Expectations leaves the condition out of this metric's domain, and would judge every row."""
    pairs = gxe.ExpectColumnPairValuesToBeInSet(
        column_A="k", column_B="i", value_pairs_set=[("a", 1)], row_condition=Column("k") == "a"
    )
    result = validate(pairs).result
    assert (result["element_count"], result["unexpected_index_list"], result["missing_count"]) == (2, [2], 0)


@pytest.mark.parametrize(
    ("dtype", "value", "bounds"),
    [
        (pl.Int64, 2**62 + 1, (2**62 + 2, None)),
        (pl.UInt64, 2**64 - 1, (None, 2**64 - 2)),
        (pl.Int8, 127, (300, None)),
        (pl.Int8, 2, (2.5, None)),
        (pl.Float32, 0.5, (None, 0.4)),
        (pl.Decimal(20, 2), "0.10", (0.11, None)),
    ],
)
def test_bounds_are_exact_in_every_type_of_number(dtype: Any, value: Any, bounds: Any) -> None:
    frame = pl.DataFrame({"x": pl.Series([value]).cast(dtype)})
    low, high = bounds
    kwargs = {key: bound for key, bound in (("min_value", low), ("max_value", high)) if bound is not None}

    masks = [
        compare(pl.col("x"), frame.schema["x"], ">=" if key == "min_value" else "<=", b) for key, b in kwargs.items()
    ]
    assert frame.select(masks).row(0) == (False,)


# --- what users call ------------------------------------------------------------------------------


def test_head_shows_the_first_rows() -> None:
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_polars("d").add_lazyframe_asset("a")
    batch = asset.add_batch_definition_whole("b").get_batch({"dataframe": SMALL.lazy()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown = batch.head(2, fetch_all=False)
        assert batch.columns() == SMALL.columns
    assert "a" in str(shown)
    with pytest.raises(BuildBatchRequestError, match="found list"):
        asset.build_batch_request({"dataframe": [1]})


def test_another_table_is_another_asset(tmp_path: Path) -> None:
    SMALL.write_parquet(tmp_path / "a.parquet")
    SMALL.head(3).write_parquet(tmp_path / "b.parquet")
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_polars("d")
    source.add_parquet_asset("other", path=str(tmp_path / "b.parquet"))
    batch = source.add_parquet_asset("a", path=str(tmp_path / "a.parquet")).add_batch_definition_whole("b").get_batch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = batch.validate(gxe.ExpectTableRowCountToEqualOtherTable(other_table_name="other"))
        unknown = batch.validate(gxe.ExpectTableRowCountToEqualOtherTable(other_table_name="none"))
    assert (result.success, result.result["observed_value"]) == (False, {"self": 5, "other": 3})
    assert "expected the name of another asset" in str(unknown.exception_info)


def test_a_context_in_files_runs_checkpoints_and_writes_data_docs(tmp_path: Path) -> None:
    SMALL.write_parquet(tmp_path / "a.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = gx.get_context(mode="file", project_root_dir=str(tmp_path))
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_polars("d").add_parquet_asset("a", path=str(tmp_path / "*.parquet"))
        suite = gx.ExpectationSuite(
            name="s",
            expectations=[
                gxe.ExpectColumnValuesToBeUnique(column="k", severity="warning"),
                ExpectColumnListLengthsToBeBetween(column="l", min_value=1, mostly=0.5),
                ExpectColumnDtypeToBeInSet(column="l", dtype_set=["List(Int64)"]),
            ],
        )
        definition = gx.ValidationDefinition(
            name="v", data=asset.add_batch_definition_whole("b"), suite=context.suites.add(suite)
        )
        actions = [gx.checkpoint.UpdateDataDocsAction(name="docs")]
        how = {"result_format": "COMPLETE", "include_unexpected_rows": True, "unexpected_index_column_names": ["i"]}
        checkpoint = gx.Checkpoint(
            name="c",
            validation_definitions=[context.validation_definitions.add(definition)],
            result_format=how,
            actions=actions,
        )
        context.checkpoints.add(checkpoint).run()
        again = gx.get_context(mode="file", project_root_dir=str(tmp_path))
        again.variables.progress_bars = {"globally": False}
        outcome = again.checkpoints.get("c").run()
        (results,) = outcome.run_results.values()
    assert isinstance(again.data_sources.get("d"), PolarsDatasource)
    assert [one.success for one in sorted(results.results, key=lambda one: one.expectation_config.type)] == [
        True,
        True,
        False,
    ]
    duplicates = next(one for one in results.results if not one.success).result
    assert duplicates["unexpected_index_list"] == [{"k": "a", "i": 1}, {"k": "a", "i": 3}]
    assert duplicates["unexpected_rows"][0] == {"k": "a", "i": 1, "l": [1]}
    json.dumps(results.to_json_dict())
    pages = list((tmp_path / "gx" / "uncommitted" / "data_docs").rglob("validations/**/*.html"))
    text = pages[0].read_text(encoding="utf-8")
    assert "lists must have" in text
    assert "the type must be one of" in text


def test_values_of_every_type_can_be_written_as_json() -> None:
    frame = pl.DataFrame(
        {
            "d": [dt.date(2024, 1, 1)],
            "t": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
            "m": [Decimal("1.5")],
            "c": [dt.time(1)],
            "u": [dt.timedelta(1)],
            "l": [[1] * 50],
        }
    )
    for name in frame.columns:
        result = validate(gxe.ExpectColumnValuesToBeNull(column=name), frame)
        assert result.success is False
        json.dumps(result.to_json_dict())
    assert validate(gxe.ExpectColumnValuesToBeNull(column="l"), frame).result["unexpected_list"] == [[1] * 20]
