"""An overload that outlives its trigger, for `fairness.recovers` to catch; and a twin that only looks unruly."""

from __future__ import annotations

from stub_service.admission.fair_queues import FairQueues
from stub_service.admission.policy import Ticket
from stub_service.admission.service import SharedService
from stub_service.admission.shared_fifo import SharedFifo
from stub_service.config import SharedServiceConfig
from stub_service.defects.registry import SHARED, broken, twin

RECOVERS = "fairness.recovers"
ALSO = ("fairness.ordinary_unmoved", "fairness.max_min")
LONG = 100_000


class NewestFirst(FairQueues):
    """Twin: of a tenant's own calls the newest is next, which has the most patience left (adaptive LIFO, Maurer 2015).
    The oldest may never start, and nobody is hurt by it."""

    def take(self) -> Ticket | None:
        for key in self._turns:
            queue = self._queues.get(key)
            if queue:
                queue.move_to_end(next(reversed(queue)), last=False)
                break
        return super().take()


def _long(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = SharedFifo(LONG)


def _newest(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = NewestFirst(config.admission.queue_per_tenant)


broken(
    "replans_keep_overload_alive",
    "one long queue: calls start when their callers have nearly given up, and come again",
    _long, RECOVERS, part=SHARED, also=ALSO,
)  # fmt: skip
twin("twin_newest_call_first", "of a tenant's own calls the newest is next", _newest, RECOVERS, part=SHARED)
