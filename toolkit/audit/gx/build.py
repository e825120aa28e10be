"""From our suite to a real Great Expectations suite, without losing anything on the way.

Great Expectations logs an expectation that it does not know and drops it; it reads `"3"` as 3.0 and 0.9 as 0
where a kwarg's type asks for it. Both would check something else than was written, so the suite that it
built is held against ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.audit.expectation_types import DATASET_TYPES, NOT_OF_FACTS, ROW_TYPES, UNSUPPORTED
from toolkit.audit.suite import Expectation, Suite, place_of
from toolkit.audit.suite_columns import did_you_mean, show
from toolkit.errors import SuiteError
from toolkit.records import Json, Severity

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

_OURS_TO_SET = frozenset({"batch_id", "catch_exceptions", "result_format", "windows"})
"""Fields of every expectation class that decide how it is run, not what must hold."""

_BESIDE_KWARGS = frozenset({"id", "meta", "notes", "description", "severity", "rendered_content"})


def load_gx() -> Any:
    """Great Expectations, with the polars engine registered."""
    import great_expectations

    return great_expectations


def check_suite(suite: Suite) -> None:
    """Ask Great Expectations whether it can check all of a suite as it is written.

    Raises:
        SuiteError: One line per fault: a type or kwarg that it does not know or that is not evaluated here,
            a value that it refuses or would read as another.
    """
    build_gx_suite(suite)


def build_gx_suite(suite: Suite) -> ExpectationSuite:
    """A Great Expectations suite that holds every expectation of ours; `meta["id"]` bears our id.

    Raises:
        SuiteError: As `check_suite`.
    """
    gx = load_gx()
    faults = [
        f"{suite.path}: {place_of(number, expectation.id)}: {fault}"
        for number, expectation in enumerate(suite.expectations)
        for fault in _refusals(expectation)
    ]
    if not faults:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built: ExpectationSuite = gx.ExpectationSuite(
                name=suite.name, expectations=[_configure(e) for e in suite.expectations]
            )
        faults = [f"{suite.path}: {fault}" for fault in differences(suite, built.expectations)]
    if faults:
        raise SuiteError("\n".join(faults))
    return built


def differences(suite: Suite, built: Sequence[Any]) -> Iterator[str]:
    """What of a suite the expectations that Great Expectations made of it do not hold, one sentence each."""
    if len(built) != len(suite.expectations):
        yield (
            f"expectations: expected Great Expectations to keep all {len(suite.expectations)}, "
            f"found {len(built)}: it drops those that it does not know"
        )
        return
    for number, (ours, theirs) in enumerate(zip(suite.expectations, built, strict=True)):
        place = place_of(number, ours.id)
        if theirs.expectation_type != ours.type:
            yield f"{place}: expected type {ours.type!r}, found {theirs.expectation_type!r}"
            continue
        severity = Severity(theirs.severity)
        if severity is not ours.severity:
            yield f"{place}: expected severity {ours.severity}, found {severity}"
        kept = theirs.configuration.to_json_dict()["kwargs"]
        for key, value in ours.kwargs.items():
            # Kwargs that equal the class's default are left out of its configuration.
            found = kept.get(key, getattr(theirs, key, None))
            if not _is_same(value, found):
                yield f"{place}: kwargs.{key}: Great Expectations would read {show(value)} as {show(found)}"


def _refusals(expectation: Expectation) -> Iterator[str]:
    """Why Great Expectations, or the way it is run here, would not check one expectation as written."""
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.registry import (
        get_expectation_impl,
        list_registered_expectation_implementations,
    )

    name = expectation.type
    supported = ROW_TYPES | DATASET_TYPES
    if reason := UNSUPPORTED.get(name) or NOT_OF_FACTS.get(name):
        yield f"type {name!r} is not evaluated over facts: {reason}"
        return
    if name not in list_registered_expectation_implementations():
        yield f"unknown type {show(name)}{did_you_mean(name, supported)}"
        return
    if name not in supported:
        yield f"type {name!r} is not evaluated over facts: expected one of {', '.join(sorted(supported))}"
        return
    fields = set(get_expectation_impl(name).__fields__) - _OURS_TO_SET - _BESIDE_KWARGS
    unknown = [key for key in expectation.kwargs if key not in fields]
    yield from (f"unknown kwarg {show(key)} of {name}{did_you_mean(key, fields)}" for key in unknown)
    if not unknown:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _configure(expectation).to_domain_obj()
        except (GreatExpectationsError, TypeError, ValueError) as error:
            yield f"{name}: {_refusal_words(error)}"


def _configure(expectation: Expectation) -> ExpectationConfiguration:
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    return ExpectationConfiguration(
        type=expectation.type,
        kwargs=dict(expectation.kwargs),
        meta={"id": expectation.id},
        severity=FailureSeverity(expectation.severity.value),
    )


def _refusal_words(error: Exception) -> str:
    """Great Expectations' own objection on one line; pydantic's are put together per field."""
    if not callable(details := getattr(error, "errors", None)):
        return " ".join(str(error).split())
    said = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in details()]
    return "; ".join(dict.fromkeys(said))


def _is_same(ours: Json, theirs: Any) -> bool:
    """Equal as JSON values: 1 and 1.0 are, 1 and true are not, nor are "3" and 3."""
    if isinstance(ours, list):
        return isinstance(theirs, list | tuple) and len(ours) == len(theirs) and all(map(_is_same, ours, theirs))
    if isinstance(ours, dict):
        return (
            isinstance(theirs, dict)
            and ours.keys() == theirs.keys()
            and all(_is_same(value, theirs[key]) for key, value in ours.items())
        )
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    return bool(ours == theirs)
