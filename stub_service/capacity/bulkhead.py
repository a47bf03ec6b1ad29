"""Calls of one dependency and one kind: its slots, those who wait for them, and how long a call may take.

A call holds a slot here and one under the ceiling over all bulkheads, from its start to its end, however it ends; a
`Grant` gives both back exactly once. Reads and writes of a dependency are two bulkheads and share its circuit, its ramp
after an outage and its hold after a 429.
Source: M. Nygard, Release It!, chapter 5 (bulkheads). Never waits for one bulkhead while holding a slot of another.
"""

from __future__ import annotations

from stub_service.capacity.adaptive import Aimd
from stub_service.capacity.circuit import Circuit, Pass
from stub_service.capacity.config import Bulkhead as Limits
from stub_service.capacity.recovery import Ramp
from stub_service.capacity.reserve import NO, Slots
from stub_service.capacity.throttled import Hold
from stub_service.capacity.waiting import Waiting

FOREGROUND_RANK = 1
"""Classes up to this rank are foreground."""


class Grant:
    """A slot in a bulkhead and one under the ceiling; how: from what each came (reserve.py)."""

    __slots__ = ("bulkhead", "how", "how_ceiling", "passed", "rank", "released", "started_ns", "tenant", "told")

    def __init__(
        self, bulkhead: Bulkhead, rank: int, tenant: str, how: int, how_ceiling: int, passed: Pass, started_ns: int
    ) -> None:
        self.bulkhead = bulkhead
        self.rank = rank
        self.tenant = tenant
        self.how = how
        self.how_ceiling = how_ceiling
        self.passed = passed
        self.started_ns = started_ns
        self.told = False
        self.released = False


class Bulkhead:
    __slots__ = (
        "adaptive",
        "ceiling",
        "circuit",
        "dependency",
        "expected_ns",
        "hold",
        "kind",
        "ramp",
        "slots",
        "timeout_ns",
        "waiting",
    )

    def __init__(
        self,
        dependency: str,
        kind: str,
        limits: Limits,
        expected_ns: int,
        slots: Slots,
        ceiling: Slots,
        waiting: Waiting,
        circuit: Circuit,
        ramp: Ramp,
        hold: Hold,
        adaptive: Aimd | None,
    ) -> None:
        self.dependency = dependency
        self.kind = kind
        self.timeout_ns = limits.timeout_ns
        self.expected_ns = expected_ns
        self.slots = slots
        self.ceiling = ceiling
        self.waiting = waiting
        self.circuit = circuit
        self.ramp = ramp
        self.hold = hold
        self.adaptive = adaptive

    def blocked(self, rank: int, tenant: str, again: bool, now_ns: int) -> str | None:
        """Why a call of this class and tenant may not start now; None: `start` it. again: it is a retry."""
        if self.hold.blocks(rank, again, now_ns):
            return "dependency_throttled"
        if self.ramp.on and self.ramp.next_ns(rank <= FOREGROUND_RANK, now_ns) > now_ns:
            return "recovering"
        if self.slots.may_start(rank, tenant, now_ns) == NO:
            return "no_slot"
        return "ceiling" if self.ceiling.may_start(rank, tenant, now_ns) == NO else None

    def demand(self, rank: int, now_ns: int) -> None:
        """A call of this class asks."""
        self.slots.demand(rank, now_ns)
        self.ceiling.demand(rank, now_ns)

    def start(self, rank: int, tenant: str, now_ns: int) -> Grant:
        """Takes the slots for a call that is not blocked and that the circuit admits."""
        how = self.slots.may_start(rank, tenant, now_ns)
        how_ceiling = self.ceiling.may_start(rank, tenant, now_ns)
        self.slots.start(how, rank, tenant, now_ns)
        self.ceiling.start(how_ceiling, rank, tenant, now_ns)
        self.ramp.started(now_ns)
        return Grant(self, rank, tenant, how, how_ceiling, self.circuit.begin(now_ns), now_ns)

    def release(self, grant: Grant) -> bool:
        """Gives the slots back; False if they were given back before."""
        if grant.released:
            return False
        grant.released = True
        self.slots.end(grant.how, grant.rank, grant.tenant)
        self.ceiling.end(grant.how_ceiling, grant.rank, grant.tenant)
        return True

    def ever(self, rank: int, tenant: str) -> bool:
        """Whether such a call could start at all, with everything lent and nothing running."""
        return self.slots.ever(rank, tenant) and self.ceiling.ever(rank, tenant)

    def estimated_start_ns(self, rank: int, tenant: str, deadline_ns: int, now_ns: int) -> int:
        """When a step that begins to wait now should start: those ahead, at the expected service time."""
        ahead = self.waiting.ahead(rank, deadline_ns) + 1
        start_ns = now_ns + ahead * self.expected_ns // self.slots.usable(rank, tenant, now_ns)
        if self.hold.blocks(rank, False, now_ns):
            start_ns = max(start_ns, self.hold.until_ns)
        if self.ramp.on:
            foreground = rank <= FOREGROUND_RANK
            interval_ns = self.ramp.interval_ns(foreground, now_ns)
            start_ns = max(start_ns, self.ramp.next_ns(foreground, now_ns) + (ahead - 1) * interval_ns)
        return start_ns

    def next_change_ns(self, now_ns: int) -> int | None:
        """When time alone may let somebody start who waits now."""
        instants = [self.hold.until_ns, self.circuit.next_ns(), self.slots.next_lending_ns(now_ns)]
        instants.append(self.ceiling.next_lending_ns(now_ns))
        if self.ramp.on:
            instants += [self.ramp.next_ns(True, now_ns), self.ramp.next_ns(False, now_ns)]
        return min((at for at in instants if at is not None and at > now_ns), default=None)
