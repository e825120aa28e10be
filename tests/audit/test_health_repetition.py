"""Repetition of ids: loops and repeated 4-grams, against a plain definition."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.audit.blocks import Block
from toolkit.audit.health.repetition import FEWEST_CYCLES, GRAM, LONGEST_PERIOD, SHORTEST_RUN, find_repetition


def block_of(rows: list[list[int]]) -> Block:
    return Block(
        np.array([i for row in rows for i in row], dtype=np.int32), np.array([len(r) for r in rows], dtype=np.int64)
    )


def loop_of(ids: list[int]) -> tuple[int, int]:
    """(ids that the longest loop covers, its period), as the module says it in words."""
    best = (0, 0)
    for period in range(1, LONGEST_PERIOD + 1):
        run = 0
        for i in range(period, len(ids) + 1):
            if i < len(ids) and ids[i] == ids[i - period]:
                run += 1
                continue
            covered = (run + period) // period * period
            if run >= SHORTEST_RUN and covered >= FEWEST_CYCLES * period and covered > best[0]:
                best = (covered, period)
            run = 0
    return best


def found(rows: list[list[int]]) -> list[tuple[int, int]]:
    repetition = find_repetition(block_of(rows))
    return list(zip(repetition.loop_ids.tolist(), repetition.loop_period.tolist(), strict=True))


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([20, 21] * 12, (24, 2)),
        ([5, 50, 6, *[20, 21] * 12, 4], (24, 2)),
        ([7] * 16, (16, 1)),
        ([7] * 15, (0, 0)),
        ([*range(32)] * 3, (96, 32)),
        ([*range(32)] * 2, (0, 0)),
        ([*range(33)] * 9, (0, 0)),
        ([*range(300)], (0, 0)),
        ([], (0, 0)),
        ([1, 2, 3, 4] * 30 + [9] * 40, (120, 4)),
        ([1, 2, 3] * 100 + [1, 2], (300, 3)),
    ],
)
def test_the_longest_loop(ids: list[int], expected: tuple[int, int]) -> None:
    assert found([ids]) == [expected]
    assert loop_of(ids) == expected


def test_a_loop_ends_with_its_row() -> None:
    assert found([[1] * 12, [1] * 12, [], [1] * 20]) == [(0, 0), (0, 0), (0, 0), (20, 1)]


phrases = st.lists(st.integers(0, 3), min_size=1, max_size=40)
rows = st.lists(
    st.lists(st.tuples(phrases, st.integers(1, 12)), max_size=4).map(
        lambda parts: [i for phrase, times in parts for i in phrase * times]
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(rows)
def test_loops_and_grams_are_those_of_the_definition(rows: list[list[int]]) -> None:
    assert found(rows) == [loop_of(row) for row in rows]
    grams = [len({tuple(row[i : i + GRAM]) for i in range(len(row) - GRAM + 1)}) for row in rows]
    assert find_repetition(block_of(rows)).distinct_grams.tolist() == grams


def test_rows_beyond_one_stretch_are_measured_alike() -> None:
    draw = random.Random(5)
    rows = [[draw.randrange(160_000) for _ in range(draw.randrange(900))] + [3, 4, 5] * 20 for _ in range(600)]
    rows.append([8] * 200_000)
    together = find_repetition(block_of(rows))
    alone = [find_repetition(block_of([row])) for row in rows]
    assert together.loop_ids.tolist() == [int(one.loop_ids[0]) for one in alone]
    assert together.distinct_grams.tolist() == [int(one.distinct_grams[0]) for one in alone]
    assert together.loop_ids[-1] == 200_000


def test_ids_that_no_vocabulary_has_are_hashed_too() -> None:
    assert find_repetition(block_of([[-1, 2**31 - 1, -(2**31), 0, 5]])).distinct_grams.tolist() == [2]
