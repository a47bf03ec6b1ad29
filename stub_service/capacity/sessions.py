"""Sessions of the runs, and those that wait for one: a queue for each size, so that a chat turn never waits behind a
deep research.

    a size may start    if a session is free beyond what is kept for the other sizes and not in use by them
    who is next         the longest waiting of the smallest size that may start: short, standard, batch

What is kept for a size is not lent: a session is held for as long as its run lasts, so what is lent would come back too
late. Bounded: a size's queue takes so many and no more. Nobody overtakes within its size. A waiter that gives up in the
very moment in which it was let in hands its session on.
Source: size-interval task assignment (Harchol-Balter, Performance Modeling, ch. 33): short jobs apart from long ones.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Iterable

from stub_service.capacity.cost_config import SIZE_CLASSES, SizeQueue

GRANTED, TOO_LATE = "granted", "too_late"


class Waiter:
    """One run that waits. future: `granted` once it has a session."""

    __slots__ = ("future", "since_ns", "size_class")

    def __init__(self, size_class: str, since_ns: int) -> None:
        self.size_class = size_class
        self.since_ns = since_ns
        self.future: Future[str] = get_running_loop().create_future()


class Sessions:
    """limit: None for as many as come."""

    def __init__(self, limit: int | None, queues: Iterable[SizeQueue] = ()) -> None:
        told = {queue.size_class: queue for queue in queues}
        self.limit = limit
        self.queues = {size: told.get(size) or SizeQueue(size) for size in SIZE_CLASSES}
        self.in_use = dict.fromkeys(SIZE_CLASSES, 0)
        self.waiting: dict[str, deque[Waiter]] = {size: deque() for size in SIZE_CLASSES}

    @property
    def taken(self) -> int:
        return sum(self.in_use.values())

    @property
    def queued(self) -> int:
        return sum(len(waiting) for waiting in self.waiting.values())

    def may_start(self, size_class: str) -> bool:
        """Whether a session is free for this size."""
        if self.limit is None:
            return True
        kept = sum(max(0, queue.kept - self.in_use[size]) for size, queue in self.queues.items() if size != size_class)
        return self.taken + kept < self.limit

    def take_at_once(self, size_class: str) -> bool:
        """A session, if one is free and nobody of this size waits for it."""
        if self.waiting[size_class] or not self.may_start(size_class):
            return False
        self.in_use[size_class] += 1
        return True

    def join(self, size_class: str, now_ns: int) -> Waiter | None:
        """A place in the queue; None: it is full."""
        waiting = self.waiting[size_class]
        if len(waiting) >= self.queues[size_class].queue:
            return None
        waiter = Waiter(size_class, now_ns)
        waiting.append(waiter)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """It waits no more, and has no session: not even one that it was handed a moment ago."""
        if waiter in self.waiting[waiter.size_class]:
            self.waiting[waiter.size_class].remove(waiter)
        elif waiter.future.done() and not waiter.future.cancelled() and waiter.future.result() == GRANTED:
            self.give_back(waiter.size_class)

    def give_back(self, size_class: str) -> None:
        self.in_use[size_class] -= 1
        self.pump()

    def pump(self) -> None:
        """Lets in all who may start."""
        while (size := self.next_size()) is not None:
            waiter = self.waiting[size].popleft()
            if not waiter.future.done():
                self.in_use[size] += 1
                waiter.future.set_result(GRANTED)

    def next_size(self) -> str | None:
        """Whose turn it is."""
        return next((size for size in SIZE_CLASSES if self.waiting[size] and self.may_start(size)), None)

    def oldest_ns(self, now_ns: int) -> int:
        """How long the longest waiting of any size has waited; 0: nobody waits."""
        firsts = [waiting[0].since_ns for waiting in self.waiting.values() if waiting]
        return now_ns - min(firsts) if firsts else 0


class Pool:
    """A number of things that runs hold while they last. limit: None for as many as are asked for."""

    __slots__ = ("in_use", "limit")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.in_use = 0

    def take(self, count: int) -> bool:
        """All of them or none."""
        if self.limit is not None and self.in_use + count > self.limit:
            return False
        self.in_use += count
        return True

    def give_back(self, count: int) -> None:
        self.in_use -= count
