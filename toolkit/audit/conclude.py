"""From facts to what they say: evidence, the suites' results, the quarantine. The same facts, suites and allow list
always give the same; audit asks here, and so does whoever does not believe a verdict.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from toolkit.audit.drift import find_drift
from toolkit.audit.evidence import Judged, judge
from toolkit.audit.providers import provider_table
from toolkit.audit.suite import Suite
from toolkit.audit.tally import standing_of_suite
from toolkit.columns import JUDGED_SCHEMA, QUARANTINE_SCHEMA
from toolkit.contract import Contract
from toolkit.findings import Finding
from toolkit.records import Severity, SuiteRun

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What facts say.

    Attributes:
        judged: The facts as they were judged, and what was learned on the way.
        kept: Which rows are not in quarantine, in the facts' order.
        runs: Each suite with its results.
        quarantine: A table of `QUARANTINE_SCHEMA`: rows that fail a critical row expectation, in the facts' order.
        drift: What changes within the dataset.
        providers: A table of `PROVIDERS_SCHEMA`, of all rows.
    """

    judged: Judged
    kept: npt.NDArray[np.bool_]
    runs: tuple[SuiteRun, ...]
    quarantine: pa.Table
    drift: tuple[Finding, ...]
    providers: pa.Table


def conclude(
    facts: pa.Table,
    contract: Contract,
    suites: Sequence[tuple[Suite, Path]],
    *,
    root: Path,
    allowed_providers: tuple[str, ...],
) -> Conclusion:
    """Judge facts and hold them against suites.

    Args:
        facts: A table of `FACTS_SCHEMA`: all shards of a dataset.
        contract: What they were measured under.
        suites: Each suite with the file that it was read from; the same bytes twice are one suite.
        root: The workspace: files below it are named from there.
        allowed_providers: Display names; empty = any.

    Raises:
        SuiteError: a suite cannot be checked as written.
    """
    judged = judge(_frame(facts), contract, allowed_providers=allowed_providers)
    table = judged.facts.to_arrow().select(JUDGED_SCHEMA.names).cast(JUDGED_SCHEMA)
    once = list({suite.sha256: (suite, path) for suite, path in suites}.values())
    drift = tuple(find_drift(judged.facts, contract))
    providers = provider_table(judged.facts, contract, drift)
    runs, failing = _evaluate(once, {"rows": table, "providers": providers}, root)
    reasons = _quarantine_reasons(runs, failing)
    keep = np.ones(table.num_rows, dtype=bool)
    keep[np.fromiter(reasons.keys(), dtype=np.int64, count=len(reasons))] = False
    return Conclusion(
        judged=judged,
        kept=keep,
        runs=tuple(
            _evaluate_remaining(
                once,
                runs,
                {
                    "rows": table.filter(pa.array(keep)),
                    "providers": providers
                    if keep.all()
                    else provider_table(judged.facts.filter(pl.Series(keep)), contract, drift),
                },
            )
        ),
        quarantine=_quarantine_table(table, reasons),
        drift=drift,
        providers=providers,
    )


def _frame(facts: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(facts)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _evaluate(
    suites: Sequence[tuple[Suite, Path]], tables: Mapping[str, pa.Table], root: Path
) -> tuple[list[SuiteRun], list[Mapping[str, Positions]]]:
    from toolkit.audit.gx.evaluate import evaluate

    runs, failing = [], []
    for suite, path in suites:
        evaluation = evaluate(suite, tables[suite.table])
        runs.append(
            SuiteRun(
                name=suite.name,
                path=named_from(root, path),
                sha256=suite.sha256,
                max_quarantined_share=suite.max_quarantined_share,
                results=evaluation.results,
                standing=standing_of_suite(suite, path),
            )
        )
        failing.append(evaluation.failing)
    return runs, failing


def named_from(root: Path, path: Path) -> str:
    """A file as seen from the workspace; by its own name alone where it lies elsewhere."""
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.name


def _quarantine_reasons(runs: Sequence[SuiteRun], failing: Sequence[Mapping[str, Positions]]) -> dict[int, list[str]]:
    """Row position → ids of the critical expectations that it fails, each once, in the suites' order."""
    reasons: dict[int, dict[str, None]] = {}
    for run, positions in zip(runs, failing, strict=True):
        for result in run.results:
            if result.severity is Severity.CRITICAL and result.scope == "row":
                for position in positions[result.id].tolist():
                    reasons.setdefault(position, {})[result.id] = None
    return {position: list(ids) for position, ids in sorted(reasons.items())}


def _quarantine_table(table: pa.Table, reasons: Mapping[int, Sequence[str]]) -> pa.Table:
    names = [name for name in QUARANTINE_SCHEMA.names if name != "reasons"]
    rows = table.select(names).take(pa.array(list(reasons), pa.int64()))
    column = pa.array([list(r) for r in reasons.values()], pa.list_(pa.string()))
    return rows.append_column("reasons", column).cast(QUARANTINE_SCHEMA)


def _evaluate_remaining(
    suites: Sequence[tuple[Suite, Path]], runs: Sequence[SuiteRun], tables: Mapping[str, pa.Table]
) -> list[SuiteRun]:
    """Dataset expectations once more, on the rows that would be merged.

    Where none is left they are not asked: what they would say of no row is false, and the gate is closed anyway.
    """
    if not tables["rows"].num_rows:
        return list(runs)
    from toolkit.audit.gx.evaluate import evaluate

    again = []
    for (suite, _), run in zip(suites, runs, strict=True):
        of_dataset = tuple(e for e in suite.expectations if e.scope == "dataset")
        if not of_dataset:
            again.append(run)
            continue
        results = {r.id: r for r in evaluate(replace(suite, expectations=of_dataset), tables[suite.table]).results}
        again.append(
            replace(
                run,
                results=tuple(
                    replace(r, success_after_quarantine=results[r.id].success) if r.id in results else r
                    for r in run.results
                ),
            )
        )
    return again


def import_meanwhile() -> threading.Thread:
    """Great Expectations takes seconds to import: let it, while something else is read."""

    def load() -> None:
        from toolkit.audit.gx.build import load_gx

        load_gx()

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    return thread
