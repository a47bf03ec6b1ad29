"""One shared queue, and a cap on how many calls of one tenant may run at once.

A capped tenant's calls are skipped, not blocking those behind. It looks like isolation and is not: the queue is still
shared, so a flood fills it and the others are refused at the door.

Kept as one queue a tenant plus a global order: the next to start is the oldest head among tenants below the cap, found
through a heap of heads, so that a take is logarithmic in tenants however long the capped tenant's queue is. How many
waiting tickets the cap would let start is kept up to date with every change, so that an offer costs the same however
many tenants wait:

    may_start = sum over tenants of min(waiting, cap - running)      [tickets]
"""

from __future__ import annotations

import heapq
from collections import OrderedDict

from stub_service.admission.policy import Ticket


class TenantCap:
    """queue: most tickets that may wait (in all) beyond the free workers. cap: most running per tenant."""

    def __init__(self, queue: int, cap: int) -> None:
        self._bound = queue
        self._cap = cap
        self._queues: dict[str, OrderedDict[Ticket, None]] = {}
        self._running: dict[str, int] = {}
        self._heads: list[tuple[int, str]] = []
        self._may_start = 0
        self._order = 0
        self.waiting = 0

    def offer(self, ticket: Ticket, free: int) -> str | None:
        tenant = ticket.tenant
        queue = self._queues.get(tenant)
        below_cap = self._running.get(tenant, 0) + (len(queue) if queue is not None else 0) < self._cap
        if self.waiting >= self._bound:
            starts_at_once = below_cap and free > self._may_start
            if not starts_at_once and self.waiting >= self._bound + min(free, self._may_start):
                return "queue_full"
        if queue is None:
            queue = self._queues[tenant] = OrderedDict()
        self._may_start += below_cap
        self._order += 1
        ticket.order = self._order
        queue[ticket] = None
        self.waiting += 1
        if len(queue) == 1:
            self._push_head(tenant)
        return None

    def take(self) -> Ticket | None:
        heads = self._heads
        while heads:
            order, tenant = heapq.heappop(heads)
            queue = self._queues.get(tenant)
            if not queue or self._running.get(tenant, 0) >= self._cap or next(iter(queue)).order != order:
                continue  # stale: the head left, or the tenant reached its cap; a fresh entry exists or will be made
            ticket = queue.popitem(last=False)[0]
            self.waiting -= 1
            self._may_start -= 1
            self._running[tenant] = self._running.get(tenant, 0) + 1
            self._after_removal(tenant, queue)
            return ticket
        return None

    def discard(self, ticket: Ticket) -> None:
        queue = self._queues[ticket.tenant]
        was_head = next(iter(queue)) is ticket
        del queue[ticket]
        self.waiting -= 1
        self._may_start -= self._running.get(ticket.tenant, 0) + len(queue) < self._cap
        if was_head:
            self._after_removal(ticket.tenant, queue)

    def finished(self, ticket: Ticket) -> None:
        tenant = ticket.tenant
        running = self._running[tenant] - 1
        self._may_start += running + len(self._queues.get(tenant, ())) >= self._cap
        if running:
            self._running[tenant] = running
        else:
            del self._running[tenant]
        if running == self._cap - 1 and tenant in self._queues:
            self._push_head(tenant)

    def ahead_of(self, tenant: str) -> int:
        return self.waiting

    def _after_removal(self, tenant: str, queue: OrderedDict[Ticket, None]) -> None:
        if queue:
            self._push_head(tenant)
        else:
            del self._queues[tenant]

    def _push_head(self, tenant: str) -> None:
        if self._running.get(tenant, 0) >= self._cap:
            return
        heapq.heappush(self._heads, (next(iter(self._queues[tenant])).order, tenant))
        if len(self._heads) > 2 * len(self._queues) + 64:
            # Heads that left without starting stay behind; where little starts, they would pile up.
            self._heads = [
                (next(iter(queue)).order, name)
                for name, queue in self._queues.items()
                if self._running.get(name, 0) < self._cap
            ]
            heapq.heapify(self._heads)
