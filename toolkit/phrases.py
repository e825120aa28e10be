"""Phrases of refusals and boilerplate: those that come with the tool, and a workspace's own.

They are part of what facts depend on: their sha256 stands in the name of facts that were measured with them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import orjson

from toolkit.errors import ConfigError
from toolkit.store.files import read_bytes, stands
from toolkit.toml import TomlError, read_toml

FILE_NAME = "phrases.toml"
LONGEST_PHRASE = 1_000
"""Characters of one phrase, alternatives included."""
MOST_PHRASES = 2_000
"""Phrases of one kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """Phrases that text is held against. Parentheses hold alternatives, everything else stands for itself.

    Attributes:
        refusals: Looked for at the beginning of an answer.
        boilerplate: Looked for anywhere.
    """

    refusals: tuple[str, ...]
    boilerplate: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Identity of the list: two lists of the same phrases in the same order have the same."""
        return hashlib.sha256(orjson.dumps([self.refusals, self.boilerplate])).hexdigest()


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    refusals: tuple[str, ...] = ()
    boilerplate: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def read_phrases(root: Path) -> Phrases:
    """The shipped phrases with those of a workspace.

    Args:
        root: The workspace's folder; its phrases.toml may add `refusals` and `boilerplate`, and take shipped phrases
            out by naming them in `without`.

    Raises:
        ConfigError: the file is not TOML, has other keys, or a phrase that cannot be used.
        StoreError: it cannot be read.
    """
    path = root / FILE_NAME
    return extended(SHIPPED, read_bytes(path), FILE_NAME) if stands(path) else SHIPPED


def extended(shipped: Phrases, content: bytes, where: str) -> Phrases:
    """Phrases with those of a file's bytes; `where` names it in errors.

    Raises:
        ConfigError: as `read_phrases`.
    """
    try:
        file = read_toml(content, _File)
    except TomlError as error:
        raise ConfigError("\n".join(f"{where}: {fault}" for fault in error.faults)) from None
    faults = [
        f"{where}: {key}[{number}]: {fault}"
        for key in ("refusals", "boilerplate")
        for number, phrase in enumerate(getattr(file, key))
        if (fault := _fault(phrase)) is not None
    ]
    known = {*shipped.refusals, *shipped.boilerplate}
    faults += [
        f"{where}: without[{number}]: expected a shipped phrase, word for word, found {phrase[:80]!r}"
        for number, phrase in enumerate(file.without)
        if phrase not in known
    ]
    faults += [
        f"{where}: {key}: expected at most {MOST_PHRASES:,} phrases, found {len(getattr(file, key)):,}"
        for key in ("refusals", "boilerplate")
        if len(getattr(file, key)) > MOST_PHRASES
    ]
    if faults:
        raise ConfigError("\n".join(faults))
    return Phrases(
        refusals=_merged(shipped.refusals, file.refusals, file.without),
        boilerplate=_merged(shipped.boilerplate, file.boilerplate, file.without),
    )


def _merged(shipped: tuple[str, ...], own: tuple[str, ...], without: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(phrase for phrase in (*shipped, *own) if phrase not in without or phrase in own))


def _fault(phrase: str) -> str | None:
    """Why a phrase cannot be used; None where it can."""
    if len(phrase) > LONGEST_PHRASE:
        return f"expected at most {LONGEST_PHRASE:,} characters, found {len(phrase):,}"
    depth = 0
    outside = 0
    for character in phrase:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return f"expected a parenthesis before the one that closes, found {phrase[:80]!r}"
        if depth == 0:
            if character == "|":
                return f"expected alternatives in parentheses, found {phrase[:80]!r}"
            outside += character.isalnum()
    if depth:
        return f"expected every parenthesis to be closed, found {phrase[:80]!r}"
    if shortest(phrase) < _FEWEST:
        return f"expected a phrase of at least {_FEWEST} letters, found {phrase[:80]!r}"
    return None


_FEWEST = 2


def shortest(phrase: str) -> int:
    """Letters and digits of the shortest text that a phrase stands for; parentheses are balanced."""
    levels: list[tuple[list[int], int]] = []
    done: list[int] = []
    letters = 0
    for character in phrase:
        if character == "(":
            levels.append((done, letters))
            done, letters = [], 0
        elif character == "|":
            done.append(letters)
            letters = 0
        elif character == ")":
            least = min([*done, letters])
            done, letters = levels.pop()
            letters += least
        else:
            letters += character.isalnum()
    return letters


def _shipped() -> Phrases:
    """Read once, when the module is loaded: these phrases are code that is written as data."""
    content = (Path(__file__).parent / FILE_NAME).read_bytes()
    return extended(Phrases(refusals=(), boilerplate=()), content, FILE_NAME)


SHIPPED = _shipped()
"""The phrases that come with the tool."""
