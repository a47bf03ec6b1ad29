"""Steps that wait for a slot of one bulkhead: by class, then deadline, then priority, then arrival.

Bounded in all (`most`) and for each tenant. When it is full, a step that must not be turned away displaces another:

    a higher class displaces a lower one (of its own tenant, if it is the tenant's places that are taken); within a
    class, a tenant below its kept places displaces one without; steps in kept places go last, and of several the one
    that would start last

Places are kept for tenants with a share of their own. Never lets a step leave in another order than the stated one,
other than past those that may not start. Deadlines are the flow's timers: an expired step is removed by `remove`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any

Key = tuple[int, int, int, int]
"""(class rank, deadline_ns, -priority, sequence): the smallest goes first."""


class Waiter:
    """ref: the driver's own record. again: it has started before (a retry)."""

    __slots__ = ("again", "gone", "key", "rank", "ref", "tenant")

    def __init__(self, rank: int, tenant: str, key: Key, again: bool, ref: Any) -> None:
        self.rank = rank
        self.tenant = tenant
        self.key = key
        self.again = again
        self.ref = ref
        self.gone = False


class Waiting:
    """most: places in all. kept: tenant -> its own bound, and the places kept for it; tenant_most: of the others."""

    __slots__ = ("_groups", "_sequence", "by_tenant", "kept", "most", "size", "tenant_most")

    def __init__(self, most: int, tenant_most: int, kept: Mapping[str, int]) -> None:
        self.most = most
        self.tenant_most = tenant_most
        self.kept = dict(kept)
        self.size = 0
        self.by_tenant: dict[str, int] = {}
        self._groups: dict[tuple[int, str, bool], list[tuple[Key, Waiter]]] = {}
        self._sequence = 0

    def refusal(self, tenant: str) -> str | None:
        """Why a step of this tenant may not wait here: its own places are taken, or all are."""
        if self.by_tenant.get(tenant, 0) >= self.kept.get(tenant, self.tenant_most):
            return "tenant_queue_full"
        return "queue_full" if self.size >= self.most else None

    def key(self, rank: int, deadline_ns: int, priority: int, sequence: int) -> Key:
        return (rank, deadline_ns, -priority, sequence)

    def add(self, rank: int, tenant: str, deadline_ns: int, priority: int, again: bool, ref: Any) -> Waiter:
        self._sequence += 1
        waiter = Waiter(rank, tenant, self.key(rank, deadline_ns, priority, self._sequence), again, ref)
        heappush(self._groups.setdefault((rank, tenant, again), []), (waiter.key, waiter))
        self.size += 1
        self.by_tenant[tenant] = self.by_tenant.get(tenant, 0) + 1
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """It starts, or waits no more."""
        if waiter.gone:
            return
        waiter.gone = True
        self.size -= 1
        left = self.by_tenant[waiter.tenant] - 1
        if left:
            self.by_tenant[waiter.tenant] = left
        else:
            del self.by_tenant[waiter.tenant]
        group = (waiter.rank, waiter.tenant, waiter.again)
        heap = self._groups[group]
        while heap and heap[0][1].gone:
            heappop(heap)
        if not heap:
            del self._groups[group]

    def first(self, may_start: Callable[[Waiter], bool]) -> Waiter | None:
        """The first that may start; all of one class and tenant may, or none of them. It stays until `remove`."""
        for _, waiter in sorted(heap[0] for heap in self._groups.values()):
            if may_start(waiter):
                return waiter
        return None

    def holds(self, rank: int, tenant: str, again: bool) -> bool:
        """Whether such a step waits already: a new one does not overtake it."""
        return (rank, tenant, again) in self._groups

    def ahead(self, rank: int, deadline_ns: int) -> int:
        """How many would go before a new step of this class and deadline."""
        mine = (rank, deadline_ns, 1)
        return sum(1 for heap in self._groups.values() for key, waiter in heap if key[:3] <= mine and not waiter.gone)

    def displaced_by(self, rank: int, tenant: str) -> Waiter | None:
        """Who must go so that a step of this class and tenant may wait; None: nobody, it is turned away."""
        own_full = self.refusal(tenant) == "tenant_queue_full"
        below = not own_full and tenant in self.kept
        found: tuple[bool, Key, Waiter] | None = None
        for heap in self._groups.values():
            for key, waiter in heap:
                without = waiter.tenant not in self.kept
                lower = waiter.rank > rank or (waiter.rank == rank and below and without)
                if waiter.gone or not lower or (own_full and waiter.tenant != tenant):
                    continue
                if found is None or (without, key) > found[:2]:
                    found = (without, key, waiter)
        return found[2] if found else None
