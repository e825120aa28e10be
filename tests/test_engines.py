"""Engines by themselves: the one that rebuilds, the one that stands in for it, and the referee give the same ids."""

from __future__ import annotations

import itertools
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import ModuleType

import numpy as np
import pytest
import splintr
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.contract import Contract, read_contract
from toolkit.engines import Engine, Fastokens, Gigatoken, Splintr, Tiktoken, rank_lines
from toolkit.vocabulary import Vocabulary, load_vocabulary

from .test_vocabulary import TEXTS

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="gigatoken-cachefix is for Linux on x86-64",
)

SCHEMES = [
    ("kimi-k2.5", splintr.KIMI_PATTERN),
    ("qwen3", splintr.QWEN2_PATTERN),
    ("gpt-oss", splintr.O200K_BASE_PATTERN),
]
ODD = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture(scope="module", params=SCHEMES, ids=[name for name, _ in SCHEMES])
def engines(request: pytest.FixtureRequest) -> tuple[Engine, Engine]:
    """gigatoken and the referee, over one vocabulary."""
    name, pattern = request.param
    loaded = load_vocabulary(read_contract(name))
    made = Gigatoken.of_pattern(loaded.base, pattern)
    assert made is not None
    return made, loaded.referee


@given(text=st.one_of(TEXTS, ODD))
@settings(max_examples=400, deadline=None)
def test_gigatoken_splits_and_merges_as_the_pattern_says(engines: tuple[Engine, Engine], text: str) -> None:
    engine, referee = engines
    if engine.doubts(text):
        return
    expected = referee.encode(text)
    assert engine.encode(text) == expected
    # Another time, out of what it remembers.
    assert engine.encode_packed([text, "", text]) == [packed(expected), b"", packed(expected)]
    ids, offsets = engine.encode_batch([text, "", text])
    assert (ids.tolist(), offsets.tolist()) == (expected * 2, [0, len(expected), len(expected), 2 * len(expected)])


def paired() -> list[bytes]:
    """Base tokens by which each split shows in the ids: all bytes, and all pairs of them in an order of no meaning."""
    pairs = [bytes(pair) for pair in itertools.product(range(256), repeat=2)]
    Random(7).shuffle(pairs)
    return [*(bytes([byte]) for byte in range(256)), *pairs]


AROUND = ("{0}.b", "{0}\u0301x", "a{0}b", "{0}1234", "{0}'S", "!{0}!", "a{0}B", " {0} ", "中{0}", "\n{0}\n")
"""What stands beside a code point, so that it shows which class an engine has it in."""


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [pattern for _, pattern in SCHEMES], ids=[name for name, _ in SCHEMES])
def test_what_no_engine_doubts_is_the_same_beside_every_code_point(pattern: str) -> None:
    base = paired()
    referee = Tiktoken("paired", base, pattern)
    gigatoken = Gigatoken.of_pattern(base, pattern)
    assert gigatoken is not None
    points = [*range(0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0xE0200)]
    for engine in (gigatoken, Splintr.from_ranks(rank_lines(base), pattern), Fastokens(base, pattern)):
        sure = [letter for letter in map(chr, points) if not engine.doubts(letter)]
        assert len(sure) > len(points) - 4_800
        for start in range(0, len(sure), 512):
            text = "\nQ;".join(form.format(letter) for letter in sure[start : start + 512] for form in AROUND)
            assert engine.encode(text) == referee.encode(text), f"{type(engine).__name__}: {sure[start]!r} and later"


NEWER = ["\u088f", "\u0c5c", "\u1ad0", "\ua7ce", "\U00011de0", "\U00016ea0", "\U000323b0", "\U00033479"]


@pytest.mark.parametrize("letter", NEWER)
def test_letters_that_the_referee_does_not_know_yet_go_to_it(vocabulary: Vocabulary, letter: str) -> None:
    """A letter of Unicode 17 is part of a word for gigatoken, and none for tiktoken, which has Unicode 16."""
    text = f"x{letter}'s {letter}.b {letter}1234"
    assert vocabulary._engine.doubts(text)
    assert vocabulary._engine.encode(text) != vocabulary.referee.encode(text), "it was mended, and need not be doubted"
    expected = vocabulary.referee.encode(text)
    assert vocabulary.encode_ordinary(text) == expected
    assert vocabulary.encode_packed(["a", text, "中"])[1] == packed(expected)


@pytest.mark.parametrize("text", ["", "plain", "\u017f", "你好，世界。", "🙂‍↔️ é", "\ud800", "\U00033480\U0010ffff"])
def test_gigatoken_doubts_nothing_else(vocabulary: Vocabulary, text: str) -> None:
    assert not vocabulary._engine.doubts(text)


def test_a_referee_that_was_forgotten_is_made_again(vocabulary: Vocabulary) -> None:
    expected = vocabulary.referee.encode("A'\u017fst")
    vocabulary.forget_referee()
    assert "referee" not in vars(vocabulary)
    vocabulary.forget_referee()
    assert vocabulary.referee.encode("A'\u017fst") == expected


def packed(ids: list[int]) -> bytes:
    return np.asarray(ids, dtype=np.uint32).tobytes()


def test_gigatoken_is_what_rebuilds_kimi(vocabulary: Vocabulary) -> None:
    assert isinstance(vocabulary._engine, Gigatoken)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "a\ud800 b"])
def test_gigatoken_on_lone_surrogates(vocabulary: Vocabulary, text: str) -> None:
    for encode in (vocabulary._engine.encode, lambda text: vocabulary._engine.encode_packed(["a", text])):
        with pytest.raises(UnicodeEncodeError):
            encode(text)


def test_gigatoken_on_what_is_no_text(vocabulary: Vocabulary) -> None:
    wrong: list[object] = [None, 7, ["a"]]
    for value in wrong:
        with pytest.raises((TypeError, AttributeError)):
            vocabulary._engine.encode(value)  # type: ignore[arg-type]


_LETTERS = str.maketrans("0123456789", "ghijklmnop")
"""Of hexadecimal digits, so that each number is one word."""


def test_gigatoken_forgets_and_stays_right(vocabulary: Vocabulary) -> None:
    """More words than it may remember, so that it begins again in between: the same ids before and after."""
    from gigatoken.gigatoken_rs import get_max_cache_bytes

    engine = vocabulary._engine
    assert isinstance(engine, Gigatoken)
    assert get_max_cache_bytes() == 48 << 20
    counted: Callable[[], int] = engine._encode.__self__.cache_entries
    probe = "A sentence of words, and 7 numbers."
    before, most, fell = engine.encode(probe), 0, 0
    for start in range(1 << 24, (1 << 24) + 1_000_000, 2_000):
        words = " ".join(f"{number:x}".translate(_LETTERS) for number in range(start, start + 2_000))
        ids = engine.encode(words)
        if start % 64_000 == 0:
            assert ids == vocabulary.referee.encode(words)
        entries = counted()
        fell, most = fell + (entries < most), max(entries, most)
    assert fell
    assert most < 2_000_000
    assert engine.encode(probe) == before == vocabulary.referee.encode(probe)


def test_gigatoken_on_several_threads(vocabulary: Vocabulary) -> None:
    texts = [f"Thread {i}: " + " ".join(f"word{i}_{k * k}" for k in range(400)) for i in range(64)]
    expected = [packed(ids) for ids in map(vocabulary.referee.encode, texts)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: vocabulary._engine.encode_packed(texts), range(8)))
    assert found == [expected] * 8


# --- what stands in for it -------------------------------------------------------------------------


@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_splintr_gives_the_same(splintr_engine: Splintr, vocabulary: Vocabulary, text: str) -> None:
    if splintr_engine.doubts(text) or vocabulary._engine.doubts(text):
        return
    assert splintr_engine.encode(text) == vocabulary.referee.encode(text)
    assert splintr_engine.encode_packed([text]) == vocabulary._engine.encode_packed([text])


@pytest.fixture(scope="module")
def splintr_engine(vocabulary: Vocabulary) -> Splintr:
    return Splintr.from_ranks(rank_lines(vocabulary.base), splintr.KIMI_PATTERN)


def test_another_pattern_is_not_taken(vocabulary: Vocabulary) -> None:
    assert Gigatoken.of_pattern(vocabulary.base, splintr.KIMI_PATTERN + "|x") is None
    assert Gigatoken.of_pattern(vocabulary.base, splintr.LLAMA3_PATTERN) is None


def test_tokens_that_no_merge_makes_are_not_taken(capfd: pytest.CaptureFixture[str]) -> None:
    base = [bytes([byte]) for byte in range(256)] + [b"abc"]
    assert Gigatoken.of_pattern(base, splintr.KIMI_PATTERN) is None
    capfd.readouterr()  # the panic speaks


_NO_FILE = """
import resource, sys, tempfile
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
def refused(*_, **__): raise OSError("no folder for temporary files")
tempfile.NamedTemporaryFile = refused
from toolkit.engines import Fastokens, Gigatoken, filled
base = [bytes([byte]) for byte in range(256)] + [b"ab"]
assert Gigatoken.of_pattern(base, sys.argv[1]) is None
print(Fastokens(base, sys.argv[1]).encode("abba ab"))
"""


def test_engines_need_no_disk(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert Gigatoken.of_pattern(vocabulary.base, splintr.KIMI_PATTERN) is not None
    assert Fastokens(vocabulary.base, splintr.KIMI_PATTERN).encode("abba") == vocabulary.referee.encode("abba")


def test_where_no_file_may_be_written_other_ways_stand_in() -> None:
    # The limit holds for files in memory too. Ids: bytes as they are, and "ab" merged.
    done = subprocess.run(
        [sys.executable, "-c", _NO_FILE, splintr.KIMI_PATTERN], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [256, 98, 97, 32, 256]


class _Other(ModuleType):
    """The other distribution of the same name: it remembers without a bound, and cannot be told otherwise."""

    BPETokenizer = object


@pytest.mark.parametrize("installed", [None, _Other("gigatoken.gigatoken_rs")], ids=["none", "the other one"])
def test_without_the_package_splintr_rebuilds(
    kimi: Contract, monkeypatch: pytest.MonkeyPatch, installed: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "gigatoken.gigatoken_rs", installed)
    loaded = load_vocabulary(kimi)
    assert isinstance(loaded._engine, Splintr)
    assert loaded.encode_ordinary("Hello, world") == loaded.referee.encode("Hello, world")
