"""The audit: shards → facts → evidence → suites → quarantine, reports and, last, the verdict.

`verdict.json` opens the gate, so it is there only if the audit came to its end: the verdict of an earlier audit and
its reports are removed first, and the new one is written when everything else lies there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.audit.conclude import conclude, import_gx
from toolkit.audit.describe import describe
from toolkit.audit.gather import gather
from toolkit.audit.scratch import scratch_folder
from toolkit.audit.spread import Executor
from toolkit.audit.suite import Suite
from toolkit.audit.workers import Meanwhile
from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.records import Accounting, Verdict
from toolkit.store.files import sha256_of, stands
from toolkit.store.shards import LiveShards, read_live
from toolkit.store.verdicts import withdraw_verdict, write_quarantine, write_verdict
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

if TYPE_CHECKING:
    from toolkit.audit.gx.evaluate import Evaluation


def audit(
    dataset: Dataset,
    contract: Contract,
    load_vocabulary: Callable[[], Vocabulary],
    suites: Sequence[tuple[Suite, Path]],
    accounting: Accounting,
    *,
    allowed_providers: tuple[str, ...] = (),
    text_health: bool = True,
    workers: int | None = None,
    executor: Executor | None = None,
    report: Callable[[Verdict], object] = lambda _: None,
    publish: Callable[[Sequence[Evaluation]], object] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    advance: Callable[[int], None] = lambda _: None,
) -> Verdict:
    """Audit every row of a dataset, and write quarantine.parquet, the reports and verdict.json.

    Args:
        dataset: Whose live shards are audited.
        contract: What its rows are held against.
        load_vocabulary: Called at most once, maybe on another thread.
        suites: Each suite with the file that it was read from.
        accounting: What was asked and what became of it.
        allowed_providers: Display names; empty = any.
        text_health: Measure the facts of text health; else they are null.
        workers: Units of rows that are measured side by side; None: as many as there are cores. The verdict does not
            depend on it.
        executor: Who measures shards; None: this machine.
        report: Writes the reports; what it raises leaves no verdict.
        publish: Given what Great Expectations said of all rows, one for each suite, when the verdict is written; it
            stays, whatever is raised.
        tell: Told in a sentence of what a reader should know and the verdict does not say.
        advance: Told the number of rows of each shard that is done.

    Raises:
        StoreError: there are no live shards, or a file cannot be read or written.
        SuiteError: a suite cannot be checked as written; no facts were written.
    """
    started = time.monotonic()
    withdraw_verdict(dataset)
    live = read_live(dataset)
    if not live.shards:
        raise StoreError(f"dataset {dataset.name}: no shards in {dataset.live}; generate or import answers first")
    prompts_sha256 = sha256_of(dataset.prompts) if stands(dataset.prompts) else None
    checking = Meanwhile(lambda: _check_suites(suites))
    foreign = [] if _is_of(live, contract) else [_other_contract(dataset, live, contract)]
    with scratch_folder(dataset) as scratch:
        gathered = gather(
            dataset,
            [] if foreign else live.shards,
            contract,
            load_vocabulary,
            seed=dataset.name,
            text_health=text_health,
            workers=workers,
            executor=executor,
            before_writing=checking.result,
            tell=tell,
            advance=advance,
        )
        gathered = replace(gathered, unreadable=(*foreign, *gathered.unreadable))
        conclusion = conclude(
            gathered.facts,
            contract,
            suites,
            root=dataset.folder.parents[1],
            scratch=scratch,
            workers=workers,
            allowed_providers=allowed_providers,
            before_evaluating=checking.result,
        )
        with ExitStack() as undo:
            # Whatever goes wrong from here on, an interrupt too: no verdict and no report stay behind.
            undo.callback(_withdraw_quietly, dataset)
            verdict = describe(
                dataset,
                live,
                contract,
                gathered,
                conclusion,
                accounting,
                allowed_providers=allowed_providers,
                prompts_sha256=prompts_sha256,
                quarantine_sha256=write_quarantine(dataset.quarantine, conclusion.quarantine),
            )
            verdict = replace(verdict, elapsed_s=round(time.monotonic() - started, 3))
            report(verdict)
            write_verdict(dataset.verdict, verdict)
            undo.pop_all()
        publish(conclusion.evaluations)
    return verdict


def _withdraw_quietly(dataset: Dataset) -> None:
    """Withdraw while another error is on its way; that one is told."""
    with suppress(StoreError):
        withdraw_verdict(dataset)


def _other_contract(dataset: Dataset, live: LiveShards, contract: Contract) -> str:
    """Why nothing of a dataset can be held against this contract."""
    return f"{dataset.name}/shards.json: expected rows of contract {contract.name}, found {live.contract}"


def _is_of(live: LiveShards, contract: Contract) -> bool:
    return live.contract in (None, "", contract.name)


def _check_suites(suites: Sequence[tuple[Suite, Path]]) -> None:
    """Refuse what Great Expectations would not check as it is written. Importing it takes most of the time.

    Raises:
        SuiteError: with every fault of the first faulty suite.
    """
    import_gx()
    from toolkit.audit.gx.evaluate import check_suite

    for suite, _ in suites:
        check_suite(suite)
