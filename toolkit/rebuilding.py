"""Rebuild: new rows from stored replies, under another contract or a changed one, without asking anybody.

What a reply is does not change, nor whose it is, so everything that was paid for stays: a reply that makes no row
under the contract is kept as a failure, and its prompt is asked again. The live shards change at once.

Identities. A row_key holds the contract's name. Under another name it is computed anew from what the row says of its
request, with tool ids in that contract's form, so that a later run finds the rows answered. Where the stored key does
not follow from the row (imports without a request, whose key holds no contract), it stays as it is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.assembly import unpacked
from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.records import Entry, Failure, IdsSource, Json, LiveShard, Origin, Reply, row_key_of, storable_text
from toolkit.rows import RowBuilder, rewrite_tool_ids
from toolkit.sealing import seal_held
from toolkit.store.arrays import Columns
from toolkit.store.discards import refuse_unsealed, settle_discards
from toolkit.store.files import sole_writer
from toolkit.store.journal import LineWriter
from toolkit.store.listing import replace_shards
from toolkit.store.shard_writer import gathered
from toolkit.store.shards import LiveShards, iter_shard, read_live
from toolkit.store.workspace import Dataset
from toolkit.wire import FORMS
from toolkit.wire.json import NotJsonError, load_json

_READ = [
    "row_key", "sample_id", "turn", "sample_index", "probe", "source", "mode", "contract", "messages", "tools",
    "payload", "latency_s", "streamed", "output_ids",
]  # fmt: skip


class _Payload(msgspec.Struct, kw_only=True):
    """What a row keeps of its entry (`rows.PAYLOAD_KEYS`)."""

    form: str
    body: str
    status: int
    request: dict[str, Json] | None = None
    sampling: dict[str, Json] | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ids_are: IdsSource = IdsSource.GIVEN
    assumed: tuple[str, ...] = ()
    tool_ids: dict[str, str] | None = None
    model: str | None = None
    received_at: float | None = None


class _Prompt(msgspec.Struct, kw_only=True):
    messages: list[dict[str, Json]] | None
    tools: list[dict[str, Json]] | None


@dataclass(slots=True, kw_only=True)
class RebuildCounts:
    """What became of the rows: rows_before = rows + failures.

    Attributes:
        ids_changed: Rows with other ids than before, or with ids where there were none, or the other way round.
        statuses: Rows by what the rules could say about their ids.
    """

    contract_before: str
    contract: str
    rows_before: int = 0
    rows: int = 0
    failures: int = 0
    ids_changed: int = 0
    sealed_first: int = 0
    by_reason: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Json]:
        """For machines."""
        values = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values}


def rebuild_rows(
    dataset: Dataset, builder: RowBuilder, *, advance: Callable[[int], None] = lambda _: None
) -> RebuildCounts:
    """Make all rows of a dataset anew. Memory holds a row group, never a shard.

    The files of the old shards are removed, but where a row could not be rebuilt they are kept in set_aside/.

    Args:
        dataset: Whose rows.
        builder: Makes rows of the contract that holds from now on.
        advance: Called with the number of rows that were done since.

    Raises:
        ConfigError: the journal belongs to another contract.
        StoreError: there is no row, or none could be rebuilt; the journal holds replies of the contract that is left;
            another process writes to the dataset, or a file cannot be read or written. Then the dataset is as it was.
    """
    name = builder.contract.name
    with sole_writer(dataset.lock):
        settle_discards(dataset)
        sealed = seal_held(dataset, builder) if read_live(dataset).contract in (None, name) else 0
        refuse_unsealed(dataset)
        live = read_live(dataset)
        if not live.rows:
            raise StoreError(f"dataset {dataset.name}: expected rows to rebuild, found none")
        counts = RebuildCounts(contract_before=live.contract or "", contract=name, sealed_first=sealed)
        with _Failures(_failures_path(dataset, live, builder.contract)) as failures:
            run = _Rebuild(dataset, builder, failures, counts, advance)
            replace_shards(
                dataset,
                {shard.sha256 for shard in live.shards},
                gathered(chain.from_iterable(map(run.rows_of, live.shards))),
                contract=name,
                keep_files=lambda: counts.failures > 0,
                before_listing=lambda _: run.close(live.rows),
            )
    return counts


# --- failures -----------------------------------------------------------------------------------


class _Failures:
    """A file of failures that is on the disk before the shards change, and goes if it does not come to that."""

    def __init__(self, path: Path):
        self._path = path
        self._writer: LineWriter | None = None
        self._kept = False

    def write(self, failure: Failure) -> None:
        """Add one."""
        if self._writer is None:
            # Left by a rebuild that was killed: all of it comes again.
            self._path.unlink(missing_ok=True)
            self._writer = LineWriter(self._path)
        self._writer.write(failure)

    def keep(self) -> None:
        """Bring all of them onto the disk: the shards change now. Should that fail, they do no harm, for a row
        outweighs a failure."""
        if self._writer is not None:
            self._writer.flush()
        self._kept = True

    def __enter__(self) -> _Failures:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
            if not self._kept:
                self._path.unlink(missing_ok=True)


def _failures_path(dataset: Dataset, live: LiveShards, contract: Contract) -> Path:
    """Named by what is rebuilt, and how: the same rebuild writes the same file."""
    of = "\n".join([contract.sha256, *(shard.sha256 for shard in live.shards)])
    return dataset.failures / f"rebuild-{hashlib.sha256(of.encode()).hexdigest()[:12]}.jsonl"


# --- rows ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rebuild:
    dataset: Dataset
    builder: RowBuilder
    failures: _Failures
    counts: RebuildCounts
    advance: Callable[[int], None]

    def rows_of(self, shard: LiveShard) -> Iterator[Columns]:
        """New rows of one shard, some at a time; what gives none is recorded."""
        at = 0
        for batch in iter_shard(self.dataset, shard, _READ):
            answers: list[tuple[Entry, Reply]] = []
            before: list[pa.Scalar[Any]] = []
            rows = batch.drop_columns(["output_ids"]).to_pylist()
            for number, (old, ids) in enumerate(zip(rows, batch["output_ids"], strict=True), at):
                found = self._answer_of(old, where=f"{shard.path}: row {number}")
                self.counts.rows_before += 1
                if isinstance(found, Failure):
                    # Not final: under this contract nobody has been asked yet.
                    self.failures.write(replace(found, final=False))
                    self.counts.failures += 1
                    self.counts.by_reason[found.reason] += 1
                    continue
                answers.append(found)
                before.append(ids)
            yield self._made(answers, before)
            at += batch.num_rows
            self.advance(batch.num_rows)

    def _made(self, answers: Sequence[tuple[Entry, Reply]], before: Sequence[pa.Scalar[Any]]) -> Columns:
        made = self.builder.build_all(answers)
        self.counts.rows += len(answers)
        self.counts.statuses.update(made["rebuild_status"])
        for ids, now in zip(before, made["output_ids"], strict=True):
            self.counts.ids_changed += _differ(None if ids.values is None else ids.values.to_numpy(), now)
        return made

    def close(self, expected: int) -> None:
        """Last look before the shards change.

        Raises:
            StoreError: rows are missing, or none could be rebuilt.
        """
        found = self.counts.rows + self.counts.failures
        if found != expected:
            raise StoreError(f"dataset {self.dataset.name}: expected {expected} rows and failures, found {found}")
        if not self.counts.rows:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.counts.by_reason.most_common())
            raise StoreError(
                f"dataset {self.dataset.name}: none of {expected:,} rows can be rebuilt under "
                f"{self.builder.contract.name} ({reasons}); nothing was changed"
            )
        self.failures.keep()

    def _answer_of(self, old: Mapping[str, Any], *, where: str) -> tuple[Entry, Reply] | Failure:
        contract = self.builder.contract
        try:
            entry = entry_of(old, contract)
        except (msgspec.ValidationError, NotJsonError) as error:
            return _unreadable(old, storable_text(str(error)), where=where)
        if entry.form not in FORMS:
            return _unreadable(old, f"expected a form of {', '.join(FORMS)}, found {entry.form!r:.80}", where=where)
        if entry.mode not in contract.modes:
            detail = f"expected mode as one of {', '.join(sorted(contract.modes))}, found {entry.mode!r:.80}"
            return replace(_unreadable(old, detail, where=where), reason="mode_unknown", row_key=entry.row_key)
        reply = self.builder.read(entry, where=where)
        return reply if isinstance(reply, Failure) else (entry, reply)


def entry_of(row: Mapping[str, Any], contract: Contract) -> Entry:
    """What a row was made from, as an entry of a contract.

    Raises:
        ValidationError: the payload, the messages or the tools are not what this version writes.
        NotJsonError: they are no JSON.
    """
    payload = msgspec.convert(load_json(row["payload"]), _Payload)
    texts = {name: None if row[name] is None else load_json(row[name]) for name in ("messages", "tools")}
    prompt = msgspec.convert(texts, _Prompt)
    fields = {name: getattr(payload, name) for name in _Payload.__struct_fields__}
    return Entry(
        row_key=_row_key(row, payload, prompt, contract), sample_id=row["sample_id"], turn=row["turn"],
        sample_index=row["sample_index"], probe=row["probe"], source=row["source"], origin=Origin.REBUILD,
        contract=contract.name, mode=row["mode"], messages=prompt.messages, tools=prompt.tools,
        latency_s=row["latency_s"], streamed=row["streamed"], **fields,
    )  # fmt: skip


def _row_key(row: Mapping[str, Any], payload: _Payload, prompt: _Prompt, contract: Contract) -> str:
    """The identity of a row's request under a contract; the stored one where it does not follow from the row."""
    stored = str(row["row_key"])
    if contract.name == row["contract"] or prompt.messages is None:
        return stored
    asked = {
        "tools": prompt.tools, "mode": row["mode"], "sampling": payload.sampling, "max_tokens": payload.max_tokens,
        "sample_index": row["sample_index"], "turn": row["turn"],
    }  # fmt: skip
    if row["latency_s"] is not None:
        # Asked for here: the request was made from the user's prompt, whose tool ids each contract rewrites its way.
        try:
            messages, _ = rewrite_tool_ids(_with_own_ids(prompt.messages, payload.tool_ids or {}), contract)
        except (KeyError, TypeError):
            return stored
        return row_key_of(contract=contract.name, messages=messages, **asked)
    if row_key_of(contract=row["contract"], messages=prompt.messages, **asked) != stored:
        return stored
    return row_key_of(contract=contract.name, messages=prompt.messages, **asked)


def _with_own_ids(messages: list[dict[str, Json]], rewritten: Mapping[str, str]) -> list[dict[str, Json]]:
    """Messages with the tool ids that the user wrote."""
    own = {new: old for old, new in rewritten.items()}

    def restored(message: dict[str, Json]) -> dict[str, Json]:
        calls, answered = message.get("tool_calls"), message.get("tool_call_id")
        changed = dict(message)
        if isinstance(calls, list):
            changed["tool_calls"] = [{**call, "id": own.get(call["id"], call["id"])} for call in calls]
        if answered is not None:
            changed["tool_call_id"] = own.get(answered, answered)
        return changed

    return [restored(message) for message in messages] if own else messages


def _unreadable(row: Mapping[str, Any], detail: str, *, where: str) -> Failure:
    """The record of a row whose stored entry cannot be used; its payload stays on file."""
    return Failure(
        reason="payload_unreadable",
        detail=f"expected what this version stores with a row: {detail}",
        final=False,
        where=where,
        sample_id=row["sample_id"],
        turn=row["turn"],
        sample_index=row["sample_index"],
        probe=row["probe"],
        row_key=row["row_key"],
        body=row["payload"],
    )


def _differ(before: npt.NDArray[np.int32] | None, after: bytes | Sequence[int] | None) -> bool:
    if before is None or after is None:
        return (before is None) != (after is None)
    now = unpacked(after) if isinstance(after, bytes) else np.asarray(after, dtype=np.int64)
    return not np.array_equal(before, now)
