"""The automaton over special ids, held against one that walks each row by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.audit.blocks import Block
from toolkit.audit.specials import find_specials
from toolkit.audit.structure import Form, follow, form_of, shifted_ids
from toolkit.contract import Contract, read_contract

KIMI = read_contract("kimi-k2.5")
ALPHABET = [5, 6, 163586, 163595, 163596, 163597, 163598, 163599, 163606, 163607]


def walk(form: Form, ids: list[int]) -> tuple[int, str | None]:
    """The last state and the first fault of one row, id by id."""
    state, text = 0, False
    for token_id in [*ids, -1]:
        if 0 <= token_id < KIMI.vocabulary.base_tokens:
            text = True
            continue
        if text and form.text_fault[state] >= 0:
            return -1, form.codes[form.text_fault[state]]
        text = False
        if token_id == -1:
            break
        symbol = int(np.searchsorted(form.symbols, token_id))
        if form.step[state, symbol] < 0:
            return -1, form.codes[form.fault[state, symbol]]
        state = int(form.step[state, symbol])
    return state, None


def block_of(rows: list[list[int]]) -> Block:
    return Block(np.array([i for row in rows for i in row], np.int32), np.array([len(row) for row in rows], np.int64))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(ALPHABET), max_size=14), max_size=12),
    st.sampled_from(["thinking", "instant"]),
    st.booleans(),
    st.randoms(),
)
def test_all_rows_at_once_are_as_each_by_itself(rows: list[list[int]], mode: str, own: bool, random: object) -> None:
    form = form_of(KIMI, mode, thinking_may_end_in_tools=own)
    ids = block_of(rows)
    chosen = np.array([random.random() < 0.8 for _ in rows], dtype=bool)  # type: ignore[attr-defined]
    state, fault = follow(form, find_specials(ids, KIMI), ids, chosen)
    for i, row in enumerate(rows):
        found = (int(state[i]), form.codes[fault[i]] if fault[i] >= 0 else None)
        assert found == (walk(form, row) if chosen[i] else (-1, None))


def test_a_good_row_ends_in_the_last_state() -> None:
    form = form_of(KIMI, "thinking", thinking_may_end_in_tools=False)
    ids = block_of(
        [[5, 163607, 6, 163586], [163607, 163586], [5, 163607, 163595, 163597, 5, 163598, 5, 163599, 163596]]
    )
    state, fault = follow(form, find_specials(ids, KIMI), ids, np.ones(3, dtype=bool))
    assert fault.tolist() == [-1, -1, -1]
    assert [int(s) == form.done for s in state] == [True, True, False]


def test_no_rows() -> None:
    form = form_of(KIMI, "thinking", thinking_may_end_in_tools=False)
    state, fault = follow(form, find_specials(block_of([]), KIMI), block_of([]), np.zeros(0, dtype=bool))
    assert (len(state), len(fault)) == (0, 0)


def test_the_shift_is_the_one_that_was_seen() -> None:
    shifted = shifted_ids(KIMI)
    assert {shifted[163601]: 163598, shifted[163606]: 163603, shifted[163607]: 163604} == {
        163598: 163598, 163603: 163603, 163604: 163604,
    }  # fmt: skip
    assert 163586 not in shifted


def test_other_contracts_have_a_form_or_say_so() -> None:
    instruct: Contract = read_contract("kimi-k2-instruct")
    for mode in instruct.modes:
        assert form_of(instruct, mode, thinking_may_end_in_tools=False).done > 0
