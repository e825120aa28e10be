"""Files of a drafter's vocabulary, in every form that a trainer looks for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from toolkit.export.draft_vocabulary import DraftVocabulary
from toolkit.export.report import DraftReport
from toolkit.export.torch_file import opcodes_of_counts, write_tensors, write_torch
from toolkit.export.window import Ints

FOLDER = "vocab"


def write_frequencies(path: Path, counts: Ints) -> None:
    """`{id: how often it is supervised}`, ids that never are left out, ascending (speculators' token_freq.pt)."""
    found = np.flatnonzero(counts)
    write_torch(path, [opcodes_of_counts(found, counts[found])], {})


def write_draft_vocabulary(folder: Path, vocabulary: DraftVocabulary, draft: DraftReport, *, beside: bool) -> None:
    """The map as files below `folder`/vocab.

    vocab_mapping.pt (SpecForge), d2t.npy and t2d.npy (speculators), d2t.pt (Model-Optimizer), and draft-vocab.json,
    which binds them to the rows that they were counted from.

    Args:
        folder: Where the export goes.
        vocabulary: The map.
        draft: What the report says of it.
        beside: Write d2t-SIZE.npy and t2d-SIZE.npy beside the rows too, where speculators takes them from unasked.
    """
    home = folder / FOLDER
    home.mkdir()
    write_tensors(home / "vocab_mapping.pt", d2t=vocabulary.d2t, t2d=vocabulary.t2d)
    write_tensors(home / "d2t.pt", _=vocabulary.d2t)
    np.save(home / "d2t.npy", vocabulary.d2t)
    np.save(home / "t2d.npy", vocabulary.t2d)
    if beside:
        np.save(folder / f"d2t-{draft.size}.npy", vocabulary.d2t)
        np.save(folder / f"t2d-{draft.size}.npy", vocabulary.t2d)
    (home / "draft-vocab.json").write_bytes(msgspec.json.format(msgspec.json.encode(draft)) + b"\n")
