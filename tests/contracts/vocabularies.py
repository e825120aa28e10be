"""Vocabularies, one at a time, and HF tokenizers built from the same tokens by another road than ours."""

from __future__ import annotations

from functools import lru_cache

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from toolkit.contract import read_contract
from toolkit.engines import byte_letters
from toolkit.vocabulary import Vocabulary, load_vocabulary

LATIN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    (
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
)
SPLITS = {
    "qwen3": (LATIN.replace("DIGITS", ""),),
    "glm-4.5": (LATIN.replace("DIGITS", "{1,3}"),),
    "llama-3": (LATIN.replace("DIGITS", "{1,3}"),),
    "deepseek-r1": DEEPSEEK,
}
"""Contract → the expressions by which the model's published tokenizer.json splits text, in order."""


@lru_cache(maxsize=1)
def loaded(name: str) -> Vocabulary:
    """The vocabulary of a shipped contract. Only the last one is kept: with its engines it takes some 300 MB, and ten
    of them would make every fork of the tests that follow slow (see conftest.py for the order of tests)."""
    return load_vocabulary(read_contract(name))


@lru_cache(maxsize=1)
def published(name: str) -> Tokenizer:
    """A byte-level BPE as the model's tokenizer.json has it: splits in sequence, and merges in place of ranks."""
    letters = {byte: letter for letter, byte in byte_letters().items()}
    base = {token: i for i, token in enumerate(loaded(name).base) if token}
    written = {token: "".join(letters[byte] for byte in token) for token in base}
    merges = [pair for token in base for pair in _ways_to_make(token, base)]
    written_merges = [(written[left], written[right]) for left, right in merges]
    tokenizer = Tokenizer(
        models.BPE(vocab={written[t]: i for t, i in base.items()}, merges=written_merges, ignore_merges=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[name]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _ways_to_make(token: bytes, ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Pairs of tokens that a token consists of, as converters of rank files list them: the lowest ranks first."""
    pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
    found = [(left, right) for left, right in pairs if left in ranks and right in ranks]
    return sorted(found, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
