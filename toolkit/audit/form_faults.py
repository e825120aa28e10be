"""The fact `structure`: the first thing about a row that its contract's form, or the rules of the rebuild, forbid.

Ids are held against the form. Ids that were rebuilt are held against the rules as well: text for which no rule gives
ids, and ids that no rule gives, show a rebuild that has not kept to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.blocks import Block, Bools, Ints
from toolkit.audit.characters import found_in
from toolkit.audit.specials import Specials, ends_with_terminal, outside_vocabulary
from toolkit.audit.structure import follow, form_of, has_form, shifted_ids
from toolkit.contract import Contract
from toolkit.records import IdsSource
from toolkit.vocabulary import Vocabulary

FORM_READS = ("mode", "ids_source", "reasoning", "content", "tool_calls", "prompt_ids")
"""Columns of the shard that `form_faults` reads, beside the output ids."""

Codes = npt.NDArray[np.object_]


def form_faults(
    columns: Mapping[str, pa.Array],
    ids: Block,
    has_ids: Bools,
    specials: Specials,
    counts: Mapping[str, Ints],
    truncated: Bools,
    vocabulary: Vocabulary,
) -> pa.Array:
    """A code for each row; null where nothing is wrong, and where there are no ids.

    Args:
        columns: `FORM_READS` of the shard.
        ids: output_ids; null rows are empty.
        has_ids: Rows whose output_ids are not null.
        specials: The special ids of `ids`.
        counts: What `count_specials` counts of them.
        truncated: Rows whose answer was cut.
        vocabulary: The contract's.
    """
    contract = vocabulary.contract
    modes = np.asarray(columns["mode"].to_pylist(), dtype=object)
    codes = _of_single_ids(ids, has_ids, counts, truncated, contract)
    if has_form(contract):
        sound = has_ids & (codes == "")
        _set(codes, sound, _of_order(specials, ids, sound, modes, columns["ids_source"], truncated, contract))
        codes[_shifted(codes, specials, ids, modes, truncated, contract)] = "ids_shifted"
    for code, wrong in (
        ("terminal_missing", ~truncated & (counts["terminal"] == 0)),
        ("terminal_repeated", ~truncated & (counts["terminal"] > 1)),
        ("terminal_inside", ~truncated & ~ends_with_terminal(ids, contract)),
        *_against_rules(columns, counts, truncated, modes, contract),
        ("prompt_tail", _wrong_tail(columns["prompt_ids"], modes, vocabulary)),
    ):
        _set(codes, has_ids & wrong, code)
    found = pa.array(codes.tolist(), pa.string())
    return pc.if_else(pc.equal(found, ""), pa.scalar(None, pa.string()), found)


def _set(codes: Codes, rows: Bools, code: str | Codes) -> None:
    """Note a code for rows that have none yet."""
    free = rows & (codes == "")
    codes[free] = code if isinstance(code, str) else code[free]


# --- ids against the form ------------------------------------------------------------------------


def _of_single_ids(
    ids: Block, has_ids: Bools, counts: Mapping[str, Ints], truncated: Bools, contract: Contract
) -> Codes:
    """Faults that single ids show, whatever their order."""
    outside = np.zeros(len(has_ids), dtype=bool)
    outside[ids.rows_at(outside_vocabulary(ids, contract))] = True
    codes: Codes = np.full(len(has_ids), "", dtype=object)
    for code, wrong in (
        ("empty", ids.lengths == 0),
        ("id_outside_vocabulary", outside),
        ("control_id_inside", counts["control"] > 0),
        ("begin_think_inside", counts["begin_think"] > (1 if contract.think_open_in == "completion" else 0)),
        ("false_terminal", truncated & (counts["terminal"] > 0)),
    ):
        _set(codes, has_ids & wrong, code)
    return codes


def _of_order(
    specials: Specials, ids: Block, chosen: Bools, modes: Codes, sources: pa.Array, truncated: Bools, contract: Contract
) -> Codes:
    """Faults that the order of special ids shows, of the chosen rows."""
    codes: Codes = np.full(len(chosen), "", dtype=object)
    engine = _equals(sources, IdsSource.ENGINE)
    for mode in contract.modes:
        for own in (False, True):
            rows = chosen & (modes == mode) & (engine == own)
            if rows.any():
                form = form_of(contract, mode, thinking_may_end_in_tools=own)
                state, fault = follow(form, specials, ids, rows)
                faulty = fault >= 0
                codes[faulty] = np.array(form.codes, dtype=object)[fault[faulty]]
                codes[rows & ~faulty & ~truncated & (state != form.done)] = "terminal_missing"
    return codes


def _shifted(codes: Codes, specials: Specials, ids: Block, modes: Codes, truncated: Bools, contract: Contract) -> Bools:
    """Faulty rows that have the form as soon as their special ids are taken for those of a gap-closing tokenizer."""
    found = np.zeros(specials.rows, dtype=bool)
    true_of = {shifted: true for true, shifted in shifted_ids(contract).items()}
    moved = np.isin(specials.value, list(true_of)) & (codes != "")[specials.row]
    if not moved.any():
        return found
    kept = np.isin(specials.row, np.unique(specials.row[moved]))
    table = np.arange(contract.vocab_size)
    table[list(true_of)] = list(true_of.values())
    meant = replace(specials, at=specials.at[kept], value=table[specials.value[kept]], row=specials.row[kept])
    belongs = np.isin(meant.value, list(contract.output_ids()))
    suspects = np.zeros(specials.rows, dtype=bool)
    suspects[meant.row] = True
    suspects[meant.row[~belongs]] = False
    for mode in contract.modes:
        rows = suspects & (modes == mode)
        if rows.any():
            form = form_of(contract, mode, thinking_may_end_in_tools=True)
            state, fault = follow(form, meant, ids, rows)
            found |= rows & (fault < 0) & (truncated | (state == form.done))
    return found


# --- rebuilt ids against the rules ---------------------------------------------------------------


def _against_rules(
    columns: Mapping[str, pa.Array], counts: Mapping[str, Ints], truncated: Bools, modes: Codes, contract: Contract
) -> Sequence[tuple[str, Bools]]:
    """(code, rows) of rebuilt rows that the rules would not have made."""
    rebuilt = _equals(columns["ids_source"], IdsSource.REBUILT)
    thinks = np.isin(modes, [name for name, mode in contract.modes.items() if mode.thinks])
    reasoned = _is_there(columns["reasoning"])
    answered = _is_there(columns["content"]) | _is_there(columns["tool_calls"])
    return (
        ("marker_in_text", rebuilt & _spells_marker(columns, contract)),
        # Whether thinking ended is not known before an answer began.
        ("end_think_on_truncated", rebuilt & truncated & ~answered & (counts["end_think"] > 0)),
        ("answer_missing", rebuilt & ~answered & ~(truncated & reasoned)),
        ("reasoning_missing", rebuilt & thinks & ~reasoned),
    )


def _spells_marker(columns: Mapping[str, pa.Array], contract: Contract) -> Bools:
    """Rows whose text spells a marker of the contract, whole or single: the id or the letters, nobody knows."""
    found = np.zeros(len(columns["mode"]), dtype=bool)
    for name in ("reasoning", "content", "tool_calls"):
        if columns[name].null_count < len(found):
            text = pl.Series(name, columns[name].cast(pa.large_string()), dtype=pl.String)
            found |= found_in(text.str.contains_any(list(contract.markers)))
    return found


# --- prompts -------------------------------------------------------------------------------------


def _wrong_tail(prompts: pa.Array, modes: Codes, vocabulary: Vocabulary) -> Bools:
    """Rows whose prompt ends otherwise than their mode's: then the answer is one to another mode."""
    lengths = pc.fill_null(pc.list_value_length(prompts), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ids = prompts.flatten().to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    known: Bools = pc.is_valid(prompts).to_numpy(zero_copy_only=False).astype(bool)
    wrong = np.zeros(len(known), dtype=bool)
    tails = {name: _tail(mode.prompt_ends_with, vocabulary) for name, mode in vocabulary.contract.modes.items()}
    for name, tail in tails.items():
        rows = np.flatnonzero(known & (modes == name))
        short = lengths[rows] < len(tail)
        wrong[rows[short]] = True
        at = ends[rows[~short], None] - len(tail) + np.arange(len(tail))
        wrong[rows[~short]] = (ids[at] != np.array(tail, dtype=np.int64)).any(axis=1)
    return wrong


def _tail(pieces: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    return [token_id for piece in pieces for token_id in vocabulary.encode_rendered(piece)]


# --- small things --------------------------------------------------------------------------------


def _equals(column: pa.Array, value: str) -> Bools:
    equal: Bools = pc.fill_null(pc.equal(column, str(value)), False).to_numpy(zero_copy_only=False).astype(bool)
    return equal


def _is_there(column: pa.Array) -> Bools:
    there: Bools = pc.greater(pc.fill_null(pc.binary_length(column), 0), 0).to_numpy(zero_copy_only=False).astype(bool)
    return there
