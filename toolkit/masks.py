"""Where loss falls in a row: one stretch of the completion, as the options declare it. Pure, no loop over rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.mix import MaskSettings

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskForm:
    """Mask options in terms of one contract's ids.

    Attributes:
        terminals: Ids that end a complete answer.
        begin_think: The id that begins thinking; None where the contract has none.
        end_think: The id that ends it; None likewise.
        thinking_modes: Modes whose complete answers have reasoning.
        terminal_supervised: Whether a terminal at the end bears loss.
        reasoning_supervised: Whether the ids up to the end of thinking do.
        window: Ids of a row that the trainer sees; None: all.
        adjacent_pair: Whether two supervised ids must stand side by side in the window.
    """

    terminals: frozenset[int]
    begin_think: int | None
    end_think: int | None
    thinking_modes: frozenset[str]
    terminal_supervised: bool = True
    reasoning_supervised: bool = True
    window: int | None = None
    adjacent_pair: bool = False


def mask_form(contract: Contract, mask: MaskSettings) -> MaskForm:
    """The form of a contract's masks.

    Raises:
        ConfigError: reasoning is to be masked, but no id of the contract ends it.
    """
    thinking = frozenset(name for name, mode in contract.modes.items() if mode.thinks)
    if mask.reasoning == "masked" and contract.think is None and thinking:
        raise ConfigError(
            f"merge.mask.reasoning: expected 'supervised', since no single id of contract {contract.name} ends "
            "the reasoning, found 'masked'"
        )
    return MaskForm(
        terminals=contract.terminal_ids,
        begin_think=contract.id_of(contract.think.begin) if contract.think else None,
        end_think=contract.id_of(contract.think.end) if contract.think else None,
        thinking_modes=thinking,
        terminal_supervised=mask.terminal == "supervised",
        reasoning_supervised=mask.reasoning == "supervised",
        window=mask.window,
        adjacent_pair=mask.adjacent_pair,
    )


def supervised_stretch(ids: Ids, begins: Ints, ends: Ints, thinks: Bools, form: MaskForm) -> tuple[Ints, Ints]:
    """Where in each completion loss begins and where it ends, by the options.

    Args:
        ids: Ids, one row after the other.
        begins: Where each row's completion begins in `ids`.
        ends: Where it ends, and with it the row.
        thinks: Whether each row was asked in a mode that thinks.
        form: The options.

    Returns:
        First supervised index and the one behind the last, from the completion's start. They are equal where nothing
        is supervised: reasoning that was cut has no answer behind it.
    """
    stop = ends - begins - (0 if form.terminal_supervised else ends_with(ids, begins, ends, form.terminals))
    start = np.zeros_like(begins)
    if not form.reasoning_supervised and form.end_think is not None:
        start[thinks] = (first_of(ids, begins, ends, form.end_think) - begins + 1)[thinks]
    return np.minimum(start, stop), stop


def ends_with(ids: Ids, begins: Ints, ends: Ints, wanted: Collection[int]) -> Bools:
    """Whether the last id of each stretch is one of these; stretches may be empty."""
    ended = np.zeros(len(begins), np.bool_)
    some = ends > begins
    ended[some] = np.isin(ids[ends[some] - 1], list(wanted))
    return ended


def first_of(ids: Ids, begins: Ints, ends: Ints, wanted: int) -> Ints:
    """Where the first such id of each stretch stands in `ids`; the stretch's end where there is none."""
    at = np.append(np.flatnonzero(ids == wanted), len(ids))
    return np.asarray(np.minimum(at[np.searchsorted(at, begins)], ends), np.int64)


def mask_of(seq_len: Ints, start: Ints, stop: Ints) -> Mask:
    """Masks one row after the other: 1 from `start` up to `stop`, else 0; both from the row's first id."""
    lengths = np.stack([start, stop - start, seq_len - stop], axis=1).ravel()
    return np.repeat(np.tile(np.array([0, 1, 0], np.int8), len(seq_len)), lengths)


def in_window(prompt_len: Ints, start: Ints, stop: Ints, form: MaskForm) -> Ints:
    """Supervised ids of each row that the trainer sees."""
    if form.window is None:
        return stop - start
    return np.asarray(np.maximum(np.minimum(prompt_len + stop, form.window) - (prompt_len + start), 0), np.int64)
