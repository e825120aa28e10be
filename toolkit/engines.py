"""The engines that turn text into ids: gigatoken, splintr-rs, fastokens, tiktoken and HF tokenizers behind one face.

Each is imported where it is made: a vocabulary that needs two of them does not pay for four.
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from toolkit.errors import ContractError

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.uint64]


class Engine(Protocol):
    """An encoder that never turns text which spells a special token into that token.

    Attributes:
        distribution: The installed package that it is.
    """

    distribution: ClassVar[str]

    def doubts(self, text: str) -> bool:
        """Whether its ids of this text may be others than the referee's."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of one text."""
        ...

    def encode_packed(self, texts: Sequence[str]) -> list[bytes]:
        """`encode` of each text, 4 bytes an id as they lie in memory: in half the time where an engine need not make an
        object of each id."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """Ids of all texts in one array, and `len(texts) + 1` offsets into it."""
        ...


def named(engine: Engine) -> str:
    """The package of an engine with its version."""
    return f"{engine.distribution} {version(engine.distribution)}"


def rank_lines(base: Sequence[bytes]) -> bytes:
    """The base tokens as a rank file has them; a hole has no line."""
    return b"".join(b"%s %d\n" % (base64.b64encode(token), i) for i, token in enumerate(base) if token)


_NEVER_IN_UTF8 = (0xC0, 0xC1, *range(0xF8, 0x100))


def filled(base: Sequence[bytes]) -> list[bytes]:
    """The base tokens, with a pair of bytes that no text has in every hole: for engines that need all ids."""
    taken = set(base)
    unused = (pair for pair in map(bytes, product(_NEVER_IN_UTF8, repeat=2)) if pair not in taken)
    return [token or next(unused) for token in base]


def byte_letters() -> dict[str, int]:
    """The letters that byte-level tokenizers write for bytes (GPT-2's table), letter → byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(hidden)}


def tokenizer_json(base: Sequence[bytes], pattern: str) -> bytes:
    """A byte-level tokenizer.json that merges by rank: every way to make a token of two others is a merge."""
    letters = {byte: letter for letter, byte in byte_letters().items()}
    ranks = {token: i for i, token in enumerate(base) if token}
    written = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = [
        (written[left], written[right])
        for token in ranks
        for left, right in ((token[:i], token[i:]) for i in range(1, len(token)))
        if left in ranks and right in ranks
    ]
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {
        "type": "BPE",
        "ignore_merges": True,
        "vocab": {written[token]: i for token, i in ranks.items()},
        "merges": merges,
    }
    return msgspec.json.encode(
        {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, to_bytes]},
            "decoder": to_bytes,
            "model": model,
        }
    )


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Ids, Offsets]:
    lengths = np.fromiter((len(ids) for ids in lists), dtype=np.uint64, count=len(lists))
    offsets = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])
    flat = np.fromiter((i for ids in lists for i in ids), dtype=np.uint32, count=int(offsets[-1]))
    return flat, offsets


def _packed(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype=np.uint32).tobytes()


_LONG_S = "\u017f"
"""It is an s where letters' case does not matter, but not to every engine: `'ſ` is a piece of its own in patterns that
have `(?i:'s)`."""

_NEWER = (
    (0x88F, 0x88F), (0xC5C, 0xC5C), (0xCDC, 0xCDC), (0x1ACF, 0x1ADD), (0x1AE0, 0x1AEB), (0xA7CE, 0xA7CF),
    (0xA7D2, 0xA7D2), (0xA7D4, 0xA7D4), (0xA7F1, 0xA7F1), (0x10940, 0x10959), (0x10EC5, 0x10EC7), (0x10EFA, 0x10EFB),
    (0x11B60, 0x11B67), (0x11DB0, 0x11DDB), (0x11DE0, 0x11DE9), (0x16EA0, 0x16EB8), (0x16EBB, 0x16ED3),
    (0x16FF2, 0x16FF6), (0x187F8, 0x187FF), (0x18D09, 0x18D1E), (0x18D80, 0x18DF2), (0x1E6C0, 0x1E6DE),
    (0x1E6E0, 0x1E6F5), (0x1E6FE, 0x1E6FF), (0x2B73A, 0x2B73F), (0x2CEA2, 0x2CEAD), (0x323B0, 0x33479),
)  # fmt: skip
"""First and last of the letters, marks and digits that came with Unicode 17. tiktoken 0.14 has Unicode 16, in which
they are none. Found by holding each code point, in several surroundings, against it."""


@cache
def _newer() -> npt.NDArray[np.bool_]:
    """Of each code point whether it is a newer one, up to one past the last, which stands for all that follow."""
    found = np.zeros(_NEWER[-1][1] + 2, dtype=np.bool_)
    for first, last in _NEWER:
        found[first : last + 1] = True
    return found


def _has_newer(text: str) -> bool:
    if text.isascii():
        return False
    # Through an array: a regular expression takes thirty times as long. Lone surrogates are left to the engine.
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return bool(_newer().take(points, mode="clip").any())


class Splintr:
    """splintr-rs, over rank lines or a tokenizer.json."""

    distribution: ClassVar[str] = "splintr-rs"

    def __init__(self, tokenizer: object, *, knows_specials: bool = True):
        self._tokenizer = tokenizer
        self._knows_specials = knows_specials

    @classmethod
    def from_ranks(cls, ranks: bytes, pattern: str) -> Splintr:
        """Over the lines of a rank file."""
        import splintr

        return cls(splintr.Tokenizer.from_bytes(ranks, pattern, {}), knows_specials=False)

    @classmethod
    def from_json(cls, document: bytes) -> Splintr:
        """Over a tokenizer.json."""
        import splintr

        return cls(splintr.from_json_bytes(document))

    def doubts(self, text: str) -> bool:
        """See `Engine`. Of the newer letters it knows those of Chinese, where a pattern tells them from others."""
        return _LONG_S in text or _has_newer(text)

    def encode(self, text: str) -> list[int]:
        """See `Engine`."""
        ids: list[int] = self._tokenizer.encode_ordinary(text)  # type: ignore[attr-defined]
        return ids

    def encode_packed(self, texts: Sequence[str]) -> list[bytes]:
        """See `Engine`."""
        if self._knows_specials:
            # Only lists can be had of it without special tokens.
            return [_packed(self.encode(text)) for text in texts]
        # One text after the other, with nothing between them that takes their place in the processor's caches, and not
        # as a batch, which other threads would take up.
        return [*map(self._tokenizer.encode_flat, texts)]  # type: ignore[attr-defined]

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """See `Engine`."""
        return _flat([self.encode(text) for text in texts])


class Gigatoken:
    """gigatoken, over base tokens by id: three times as fast as splintr-rs on text whose words it has seen.

    It splits text by schemes of its own, not by a pattern, and so takes only what is known to be one of them, and only
    vocabularies in which merges of two make every token. `gigatoken-cachefix` is the distribution that bounds what is
    remembered; the other one, of the same name in Python, is not used.
    """

    distribution: ClassVar[str] = "gigatoken-cachefix"

    def __init__(self, base: Sequence[bytes], scheme: str):
        from gigatoken.gigatoken_rs import BPETokenizer, set_max_cache_bytes

        # For the whole process, and for each tokenizer in it.
        set_max_cache_bytes(_REMEMBERED_BYTES)
        with _rank_file(rank_lines(filled(base))) as path:
            self._encode = BPETokenizer.from_tiktoken(path, scheme).encode

    @classmethod
    def of_pattern(cls, base: Sequence[bytes], pattern: str) -> Gigatoken | None:
        """The engine for this pattern; None where it has no scheme for it, cannot use the tokens or be given them as a
        file, or the package is not installed."""
        scheme = _schemes().get(pattern)
        if scheme is None:
            return None
        try:
            return cls(base, scheme)
        except (ImportError, ValueError, OSError):
            return None
        except BaseException as error:
            # A token that no merge of two makes is a panic, whose class can be had by its name alone.
            if type(error).__name__ != "PanicException":
                raise
            return None

    def doubts(self, text: str) -> bool:
        """See `Engine`. It knows the newer letters, as what they are."""
        return _has_newer(text)

    def encode(self, text: str) -> list[int]:
        """See `Engine`."""
        ids: list[int] = self._array(text).tolist()
        return ids

    def encode_packed(self, texts: Sequence[str]) -> list[bytes]:
        """See `Engine`."""
        return [self._array(text).tobytes() for text in texts]

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """See `Engine`."""
        arrays = [self._array(text) for text in texts]
        lengths = np.fromiter(map(len, arrays), dtype=np.uint64, count=len(arrays))
        offsets = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])
        return np.concatenate([np.zeros(0, np.uint32), *arrays]), offsets

    def _array(self, text: str) -> Ids:
        try:
            ids: Ids = self._encode(text)
        except TypeError:
            text.encode()  # what it calls no text are lone surrogates
            raise
        return ids


_REMEMBERED_BYTES = 48 << 20
"""What gigatoken may hold of words that it has encoded, the vocabulary's own among them: below 32 MB it forgets and
begins again too often, and above nothing is gained on text of one dataset."""


def _schemes() -> dict[str, str]:
    """Patterns that gigatoken has a scheme for, by which the same pieces come of any text."""
    import splintr

    return {splintr.KIMI_PATTERN: "kimi", splintr.QWEN2_PATTERN: "qwen2", splintr.O200K_BASE_PATTERN: "o200k"}


@contextmanager
def _rank_file(ranks: bytes) -> Iterator[Path]:
    """Rank lines as a file, for engines that read nothing else: in memory where the system has such files, so that a
    full disk stops no engine.

    Raises:
        OSError: it cannot be written, as where a process may write no file of that size.
    """
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("ranks.tiktoken"), "wb") as file:
            file.write(ranks)
            file.flush()
            yield Path(f"/proc/self/fd/{file.fileno()}")
        return
    with tempfile.NamedTemporaryFile(suffix=".tiktoken") as file:
        file.write(ranks)
        file.flush()
        yield Path(file.name)


class Fastokens:
    """fastokens, over base tokens by id.

    Of rank lines it makes merges, and so refuses vocabularies with tokens that no merge of two makes (Llama 3, GLM):
    those it gets as a tokenizer.json, in which a piece that is a token is that token.
    """

    distribution: ClassVar[str] = "fastokens"

    def __init__(self, base: Sequence[bytes], pattern: str):
        import fastokens

        try:
            self._tokenizer = self._from_ranks(rank_lines(filled(base)), pattern)
        except (ValueError, OSError):
            self._tokenizer = fastokens.Tokenizer.from_json_str(tokenizer_json(base, pattern).decode())

    @staticmethod
    def _from_ranks(ranks: bytes, pattern: str) -> Any:
        import fastokens

        with _rank_file(ranks) as path:
            return fastokens.Tokenizer.from_tiktoken(str(path), pattern=pattern)

    def doubts(self, text: str) -> bool:
        """See `Engine`."""
        return _LONG_S in text

    def encode(self, text: str) -> list[int]:
        """See `Engine`."""
        ids: list[int] = self.encode_batch([text])[0].tolist()
        return ids

    def encode_packed(self, texts: Sequence[str]) -> list[bytes]:
        """See `Engine`."""
        ids, offsets = self.encode_batch(texts)
        return [part.tobytes() for part in np.split(ids, offsets[1:-1].astype(np.int64))[: len(texts)]]

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """See `Engine`."""
        ids, offsets = self._tokenizer.encode_batch_flat(list(texts))
        return np.frombuffer(ids, dtype=np.uint32), np.frombuffer(offsets, dtype=np.uint64)


class Tiktoken:
    """tiktoken, over tokens and their ids: the reference."""

    distribution: ClassVar[str] = "tiktoken"

    def __init__(self, name: str, base: Sequence[bytes], pattern: str):
        import tiktoken

        ranks = {token: i for i, token in enumerate(base) if token}
        self._encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def doubts(self, text: str) -> bool:
        """See `Engine`."""
        return False

    def encode(self, text: str) -> list[int]:
        """See `Engine`."""
        text.encode()  # tiktoken itself replaces lone surrogates in silence
        return self._encoding.encode_ordinary(text)

    def encode_packed(self, texts: Sequence[str]) -> list[bytes]:
        """See `Engine`."""
        return [_packed(self.encode(text)) for text in texts]

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """See `Engine`."""
        return _flat(self._encoding.encode_ordinary_batch(list(texts), num_threads=2))


class HuggingFace:
    """HF tokenizers, over a tokenizer.json: the reference for that."""

    distribution: ClassVar[str] = "tokenizers"

    def __init__(self, document: bytes):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ContractError("a tokenizer.json needs the extra: pip install 'tokenproof[huggingface]'") from None
        self._tokenizer = Tokenizer.from_str(document.decode())

    def doubts(self, text: str) -> bool:
        """See `Engine`."""
        return False

    def encode(self, text: str) -> list[int]:
        """See `Engine`."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_packed(self, texts: Sequence[str]) -> list[bytes]:
        """See `Engine`."""
        return [_packed(self.encode(text)) for text in texts]

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """See `Engine`."""
        batch = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return _flat([encoding.ids for encoding in batch])
