"""Near duplicates, and overlap with evaluation prompts."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from toolkit.audit.health.near import FEWEST_IDS, NEAR_SCHEMA, find_near_duplicates
from toolkit.audit.health.overlap import count_overlaps, evaluation_grams, read_evaluation
from toolkit.errors import ConfigError

SAID = "how many loaves does the baker sell on a day when the market is open until noon and nobody pays late"


# --- near duplicates -----------------------------------------------------------------------------


def rows_of(ids: list[list[int] | None], samples: list[str] | None = None) -> pa.Table:
    return pa.table(
        {
            "row_key": [f"k{i}" for i in range(len(ids))],
            "sample_id": samples or [f"s{i}" for i in range(len(ids))],
            "turn": pa.array([0] * len(ids), pa.int32()),
            "sample_index": pa.array([0] * len(ids), pa.int32()),
            "output_ids": pa.array(ids, pa.list_(pa.int32())),
        }
    )


def drawn(seed: int, length: int = 600) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(160_000) for _ in range(length)]


def test_near_duplicates_are_found_across_tables() -> None:
    pytest.importorskip("rensa")
    first = drawn(1)
    ids: list[list[int] | None] = [drawn(seed) for seed in range(100, 160)]
    ids[3], ids[20], ids[50] = first, [*first[:580], *drawn(2, 20)], list(first)
    ids[30] = [*first[:300], *drawn(3, 300)]
    table = rows_of(ids, [f"s{i % 47}" for i in range(60)])
    found = find_near_duplicates([table.slice(0, 25), table.slice(25)])
    assert found.table.schema.equals(NEAR_SCHEMA)
    assert [(row["row_key"], row["near_duplicate_of"], row["same_prompt"]) for row in found.table.to_pylist()] == [
        ("k20", "k3", False),
        ("k50", "k3", True),
    ]
    assert found.table["similarity"].to_pylist() == pytest.approx([0.93, 1.0], abs=0.06)
    assert (found.compared, found.share) == (60, pytest.approx(1 / 60))


def test_short_answers_and_rows_without_ids_are_not_compared() -> None:
    pytest.importorskip("rensa")
    found = find_near_duplicates([rows_of([[1] * (FEWEST_IDS - 1), [1] * (FEWEST_IDS - 1), None, None, []])])
    assert (found.table.num_rows, found.compared, found.share) == (0, 0, 0.0)
    assert find_near_duplicates([]).table.schema.equals(NEAR_SCHEMA)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(ConfigError, match=r"expected the package rensa, found none; pip install 'tokenproof\[near"):
        find_near_duplicates([rows_of([drawn(1)])])


# --- overlap with evaluation prompts -----------------------------------------------------------------


def overlaps(texts: list[str | None], prompts: list[str], messages: list[str | None] | None = None) -> list[int]:
    rows = pa.table(
        {
            "messages": pa.array(messages or [None] * len(texts), pa.string()),
            "reasoning": pa.array([None] * len(texts), pa.string()),
            "content": pa.array(texts, pa.string()),
        }
    )
    found: list[int] = count_overlaps(rows, evaluation_grams(prompts, "here")).to_pylist()
    return found


def test_thirteen_words_in_a_row_are_found() -> None:
    words = SAID.split()
    texts = [
        f"Well: {SAID}!",
        " ".join(words[:13]),
        " ".join(words[:12]),
        " ".join(words[:12]) + " x " + " ".join(words[12:]),
        "HOW many loaves — does the Baker sell, on a day when the (market)…",
        None,
        "",
    ]
    assert overlaps(texts, ["short one", SAID]) == [len(words) - 12, 1, 0, 0, 1, 0, 0]


def test_a_stretch_does_not_run_from_one_prompt_or_row_into_the_next() -> None:
    words = SAID.split()
    halves = [" ".join(words[:10]), " ".join(words[10:])]
    assert overlaps([SAID], [*halves, "a b c d e f g h i j k l m"]) == [0]
    assert overlaps(halves, [SAID]) == [0, 0]


def test_chinese_is_read_character_by_character() -> None:
    said = "小明有三个苹果，小红给了他五个苹果，一共有几个？"
    assert overlaps([f"题目是：{said}", "小明有三个梨"], [said]) == [9, 0]


def test_the_users_messages_count_and_no_others() -> None:
    asked = [json.dumps([{"role": role, "content": content}]) for role, content in (
        ("user", SAID), ("user", [{"type": "text", "text": SAID}]), ("system", SAID))]  # fmt: skip
    assert overlaps([None] * 4, [SAID], [*asked, "{"]) == [9, 9, 0, 0]


@pytest.mark.parametrize(
    "line", [SAID, {"prompt": SAID}, {"question": SAID, "id": 7}, {"messages": [{"role": "user", "content": SAID}]}]
)
def test_a_file_of_json_lines(tmp_path: Path, line: object) -> None:
    path = tmp_path / "eval.jsonl"
    path.write_text(json.dumps(line) + "\n\n" + json.dumps("too short") + "\n", encoding="utf-8")
    found = read_evaluation(path)
    assert (len(found.hashes), found.prompts, found.too_short) == (9, 2, 1)


def test_a_file_of_text(tmp_path: Path) -> None:
    path = tmp_path / "eval.txt"
    path.write_text(f"{SAID}\nwrapped\n\n\n{SAID}\n", encoding="utf-8")
    found = read_evaluation(path)
    assert (len(found.hashes), found.prompts, found.too_short) == (10, 2, 0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "e.jsonl",
            b'{"answer": "x"}\nnot json\n',
            r"e.jsonl: line 1: expected a prompt .*\ne.jsonl: line 2: expected",
        ),
        ("e.jsonl", b"", "e.jsonl: expected prompts of at least 13 words, found none among 0"),
        ("e.txt", b"only a few words", "e.txt: expected prompts of at least 13 words, found none among 1"),
        ("e.txt", b"\xff", "e.txt: expected UTF-8"),
    ],
)
def test_a_faulty_file_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_evaluation(path)
