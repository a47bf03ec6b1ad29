"""The workers of one dependency: whoever comes first is served first, and nobody else is while all are busy.

A plain object: it knows no time. A waiter that gives up leaves the queue; one that gives up in the very moment in which
a worker was handed to it hands that worker on. Never lets a worker be lost or be held twice.
"""

from __future__ import annotations

import asyncio
from collections import deque


class WorkerPool:
    """`await take()`, then `give_back()` exactly once."""

    __slots__ = ("_waiters", "in_use", "workers")

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError("a dependency needs at least one worker")
        self.workers = workers
        self.in_use = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return sum(1 for waiter in self._waiters if not waiter.done())

    def take_at_once(self) -> bool:
        """A worker, if one is idle and nobody waits for it."""
        if self.in_use >= self.workers:
            return False
        self.in_use += 1
        return True

    async def take(self) -> None:
        """Waits for a worker, first come, first served. On cancellation none is held."""
        if self.take_at_once():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_back()
            else:
                self._waiters.remove(waiter)
            raise

    def give_back(self) -> None:
        """The worker goes to whoever has waited longest, so it is never idle while anyone waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.in_use -= 1
