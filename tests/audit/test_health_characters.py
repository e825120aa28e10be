"""Control characters and letters by script, against Python's own view of the characters."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.audit.health.characters import SCRIPTS, count_characters
from toolkit.audit.health.languages import language_differs, scripts_of

CONTROL = {*range(0x20), *range(0x7F, 0xA0)} - {9, 10, 13}
BIDI = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.none() | st.text(st.characters(codec="utf-8")), max_size=8))
def test_controls_are_counted_as_python_sees_them(texts: list[str | None]) -> None:
    found = count_characters(pa.array(texts, pa.string()))
    assert found.controls.tolist() == [sum(ord(c) in CONTROL for c in text or "") for text in texts]
    assert found.bidi.tolist() == [sum(ord(c) in BIDI for c in text or "") for text in texts]


def test_separators_and_marks_are_no_controls() -> None:
    found = count_characters(pa.array(["a\tb\r\nc\u2028\u2029\u200b\u200d\ufeff\u00a0"]))
    assert (found.controls[0], found.bidi[0]) == (0, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world 42!", {"latin": 10}),
        ("Łódź, Việt Nam, ß", {"latin": 12}),
        ("Привет", {"cyrillic": 6}),
        ("مرحبا", {"arabic": 5}),
        ("中文𠀀", {"han": 9}),
        ("カナかな", {"kana": 12}),
        ("안녕", {"hangul": 6}),
        ("αβγ שלום ไทย हिन्दी", None),
        ("1 + 2 × 3 ÷ 4 — “…” 。、！？ 😀 \u0301", {}),
    ],
)
def test_letters_by_script(text: str, expected: dict[str, int] | None) -> None:
    letters = dict(zip(SCRIPTS, count_characters(pa.array([text])).letters[0].tolist(), strict=True))
    if expected is None:
        assert {name for name, count in letters.items() if count} == {"other"}
    else:
        assert {name: count for name, count in letters.items() if count} == expected


def test_slices_of_a_column_are_counted_alike() -> None:
    texts = ["x" * n + "中" * (n % 7) + "\x00" * (n % 3) for n in range(4_000)]
    column = pa.array(texts, pa.string())
    whole, part = count_characters(column), count_characters(column.slice(1_001, 77))
    assert whole.letters[1_001:1_078].tolist() == part.letters.tolist()
    assert whole.controls.tolist() == [n % 3 for n in range(4_000)]
    assert whole.letters[:, 0].tolist() == list(range(4_000))


def test_the_script_of_most_letters() -> None:
    texts = [
        "This is a plain sentence in English.",
        "short",
        "这是一个用中文写的句子",
        "これは日本語で書かれた文章です",
        "中文 mixed with some English text here",
    ]
    found = scripts_of(count_characters(pa.array(texts)).letters)
    assert [SCRIPTS[i] if i >= 0 else None for i in found.first.tolist()] == ["latin", None, "han", "kana", "latin"]
    assert found.second_share.round(2).tolist() == [0.0, 0.0, 0.0, 0.0, 0.18]


ENGLISH = "What is the capital of this country, and how many people live there today?"
CHINESE = "请解释一下这个国家的首都在哪里，今天有多少人住在那里？"
LONG_ENGLISH = "The capital is a city with a long history, and about two million people live there today."
CODE = "```python\ndef capital(country: str) -> str:\n    return capitals[country]\n```" + "x" * 60
LONG_CHINESE = "这个国家的首都是一座历史悠久的城市，今天大约有两百万人住在那里，城市的面积也很大。"


def differs(content: str | None, *messages: object) -> bool | None:
    column = pa.array([content], pa.string())
    asked = pa.array([None if messages == (None,) else _json(list(messages))], pa.string())
    value: bool | None = language_differs(column, count_characters(column).letters, asked)[0].as_py()
    return value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("content", "messages", "expected"),
    [
        (LONG_ENGLISH, [user(ENGLISH)], False),
        (LONG_CHINESE, [user(CHINESE)], False),
        (LONG_CHINESE, [user(ENGLISH)], True),
        (LONG_ENGLISH, [user(CHINESE)], True),
        (LONG_ENGLISH, [user([{"type": "text", "text": CHINESE}])], True),
        (LONG_ENGLISH, [user(CHINESE), {"role": "assistant", "content": LONG_CHINESE}, user(ENGLISH)], False),
        (LONG_ENGLISH, [user(ENGLISH), {"role": "assistant", "content": LONG_ENGLISH}, user(CHINESE)], True),
        (LONG_CHINESE, [user("Translate this into Chinese: " + ENGLISH)], None),
        (LONG_ENGLISH, [user("把下面的话翻译成英文：" + CHINESE)], None),
        (CODE, [user(CHINESE)], None),
        ('{"capital": "a city with a long history", "people": "two million or so"}', [user(CHINESE)], None),
        ("Yes.", [user(CHINESE)], None),
        (LONG_ENGLISH, [user("好")], False),
        (LONG_CHINESE + LONG_ENGLISH, [user(CHINESE)], False),
        (LONG_ENGLISH + "北京", [user(CHINESE)], False),
        (None, [user(CHINESE)], None),
        (LONG_ENGLISH, [None], None),
        (LONG_ENGLISH, ["no message", 7, {"role": "user"}, user([1, {"text": 2}])], False),
        (LONG_CHINESE, ["no message", 7, {"role": "user"}], None),
    ],
)  # fmt: skip
def test_an_answer_in_another_script_than_its_prompt(
    content: str | None, messages: list[object], expected: bool | None
) -> None:
    assert differs(content, *messages) is expected


@pytest.mark.parametrize(
    "messages", ["", "{", "[]", "{}", "null", '"text"', "[[[[]]]]", '[{"role": "user", "content": {}}]']
)
def test_messages_that_are_none_compare_with_nothing(messages: str) -> None:
    column = pa.array([LONG_CHINESE])
    found = language_differs(column, count_characters(column).letters, pa.array([messages]))
    assert found.to_pylist() in ([None], [False])
