"""What is to be asked: prompts × samples, each with its identity, less what is answered.

Nothing here grows with the prompts but two bytes an ask: prompts are read when it is their turn to be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from toolkit.config import DatasetSettings, sampling_faults
from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.records import Failure, Json, Prompt, row_key_of
from toolkit.rows import rewrite_tool_ids
from toolkit.store.answered import Answered
from toolkit.store.identities import IdentityIndex, hash_ids, hash_of, identities_of
from toolkit.store.prompts import PromptIndex

Identity = tuple[str, int, int]
"""(sample_id, turn, sample_index)"""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One ask: a prompt as it will be sent, and what of the request belongs to its identity.

    Attributes:
        messages: With tool ids in the contract's form.
        tool_ids: Tool ids that were rewritten, old → new.
        turn: Which generated turn of the conversation, from 0.
        probe: Whether it is asked a second time, of another source, for comparison.
    """

    row_key: str
    sample_id: str
    sample_index: int
    messages: list[dict[str, Json]]
    tools: list[dict[str, Json]] | None
    tool_ids: dict[str, str] | None
    mode: str
    model: str
    max_tokens: int
    sampling: Mapping[str, Json]
    turn: int = 0
    probe: bool = False

    @property
    def identity(self) -> Identity:
        """Unique within a dataset, probes apart."""
        return (self.sample_id, self.turn, self.sample_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How prompts become asks: settings and contract, proved to go together."""

    settings: DatasetSettings
    contract: Contract
    mode: str
    model: str

    def asks_of(self, prompt: Prompt) -> Iterator[Planned]:
        """The asks of one prompt, a sample each; first turns only."""
        messages, tool_ids = self._messages_of(prompt)
        for sample_index, row_key in enumerate(self._keys_of(prompt, messages)):
            yield Planned(
                row_key=row_key, sample_id=prompt.id, sample_index=sample_index, messages=messages, tools=prompt.tools,
                tool_ids=tool_ids or None, mode=prompt.mode or self.mode, model=self.model,
                max_tokens=prompt.max_tokens or self.settings.max_tokens, sampling=self.settings.sampling,
            )  # fmt: skip

    def row_keys_of(self, prompt: Prompt) -> Iterator[str]:
        """The row_key of each of its asks."""
        return self._keys_of(prompt, self._messages_of(prompt)[0])

    def _messages_of(self, prompt: Prompt) -> tuple[list[dict[str, Json]], dict[str, str]]:
        if any("tool_calls" in message or "tool_call_id" in message for message in prompt.messages):
            return rewrite_tool_ids(prompt.messages, self.contract)
        return prompt.messages, {}

    def _keys_of(self, prompt: Prompt, messages: list[dict[str, Json]]) -> Iterator[str]:
        for sample_index in range(self.settings.samples):
            yield row_key_of(
                contract=self.contract.name, messages=messages, tools=prompt.tools, mode=prompt.mode or self.mode,
                sampling=self.settings.sampling, max_tokens=prompt.max_tokens or self.settings.max_tokens,
                sample_index=sample_index, turn=0,
            )  # fmt: skip


def asking(settings: DatasetSettings, contract: Contract) -> Asking:
    """Settings and contract as a way to ask.

    Raises:
        ConfigError: the model or the mode of the settings is not one of the contract's, or a sampling field is wrong.
    """
    faults = [f"sampling.{fault}" for fault in sampling_faults(settings.sampling)]
    if faults:
        raise ConfigError("\n".join(faults))
    model = settings.model or contract.default_model
    if not contract.accepts_model(model):
        raise ConfigError(f"model: expected one of {', '.join(contract.models)} ({contract.name}), found {model!r}")
    mode = settings.mode or contract.default_mode
    contract.mode(mode)
    return Asking(settings=settings, contract=contract, mode=mode, model=model)


# --- what is left to ask ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What is left of a dataset to ask: iterating gives the open asks in the order of the prompts, read one by one.

    asked = answered_before + failed_before + open.

    Attributes:
        prompts: The checked file.
        way: How its prompts become asks.
        asked: Prompts × samples.
        answered_before: Asks that have a row: of the same request, or an imported one.
        failed_before: Asks that an earlier run found to be without hope.
        changed: Rows that answer another request than what prompts and settings say now. Their identities are asked
            anew, so these rows have to be discarded before the new answers are sealed (`changed_rows`).
        first_changed: The sample_id of the first of them.
    """

    prompts: PromptIndex
    way: Asking
    asked: int
    answered_before: int
    failed_before: int
    changed: int
    first_changed: str | None
    _open: npt.NDArray[np.bool_]
    _changed_rows: npt.NDArray[np.int64]
    _answered: Answered

    @property
    def open(self) -> int:
        """Asks that iterating gives."""
        return self.asked - self.answered_before - self.failed_before

    def __iter__(self) -> Iterator[Planned]:
        """The open asks.

        Raises:
            PromptsError: the file of prompts is not the one that was checked any more.
        """
        wanted: npt.NDArray[np.bool_] = np.logical_or.reduce(self._open, axis=1)
        for position, prompt in self.prompts.among(wanted):
            for ask in self.way.asks_of(prompt):
                if self._open[position, ask.sample_index]:
                    yield ask

    def changed_rows(self) -> dict[str, npt.NDArray[np.bool_]]:
        """The rows of `changed`: a mask for each shard that has any, by the shard's sha256."""
        return self._answered.masks(self._changed_rows)


def plan_of(
    prompts: PromptIndex,
    settings: DatasetSettings,
    contract: Contract,
    answered: Answered,
    failures: Iterable[Failure] = (),
) -> Plan:
    """What is left to ask, given what is answered and what failed.

    Whether a row is there follows from hashes alone. Only prompts with a row that was asked for, or with a final
    failure, are read here, to see whether they still ask the same.

    Raises:
        ConfigError: as `asking`.
        PromptsError: the file of prompts is not the one that was checked any more.
    """
    way = asking(settings, contract)
    hopeless = _Hopeless(failures)
    rows = np.empty((len(prompts), settings.samples), np.int64)
    doubtful = np.zeros(len(prompts), np.bool_)
    for sample_index in range(settings.samples):
        identities = identities_of(prompts.ids, 0, sample_index, False)
        rows[:, sample_index] = answered.positions(identities)
        there = rows[:, sample_index] >= 0
        doubtful[there] |= answered.asked[rows[there, sample_index]]
        doubtful |= hopeless.index.positions(identities) >= 0
    open_ = rows < 0
    changed: list[int] = []
    failed = 0
    first_changed: str | None = None
    for position, prompt in prompts.among(doubtful):
        for sample_index, row_key in enumerate(way.row_keys_of(prompt)):
            at = (position, sample_index)
            row = int(rows[at])
            if row >= 0 and not answered.answers(row, row_key):
                open_[at] = True
                changed.append(row)
                first_changed = first_changed or prompt.id
            if open_[at] and hopeless.forbids(prompt.id, 0, sample_index, row_key):
                open_[at] = False
                failed += 1
    asked = len(prompts) * settings.samples
    return Plan(
        prompts=prompts, way=way, asked=asked, answered_before=asked - int(open_.sum()) - failed, failed_before=failed,
        changed=len(changed), first_changed=first_changed, _open=open_, _changed_rows=np.array(changed, np.int64),
        _answered=answered,
    )  # fmt: skip


class _Hopeless:
    """Final failures: the identities that have one, and of which requests."""

    def __init__(self, failures: Iterable[Failure]):
        ids: list[str] = []
        places: list[tuple[int, int]] = []
        self._requests: set[int] = set()
        for failure in failures:
            if failure.final and not failure.probe and failure.sample_id is not None and failure.row_key is not None:
                ids.append(failure.sample_id)
                places.append((failure.turn, failure.sample_index))
                self._requests.add(
                    _request_hash(failure.sample_id, failure.turn, failure.sample_index, failure.row_key)
                )
        turns, indexes = np.array(places, np.int64).reshape(-1, 2).T
        self.index = IdentityIndex(identities_of(hash_ids(ids), turns, indexes, False))

    def forbids(self, sample_id: str, turn: int, sample_index: int, row_key: str) -> bool:
        """Whether this very request failed for good."""
        return bool(self._requests) and _request_hash(sample_id, turn, sample_index, row_key) in self._requests


def _request_hash(sample_id: str, turn: int, sample_index: int, row_key: str) -> int:
    return hash_of(f"{row_key}/{turn}/{sample_index}/{sample_id}")


def final_failures(failures: Iterable[Failure]) -> set[tuple[Identity, str]]:
    """(identity, row_key) of requests that must not be repeated."""
    return {
        ((failure.sample_id, failure.turn, failure.sample_index), failure.row_key)
        for failure in failures
        if failure.final and not failure.probe and failure.sample_id is not None and failure.row_key is not None
    }
