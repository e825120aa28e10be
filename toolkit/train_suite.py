"""Reads the suite that a train set is held against: strictly, as the suites of datasets are read.

Its table is `train`, whose columns are the facts of `toolkit.train_facts`. What would not be checked as written is an
error; whether Great Expectations knows each type and kwarg is asked by `toolkit.audit.gx.evaluate`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from toolkit.audit.suite import Expectation, Suite, place_of
from toolkit.audit.suite_columns import ROW_TYPES, did_you_mean, kwargs_faults, show
from toolkit.audit.suite_conditions import condition_faults
from toolkit.columns import TRAIN_FACTS_SCHEMA
from toolkit.errors import SuiteError
from toolkit.records import Json, Severity
from toolkit.store.files import read_regular


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Meta(_Strict, frozen=True, kw_only=True):
    id: str
    says: str
    wrong: str
    why: str | None = None


class _Item(_Strict, frozen=True, kw_only=True):
    type: str
    severity: Severity
    meta: _Meta
    kwargs: dict[str, Json] = {}


class _File(_Strict, frozen=True, kw_only=True):
    name: str
    expectations: list[_Item]
    meta: dict[str, Json]


def read_train_suite(path: Path) -> Suite:
    """Read a suite of table `train`.

    Raises:
        SuiteError: one line per fault: file, place, expected, found.
    """
    try:
        content = read_regular(path)
    except OSError as error:
        raise SuiteError(f"{path}: cannot read the suite: {error.strerror or error}") from error
    try:
        file = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SuiteError(f"{path}: expected a suite of table 'train': {error}") from None
    faults = list(_faults(file))
    if faults:
        raise SuiteError("\n".join(f"{path}: {fault}" for fault in faults))
    return Suite(
        name=file.name,
        path=str(path),
        sha256=hashlib.sha256(content).hexdigest(),
        max_quarantined_share=0.0,
        expectations=tuple(map(_expectation, file.expectations)),
    )


def _faults(file: _File) -> Iterator[str]:
    if file.meta != {"tokenproof": {"table": "train"}}:
        yield f"meta: expected {{'tokenproof': {{'table': 'train'}}}} and nothing else, found {show(file.meta)}"
    if not any(item.severity is Severity.CRITICAL for item in file.expectations):
        yield "expectations: expected at least one of severity critical, found none"
    seen: set[str] = set()
    for number, item in enumerate(file.expectations):
        place = place_of(number, item.meta.id)
        if item.meta.id in seen:
            yield f"{place}: meta.id: expected unique ids, found {show(item.meta.id)} twice"
        seen.add(item.meta.id)
        yield from (f"{place}: {fault}" for fault in _item_faults(item))


def _item_faults(item: _Item) -> Iterator[str]:
    mostly = item.kwargs.get("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 < mostly <= 1:
        yield f"kwargs.mostly: expected a number above 0, at most 1, found {show(mostly)}"
    if not item.type.startswith("expect_"):
        yield f"type: expected the name of an expectation, found {show(item.type)}{did_you_mean(item.type, ROW_TYPES)}"
    if (condition := item.kwargs.get("row_condition")) is not None:
        yield from condition_faults(condition, "kwargs.row_condition", TRAIN_FACTS_SCHEMA)
    yield from kwargs_faults(item.type, item.kwargs, TRAIN_FACTS_SCHEMA)


def _expectation(item: _Item) -> Expectation:
    kwargs: dict[str, Any] = dict(item.kwargs)
    return Expectation(
        id=item.meta.id,
        type=item.type,
        kwargs=kwargs,
        severity=item.severity,
        scope="row" if item.type in ROW_TYPES else "dataset",
        mostly=float(kwargs["mostly"]) if "mostly" in kwargs else None,
        says=item.meta.says,
        why=item.meta.why,
        wrong=item.meta.wrong,
    )
