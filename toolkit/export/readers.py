"""The trainers that read ids as given: what each drops, where each cuts, and what it holds in memory.

Every rule here is one of the reader's own code, of the version that `source` names; the tests run those versions on
what is written and hold the outcome against these rules. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from toolkit.errors import ConfigError


class Target(StrEnum):
    """Whom an export is for."""

    SPECFORGE = "specforge"
    SPECULATORS = "speculators"
    TRL = "trl"
    AXOLOTL = "axolotl"
    LLAMAFACTORY = "llamafactory"
    TORCHSPEC = "torchspec"
    JSONL = "jsonl"
    EAGLE = "eagle"
    MODEL_OPTIMIZER = "model-optimizer"


class Algorithm(StrEnum):
    """What a drafter is trained as; the DFlash family needs two supervised ids side by side."""

    EAGLE3 = "eagle3"
    P_EAGLE = "p-eagle"
    DFLASH = "dflash"
    DOMINO = "domino"
    DSPARK = "dspark"


class Longer(StrEnum):
    """What becomes of rows longer than the window: they lose their end, or are left out, or stay as they are."""

    CUT = "cut"
    DROP = "drop"
    KEEP = "keep"


class Split(StrEnum):
    """Which side of the train set's split is exported."""

    TRAIN = "train"
    VALIDATION = "validation"


TEXT_ONLY = frozenset({Target.EAGLE, Target.MODEL_OPTIMIZER})
"""Targets that take conversations and make ids of their own."""

_DFLASH_FAMILY = frozenset({Algorithm.DFLASH, Algorithm.DOMINO, Algorithm.DSPARK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What one trainer makes of a row of ids and mask.

    Attributes:
        window: Ids of a row at most, where the user sets nothing; None: no limit.
        longer: What it does with longer rows.
        min_ids: Rows with fewer ids, after cutting, are dropped.
        min_supervised: Rows with fewer supervised ids, after cutting, are dropped.
        adjacent: Rows without two supervised ids side by side, after cutting, are dropped.
        ram_bytes_per_id: Memory of the reader per id that it keeps; 0 where it maps the files.
        window_name: How the trainer calls its window.
        source: Package and version, or commit, that the rules were read from.
    """

    target: Target
    window: int | None
    longer: Longer
    min_ids: int = 1
    min_supervised: int = 0
    adjacent: bool = False
    ram_bytes_per_id: float = 0.0
    window_name: str = ""
    source: str = ""


_READERS = {
    Target.SPECFORGE: Reader(
        target=Target.SPECFORGE,
        window=2_048,
        longer=Longer.CUT,
        min_supervised=1,
        # Both lists of a row as lists of Python's numbers, measured on 8 M ids; the whole file is held.
        ram_bytes_per_id=48.5,
        window_name="data.max_length",
        source="specforge 0.2.0",
    ),
    Target.SPECULATORS: Reader(
        target=Target.SPECULATORS,
        window=8_192,
        longer=Longer.CUT,
        window_name="--total-seq-len",
        source="speculators 0.9.0",
    ),
    Target.TRL: Reader(
        target=Target.TRL,
        window=1_024,
        longer=Longer.CUT,
        min_supervised=1,
        window_name="SFTConfig.max_length",
        source="trl 1.16.0",
    ),
    Target.AXOLOTL: Reader(
        target=Target.AXOLOTL,
        window=512,
        longer=Longer.DROP,
        min_ids=2,
        window_name="sequence_len",
        source="axolotl 0.19.0",
    ),
    Target.LLAMAFACTORY: Reader(
        target=Target.LLAMAFACTORY,
        window=None,
        longer=Longer.KEEP,
        source="llamafactory 0.9.5",
    ),
    Target.TORCHSPEC: Reader(
        target=Target.TORCHSPEC,
        window=None,
        longer=Longer.KEEP,
        min_supervised=1,
        # One int64 tensor of all ids; the masks are short texts.
        ram_bytes_per_id=8.0,
        source="TorchSpec 09aa71b",
    ),
    Target.JSONL: Reader(target=Target.JSONL, window=None, longer=Longer.KEEP),
}


def reader_of(target: Target, algorithm: Algorithm | None = None, window: int | None = None) -> Reader:
    """The rules of a target; `window` where the user will set the trainer's own.

    Raises:
        ConfigError: an algorithm was named and the target does not tell them apart, or the window is no length.
    """
    if window is not None and window < 1:
        raise ConfigError(f"window of the reader: expected at least 1 id, found {window}")
    reader = _READERS[target]
    if algorithm is not None and target is not Target.SPECFORGE:
        raise ConfigError(f"algorithm {algorithm}: decides what specforge keeps, and specforge only; found {target}")
    if algorithm in _DFLASH_FAMILY:
        reader = replace(reader, min_supervised=2, adjacent=True)
    if window is None:
        return reader
    # A trainer without a window of its own keeps longer rows whatever is said here.
    return reader if reader.longer is Longer.KEEP else replace(reader, window=window)
