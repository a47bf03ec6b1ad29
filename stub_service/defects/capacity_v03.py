"""Tenants not told apart, for `v03.tenant_share` to catch; and twins, which look suspicious and keep them apart.

Each is laid over the queues and slots of every bulkhead, or over whom a run is charged to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.dispatch import Dispatcher
from stub_service.capacity.ports import RunWish, StepResult
from stub_service.capacity.reserve import NO, Slots
from stub_service.capacity.runs import LiveStep, Opened, Refused
from stub_service.capacity.steps import StepFlow
from stub_service.capacity.waiting import Waiter, Waiting
from stub_service.defects.capacity_v02 import all_slots, slots_of
from stub_service.defects.registry import broken, twin

SHARE, UNMOVED, FOREGROUND = "v03.tenant_share", "fairness.ordinary_unmoved", "v02.foreground_first"


class FirstInFirstOut(Waiting):
    """One queue for the class: whoever is at its head is next, and nobody before."""

    __slots__ = ()

    def first(self, may_start: Callable[[Waiter], bool]) -> Waiter | None:
        heads = sorted(heap[0] for heap in self._groups.values())
        return heads[0][1] if heads and may_start(heads[0][1]) else None

    def holds(self, rank: int, tenant: str, again: bool) -> bool:
        return self.size > 0


def one_line(controller: Any) -> None:
    """Everybody waits in one queue, up to its bound; no tenant has places of its own."""
    for bulkhead in controller.dispatch.bulkheads.values():
        bulkhead.waiting = FirstInFirstOut(bulkhead.waiting.most, bulkhead.waiting.most, {})


def one_queue(controller: Any, config: CapacityConfig) -> None:
    """One queue for the class, and no slots kept for anybody."""
    one_line(controller)
    for slots in slots_of(controller):
        slots.shares, slots.shares_unmet, slots.common = {}, 0, {}


def cap_without_queue(controller: Any, config: CapacityConfig) -> None:
    """Each tenant has its slots, and all wait in one queue: behind the one whose slots are taken."""
    one_line(controller)


def charge(controller: Any, whom: Callable[[str, str | None], str]) -> None:
    """Runs are charged to whom it says, (tenant of the credential, id of the request): slots, queue and record."""
    owners: dict[str, str] = {}
    healthy = controller.open_run

    def open_run(tenant: str, wish: RunWish, request: str | None = None) -> Opened | Refused:
        parent = controller.runs.get(wish.parent_run)
        told: Opened | Refused = healthy(parent.tenant if parent else whom(tenant, request), wish, request)
        if told.run is not None:
            owners[told.run] = tenant
        return told

    def tenant_of(run: str) -> str | None:
        return owners.get(run) if run in controller.runs else None

    controller.open_run, controller.tenant_of = open_run, tenant_of


def from_header(controller: Any, config: CapacityConfig) -> None:
    """The caller says in a header who it is: the first part of `Overload-Call`, which it may fill in as it likes."""
    charge(controller, lambda tenant, request: f"caller-{request.partition('.')[0]}" if request else tenant)


def always_new(controller: Any, config: CapacityConfig) -> None:
    """The credential is lost on the way, and a call without a tenant is a new tenant each time."""
    seen: list[None] = []

    def anonymous(tenant: str, request: str | None) -> str:
        seen.append(None)
        return f"anonymous-{len(seen)}"

    charge(controller, anonymous)


class Replicas:
    """Several of one flow, each with the limits of all of them; steps go to each in turn."""

    def __init__(self, flows: list[StepFlow]) -> None:
        self.flows = flows
        self.turn = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.flows[0], name)

    async def run(self, live: LiveStep) -> StepResult:
        self.turn += 1
        return await self.flows[self.turn % len(self.flows)].run(live)


def per_replica(controller: Any, config: CapacityConfig) -> None:
    """Two replicas, and each counts what it lets through itself."""
    first = controller.flow
    second = Dispatcher(config, controller.now_ns, controller.events.record)
    other = StepFlow(second, first.retry, first.coalescer, first.call, controller.now_ns)
    controller.flow = Replicas([first, other])


class InTurns(Waiting):
    """Twin: within a class the tenant goes first whose last start is longest ago. Each keeps its own places."""

    __slots__ = ("last", "starts")

    def __init__(self, most: int, tenant_most: int, kept: Mapping[str, int]) -> None:
        super().__init__(most, tenant_most, kept)
        self.starts = 0
        self.last: dict[str, int] = {}

    def first(self, may_start: Callable[[Waiter], bool]) -> Waiter | None:
        heads = (heap[0][1] for heap in self._groups.values())
        for waiter in sorted(heads, key=lambda w: (w.rank, self.last.get(w.tenant, 0), w.key)):
            if may_start(waiter):
                self.starts += 1
                self.last[waiter.tenant] = self.starts
                return waiter
        return None


def in_turns(controller: Any, config: CapacityConfig) -> None:
    for bulkhead in controller.dispatch.bulkheads.values():
        waiting = bulkhead.waiting
        bulkhead.waiting = InTurns(waiting.most, waiting.tenant_most, waiting.kept)


class Capped(Slots):
    """Twin: nobody without a share may have all common slots, one is always left; each has a queue of its own."""

    __slots__ = ()

    def may_start(self, rank: int, tenant: str, now_ns: int) -> int:
        free = self.limit - self.in_use
        return NO if tenant not in self.shares and free <= 1 else super().may_start(rank, tenant, now_ns)


broken("one_queue_for_class", "one queue for all tenants of a class, and no shares", one_queue, SHARE, also=(UNMOVED,))
broken("tenant_cap_without_queue", "slots are kept for a tenant, and all wait in one queue", cap_without_queue, SHARE,
       also=(UNMOVED,))  # fmt: skip
broken("tenant_from_header", "the tenant is what a header says", from_header, SHARE, also=(UNMOVED,))
broken("no_tenant_is_new_tenant", "a call without a tenant is a new tenant each time", always_new, SHARE,
       also=(UNMOVED,))  # fmt: skip
broken("limit_per_replica", "two replicas, each with the whole limit", per_replica, SHARE, also=(UNMOVED, FOREGROUND))
twin("twin_tenants_in_turn", "tenants start in turn, whatever their deadlines", in_turns, SHARE)
twin(
    "twin_cap_with_queue", "a flood is capped below what it could have, in a queue of its own", all_slots(Capped), SHARE
)
