"""The seam that every admission policy fits: which calls wait, and which starts next.

A policy holds waiting tickets and decides; it owns no workers, no clock and no randomness. The service (service.py)
tells it how many workers are free and what started and finished. Postconditions that tests/unit hold every policy to:

- conservation: a ticket that was accepted is taken exactly once, or discarded exactly once;
- bounds: what waits beyond the free workers never exceeds the policy's bound;
- work conservation: `take` returns a ticket whenever one may start (under `tenant_cap`: whenever a tenant below its cap
  waits); and a call that a free worker would take at once is not refused;
- no starvation: a tenant that keeps one call waiting is served within a bounded number of takes.

To add a policy: a class with these five methods, and a line in registry.py.
"""

from __future__ import annotations

from typing import Any, Protocol

NEW, WAITING, RUNNING, GONE = range(4)


class Ticket:
    """One call inside the service. tenant: who is charged. queue: which one it joined, where a tenant has several. ref:
    whatever the driver needs to find its own record of it."""

    __slots__ = ("arrived_ns", "cost", "order", "queue", "ref", "service_ns", "started_ns", "state", "tenant")

    def __init__(self, tenant: str, cost: float, ref: Any) -> None:
        self.tenant = tenant
        self.cost = cost
        self.ref = ref
        self.state = NEW
        self.order = 0
        self.queue = -1
        self.arrived_ns = -1
        self.started_ns = -1
        self.service_ns = -1


class Policy(Protocol):
    waiting: int
    """Tickets accepted, not yet taken and not discarded."""

    def offer(self, ticket: Ticket, free: int) -> str | None:
        """Accepts the ticket (None), or says why not: `queue_full` or `tenant_queue_full`. free: idle workers."""

    def take(self) -> Ticket | None:
        """Removes and returns the ticket to start next; None if none may start."""

    def discard(self, ticket: Ticket) -> None:
        """The ticket leaves the queue without starting (its caller gave up, its deadline passed)."""

    def finished(self, ticket: Ticket) -> None:
        """A ticket that was taken no longer occupies a worker."""

    def ahead_of(self, tenant: str) -> int:
        """How many waiting tickets a new one of this tenant would queue behind (for Retry-After)."""
