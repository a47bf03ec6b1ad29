"""Fair queues by weight: a tenant's turn is as many calls long as its weight, which follows priority or payment.

Source: Shreedhar and Varghese 1995, deficit round robin, here with one call as the unit of work. Between tenants that
always wait, what each is served is in proportion to the weights, within one turn. A turn that ends early, because
nobody waits, is over: nothing is saved up for a tenant that was idle, and no worker stays idle for one. Weights are
small whole numbers, because a turn is taken in one go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from stub_service.admission.fair_queues import FairQueues, Key
from stub_service.admission.policy import Ticket


class WeightedFairQueues(FairQueues):
    """weights: tenant -> calls a turn, at least 1; 1 for whom it does not name."""

    def __init__(self, queue_per_tenant: int, weights: Mapping[str, int]) -> None:
        super().__init__(queue_per_tenant)
        self._weights: dict[Key, int] = {tenant: weight for tenant, weight in weights.items()}  # noqa: C416 - wider keys
        self._used = 0  # of the turn of the first tenant in `_turns`

    def take(self) -> Ticket | None:
        if not self.waiting:
            return None
        turns, queues = self._turns, self._queues
        while not (queue := queues.get(turns[0])):
            queues.pop(turns.popleft(), None)
            self._used = 0
        key = turns[0]
        ticket = queue.popitem(last=False)[0]
        self.waiting -= 1
        self._used += 1
        if not queue:
            del queues[turns.popleft()]
            self._used = 0
        elif self._used >= self._weight_of(key):
            turns.rotate(-1)
            self._used = 0
        return ticket

    def _would_start(self, key: Key, free: int) -> int:
        started, used, turns = 0, self._used, deque(self._turns)
        left: dict[Key, int] = {}
        while turns and free > 0:
            turn = turns.popleft()
            waiting = left.get(turn, len(self._queues.get(turn, ())))
            count = min(waiting, self._weight_of(turn) - used, free)
            used = 0
            if waiting <= 0:
                continue
            free -= count
            started += count if turn == key else 0
            left[turn] = waiting - count
            turns.append(turn)
        return started

    def _weight_of(self, key: Key) -> int:
        return self._weights.get(key, 1)
