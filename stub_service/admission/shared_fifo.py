"""One queue for all, first in, first out: what most services do, and what lets one tenant hurt the others."""

from __future__ import annotations

from collections import OrderedDict

from stub_service.admission.policy import Ticket


class SharedFifo:
    """queue: most tickets that may wait beyond the free workers."""

    def __init__(self, queue: int) -> None:
        self._bound = queue
        self._queue: OrderedDict[Ticket, None] = OrderedDict()
        self.waiting = 0

    def offer(self, ticket: Ticket, free: int) -> str | None:
        if self.waiting >= self._bound + free:
            return "queue_full"
        self._queue[ticket] = None
        self.waiting += 1
        return None

    def take(self) -> Ticket | None:
        if not self.waiting:
            return None
        self.waiting -= 1
        return self._queue.popitem(last=False)[0]

    def discard(self, ticket: Ticket) -> None:
        del self._queue[ticket]
        self.waiting -= 1

    def finished(self, ticket: Ticket) -> None:
        pass

    def ahead_of(self, tenant: str) -> int:
        return self.waiting
