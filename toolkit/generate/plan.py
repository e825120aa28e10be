"""What is to be asked: prompts × samples, each with its identity, less what is answered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.config import DatasetSettings, sampling_faults
from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.records import Failure, Json, Origin, Prompt, row_key_of
from toolkit.rows import rewrite_tool_ids

Identity = tuple[str, int, int]
"""(sample_id, turn, sample_index)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One ask: a prompt as it will be sent, and what of the request belongs to its identity.

    Attributes:
        messages: With tool ids in the contract's form.
        tool_ids: Tool ids that were rewritten, old → new.
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

    @property
    def identity(self) -> Identity:
        """Unique within a dataset."""
        return (self.sample_id, 0, self.sample_index)


@dataclass(frozen=True, slots=True)
class RowThere:
    """What a row that is there says about its request."""

    row_key: str
    origin: str


def plan_asks(prompts: Sequence[Prompt], settings: DatasetSettings, contract: Contract) -> list[Planned]:
    """All asks of a dataset, in the order of its prompts.

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
    return [ask for prompt in prompts for ask in _asks_of(prompt, settings, contract, mode=mode, model=model)]


def _asks_of(
    prompt: Prompt, settings: DatasetSettings, contract: Contract, *, mode: str, model: str
) -> Iterator[Planned]:
    messages, tool_ids = rewrite_tool_ids(prompt.messages, contract)
    asked_mode, max_tokens = prompt.mode or mode, prompt.max_tokens or settings.max_tokens
    for sample_index in range(settings.samples):
        row_key = row_key_of(
            contract=contract.name, messages=messages, tools=prompt.tools, mode=asked_mode,
            sampling=settings.sampling, max_tokens=max_tokens, sample_index=sample_index, turn=0,
        )  # fmt: skip
        yield Planned(
            row_key=row_key, sample_id=prompt.id, sample_index=sample_index, messages=messages, tools=prompt.tools,
            tool_ids=tool_ids or None, mode=asked_mode, model=model, max_tokens=max_tokens, sampling=settings.sampling,
        )  # fmt: skip


def split_answered(
    asks: Iterable[Planned], there: Mapping[Identity, RowThere], dataset: str
) -> tuple[list[Planned], int]:
    """(asks without a row, number of those with one). An imported row answers its prompt whatever was asked.

    Raises:
        ConfigError: rows were generated for some of these prompts with other settings than now.
    """
    open_asks, changed, answered = [], [], 0
    for ask in asks:
        row = there.get(ask.identity)
        if row is None:
            open_asks.append(ask)
            continue
        answered += 1
        if row.origin == Origin.GENERATE and row.row_key != ask.row_key:
            changed.append(ask.sample_id)
    if changed:
        raise ConfigError(
            f"dataset {dataset}: {len(changed)} answered prompts were asked with other messages, tools, mode, sampling "
            f"or max_tokens than prompts.jsonl and tokenproof.toml say now, the first of them {changed[0]!r}; "
            "put those back as they were, or generate into a new dataset"
        )
    return open_asks, answered


def final_failures(failures: Iterable[Failure]) -> set[tuple[Identity, str]]:
    """(identity, row_key) of requests that must not be repeated."""
    return {
        ((failure.sample_id, failure.turn, failure.sample_index), failure.row_key)
        for failure in failures
        if failure.final and failure.sample_id is not None and failure.row_key is not None
    }
