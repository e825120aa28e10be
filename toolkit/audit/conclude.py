"""From facts to what they say: evidence, the suites' results, the quarantine. The same facts, suites and allow list
always give the same; audit asks here, and so does whoever does not believe a verdict.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from toolkit.audit.drift import find_drift
from toolkit.audit.fact_files import AT, FactFiles, collected
from toolkit.audit.judged_files import JudgedFiles, judge_files
from toolkit.audit.providers import provider_table
from toolkit.audit.suite import Suite
from toolkit.audit.tally import standing_of_suite
from toolkit.audit.workers import Meanwhile
from toolkit.columns import QUARANTINE_SCHEMA
from toolkit.contract import Contract
from toolkit.findings import Finding
from toolkit.records import Severity, SuiteRun

if TYPE_CHECKING:
    from toolkit.audit.gx.evaluate import Evaluation

Positions = npt.NDArray[np.int64]
Rows: TypeAlias = pl.LazyFrame | pa.Table

_IMPORTING = threading.Lock()
"""Of two that import at once, the second would take the first one's silence about garbage for the process's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What facts say.

    Attributes:
        judged: The facts as they were judged, and what was learned on the way. They lie in the scratch folder that was
            given, and are there as long as that is.
        quarantined: Positions of the rows in quarantine among all rows, ascending.
        runs: Each suite with its results.
        quarantine: A table of `QUARANTINE_SCHEMA`: rows that fail a critical row expectation, in the facts' order.
        drift: What changes within the dataset.
        providers: A table of `PROVIDERS_SCHEMA`, of all rows.
        evaluations: What Great Expectations said of all rows, one for each suite.
    """

    judged: JudgedFiles
    quarantined: Positions
    runs: tuple[SuiteRun, ...]
    quarantine: pa.Table
    drift: tuple[Finding, ...]
    providers: pa.Table
    evaluations: tuple[Evaluation, ...]


def conclude(
    facts: FactFiles,
    contract: Contract,
    suites: Sequence[tuple[Suite, Path]],
    *,
    root: Path,
    scratch: Path,
    allowed_providers: tuple[str, ...],
    workers: int | None = None,
    before_evaluating: Callable[[], object] = lambda: None,
) -> Conclusion:
    """Judge facts and hold them against suites.

    Args:
        facts: Facts of all shards of a dataset.
        contract: What they were measured under.
        suites: Each suite with the file that it was read from; the same bytes twice are one suite.
        root: The workspace: files below it are named from there.
        scratch: Folder for the judged facts.
        allowed_providers: Display names; empty = any.
        workers: Shards that are judged side by side; None: as many as there are cores.
        before_evaluating: Called before Great Expectations is needed; what it raises ends the work.

    Raises:
        SuiteError: a suite cannot be checked as written.
    """
    judged = judge_files(facts, contract, scratch, allowed_providers=allowed_providers, workers=workers)
    once = list({suite.sha256: (suite, path) for suite, path in suites}.values())
    drift = tuple(find_drift(judged.facts, contract))
    providers = provider_table(judged.facts, contract, drift)
    before_evaluating()
    runs, evaluations = _evaluate(once, {"rows": judged.facts, "providers": providers}, root)
    failing = [evaluation.failing for evaluation in evaluations]
    positions, reasons = _quarantine_reasons(runs, failing)
    if judged.rows and not len(positions):
        runs = [_all_remain(run) for run in runs]
    elif judged.rows > len(positions):
        remaining = without_rows(judged.facts, positions)
        left: dict[str, Rows] = {"rows": remaining, "providers": provider_table(remaining, contract, drift)}
        runs = _evaluate_remaining(once, runs, left)
    return Conclusion(
        judged=judged,
        quarantined=positions,
        runs=tuple(runs),
        quarantine=_quarantine_table(judged.facts, positions, reasons),
        drift=drift,
        providers=providers,
        evaluations=tuple(evaluations),
    )


def without_rows(facts: pl.LazyFrame, positions: Positions) -> pl.LazyFrame:
    """A frame without the rows at these positions."""
    gone = pl.Series(AT, positions).cast(pl.UInt32)
    return facts.with_row_index(AT).filter(~pl.col(AT).is_in(gone.implode())).drop(AT)


def _evaluate(
    suites: Sequence[tuple[Suite, Path]], tables: Mapping[str, Rows], root: Path
) -> tuple[list[SuiteRun], list[Evaluation]]:
    from toolkit.audit.gx.evaluate import evaluate

    runs, evaluations = [], []
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
        evaluations.append(evaluation)
    return runs, evaluations


def named_from(root: Path, path: Path) -> str:
    """A file as seen from the workspace; by its own name alone where it lies elsewhere."""
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.name


def _quarantine_reasons(
    runs: Sequence[SuiteRun], failing: Sequence[Mapping[str, Positions]]
) -> tuple[Positions, pa.ListArray]:
    """Positions of rows that fail a critical row expectation, ascending, and the ids of those that each fails: each
    once, in the suites' order."""
    asked = [
        (result.id, positions[result.id])
        for run, positions in zip(runs, failing, strict=True)
        for result in run.results
        if result.severity is Severity.CRITICAL and result.scope == "row"
    ]
    names = list(dict.fromkeys(name for name, _ in asked))
    rows = np.concatenate([np.zeros(0, np.int64), *(positions for _, positions in asked)])
    name = np.repeat([names.index(name) for name, _ in asked], [len(p) for _, p in asked]).astype(np.int64)
    # Stable: within a row the reasons stay in the order in which they were asked.
    order = np.argsort(rows, kind="stable")
    pairs = rows[order] * len(names) + name[order]
    _, first = np.unique(pairs, return_index=True)
    kept = order[np.sort(first)]
    positions, counts = np.unique(rows[kept], return_counts=True)
    reasons = pa.array(names, pa.string()).take(pa.array(name[kept]))
    offsets = pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), pa.int32())
    return positions, pa.ListArray.from_arrays(offsets, reasons)


def _quarantine_table(facts: pl.LazyFrame, positions: Positions, reasons: pa.ListArray) -> pa.Table:
    names = [name for name in QUARANTINE_SCHEMA.names if name != "reasons"]
    wanted = pl.Series(AT, positions).cast(pl.UInt32)
    rows = facts.select(names).with_row_index(AT).filter(pl.col(AT).is_in(wanted.implode())).drop(AT)
    return collected(rows).to_arrow().append_column("reasons", reasons).cast(QUARANTINE_SCHEMA)


def _all_remain(run: SuiteRun) -> SuiteRun:
    """A run over a dataset of which no row is in quarantine: what remains is what was evaluated."""
    results = (
        replace(result, success_after_quarantine=result.success) if result.scope == "dataset" else result
        for result in run.results
    )
    return replace(run, results=tuple(results))


def _evaluate_remaining(
    suites: Sequence[tuple[Suite, Path]], runs: Sequence[SuiteRun], tables: Mapping[str, Rows]
) -> list[SuiteRun]:
    """Dataset expectations once more, on the rows that would be merged.

    A group of `for_each` of which no row remains was not evaluated: that is a failure, as everywhere else.
    Where none is left the caller does not ask: what they would say of no row is false, and the gate is closed anyway.
    """
    from toolkit.audit.gx.evaluate import evaluate

    again = []
    for (suite, _), run in zip(suites, runs, strict=True):
        of_dataset = tuple(e for e in suite.expectations if e.scope == "dataset")
        if not of_dataset:
            again.append(run)
            continue
        asked = replace(suite, expectations=of_dataset)
        results = {r.id: r for r in evaluate(asked, tables[suite.table]).results}
        again.append(
            replace(
                run,
                results=tuple(
                    replace(r, success_after_quarantine=r.id in results and results[r.id].success)
                    if r.scope == "dataset"
                    else r
                    for r in run.results
                ),
            )
        )
    return again


def import_meanwhile() -> Meanwhile[None]:
    """Great Expectations takes seconds to import: let it, while something else is read."""
    return Meanwhile(import_gx)


def import_gx() -> None:
    """Import Great Expectations, once, without looking for garbage: that takes a sixth of the time of the import, and
    later, among all that was imported, a third of that of a suite.

    It holds for the whole process: nobody else's garbage is looked for meanwhile, and what is there at the end never
    again. What an import makes stays anyway.
    """
    with _IMPORTING:
        if "toolkit.audit.gx" in sys.modules:
            return
        collecting = gc.isenabled()
        gc.disable()
        try:
            from toolkit.audit.gx.build import load_gx

            load_gx()
            gc.freeze()
        finally:
            if collecting:
                gc.enable()
