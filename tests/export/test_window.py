"""What remains of rows in a window, and where cuts fall."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import ConfigError
from toolkit.export.readers import Algorithm, Longer, Reader, Target, reader_of
from toolkit.export.window import FATES, Marks, Place, Rows, look_through, places, take

from .rows import lists_of, rows_of

END_THINK, TOOLS = 90, 80
MARKS = Marks(end_think=END_THINK, tools=TOOLS, thinking=frozenset({"thinking"}))


def reader(**changes: object) -> Reader:
    return Reader(**{"target": Target.JSONL, "window": 4, "longer": Longer.CUT} | changes)  # type: ignore[arg-type]


def test_a_window_cuts_and_counts_what_survives() -> None:
    rows = rows_of(([1, 2, 3], [0, 1, 1]), ([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1]), ([1, 2, 3, 4, 5], [0, 0, 0, 0, 1]))
    found = look_through(rows, reader(min_supervised=1))
    assert found.lengths.tolist() == [3, 4, 0]
    assert found.supervised.tolist() == [2, 1, 0]
    assert found.cut.tolist() == [False, True, False]
    assert [FATES[f] if f >= 0 else None for f in found.fates] == [None, None, "too_few_supervised"]


def test_a_reader_that_drops_does_not_cut() -> None:
    rows = rows_of(([1] * 4, [0, 1, 1, 1]), ([1] * 5, [0, 1, 1, 1, 1]), ([1], [1]))
    found = look_through(rows, reader(longer=Longer.DROP, min_ids=2))
    assert found.lengths.tolist() == [4, 0, 0]
    assert [FATES[f] if f >= 0 else None for f in found.fates] == [None, "too_long", "too_short"]


def test_without_a_window_rows_stay_whole() -> None:
    rows = rows_of(([1] * 9, [0] * 8 + [1]))
    assert look_through(rows, reader(window=None, longer=Longer.KEEP)).lengths.tolist() == [9]


@pytest.mark.parametrize(
    ("mask", "stays"),
    [([0, 1, 0, 1], False), ([1, 0, 1, 1], True), ([0, 0, 0, 1, 1], False), ([1, 1, 0, 0], True)],
)
def test_two_supervised_side_by_side_within_the_window(mask: list[int], stays: bool) -> None:
    """The neighbour of a row's last id belongs to the next row, and a pair across the cut is none."""
    rows = rows_of((list(range(len(mask))), mask), ([1, 1], [1, 1]))
    found = look_through(rows, reader(min_supervised=1, adjacent=True))
    assert (found.fates[0] < 0) == stays
    assert found.fates[1] < 0


@pytest.mark.parametrize(
    ("cut_at", "place"),
    [
        (1, Place.PROMPT),
        (2, Place.REASONING),
        (4, Place.REASONING),
        (5, Place.ANSWER),
        (6, Place.ANSWER),
        (7, Place.TOOLS),
    ],
)
def test_places_of_cuts(cut_at: int, place: Place) -> None:
    """Prompt 2 ids, reasoning, its end at 4, the answer at 5, tools from 6; an end id in the prompt says nothing."""
    rows = rows_of(([END_THINK, 2, 3, 4, END_THINK, 5, TOOLS, 7, 8], [0, 0, 1, 1, 1, 1, 1, 1, 1]))
    assert places(rows, np.array([cut_at]), MARKS) == [place]


def test_places_without_reasoning_or_contract() -> None:
    ids, mask = [1, 2, 3, 4, 5], [0, 0, 1, 1, 1]
    assert places(rows_of((ids, mask), mode="instant"), np.array([4]), MARKS) == [Place.ANSWER]
    assert places(rows_of((ids, mask)), np.array([4]), MARKS) == [Place.REASONING]
    assert places(rows_of((ids, mask)), np.array([4]), None) == [Place.OUTPUT]
    assert places(rows_of((ids, mask)), np.array([1]), None) == [Place.PROMPT]


def test_a_prompt_that_is_supervised_nowhere_still_is_the_prompt() -> None:
    """Where reasoning has no loss, the prompt's length decides and not the mask."""
    rows = rows_of(([1, 2, 3, END_THINK, 5, 6], [0, 0, 0, 0, 1, 1]), prompts=[2])
    assert places(rows, np.array([3]), MARKS) == [Place.REASONING]


def naive(rows: Rows, rules: Reader) -> list[tuple[list[int], list[int]]]:
    kept = []
    for ids, mask in lists_of(rows):
        if rules.longer is Longer.CUT and rules.window is not None:
            ids, mask = ids[: rules.window], mask[: rules.window]
        if rules.longer is Longer.DROP and rules.window is not None and len(ids) > rules.window:
            continue
        if len(ids) < rules.min_ids or sum(mask) < rules.min_supervised:
            continue
        if rules.adjacent and not any(a and b for a, b in pairwise(mask)):
            continue
        kept.append((ids, mask))
    return kept


MASKS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=6)


@given(
    masks=MASKS, window=st.integers(1, 9), longer=st.sampled_from(Longer), least=st.integers(0, 3), pairs=st.booleans()
)
def test_as_a_loop_over_lists_would(
    masks: list[list[int]], window: int, longer: Longer, least: int, pairs: bool
) -> None:
    rows = rows_of(*((list(range(100 * n, 100 * n + len(mask))), mask) for n, mask in enumerate(masks)))
    rules = reader(window=window, longer=longer, min_supervised=least, adjacent=pairs)
    outcome = look_through(rows, rules)
    kept = take(rows, outcome.lengths)
    assert lists_of(kept) == naive(rows, rules) or len(kept) == 0 == len(naive(rows, rules))
    assert kept.supervised().tolist() == outcome.supervised[outcome.lengths > 0].tolist()


def test_pieces_hold_all_rows_in_order() -> None:
    rows = rows_of(*(([n] * n, [1] * n) for n in (3, 1, 9, 2, 2, 4)))
    pieces = list(rows.pieces(4))
    assert [p.lengths.tolist() for p in pieces] == [[3, 1], [9], [2, 2], [4]]
    assert [pair for p in pieces for pair in lists_of(p)] == lists_of(rows)
    assert [name for p in pieces for name in p.names] == rows.names


def test_algorithms_change_specforge_only() -> None:
    assert reader_of(Target.SPECFORGE, Algorithm.DFLASH).min_supervised == 2
    assert not reader_of(Target.SPECFORGE, Algorithm.EAGLE3).adjacent
    with pytest.raises(ConfigError, match="and specforge only; found trl"):
        reader_of(Target.TRL, Algorithm.DFLASH)


def test_a_window_of_the_reader_counts_where_it_has_one() -> None:
    assert reader_of(Target.TRL, window=77).window == 77
    assert reader_of(Target.LLAMAFACTORY, window=77).window is None
    with pytest.raises(ConfigError, match="at least 1"):
        reader_of(Target.TRL, window=0)
