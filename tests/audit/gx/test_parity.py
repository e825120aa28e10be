"""Every expectation on polars gives what Great Expectations' own pandas engine gives over the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from great_expectations.expectations.row_conditions import Column
from hypothesis import HealthCheck, Phase, given, settings

from .catalogue import CASES, ORDINAL, SCHEMA, frames
from .differences import DIFFERENCES
from .engines import Engines, alike, names_rows, suite_of

ITEMS = [(name, kwargs) for name, listed in CASES.items() for kwargs in listed]
CONDITIONS: dict[str, Any] = {
    "none": None,
    "equal": Column("t") == "a",
    "above": Column("j") >= 1,
    "unlike": Column("s") != "a",
    "or": (Column("i") == 0) | (Column("s").is_null()),
    "and": (Column("j").is_in([0, 1, 2])) & (Column("f").is_not_null()),
}

NOTHING = pl.DataFrame(schema=SCHEMA)
MISSING = pl.DataFrame({name: [None] * 3 for name in SCHEMA}, schema=SCHEMA).with_columns(
    pl.Series("j", [1, 1, 2]), pl.Series("t", ["a", "b", "a"]), pl.lit(float("nan")).alias("f")
)
MIXED = pl.DataFrame(
    {
        "i": [0, 1, 1, None, 3, 2, 2],
        "j": [0, 1, 2, 3, 3, -1, 1],
        "u": [0, None, 1, 2, 3, 0, 1],
        "f": [0.5, float("nan"), None, 1.0, 1.0, 2.5, -3.0],
        "s": ["a", None, "ab", "a\n", "", "5", "a"],
        "t": ["a", "b", "a", "ü x", "{}", "2024-01-05", "a"],
        "b": [True, None, False, True, True, None, False],
        "d": [ORDINAL, None, ORDINAL.replace(day=3), ORDINAL, None, ORDINAL.replace(day=2), ORDINAL],
        "k": [None, *[ORDINAL.date()] * 6],
        "m": [None, "1.25", "0.50", "1.25", None, "0.00", "3.10"],
    },
    schema_overrides={name: dtype for name, dtype in SCHEMA.items() if name != "m"},
).with_columns(pl.col("m").cast(pl.Decimal(10, 2)))


@pytest.fixture(scope="module")
def engines() -> Engines:
    return Engines()


def compare(
    engines: Engines,
    frame: pl.DataFrame,
    how: Any,
    condition: str = "none",
    mostly: float | None = None,
    items: Sequence[tuple[str, dict[str, Any]]] = ITEMS,
) -> dict[str, Any]:
    """Expectations of which the engines say otherwise, but for what `DIFFERENCES` names; after two passes at most."""
    suite = suite_of(*items, condition=CONDITIONS[condition], mostly=mostly)
    before = len(engines.engine.passes)
    ours, theirs = engines.polars(frame, suite, how), engines.pandas(frame, suite, how)
    wrong = {}
    for name in theirs:
        known = DIFFERENCES.get(name.partition("/")[0])
        if known and known.error and known.error in (theirs[name][2] or "") and ours[name][2] is None:
            continue
        if not alike(ours[name], theirs[name], known.fields if known else ()):
            wrong[name] = (ours[name], theirs[name])
    assert len(engines.engine.passes) - before <= 2
    return wrong


def test_one_of_each_kind(engines: Engines) -> None:
    assert (
        compare(engines, MIXED, "COMPLETE", "unlike", 0.6, items=[(name, listed[0]) for name, listed in CASES.items()])
        == {}
    )


@pytest.mark.slow
def test_a_row_condition_and_mostly(engines: Engines) -> None:
    assert compare(engines, MIXED, "COMPLETE", "unlike", 0.6) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frame", "how", "condition"),
    [
        (NOTHING, "COMPLETE", "none"),
        (NOTHING, "BASIC", "or"),
        (MISSING, "COMPLETE", "none"),
        (MIXED, "SUMMARY", "none"),
    ],
)
def test_frames_at_the_edges(engines: Engines, frame: pl.DataFrame, how: str, condition: str) -> None:
    assert compare(engines, frame, how, condition) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "condition", "mostly"),
    [
        ("BOOLEAN_ONLY", "above", None),
        ("BASIC", "and", 0.6),
        ("SUMMARY", "equal", 1.0),
        ("COMPLETE", "or", 0.6),
        ("COMPLETE", "none", None),
    ],
)
@settings(
    max_examples=1, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate], derandomize=True
)
@given(frame=frames)
def test_frames_of_all_kinds(
    engines: Engines, frame: pl.DataFrame, how: str, condition: str, mostly: float | None
) -> None:
    assert compare(engines, frame, how, condition, mostly) == {}


# Which rows failed is told by expectations about rows; what others answer under each condition is compared above.
ROWWISE = [(name, kwargs) for name, kwargs in ITEMS if names_rows(name)]


@pytest.mark.slow
@pytest.mark.parametrize("condition", list(CONDITIONS))
def test_rows_are_named_by_columns_of_the_users_choice(engines: Engines, condition: str) -> None:
    how = {"result_format": "COMPLETE", "unexpected_index_column_names": ["j", "t"]}
    assert compare(engines, MIXED, how, condition, items=ROWWISE) == {}
