"""Shares that are not max-min, for `fairness.max_min` to catch; and twins that look unfair and are right.

Laid over a service whose policy is `fair_queues` with weights.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from stub_service.admission.fair_queues import FairQueues
from stub_service.admission.policy import Ticket
from stub_service.admission.service import SharedService
from stub_service.admission.weighted_queues import WeightedFairQueues
from stub_service.config import SharedServiceConfig
from stub_service.defects.registry import SHARED, broken, twin

MAX_MIN, UNMOVED = "fairness.max_min", "fairness.ordinary_unmoved"
LEARNED_FROM = 150
"""So many calls tell what each tenant is like, to a service that never looks again."""


class StaleWeights(WeightedFairQueues):
    """Weights follow what the tenants sent in the first moments, and nothing since: whoever grew, or came later, is
    throttled as if it misbehaved."""

    def __init__(self, queue_per_tenant: int) -> None:
        super().__init__(queue_per_tenant, {})
        self._seen = 0

    def offer(self, ticket: Ticket, free: int) -> str | None:
        if self._seen < LEARNED_FROM:
            self._seen += 1
            self._weights[ticket.tenant] = self._weights.get(ticket.tenant, 0) + 1
            if self._seen == LEARNED_FROM:
                least = max(1, min(self._weights.values()) // 2)
                self._weights = {tenant: max(1, count // least) for tenant, count in self._weights.items()}
        return super().offer(ticket, free)


class HardQuota(WeightedFairQueues):
    """A tenant never has more workers than its quota, whoever else is there: the rest stays idle."""

    def __init__(self, queue_per_tenant: int, weights: Mapping[str, int], workers: int) -> None:
        super().__init__(queue_per_tenant, weights)
        self._workers = workers
        self._running: dict[str, int] = {}

    def take(self) -> Ticket | None:
        for _ in range(len(self._turns)):
            queue = self._queues.get(self._turns[0])
            if queue and self._running.get(str(self._turns[0]), 0) < self._quota(str(self._turns[0])):
                ticket = super().take()
                if ticket is not None:
                    self._running[ticket.tenant] = self._running.get(ticket.tenant, 0) + 1
                return ticket
            self._turns.rotate(-1)
            self._used = 0
        return None

    def finished(self, ticket: Ticket) -> None:
        self._running[ticket.tenant] -= 1

    def _quota(self, tenant: str) -> int:
        """Room for as much weight again is kept for tenants that may yet come."""
        total = 2 * (sum(self._weights.values()) + 2)
        return max(1, self._workers * self._weight_of(tenant) // total)


class BanksCredit(FairQueues):
    """Whoever was served least since the beginning, for its weight, is next: a tenant that was idle takes all of it,
    until it has caught up with those that were not."""

    def __init__(self, queue_per_tenant: int, weights: Mapping[str, int]) -> None:
        super().__init__(queue_per_tenant)
        self._shares = dict(weights)
        self._served: dict[str, float] = {}

    def take(self) -> Ticket | None:
        if self.waiting:
            waits = [key for key in self._turns if self._queues.get(key)]
            first = min(waits, key=lambda key: self._served.get(str(key), 0.0))
            self._turns.remove(first)
            self._turns.appendleft(first)
        ticket = super().take()
        if ticket is not None:
            own = self._served.get(ticket.tenant, 0.0)
            self._served[ticket.tenant] = own + 1 / self._shares.get(ticket.tenant, 1)
        return ticket


class SmoothWeights(FairQueues):
    """Twin: weighted fair queueing by virtual start times (Goyal, Vin and Cheng 1996), in another order than turns,
    with the same shares. A tenant that was idle begins at the present virtual time."""

    def __init__(self, queue_per_tenant: int, weights: Mapping[str, int]) -> None:
        super().__init__(queue_per_tenant)
        self._shares = dict(weights)
        self._next: dict[str, float] = {}
        self._now = 0.0

    def take(self) -> Ticket | None:
        waits = [str(key) for key, queue in self._queues.items() if queue]
        if not waits:
            return None
        first = min(waits, key=lambda key: max(self._now, self._next.get(key, 0.0)))
        self._now = max(self._now, self._next.get(first, 0.0))
        self._next[first] = self._now + 1 / self._shares.get(first, 1)
        queue: OrderedDict[Ticket, None] = self._queues[first]
        self.waiting -= 1
        return queue.popitem(last=False)[0]


def _weights(config: SharedServiceConfig) -> dict[str, int]:
    return dict(config.admission.weights)


def _ignored(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = FairQueues(config.admission.queue_per_tenant)


def _stale(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = StaleWeights(config.admission.queue_per_tenant)


def _quota(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = HardQuota(config.admission.queue_per_tenant, _weights(config), config.workers[0][1])


def _banks(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = BanksCredit(config.admission.queue_per_tenant, _weights(config))


def _smooth(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = SmoothWeights(config.admission.queue_per_tenant, _weights(config))


broken("weights_ignored", "every tenant has the same turn, whatever its weight", _ignored, MAX_MIN, part=SHARED)
broken("weights_stale", "weights follow the first traffic, and nothing since", _stale, MAX_MIN, part=SHARED)
broken("hard_quota", "a quota of workers holds while others are idle", _quota, MAX_MIN, part=SHARED, also=(UNMOVED,))
broken("idle_tenant_banks_credit", "who was idle catches up on all that it missed", _banks, MAX_MIN, part=SHARED)
twin("twin_smooth_weights", "weights by virtual time, in another order than turns", _smooth, MAX_MIN, part=SHARED)
twin("twin_spare_room", "a noisy tenant has all that nobody else wants", _smooth, MAX_MIN, part=SHARED)
