"""An event loop whose timers are exact: `asyncio.sleep` and `asyncio.timeout` wait on a timerfd, to the nanosecond.

uvloop's own timers sleep in whole milliseconds, counted from a clock that it reads once a turn, so they can be early by
one: a retry would then come before the instant that a Retry-After stated. Here no timer fires before its instant. Only
where there is a timerfd; elsewhere the standard loop serves, which rounds up.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVarTuple

import uvloop

from stub_service.timers import Timer, Timers

Ts = TypeVarTuple("Ts")
_KIND = 5


class _Handle(asyncio.TimerHandle):
    """Knows its timer, so that cancelling one cancels the other."""

    __slots__ = ("timer",)
    timer: Timer


class ExactLoop(uvloop.Loop):  # type: ignore[misc]  # uvloop tells mypy nothing
    """uvloop with timers of stub_service/timers.py."""

    def __init__(self) -> None:
        super().__init__()
        self._exact = Timers(self)

    def time(self) -> float:
        return time.monotonic()

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _Handle(when, callback, args, self, context)
        handle.timer = self._exact.at(math.ceil(when * 1e9), _KIND, _fire, handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _Handle(time.monotonic() + delay, callback, args, self, context)
        due_ns = time.monotonic_ns() + math.ceil(delay * 1e9)
        handle.timer = self._exact.at(due_ns, _KIND, _fire, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asked by TimerHandle.cancel."""
        assert isinstance(handle, _Handle)
        self._exact.cancel(handle.timer)

    def close(self) -> None:
        self._exact.close()
        super().close()


def _fire(handle: _Handle, _due_ns: int, _now_ns: int) -> None:
    handle._run()


def run(main: Coroutine[Any, Any, int]) -> int:
    """As asyncio.run, on an exact loop."""
    with asyncio.Runner(loop_factory=ExactLoop) as runner:
        return runner.run(main)
