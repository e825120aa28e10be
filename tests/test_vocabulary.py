"""Vocabularies: three engines that agree, text that never becomes special, and files that are refused."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splintr import KIMI_PATTERN
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from toolkit.contract import Contract, parse_contract, read_contract
from toolkit.engines import Splintr
from toolkit.engines import rank_lines as rank_lines_of
from toolkit.errors import ContractError
from toolkit.vocabulary import PROBES, Vocabulary, load_vocabulary, proof_of, prove

from .conftest import shared_file

# --- encoding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "file"), [("kimi-k2.5", "kimi-k2.5.json"), ("gpt-oss", "o200k.json")])
def test_golden_texts_by_all_three_engines(name: str, file: str) -> None:
    golden = json.loads(shared_file(f"golden/{file}").read_text(encoding="utf-8"))
    vocabulary = load_vocabulary(read_contract(name))
    texts = [case["text"] for case in golden]
    expected = [case["ids"] for case in golden]
    assert len(golden) == 36
    assert [vocabulary.encode_ordinary(text) for text in texts] == expected
    assert [vocabulary.referee.encode(text) for text in texts] == expected
    assert lists(*vocabulary.encode_batch(texts)) == expected
    assert lists(*vocabulary.referee.encode_batch(texts)) == expected
    assert [vocabulary.decode_bytes(ids).decode() for ids in expected] == texts


def lists(ids: Sequence[int], offsets: Sequence[int]) -> list[list[int]]:
    """What a batch gives, as one list for each text."""
    return [[int(i) for i in ids[a:b]] for a, b in itertools.pairwise(offsets)]


PIECES = st.sampled_from(
    [
        "'s",
        "'S",
        "'ſ",
        "'ſSc",
        "ſ",
        "I'LL",
        "'re",
        "'tis",
        "你好",
        "世界。",
        "漢字かな",
        "中a中",
        "1",
        "123",
        "1234567",
        "٣٤",
        "½",
        "🙂",
        "👩\u200d👩\u200d👧",
        "🇩🇪",
        "é",
        "İ",
        "ß",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\xa0",
        "\u3000",
        "\u200b",
        "\ufeff",
        "\x00",
        "</",
        "think",
        ">",
        "<|",
        "|>",
        "[PAD]",
        "<|im_end|>",
        "</think>",
        "don't",
        "HTTPServer",
        "fooBar",
        "a/b",
        "//\n",
        "…",
        "—",
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=12)), max_size=24).map("".join)


@given(text=TEXTS)
@settings(max_examples=400, deadline=None)
def test_the_three_engines_agree_on_any_text(vocabulary: Vocabulary, text: str) -> None:
    expected = vocabulary.referee.encode(text)
    assert vocabulary.encode_ordinary(text) == expected
    assert lists(*vocabulary.encode_batch([text, "", text])) == [expected, [], expected]
    assert vocabulary.decode_bytes(expected) == text.encode()
    assert not expected or max(expected) < 163584


@pytest.mark.parametrize("text", ["b'\u017fSc", "A'\u017f'st", "'\u017f", "it'\u017f \u017fo", "\u017f"])
def test_the_letter_on_which_fast_engines_differ_goes_to_the_referee(vocabulary: Vocabulary, text: str) -> None:
    expected = vocabulary.referee.encode(text)
    assert vocabulary.encode_ordinary(text) == expected
    assert lists(*vocabulary.encode_batch(["a", text, "b"]))[1] == expected


def test_two_engines_alone_would_be_wrong_on_it(vocabulary: Vocabulary) -> None:
    """If this fails, the engines were mended and need not doubt it any more."""
    text = "A'\u017f'st"
    stand_in = Splintr.from_ranks(rank_lines_of(vocabulary.base), KIMI_PATTERN)
    for engine in (vocabulary._second_engine, stand_in):
        assert engine.doubts(text)
        assert engine.encode(text) != vocabulary.referee.encode(text)


@pytest.mark.parametrize("text", [" " * 50_000, "\n" * 50_000, "a" * 50_000, "中" * 50_000, "<|" * 25_000])
def test_long_runs(vocabulary: Vocabulary, text: str) -> None:
    expected = vocabulary.referee.encode(text)
    assert vocabulary.encode_ordinary(text) == expected
    assert lists(*vocabulary.encode_batch([text])) == [expected]


def test_empty_batches(vocabulary: Vocabulary) -> None:
    assert lists(*vocabulary.encode_batch([])) == []
    assert lists(*vocabulary.encode_batch(["", ""])) == [[], []]


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\u017f\ud800"])
def test_lone_surrogates_are_an_error_and_not_replaced(vocabulary: Vocabulary, text: str) -> None:
    with pytest.raises(UnicodeEncodeError):
        vocabulary.encode_ordinary(text)
    with pytest.raises(UnicodeEncodeError):
        vocabulary.referee.encode(text)


# --- special tokens --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kimi-k2.5", "kimi-k2-instruct", "gpt-oss"])
def test_text_becomes_special_in_prompts_only(name: str) -> None:
    contract = read_contract(name)
    vocabulary = load_vocabulary(contract)
    special = set(contract.special.values())
    for spelling, token_id in contract.special.items():
        text = f"a {spelling}{spelling} b"
        assert not special & set(vocabulary.encode_ordinary(text))
        assert not special & {int(i) for i in vocabulary.encode_batch([text])[0]}
        before, after = vocabulary.encode_ordinary("a "), vocabulary.encode_ordinary(" b")
        assert vocabulary.encode_rendered(text) == [*before, token_id, token_id, *after]
        assert vocabulary.decode_bytes(vocabulary.encode_rendered(text)) == text.encode()
        assert vocabulary.specials_in(text) == [spelling, spelling]
        assert vocabulary.spelling_of(token_id) == spelling


@pytest.mark.parametrize("text", ["", "plain", "<think", "< /think>", "<|im_end|", "<|IM_END|>", "<\u200bthink>"])
def test_what_is_not_a_spelling(vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary.specials_in(text) == []
    assert vocabulary.encode_rendered(text) == vocabulary.encode_ordinary(text)


def test_decoding_knows_its_bounds(vocabulary: Vocabulary) -> None:
    assert vocabulary.decode_bytes([]) == b""
    assert vocabulary.decode_bytes([163589]) == b""  # a gap: no token
    assert vocabulary.decode_bytes([163607, 163586]) == b"</think><|im_end|>"
    for ids in ([-1], [163840], [5, 2**31]):
        with pytest.raises(IndexError, match="ids outside 0 to 163839"):
            vocabulary.decode_bytes(ids)


def test_the_table_of_bytes_is_that_of_decoding(vocabulary: Vocabulary) -> None:
    table = vocabulary.token_bytes.to_pylist()
    assert len(table) == 163840
    assert all(table[i] == vocabulary.decode_bytes([i]) for i in (*range(0, 163584, 97), *range(163584, 163840)))


# --- a folder with tiktoken.model ------------------------------------------------------------------


@pytest.fixture(scope="module")
def rank_lines(vocabulary: Vocabulary) -> list[bytes]:
    return [b"%s %d" % (base64.b64encode(token), i) for i, token in enumerate(vocabulary.base)]


def write_folder(folder: Path, ranks: list[bytes], added: Any) -> str:
    (folder / "tiktoken.model").write_bytes(b"\n".join(ranks) + b"\n")
    config = {"added_tokens_decoder": {str(i): {"content": s} for s, i in added.items()}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return f"folder:{folder}"


def test_the_official_files(tmp_path: Path, kimi: Contract, rank_lines: list[bytes]) -> None:
    source = write_folder(tmp_path, rank_lines, kimi.special)
    assert (tmp_path / "tiktoken.model").stat().st_size == 2_795_286
    loaded = load_vocabulary(kimi, source)
    assert loaded.ranks_sha256 == kimi.vocabulary.ranks_sha256
    assert loaded.encode_rendered("</think>Hi!") == [163607, *loaded.encode_ordinary("Hi!")]
    assert all(line.holds for line in prove(loaded))


# (what is wrong, special ids in tokenizer_config.json, what the error says)
TABLES: list[tuple[str, dict[str, int | None], str]] = [
    ("a token missing", {"</think>": None}, "id of </think> .*expected 163607, found None"),
    (
        "no tokens at all",
        dict.fromkeys(read_contract("kimi-k2.5").special),
        r"id of \[BOS\] .*expected 163584, found None",
    ),
]


@pytest.mark.parametrize(("changes", "says"), [t[1:] for t in TABLES], ids=[t[0] for t in TABLES])
def test_tables_of_special_ids_that_do_not_fit(
    tmp_path: Path, kimi: Contract, rank_lines: list[bytes], changes: dict[str, int | None], says: str
) -> None:
    table = {s: i for s, i in {**kimi.special, **changes}.items() if i is not None}
    source = write_folder(tmp_path, rank_lines, table)
    with pytest.raises(ContractError, match=f"^contract kimi-k2.5: vocabulary folder:.*: {says}"):
        load_vocabulary(kimi, source)
    assert any(not line.holds for line in proof_of(kimi, source).lines)


def test_ids_shifted_as_transformers_5_4_did_are_refused(
    tmp_path: Path, kimi: Contract, rank_lines: list[bytes]
) -> None:
    """It closed the gaps between special ids, so `</think>` became 163604."""
    shifted = {s: 163584 + i for i, s in enumerate(sorted(kimi.special, key=lambda s: kimi.special[s]))}
    assert shifted["</think>"] == 163604
    source = write_folder(tmp_path, rank_lines, shifted)
    with pytest.raises(ContractError, match="expected 163590, found 163589"):
        load_vocabulary(kimi, source)
    wrong = {line.what: (line.expected, line.found) for line in proof_of(kimi, source).lines if not line.holds}
    assert wrong["id of </think> in the vocabulary's own table"] == ("163607", "163604")


def test_altered_rank_files_are_refused(tmp_path: Path, kimi: Contract, rank_lines: list[bytes]) -> None:
    swapped = [*rank_lines]
    one, other = swapped[5000].split()[0], swapped[5001].split()[0]
    swapped[5000], swapped[5001] = b"%s 5000" % other, b"%s 5001" % one
    for ranks, says in [
        (rank_lines[:-1], "base tokens: expected 163584, found 163583"),
        ([*rank_lines, base64.b64encode(b"\xff<new>") + b" 163584"], "base tokens: expected 163584, found 163585"),
        (swapped, "sha256 of the rank file: expected b6c497a7"),
        ([*rank_lines[:100], *rank_lines[101:]], "line 101: expected rank 100, found 101"),
        ([*rank_lines[:100], b"", *rank_lines[100:]], "line 102: expected rank 101, found 100"),
        ([*rank_lines[:100], b"%%% 100"], "line 101: expected base64 and a rank"),
        ([*rank_lines[:100], b"AAAA x"], "line 101: expected base64 and a rank"),
        ([b"version https://git-lfs.github.com/spec/v1"], "line 1: expected base64 and a rank"),
    ]:
        source = write_folder(tmp_path, ranks, kimi.special)
        with pytest.raises(ContractError, match=says):
            load_vocabulary(kimi, source)


@pytest.mark.parametrize(
    "config", [None, "", "[]", "{}", '{"added_tokens_decoder": 5}', '{"added_tokens_decoder": {"x": {}}}']
)
def test_a_tokenizer_config_that_tells_nothing(
    tmp_path: Path, kimi: Contract, rank_lines: list[bytes], config: str | None
) -> None:
    source = write_folder(tmp_path, rank_lines, kimi.special)
    (tmp_path / "tokenizer_config.json").unlink()
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")
    with pytest.raises(ContractError, match=r"tokenizer_config\.json: (missing|expected added_tokens_decoder)"):
        load_vocabulary(kimi, source)


def test_sources_that_are_not_there(tmp_path: Path, kimi: Contract) -> None:
    for source, says in [
        (f"folder:{tmp_path}/none", "expected tiktoken.model with tokenizer_config.json, or tokenizer.json"),
        (f"folder:{tmp_path}", "expected tiktoken.model with"),
        (f"huggingface:{tmp_path}/none", "huggingface:.*none: "),
        ("splintr:none", "splintr:none: "),
        ("elsewhere:x", "expected splintr:NAME, folder:PATH or huggingface:NAME"),
    ]:
        with pytest.raises(ContractError, match=says):
            load_vocabulary(kimi, source)


# --- tokenizer.json --------------------------------------------------------------------------------

TINY = """
name = "tiny"
title = "Tiny"
models = ["tiny"]
default_mode = "plain"
vocab_size = 300
think_open_in = "never"
markers = ["<|end|>"]
[vocabulary]
from = "folder:unset"
base_tokens = 260
[special]
"<|end|>" = 260
"<|user|>" = 261
[terminals]
stop = "<|end|>"
tool_calls = "<|end|>"
[finish]
stop = ["stop"]
length = ["length"]
tool_calls = ["tool_calls"]
[modes.plain]
output = ["{content}", "{terminal}"]
prompt_ends_with = []
"""
MERGES = [("a", "b"), ("ab", "c"), ("Ġ", "t"), ("Ã", "©")]


def tiny_tokenizer(added: dict[str, int]) -> Tokenizer:
    """A byte-level BPE with 256 bytes and four merges; `added` must be 260, 261 … in order."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate([*alphabet, *("".join(pair) for pair in MERGES)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(added))
    return tokenizer


def save_tiny(folder: Path, added: dict[str, int]) -> None:
    tokenizer = tiny_tokenizer(added)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(str(folder))
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("kind", ["folder", "huggingface"])
def test_a_tokenizer_json_gives_the_same_ids_from_file_and_through_transformers(tmp_path: Path, kind: str) -> None:
    save_tiny(tmp_path, {"<|end|>": 260, "<|user|>": 261})
    contract = parse_contract(TINY.encode(), "tiny.toml")
    vocabulary = load_vocabulary(contract, f"{kind}:{tmp_path}")
    plain = tiny_tokenizer({})
    for text in (*PROBES, "abc abcab the é \n", "<|end|>"):
        expected = plain.encode(text).ids
        assert vocabulary.encode_ordinary(text) == expected
        assert lists(*vocabulary.encode_batch([text])) == [expected]
        assert vocabulary.referee.encode(text) == expected
        assert vocabulary.decode_bytes(expected) == text.encode()
        assert not {260, 261} & set(expected)
    assert vocabulary.encode_rendered("abc<|end|>") == [*plain.encode("abc").ids, 260]
    assert np.array_equal(vocabulary.encode_batch([])[1], [0])


# (what is wrong, tokens that were added, the contract's change, what the error says)
TINY_FAULTS = [
    ("ids swapped", ["<|user|>", "<|end|>"], ("", ""), r"id of <\|end\|> .*expected 260, found 261"),
    ("no added tokens", [], ("", ""), r"id of <\|end\|> .*expected 260, found None"),
    ("fewer base tokens", ["<|end|>", "<|user|>"], ("base_tokens = 260", "base_tokens = 200"), "with 200 base tokens"),
    (
        "another vocabulary than the contract's",
        ["<|end|>", "<|user|>"],
        ("base_tokens = 260", f'base_tokens = 260\nranks_sha256 = "{"0" * 64}"'),
        "sha256 of the rank file: expected 0000",
    ),
]


@pytest.mark.parametrize(("added", "change", "says"), [f[1:] for f in TINY_FAULTS], ids=[f[0] for f in TINY_FAULTS])
def test_tokenizer_files_that_do_not_fit(tmp_path: Path, added: list[str], change: tuple[str, str], says: str) -> None:
    tiny_tokenizer({name: 260 + i for i, name in enumerate(added)}).save(str(tmp_path / "tokenizer.json"))
    contract = parse_contract(TINY.replace(*change).encode() if change[0] else TINY.encode(), "tiny.toml")
    with pytest.raises(ContractError, match=says):
        load_vocabulary(contract, f"folder:{tmp_path}")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"model": {"vocab": []}}', '{"model": {"vocab": {"▁the": 0}}}'])
def test_what_is_no_byte_level_tokenizer(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(ContractError, match=r"contract tiny: folder:.*: expected a byte-level BPE tokenizer\.json"):
        load_vocabulary(parse_contract(TINY.encode(), "tiny.toml"), f"folder:{tmp_path}")


def test_code_of_a_repository_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}), encoding="utf-8"
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "evil"}), encoding="utf-8")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    with pytest.raises(ContractError, match="huggingface:"):
        load_vocabulary(parse_contract(TINY.encode(), "tiny.toml"), f"huggingface:{tmp_path}")
    assert not (tmp_path / "ran").exists()
