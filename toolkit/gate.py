"""The gate: whether a verdict passes, and whether it is still a verdict on what lies there now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from toolkit.contract import Contract
from toolkit.errors import GateClosed, ShardError, StoreError
from toolkit.records import (
    DEFAULT_MAX_QUARANTINED_SHARE,
    KERNEL_VERSION,
    ExpectationResult,
    Json,
    LiveShard,
    Severity,
    SuiteRun,
    Verdict,
    canonical_json,
)
from toolkit.store.files import read_bytes, sha256_of
from toolkit.store.journal import count_entries
from toolkit.store.shards import LiveShards, check_shard, read_live, unlisted_shards
from toolkit.store.verdicts import read_quarantine, read_verdict
from toolkit.store.workspace import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGate:
    """A dataset that may be merged: what the audit proved is what lies there."""

    dataset: Dataset
    verdict: Verdict
    verdict_sha256: str
    live: LiveShards
    quarantine: pa.Table


def closing_reasons(
    *, rows: int, quarantined: int, suites: Sequence[SuiteRun], unreadable: Sequence[str]
) -> tuple[str, ...]:
    """Why these results close the gate, in words; empty when they pass. Audit and merge both ask here."""
    reasons = [f"unreadable: {sentence}" for sentence in unreadable]
    if rows == 0:
        reasons.append("there are no rows")
    if not suites:
        reasons.append("no suite was evaluated")
    for suite in suites:
        if not any(result.severity is Severity.CRITICAL for result in suite.results):
            reasons.append(f"suite {suite.name} has no critical expectation")
        judging = [r for r in suite.results if r.severity is Severity.CRITICAL and r.scope == "row"]
        if rows and judging and not any(result.element_count for result in judging):
            reasons.append(f"suite {suite.name}: no critical expectation looked at a single row")
        for result in suite.results:
            if result.severity is Severity.CRITICAL:
                reasons += _failures_of(result)
        share = quarantined / rows if rows else 1.0
        if share > suite.max_quarantined_share:
            reasons.append(
                f"{quarantined:,} of {rows:,} rows ({share:.2%}) would be quarantined; "
                f"suite {suite.name} allows {suite.max_quarantined_share:.2%}"
            )
    return tuple(dict.fromkeys(reasons))


def _failures_of(result: ExpectationResult) -> Iterator[str]:
    if result.error is not None:
        yield f"{result.id}: could not be evaluated: {result.error}"
    elif not result.success:
        if result.unexpected_count is not None and result.element_count is not None:
            allowed = 0.0 if result.mostly is None else 1 - result.mostly
            yield (
                f"{result.id}: {result.unexpected_count:,} of {result.element_count:,} rows fail "
                f"({result.unexpected_share or 0:.2%}; allowed {allowed:.2%}): {result.description}"
            )
        else:
            observed = f" (found {result.observed})" if result.observed is not None else ""
            yield f"{result.id}: {result.description}{observed}"
    elif result.success_after_quarantine is False:
        yield f"{result.id}: holds for all rows, but not for those that remain after quarantine"
    # A count that speaks against its own `success` is caught here, not believed.
    elif _miscounted(result):
        yield f"{result.id}: says it holds, but its own counts say that it does not"


def _miscounted(result: ExpectationResult) -> bool:
    if result.scope != "row" or result.element_count is None or result.unexpected_count is None:
        return result.scope == "row"
    if result.element_count == 0:
        return result.unexpected_count != 0
    mostly = 1.0 if result.mostly is None else result.mostly
    return 1 - result.unexpected_count / result.element_count < mostly - 1e-9


def open_gate(dataset: Dataset, contract: Contract, suites: Sequence[tuple[str, Path]]) -> OpenGate:
    """Open the gate of a dataset, or say everything that keeps it closed.

    Args:
        dataset: What is to be merged.
        contract: The contract that it must have been audited under, as its file is now.
        suites: Name and file of each suite that it must have passed, as the files are now.

    Raises:
        GateClosed: with every reason.
        StoreError: shards.json cannot be read.
    """
    try:
        verdict = read_verdict(dataset.verdict)
    except StoreError as error:
        raise GateClosed(f"{dataset.name}: the gate is closed: {error}", [str(error)]) from None
    live = read_live(dataset)
    reasons = [
        *_own_reasons(verdict, dataset),
        *_contract_reasons(verdict, contract),
        *_suite_reasons(verdict, suites),
        *_shard_reasons(verdict, dataset, live),
        *_journal_reasons(dataset),
    ]
    quarantine, quarantine_reasons = _read_quarantine(verdict, dataset)
    reasons += quarantine_reasons
    if reasons or quarantine is None:
        lines = "\n".join(f"  - {reason}" for reason in reasons)
        raise GateClosed(f"{dataset.name}: the gate is closed:\n{lines}", reasons)
    return OpenGate(
        dataset=dataset,
        verdict=verdict,
        verdict_sha256=sha256_of(dataset.verdict),
        live=live,
        quarantine=quarantine,
    )


def _own_reasons(verdict: Verdict, dataset: Dataset) -> Iterator[str]:
    """What the verdict itself says, and whether it says it rightly."""
    if verdict.dataset != dataset.name:
        yield f"the verdict is of dataset {verdict.dataset!r}, not of {dataset.name!r}"
    found = closing_reasons(
        rows=verdict.rows, quarantined=verdict.quarantined, suites=verdict.suites, unreadable=verdict.unreadable
    )
    if verdict.passed and found:
        yield "the verdict says passed, but that does not follow from its own results: " + "; ".join(found)
    elif not verdict.passed:
        yield "the audit failed: " + "; ".join(found or verdict.reasons or ("it gives no reason",))
    if not verdict.complete:
        yield "the audit was of an unfinished dataset; finish it and audit again"
    elif not verdict.accounting.complete:
        yield "the verdict says complete, but that does not follow from its own counts"
    if verdict.rows != sum(shard.rows for shard in verdict.shards):
        yield "the verdict's rows are not the sum of its shards' rows"
    if verdict.kernel_version != KERNEL_VERSION:
        yield f"audited by kernel version {verdict.kernel_version}, this is {KERNEL_VERSION}; audit again"


def _contract_reasons(verdict: Verdict, contract: Contract) -> Iterator[str]:
    if verdict.contract != contract.name:
        yield f"audited under contract {verdict.contract!r}; this dataset's is {contract.name!r}"
    elif verdict.contract_sha256 != contract.sha256:
        yield f"contract {contract.name} was changed since the audit; audit again"


def _suite_reasons(verdict: Verdict, suites: Sequence[tuple[str, Path]]) -> Iterator[str]:
    audited = {run.path: run for run in verdict.suites}
    if not suites:
        yield "no suite is configured for this dataset"
    for name, path in suites:
        run = audited.get(path.name)
        if run is None:
            yield f"suite {name} ({path.name}) was not evaluated; found {', '.join(sorted(audited)) or 'none'}"
            continue
        try:
            now = sha256_of(path)
        except StoreError as error:
            yield f"suite {name}: {error}"
            continue
        if now != run.sha256:
            yield f"suite {name} ({path.name}) was changed since the audit; audit again"
        elif not _states(path, run):
            yield f"suite {name}: the verdict's results are not those of {path.name}, one by one; audit again"


def _states(path: Path, run: SuiteRun) -> bool:
    """Whether the results are of exactly the expectations that the suite file states, as strict as it states them."""
    try:
        suite = msgspec.json.decode(read_bytes(path))
        settings = suite.get("meta", {}).get("tokenproof", {})
        stated = [(e["type"], e.get("severity") or "critical", _strictness(e["kwargs"])) for e in suite["expectations"]]
        share = float(settings.get("max_quarantined_share", DEFAULT_MAX_QUARANTINED_SHARE))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return False
    found = [(r.type, str(r.severity), _strictness({**r.kwargs, "mostly": r.mostly})) for r in run.results]
    return canonical_json(stated) == canonical_json(found) and run.max_quarantined_share == share


def _strictness(kwargs: Mapping[str, Json]) -> dict[str, Json]:
    """What an expectation asks for: nulls say nothing, and 1 is 1.0."""
    stated = {key: value for key, value in kwargs.items() if value is not None}
    return stated | ({"mostly": float(stated["mostly"])} if "mostly" in stated else {})


def _shard_reasons(verdict: Verdict, dataset: Dataset, live: LiveShards) -> Iterator[str]:
    audited = {shard.path: shard for shard in verdict.shards}
    there = {shard.path: shard for shard in live.shards}
    for path in sorted(there.keys() - audited.keys()):
        yield f"{path}: added since the audit; audit again"
    for path in sorted(audited.keys() - there.keys()):
        yield f"{path}: audited, but no longer listed in shards.json"
    for path in sorted(audited.keys() & there.keys()):
        if audited[path] != there[path]:
            yield f"{path}: replaced since the audit; audit again"
    for file in unlisted_shards(dataset, live):
        yield f"shards/{file.name}: lies among the shards, but shards.json does not list it"
    for shard in live.shards:
        yield from _byte_reasons(dataset, shard)


def _byte_reasons(dataset: Dataset, shard: LiveShard) -> Iterator[str]:
    try:
        check_shard(dataset, shard)
    except ShardError as error:
        yield str(error)


def _journal_reasons(dataset: Dataset) -> Iterator[str]:
    waiting = count_entries(dataset.journal)
    if waiting:
        yield f"the journal holds {waiting:,} replies that are not sealed; seal them and audit again"


def _read_quarantine(verdict: Verdict, dataset: Dataset) -> tuple[pa.Table | None, list[str]]:
    name = dataset.quarantine.name
    try:
        found = sha256_of(dataset.quarantine)
        if found != verdict.quarantine_sha256:
            return None, [f"{name}: its bytes were changed since the audit; audit again"]
        table = read_quarantine(dataset.quarantine)
    except StoreError as error:
        return None, [f"{name}: {error}"]
    if table.num_rows != verdict.quarantined:
        return None, [f"{name}: expected {verdict.quarantined} rows, found {table.num_rows}"]
    return table, []
