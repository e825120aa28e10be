"""Vocabularies: id ↔ bytes, and the engines that turn text into ids.

Three engines, so that nothing is its own witness:

* `encode_ordinary`: the rebuild's engine (gigatoken, or splintr-rs where that cannot be used; HF tokenizers for a
  tokenizer.json);
* `encode_batch`: the audit's engine (fastokens; splintr-rs for a tokenizer.json);
* `referee`: tiktoken, built from the same base tokens, which decides where engines may differ.

splintr-rs 0.22 and fastokens 0.3.5 differ from tiktoken where `'ſ` (U+017F) meets `(?i:'s)`, and gigatoken 0.10 and
splintr-rs at letters that tiktoken 0.14 does not know yet: of all code points, each in ten surroundings, at no other.
Each engine says which texts it doubts, and those always go to the referee.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from toolkit.contract import Contract
from toolkit.engines import (
    Engine,
    Fastokens,
    Gigatoken,
    HuggingFace,
    Ids,
    Offsets,
    Splintr,
    Tiktoken,
    byte_letters,
    named,
    rank_lines,
)
from toolkit.errors import ContractError
from toolkit.vocabulary_files import added_tokens, normalizer_of, read_ranks

PROBES = (
    # Texts on which all engines must agree before any of them is used.
    "Hello, world!  It's 2026.\n\n\tdef f(x):\r\n    return x**2\n",
    "你好，世界。1234567890 naïve Ångström 안녕하세요 🙂‍↔️ e\u0301",
    " leading space, trailing space ",
    "a\u017fb'\u017fSc",
    "",
)


@dataclass(frozen=True, slots=True)
class ProofLine:
    """One thing that was checked when a vocabulary was loaded.

    `about` is the special spelling or the text that it concerns; None where it concerns the whole.
    """

    what: str
    expected: str
    found: str
    about: str | None = None

    @property
    def holds(self) -> bool:
        """Whether what was expected was found."""
        return self.expected == self.found


@dataclass(frozen=True, slots=True)
class Proof:
    """What a contract and its vocabulary owe each other.

    Attributes:
        lines: One for each claim.
        engines: Package and version of what encodes, by what for: rebuild, audit, referee.
    """

    lines: tuple[ProofLine, ...]
    engines: Mapping[str, str]

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(line.holds for line in self.lines)


class Vocabulary:
    """The vocabulary of one contract.

    Attributes:
        size: Ids run from 0 to size − 1.
        base: Bytes of each base token, by id; empty where the contract has a hole.
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
        self._by_letter = [
            (letter, re.compile(re.escape(letter) + f"(?:{'|'.join(re.escape(s[1:]) for s in family)})"))
            for letter, family in _by_first_letter(contract.special)
        ]

    @cached_property
    def referee(self) -> Engine:
        """The reference engine: slow, and right by definition."""
        return self._make_referee()

    def forget_referee(self) -> None:
        """Free the memory of the referee, some 40 MB, for whoever will hardly ask it; it is made again if they do."""
        self.__dict__.pop("referee", None)

    @cached_property
    def _unproved_engine(self) -> Engine:
        return self._make_second_engine()

    @cached_property
    def _second_engine(self) -> Engine:
        engine = self._unproved_engine
        for text in PROBES:
            if not engine.doubts(text):
                expected, found = self.referee.encode(text), engine.encode(text)
                if expected != found:
                    raise ContractError(
                        f"contract {self.contract.name}: audit engine on {text[:24]!r}: "
                        f"expected {expected}, found {found}"
                    )
        return engine

    @property
    def engines(self) -> dict[str, str]:
        """Package and version of what encodes, by what for."""
        roles = {"rebuild": self._engine, "audit": self._unproved_engine, "referee": self.referee}
        return {role: named(engine) for role, engine in roles.items()}

    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of `text`, in which nothing is special.

        Raises:
            UnicodeEncodeError: `text` holds a lone surrogate.
        """
        if self._engine.doubts(text):
            return self.referee.encode(text)
        return self._engine.encode(text)

    def encode_packed(self, texts: Sequence[str]) -> list[bytes]:
        """`encode_ordinary` of each of several texts, one right after the other, which takes half the time.

        Returns:
            Of each text its ids as they lie in memory, 4 bytes each.

        Raises:
            UnicodeEncodeError: a text holds a lone surrogate.
        """
        odd = [i for i, text in enumerate(texts) if self._engine.doubts(text)]
        if not odd:
            return self._engine.encode_packed(texts)
        judged = dict(zip(odd, self.referee.encode_packed([texts[i] for i in odd]), strict=True))
        encoded = iter(self._engine.encode_packed([text for i, text in enumerate(texts) if i not in judged]))
        return [judged[i] if i in judged else next(encoded) for i in range(len(texts))]

    def encode_rendered(self, text: str) -> list[int]:
        """Ids of a rendered prompt: text that spells a special token *is* that token, as on a server, and all else
        is normalised as the model's tokenizer does it. Replies never are: their ids stand for their very bytes.
        """
        ids: list[int] = []
        for stretch in self.rendered(text):
            ids += [stretch] if isinstance(stretch, int) else self.encode_ordinary(stretch)
        return ids

    def rendered(self, text: str) -> list[str | int]:
        """What the ids of a rendered prompt are made of: texts to encode as ordinary ones, and ids between them."""
        stretches: list[str | int] = []
        at = 0
        for match in self._split.finditer(text) if self.specials_in(text) else ():
            if match.start() > at:
                stretches.append(self._normalised(text[at : match.start()]))
            stretches.append(self.special[match.group()])
            at = match.end()
        if at < len(text):
            stretches.append(self._normalised(text[at:]))
        return stretches

    def _normalised(self, text: str) -> str:
        form = self.contract.vocabulary.normalizer
        return text if form is None else unicodedata.normalize(form, text)

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """Ids of all texts by the audit's engine: one flat array, and `len(texts) + 1` offsets."""
        ids, offsets = self._second_engine.encode_batch(texts)
        judged = [i for i, text in enumerate(texts) if self._second_engine.doubts(text)]
        if not judged:
            return ids, offsets
        parts = np.split(ids, offsets[1:-1].astype(np.int64))
        for i in judged:
            parts[i] = np.asarray(self.referee.encode(texts[i]), dtype=np.uint32)
        lengths = np.fromiter((len(p) for p in parts), dtype=np.uint64, count=len(parts))
        return np.concatenate(parts), np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])

    def make_engines(self) -> None:
        """Make what is made when it is first needed, before several threads need it at once."""
        _ = self.referee, self._second_engine, self.token_bytes

    def make_shared(self) -> None:
        """Make of that what a process that is forked from this one can use, too: encoding would begin threads, which a
        fork leaves behind."""
        _ = self.referee, self._unproved_engine, self.token_bytes

    @cached_property
    def token_bytes(self) -> pa.LargeBinaryArray:
        """Bytes of each id, by id; special ids as they are spelled, ids without a token as empty."""
        table = [*self.base, *([b""] * (self.size - len(self.base)))]
        for spelling, token_id in self.special.items():
            table[token_id] = spelling.encode()
        edges = np.zeros(len(table) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, table), dtype=np.int64, count=len(table)), out=edges[1:])
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(b"".join(table))]
        return pa.Array.from_buffers(pa.large_binary(), len(table), buffers)

    @cached_property
    def id_of_bytes(self) -> Mapping[bytes, int]:
        """Bytes → base id; special ids, which no text stands for, are not among them."""
        special = set(self.special.values())
        return {token: i for i, token in enumerate(self.base) if token and i not in special}

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes that `ids` stand for, special ids spelled out.

        Raises:
            IndexError: an id is outside the vocabulary.
        """
        if len(ids) and not (min(ids) >= 0 and max(ids) < self.size):
            raise IndexError(f"ids outside 0 to {self.size - 1}: {min(ids)} to {max(ids)}")
        base, spelled = self.base, self._spelled
        return b"".join(base[i] if i < len(base) and i not in spelled else spelled.get(i, "").encode() for i in ids)

    def spelling_of(self, token_id: int) -> str | None:
        """How a special id is spelled; None for other ids."""
        return self._spelled.get(token_id)

    def specials_in(self, text: str) -> list[str]:
        """The special spellings that stand in `text`, in order."""
        for letter, pattern in self._by_letter:
            # A pattern with one letter before all else is six times as fast as one that may begin with several.
            if letter in text and pattern.search(text):
                return self._split.findall(text)
        return []


def _by_first_letter(spellings: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    for letter in sorted({spelling[0] for spelling in spellings}):
        yield letter, [spelling for spelling in spellings if spelling[0] == letter]


def load_vocabulary(contract: Contract, source: str | None = None) -> Vocabulary:
    """Load the vocabulary of `contract` (or another `source` of it) and prove it.

    Raises:
        ContractError: it cannot be found, or is not the one that the contract describes.
    """
    with _engine_faults(contract):
        vocabulary = _load(contract, source or contract.vocabulary.source)
        for line in prove(vocabulary):
            if not line.holds:
                raise ContractError(
                    f"contract {contract.name}: vocabulary {vocabulary.origin}: {line.what}: "
                    f"expected {line.expected}, found {line.found}"
                )
    return vocabulary


def proof_of(contract: Contract, source: str | None = None) -> Proof:
    """The proof of a contract's vocabulary, whether it holds or not, the audit's engine included.

    Raises:
        ContractError: the vocabulary cannot be loaded at all.
    """
    with _engine_faults(contract):
        vocabulary = _load(contract, source or contract.vocabulary.source)
        return Proof(lines=(*prove(vocabulary), *_prove_audit_engine(vocabulary)), engines=vocabulary.engines)


@contextmanager
def _engine_faults(contract: Contract) -> Iterator[None]:
    """Engines are native code: files and patterns that they cannot use end in a ValueError, a bare Exception, or a
    panic, which is not even an Exception. Each of them speaks of the contract's vocabulary.
    """
    try:
        yield
    except (ContractError, OSError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 (panics have no other base)
        reason = (str(error).splitlines() or [""])[0][:200]
        raise ContractError(
            f"contract {contract.name}: no engine can use the vocabulary and pattern: {type(error).__name__}: {reason}"
        ) from None


def prove(vocabulary: Vocabulary) -> Iterator[ProofLine]:
    """Everything that a contract and its vocabulary owe each other, one line per claim."""
    contract = vocabulary.contract
    spec = contract.vocabulary
    yield ProofLine("base tokens", str(spec.base_tokens), str(len(vocabulary.base)))
    empty = sorted(i for i, token in enumerate(vocabulary.base) if not token)
    if spec.holes or empty:
        yield ProofLine("holes between them", _short(sorted(spec.holes)), _short(empty))
    if spec.ranks_sha256 is not None:
        yield ProofLine("sha256 of the rank file", spec.ranks_sha256, vocabulary.ranks_sha256)
    for spelling, token_id in contract.special.items():
        witness = vocabulary.witnesses.get(spelling)
        yield ProofLine(f"id of {spelling} in the vocabulary's own table", str(token_id), str(witness), spelling)
        yield ProofLine(f"{spelling} encodes to", str([token_id]), str(vocabulary.encode_rendered(spelling)), spelling)
        decoded = vocabulary.decode_bytes([token_id]).decode("utf-8", "replace")
        yield ProofLine(f"{token_id} decodes to", repr(spelling), repr(decoded), spelling)
        ordinary = set(vocabulary.encode_ordinary(spelling)) & set(contract.special.values())
        yield ProofLine(f"{spelling} as ordinary text holds special ids", "[]", str(sorted(ordinary)), spelling)
    for text in PROBES:
        expected = vocabulary.referee.encode(text)
        yield ProofLine(f"rebuild engine on {text[:24]!r}", str(expected), str(vocabulary.encode_ordinary(text)), text)
        yield ProofLine(f"decoded {text[:24]!r}", repr(text.encode()), repr(vocabulary.decode_bytes(expected)), text)


def _prove_audit_engine(vocabulary: Vocabulary) -> Iterator[ProofLine]:
    """That the engine of the audit, which is made when it is first used, can use the vocabulary and agrees."""
    ids, offsets = vocabulary.encode_batch(PROBES)
    found = np.split(ids, offsets[1:-1].astype(np.int64))
    for text, encoded in zip(PROBES, found, strict=True):
        yield ProofLine(
            f"audit engine on {text[:24]!r}", str(vocabulary.referee.encode(text)), str(encoded.tolist()), text
        )


def _short(ids: Sequence[int]) -> str:
    """Some ids for a line of the proof."""
    return f"{list(ids)}" if len(ids) <= 20 else f"{list(ids[:20])[:-1]}, … ({len(ids):,} ids)]"


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
        holes = contract.vocabulary.holes
        base = [b"" if i in holes else bundled.decode_token_bytes(i) for i in range(contract.vocabulary.base_tokens)]
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
            base = read_ranks(ranks, contract.vocabulary.holes)
            witnesses = added_tokens(folder / "tokenizer_config.json")
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


def _from_ranks(contract: Contract, base: list[bytes], *, origin: str, witnesses: Mapping[str, int]) -> Vocabulary:
    pattern = _pattern(contract)
    ranks = rank_lines(base)
    return Vocabulary(
        contract,
        base,
        engine=Gigatoken.of_pattern(base, pattern) or Splintr.from_ranks(ranks, pattern),
        second_engine=lambda: Fastokens(base, pattern),
        referee=lambda: Tiktoken(contract.name, base, pattern),
        ranks_sha256=hashlib.sha256(ranks).hexdigest(),
        origin=origin,
        witnesses=witnesses,
    )


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
        letters = byte_letters()
        for token, token_id in ordinary.items():
            base[token_id] = bytes(letters[c] for c in token)
        normalizer = normalizer_of(document.get("normalizer"))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ContractError(
            f"contract {contract.name}: {origin}: expected a byte-level BPE tokenizer.json with "
            f"{contract.vocabulary.base_tokens} base tokens: {error!r}"
        ) from None
    if normalizer != contract.vocabulary.normalizer:
        raise ContractError(
            f"contract {contract.name}: {origin}: vocabulary.normalizer: "
            f"expected {contract.vocabulary.normalizer}, found {normalizer}"
        )
    taken_out: dict[str, Any] = {"added_tokens": [], "post_processor": None, "normalizer": None}
    model_alone = {"model": {**document["model"], "vocab": ordinary}}
    plain = msgspec.json.encode({**document, **taken_out, **model_alone})
    return Vocabulary(
        contract,
        base,
        engine=HuggingFace(plain),
        second_engine=lambda: Splintr.from_json(plain),
        referee=lambda: HuggingFace(plain),
        ranks_sha256=hashlib.sha256(rank_lines(base)).hexdigest(),
        origin=origin,
        witnesses=added,
    )
