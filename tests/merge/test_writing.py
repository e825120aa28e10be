"""How rows of buckets become parts: what is taken, and in which order."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from toolkit.merge.reading import NUMBERS
from toolkit.merge.writing import _Rows, _Side


def rows_of(names: list[str]) -> _Rows:
    numbers = np.zeros(len(names), NUMBERS)
    numbers["number"] = np.arange(len(names))
    return _Rows(numbers, pl.DataFrame({"id": names, "tools": [None if name > "c" else name for name in names]}))


def names_of(parts: list[list[_Rows]]) -> list[list[str]]:
    return [[name for some in part for name in some.others["id"]] for part in parts]


# Two of six are few, and are copied; five are not.
@pytest.mark.parametrize("places", [[3, 1], [5, 4, 3, 1, 0], []])
def test_rows_are_taken_in_the_order_that_is_asked_for(places: list[int]) -> None:
    names = ["a", "b" * 40, "c", "d" * 40, "e", "f"]
    taken = rows_of(names).taken(np.array(places, np.int64))
    assert taken.others["id"].to_list() == [names[place] for place in places]
    assert taken.others["tools"].to_list() == [None if place > 2 else names[place] for place in places]
    assert taken.numbers["number"].tolist() == places


def test_parts_are_the_same_however_rows_come() -> None:
    names = [f"{number:05d}" for number in range(40_000)]
    sizes = np.full(len(names), 10, np.int64)
    seen = []
    for step in (40_000, 7_001, 900):
        side, parts = _Side(), []
        for first in range(0, len(names), step):
            parts += list(side.add(rows_of(names[first : first + step]), sizes[first : first + step]))
        seen.append(names_of([*parts, *side.rest()]))
    assert [len(part) for part in seen[0]] == [16_384, 16_384, 7_232]
    assert [name for part in seen[0] for name in part] == names
    assert seen[0] == seen[1] == seen[2]
