"""The contract's form as an automaton over special ids.

A mode's output is a chain of parts with ids between them: each part is a state, each id a step to the next. All
rows take their n-th step at once, so the loop is over the longest chain of special ids, never over rows or ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from toolkit.audit.blocks import Block, Bools, Ints
from toolkit.audit.specials import Specials, tool_markers
from toolkit.contract import Contract

MAX_STEPS = 8_192
"""Special ids of one row that are followed; a row with more is no answer."""

_FAIL = -1


@dataclass(frozen=True, slots=True)
class Form:
    """One mode's automaton.

    Attributes:
        symbols: Special ids that the form knows, sorted; any other is a control id.
        step: Shape (states, symbols): the next state, or −1.
        fault: Shape (states, symbols): index into `codes` where there is no step.
        text_fault: Shape (states,): index into `codes` where text may not stand in a state; −1 where it may.
        done: The state after the terminal.
        codes: Fault codes.
    """

    symbols: Ints
    step: npt.NDArray[np.int32]
    fault: npt.NDArray[np.int32]
    text_fault: npt.NDArray[np.int32]
    done: int
    codes: tuple[str, ...]


class _Builder:
    """States and steps while a form is built."""

    def __init__(self) -> None:
        self.steps: dict[tuple[int, int], int] = {}
        self.text: list[bool] = [False]
        self.tools: list[bool] = [False]

    def state(self, *, text: bool = False, tools: bool = False) -> int:
        self.text.append(text)
        self.tools.append(tools)
        return len(self.text) - 1


def has_form(contract: Contract) -> bool:
    """Whether the contract's output is one chain: thoughts and calls as parts, no id standing twice."""
    raw = contract.raw_tools
    return contract.think is not None or contract.tools is not None or (raw is not None and bool(raw.ends))


def form_of(contract: Contract, mode: str, *, thinking_may_end_in_tools: bool) -> Form:
    """The automaton of a mode.

    Args:
        contract: Whose form; `has_form` holds.
        mode: A mode of the contract.
        thinking_may_end_in_tools: An engine's own ids may open a tool section without ending their thoughts.
    """
    built = _Builder()
    end_think = contract.id_of(contract.think.end) if contract.think is not None else None
    begin_think = contract.id_of(contract.think.begin) if contract.think is not None else None
    here = [0]
    before_begin: list[int] = []
    before_end: list[int] = []
    done = -1
    for piece in contract.mode(mode).output:
        if piece == "{terminal}":
            done = built.state()
            built.steps |= {(state, terminal): done for state in here for terminal in contract.terminal_ids}
        elif piece == "{tools}":
            here = [*here, *_add_tools(built, here + (before_end if thinking_may_end_in_tools else []), contract)]
        elif piece in contract.special:
            token_id = contract.id_of(piece)
            if token_id == end_think:
                before_end = list(here)
            if token_id == begin_think:
                before_begin = list(range(len(built.text)))
            after = built.state()
            built.steps |= {(state, token_id): after for state in here}
            here = [after]
        else:
            for state in here:
                built.text[state] = True
    return _table(built, contract, mode, done, before_begin, before_end)


def _add_tools(built: _Builder, opens_from: list[int], contract: Contract) -> list[int]:
    """States of a tool section; those after which it may be over."""
    if contract.raw_tools is not None:
        return _add_raw_tools(built, opens_from, contract)
    markers = tool_markers(contract)
    section, after_call = built.state(tools=True), built.state(tools=True)
    call_id, arguments = built.state(text=True, tools=True), built.state(text=True, tools=True)
    after = built.state()
    built.steps |= {(state, markers["section_begin"]): section for state in opens_from}
    built.steps |= {(state, markers["call_begin"]): call_id for state in (section, after_call)}
    built.steps[(call_id, markers["call_between"])] = arguments
    built.steps[(arguments, markers["call_end"])] = after_call
    built.steps[(after_call, markers["section_end"])] = after
    return [after]


def _add_raw_tools(built: _Builder, opens_from: list[int], contract: Contract) -> list[int]:
    """A state for each id of calls that are not rebuilt: text is free between them, their order is not."""
    form = contract.raw_tools
    if form is None:
        return []
    states = {spelling: built.state(text=True, tools=True) for spelling in form.spellings}
    for spelling in form.begins:
        built.steps |= {(state, contract.id_of(spelling)): states[spelling] for state in opens_from}
    for spelling, following in form.follows.items():
        built.steps |= {(states[spelling], contract.id_of(after)): states[after] for after in following}
    return [states[spelling] for spelling in form.ends]


def _table(
    built: _Builder, contract: Contract, mode: str, done: int, before_begin: list[int], before_end: list[int]
) -> Form:
    think = contract.think
    begin_think = contract.id_of(think.begin) if think is not None else None
    end_think = contract.id_of(think.end) if think is not None else None
    markers = contract.tool_ids
    known = {symbol for _, symbol in built.steps} | contract.terminal_ids | markers
    known |= {token_id for token_id in (begin_think, end_think) if token_id is not None}
    symbols = np.array(sorted(known), dtype=np.int64)
    thinks = contract.mode(mode).thinks

    def fault_of(state: int, symbol: int) -> str:
        if symbol in (begin_think, end_think):
            if not thinks:
                return "think_in_instant_mode"
            if state in before_begin:
                return "begin_think_missing"
            return "begin_think_inside" if symbol == begin_think else "end_think_repeated"
        if state == done:
            return "terminal_repeated" if symbol in contract.terminal_ids else "terminal_inside"
        if state in before_begin:
            return "begin_think_missing"
        if state in before_end and not built.tools[state]:
            return "end_think_missing"
        return "tools_unbalanced"

    faults = [[fault_of(state, int(symbol)) for symbol in symbols] for state in range(len(built.text))]
    text_faults = [
        "" if text else _text_fault(state, tools=tools, done=done, before_begin=before_begin)
        for state, (text, tools) in enumerate(zip(built.text, built.tools, strict=True))
    ]
    codes = tuple(sorted({code for row in faults for code in row} | {code for code in text_faults if code}))
    step = np.full((len(built.text), len(symbols)), _FAIL, dtype=np.int32)
    for (state, symbol), after in built.steps.items():
        step[state, np.searchsorted(symbols, symbol)] = after
    return Form(
        symbols=symbols,
        step=step,
        fault=np.array([[codes.index(code) for code in row] for row in faults], dtype=np.int32),
        text_fault=np.array([codes.index(code) if code else -1 for code in text_faults], dtype=np.int32),
        done=done,
        codes=codes,
    )


def _text_fault(state: int, *, tools: bool, done: int, before_begin: list[int]) -> str:
    """What it means that text stands where the form has none."""
    if tools:
        return "text_in_tools"
    if state == done:
        return "terminal_inside"
    return "begin_think_missing" if state in before_begin else "text_misplaced"


def follow(form: Form, specials: Specials, ids: Block, chosen: Bools) -> tuple[Ints, Ints]:
    """Let the chosen rows take their steps.

    Args:
        form: The automaton of the rows' mode.
        specials: Special ids of all rows of `ids`; control ids among them have been dealt with and are passed over.
        ids: All rows.
        chosen: Rows to follow.

    Returns:
        Shape (rows,) each: the last state (−1 for rows with a fault, and those not chosen), and the index into
        `form.codes` of the first fault in the order of the ids (−1: none).
    """
    state = np.where(chosen, 0, _FAIL).astype(np.int64)
    fault = np.full(specials.rows, -1, dtype=np.int64)
    index = np.searchsorted(form.symbols, specials.value)
    index = np.minimum(index, max(len(form.symbols) - 1, 0))
    kept = chosen[specials.row] & (form.symbols[index] == specials.value)
    at, row, symbol = specials.at[kept], specials.row[kept], index[kept]
    starts, ends = ids.starts, ids.starts + ids.lengths
    rank = _rank(row)
    has_text = at > np.where(rank == 0, starts[row], np.append(0, at[:-1] + 1)[: len(at)])
    order = np.argsort(rank, kind="stable")
    steps = min(int(rank.max()) + 1, MAX_STEPS) if len(row) else 0
    for first, last in pairwise(np.searchsorted(rank[order], np.arange(steps + 1)).tolist()):
        now = order[first:last]
        now = now[state[row[now]] >= 0]
        _step(form, state, fault, row[now], symbol[now], has_text[now])
    tail = np.array(starts)
    if len(row):
        is_last = np.append(row[1:] != row[:-1], True)
        tail[row[is_last]] = at[is_last] + 1
    open_rows = np.flatnonzero((state >= 0) & (ends > tail))
    wrong = form.text_fault[state[open_rows]]
    fault[open_rows[wrong >= 0]] = wrong[wrong >= 0]
    state[open_rows[wrong >= 0]] = _FAIL
    return state, fault


def _step(form: Form, state: Ints, fault: Ints, rows: Ints, symbols: Ints, has_text: Bools) -> None:
    """One step of many rows, in place: the text before the id first, then the id."""
    here = state[rows]
    text_fault = np.where(has_text, form.text_fault[here], -1)
    after = form.step[here, symbols]
    found = np.where(text_fault >= 0, text_fault, np.where(after < 0, form.fault[here, symbols], -1))
    fault[rows] = found
    state[rows] = np.where(found >= 0, _FAIL, after)


def _rank(row: Ints) -> Ints:
    """The place of each element among those of its row; `row` is sorted."""
    if not len(row):
        return np.zeros(0, dtype=np.int64)
    begins = np.append(True, row[1:] != row[:-1])
    first = np.flatnonzero(begins)
    return np.arange(len(row)) - np.repeat(first, np.diff(np.append(first, len(row))))


def shifted_ids(contract: Contract) -> dict[int, int]:
    """Special ids as a tokenizer that closes the gaps between them would number them, true → shifted.

    transformers 5.4.0 to 5.5.3 did this to Kimi-K2.5: `</think>` 163607 became 163604.
    """
    ids = sorted(set(contract.special.values()) - contract.vocabulary.holes)
    base = contract.vocabulary.base_tokens
    return {true: base + place for place, true in enumerate(ids) if true != base + place}
