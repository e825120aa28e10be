"""How datasets stand, from their files alone: while a run is alive, after it ended, and after it was killed.

Nothing is written and no lock is taken, so looking never disturbs a run. A file that is torn, missing or not what it
should be is said, and everything else is told all the same.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from toolkit.errors import StoreError
from toolkit.generate.processes import host_name, is_running
from toolkit.generate.status import FILE_NAME, RunStatus
from toolkit.records import Json, LiveShard
from toolkit.store.files import open_regular, sha256_of, stands
from toolkit.store.journal import journal_files
from toolkit.store.shards import LiveShards, read_live, unlisted_shards
from toolkit.store.workspace import Dataset

SILENT_S = 15.0
"""A run writes its status every second; one that was not heard of for so long hangs, or its disk does."""
_ENDED = ("done", "stopped")
_LARGEST_STATUS = 1 << 20
_LARGEST_VERDICT = 64 << 20
_BLOCK = 1 << 20
_MOST_FAILURES = 100_000
_REASONS_TOLD = 3
_PARQUET = b"PAR1"


class Life(StrEnum):
    """What became of the latest run."""

    NONE = "none"
    RUNNING = "running"
    DIED = "died"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Gate(StrEnum):
    """What the latest audit says of the rows that are live now."""

    NONE = "none"
    OUTDATED = "outdated"
    CLOSED = "closed"
    INCOMPLETE = "incomplete"
    PASSED = "passed"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One dataset at one moment.

    Attributes:
        now: When this was looked at, seconds since 1970.
        prompts: Lines of prompts.jsonl that are not blank; None where there is no such file.
        rows: Rows of the live shards, imported ones and probes included; None where shards.json cannot be read.
        unsealed: Whole lines in the journal; None while a run is at work, which counts them itself.
        run: The latest word of the latest run; None where there is none that can be read.
        life: What became of that run.
        failures: Failed asks by reason: of that run, else of all files of failures.
        gate: What the latest audit says.
        gate_reasons: Why that is no pass that can be merged, a sentence each, the first few.
        faults: What cannot be read, a sentence each.
    """

    dataset: str
    now: float
    prompts: int | None
    rows: int | None
    unsealed: int | None
    run: RunStatus | None
    life: Life
    failures: dict[str, int]
    gate: Gate
    gate_reasons: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def has_open_prompts(self) -> bool:
        """Whether there are certainly prompts without an answer: more than were asked, or than there are rows.

        Asks for several samples or turns are known to a run alone.
        """
        if self.prompts is None:
            return False
        if self.taken_out:
            return True
        return self.prompts > (self.run.asked if self.run is not None else self._held or 0)

    @property
    def _held(self) -> int | None:
        """Rows and journal together; None where the shards cannot be read."""
        return None if self.rows is None else self.rows + (self.unsealed or 0)

    @property
    def taken_out(self) -> int:
        """How many answers of a run that ended are certainly not there any more, as after `discard`."""
        if self.run is None or self.life is not Life.ENDED or self._held is None:
            return 0
        return max(0, self.run.answered - self._held)

    @property
    def silent_s(self) -> float | None:
        """Seconds since the run was last heard of."""
        return None if self.run is None else max(0.0, self.now - self.run.updated)

    @property
    def is_silent(self) -> bool:
        """Whether a run that is alive has not been heard of for too long."""
        return self.life is Life.RUNNING and (self.silent_s or 0.0) > SILENT_S

    @property
    def answered(self) -> int | None:
        """Asks with an answer: as the run counts them, else rows and journal together."""
        if self.run is not None and self.life is not Life.DIED:
            return self.run.answered - self.taken_out
        held = self._held
        if self.run is None:
            return held
        # Who was killed had written more than it came to tell.
        return self.run.answered if held is None else max(self.run.answered, min(held, self.run.asked))

    @property
    def left(self) -> int | None:
        """Asks without an answer, those that failed for good left out."""
        if self.run is None:
            return None
        if self.life is not Life.DIED or self.answered is None:
            return self.run.left + self.taken_out
        return max(0, self.run.asked - self.answered - self.run.failed)

    def as_json(self) -> dict[str, Json]:
        """For machines."""
        return {
            "dataset": self.dataset, "now": self.now, "life": str(self.life), "silent_s": self.silent_s,
            "prompts": self.prompts, "rows": self.rows, "unsealed": self.unsealed, "answered": self.answered,
            "left": self.left, "failures": self.failures, "gate": str(self.gate),
            "gate_reasons": list(self.gate_reasons), "faults": list(self.faults),
            "next": list(next_commands(self)),
            "run": None if self.run is None else msgspec.to_builtins(self.run),
        }  # fmt: skip


def standing_of(dataset: Dataset, now: float) -> Standing:
    """How a dataset stands; `now` in seconds since 1970. Never fails: what cannot be read is in `faults`."""
    look = _Look(dataset)
    run = look.run()
    life = Life.UNKNOWN if run is None and look.has_run else life_of(run, host_name())
    live = look.live()
    rows = None if live is None else live.rows
    gate, gate_reasons = look.gate(live)
    return Standing(
        dataset=dataset.name, now=now, prompts=look.prompts(), rows=rows,
        unsealed=None if life is Life.RUNNING else look.unsealed(), run=run, life=life,
        failures=dict(run.failures) if run is not None else look.failures(), gate=gate,
        gate_reasons=gate_reasons,
        faults=tuple(look.faults),
    )  # fmt: skip


def life_of(run: RunStatus | None, host: str) -> Life:
    """What became of a run, seen from the machine called `host`."""
    if run is None:
        return Life.NONE
    if run.phase in _ENDED:
        return Life.ENDED
    if run.host and run.host != host:
        return Life.UNKNOWN
    running = is_running(run.pid, run.mark)
    return Life.UNKNOWN if running is None else Life.RUNNING if running else Life.DIED


def next_commands(standing: Standing) -> Iterator[str]:
    """What to run now; nothing while a run is at work."""
    name = standing.dataset
    run = standing.run
    generate = f"tokenproof generate {name}" + (f" --samples {run.samples}" if run and run.samples > 1 else "")
    if run is not None and run.options:
        generate += f" {shlex.join(run.options)}"
    if standing.life is Life.RUNNING or standing.life is Life.UNKNOWN:
        return
    if standing.gate is Gate.DAMAGED:
        return  # no command brings a shard back
    if (
        standing.life is Life.DIED
        or standing.unsealed
        or (standing.run is not None and standing.run.phase == "stopped")
        or (standing.has_open_prompts and (standing.run is not None or standing.rows))
    ):
        yield generate
    elif standing.run is None and not standing.rows:
        if standing.prompts:
            yield f"tokenproof preflight {name}"
            yield f"tokenproof generate {name}"
    elif standing.gate is Gate.PASSED:
        yield f"tokenproof merge {name} -o train/{name}"
    elif standing.gate is Gate.CLOSED:
        yield f"tokenproof report {name}"  # what was audited has not changed since: it would come out the same
    else:
        yield f"audit {name}"


class _Reason(msgspec.Struct):
    """What is read of a failure."""

    reason: str


class _Suite(msgspec.Struct):
    """What is read of a suite that was evaluated."""

    path: str
    sha256: str


class _Verdict(msgspec.Struct):
    """What is read of a verdict, of whatever version."""

    shards: tuple[LiveShard, ...]
    complete: bool
    passed: bool
    reasons: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    prompts_sha256: str | None = None
    suites: tuple[_Suite, ...] = ()


# --- reading ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Look:
    dataset: Dataset
    faults: list[str] = field(default_factory=list)
    has_run: bool = False

    def run(self) -> RunStatus | None:
        """The latest word of the latest run."""
        path = self.dataset.folder / FILE_NAME
        self.has_run = self._stands(path)
        content = self._bytes(path, _LARGEST_STATUS) if self.has_run else None
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=RunStatus)
        except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
            self.faults.append(f"{path}: expected the status of a run: {error}")
            return None

    def live(self) -> LiveShards | None:
        """The live shards; None where they cannot be told."""
        try:
            return read_live(self.dataset)
        except (StoreError, RecursionError) as error:
            self.faults.append(str(error))
            return None

    def prompts(self) -> int | None:
        """Lines that are not blank: what they say is checked before a run, not here."""
        path = self.dataset.prompts
        if not self._stands(path):
            return None
        try:
            found = path.stat()
            return _lines_of(path, found.st_size, found.st_mtime_ns)
        except OSError as error:
            self.faults.append(f"{path}: cannot be read: {error.strerror or error}")
            return None

    def unsealed(self) -> int:
        """Whole lines of the journal."""
        return sum(self._whole_lines(path) for path in self._files(self.dataset.journal))

    def failures(self) -> dict[str, int]:
        """Failures by reason, of all files; of very many, the first."""
        counted: Counter[str] = Counter()
        decoder = msgspec.json.Decoder(_Reason)
        for path in self._files(self.dataset.failures):
            try:
                with open_regular(path) as file:
                    for line in file:
                        if line.endswith(b"\n") and line.strip():
                            counted[decoder.decode(line).reason] += 1
                        if counted.total() >= _MOST_FAILURES:
                            return dict(counted.most_common())
            except OSError as error:
                self.faults.append(f"{path}: cannot be read: {error.strerror or error}")
            except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
                self.faults.append(f"{path}: expected failures: {error}")
        return dict(counted.most_common())

    def gate(self, live: LiveShards | None) -> tuple[Gate, tuple[str, ...]]:
        """What verdict.json says, and whether it speaks of what lies there, as far as a glance tells; and why it is no
        pass. Whether it holds, the merge proves.
        """
        path = self.dataset.verdict
        if not self._stands(path):
            return Gate.NONE, ()
        content = self._bytes(path, _LARGEST_VERDICT)
        if content is None:
            return Gate.UNREADABLE, ()
        try:
            verdict = msgspec.json.decode(content, type=_Verdict)
        except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
            self.faults.append(f"{path}: expected a verdict: {error}")
            return Gate.UNREADABLE, ()
        shards = () if live is None else live.shards
        if broken := tuple(sentence for shard in shards if (sentence := self._broken(shard)) is not None):
            return Gate.DAMAGED, broken[:_REASONS_TOLD]
        if {shard.sha256 for shard in verdict.shards} != {shard.sha256 for shard in shards}:
            return Gate.OUTDATED, ("rows changed since the audit",)
        if changed := tuple(self._changed(verdict)):
            return Gate.OUTDATED, changed[:_REASONS_TOLD]
        strays = (
            ()
            if live is None
            else tuple(
                f"shards/{file.name} lies among the shards, but shards.json does not list it: move it away"
                for file in unlisted_shards(self.dataset, live)
            )
        )
        if not verdict.passed:
            return Gate.CLOSED, verdict.reasons[:_REASONS_TOLD]
        if strays:
            return Gate.INCOMPLETE, strays[:_REASONS_TOLD]
        return Gate.PASSED if verdict.complete else Gate.INCOMPLETE, ()

    def _broken(self, shard: LiveShard) -> str | None:
        """Why a shard is not what was sealed: it is missing, or is no whole Parquet file.

        Bytes are held against their sha256 only where the file was written after the verdict.
        """
        path = self.dataset.folder / shard.path
        restore = "put it back from a copy"
        try:
            found = path.stat()
            if not _is_whole(path, found.st_size):
                return f"{shard.path}: damaged or cut short; {restore}"
            if found.st_mtime_ns > self.dataset.verdict.stat().st_mtime_ns:
                sha256 = _sha256_of(path, found.st_size, found.st_mtime_ns)
                return None if sha256 == shard.sha256 else f"{shard.path}: not the bytes that were sealed; {restore}"
        except FileNotFoundError:
            return f"{shard.path}: missing; {restore}"
        except (OSError, StoreError) as error:
            return f"{shard.path}: cannot be read: {error}"
        return None

    def _changed(self, verdict: _Verdict) -> Iterator[str]:
        """What an audit was held against and is not the same any more: prompts and the suites of the workspace."""
        prompts = self.dataset.prompts
        if self._sha256(prompts) != verdict.prompts_sha256:
            yield f"{prompts.name} changed since the audit"
        root = self.dataset.folder.parents[1]
        for suite in verdict.suites:
            own = root / suite.path if "/" in suite.path else root / "expectations" / suite.path
            found = self._sha256(own)
            # A suite that came with the tool has no file here.
            if found != suite.sha256 and (found is not None or "/" in suite.path):
                yield f"suite {suite.path} changed since the audit"

    def _sha256(self, path: Path) -> str | None:
        """A file's sha256; None where there is none."""
        try:
            found = path.stat()
            return _sha256_of(path, found.st_size, found.st_mtime_ns)
        except FileNotFoundError:
            return None
        except (OSError, StoreError) as error:
            self.faults.append(f"{path}: cannot be read: {error}")
            return None

    # --- files ------------------------------------------------------------------------------------

    def _stands(self, path: Path) -> bool:
        try:
            return stands(path)
        except StoreError as error:
            self.faults.append(str(error))
            return False

    def _bytes(self, path: Path, most: int) -> bytes | None:
        """A file's bytes; None where it cannot be read."""
        try:
            with open_regular(path) as file:
                content = file.read(most + 1)
        except OSError as error:
            self.faults.append(f"{path}: cannot be read: {error.strerror or error}")
            return None
        if len(content) > most:
            self.faults.append(f"{path}: expected at most {most >> 20} MiB, found more")
            return None
        return content

    def _files(self, folder: Path) -> list[Path]:
        try:
            return journal_files(folder)
        except StoreError as error:
            self.faults.append(str(error))
            return []

    def _whole_lines(self, path: Path) -> int:
        try:
            with open_regular(path) as file:
                return _count_lines(file, whole=True)
        except FileNotFoundError:
            return 0  # sealed since
        except OSError as error:
            self.faults.append(f"{path}: cannot be read: {error.strerror or error}")
            return 0


@lru_cache(maxsize=1024)
def _sha256_of(path: Path, size: int, mtime_ns: int) -> str:
    """A file's sha256: while somebody watches, a file that stays the same is read once."""
    return sha256_of(path)


def _is_whole(path: Path, size: int) -> bool:
    """Whether a file begins and ends as Parquet does, with a footer that fits into it."""
    if size < 12:
        return False
    with open_regular(path) as file:
        begins = file.read(4) == _PARQUET
        file.seek(-8, os.SEEK_END)
        footer, ends = int.from_bytes(file.read(4), "little"), file.read(4) == _PARQUET
    return begins and ends and footer <= size - 12


@lru_cache(maxsize=256)
def _lines_of(path: Path, size: int, mtime_ns: int) -> int:
    """Lines of a file as it is now: while somebody watches, a file that stays the same is read once.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        return _count_lines(file, whole=False)


def _count_lines(file: BinaryIO, *, whole: bool) -> int:
    """Lines that are not blank, counted block by block."""
    count, begun = 0, False
    while block := file.read(_BLOCK):
        first, *more = block.split(b"\n")
        begun = begun or bool(first.strip())
        for line in more:
            count += begun
            begun = bool(line.strip())
    return count + (begun and not whole)
