"""Shadows that do not tell the truth, for `fairness.shadow_agrees` to catch; and a twin that does, in its own way.

Laid over a service with a shadow.
"""

from __future__ import annotations

from dataclasses import replace

from stub_service.admission import registry
from stub_service.admission.policy import Ticket
from stub_service.admission.service import SharedService
from stub_service.admission.shared_fifo import SharedFifo
from stub_service.admission.weighted_queues import WeightedFairQueues
from stub_service.config import SharedServiceConfig
from stub_service.defects.registry import SHARED, become, broken, twin

AGREES = "fairness.shadow_agrees"
ALSO = ("fairness.ordinary_unmoved", "fairness.max_min")


class SharesWorkers(SharedService):
    """What starts in the shadow takes a worker from the calls that are really there."""

    def start_ready(self, now_ns: int) -> list[Ticket]:
        shadow = self.shadow
        taken = min(shadow.running if shadow is not None else 0, self.workers // 2)
        self.workers -= taken
        started = super().start_ready(now_ns)
        self.workers += taken
        return started


def _another(service: SharedService, config: SharedServiceConfig) -> None:
    if service.shadow is not None:
        service.shadow.policy = SharedFifo(config.admission.queue or config.admission.queue_per_tenant)


def _shorter(service: SharedService, config: SharedServiceConfig) -> None:
    if service.shadow is not None:
        kept = config.shadow or config.admission
        shorter = replace(kept, queue=kept.queue // 2, queue_per_tenant=kept.queue_per_tenant // 4)
        service.shadow.policy = registry.build(shorter)


def _takes(service: SharedService, config: SharedServiceConfig) -> None:
    become(service, SharesWorkers)


def _other_code(service: SharedService, config: SharedServiceConfig) -> None:
    if service.shadow is not None:
        service.shadow.policy = WeightedFairQueues(config.admission.queue_per_tenant, {})


broken("shadow_is_another_policy", "the shadow runs a policy that nobody will switch on", _another, AGREES, part=SHARED)
broken("shadow_has_other_bounds", "the shadow's queues are shorter than they will be", _shorter, AGREES, part=SHARED)
broken("shadow_takes_workers", "what starts in the shadow takes real workers", _takes, AGREES, part=SHARED, also=ALSO)
twin("twin_shadow_in_other_code", "the same policy in shadow, in other code", _other_code, AGREES, part=SHARED)
