"""Great Expectations' own result of an audit: as JSON for machines, as Data Docs for people.

Results are those that the audit went by, not another evaluation. Positions of failing rows, of which
there may be millions, are cut as in Great Expectations' format SUMMARY: twenty values, each with what names its row.
What the audit failed because nothing was evaluated is a failure here too, where Great Expectations alone would call it
a success.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolkit.audit.gx.build import load_gx
from toolkit.audit.gx.evaluate import Evaluation
from toolkit.audit.gx.metrics import FailingRows, told
from toolkit.audit.suite_columns import named_columns
from toolkit.records import ExpectationResult, Json

MAX_LISTED = 20
"""Failing values that a result lists, as in Great Expectations' format SUMMARY."""

_MAX_SHOWN = 2_000
_OPERATORS = frozenset({"==", "!=", "<", "<=", ">", ">=", "IN", "NOT_IN"})
_WHO = ("sample_id", "turn", "sample_index")
_UNMARKED = str.maketrans({"<": "‹", ">": "›"})


def document(evaluation: Evaluation, dataset: str) -> dict[str, Json]:
    """A suite's `ExpectationSuiteValidationResult` as Great Expectations writes it, results in the suite's order.

    Args:
        evaluation: What `evaluate` gave.
        dataset: Stands in `meta.tokenproof.dataset`, as the asset's and as the run's name.
    """
    outcomes = {one.expectation_config.meta["id"]: one for one in evaluation.validated.results}
    written: dict[str, Any] = _plain(_without_rows(evaluation.validated))
    results = {one["expectation_config"]["meta"]["id"]: one for one in written["results"]}
    # An expectation without a result is one less here, and keeps the suite from being a success.
    ordered = [_judged(results[r.id], outcomes[r.id], r) for r in evaluation.results if r.id in results]
    passed = sum(result["success"] for result in ordered)
    moment = datetime.now(UTC).isoformat()
    written["meta"]["active_batch_definition"]["data_asset_name"] = dataset
    written["meta"] |= {
        "run_id": {"run_name": dataset, "run_time": moment},
        "validation_time": moment,
        "tokenproof": {"dataset": dataset},
    }
    return written | {
        "results": ordered,
        "success": passed == len(evaluation.results),
        "statistics": {
            "evaluated_expectations": len(ordered),
            "successful_expectations": passed,
            "unsuccessful_expectations": len(ordered) - passed,
            "success_percent": passed / len(ordered) * 100 if ordered else None,
        },
    }


def _judged(written: dict[str, Any], outcome: Any, ours: ExpectationResult) -> dict[str, Any]:
    """One result with the failing values that it lists, and a failure where the audit could not evaluate it."""
    info = written.get("exception_info") or {}
    if ours.error is not None and not _has_raised(info):
        info = {"raised_exception": True, "exception_message": ours.error, "exception_traceback": None}
    return written | {
        "success": ours.success,
        "result": (written.get("result") or {}) | _examples(outcome),
        "exception_info": _without_traceback(info),
    }


def _without_rows(validated: Any) -> dict[str, Any]:
    """The result as JSON values; the arrays of failing rows, which are none and may be long, are left out."""
    stripped = copy(validated)
    stripped.results = []
    for outcome in validated.results:
        one = copy(outcome)
        one.result = {k: v for k, v in (outcome.result or {}).items() if not isinstance(v, FailingRows)}
        stripped.results.append(one)
    written: dict[str, Any] = stripped.to_json_dict()
    return written


def _examples(outcome: Any) -> dict[str, Json]:
    """The first failing values, as Great Expectations lists them; nothing where rows are not judged."""
    found = outcome.result or {}
    rows = found.get("unexpected_index_list")
    if not isinstance(rows, FailingRows):
        return {}
    columns = [name for name in dict.fromkeys(named_columns(outcome.expectation_config.kwargs)) if name in rows.first]
    who = [name for name in _WHO if name in rows.first]
    shown = list(dict.fromkeys([*columns, *who]))
    first = [{k: _plain(v) for k, v in row.items()} for row in told(rows.first.head(MAX_LISTED))]
    values: list[Json] = [row[columns[0]] if len(columns) == 1 else [row[c] for c in columns] for row in first]
    if len(columns) > 2:
        values = [{column: row[column] for column in columns} for row in first]
    counted = Counter(json.dumps(value) for value in values)
    return {
        "partial_unexpected_list": values,
        "partial_unexpected_counts": [{"value": json.loads(v), "count": n} for v, n in counted.most_common()],
        "partial_unexpected_index_list": [{name: row[name] for name in shown} for row in first],
        "unexpected_index_column_names": who,
    }


def _plain(value: Any) -> Any:
    """A value that JSON has: fractions that are no number, and objects that are none of JSON's, as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _has_raised(info: Mapping[str, Any]) -> bool:
    """Great Expectations gives one report, or a mapping of metric ids to reports."""
    reports = [info] if "raised_exception" in info else [one for one in info.values() if isinstance(one, Mapping)]
    return any(report.get("raised_exception") for report in reports)


def _without_traceback(info: Mapping[str, Any]) -> dict[str, Any]:
    """Tracebacks name folders of this machine, and say nothing of the data."""
    told_ = {key: _without_traceback(one) if isinstance(one, Mapping) else one for key, one in info.items()}
    return told_ | ({"exception_traceback": None} if "exception_traceback" in told_ else {})


def build_docs(site: Path, documents: Sequence[Mapping[str, Json]]) -> None:
    """Fill an empty folder with Great Expectations' Data Docs, a static site; its pages load styles from the net.

    Angle brackets in values are shown as `‹` and `›`: not all that Great Expectations puts on its pages is escaped.

    Raises:
        OSError: it cannot be written.
    """
    gx = load_gx()
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        for name in list(context.list_data_docs_sites()):
            context.delete_data_docs_site(name)
        context.add_data_docs_site("audit", _site_config(site))
        suites: set[str] = set()
        for number, document_ in enumerate(documents):
            result = _result_of(_shown(document_))
            name = _path_name(result.suite_name)
            run = RunIdentifier(**result.meta["run_id"])
            result.meta["run_id"] = run
            context.validation_results_store.store_validation_results(
                suite_validation_result=result,
                suite_validation_result_identifier=ValidationResultIdentifier(
                    expectation_suite_identifier=ExpectationSuiteIdentifier(name=name),
                    run_id=run,
                    batch_identifier=str(number),
                ),
            )
            if name not in suites:
                suites.add(name)
                configured = [one.expectation_config for one in result.results]
                context.suites.add(gx.ExpectationSuite(name=name, expectations=configured))
        context.build_data_docs(site_names=["audit"])


def _site_config(site: Path) -> dict[str, Any]:
    return {
        "class_name": "SiteBuilder",
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(site.resolve())},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }


def _result_of(shown: Mapping[str, Any]) -> Any:
    """A document as Great Expectations' object."""
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        expectationSuiteValidationResultSchema,
    )

    loaded = expectationSuiteValidationResultSchema.load(dict(shown))
    return ExpectationSuiteValidationResult(**loaded) if isinstance(loaded, dict) else loaded


def _shown(value: Any, key: str = "") -> Any:
    """A document made harmless for pages: tables, headers and observed values come unescaped onto them.

    Operators of row conditions stay, since they are read again; they are the suite's own, and checked.
    """
    if isinstance(value, str):
        return value if key == "operator" and value in _OPERATORS else value.translate(_UNMARKED)[:_MAX_SHOWN]
    if isinstance(value, Mapping):
        return {_shown(name): _shown(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_shown(one) for one in value]
    return value


def _path_name(name: str) -> str:
    """A suite's name as part of a path; Great Expectations makes folders at its points."""
    return ".".join(filter(None, re.sub(r"[^A-Za-z0-9_.-]+", "_", name).split("."))) or "suite"
