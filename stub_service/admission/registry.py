"""Names of policies, and how each is built from its configuration."""

from __future__ import annotations

from collections.abc import Callable

from stub_service.admission.fair_queues import FairQueues
from stub_service.admission.policy import Policy
from stub_service.admission.shared_fifo import SharedFifo
from stub_service.admission.shuffle_sharding import ShuffleSharded
from stub_service.admission.tenant_cap import TenantCap
from stub_service.admission.weighted_queues import WeightedFairQueues
from stub_service.config import AdmissionConfig


def _fair_queues(config: AdmissionConfig) -> Policy:
    if config.weights:
        return WeightedFairQueues(config.queue_per_tenant, dict(config.weights))
    return FairQueues(config.queue_per_tenant)


POLICIES: dict[str, Callable[[AdmissionConfig], Policy]] = {
    "shared_fifo": lambda config: SharedFifo(config.queue),
    "tenant_cap": lambda config: TenantCap(config.queue, config.cap),
    "fair_queues": _fair_queues,
    "shuffle_sharded": lambda config: ShuffleSharded(config.queues, config.hand, config.queue, config.salt),
}


def build(config: AdmissionConfig) -> Policy:
    """Raises ValueError on a name that is not known."""
    if config.policy not in POLICIES:
        raise ValueError(f"unknown policy '{config.policy}' (known: {', '.join(POLICIES)})")
    return POLICIES[config.policy](config)
