"""Calibration: engine rows rebuilt from their own text, and answers of two sources to the same questions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from toolkit.audit.calibration import calibrate, compare_probes, text_classes
from toolkit.audit.evidence import judge
from toolkit.audit.measure import measure
from toolkit.contract import Contract
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary

from .facts import fact, judged_facts, numbered
from .shard_rows import engine_row, table

END_THINK, END = 163607, 163586


def engine(exact: bool = True, given: int = 40, **changes: Any) -> dict[str, Any]:
    fields = {"ids_source": "engine", "source": "sglang", "provider": None, "reencode_equal": exact}
    return fact(**fields | {"n_reencoded_ids": given, "text_class": "prose"} | changes)


def split_otherwise(ids: list[int], of_bytes: dict[bytes, int]) -> list[int]:
    """The same text in as many ids, two neighbours of which meet at another letter: no tokenizer gives that."""
    spelled = {token_id: spelling for spelling, token_id in of_bytes.items()}
    for place, (left, right) in enumerate(pairwise(ids)):
        whole = spelled[left] + spelled[right]
        for cut in range(1, len(whole)):
            pair = [of_bytes.get(whole[:cut]), of_bytes.get(whole[cut:])]
            if cut != len(spelled[left]) and pair[0] is not None and pair[1] is not None:
                return [*ids[:place], pair[0], pair[1], *ids[place + 2 :]]
    raise AssertionError("no other split")


def test_no_engine_rows_no_calibration(kimi: Contract) -> None:
    assert calibrate(judged_facts(kimi, [fact()] * 3)) is None


def test_shares_and_intervals(kimi: Contract) -> None:
    rows = [*[engine()] * 90, *[engine(False)] * 3, *[engine(False, given=41)] * 7, engine(text_equal=False)]
    found = calibrate(judged_facts(kimi, numbered(rows)))
    assert found is not None
    assert found.left_out == 1
    whole, prose = found.classes
    assert (whole.name, prose.name) == ("all", "prose")
    assert (whole.rows, whole.ids, whole.differing, whole.agreeing, whole.wrong) == (100, 4000, 10, 93, 3)
    assert (round(whole.differing_low, 4), round(whole.differing_high, 4)) == (0.0552, 0.1744)
    assert whole.wrong_low < 3 / 93 < whole.wrong_high
    assert found.says.startswith("of 93 engine rows whose count agrees when their text is rebuilt, 3 have other ids")
    assert "a lower bound of the error of counted rows" in found.says


def test_nothing_to_compare_is_said(kimi: Contract) -> None:
    found = calibrate(judged_facts(kimi, [engine(reencode_equal=None)]))
    assert found is not None
    assert "nothing is known" in found.says
    assert found.classes[0].rows == 0


def test_three_percent_of_other_splits_are_found(kimi: Contract, vocabulary: Vocabulary) -> None:
    """The whole way: made-up engine rows with the real vocabulary, 3 % of them split otherwise with the same count."""
    builder = RowBuilder(kimi, vocabulary)
    draw = np.random.default_rng(3)
    words = ["the", "model", "thinks", "about", "numbers", "while", "others", "calibrate", "tables"]
    of_bytes = {token: i for i, token in enumerate(vocabulary.token_bytes.to_pylist()[:163584])}
    rows = []
    for number in range(1_000):
        reasoning, content = (" " + " ".join(draw.choice(words, 12)) for _ in range(2))
        ids = [*vocabulary.encode_ordinary(reasoning), END_THINK]
        content += " of drafters"  # ` d`, `ra`, `fters`: so that each answer has another split
        answer = vocabulary.encode_ordinary(content)
        if number % 100 in (11, 47, 83):
            answer = split_otherwise(answer, of_bytes)
        message = {"reasoning": reasoning, "content": content}
        rows.append(engine_row(builder, message, [*ids, *answer, END], sample_id=f"s{number}"))
    facts = pl.from_arrow(measure(table(rows), kimi, vocabulary, shard_sha256="5a" * 32))
    assert isinstance(facts, pl.DataFrame)
    found = calibrate(judge(facts, kimi).facts)
    assert found is not None
    whole = found.classes[0]
    assert (whole.rows, whole.differing, whole.agreeing, whole.wrong) == (1_000, 30, 1_000, 30)
    assert whole.wrong_low < 0.03 < whole.wrong_high < 0.05


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"content": "An ordinary answer, 3 lines."}, "prose"),
        ({"content": "```python\nx = 1\n```"}, "code"),
        ({"content": "今天天气很好, ok"}, "cjk"),
        ({"reasoning": "12345678 901", "content": None}, "digits"),
        ({"content": "a      b\n\n\n\nc"}, "spaces"),
        ({"content": None, "reasoning": None}, "prose"),
        ({"content": "今天", "tool_calls": "[]"}, "tools"),
        ({"content": "x", "ids_source": "rebuilt"}, None),
        ({"content": "x", "ids_source": None}, None),
    ],
)
def test_text_classes(changes: dict[str, Any], name: str | None) -> None:
    row = {"reasoning": None, "content": "", "tool_calls": None, "ids_source": "engine"} | changes
    schema = pa.schema([(key, pa.string()) for key in row])
    # Rows that are passed over must not move the others.
    rows = pa.Table.from_pylist([row | {"ids_source": "given"}, row, row | {"ids_source": None}], schema=schema)
    assert text_classes(rows).to_pylist() == [None, name, None]


def probe_row(ids: list[int] | None, *, probe: bool = False, **changes: Any) -> dict[str, Any]:
    who = {"source": "sglang", "provider": None} if probe else {"source": "openrouter", "provider": "Chutes"}
    fields = {"sample_id": "a", "turn": 0, "sample_index": 0, "mode": "thinking", "probe": probe, "output_ids": ids}
    return fields | who | changes


def test_probes_against_the_rows_of_the_same_question() -> None:
    rows = [
        probe_row([1, 2, 3, 4]), probe_row([1, 2, 3, 4], probe=True),
        probe_row([1, 2, 3, 4], sample_id="b"), probe_row([1, 9, 3], probe=True, sample_id="b"),
        probe_row([1, 2, 3, 4], sample_id="c"), probe_row([1, 2, 3], probe=True, sample_id="c"),
        probe_row(None, sample_id="d"), probe_row([1], probe=True, sample_id="d"),
        probe_row([1], sample_id="e"), probe_row([1], probe=True, sample_id="e", mode="instant"),
    ]  # fmt: skip
    types = {"turn": pl.Int32, "sample_index": pl.Int32, "output_ids": pl.List(pl.Int32), "provider": pl.String}
    (found,) = compare_probes(pl.DataFrame(rows, schema_overrides=types))
    assert (found.source, found.provider, found.probe_source, found.probe_provider) == (
        "openrouter", "Chutes", "sglang", None,
    )  # fmt: skip
    assert (found.pairs, found.exact, found.first_difference, found.length_ratio) == (3, 1, 2.0, 0.75)
    assert compare_probes(pl.DataFrame(rows[:1], schema_overrides=types)) == []
