"""Phrase lists: the shipped one, and a workspace's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.errors import ConfigError
from toolkit.phrases import SHIPPED, Phrases, extended, read_phrases, shortest

FEW = Phrases(refusals=("i can't do that", "no way"), boilerplate=("as an ai model",))


def test_without_a_file_the_shipped_phrases_hold(tmp_path: Path) -> None:
    assert read_phrases(tmp_path) == SHIPPED
    assert SHIPPED.refusals
    assert SHIPPED.boilerplate


def test_a_workspace_adds_and_takes_out(tmp_path: Path) -> None:
    (tmp_path / "phrases.toml").write_text('refusals = ["(nope|never), my friend"]\n', encoding="utf-8")
    assert read_phrases(tmp_path).refusals == (*SHIPPED.refusals, "(nope|never), my friend")
    found = extended(FEW, b'boilerplate = ["brought to you by"]\nwithout = ["no way"]', "here")
    assert found == Phrases(refusals=("i can't do that",), boilerplate=("as an ai model", "brought to you by"))


def test_lists_are_told_apart_by_their_hash() -> None:
    other = extended(FEW, b'refusals = ["never ever"]', "here")
    assert len({FEW.sha256, other.sha256, SHIPPED.sha256}) == 3
    assert extended(FEW, b"", "here").sha256 == FEW.sha256
    moved = Phrases(refusals=FEW.refusals[:1], boilerplate=(*FEW.refusals[1:], *FEW.boilerplate))
    assert moved.sha256 != FEW.sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"refusal = []", r"phrases.toml: refusal: unknown key; did you mean refusals\?"),
        (b'refusals = "no"', r"phrases.toml: refusals: expected a list, found"),
        (b'refusals = ["ok phrase", 7]', r"refusals\[1\]"),
        (b'refusals = ["(open"]', r"refusals\[0\]: expected every parenthesis to be closed, found '\(open'"),
        (b'refusals = ["close)"]', r"refusals\[0\]: expected a parenthesis before the one that closes"),
        (b'boilerplate = ["one|two"]', r"boilerplate\[0\]: expected alternatives in parentheses"),
        (b'boilerplate = [" . "]', r"boilerplate\[0\]: expected a phrase of at least 2 letters"),
        (b'boilerplate = ["(|sorry)"]', r"boilerplate\[0\]: expected a phrase of at least 2 letters"),
        (b'without = ["no such"]', r"without\[0\]: expected a shipped phrase, word for word, found 'no such'"),
        (b'refusals = ["' + b"x" * 1_001 + b'"]', r"expected at most 1,000 characters, found 1,001"),
        (b"\xff", r"phrases.toml: not UTF-8"),
    ],
)
def test_a_faulty_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "phrases.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_phrases(tmp_path)


@pytest.mark.parametrize(
    ("phrase", "letters"), [("ab", 2), ("(|a)b", 1), ("(a|bc(d|))x", 2), ("()", 0), ("(a(b|cd)|e)", 1)]
)
def test_the_shortest_text_of_a_phrase(phrase: str, letters: int) -> None:
    assert shortest(phrase) == letters
