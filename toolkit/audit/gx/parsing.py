"""Predicates that only Python can answer: whether a text is a date, JSON, or fits a JSON schema. Pure.

Each distinct text of a stretch of rows is asked about once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import polars as pl
from dateutil.parser import parse as parse_moment  # type: ignore[import-untyped]

from toolkit.audit.gx.comparing import kind_of
from toolkit.errors import SuiteError


def is_date(text: str) -> bool:
    """Whether dateutil reads a moment out of a text."""
    try:
        parse_moment(text)
    except (ValueError, OverflowError):
        return False
    return True


def fits_format(form: str) -> Callable[[str], bool]:
    """Whether a text is a moment written in a format of `strftime`.

    Raises:
        SuiteError: The format cannot be read back.
    """
    try:
        datetime.strptime(datetime(2000, 1, 2, 3, 4, 5).strftime(form), form)
    except (TypeError, ValueError) as error:
        raise SuiteError(f"expected a format of strftime that can be read back, found {form!r} ({error})") from error

    def fits(text: str) -> bool:
        try:
            datetime.strptime(text, form)
        except ValueError:
            return False
        return True

    return fits


def is_json(text: str) -> bool:
    """Whether Python's `json` reads a text."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def fits_schema(schema: Mapping[str, Any]) -> Callable[[str], bool]:
    """Whether a text is JSON that a JSON schema allows; what is no JSON does not fit.

    Raises:
        SuiteError: The schema is none.
    """
    kind = jsonschema.validators.validator_for(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise SuiteError(f"expected a JSON schema, found a fault: {error.message}") from error
    validator = kind(schema)

    def fits(text: str) -> bool:
        try:
            return bool(validator.is_valid(json.loads(text)))
        except (ValueError, RecursionError):
            return False

    return fits


def holds_for(expr: pl.Expr, dtype: pl.DataType, predicate: Callable[[str], bool]) -> pl.Expr:
    """A predicate over a plain column of text; null where the column is.

    Raises:
        SuiteError: The column holds no text.
    """
    if kind_of(dtype) not in ("text", "null"):
        raise SuiteError(f"expected a column of text, found {dtype}")

    def ask(texts: pl.Series) -> pl.Series:
        known: dict[str | None, bool | None] = {None: None}
        answers = []
        for text in texts:
            if text not in known:
                known[text] = predicate(text)
            answers.append(known[text])
        return pl.Series(texts.name, answers, dtype=pl.Boolean)

    return expr.cast(pl.String).map_batches(ask, return_dtype=pl.Boolean, is_elementwise=True)
