"""An asyncio loop whose time jumps: coroutines that sleep and wait run in virtual time, as fast as they compute.

    ready callbacks run first, in the order in which they were scheduled; when none is left, time becomes that of the
    earliest timer, and all timers of that very instant become ready, in the order in which they were set

(asyncio's own timer heap keeps no order among equal times.) Time is an integer number of nanoseconds. asyncio hands
delays over as float seconds; rounded to whole nanoseconds they are the integers that they came from as long as time
stays below 2^50 ns (13 days): three roundings of a double of that size are off by less than half a nanosecond.

Waiting for something that nothing will ever bring is a deadlock here, and raises: real time would hang. Never reads a
clock, waits, or opens a socket; a coroutine that does is not for this loop.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple
from weakref import ref

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_PER_S = 1_000_000_000
_COMPACT_ABOVE = 512
_Task = asyncio.Task[Any]


class Deadlock(RuntimeError):
    """The main coroutine waits, and nothing is scheduled that could wake it."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The standard loop with another `time()` and another way of waiting. It begins at 0 ns."""

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now_ns = 0
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._sequence = 0
        self._cancelled_timers = 0
        self._broken: BaseException | None = None
        self._tasks: list[ref[_Task]] = []
        self._forget_tasks_at = _COMPACT_ABOVE
        self.set_exception_handler(_keep_exception)

    def now_ns(self) -> int:
        """Nanoseconds since the loop began, exact."""
        return self._now_ns

    def time(self) -> float:
        return self._now_ns / _PER_S

    def at_ns(self, when_ns: int, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Calls back at an exact instant; one that has passed means now, after what is ready already."""
        return self._set_timer(when_ns, callback, args, None)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._set_timer(round(when * _PER_S), callback, args, context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._set_timer(self._now_ns + round(delay * _PER_S), callback, args, context)

    def _set_timer(
        self, when_ns: int, callback: Callable[..., object], args: Any, context: Context | None
    ) -> asyncio.TimerHandle:
        when_ns = max(when_ns, self._now_ns)
        timer = asyncio.TimerHandle(when_ns / _PER_S, callback, args, self, context)
        self._sequence += 1
        heapq.heappush(self._timers, (when_ns, self._sequence, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asked by TimerHandle.cancel. Time limits are mostly cancelled: without this they would stay until due.
        Those that have fired already are counted, too: it only says when tidying up is worth it."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _COMPACT_ABOVE and self._cancelled_timers > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2].cancelled() and timer[2] is not handle]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def create_task(self, coro: Coroutine[Any, Any, T], **how: Any) -> asyncio.Task[T]:  # type: ignore[override]
        """As any loop does, and it stays known for as long as it lives: `finish` asks what became of it."""
        task = asyncio.Task(coro, loop=self, **how)
        self._tasks.append(ref(task))
        if len(self._tasks) > self._forget_tasks_at:
            self._tasks = [known for known in self._tasks if known() is not None]
            self._forget_tasks_at = _COMPACT_ABOVE + 2 * len(self._tasks)
        return task

    def _run_once(self) -> None:
        """One round of the loop that `run_forever` repeats: what is ready now, and only that."""
        ready = self._ready
        if not ready and not self._stopping:
            self._advance()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _advance(self) -> None:
        timers, ready = self._timers, self._ready
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(
                f"deadlock in virtual time at {self._now_ns} ns: every coroutine waits, and nothing is scheduled"
            )
        now_ns = self._now_ns = timers[0][0]
        while timers and timers[0][0] == now_ns:
            ready.append(heapq.heappop(timers)[2])

    def _write_to_self(self) -> None:
        """Nothing sleeps that would have to be woken."""

    def finish(self) -> BaseException | None:
        """Cancels what is left, runs that to its end, and closes. Returns what broke in a callback or in a task that
        nobody waits for."""
        with suppress(Deadlock):
            self.run_until_complete(_cancel_all(self))
            self.run_until_complete(self.shutdown_asyncgens())
        for known in self._tasks:
            self._ask(known())
        self.close()
        return self._broken

    def _ask(self, task: _Task | None) -> None:
        """A task that broke unseen tells of it when it is freed, and may hang in a cycle until long after the trial. To
        have it collected would cost more than a short trial does."""
        if task is not None and task._log_traceback:  # its exception was never taken from it
            self.keep(task.exception())

    def keep(self, error: BaseException | None) -> None:
        self._broken = self._broken or error


async def _cancel_all(loop: VirtualLoop) -> None:
    """In the order in which they were made (that of their names): a set of tasks has none of its own."""
    tasks = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task(loop)]
    for task in sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name())):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _keep_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    loop.keep(context.get("exception"))


def now_ns() -> int:
    """The time of the virtual loop that runs now. Raises RuntimeError outside of one."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise RuntimeError("the running loop is not a virtual one")
    return loop.now_ns()


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end in virtual time, beginning at 0 ns, and returns its result.

    Tasks that still run then are cancelled. Raises what the coroutine raises; Deadlock; and what broke in a callback
    or in a task that nobody waited for: in virtual time nothing may go wrong in silence.
    """
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(main)
    except BaseException:
        main.close()
        loop.finish()
        raise
    broken = loop.finish()
    if broken is not None:
        raise broken
    return result
