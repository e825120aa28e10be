"""The gate: when a verdict passes, and whether it still is the verdict on what lies there now.

What an open gate promises, link by link:

- the bytes are those that were audited: shards, shards.json, prompts.jsonl, contract, suites, allow list, quarantine,
  and nothing waits in the journal or lies unlisted among the shards;
- `passed` follows from the verdict's own results (`closing_reasons`, which the audit asks as well);
- the results, the quarantine and every count follow from the facts: `recheck` concludes them again;
- the facts follow from the shards: `recheck` measures a sample of rows again, all of them in a small dataset.

It does not promise to withstand an owner who forges the shards themselves, or who rewrites this program. An edited
verdict, an edited quarantine or edited facts do not pass, whether by accident or to make a bad row pass.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from toolkit.contract import Contract
from toolkit.errors import GateClosed, ShardError, StoreError
from toolkit.records import KERNEL_VERSION, ExpectationResult, LiveShard, Severity, SuiteRun, Verdict
from toolkit.store.files import sha256_of, stands
from toolkit.store.journal import count_entries
from toolkit.store.shards import LiveShards, check_shard, read_live, unlisted_shards
from toolkit.store.verdicts import read_quarantine, read_verdict
from toolkit.store.workspace import Dataset

_THREADS = 2
"""Shards that are hashed side by side."""

Recheck = Callable[[Verdict, LiveShards, pa.Table], Iterable[str]]
"""Why a verdict and its quarantine do not follow from the live shards; nothing where they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGate:
    """A dataset that may be merged: what the audit proved is what lies there."""

    dataset: Dataset
    verdict: Verdict
    verdict_sha256: str
    live: LiveShards
    quarantine: pa.Table


# --- when results pass ---------------------------------------------------------------------------


def closing_reasons(
    *, rows: int, quarantined: int, suites: Sequence[SuiteRun], unreadable: Sequence[str]
) -> tuple[str, ...]:
    """Why these results close the gate, in words; empty when they pass. Audit and merge both ask here."""
    reasons = [f"unreadable: {sentence}" for sentence in unreadable]
    if rows == 0:
        # One line: each expectation would say the same again.
        idle = sum(result.severity is Severity.CRITICAL for suite in suites for result in suite.results)
        nothing = f"there are no rows: {idle} critical expectations could not be evaluated"
        return tuple(dict.fromkeys(reasons)) or (nothing,)
    if not suites:
        reasons.append("no suite was evaluated")
    if quarantined >= rows:
        reasons.append(f"all {rows:,} rows would be quarantined: no row is left after quarantine")
    for suite in suites:
        if not any(result.severity is Severity.CRITICAL for result in suite.results):
            reasons.append(f"suite {suite.name} has no critical expectation")
        judging = [r for r in suite.results if r.severity is Severity.CRITICAL and r.scope == "row"]
        if judging and not any(result.element_count for result in judging):
            reasons.append(f"suite {suite.name}: no critical expectation looked at a single row")
        for result in suite.results:
            if result.severity is Severity.CRITICAL:
                reasons += _failures_of(result, some_remain=quarantined < rows)
        if quarantined / rows > suite.max_quarantined_share:
            reasons.append(
                f"{quarantined:,} of {rows:,} rows ({quarantined / rows:.2%}) would be quarantined; "
                f"suite {suite.name} allows {suite.max_quarantined_share:.2%}"
            )
    return tuple(dict.fromkeys(reasons))


def _failures_of(result: ExpectationResult, *, some_remain: bool) -> Iterator[str]:
    if result.error is not None:
        yield f"{result.id}: could not be evaluated: {result.error}"
    elif not result.success:
        wrong = (result.fault or result.description).strip().rstrip(".")
        if result.unexpected_count is not None and result.element_count is not None:
            allowed = 0.0 if result.mostly is None else 1 - result.mostly
            yield (
                f"{result.id}: {result.unexpected_count:,} of {result.element_count:,} rows fail "
                f"({result.unexpected_share or 0:.2%}; allowed {allowed:.2%}): {wrong}"
            )
        else:
            observed = f" (found {result.observed})" if result.observed is not None else ""
            yield f"{result.id}: {wrong}{observed}"
    elif result.success_after_quarantine is False and some_remain:
        yield f"{result.id}: holds for all rows, but not for those that remain after quarantine"
    elif result.scope == "dataset" and result.success_after_quarantine is None and some_remain:
        yield f"{result.id}: was not evaluated on the rows that remain after quarantine"
    # A count that speaks against its own `success` is caught here, not believed.
    elif miscounted(result):
        yield f"{result.id}: says it holds, but its own counts say that it does not"


def miscounted(result: ExpectationResult) -> bool:
    """Whether the counts of a result that says it holds say that it does not."""
    if result.scope != "row" or result.element_count is None or result.unexpected_count is None:
        return result.scope == "row"
    if result.element_count == 0:
        return result.unexpected_count != 0
    mostly = 1.0 if result.mostly is None else result.mostly
    return 1 - result.unexpected_count / result.element_count < mostly - 1e-9


# --- whether a verdict still holds ---------------------------------------------------------------


class _Remedy(StrEnum):
    """The command that helps against a reason, in the order in which they are to be run."""

    GENERATE = "generate"
    AUDIT = "audit"
    NONE = ""


@dataclass(frozen=True, slots=True)
class _Reason:
    says: str
    remedy: _Remedy = _Remedy.AUDIT


def open_gate(
    dataset: Dataset,
    contract: Contract,
    suites: Sequence[tuple[str, Path]],
    *,
    allowed_providers: Sequence[str],
    recheck: Recheck,
) -> OpenGate:
    """Open the gate of a dataset, or say everything that keeps it closed.

    Args:
        dataset: What is to be merged.
        contract: The contract that it must have been audited under, as its file is now.
        suites: Name and file of each suite that it must have passed, as the files are now: these and no others.
        allowed_providers: The allow list, as it is configured now.
        recheck: Concludes the verdict again; asked last, and only where nothing else keeps the gate closed.

    Raises:
        GateClosed: with every reason, and the commands that help.
    """
    try:
        verdict = read_verdict(dataset.verdict)
        verdict_sha256 = sha256_of(dataset.verdict)
        live = read_live(dataset)
    except StoreError as error:
        raise _closed(dataset, [_Reason(str(error))]) from None
    quarantine, faults = _read_quarantine(verdict, dataset)
    reasons = [
        *_own_reasons(verdict, dataset),
        *_contract_reasons(verdict, contract),
        *_suite_reasons(verdict, suites),
        *_provider_reasons(verdict, allowed_providers),
        *_prompt_reasons(verdict, dataset),
        *_shard_reasons(verdict, dataset, live),
        *_journal_reasons(dataset),
        *faults,
    ]
    if not reasons and quarantine is not None:
        reasons = [_Reason(says) for says in recheck(verdict, live, quarantine)]
    if reasons or quarantine is None:
        raise _closed(dataset, reasons)
    return OpenGate(dataset=dataset, verdict=verdict, verdict_sha256=verdict_sha256, live=live, quarantine=quarantine)


def _closed(dataset: Dataset, reasons: Sequence[_Reason]) -> GateClosed:
    said = list(dict.fromkeys(reason.says for reason in reasons))
    wanted = {reason.remedy for reason in reasons}
    if _Remedy.GENERATE in wanted:
        wanted.add(_Remedy.AUDIT)
    root = dataset.place or dataset.folder.parents[1]
    place = "" if root == Path() else f" --root {shlex.quote(str(root))}"
    commands = [f"tokenproof {r} {shlex.quote(dataset.name)}{place}" for r in _Remedy if r and r in wanted]
    lines = [f"{dataset.name}: the gate is closed:", *(f"  - {sentence}" for sentence in said)]
    if commands:
        lines.append(f"  next: {', then '.join(commands)}")
    return GateClosed("\n".join(lines), said, dataset=dataset.name, commands=commands)


def _own_reasons(verdict: Verdict, dataset: Dataset) -> Iterator[_Reason]:
    """What the verdict itself says, and whether it says it rightly."""
    if verdict.dataset != dataset.name:
        yield _Reason(f"the verdict is of dataset {verdict.dataset!r}, not of {dataset.name!r}")
    found = closing_reasons(
        rows=verdict.rows, quarantined=verdict.quarantined, suites=verdict.suites, unreadable=verdict.unreadable
    )
    if verdict.passed:
        yield from (
            _Reason(f"the verdict says passed, but that does not follow from its own results: {reason}")
            for reason in found
        )
    else:
        failed = found or verdict.reasons or ("it gives no reason",)
        restore = "; put it back from a copy, then audit again"
        lost = {f"unreadable: {sentence}" for sentence in verdict.unreadable}
        yield from (_Reason(f"the audit failed: {reason}{restore if reason in lost else ''}") for reason in failed)
    if not verdict.complete:
        yield from _unfinished(verdict)
    elif not verdict.accounting.complete:
        yield _Reason("the verdict says complete, but that does not follow from its own counts")
    if not verdict.unreadable and verdict.rows != sum(shard.rows for shard in verdict.shards):
        yield _Reason("the verdict's rows are not the sum of its shards' rows")
    if verdict.kernel_version != KERNEL_VERSION:
        yield _Reason(f"audited by kernel version {verdict.kernel_version}, this is {KERNEL_VERSION}; audit again")


def _unfinished(verdict: Verdict) -> Iterator[_Reason]:
    """Why an audit was of an unfinished dataset.

    Where a shard was unreadable nothing is said: that is the reason that the audit failed, and its answers, which count
    as missing, are not to be asked again.
    """
    if verdict.unreadable:
        return
    accounting = verdict.accounting
    unanswered, unsealed = accounting.unanswered, accounting.unsealed
    for name in verdict.strays:
        yield _Reason(f"shards/{name}: lay among the shards at the audit, not listed in shards.json; audit again")
    if changed := accounting.changed_imports:
        yield _Reason(
            f"the audit found {changed:,} imported answers to another prompt than prompts.jsonl holds; put the prompts "
            "back, or import the files again with --replace"
        )
    parts = [f"{accounting.changed:,} answers to another request than is asked now"] if accounting.changed else []
    parts += ["a run at work"] if accounting.at_work else []
    parts += [f"{unanswered:,} prompts without an answer"] if unanswered else []
    parts += [f"{unsealed:,} replies not sealed"] if unsealed else []
    if parts:
        says = f"the audit was of an unfinished dataset: {', '.join(parts)}; finish it and audit again"
        yield _Reason(says, _Remedy.GENERATE)
    elif not (verdict.strays or accounting.changed_imports):
        yield _Reason("the audit was of an unfinished dataset; finish it and audit again")


def _contract_reasons(verdict: Verdict, contract: Contract) -> Iterator[_Reason]:
    if verdict.contract != contract.name:
        yield _Reason(f"audited under contract {verdict.contract!r}; this dataset's is {contract.name!r}")
    elif verdict.contract_sha256 != contract.sha256:
        yield _Reason(f"contract {contract.name} was changed since the audit; audit again")


def _suite_reasons(verdict: Verdict, suites: Sequence[tuple[str, Path]]) -> Iterator[_Reason]:
    """Suites are known by their bytes: two files may bear one name, and a folder may move."""
    left = {run.sha256: run for run in verdict.suites}
    if not suites:
        yield _Reason("no suite is configured for this dataset", _Remedy.NONE)
    missing, readable = [], True
    for name, path in suites:
        try:
            sha256 = sha256_of(path)
        except StoreError as error:
            readable = False
            yield _Reason(f"suite {name}: {error}", _Remedy.NONE)
            continue
        if left.pop(sha256, None) is None and sha256 not in {run.sha256 for run in verdict.suites}:
            missing.append((name, path))
    found = ", ".join(run.path for run in verdict.suites) or "none"
    for name, path in missing:
        earlier = next((run for run in left.values() if Path(run.path).name == path.name), None)
        if earlier is None:
            yield _Reason(f"suite {name} ({path.name}) was not evaluated; found {found}; audit again")
        else:
            del left[earlier.sha256]
            yield _Reason(f"suite {name} ({path.name}) was changed since the audit; audit again")
    if suites and readable and not missing:
        for run in left.values():
            yield _Reason(f"audited with suite {run.name} ({run.path}), which this dataset does not name; audit again")


def _provider_reasons(verdict: Verdict, allowed: Sequence[str]) -> Iterator[_Reason]:
    audited = verdict.allowed_providers or ()
    if {name.lower() for name in audited} != {name.lower() for name in allowed}:
        yield _Reason(
            f"the list of allowed providers was changed since the audit: it was {_listed(audited)}, "
            f"it is {_listed(allowed)}; audit again"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "empty (any provider)"


def _prompt_reasons(verdict: Verdict, dataset: Dataset) -> Iterator[_Reason]:
    name = dataset.prompts.name
    try:
        found = sha256_of(dataset.prompts) if stands(dataset.prompts) else None
    except StoreError as error:
        yield _Reason(f"{name}: {error}")
        return
    if found != verdict.prompts_sha256:
        happened = "removed" if found is None else "added" if verdict.prompts_sha256 is None else "changed"
        yield _Reason(f"{name} was {happened} since the audit; audit again")


def _shard_reasons(verdict: Verdict, dataset: Dataset, live: LiveShards) -> Iterator[_Reason]:
    audited = {shard.path: shard for shard in verdict.shards}
    there = {shard.path: shard for shard in live.shards}
    for path in sorted(there.keys() - audited.keys()):
        yield _Reason(f"{path}: added since the audit; audit again")
    for path in sorted(audited.keys() - there.keys()):
        yield _Reason(f"{path}: audited, but no longer listed in shards.json; audit again")
    for path in sorted(audited.keys() & there.keys()):
        if audited[path] != there[path]:
            yield _Reason(f"{path}: replaced since the audit; audit again")
    for file in unlisted_shards(dataset, live):
        says = f"shards/{file.name}: lies among the shards, but shards.json does not list it; move it away"
        yield _Reason(says, _Remedy.NONE)
    with ThreadPoolExecutor(_THREADS) as pool:
        faults = list(pool.map(lambda shard: _byte_fault(dataset, shard), live.shards))
    for fault in faults:
        # What the audit could not read closes the gate already, in the same words.
        if fault is not None and fault not in verdict.unreadable:
            yield _Reason(f"{fault}; restore it from a copy", _Remedy.NONE)


def _byte_fault(dataset: Dataset, shard: LiveShard) -> str | None:
    try:
        check_shard(dataset, shard)
    except ShardError as error:
        return str(error)
    return None


def _journal_reasons(dataset: Dataset) -> Iterator[_Reason]:
    try:
        waiting = count_entries(dataset.journal)
    except StoreError as error:
        yield _Reason(f"the journal: {error}", _Remedy.NONE)
        return
    if waiting:
        replies = "1 reply that is" if waiting == 1 else f"{waiting:,} replies that are"
        yield _Reason(f"the journal holds {replies} not sealed", _Remedy.GENERATE)


def _read_quarantine(verdict: Verdict, dataset: Dataset) -> tuple[pa.Table | None, list[_Reason]]:
    name = dataset.quarantine.name
    try:
        found = sha256_of(dataset.quarantine)
        if found != verdict.quarantine_sha256:
            return None, [_Reason(f"{name}: its bytes were changed since the audit; audit again")]
        table = read_quarantine(dataset.quarantine)
    except StoreError as error:
        return None, [_Reason(f"{name}: {error}")]
    if table.num_rows != verdict.quarantined:
        return None, [_Reason(f"{name}: expected {verdict.quarantined} rows, found {table.num_rows}; audit again")]
    return table, []
