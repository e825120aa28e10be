"""What stands in the stream of rows and keeps what is asked for: positions, first rows, hashes, order.

A collector sees stretches of rows, each once, in any order and from several threads; every row bears its position.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from toolkit.audit.gx.questions import ROW, Found


class Tap:
    """The function in the stream: shows every stretch to the collectors and passes it on."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Look at a stretch of rows."""
        if rows.height:
            for collector in self._collectors:
                collector.look(rows)
        return rows


class Collector(ABC):
    """Keeps a set of rows; `name` is its column in the stream."""

    looks = True

    def __init__(self, name: str, shown: Sequence[str] = (), limit: int = 0, positions: bool = False) -> None:
        self.name = name
        self.count = 0
        self._shown = [ROW, *shown]
        self._limit = limit
        self._wants_positions = positions
        self._lock = threading.Lock()
        self._positions: list[npt.NDArray[Any]] = []
        self._parts: list[pl.DataFrame] = []
        self._n_parts = 0
        self._last: int | None = None

    @abstractmethod
    def look(self, rows: pl.DataFrame) -> None:
        """Keep what is to be kept of a stretch."""

    @property
    def found(self) -> Found:
        """What was kept, when all rows have passed."""
        first = self._cut() if self._parts else pl.DataFrame(schema=dict.fromkeys(self._shown, pl.Null))
        return Found(self.count, self._all_positions() if self._wants_positions else None, first)

    def _all_positions(self) -> npt.NDArray[np.int64]:
        if not self._positions:
            return np.empty(0, dtype=np.int64)
        return np.sort(np.concatenate(self._positions).astype(np.int64))

    def _keep(self, failing: pl.DataFrame) -> None:
        """Keep positions and, if they stand before those that are kept, rows to show."""
        if self._wants_positions:
            places = failing[ROW].to_numpy().copy()
            with self._lock:
                self._positions.append(places)
        if not self._limit:
            return
        with self._lock:
            if self._last is not None and failing[ROW][0] > self._last:
                return
            self._parts.append(failing.head(self._limit).select(self._shown))
            self._n_parts += self._parts[-1].height
            if self._n_parts >= 2 * self._limit:
                cut = self._cut()
                self._last = cut[ROW][-1]

    def _cut(self) -> pl.DataFrame:
        """The first rows of all that were kept, in order; the rest is let go."""
        cut = pl.concat(self._parts).sort(ROW).head(self._limit)
        self._parts, self._n_parts = [cut], cut.height
        return cut


class MaskCollector(Collector):
    """Rows whose mask is true. polars counts them."""

    def __init__(self, name: str, shown: Sequence[str], limit: int, positions: bool) -> None:
        super().__init__(name, shown, limit, positions)
        self.looks = bool(limit) or positions

    def look(self, rows: pl.DataFrame) -> None:
        """Keep the failing rows of a stretch."""
        mask = rows[self.name]
        if mask.any():
            self._keep(rows.select(self._shown).filter(mask))


class HashCollector(Collector):
    """Hashes of all rows that count; null where a row does not."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._hashes: list[npt.NDArray[np.uint64]] = []

    def look(self, rows: pl.DataFrame) -> None:
        """Keep a stretch's hashes."""
        hashes = rows[self.name].drop_nulls().to_numpy().copy()
        with self._lock:
            self._hashes.append(hashes)

    def twice(self) -> npt.NDArray[np.uint64]:
        """The hashes that were seen more than once, ascending; what was kept is let go."""
        if not self._hashes:
            return np.empty(0, dtype=np.uint64)
        hashes = np.concatenate(self._hashes)
        self._hashes.clear()
        hashes.sort()
        return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


class RepeatCollector(Collector):
    """Rows whose hash was seen twice; their values decide which of them repeat."""

    def __init__(
        self,
        name: str,
        shown: Sequence[str],
        limit: int,
        positions: bool,
        keys: Sequence[str],
        hashes: npt.NDArray[np.uint64],
    ) -> None:
        super().__init__(name, shown, limit, positions)
        self._keys = list(keys)
        self._hashes = hashes
        self._candidates: list[pl.DataFrame] = []

    def look(self, rows: pl.DataFrame) -> None:
        """Keep the rows of a stretch that may repeat."""
        hashes = rows[self.name]
        known = hashes.fill_null(0).to_numpy()
        places = np.searchsorted(self._hashes, known)
        among = self._hashes[np.minimum(places, len(self._hashes) - 1)] == known
        mask = pl.Series(among) & hashes.is_not_null()
        if mask.any():
            kept = rows.select([*dict.fromkeys(self._shown), *self._keys]).filter(mask)
            with self._lock:
                self._candidates.append(kept)

    @property
    def found(self) -> Found:
        """The candidates whose values stand in more than one row."""
        if self._candidates:
            candidates = pl.concat(self._candidates).sort(ROW)
            repeated = candidates.filter(candidates.select(self._keys).is_duplicated())
            self.count = repeated.height
            self._candidates.clear()
            if repeated.height:
                self._keep(repeated)
        return super().found


class OrderCollector(Collector):
    """Rows that do not follow the row before. Each stretch is judged within itself, their seams at the end."""

    def __init__(
        self,
        name: str,
        shown: Sequence[str],
        limit: int,
        positions: bool,
        in_order: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(name, shown, limit, positions)
        self._in_order = in_order
        self._edges: list[tuple[int, pl.DataFrame, pl.DataFrame]] = []

    def look(self, rows: pl.DataFrame) -> None:
        """Keep what is out of order within a stretch, and its first and last row."""
        kept = rows.select([*self._shown, self.name]).filter(rows[self.name].is_not_null())
        if not kept.height:
            return
        value = pl.col(self.name)
        failing = kept.filter(~self._in_order(value, value.shift(1)))
        if failing.height:
            with self._lock:
                self.count += failing.height
            self._keep(failing)
        with self._lock:
            self._edges.append((kept[ROW][0], kept.head(1), kept.tail(1)))

    @property
    def found(self) -> Found:
        """With the seams between stretches judged too."""
        edges = sorted(self._edges, key=lambda edge: edge[0])
        self._edges = []
        for (_, _, before), (_, after, _) in itertools.pairwise(edges):
            if not self._in_order(after[self.name], before[self.name]).all():
                self.count += 1
                self._keep(after)
        return super().found
