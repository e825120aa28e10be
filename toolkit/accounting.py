"""What of a dataset is answered, what failed, and what is left: by identity, so that an answer outweighs failures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import msgspec
from msgspec import structs

from toolkit.changed import changed_imports, first_of
from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.generate.conversation import Conversation, turns_in
from toolkit.generate.plan import Identity, Plan, plan_of
from toolkit.generate.processes import host_name, is_running
from toolkit.generate.status import FILE_NAME, RunStatus, samples_asked
from toolkit.generate.turns import TurnPlan, plan_turns
from toolkit.records import MISSING_NAMED, Accounting, Failure
from toolkit.store.answered import Answered, read_answered
from toolkit.store.files import read_bytes, stands
from toolkit.store.journal import count_entries, journal_files, read_entries, read_failures
from toolkit.store.prompts import check_prompts
from toolkit.store.shards import read_live
from toolkit.store.workspace import Dataset

ENDED = ("done", "stopped")
"""Phases of a run that is over."""

_IMPORTED_LINE = re.compile(r": line \d+$")


def accounting(dataset: Dataset, contract: Contract, settings: DatasetSettings) -> Accounting:
    """Count asks, rows and failures. Reads prompts, journal and failures, and narrow columns of the shards.

    With prompts.jsonl, asked = answered + failed + unanswered: an answer that waits in the journal is answered, and
    `failed` are asks that an earlier run found to be without hope and that would not be repeated now. Without it,
    `failed` are imported lines and earlier asks that gave no row. Failures are counted by reason: imported lines one
    by one, and of each ask without a row the latest failure. What stands in a shard that cannot be read is unanswered;
    the audit says which shard that is. Probes are no answers, and their failures are nobody's.

    Raises:
        ConfigError: prompts.jsonl has faults.
        StoreError: the journal, the failures, shards.json or run.json cannot be read.
    """
    rows = _Rows(dataset)
    # What the latest run was asked for with --samples is asked, though the settings say fewer.
    settings = structs.replace(settings, samples=max(settings.samples, samples_asked(dataset.folder)))
    asked = _asked(dataset, contract, settings, rows.answered)
    # Their bodies stay in their files: all of them at once might not fit into memory.
    failures = [replace(failure, body=None) for failure in read_failures(dataset.failures) if not failure.probe]
    lines, latest = _without_row(failures, rows, asked)
    if asked is None:
        final = {identity: failure for identity, failure in latest.items() if failure.final}
    else:
        final = dict(_hopeless(failures, rows, asked))
    repeated = [failure for identity, failure in latest.items() if identity not in final]
    answered = unanswered = None
    imports: tuple[int, tuple[Identity, ...]] = (0, ())
    if asked is not None:
        samples = settings.samples
        imports = changed_imports(dataset, asked.plan.prompts, rows.answered, contract, samples=samples)
        answered = asked.plan.answered_before + asked.plan.changed + sum(map(asked.has, rows.waiting))
        unanswered = asked.plan.asked - answered - len(final)
    missing = () if asked is None else tuple(islice(_missing(asked, rows, final), MISSING_NAMED))
    return Accounting(
        asked=None if asked is None else asked.plan.asked,
        rows=read_live(dataset).rows,
        answered=answered,
        failed=len(final) if asked is not None else len(lines) + len(final),
        unanswered=unanswered,
        unsealed=len(rows.waiting),
        failures_by_reason=_by_reason([*lines, *final.values(), *repeated]),
        failed_by_reason=_by_reason(final.values()),
        repeated_by_reason=_by_reason(repeated),
        lines_by_reason=_by_reason(lines),
        missing=missing,
        missing_reasons=_reasons(missing, [*lines, *latest.values()]),
        changed=0 if asked is None else asked.plan.changed,
        first_changed=() if asked is None else first_of(dataset, rows.answered, asked.plan.changed_rows()),
        changed_imports=imports[0],
        first_changed_imports=imports[1],
        journaled=count_entries(dataset.journal),
        at_work=_at_work(dataset),
    )


def _at_work(dataset: Dataset) -> bool:
    """Whether a run over the dataset is at work, as far as this machine can tell."""
    path = dataset.folder / FILE_NAME
    if not stands(path):
        return False
    try:
        run = msgspec.json.decode(read_bytes(path), type=RunStatus)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError):
        return False  # `status` says so; whatever a run leaves undone shows in journal and shards
    if run.phase in ENDED or (run.host and run.host != host_name()):
        return False
    return is_running(run.pid, run.mark) is True


class _Rows:
    """What has a row, or an answer in the journal that will become one."""

    def __init__(self, dataset: Dataset):
        self.answered = read_answered(dataset, tolerant=True)
        entries = (entry for path in journal_files(dataset.journal) for entry in read_entries(path))
        self.waiting = {entry.identity for entry in entries if not entry.probe and not self._is_live(entry.identity)}

    def has(self, identity: Identity) -> bool:
        """Whether an ask is answered."""
        return identity in self.waiting or self._is_live(identity)

    def _is_live(self, identity: Identity) -> bool:
        return self.answered.find(*identity) is not None


class _Asked:
    """What prompts and settings ask, looked up by identity."""

    def __init__(self, plan: Plan | TurnPlan):
        self.plan = plan

    def has(self, identity: Identity) -> bool:
        """Whether there is such an ask."""
        sample_id, turn, sample_index = identity
        prompt = self.plan.prompts.find(sample_id)
        if prompt is None or not 0 <= sample_index < self.plan.way.settings.samples:
            return False
        return 0 <= turn < (turns_in(prompt.messages) if isinstance(self.plan, TurnPlan) else 1)

    def asks(self, identity: Identity, row_key: str | None) -> bool:
        """Whether there is such an ask, and it asks this. Of later turns nobody knows without the answers."""
        if not self.has(identity):
            return False
        prompt = self.plan.prompts.find(identity[0])
        assert prompt is not None
        ask = next(ask for ask in self.plan.way.asks_of(prompt) if ask.sample_index == identity[2])
        if isinstance(self.plan, TurnPlan):
            return identity[1] > 0 or Conversation(ask, self.plan.way.contract).next_ask().row_key == row_key
        return ask.row_key == row_key

    def open(self) -> Iterator[Identity]:
        """Asks without a row, in the order of the prompts."""
        for one in self.plan:
            if isinstance(one, Conversation):
                yield from (one.as_written(turn).identity for turn in range(one.turns))
            else:
                yield one.identity


def _asked(dataset: Dataset, contract: Contract, settings: DatasetSettings, answered: Answered) -> _Asked | None:
    if not stands(dataset.prompts):
        return None
    prompts = check_prompts(dataset.prompts, modes=contract.modes)
    if settings.turns == "every":
        return _Asked(plan_turns(prompts, settings, contract, answered))
    return _Asked(plan_of(prompts, settings, contract, answered))


def _missing(asked: _Asked, rows: _Rows, final: dict[Identity, Failure]) -> Iterator[Identity]:
    return (identity for identity in asked.open() if identity not in final and not rows.has(identity))


def _hopeless(failures: Iterable[Failure], rows: _Rows, asked: _Asked) -> Iterator[tuple[Identity, Failure]]:
    """One final failure of each ask that has no row and is not repeated."""
    for failure in failures:
        identity = _identity_of(failure)
        if identity is None or not failure.final or failure.row_key is None or rows.has(identity):
            continue
        if not _IMPORTED_LINE.search(failure.where) and asked.asks(identity, failure.row_key):
            yield identity, failure


def _reasons(missing: Iterable[Identity], failures: Iterable[Failure]) -> tuple[str, ...]:
    """The reason of the last failure of each; empty where there is none."""
    known = {_identity_of(failure): failure.reason for failure in failures}
    return tuple(known.get(identity, "") for identity in missing)


def _by_reason(failures: Iterable[Failure]) -> dict[str, int]:
    return dict(Counter(failure.reason for failure in failures).most_common())


def _identity_of(failure: Failure) -> Identity | None:
    return None if failure.sample_id is None else (failure.sample_id, failure.turn, failure.sample_index)


def _without_row(
    failures: Iterable[Failure], rows: _Rows, asked: _Asked | None
) -> tuple[list[Failure], dict[Identity, Failure]]:
    """(imported lines that gave no row, the latest failure of each ask that has none)."""
    lines: list[Failure] = []
    latest: dict[Identity, Failure] = {}
    for failure in sorted(failures, key=lambda failure: failure.at or 0.0):
        identity = _identity_of(failure)
        if _IMPORTED_LINE.search(failure.where):
            # A conflict is a line that gave no row although its identity has one.
            if identity is None or failure.reason == "id_conflict" or not rows.has(identity):
                lines.append(failure)
        elif identity is not None and not rows.has(identity) and (asked is None or asked.has(identity)):
            latest[identity] = failure
    return lines, latest
