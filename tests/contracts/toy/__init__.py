"""The toy model: its contract beside this file, and its vocabulary, written where a test wants it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from toolkit.contract import Contract, read_contract
from toolkit.engines import byte_letters
from toolkit.vocabulary import Vocabulary, load_vocabulary

CONTRACT = Path(__file__).with_name("toy.toml")
WORDS = range(12, 144)
BYTES = dict(enumerate(range(144, 400)))


def toy() -> Contract:
    """The toy contract."""
    return read_contract(CONTRACT)


def word(token_id: int) -> str:
    """What an ordinary id of the toy model says, where a test says nothing else."""
    return f"w{token_id} "


def toy_vocabulary(folder: Path, words: Mapping[int, str] | None = None) -> Vocabulary:
    """The toy vocabulary, through a tokenizer.json in `folder`; `words` says what some ids stand for."""
    letters = {byte: letter for letter, byte in byte_letters().items()}
    texts = {0: "w0 ", **{i: word(i) for i in WORDS}, **(words or {})}
    vocab = {"".join(letters[byte] for byte in text.encode()): i for i, text in texts.items()}
    vocab |= {letters[byte]: i for byte, i in BYTES.items()}
    vocab |= toy().special
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"w\d+ "), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in toy().special])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return load_vocabulary(toy(), f"folder:{folder}")
