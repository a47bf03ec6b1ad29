"""Waits for a signal until a deadline. Never says that it is too late early, and leaves nothing behind: what waited and
what it waited for are free as soon as it ends, without a garbage collector, which the stub hardly ever lets run."""

from __future__ import annotations

from asyncio import Future, TimerHandle, get_running_loop
from collections.abc import Callable


async def signal_of(future: Future[str], deadline_ns: int, now_ns: Callable[[], int], too_late: str) -> str:
    """The result of the future; `too_late` where there is none by the deadline."""
    timers: list[TimerHandle] = []
    _set(timers, future, deadline_ns, now_ns, too_late)
    try:
        return await future
    finally:
        timers[0].cancel()


def _set(
    timers: list[TimerHandle], future: Future[str], deadline_ns: int, now_ns: Callable[[], int], too_late: str
) -> None:
    left_s = max(0, deadline_ns - now_ns()) / 1e9
    # Arguments go with the timer when it is cancelled; a nested function that names itself would stay, in a cycle.
    timers[:] = [get_running_loop().call_later(left_s, _due, timers, future, deadline_ns, now_ns, too_late)]


def _due(
    timers: list[TimerHandle], future: Future[str], deadline_ns: int, now_ns: Callable[[], int], too_late: str
) -> None:
    if future.done():
        return
    if now_ns() >= deadline_ns:
        future.set_result(too_late)
    else:  # the loop rounds: never early
        _set(timers, future, deadline_ns, now_ns, too_late)
