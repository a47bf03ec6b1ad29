"""A bounded queue for each tenant, served round-robin: a flood fills its own queue and nobody else's.

Source: Nagle 1987 (RFC 970). Shuffle sharding (shuffle_sharding.py) changes which queue a ticket joins, weights
(weighted_queues.py) how long a queue's turn is: `_queue_of`, `take` and `_would_start` are the seam for them.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from stub_service.admission.policy import Ticket

Key = str | int
"""What a queue is found by: its tenant, or its number."""


class FairQueues:
    """queue_per_tenant: most tickets of one tenant that may wait beyond the free workers.

    Postcondition: when a ticket is accepted, no more of its tenant's than that would be left if the free workers took
    theirs now. (If other tenants arrive in the same instant, the round gives those workers to them, and the queue is
    that much longer for a while.)
    """

    _full = "tenant_queue_full"

    def __init__(self, queue_per_tenant: int) -> None:
        self._bound = queue_per_tenant
        self._queues: dict[Key, OrderedDict[Ticket, None]] = {}
        self._turns: deque[Key] = deque()
        self.waiting = 0

    def offer(self, ticket: Ticket, free: int) -> str | None:
        key = self._queue_of(ticket)
        queue = self._queues.get(key)
        length = len(queue) if queue is not None else 0
        if length >= self._bound and self.waiting >= free and length >= self._bound + self._would_start(key, free):
            return self._full
        if queue is None:
            queue = self._queues[key] = OrderedDict()
            self._turns.append(key)
        queue[ticket] = None
        self.waiting += 1
        return None

    def take(self) -> Ticket | None:
        if not self.waiting:
            return None
        while True:
            key = self._turns.popleft()
            queue = self._queues.get(key)
            if queue:
                break
            self._queues.pop(key, None)
        ticket = queue.popitem(last=False)[0]
        self.waiting -= 1
        if queue:
            self._turns.append(key)
        else:
            del self._queues[key]
        return ticket

    def discard(self, ticket: Ticket) -> None:
        # A queue that this empties keeps its place in the round until its turn comes: one entry a tenant at most.
        del self._queues[self._queue_of(ticket)][ticket]
        self.waiting -= 1

    def finished(self, ticket: Ticket) -> None:
        pass

    def ahead_of(self, tenant: str) -> int:
        return len(self._queues.get(tenant, ()))

    def _would_start(self, key: Key, free: int) -> int:
        """How many of this queue's waiting tickets the next `free` takes would return: they do not count as queued.

        Asked only when its queue is full while workers are idle, that is within one instant. Costs the free workers,
        not the queues, unless many of those left without being served.
        """
        started, depth, turns = 0, 0, list(self._turns) if free > 0 else []
        while turns and free:
            deeper = []
            for other in turns:
                length = len(self._queues.get(other, ()))
                if length <= depth:
                    continue
                free -= 1
                started += other == key
                if not free:
                    break
                deeper.append(other)
            turns, depth = deeper, depth + 1
        return started

    def _queue_of(self, ticket: Ticket) -> Key:
        return ticket.tenant
