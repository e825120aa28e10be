"""What stands in the stream of rows and keeps what is asked for: positions, first rows, hashes, values, order.

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

_BUCKET_BITS = 6
_FIRST_BITS = 32 + _BUCKET_BITS
"""Of a hash. Of 100 million rows 36,000 share them by chance, which a second pass finds out."""

_DISTINCT = 1 << 14
"""So many values, some of them twice, are kept before they are put together."""


def compact(values: pl.Series) -> pl.Series:
    """The same values in memory of their own. A few strings that were picked out of many are views, and hold the memory
    of all of them."""
    if values.dtype not in (pl.String, pl.Binary):
        return values
    return pl.Series(values.name, values.to_arrow(compat_level=pl.CompatLevel.oldest()), dtype=values.dtype)


def first_bits(hashes: pl.Series) -> npt.NDArray[np.uint64]:
    """The bits of hashes without null that are compared."""
    found: npt.NDArray[np.uint64] = hashes.to_numpy() >> np.uint64(64 - _FIRST_BITS)
    return found


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
            first = failing.head(self._limit).select(self._shown)
            self._parts.append(pl.DataFrame([compact(column) for column in first]))
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
    """The first bits of the hashes of all rows that count; null where a row does not. 4 bytes a row: the bits before
    them say in which bucket they lie. So few that rows of other values share them are no fault: values decide."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._kept: list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]] = []

    def look(self, rows: pl.DataFrame) -> None:
        """Keep a stretch's hashes, bucket after bucket, and where the buckets end."""
        first = first_bits(rows[self.name].drop_nulls())
        bucket = (first >> np.uint64(32)).astype(np.uint8)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=1 << _BUCKET_BITS))
        with self._lock:
            self._kept.append((first.astype(np.uint32)[order], ends))

    def twice(self) -> npt.NDArray[np.uint64]:
        """The first bits that several rows share, ascending; what was kept is let go."""
        found = [np.empty(0, dtype=np.uint64)]
        for bucket in range(1 << _BUCKET_BITS if self._kept else 0):
            parts = [bits[ends[bucket - 1] if bucket else 0 : ends[bucket]] for bits, ends in self._kept]
            bits = np.concatenate(parts)
            bits.sort()
            again = np.unique(bits[1:][bits[1:] == bits[:-1]]).astype(np.uint64)
            found.append(again | np.uint64(bucket << 32))
        self._kept.clear()
        return np.concatenate(found)


class DistinctCollector(Collector):
    """The values of a column, each once."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._values: list[pl.Series] = []
        self._held = 0
        self._most = _DISTINCT

    def look(self, rows: pl.DataFrame) -> None:
        """Keep a stretch's values."""
        values = compact(rows[self.name].drop_nulls().unique())
        with self._lock:
            self._values.append(values)
            self._held += len(values)
            if self._held > self._most:
                self._values = [pl.concat(self._values).unique()]
                self._held = len(self._values[0])
                self._most = max(2 * self._held, _DISTINCT)

    @property
    def found(self) -> Found:
        """All values, when all rows have passed."""
        values = pl.concat(self._values).unique() if self._values else pl.Series(self.name, [], pl.Null)
        return Found(len(values), None, values.to_frame())


class RepeatCollector(Collector):
    """Rows whose first bits of the hash were seen twice; their values decide which of them repeat."""

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
        known = first_bits(hashes.fill_null(0))
        places = np.searchsorted(self._hashes, known)
        among = self._hashes[np.minimum(places, len(self._hashes) - 1)] == known
        mask = pl.Series(among) & hashes.is_not_null()
        if mask.any():
            kept = rows.select([*dict.fromkeys(self._shown), *self._keys]).filter(mask)
            kept = pl.DataFrame([compact(column) for column in kept])
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
