"""What a train set's rows are, measured: masks against the options, windows, terminals, prompts. Pure, and vectorised.

Nothing here asks how the rows were made: ids and masks are read as they lie there, and held against what the options
make of these ids. The suite of table `train` judges the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.columns import TRAIN_FACTS_SCHEMA
from toolkit.contract import Contract
from toolkit.masks import Bools, Ids, Ints, MaskForm, ends_with, supervised_stretch
from toolkit.records import IdsSource

_PROMPT_TAIL = 3
"""A block of thinking that ends so near the prompt's end is the mode's own, not an earlier answer's."""

Mask = npt.NDArray[np.int32] | npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class _Runs:
    """Stretches of ones, whatever rows they lie in: a mask has few, so counts come from these and not from every value.

    Attributes:
        starts: Where each begins, ascending; `ends` where it ends.
        before: Shape (stretches + 1,): ones in the stretches before each.
    """

    starts: Ints
    ends: Ints
    before: Ints

    def ones_before(self, places: Ints) -> Ints:
        """Ones before each place."""
        if not len(self.starts):
            return np.zeros(len(places), np.int64)
        behind = np.searchsorted(self.starts, places)
        last = np.maximum(behind - 1, 0)
        within = np.clip(places, self.starts[last], self.ends[last]) - self.starts[last]
        return self.before[last] + np.where(behind > 0, within, 0)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Ids and masks, one row after the other; masks are brought to the rows' length.

    Attributes:
        starts: Where each row begins, in ids; `borders` where its completion does; `ends` where it ends.
        mask: Of each id; 0 where the mask is too short, −1 where it is null.
        n_mask: Values of each mask as it lies there.
        runs: Stretches of ones.
        binary: Whether the mask holds 0 and 1 alone.
    """

    ids: Ids
    starts: Ints
    borders: Ints
    ends: Ints
    mask: Mask
    n_mask: Ints
    runs: _Runs
    binary: bool

    def ones(self, begins: Ints, ends: Ints) -> Ints:
        """Ones of each stretch."""
        return self.runs.ones_before(np.maximum(ends, begins)) - self.runs.ones_before(begins)


def measure_train(train: pa.Table, contract: Contract, form: MaskForm, split: str) -> pa.Table:
    """The facts of rows of a train set.

    Args:
        train: Rows of `TRAIN_SCHEMA`.
        contract: What they were made under: vocabulary size and finish reasons.
        form: The mask that was declared.
        split: The side of the split that they lie on: train or validation.

    Returns:
        A table of `TRAIN_FACTS_SCHEMA`, but for `prompt_on_both_sides`, which is false: one part cannot know.
    """
    rows = _rows_of(train)
    facts = _lengths_and_counts(train, rows, form) | _terminals(train, rows, contract, form)
    facts["n_history_reasoning"] = _int32(_history_reasoning(rows, form))
    facts["n_outside_vocabulary"] = _int32(_outside(rows, contract.vocab_size))
    facts["split"] = pa.repeat(pa.scalar(split), train.num_rows)
    facts["prompt_on_both_sides"] = pa.repeat(pa.scalar(False), train.num_rows)
    columns = [facts[name] if name in facts else train[name] for name in TRAIN_FACTS_SCHEMA.names]
    return pa.table(columns, names=TRAIN_FACTS_SCHEMA.names).cast(TRAIN_FACTS_SCHEMA)


def _rows_of(train: pa.Table) -> _Rows:
    ids, n_ids = _flat(train["input_ids"])
    mask, n_mask = _flat(train["loss_mask"])
    if not np.array_equal(n_ids, n_mask):
        mask = _brought_to(mask, n_mask, n_ids)
    ends = np.cumsum(n_ids)
    starts = ends - n_ids
    prompt_len = np.asarray(pc.fill_null(train["prompt_len"], 0), np.int64)
    runs, binary = _runs_of(mask)
    return _Rows(
        ids=ids.astype(np.int32, copy=False),
        starts=starts,
        borders=starts + np.clip(prompt_len, 0, n_ids),
        ends=ends,
        mask=mask,
        n_mask=n_mask,
        runs=runs,
        binary=binary,
    )


def _runs_of(mask: Mask) -> tuple[_Runs, bool]:
    """The stretches of ones of a mask, and whether all else is 0."""
    borders = np.flatnonzero(mask[1:] != mask[:-1]) + 1
    starts = np.append(np.zeros(min(len(mask), 1), np.int64), borders)
    ends = np.append(borders, np.full(min(len(mask), 1), len(mask), np.int64))
    values = mask[starts]
    ones = values == 1
    lengths = (ends - starts)[ones]
    runs = _Runs(starts[ones], ends[ones], np.append(np.zeros(1, np.int64), np.cumsum(lengths)))
    return runs, bool(np.isin(values, (0, 1)).all())


def _flat(lists: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], Ints]:
    """Values of all lists, −1 for a null among them, and the length of each list, 0 for a null list."""
    values = pc.list_flatten(lists)
    filled = pc.fill_null(values, -1) if values.null_count else values
    return filled.to_numpy(), np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)


def _brought_to(values: npt.NDArray[np.int32], lengths: Ints, wanted: Ints) -> npt.NDArray[np.int32]:
    """Lists cut or filled up with 0 to other lengths."""
    row = np.repeat(np.arange(len(wanted)), wanted)
    within = np.arange(len(row)) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    there = within < lengths[row]
    brought = np.zeros(len(row), values.dtype)
    brought[there] = values[((np.cumsum(lengths) - lengths)[row] + within)[there]]
    return brought


def _lengths_and_counts(train: pa.Table, rows: _Rows, form: MaskForm) -> dict[str, pa.Array]:
    n_ids = rows.ends - rows.starts
    ones = rows.ones(rows.starts, rows.ends)
    stored = {name: np.asarray(pc.fill_null(train[name], -1), np.int64) for name in ("seq_len", "n_supervised")}
    window_ends = rows.ends if form.window is None else np.minimum(rows.starts + form.window, rows.ends)
    seen = rows.ones(rows.starts, window_ends)
    run_starts, run_ends = _runs(rows)
    runs_seen = np.searchsorted(run_starts, window_ends) - np.searchsorted(run_starts, rows.starts)
    started, expected, ended, expected_end = _edges(train, rows, form, run_starts, run_ends)
    some = (rows.ones(rows.borders, rows.ends) > 0) & (rows.n_mask == n_ids)
    whole = some & ~ends_with(rows.ids, rows.borders, rows.ends, form.terminals)
    return {
        "n_ids": _int32(n_ids),
        "n_prompt_ids": _int32(rows.borders - rows.starts),
        "mask_length_difference": _int32(rows.n_mask - n_ids),
        "seq_len_difference": _int32(stored["seq_len"] - n_ids),
        "n_mask_other": _int32(_others(rows)),
        "n_prompt_supervised": _int32(rows.ones(rows.starts, rows.borders)),
        "n_supervised": _int32(ones),
        "n_supervised_difference": _int32(stored["n_supervised"] - ones),
        "n_gaps": _int32(
            np.searchsorted(run_starts, rows.ends) - np.searchsorted(run_starts, rows.starts) - 1, ones > 0
        ),
        "start_difference": _int32(started - expected, some),
        "end_difference": _int32(ended - expected_end, whole),
        "n_supervised_in_window": _int32(seen),
        "nothing_in_window": pa.array((seen == 0) & (ones > 0)),
        "cut_by_window": pa.array((n_ids > (window_ends - rows.starts)) & (seen > 0)),
        "adjacent_as_declared": pa.array((seen > runs_seen) | (not form.adjacent_pair)),
    }


def _others(rows: _Rows) -> Ints:
    """Values of each mask that are neither 0 nor 1."""
    if rows.binary:
        return np.zeros(len(rows.starts), np.int64)
    return _count_per_row(rows, (rows.mask != 0) & (rows.mask != 1))


def _runs(rows: _Rows) -> tuple[Ints, Ints]:
    """Where stretches of ones begin and end, ascending; none crosses from one row into the next."""
    starts, ends = rows.runs.starts, rows.runs.ends
    # Ones on both sides of a border between rows are an end and a start.
    inner = rows.ends[(rows.ends > rows.starts) & (rows.ends < len(rows.mask))]
    at = np.searchsorted(starts, inner) - 1
    both = inner[(at >= 0) & (np.append(ends, 0)[at] > inner)] if len(starts) else inner[:0]
    if len(both):
        starts, ends = np.sort(np.append(starts, both)), np.sort(np.append(ends, both))
    return starts, ends


def _edges(
    train: pa.Table, rows: _Rows, form: MaskForm, run_starts: Ints, run_ends: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """From the completion's start: its first one, where that should be, behind its last one, where that should be."""
    first = np.append(run_starts, len(rows.ids))[np.searchsorted(run_starts, rows.borders)]
    inside = rows.ones(rows.borders, np.minimum(rows.borders + 1, rows.ends)) > 0
    last = np.append(run_ends, 0)[np.searchsorted(run_ends, rows.ends, side="right") - 1]
    modes = pa.array(sorted(form.thinking_modes), pa.string())
    thinks = np.asarray(pc.fill_null(pc.is_in(train["mode"], value_set=modes), False), np.bool_)
    start, stop = supervised_stretch(rows.ids, rows.borders, rows.ends, thinks, form)
    return np.where(inside, 0, first - rows.borders), start, last - rows.borders, stop


def _terminals(train: pa.Table, rows: _Rows, contract: Contract, form: MaskForm) -> dict[str, pa.Array]:
    last = ends_with(rows.ids, rows.borders, rows.ends, form.terminals)
    reasons = pc.dictionary_encode(train["finish_reason"]).combine_chunks()
    cut = [contract.finish.kind_of(reason) == "length" for reason in reasons.dictionary.to_pylist()]
    truncated = np.array([*cut, False])[np.asarray(pc.fill_null(reasons.indices, -1), np.int64)]
    engine = np.asarray(pc.fill_null(pc.equal(train["ids_source"], str(IdsSource.ENGINE)), False), np.bool_)
    supervised = rows.ones(np.maximum(rows.ends - 1, rows.starts), rows.ends) > 0
    comparable = last & (rows.n_mask == rows.ends - rows.starts) & (rows.ones(rows.starts, rows.ends) > 0)
    return {
        "truncated": pa.array(truncated),
        "terminal_last": pa.array(last),
        "terminal_as_declared": pa.array(supervised == form.terminal_supervised, mask=~comparable),
        "false_terminal": pa.array(truncated & last & ~engine),
    }


def _history_reasoning(rows: _Rows, form: MaskForm) -> Ints:
    """Blocks of thinking in the prompt that hold something and are not the mode's own tail."""
    counts = np.zeros(len(rows.starts), np.int64)
    if form.begin_think is None or form.end_think is None:
        return counts
    begins, ends = (np.flatnonzero(rows.ids == wanted) for wanted in (form.begin_think, form.end_think))
    row = np.searchsorted(rows.ends, begins, side="right")
    end = np.append(ends, len(rows.ids))[np.searchsorted(ends, begins)]
    earlier = (end - begins > 1) & (end < rows.borders[row] - _PROMPT_TAIL)
    return counts + np.bincount(row[earlier], minlength=len(counts))


def _outside(rows: _Rows, vocab_size: int) -> Ints:
    if not len(rows.ids) or (rows.ids.min() >= 0 and rows.ids.max() < vocab_size):
        return np.zeros(len(rows.starts), np.int64)
    return _count_per_row(rows, (rows.ids < 0) | (rows.ids >= vocab_size))


def _count_per_row(rows: _Rows, chosen: Bools) -> Ints:
    at = np.flatnonzero(chosen)
    return np.bincount(np.searchsorted(rows.ends, at, side="right"), minlength=len(rows.ends)).astype(np.int64)


def _int32(values: Ints, there: Bools | None = None) -> pa.Array:
    return pa.array(values.astype(np.int32), mask=None if there is None else ~there)
