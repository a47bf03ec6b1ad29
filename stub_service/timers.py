"""Timers of the stub, exact to some tens of microseconds: one heap of absolute instants, woken by a timerfd.

asyncio's and uvloop's own timers sleep in whole milliseconds, which would make a service time of 20 ms wrong by 5 %. A
Linux timerfd (timerfd_create(2), CLOCK_MONOTONIC, absolute) wakes the loop at the nanosecond asked for; where there is
none, the loop's timers are used, re-armed when early. Timers due at one wake-up fire in order of (due, kind, sequence),
so that an end that was due before a deadline is handled before it, however late both are.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Callback = Callable[[Any, int, int], None]
"""(subject, due_ns, now_ns), both on CLOCK_MONOTONIC."""

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_DUE, _CALLBACK, _SUBJECT = 0, 3, 4
_COMPACT_ABOVE = 1024

Timer = list[Any]
"""[due_ns, kind, sequence, callback or None once cancelled or fired, subject]"""


class Timers:
    """`at` sets, `cancel` unsets. Single-threaded: belongs to the loop it is given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._heap: list[Timer] = []
        self._order = 0
        self._cancelled = 0
        self._alarm = _alarm(loop, self._wake)

    def at(self, due_ns: int, kind: int, callback: Callback, subject: Any) -> Timer:
        """Calls `callback(subject, due_ns, now_ns)` once the monotonic clock reads `due_ns` or more."""
        self._order += 1
        timer: Timer = [due_ns, kind, self._order, callback, subject]
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer:
            self._alarm.set(due_ns)
        return timer

    def cancel(self, timer: Timer) -> None:
        """A timer that has fired or was cancelled may be cancelled again."""
        if timer[_CALLBACK] is None:
            return
        timer[_CALLBACK] = timer[_SUBJECT] = None
        self._cancelled += 1
        if self._cancelled > _COMPACT_ABOVE and self._cancelled * 2 > len(self._heap):
            # Queue deadlines are mostly cancelled: without this they would stay until they would have been due.
            self._heap = [kept for kept in self._heap if kept[_CALLBACK] is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        self._heap.clear()
        self._alarm.close()

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def _wake(self) -> None:
        while self._heap:
            now_ns = time.monotonic_ns()
            if self._heap[0][_DUE] > now_ns:
                break
            timer = heapq.heappop(self._heap)
            callback, subject = timer[_CALLBACK], timer[_SUBJECT]
            if callback is None:
                self._cancelled -= 1
                continue
            timer[_CALLBACK] = timer[_SUBJECT] = None
            callback(subject, timer[_DUE], now_ns)
        if self._heap:
            self._alarm.set(self._heap[0][_DUE])


class _LoopAlarm:
    """Where there is no timerfd: the loop's own timer, in whole milliseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_ns: int) -> None:
        self.close()
        self._handle = self._loop.call_later(max(0, due_ns - time.monotonic_ns()) / 1e9, self._wake)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class _TimerFd:
    """One timerfd watched by the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None], libc: Any, fd: int) -> None:
        self._loop = loop
        self._wake = wake
        self._settime = libc.timerfd_settime
        self._spec = _Itimerspec(0, 0, 0, 0)
        self._fd = fd
        loop.add_reader(fd, self._readable)

    def set(self, due_ns: int) -> None:
        # An all-zero value would disarm the timer instead of firing it at once.
        self._spec.value_s, self._spec.value_ns = divmod(max(1, due_ns), 1_000_000_000)
        self._settime(self._fd, _ABSOLUTE, ctypes.byref(self._spec), None)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # re-armed for later between the wake-up and this read
        self._wake()


def _alarm(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> _TimerFd | _LoopAlarm:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "timerfd_create"):
            fd = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
            if fd >= 0:
                return _TimerFd(loop, wake, libc, fd)
    return _LoopAlarm(loop, wake)
