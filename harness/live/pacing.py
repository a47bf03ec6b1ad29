"""When things happen in the live driver: one heap of due instants, woken by one kernel timer.

gevent's loop sleeps in whole milliseconds, so its own timers start a call up to 1 ms late. A timerfd with an absolute
deadline on CLOCK_MONOTONIC (timerfd_create(2)) is precise to some tens of microseconds and is only one more descriptor
to the loop. Where there is none (not Linux), a gevent timer wakes early and the rest is spun away.

Instants here are absolute, ns of CLOCK_MONOTONIC. Callbacks run in the hub: they must never block and never raise.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from harness.workload.callers import NEVER

monotonic_ns = time.monotonic_ns
NS_PER_S = 1_000_000_000
_READ = 1
_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
_SPIN_NS = 1_500_000


class Waker(Protocol):
    """Calls back once at the instant it was last armed for. NEVER disarms."""

    def arm(self, at_ns: int) -> None: ...

    def close(self) -> None: ...


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class TimerfdWaker:
    """A timerfd in the loop. Arming anew also forgets an expiry that was not read: one system call a wake-up."""

    def __init__(self, loop: Any, callback: Callable[[], None]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._settime = libc.timerfd_settime
        self._fd = libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._pointer = ctypes.byref(self._spec)
        self._watcher = loop.io(self._fd, _READ)
        self._watcher.start(callback)

    def arm(self, at_ns: int) -> None:
        spec = self._spec
        if at_ns == NEVER:
            spec.value_s = spec.value_ns = 0
        else:
            # An instant of zero would disarm; one that has passed fires at once.
            spec.value_s, spec.value_ns = divmod(max(at_ns, 1), NS_PER_S)
        self._settime(self._fd, _TFD_TIMER_ABSTIME, self._pointer, None)

    def close(self) -> None:
        self._watcher.stop()
        self._watcher.close()
        os.close(self._fd)


class SpinWaker:
    """A gevent timer that wakes 1.5 ms early; the rest is spun, so that no call is late by the loop's grain."""

    def __init__(self, loop: Any, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._timer: Any = None
        self._at_ns = NEVER

    def arm(self, at_ns: int) -> None:
        self.close()
        self._at_ns = at_ns
        if at_ns != NEVER:
            # The loop's clock is as of its last turn; without `update` a long callback would make the timer late.
            self._timer = self._loop.timer(max(0.0, (at_ns - _SPIN_NS - monotonic_ns()) / NS_PER_S))
            self._timer.start(self._fire, update=True)

    def _fire(self) -> None:
        if self._at_ns - monotonic_ns() > 2 * _SPIN_NS:
            self.arm(self._at_ns)
            return
        while monotonic_ns() < self._at_ns:
            pass
        self._callback()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None


def make_waker(loop: Any, callback: Callable[[], None]) -> Waker:
    """The most precise waker that this machine has."""
    try:
        return TimerfdWaker(loop, callback)
    except (AttributeError, OSError, TypeError):
        return SpinWaker(loop, callback)


Wake = Callable[[int, int], None]
"""(at_ns it was put in for, now_ns)"""


class Scheduler:
    """`at(when, wake)` calls `wake(when, now)` once, when it is due. Equal instants keep the order they came in.

    `next_ns` is public so that whoever has just read the clock can see that something is due and call `run` instead
    of leaving it to the next turn of the loop. broke: told of what a wake raised; the others are woken all the same.
    """

    __slots__ = ("_broke", "_heap", "_order", "_running", "_waker", "next_ns")

    def __init__(
        self,
        loop: Any,
        broke: Callable[[Exception], None],
        waker: Callable[[Any, Callable[[], None]], Waker] = make_waker,
    ) -> None:
        self._broke = broke
        self._heap: list[tuple[int, int, Wake]] = []
        self._order = 0
        self._running = False
        self.next_ns = NEVER
        self._waker = waker(loop, self.run)

    def at(self, when_ns: int, wake: Wake) -> None:
        self._order += 1
        heappush(self._heap, (when_ns, self._order, wake))
        if when_ns < self.next_ns:
            self.next_ns = when_ns
            if not self._running:
                self._waker.arm(when_ns)

    def run(self) -> None:
        """Wakes all that is due by now, once: what falls due meanwhile waits for answers to be read first."""
        if self._running:
            return
        self._running = True
        heap = self._heap
        now = monotonic_ns()
        try:
            while heap and heap[0][0] <= now:
                when, _, wake = heappop(heap)
                try:
                    wake(when, now)
                except Exception as error:
                    self._broke(error)
        finally:
            self._running = False
            self.next_ns = heap[0][0] if heap else NEVER
            self._waker.arm(self.next_ns)

    def every(self, period_ns: int, act: Callable[[], None]) -> None:
        """Calls `act` again and again; a turn that came late is not repaid."""

        def turn(when: int, now: int) -> None:
            act()
            self.at(when + period_ns if when + period_ns > now else now + period_ns, turn)

        self.at(monotonic_ns() + period_ns, turn)

    def close(self) -> None:
        self._heap.clear()
        self._waker.close()


T = TypeVar("T")


class Timeouts(Generic[T]):
    """One constant time limit for many things, as a queue instead of a timer each.

    over: says that the thing needs no limit any more. expire: told of each that does, once its limit has passed.
    """

    __slots__ = ("_after_ns", "_compact_at", "_expire", "_over", "_queue", "_scheduler", "_set")

    def __init__(
        self, scheduler: Scheduler, after_ns: int, over: Callable[[T], bool], expire: Callable[[T], None]
    ) -> None:
        self._scheduler = scheduler
        self._after_ns = after_ns
        self._over = over
        self._expire = expire
        self._queue: deque[tuple[int, T]] = deque()
        self._compact_at = 1024
        self._set = False

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, thing: T, now_ns: int) -> None:
        """`now_ns` never decreases."""
        queue = self._queue
        queue.append((now_ns + self._after_ns, thing))
        if not self._set:
            self._set = True
            self._scheduler.at(queue[0][0], self._wake)
        if len(queue) >= self._compact_at:
            # Long limits and quick answers: memory follows what is in flight, not rate times limit.
            self._queue = deque(item for item in queue if not self._over(item[1]))
            self._compact_at = max(1024, 2 * len(self._queue))

    def _wake(self, _: int, now_ns: int) -> None:
        self._set = False
        while self._queue:
            deadline, thing = self._queue[0]
            if self._over(thing):
                self._queue.popleft()
            elif deadline <= now_ns:
                self._queue.popleft()
                self._expire(thing)
            else:
                break
        if self._queue and not self._set:
            self._set = True
            self._scheduler.at(self._queue[0][0], self._wake)
