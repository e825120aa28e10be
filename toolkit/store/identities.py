"""Identities of rows as 128-bit hashes, so that a million of them are compared at once in a few megabytes.

The hashes are Python's own, keyed anew in each process: they are never written anywhere. Two of them, of a text and
of the same text behind a NUL, leave no collision to reckon with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Identities:
    """Two 64-bit hashes of each of several things, in their order."""

    first: Hashes
    second: Hashes

    def __len__(self) -> int:
        return len(self.first)


def hash_of(text: str) -> int:
    """The first hash of a text, 64 bits."""
    return hash(text) & _MASK


def second_hash_of(text: str) -> int:
    """The second hash of a text, 64 bits."""
    return hash("\0" + text) & _MASK


def hash_texts(texts: Sequence[str]) -> Hashes:
    """`hash_of` each."""
    return np.fromiter(map(hash, texts), np.int64, len(texts)).view(np.uint64)


def hash_ids(sample_ids: Sequence[str]) -> Identities:
    """Both hashes of each sample_id."""
    doubled = ["\0" + sample_id for sample_id in sample_ids]
    return Identities(hash_texts(sample_ids), hash_texts(doubled))


def identities_of(
    ids: Identities,
    turn: npt.NDArray[np.int64] | int,
    sample_index: npt.NDArray[np.int64] | int,
    probe: npt.NDArray[np.bool_] | bool,
) -> Identities:
    """Hashes of (sample_id, turn, sample_index, probe), from those of the sample_ids."""
    shape = len(ids)
    turns, indexes, probes = (
        np.broadcast_to(np.asarray(v), shape).astype(np.uint64) for v in (turn, sample_index, probe)
    )
    code = (turns << np.uint64(33)) | (indexes << np.uint64(1)) | probes
    return Identities(_mixed(ids.first, code), _mixed(ids.second, ~code))


def _mixed(hashes: Hashes, code: Hashes) -> Hashes:
    """One hash of each pair; for a given hash no two codes give the same."""
    return _scrambled(hashes + _scrambled(code))


def _scrambled(values: Hashes) -> Hashes:
    """The finaliser of splitmix64: a bijection in which each bit depends on all. Wraps at 64 bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class IdentityIndex:
    """Finds where an identity stands among many."""

    def __init__(self, identities: Identities):
        # Stable, so that of two equal identities the later is found last.
        self._order = np.argsort(identities.first, kind="stable").astype(np.uint32)
        self._first = identities.first[self._order]
        self._second = identities.second[self._order]

    def __len__(self) -> int:
        return len(self._first)

    def positions(self, wanted: Identities) -> npt.NDArray[np.int64]:
        """For each wanted identity its position in what the index was made of; −1 where it is not there."""
        found = np.full(len(wanted), -1, np.int64)
        if not len(self) or not len(wanted):
            return found
        at = np.searchsorted(self._first, wanted.first)
        open_ = np.arange(len(wanted))
        while len(open_):
            open_ = open_[at[open_] < len(self)]
            open_ = open_[self._first[at[open_]] == wanted.first[open_]]
            equal = self._second[at[open_]] == wanted.second[open_]
            found[open_[equal]] = self._order[at[open_[equal]]]
            open_ = open_[~equal]
            at[open_] += 1
        return found
