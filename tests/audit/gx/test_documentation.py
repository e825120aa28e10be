"""The page on Great Expectations says what the code does, and no expectation is forgotten."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from great_expectations.expectations import core  # noqa: F401 — registers the expectations
from great_expectations.expectations.registry import list_registered_expectation_implementations

from tests.conftest import ROOT
from toolkit.audit.expectation_types import DATASET_TYPES, NOT_OF_FACTS, NOTES, ROW_TYPES, UNSUPPORTED

from .catalogue import CASES


def gx_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gx_table", ROOT / "scripts" / "gx_table.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    module = gx_table()
    page = module.PAGE.read_text(encoding="utf-8")
    assert page == module.filled(page), "run scripts/gx_table.py"
    assert "| `expect_column_list_lengths_to_be_between` | yes | rows |" in page


def test_every_expectation_of_great_expectations_is_answered_or_refused() -> None:
    known = {*ROW_TYPES, *DATASET_TYPES, *NOT_OF_FACTS, *UNSUPPORTED}
    registered = set(list_registered_expectation_implementations())
    assert registered <= known
    assert set(NOTES) <= known


def test_what_the_engine_answers_is_compared_with_pandas() -> None:
    """All but what pandas has not, and what is tried elsewhere."""
    compared = {f"expect_{name}" for name in CASES}
    answered = {*ROW_TYPES, *DATASET_TYPES, *NOT_OF_FACTS}
    of_our_own = {name for name in answered if "_list" in name and "regex" not in name and "ordered" not in name}
    elsewhere = {
        "expect_column_dtype_to_be_in_set",
        "expect_table_row_count_to_equal_other_table",
        "expect_column_values_to_match_like_pattern",
        "expect_column_values_to_not_match_like_pattern",
        "expect_column_values_to_match_json_schema",
        "expect_column_values_to_not_be_outliers",
        "expect_multicolumn_values_to_be_equal",
    }
    assert answered - compared - of_our_own == elsewhere
