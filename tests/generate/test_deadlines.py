"""One time limit for many: who is late is told so, and nobody else is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from toolkit.generate.deadlines import TimeLimit

from .virtual_time import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        found = runner.get_loop()
        assert isinstance(found, VirtualLoop)
        yield found


async def taking(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def test_what_comes_in_time_is_given_and_what_does_not_is_late(loop: VirtualLoop):
    async def go() -> tuple[list[object], float]:
        limit = TimeLimit(10)
        each = [limit.bound(taking(seconds)) for seconds in (9, 11, 3, 12)]
        return list(await asyncio.gather(*each, return_exceptions=True)), loop.time()

    (first, second, third, fourth), ended = loop.run_until_complete(go())
    assert (first, third) == (9, 3)
    assert isinstance(second, TimeoutError)
    assert isinstance(fourth, TimeoutError)
    assert ended == pytest.approx(10, abs=0.01)


def test_each_has_the_whole_time_from_its_own_start(loop: VirtualLoop):
    async def begun_at(limit: TimeLimit, seconds: float) -> float:
        await asyncio.sleep(seconds)
        with pytest.raises(TimeoutError):
            await limit.bound(asyncio.Event().wait())
        return loop.time() - seconds

    async def go() -> list[float]:
        limit = TimeLimit(10)
        return await asyncio.gather(*(begun_at(limit, seconds) for seconds in (0, 4, 9.5, 30)))

    assert loop.run_until_complete(go()) == pytest.approx([10] * 4, abs=0.01)


def test_errors_of_what_is_bounded_pass_through(loop: VirtualLoop):
    async def failing() -> None:
        raise ValueError("its own")

    async def go() -> None:
        await TimeLimit(10).bound(failing())

    with pytest.raises(ValueError, match="its own"):
        loop.run_until_complete(go())


def test_whoever_is_cancelled_from_outside_is_not_late(loop: VirtualLoop):
    async def go(doing: Coroutine[Any, Any, object], *, cancelled_after_s: float) -> None:
        task = asyncio.ensure_future(TimeLimit(10).bound(doing))
        await asyncio.sleep(cancelled_after_s)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(go(taking(60), cancelled_after_s=5))


def test_a_task_goes_on_after_it_was_late_and_can_still_be_cancelled(loop: VirtualLoop):
    async def late_then_waiting(limit: TimeLimit, seen: list[int]) -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(TimeoutError):
            await limit.bound(taking(60))
        seen.append(task.cancelling())
        await taking(60)

    async def go() -> list[int]:
        seen: list[int] = []
        task = asyncio.ensure_future(late_then_waiting(TimeLimit(10), seen))
        await asyncio.sleep(20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    assert loop.run_until_complete(go()) == [0]


def test_what_ends_well_though_it_was_late_is_given_and_leaves_nothing_behind(loop: VirtualLoop):
    """What is paid for is kept; and the task is not taken for one that somebody still wants to end."""

    async def finishing() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "whole"
        return "in time"

    async def go() -> tuple[str, int]:
        task = asyncio.current_task()
        assert task is not None
        return await TimeLimit(10).bound(finishing()), task.cancelling()

    assert loop.run_until_complete(go()) == ("whole", 0)


@pytest.mark.parametrize("first", ["outside", "timer"])
def test_whoever_is_cancelled_at_the_moment_of_being_late_is_cancelled(loop: VirtualLoop, first: str):
    async def go() -> tuple[bool, int]:
        limit = TimeLimit(10)
        if first == "timer":
            task = asyncio.ensure_future(limit.bound(taking(60)))
            await asyncio.sleep(0)
            loop.call_at(loop.time() + 10, task.cancel)
        else:
            began = loop.time()
            loop.call_at(began + 10, lambda: task.cancel())
            task = asyncio.ensure_future(limit.bound(taking(60)))
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled(), task.cancelling()

    assert loop.run_until_complete(go()) == (True, 1)


def test_one_timer_serves_all(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch):
    timers: list[float] = []
    call_at = loop.call_at

    def counted(when: float, callback: Any, *given: Any, context: Any = None) -> asyncio.TimerHandle:
        if getattr(callback, "__self__", None).__class__ is TimeLimit:
            timers.append(when)
        return call_at(when, callback, *given, context=context)

    monkeypatch.setattr(loop, "call_at", counted)

    async def go() -> None:
        limit = TimeLimit(600)
        await asyncio.gather(*(limit.bound(taking(0.001 * i)) for i in range(500)))

    loop.run_until_complete(go())
    assert timers == [600]
