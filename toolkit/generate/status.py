"""How a run is doing: a file that is replaced every second, for whoever wants to know, while it runs and after."""

from __future__ import annotations

import os
import textwrap
from collections import deque
from pathlib import Path
from typing import Annotated

import msgspec

from toolkit.errors import StoreError
from toolkit.generate.spent import Spent
from toolkit.store.files import read_bytes

FILE_NAME = "run.json"
_MINUTE_S = 60.0
_REASON_LIMIT = 60
_MOST_SAMPLES = 2**31 - 1

Samples = Annotated[int, msgspec.Meta(ge=0, le=_MOST_SAMPLES)]


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a run over one dataset.

    Attributes:
        phase: `asking`, `draining` (nothing more is sent), `sealing`, `done`, `stopped`.
        pid: The process that writes this; where it is gone and the phase is none of the last two, it was killed.
        host, mark: The machine, and what sets the process apart from others of the same pid (`processes`).
        started, updated: Seconds since 1970.
        asked, answered, failed, left: Asks; answered and failed include those of earlier runs.
        lost: Asks that were in flight when the run was stopped at once.
        probes: Second answers of another source.
        samples: Answers to each prompt that were asked for; 0 where an older version wrote this.
        options: What was given to this run and must be given again to go on in the same way: `--tokens 5000`.
        tokens: Completion tokens that the dataset holds, those of earlier runs included.
        run_tokens: Those of this run alone.
        tokens_budget: Its limit; None: none.
        cost_usd: What this run's replies for this dataset say they cost.
        cost_before_usd: The same of all runs before it, as far as they came to tell.
        run_datasets, run_cost_usd: How many datasets the run has, and the same of all of them together.
        dollars_held, dollars_budget: What is held against the limit (requests of which nobody says what they cost
            count as the most that they may), and the limit.
        per_s: Answers a second over the last minute.
        eta_s: Seconds until nothing is left, at that rate; None where it is not known.
        in_flight, limit: Requests in flight now, and how many may be.
        per_s_limit: Requests a second that may be sent; None: no limit.
        paused_s: Seconds that nothing is sent because the server asked for it.
        resting: Providers that are asked not to answer for now.
        providers: New answers by provider.
        failures: Failed asks of this run by reason.
        stopped: Why nothing more is sent.
        spent: What ran out, where that is why (`spent.Spent`).
    """

    dataset: str
    phase: str
    pid: int
    started: float
    updated: float
    asked: int
    answered: int
    failed: int
    left: int
    lost: int = 0
    probes: int = 0
    samples: Samples = 0
    options: tuple[str, ...] = ()
    tokens: int = 0
    run_tokens: int = 0
    tokens_budget: int | None = None
    cost_usd: float = 0.0
    cost_before_usd: float = 0.0
    run_cost_usd: float = 0.0
    run_datasets: int = 1
    dollars_held: float = 0.0
    dollars_budget: float | None = None
    per_s: float = 0.0
    eta_s: float | None = None
    in_flight: int = 0
    limit: int = 0
    per_s_limit: float | None = None
    paused_s: float = 0.0
    resting: tuple[str, ...] = ()
    providers: dict[str, int] = {}
    failures: dict[str, int] = {}
    stopped: str | None = None
    spent: Spent = ""
    host: str = ""
    mark: str = ""

    def line(self) -> str:
        """What is worth knowing right now, on one line."""
        money = f"${self.cost_usd:.2f}" + (f" of ${self.dollars_budget:g}" if self.dollars_budget is not None else "")
        tokens = f"{self.tokens:,}" + (f" of {self.tokens_budget:,}" if self.tokens_budget is not None else "")
        parts = [f"{self.in_flight:,}/{self.limit:,} in flight", f"{self.per_s:.1f}/s", f"{tokens} tokens", money]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self.paused_s > 0:
            parts.append(f"paused {self.paused_s:.0f} s")
        if self.stopped is not None:
            # Whole words: what does not fit stands in the summary.
            parts.append(f"{self.phase}: {textwrap.shorten(self.stopped, _REASON_LIMIT, placeholder=' …')}")
        return " · ".join(parts)


class Rate:
    """Events a second over the last minute. The clock is an argument."""

    def __init__(self, now: float):
        self._began = now
        self._counts: deque[tuple[float, int]] = deque()

    def count(self, now: float, total: int) -> float:
        """Take note of a total that only grows; events a second since a minute ago, or since the beginning."""
        self._counts.append((now, total))
        while len(self._counts) > 1 and now - self._counts[0][0] > _MINUTE_S:
            self._counts.popleft()
        then, before = self._counts[0] if now - self._began > _MINUTE_S else (self._began, 0)
        return (total - before) / max(now - then, 1.0)


def write_status(folder: Path, status: RunStatus) -> None:
    """Replace the status file. It is not brought to the disk: it is news, not a record.

    Raises:
        StoreError: it cannot be written.
    """
    path = folder / FILE_NAME
    temporary = folder / f".{FILE_NAME}.{os.getpid()}.tmp"
    try:
        temporary.write_bytes(msgspec.json.encode(status) + b"\n")
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from None


def read_status(folder: Path) -> RunStatus | None:
    """The latest status of a dataset; None where it was never generated.

    Raises:
        StoreError: the file cannot be read, or is no status.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_bytes(path), type=RunStatus)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(f"{path}: expected the status of a run: {error}") from None


def cost_of_runs(folder: Path) -> float:
    """US dollars that the replies of all runs over a dataset said they cost, as far as the runs came to tell."""
    try:
        status = read_status(folder)
    except StoreError:
        return 0.0  # the file is about to be replaced; nothing is decided by this
    return 0.0 if status is None else status.cost_before_usd + status.cost_usd


def samples_asked(folder: Path) -> int:
    """Answers to each prompt that the latest run of a dataset was asked for; 0 where none was ever generated.

    Settings and options may say fewer since; what was asked for is missing all the same.

    Raises:
        StoreError: it cannot be told.
    """
    try:
        status = read_status(folder)
    except StoreError as error:
        raise StoreError(f"{error}; it says how many samples were asked for: remove it to go by the settings") from None
    return 0 if status is None else status.samples
