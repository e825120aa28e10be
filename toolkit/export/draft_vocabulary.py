"""How often each id is supervised, and the ids that a drafter with a smaller vocabulary keeps. Pure.

One map for every trainer: the most frequent ids, ties by the smaller id. SpecForge by itself breaks ties by where an id
is first seen, so that shuffling its data anew makes another map.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolkit.errors import ConfigError
from toolkit.export.window import Ints, Rows


def count_supervised(rows: Rows, counts: Ints) -> None:
    """Add to `counts`, by id, how often each is supervised in `rows`."""
    found = np.bincount(rows.ids[rows.mask == 1], minlength=len(counts))
    counts += found


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftVocabulary:
    """Which of the target's ids a drafter knows.

    Attributes:
        d2t: For each draft id, ascending by target id: target id − draft id.
        t2d: For each of the target's ids whether it is kept.
        distinct: Ids that are supervised at all.
        covered: Supervised ids, summed, that are kept.
        total: Supervised ids, summed.
    """

    d2t: Ints
    t2d: npt.NDArray[np.bool_]
    distinct: int
    covered: int
    total: int

    @property
    def padded(self) -> int:
        """Kept ids that are supervised nowhere: the smallest ones, to fill the size."""
        return max(len(self.d2t) - self.distinct, 0)


def draft_vocabulary(counts: Ints, size: int) -> DraftVocabulary:
    """The `size` most frequent ids of `counts`, which has one place for each of the target's ids.

    Raises:
        ConfigError: the size is not between 1 and the target's.
    """
    if not 0 < size <= len(counts):
        raise ConfigError(f"draft vocabulary: expected 1 to {len(counts):,} ids, found {size:,}")
    # Ids that never occur come last, the smallest first, which is how speculators fills a map too.
    order = np.lexsort((np.arange(len(counts)), -counts))
    kept = np.sort(order[:size])
    t2d = np.zeros(len(counts), np.bool_)
    t2d[kept] = True
    return DraftVocabulary(
        d2t=(kept - np.arange(size)).astype(np.int64),
        t2d=t2d,
        distinct=int(np.count_nonzero(counts)),
        covered=int(counts[kept].sum()),
        total=int(counts.sum()),
    )
