"""What this process takes together with those that it starts: processor seconds, and the most memory that was seen."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

_LOOK_S = 0.1
_WEIGH_EVERY = 3
"""Memory is looked at less often: the kernel goes through all pages for it."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Family:
    """This process and its descendants, watched by a thread from now on. Pages that several share count once."""

    def __init__(self) -> None:
        self._spent: dict[int, float] = {}
        self._peak_kb = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def cpu_s(self) -> float:
        """Processor seconds of all that were ever seen."""
        self._look()
        with self._lock:
            return sum(self._spent.values())

    def peak_mb(self) -> int:
        """The most that all of them held at a moment that was looked at."""
        self._weigh()
        with self._lock:
            return round(self._peak_kb / 1_024)

    def _watch(self) -> None:
        waits = threading.Event()
        looks = 0
        while not waits.wait(_LOOK_S):
            looks += 1
            self._look()
            if looks % _WEIGH_EVERY == 0:
                self._weigh()

    def _look(self) -> None:
        seen = {pid: spent for pid in _family(os.getpid()) if (spent := _cpu_s(pid)) is not None}
        with self._lock:
            self._spent |= seen

    def _weigh(self) -> None:
        held = sum(_held_kb(pid) for pid in _family(os.getpid()))
        with self._lock:
            self._peak_kb = max(self._peak_kb, held)


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _family(child)


def _cpu_s(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _held_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
