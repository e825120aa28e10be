"""The learner of conventions: right whatever the shapes and the faults are, and silent where two ways are true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.bench import Bench
from tests.faults.good_rows import Author
from toolkit.audit.calibration import calibrate
from toolkit.audit.conventions import MIN_SUPPORT, UNKNOWN, Learned, completion_hypotheses, learn
from toolkit.contract import Contract
from toolkit.vocabulary import Vocabulary

COLUMNS = {"n_terminal": pl.Int32, "n_end_think": pl.Int32, "n_tool_markers": pl.Int32, "reasoning_tokens": pl.Int32}


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, int]:
    """A whole answer: special ids and reasoning as thinking, instant and calling answers have them."""
    thinks = draw(st.booleans())
    calls = draw(st.sampled_from([0, 0, 0, 1, 2]))
    return {
        "n_terminal": 1,
        "n_end_think": int(thinks),
        "n_tool_markers": 2 + 3 * calls if calls else 0,
        "reasoning_tokens": draw(st.integers(20, 400)) if thinks else 0,
    }


def predictions(rows: Sequence[dict[str, int]], contract: Contract) -> list[list[int]]:
    """What each convention predicts for each row."""
    frame = pl.DataFrame(list(rows), schema=COLUMNS)
    hypotheses = enumerate(completion_hypotheses(contract))
    predicted = frame.select(h.difference.cast(pl.Int64).alias(str(number)) for number, h in hypotheses)
    return [list(row) for row in predicted.rows()]


def learned(rows: Sequence[dict[str, int]], differences: Sequence[int], contract: Contract) -> Learned:
    frame = pl.DataFrame(list(rows), schema=COLUMNS).with_columns(
        pl.Series("off", differences, dtype=pl.Int32),
        sample_id=pl.arange(len(rows)).cast(pl.String),
        turn=pl.lit(0),
        sample_index=pl.lit(0),
    )
    return learn(frame, "off", completion_hypotheses(contract))


@st.composite
def providers(draw: st.DrawFn) -> tuple[list[dict[str, int]], int, list[int | None]]:
    """Rows of one provider, its convention, and what is wrong with up to 40 % of its counts (None: nothing)."""
    rows = draw(st.lists(shapes(), min_size=MIN_SUPPORT, max_size=90))
    faulty = draw(st.integers(0, len(rows) * 4 // 10))
    off = draw(st.lists(st.integers(-60, 60), min_size=faulty, max_size=faulty))
    places = draw(st.permutations([*off, *[None] * (len(rows) - faulty)]))
    return rows, draw(st.integers(0, 15)), places


@given(provider=providers())
@settings(max_examples=80, deadline=None)
def test_right_for_thirty_rows_of_which_two_in_five_are_wrong(kimi: Contract, provider: Any) -> None:
    rows, way, faults = provider
    names = [hypothesis.name for hypothesis in completion_hypotheses(kimi)]
    predicted, differences = predictions(rows, kimi), []
    for possible, fault in zip(predicted, faults, strict=True):
        unexplainable = fault is not None and fault not in possible
        differences.append(fault if unexplainable and fault is not None else possible[way])
    found = learned(rows, differences, kimi)
    # Of conventions that say the same of every row that is not faulty, any is right.
    right = {
        name
        for i, name in enumerate(names)
        if all(possible[i] == off for possible, off in zip(predicted, differences, strict=True) if off in possible)
    }
    tell = sum(possible[names.index(found.name)] != 0 for possible in predicted) if found.known else 0
    if found.known:
        assert found.name in right
        assert found.name == names[0] or tell >= MIN_SUPPORT
    else:
        # Nothing is said only where too few rows can tell the convention from counting every id.
        assert "rows that tell it" in found.why or "rows tell it" in found.why, found


@given(
    rows=st.lists(shapes(), min_size=MIN_SUPPORT, max_size=90),
    way=st.sampled_from([0, 1, 5, 8]),
    faulty=st.floats(0, 0.4),
)
@settings(max_examples=40, deadline=None)
def test_never_unknown_where_every_row_can_tell(kimi: Contract, rows: Any, way: int, faulty: float) -> None:
    """Whole answers with thoughts: each tells the terminal, the end of thinking and the reasoning apart."""
    whole = [row | {"n_end_think": 1, "reasoning_tokens": max(row["reasoning_tokens"], 20)} for row in rows]
    wrong = int(len(whole) * faulty)
    differences = [-5 - i if i < wrong else all_ways[way] for i, all_ways in enumerate(predictions(whole, kimi))]
    found = learned(whole, differences, kimi)
    names = [hypothesis.name for hypothesis in completion_hypotheses(kimi)]
    assert names[way] in (found.name, *found.same)


@given(
    first=st.lists(shapes(), min_size=40, max_size=90),
    ways=st.sampled_from([(0, 1), (1, 4), (0, 8), (4, 8), (1, 9)]),
    share=st.floats(0.25, 0.75),
)
@settings(max_examples=40, deadline=None)
def test_unknown_where_two_ways_explain_more_than_a_fifth_each(
    kimi: Contract, first: Any, ways: tuple[int, int], share: float
) -> None:
    rows = [row | {"n_end_think": 1, "reasoning_tokens": max(row["reasoning_tokens"], 20)} for row in first]
    split = round(len(rows) * share)
    differences = [all_ways[ways[int(i >= split)]] for i, all_ways in enumerate(predictions(rows, kimi))]
    assert learned(rows, differences, kimi).name == UNKNOWN


def test_fewer_rows_teach_nothing_but_counting_every_id(kimi: Contract) -> None:
    row = {"n_terminal": 1, "n_end_think": 1, "n_tool_markers": 0, "reasoning_tokens": 50}
    few = [row] * (MIN_SUPPORT - 1)
    assert learned(few, [1] * len(few), kimi).name == UNKNOWN
    assert learned(few, [0] * len(few), kimi).name == "counts every id"


def test_calibration_reports_the_splits_that_were_put_in(vocabulary: Vocabulary) -> None:
    """Engine rows, 3 % of which bear another split than a tokenizer's."""
    bench = Bench(8_000, 3, vocabulary)
    good = Author(vocabulary, 3).write(8_000)
    split = bench.with_engine_splits(good)
    changed = sum(a != b for a, b in zip(good["output_ids"].to_pylist(), split["output_ids"].to_pylist(), strict=True))
    found = calibrate(bench.judge(bench.measure(split)).facts)
    assert found is not None
    everything = found.classes[0]
    assert everything.differing == changed > 20
    assert everything.differing_low < 0.03 < everything.differing_high
