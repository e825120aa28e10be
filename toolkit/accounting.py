"""What of a dataset is answered, what failed, and what is left: by identity, so that an answer outweighs failures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.generate.plan import Identity, Planned, final_failures, plan_asks
from toolkit.generate.seal import rows_there
from toolkit.records import Accounting, Failure
from toolkit.store.journal import journal_files, read_entries, read_failures
from toolkit.store.prompts import read_prompts
from toolkit.store.shards import read_live
from toolkit.store.workspace import Dataset

_IMPORTED_LINE = re.compile(r": line \d+$")


def accounting(dataset: Dataset, contract: Contract, settings: DatasetSettings) -> Accounting:
    """Count asks, rows and failures. Reads prompts, journal and failures, and narrow columns of the shards.

    With prompts.jsonl, asked = answered + failed + unanswered: an answer that waits in the journal is answered, and
    `failed` are asks that an earlier run found to be without hope and that would not be repeated now. Without it,
    `failed` are imported lines and earlier asks that gave no row. `failures_by_reason` counts imported lines one by
    one, and of each ask without a row the latest failure. What stands in a shard that cannot be read is unanswered;
    the audit says which shard that is.

    Raises:
        ConfigError: prompts.jsonl has faults.
        StoreError: the journal, the failures or shards.json cannot be read.
    """
    live = set(rows_there(dataset, tolerant=True))
    waiting = {entry.identity for path in journal_files(dataset.journal) for entry in read_entries(path)} - live
    there = live | waiting
    asks: list[Planned] | None = None
    if dataset.prompts.exists():
        asks = plan_asks(read_prompts(dataset.prompts, modes=contract.modes), settings, contract)
    failures = list(read_failures(dataset.failures))
    lines, latest = _without_row(failures, there, asks)
    answered = unanswered = None
    failed = len(lines) + sum(failure.final for failure in latest)
    if asks is not None:
        hopeless = final_failures(failures)
        open_asks = [ask for ask in asks if ask.identity not in there]
        answered = len(asks) - len(open_asks)
        failed = sum((ask.identity, ask.row_key) in hopeless for ask in open_asks)
        unanswered = len(open_asks) - failed
    return Accounting(
        asked=None if asks is None else len(asks),
        rows=read_live(dataset).rows,
        answered=answered,
        failed=failed,
        unanswered=unanswered,
        unsealed=len(waiting),
        failures_by_reason=dict(Counter(failure.reason for failure in (*lines, *latest)).most_common()),
    )


def _without_row(
    failures: Iterable[Failure], there: set[Identity], asks: Sequence[Planned] | None
) -> tuple[list[Failure], list[Failure]]:
    """(imported lines that gave no row, the latest failure of each ask that has none)."""
    asked = None if asks is None else {ask.identity for ask in asks}
    lines: list[Failure] = []
    latest: dict[Identity, Failure] = {}
    for failure in sorted(failures, key=lambda failure: failure.at or 0.0):
        identity = None if failure.sample_id is None else (failure.sample_id, failure.turn, failure.sample_index)
        if _IMPORTED_LINE.search(failure.where):
            # A conflict is a line that gave no row although its identity has one.
            if identity not in there or failure.reason == "id_conflict":
                lines.append(failure)
        elif identity is not None and identity not in there and (asked is None or identity in asked):
            latest[identity] = failure
    return lines, list(latest.values())
