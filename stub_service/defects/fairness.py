"""Admission gone wrong, for `fairness.ordinary_unmoved` to catch; and its twins, which look suspicious and are fair.

Each is laid over a service whose policy is `fair_queues`.
"""

from __future__ import annotations

from collections import deque
from random import Random

from stub_service.admission.fair_queues import FairQueues
from stub_service.admission.policy import Ticket
from stub_service.admission.service import SharedService
from stub_service.config import SharedServiceConfig
from stub_service.defects.registry import DEFECTS, Defect

UNMOVED, MAX_MIN = "fairness.ordinary_unmoved", "fairness.max_min"


class ForgetsItsPlace(FairQueues):
    """Each take begins at the first tenant again, in the order in which they first came: whoever is early in it comes
    before everybody else, for as long as it has anything waiting."""

    def __init__(self, queue_per_tenant: int) -> None:
        super().__init__(queue_per_tenant)
        self._first_came: dict[str, int] = {}

    def offer(self, ticket: Ticket, free: int) -> str | None:
        self._first_came.setdefault(ticket.tenant, len(self._first_came))
        return super().offer(ticket, free)

    def take(self) -> Ticket | None:
        self._turns = deque(sorted(self._turns, key=lambda tenant: self._first_came[str(tenant)]))
        return super().take()


class OneBoundForAll(FairQueues):
    """The bound counts what all tenants wait, so the flood fills it and the others are refused."""

    def offer(self, ticket: Ticket, free: int) -> str | None:
        if self.waiting >= self._bound + free:
            return "tenant_queue_full"
        return super().offer(ticket, free)


class RotatedStart(FairQueues):
    """Twin: the round begins with a tenant drawn anew whenever the queues have been empty. Fair all the same."""

    def __init__(self, queue_per_tenant: int, rng: Random) -> None:
        super().__init__(queue_per_tenant)
        self._rng = rng
        self._fresh = True

    def take(self) -> Ticket | None:
        if self._fresh and len(self._turns) > 1:
            self._turns.rotate(self._rng.randrange(len(self._turns)))
        ticket = super().take()
        self._fresh = not self.waiting
        return ticket


class NewestTenantFirst(FairQueues):
    """Twin: a tenant that had nothing waiting gets its first turn at once, as in fair queueing for thin flows (RFC
    8290). It cannot jump twice while it waits, so it starves nobody."""

    def offer(self, ticket: Ticket, free: int) -> str | None:
        known = set(self._turns)
        reason = super().offer(ticket, free)
        if reason is None and ticket.tenant not in known:
            self._turns.rotate(1)
        return reason


def _forgets(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = ForgetsItsPlace(config.admission.queue_per_tenant)


def _one_bound(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = OneBoundForAll(config.admission.queue_per_tenant)


def _rotated(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = RotatedStart(config.admission.queue_per_tenant, Random(f"{config.seed}:rotated_start"))


def _newest(service: SharedService, config: SharedServiceConfig) -> None:
    service.policy = NewestTenantFirst(config.admission.queue_per_tenant)


for _defect in (
    Defect("round_robin_forgets_place", "the round begins anew at each take", (UNMOVED,), _forgets, also=(MAX_MIN,)),
    Defect(
        "one_bound_for_all_queues",
        "the flood fills the bound that all queues share",
        (UNMOVED,),
        _one_bound,
        also=(MAX_MIN,),
    ),
    Defect(
        "twin_rotated_start",
        "twin: the round begins at a random tenant",
        (),
        _rotated,
        healthy=True,
        twin_of=(UNMOVED,),
    ),
    Defect(
        "twin_newest_first",
        "twin: a tenant with nothing waiting is next at once",
        (),
        _newest,
        healthy=True,
        twin_of=(UNMOVED,),
    ),
):
    DEFECTS[_defect.name] = _defect
