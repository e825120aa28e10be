"""Runs in processes of their own that can be killed: forked from one that has everything loaded, so they start at once.

`python -m tests.generate.forks` is that process. It reads an order, forks a run and tells its pid; told to wait, it
waits and tells how it ended. The run writes an event a line to its log, each with one unbuffered write: what was said
there was true before, whatever happens to the process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Event = list[Any]


@dataclass(slots=True)
class Forked:
    """A run that was started: its pid, its log, and its exit code once it has ended, negative where a signal did it."""

    pid: int
    log: Path
    code: int | None = None

    def events(self) -> list[Event]:
        """What it has said so far; the first of each is what it is about."""
        lines = self.log.read_bytes().splitlines(keepends=True) if self.log.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def kill(self) -> None:
        """kill -9, by its own pid: nobody else has it before its exit code was fetched."""
        assert self.code is None
        assert self.pid > 1
        os.kill(self.pid, signal.SIGKILL)


@dataclass(slots=True)
class Forker:
    """The process that forks them, one after the other."""

    process: subprocess.Popen[str]

    @contextmanager
    def run(self, order: dict[str, Any]) -> Iterator[Forked]:
        """A run: root, url, log, and changes of the endpoint. Killed at the end unless it was waited for."""
        self._tell(json.dumps(order))
        forked = Forked(self._hear("pid"), Path(order["log"]))
        try:
            yield forked
        finally:
            if forked.code is None:
                forked.kill()
                self.wait(forked)

    def wait(self, forked: Forked) -> int:
        """Wait for its end; its exit code."""
        self._tell("wait")
        forked.code = self._hear(f"end of {forked.pid}")
        return forked.code

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _hear(self, about: str) -> int:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        said, _, number = line.strip().rpartition(" ")
        assert said == about, f"expected the {about}, found {line!r}"
        return int(number)


@contextmanager
def forking(key: str) -> Iterator[Forker]:
    """A process to fork runs from, with an API key in its environment; its runs are ended by whoever started them."""
    environment = {**os.environ, "OPENROUTER_API_KEY": key}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.generate.forks"], cwd=ROOT, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield Forker(process)
        finally:
            process.kill()


def main() -> None:
    """Fork a run for each order."""
    from toolkit.contract import read_contract
    from toolkit.prompt import render_prompt
    from toolkit.vocabulary import load_vocabulary

    kimi = read_contract("kimi-k2.5")
    vocabulary = load_vocabulary(kimi)
    # Whatever is imported late is imported here once.
    render_prompt(kimi, vocabulary, [{"role": "user", "content": "hi"}], None, kimi.default_mode)
    import pyarrow.parquet  # noqa: F401

    import toolkit.generate.client
    import toolkit.generate.run  # noqa: F401

    while line := sys.stdin.readline():
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            code = 1
            try:
                _run(order, kimi, vocabulary)
                code = 0
            except BaseException:  # noqa: BLE001 - whatever it is, this process must end here
                traceback.print_exc()
            finally:
                os._exit(code)
        print("pid", pid, flush=True)
        # Not waited for before that is asked: until then its pid is nobody else's, and may be killed.
        sys.stdin.readline()
        print(f"end of {pid}", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _run(order: dict[str, Any], kimi: Any, vocabulary: Any) -> None:
    from tests.generate.conftest import PassingTime, endpoint_at
    from toolkit.config import DatasetSettings
    from toolkit.generate.run import Surroundings, generate
    from toolkit.store.workspace import Workspace

    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(*event: Any) -> None:
        os.write(log, json.dumps(event).encode() + b"\n")

    _overhear(say)
    passing = PassingTime()
    summary = generate(
        Workspace(Path(order["root"])).dataset_named("B3"), DatasetSettings(max_tokens=256),
        endpoint_at(order["url"], **order["endpoint"]), kimi, vocabulary,
        watch=lambda status: say("phase", status.phase),
        surroundings=Surroundings(sleep=passing.sleep, ticks=passing.ticks),
    )  # fmt: skip
    say("end", summary.as_json())


def _overhear(say: Callable[..., None]) -> None:
    """Have the books of this process say what they have just counted."""
    from toolkit.generate.books import Books

    keep, note_cost, give_up = Books.keep, Books.note_cost, Books.give_up

    async def keep_aloud(self: Books, came: Any, source: str) -> None:
        await keep(self, came, source)
        say("kept", came.entry.sample_id, came.reply.request_id)

    async def note_cost_aloud(self: Books, refused: Any) -> Any:
        noted = await note_cost(self, refused)
        if noted is not refused:
            say("failure", refused.failure.sample_id, refused.failure.reason)
        return noted

    async def give_up_aloud(self: Books, refused: Any) -> None:
        await give_up(self, refused)
        say("failure", refused.failure.sample_id, refused.failure.reason)
        say("gave_up", refused.failure.sample_id)

    Books.keep, Books.note_cost, Books.give_up = keep_aloud, note_cost_aloud, give_up_aloud  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
