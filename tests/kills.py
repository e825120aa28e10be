"""A process that dies as by kill -9 around its k-th step on the disk: no `finally` runs, no buffer is flushed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def count_steps(run: Callable[[], object]) -> int:
    """Renames and removals of an undisturbed run, in a child."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        with _counted(die_at=-1) as steps:
            run()
        os.write(write, str(steps[0]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        found = told.read()
    assert _ended(child) == 0
    return int(found)


def die_at(step: int, run: Callable[[], object]) -> None:
    """Run in a child that dies right before its step (even numbers: 2 k) or right after it (2 k + 1)."""
    child = os.fork()
    if not child:
        with _counted(die_at=step):
            run()
        os._exit(0)
    assert _ended(child) == 9


class _counted:  # noqa: N801 (reads as a phrase)
    def __init__(self, die_at: int):
        self._die_at = die_at
        self._steps = [0]

    def __enter__(self) -> list[int]:
        signal.alarm(60)  # a child that hangs must not hang the tests
        for name in ("replace", "unlink"):
            setattr(Path, name, self._wrapped(getattr(Path, name)))
        return self._steps

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            os._exit(1)

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(path: Path, *arguments: Any, **options: Any) -> Any:
            at = self._steps[0]
            self._steps[0] += 1
            if self._die_at == 2 * at:
                os._exit(9)
            done = real(path, *arguments, **options)
            if self._die_at == 2 * at + 1:
                os._exit(9)
            return done

        return step


def _ended(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
