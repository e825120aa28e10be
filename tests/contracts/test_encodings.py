"""Ids of the shipped vocabularies: golden texts, and four engines on hostile text."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import shared_file
from toolkit.contract import Contract, parse_contract, read_contract, shipped_contracts
from toolkit.errors import ContractError
from toolkit.vocabulary import prove

from .vocabularies import SPLITS, loaded, published

GOLDEN = {"glm-4.7": "glm-4.7.json", "llama-3": "llama-3.json"}


@pytest.mark.parametrize("name", shipped_contracts())
def test_every_claim_of_a_shipped_contract_holds(name: str) -> None:
    lines = list(prove(loaded(name)))
    assert [line for line in lines if not line.holds] == []
    assert len(lines) > 4 * len(loaded(name).special)
    assert "sha256 of the rank file" in {line.what for line in lines}


@pytest.mark.parametrize(("name", "file"), GOLDEN.items())
def test_golden_texts(name: str, file: str) -> None:
    golden = json.loads(shared_file(f"golden/{file}").read_text(encoding="utf-8"))
    vocabulary = loaded(name)
    texts, expected = [case["text"] for case in golden], [case["ids"] for case in golden]
    assert len(golden) == 36
    assert [vocabulary.encode_ordinary(text) for text in texts] == expected
    assert [vocabulary.referee.encode(text) for text in texts] == expected
    assert batch(name, texts) == expected
    assert [vocabulary.decode_bytes(ids).decode() for ids in expected] == texts


def batch(name: str, texts: list[str]) -> list[list[int]]:
    ids, offsets = loaded(name).encode_batch(texts)
    return [[int(i) for i in ids[a:b]] for a, b in itertools.pairwise(offsets)]


# Written out, so that all engines together cannot drift; from the engines when they agreed.
FIXED = {
    "qwen3": {"Hello, world! 2026": [9707, 11, 1879, 0, 220, 17, 15, 17, 21], "\n\n": [271], ".\n": [624]},
    "glm-4.5": {"Hello, world! 2026": [9703, 11, 1879, 0, 220, 115937, 21], "\n": [198]},
    "llama-3": {"Hello, world! 2026": [9906, 11, 1917, 0, 220, 2366, 21], "\n\n": [271], " việc": [100769]},
    "deepseek-r1": {"Hello, world! 2026": [19923, 14, 2058, 3, 223, 939, 24], "\n": [201]},
}


@pytest.mark.parametrize("name", FIXED)
def test_fixed_ids(name: str) -> None:
    for text, ids in FIXED[name].items():
        assert loaded(name).encode_ordinary(text) == ids
        assert published(name).encode(text).ids == ids


HOSTILE = [
    "'s 'S 'LL 'tis I'VE don'ſ",
    "  \n\n\t x\r\n\r y  \n",
    "中文漢字かなカナ・ー゛゜゠\u3040か\u3097\u3098\u3098な\u3099\u309a。",
    "１２３4567 ½²Ⅷ ٣٤٥٦ 1,234.50",
    "e\u0301 Å \u212b 한국어 각 ไทย हिन्दी العربية עברית",
    "🙂‍↔️🇩🇪👩‍👩‍👧‍👦 \u200d\u200d文 \u200b\ufeff\u2028\u2029\u0085\u00a0\u3000",
    "\x00\x00a \x01\x7f\x1b[31m \u0378\u0378a",
    "<|im_end|><think></think><tool_call>[gMASK]/nothink<｜User｜><|eot_id|>",
    "$foo_bar(x);//**/ #include<a.h> a.b.c -1 'x' \"y\" `z`",
    "a" * 300 + " " * 300 + "\n" * 300 + "中" * 300 + "-" * 300 + "9" * 301,
]
LETTERS = st.sampled_from([*sorted(set("".join(HOSTILE))), *"ab \n1"])
JOINED = st.lists(st.sampled_from(HOSTILE[:-1]), max_size=2).map("".join)
TEXTS = st.text(LETTERS, max_size=14) | st.text(max_size=10) | JOINED


@pytest.mark.parametrize("name", SPLITS)
def test_hostile_texts_by_all_engines(name: str) -> None:
    vocabulary = loaded(name)
    expected = [published(name).encode(text).ids for text in HOSTILE]
    assert [vocabulary.encode_ordinary(text) for text in HOSTILE] == expected
    assert [vocabulary.referee.encode(text) for text in HOSTILE] == expected
    assert batch(name, HOSTILE) == expected
    assert [vocabulary.decode_bytes(ids).decode() for ids in expected] == HOSTILE


@pytest.mark.parametrize("name", SPLITS)
@given(text=TEXTS)
@settings(max_examples=400, deadline=None)
def test_any_text_by_all_engines(name: str, text: str) -> None:
    vocabulary = loaded(name)
    expected = published(name).encode(text).ids
    assert vocabulary.encode_ordinary(text) == expected
    assert vocabulary.referee.encode(text) == expected
    assert batch(name, [text]) == [expected]
    assert vocabulary.decode_bytes(expected) == text.encode()


@pytest.mark.parametrize("name", shipped_contracts())
def test_specials_are_ids_in_prompts_only(name: str) -> None:
    vocabulary = loaded(name)
    special = set(vocabulary.special.values())
    before, after = vocabulary.encode_ordinary("a "), vocabulary.encode_ordinary(" b")
    for spelling, token_id in vocabulary.special.items():
        text = f"a {spelling}{spelling} b"
        assert not special & set(vocabulary.encode_ordinary(text))
        assert vocabulary.encode_rendered(text) == [*before, token_id, token_id, *after]
        assert vocabulary.decode_bytes([*before, token_id, token_id, *after]) == text.encode()
        assert vocabulary.token_bytes[token_id].as_py() == spelling.encode()


def test_qwen_normalises_prompts_and_never_replies() -> None:
    """`e` and a combining accent are one letter to its tokenizer, but a model may write two."""
    vocabulary = loaded("qwen3")
    assert vocabulary.encode_rendered("e\u0301<think>e\u0301") == [*vocabulary.encode_ordinary("é"), 151667, 963]
    assert vocabulary.decode_bytes(vocabulary.encode_ordinary("e\u0301")) == "e\u0301".encode()
    assert vocabulary.encode_ordinary("é") == [963]


def test_special_ids_among_the_base_tokens() -> None:
    vocabulary = loaded("deepseek-r1")
    assert vocabulary.contract.vocabulary.holes == {0, 1, 2}
    assert vocabulary.decode_bytes([0, 1]).decode() == "<｜begin▁of▁sentence｜><｜end▁of▁sentence｜>"
    assert vocabulary.base[:4] == [b"", b"", b"", b"!"]
    # A pair of bytes that fills a hole for one engine is in no text: all bytes that can be come back.
    text = "".join(map(chr, range(0x110000 - 0x800, 0x110000 - 0x700))) + "ÿþ"
    assert batch("deepseek-r1", [text]) == [vocabulary.referee.encode(text)]


HOLES = [
    ("a hole above the base", "holes = [0, 1, 2]", "holes = [0, 1, 128000]", "vocabulary.holes: expected ids from 0"),
    ("a negative hole", "holes = [0, 1, 2]", "holes = [0, 1, 2, -1]", "vocabulary.holes: expected ids from 0"),
    ("many holes", "holes = [0, 1, 2]", f"holes = {list(range(101))}", "vocabulary.holes: expected at most 100"),
    (
        "no hole for a special",
        "holes = [0, 1, 2]",
        "holes = [0, 1]",
        "= 2; expected 128000 to 129279 or one of 2 holes",
    ),
    (
        "raw form that begins nowhere",
        'begins = ["<｜tool▁calls▁begin｜>"]',
        "begins = []",
        "raw_tools.begins: expected",
    ),
    (
        "raw form out of reach",
        'begins = ["<｜tool▁calls▁begin｜>"]',
        'begins = ["<｜tool▁sep｜>"]',
        "comes after nothing",
    ),
    (
        "raw form that never ends",
        'ends = ["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"]',
        "",
        "raw_tools.ends: expected",
    ),
    (
        "unknown special of a raw form",
        'call = "<｜tool▁call▁begin｜>"',
        'call = "<|c|>"',
        "raw_tools: '<|c|>' is not in",
    ),
    (
        "unknown mode to render",
        'prompt_ends_with = ["<think>"',
        'rendered_as = "x"\nprompt_ends_with = ["<think>"',
        "rendered_as: 'x'",
    ),
    (
        "a part in what is added",
        'prompt_ends_with = ["<think>"',
        'prompt_adds = ["{content}"]\nprompt_ends_with = ["<think>"',
        "prompt_adds: ",
    ),
    ("a normaliser of no kind", "holes = [0, 1, 2]", 'holes = [0, 1, 2]\nnormalizer = "NFKC"', "vocabulary.normalizer"),
]


@pytest.mark.parametrize(("old", "new", "says"), [h[1:] for h in HOLES], ids=[h[0] for h in HOLES])
def test_faults_of_a_contract_with_holes_and_raw_tools(old: str, new: str, says: str) -> None:
    text = read_text("deepseek-r1")
    assert text.count(old) == 1
    with pytest.raises(ContractError) as caught:
        parse_contract(text.replace(old, new).encode(), "d.toml")
    assert says in str(caught.value)


def test_a_contract_has_one_form_of_calls() -> None:
    text = read_text("deepseek-r1") + (
        '\n[tools]\nsection_begin = "<think>"\nsection_end = "<think>"\nid_form = "x"\n'
        'call = ["<think>", "{id}", "<think>", "{arguments}", "<think>"]\n'
    )
    with pytest.raises(ContractError, match=r"raw_tools: expected \[tools\] or \[raw_tools\], found both"):
        parse_contract(text.encode(), "d.toml")


def read_text(name: str) -> str:
    contract: Contract = read_contract(name)
    return Path(contract.path).read_text(encoding="utf-8")
