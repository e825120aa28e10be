"""Vocabularies: id ↔ bytes, and the engines that turn text into ids.

Three engines, so that nothing is its own witness:

* `encode_ordinary`: the rebuild's engine (splintr-rs; HF tokenizers for a tokenizer.json);
* `encode_batch`: the audit's engine (fastokens; splintr-rs for a tokenizer.json);
* `referee`: tiktoken, built from the same base tokens, which decides where engines may differ.

splintr-rs 0.22 and fastokens 0.3.5 differ from tiktoken where `'ſ` (U+017F) meets `(?i:'s)`: 35 of 200,000
fuzzed strings, each with that letter and none without. Texts with it always go to the referee.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.contract import Contract
from toolkit.errors import ContractError

REFEREE_CHARACTERS = "\u017f"
"""Characters on which the fast engines are known to differ from the referee."""

PROBES = (
    # Texts on which all engines must agree before any of them is used.
    "Hello, world!  It's 2026.\n\n\tdef f(x):\r\n    return x**2\n",
    "你好，世界。1234567890 naïve Ångström 안녕하세요 🙂‍↔️ e\u0301",
    " leading space, trailing space ",
    "a\u017fb'\u017fSc",
    "",
)

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.uint64]


class Engine(Protocol):
    """An encoder that never turns text which spells a special token into that token."""

    def encode(self, text: str) -> list[int]:
        """Ids of one text."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """Ids of all texts in one array, and `len(texts) + 1` offsets into it."""
        ...


@dataclass(frozen=True, slots=True)
class ProofLine:
    """One thing that was checked when a vocabulary was loaded."""

    what: str
    expected: str
    found: str

    @property
    def holds(self) -> bool:
        """Whether what was expected was found."""
        return self.expected == self.found


class Vocabulary:
    """The vocabulary of one contract.

    Attributes:
        size: Ids run from 0 to size − 1.
        base: Bytes of each base token, by id.
        special: The contract's special spellings and their ids.
        ranks_sha256: sha256 of the base tokens written as rank lines.
        origin: Where it was loaded from.
    """

    def __init__(
        self,
        contract: Contract,
        base: Sequence[bytes],
        *,
        engine: Engine,
        second_engine: Callable[[], Engine],
        referee: Callable[[], Engine],
        ranks_sha256: str,
        origin: str,
        witnesses: Mapping[str, int],
    ):
        self.contract = contract
        self.size = contract.vocab_size
        self.base = base
        self.special = contract.special
        self.ranks_sha256 = ranks_sha256
        self.origin = origin
        self.witnesses = witnesses
        self._engine = engine
        self._make_second_engine = second_engine
        self._make_referee = referee
        self._split = re.compile("|".join(re.escape(s) for s in sorted(contract.special, key=len, reverse=True)))
        self._spelled = {token_id: spelling for spelling, token_id in contract.special.items()}
        self._first_letters = {spelling[0] for spelling in contract.special}

    @cached_property
    def referee(self) -> Engine:
        """The reference engine: slow, and right by definition."""
        return self._make_referee()

    @cached_property
    def _second_engine(self) -> Engine:
        engine = self._make_second_engine()
        for text in PROBES:
            if not any(c in text for c in REFEREE_CHARACTERS):
                expected, found = self.referee.encode(text), engine.encode(text)
                if expected != found:
                    raise ContractError(
                        f"contract {self.contract.name}: audit engine on {text[:24]!r}: "
                        f"expected {expected}, found {found}"
                    )
        return engine

    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of `text`, in which nothing is special.

        Raises:
            UnicodeEncodeError: `text` holds a lone surrogate.
        """
        if any(c in text for c in REFEREE_CHARACTERS):
            return self.referee.encode(text)
        return self._engine.encode(text)

    def encode_rendered(self, text: str) -> list[int]:
        """Ids of a rendered prompt: text that spells a special token *is* that token, as on a server."""
        ids: list[int] = []
        at = 0
        for match in self._split.finditer(text):
            if match.start() > at:
                ids += self.encode_ordinary(text[at : match.start()])
            ids.append(self.special[match.group()])
            at = match.end()
        if at < len(text):
            ids += self.encode_ordinary(text[at:])
        return ids

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """Ids of all texts by the audit's engine: one flat array, and `len(texts) + 1` offsets."""
        ids, offsets = self._second_engine.encode_batch(texts)
        judged = [i for i, text in enumerate(texts) if any(c in text for c in REFEREE_CHARACTERS)]
        if not judged:
            return ids, offsets
        parts = np.split(ids, offsets[1:-1].astype(np.int64))
        for i in judged:
            parts[i] = np.asarray(self.referee.encode(texts[i]), dtype=np.uint32)
        lengths = np.fromiter((len(p) for p in parts), dtype=np.uint64, count=len(parts))
        return np.concatenate(parts), np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])

    @cached_property
    def token_bytes(self) -> pa.LargeBinaryArray:
        """Bytes of each id, by id; special ids as they are spelled, ids without a token as empty."""
        table = [*self.base, *([b""] * (self.size - len(self.base)))]
        for spelling, token_id in self.special.items():
            table[token_id] = spelling.encode()
        return pa.array(table, type=pa.large_binary())

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes that `ids` stand for, special ids spelled out.

        Raises:
            IndexError: an id is outside the vocabulary.
        """
        if len(ids) and not (min(ids) >= 0 and max(ids) < self.size):
            raise IndexError(f"ids outside 0 to {self.size - 1}: {min(ids)} to {max(ids)}")
        return b"".join(self.base[i] if i < len(self.base) else self._spelled.get(i, "").encode() for i in ids)

    def spelling_of(self, token_id: int) -> str | None:
        """How a special id is spelled; None for other ids."""
        return self._spelled.get(token_id)

    def specials_in(self, text: str) -> list[str]:
        """The special spellings that stand in `text`, in order."""
        return self._split.findall(text) if any(letter in text for letter in self._first_letters) else []


def load_vocabulary(contract: Contract, source: str | None = None) -> Vocabulary:
    """Load the vocabulary of `contract` (or another `source` of it) and prove it.

    Raises:
        ContractError: it cannot be found, or is not the one that the contract describes.
    """
    vocabulary = _load(contract, source or contract.vocabulary.source)
    for line in prove(vocabulary):
        if not line.holds:
            raise ContractError(
                f"contract {contract.name}: vocabulary {vocabulary.origin}: {line.what}: "
                f"expected {line.expected}, found {line.found}"
            )
    return vocabulary


def proof_of(contract: Contract, source: str | None = None) -> Iterator[ProofLine]:
    """The proof of a contract's vocabulary, whether it holds or not.

    Raises:
        ContractError: the vocabulary cannot be loaded at all.
    """
    yield from prove(_load(contract, source or contract.vocabulary.source))


def prove(vocabulary: Vocabulary) -> Iterator[ProofLine]:
    """Everything that a contract and its vocabulary owe each other, one line per claim."""
    contract = vocabulary.contract
    spec = contract.vocabulary
    yield ProofLine("base tokens", str(spec.base_tokens), str(len(vocabulary.base)))
    if spec.ranks_sha256 is not None:
        yield ProofLine("sha256 of the rank file", spec.ranks_sha256, vocabulary.ranks_sha256)
    for spelling, token_id in contract.special.items():
        witness = vocabulary.witnesses.get(spelling)
        yield ProofLine(f"id of {spelling} in the vocabulary's own table", str(token_id), str(witness))
        yield ProofLine(f"{spelling} encodes to", str([token_id]), str(vocabulary.encode_rendered(spelling)))
        yield ProofLine(
            f"{token_id} decodes to",
            repr(spelling),
            repr(vocabulary.decode_bytes([token_id]).decode("utf-8", "replace")),
        )
        ordinary = set(vocabulary.encode_ordinary(spelling)) & set(contract.special.values())
        yield ProofLine(f"{spelling} as ordinary text holds special ids", "[]", str(sorted(ordinary)))
    for text in PROBES:
        expected = vocabulary.referee.encode(text)
        yield ProofLine(f"rebuild engine on {text[:24]!r}", str(expected), str(vocabulary.encode_ordinary(text)))
        yield ProofLine(f"decoded {text[:24]!r}", repr(text.encode()), repr(vocabulary.decode_bytes(expected)))


# --- sources -----------------------------------------------------------------------------------


def _load(contract: Contract, source: str) -> Vocabulary:
    kind, _, name = source.partition(":")
    if kind == "splintr":
        return _from_splintr(contract, name)
    if kind == "folder":
        return _from_folder(contract, Path(name).expanduser())
    if kind == "huggingface":
        return _from_huggingface(contract, name)
    raise ContractError(
        f"contract {contract.name}: vocabulary source {source!r}; "
        "expected splintr:NAME, folder:PATH or huggingface:NAME"
    )


def _from_splintr(contract: Contract, name: str) -> Vocabulary:
    import splintr

    try:
        bundled = splintr.Tokenizer.from_pretrained(name)
        base = [bundled.decode_token_bytes(i) for i in range(contract.vocabulary.base_tokens)]
    except ValueError as error:
        raise ContractError(f"contract {contract.name}: splintr:{name}: {error}") from None
    witnesses = {}
    for spelling in contract.special:
        ids = bundled.encode_with_special(spelling)
        witnesses[spelling] = ids[0] if len(ids) == 1 else -1
    return _from_ranks(contract, base, origin=f"splintr:{name}", witnesses=witnesses)


def _from_folder(contract: Contract, folder: Path) -> Vocabulary:
    ranks = folder / "tiktoken.model"
    tokenizer_json = folder / "tokenizer.json"
    try:
        if ranks.is_file():
            base = list(_read_ranks(ranks))
            witnesses = _added_tokens(folder / "tokenizer_config.json")
            return _from_ranks(contract, base, origin=f"folder:{folder}", witnesses=witnesses)
        if tokenizer_json.is_file():
            return _from_tokenizer_json(contract, tokenizer_json.read_bytes(), origin=f"folder:{folder}")
    except OSError as error:
        raise ContractError(f"contract {contract.name}: {error.filename}: {error.strerror}") from None
    raise ContractError(
        f"contract {contract.name}: {folder}: expected tiktoken.model with tokenizer_config.json, or tokenizer.json"
    )


def _from_huggingface(contract: Contract, name: str) -> Vocabulary:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise ContractError(
            f"contract {contract.name}: huggingface:{name} needs the extra: pip install 'tokenproof[huggingface]'"
        ) from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ContractError(f"contract {contract.name}: huggingface:{name}: {reason}") from None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ContractError(
            f"contract {contract.name}: huggingface:{name}: the tokenizer is not a fast one, and its repository's "
            "own code is never run; give a folder with tiktoken.model or tokenizer.json instead"
        )
    return _from_tokenizer_json(contract, backend.to_str().encode(), origin=f"huggingface:{name}")


def _read_ranks(path: Path) -> Iterator[bytes]:
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line:
            continue
        token, _, rank = line.partition(b" ")
        try:
            if int(rank) != number - 1:
                raise ContractError(f"{path}: line {number}: expected rank {number - 1}, found {int(rank)}")
            yield base64.b64decode(token, validate=True)
        except (ValueError, binascii.Error):
            raise ContractError(f"{path}: line {number}: expected base64 and a rank, found {line[:40]!r}") from None


def _added_tokens(path: Path) -> dict[str, int]:
    """Special spellings and ids of a tokenizer_config.json."""
    try:
        config = msgspec.json.decode(path.read_bytes())
        return {entry["content"]: int(token_id) for token_id, entry in config["added_tokens_decoder"].items()}
    except FileNotFoundError:
        raise ContractError(f"{path}: missing; it holds the ids of special tokens") from None
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ContractError(f"{path}: expected added_tokens_decoder {{id: {{content}}}}: {error!r}") from None


def _from_ranks(contract: Contract, base: list[bytes], *, origin: str, witnesses: Mapping[str, int]) -> Vocabulary:
    pattern = _pattern(contract)
    ranks = _rank_lines(base)
    return Vocabulary(
        contract,
        base,
        engine=_Splintr.from_ranks(ranks, pattern),
        second_engine=lambda: _Fastokens(ranks, pattern),
        referee=lambda: _Tiktoken(contract.name, base, pattern),
        ranks_sha256=hashlib.sha256(ranks).hexdigest(),
        origin=origin,
        witnesses=witnesses,
    )


def _rank_lines(base: Sequence[bytes]) -> bytes:
    return b"".join(b"%s %d\n" % (base64.b64encode(token), i) for i, token in enumerate(base))


def _pattern(contract: Contract) -> str:
    pattern = contract.vocabulary.pattern
    if pattern is None:
        raise ContractError(f"contract {contract.name}: vocabulary.pattern is needed for a rank file")
    if pattern.startswith("splintr:"):
        import splintr

        constant = pattern.removeprefix("splintr:")
        named = getattr(splintr, constant, None)
        if not isinstance(named, str):
            raise ContractError(f"contract {contract.name}: vocabulary.pattern: splintr has no {constant}")
        return named
    return pattern


def _from_tokenizer_json(contract: Contract, content: bytes, *, origin: str) -> Vocabulary:
    """A byte-level BPE tokenizer.json, its added tokens taken out so that text never becomes one."""
    try:
        document = msgspec.json.decode(content)
        added = {entry["content"]: entry["id"] for entry in document.get("added_tokens", [])}
        model = document["model"]["vocab"]
        ordinary = {token: token_id for token, token_id in model.items() if token not in added}
        base = [b""] * contract.vocabulary.base_tokens
        letters = _byte_letters()
        for token, token_id in ordinary.items():
            base[token_id] = bytes(letters[c] for c in token)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ContractError(
            f"contract {contract.name}: {origin}: expected a byte-level BPE tokenizer.json with "
            f"{contract.vocabulary.base_tokens} base tokens: {error!r}"
        ) from None
    plain = msgspec.json.encode({**document, "added_tokens": [], "post_processor": None})
    return Vocabulary(
        contract,
        base,
        engine=_HuggingFace(plain),
        second_engine=lambda: _Splintr.from_json(plain),
        referee=lambda: _HuggingFace(plain),
        ranks_sha256=hashlib.sha256(_rank_lines(base)).hexdigest(),
        origin=origin,
        witnesses=added,
    )


def _byte_letters() -> dict[str, int]:
    """The letters that byte-level tokenizers write for bytes (GPT-2's table), letter → byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(hidden)}


# --- engines -----------------------------------------------------------------------------------


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Ids, Offsets]:
    lengths = np.fromiter((len(ids) for ids in lists), dtype=np.uint64, count=len(lists))
    offsets = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])
    flat = np.fromiter((i for ids in lists for i in ids), dtype=np.uint32, count=int(offsets[-1]))
    return flat, offsets


class _Splintr:
    def __init__(self, tokenizer: object):
        self._tokenizer = tokenizer

    @classmethod
    def from_ranks(cls, ranks: bytes, pattern: str) -> _Splintr:
        import splintr

        return cls(splintr.Tokenizer.from_bytes(ranks, pattern, {}))

    @classmethod
    def from_json(cls, document: bytes) -> _Splintr:
        import splintr

        return cls(splintr.from_json_bytes(document))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode_ordinary(text)  # type: ignore[attr-defined]
        return ids

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        return _flat([self.encode(text) for text in texts])


class _Fastokens:
    def __init__(self, ranks: bytes, pattern: str):
        import fastokens

        with tempfile.NamedTemporaryFile(suffix=".tiktoken") as file:
            file.write(ranks)
            file.flush()
            self._tokenizer = fastokens.Tokenizer.from_tiktoken(file.name, pattern=pattern)

    def encode(self, text: str) -> list[int]:
        ids, _ = self.encode_batch([text])
        return [int(i) for i in ids]

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        ids, offsets = self._tokenizer.encode_batch_flat(list(texts))
        return np.frombuffer(ids, dtype=np.uint32), np.frombuffer(offsets, dtype=np.uint64)


class _Tiktoken:
    def __init__(self, name: str, base: Sequence[bytes], pattern: str):
        import tiktoken

        ranks = {token: i for i, token in enumerate(base)}
        self._encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def encode(self, text: str) -> list[int]:
        text.encode()  # tiktoken itself replaces lone surrogates in silence
        return self._encoding.encode_ordinary(text)

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        return _flat(self._encoding.encode_ordinary_batch(list(texts), num_threads=2))


class _HuggingFace:
    def __init__(self, document: bytes):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ContractError("a tokenizer.json needs the extra: pip install 'tokenproof[huggingface]'") from None
        self._tokenizer = Tokenizer.from_str(document.decode())

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        batch = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return _flat([encoding.ids for encoding in batch])
