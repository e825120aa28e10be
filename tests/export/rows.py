"""Rows of ids for the tests of the export."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolkit.export.window import Rows


def rows_of(
    *pairs: tuple[Sequence[int], Sequence[int]], prompts: Sequence[int] | None = None, mode: str = "thinking"
) -> Rows:
    """Rows of (ids, mask); the prompt is what stands before the first one in the mask, or as said."""
    lengths = [len(ids) for ids, _ in pairs]
    firsts = [list(mask).index(1) if 1 in mask else len(mask) for _, mask in pairs]
    return Rows(
        names=[f"B3/r{number}/0/0" for number in range(len(pairs))],
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        ids=np.array([i for ids, _ in pairs for i in ids], np.int32),
        mask=np.array([m for _, mask in pairs for m in mask], np.int8),
        prompt_len=np.array(prompts if prompts is not None else firsts, np.int64),
        modes=[mode] * len(pairs),
    )


def lists_of(rows: Rows) -> list[tuple[list[int], list[int]]]:
    """(ids, mask) of each row."""
    cuts = rows.offsets[1:-1]
    return [
        (ids.tolist(), mask.tolist())
        for ids, mask in zip(np.split(rows.ids, cuts), np.split(rows.mask, cuts), strict=True)
    ]
