"""Who starts now, who waits, who is next: all bulkheads under one ceiling.

    admit    asked in this order: circuit, then reserved capacity -> a Grant, a Refusal, or (None) it waits
    told     a call has been answered: what that teaches (circuit, reserve, limit)
    release  its slots back, then `pump`
    pump     as long as anybody who waits may start: the first by class, deadline, priority, arrival, of any bulkhead

`pump` also runs when time alone lets somebody start (a circuit's cool-down or lease, a hold, the ramp, a reserve that
may be lent again): one timer for each dependency, while somebody waits. Timers are the loop's; instants are now_ns's.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from dataclasses import dataclass

from stub_service.capacity.adaptive import Aimd
from stub_service.capacity.bulkhead import Bulkhead, Grant
from stub_service.capacity.circuit import OPEN, Circuit
from stub_service.capacity.config import CapacityConfig, Dependency
from stub_service.capacity.events import Events
from stub_service.capacity.ports import READ, WRITE
from stub_service.capacity.records import Decision
from stub_service.capacity.recovery import Ramp
from stub_service.capacity.reserve import OnLend, Slots
from stub_service.capacity.runs import THROTTLED, UNAVAILABLE, Bulkheads, LiveStep
from stub_service.capacity.throttled import Hold
from stub_service.capacity.waiting import Waiter, Waiting

GO, DISPLACED = "go", "displaced"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step that does not start, and when it could have."""

    outcome: str
    reason: str
    retry_at_ns: int | None = None


class Dispatcher:
    """Its parts are attributes, so that each can be replaced: `bulkheads`, `ceiling`, `circuits`, `ramps`, `holds`."""

    def __init__(self, config: CapacityConfig, now_ns: Callable[[], int], record: Callable[[Decision], None]) -> None:
        self.config = config
        self.now_ns = now_ns
        slowest_ns = max(dependency.expected_ns for dependency in config.dependencies)
        self.ceiling = Slots(config.ceiling, config.reserves, config.shares, slowest_ns, self._on_lend(None))
        self.events = Events(record, self.ceiling)
        self.circuits: dict[str, Circuit] = {}
        self.ramps: dict[str, Ramp] = {}
        self.holds: dict[str, Hold] = {}
        self.bulkheads: Bulkheads = {}
        for dependency in config.dependencies:
            self._add(dependency)
        self._timers: dict[str, tuple[int, TimerHandle]] = {}

    def _add(self, dependency: Dependency) -> None:
        name, config = dependency.name, self.config
        self.circuits[name] = Circuit(dependency.circuit, self._on_circuit(name))
        self.ramps[name] = Ramp(config.recovery)
        self.holds[name] = Hold(config.retry.base_ns)
        kept = {share.tenant: share.queue for share in config.shares}
        for kind, limits in ((READ, dependency.reads), (WRITE, dependency.writes)):
            adaptive = Aimd(dependency.adaptive, limits.limit) if dependency.adaptive and kind == READ else None
            limit = adaptive.limit if adaptive else limits.limit
            on_lend = self._on_lend((name, kind))
            self.bulkheads[name, kind] = Bulkhead(
                name,
                kind,
                limits,
                dependency.expected_ns,
                Slots(limit, config.reserves, config.shares, dependency.expected_ns, on_lend),
                self.ceiling,
                Waiting(limits.queue, config.tenant_queue, kept),
                self.circuits[name],
                self.ramps[name],
                self.holds[name],
                adaptive,
            )

    def admit(self, live: LiveStep, now_ns: int, again: bool = False) -> Grant | Refusal | None:
        """Starts the step (its Grant), turns it away (Refusal), or lets it wait (None). again: it is a retry."""
        run, step = live.run, live.step
        bulkhead = self.bulkheads[step.dependency, step.operation]
        circuit = bulkhead.circuit
        if not circuit.admits(now_ns):
            return Refusal(UNAVAILABLE, f"circuit_{circuit.state}", circuit.next_ns())
        rank, tenant = run.rank, run.tenant
        bulkhead.demand(rank, now_ns)
        reason = "no_slot"
        if not bulkhead.waiting.size or not bulkhead.waiting.holds(rank, tenant, again):
            blocked = bulkhead.blocked(rank, tenant, again, now_ns)
            if blocked is None:
                grant = live.grant = bulkhead.start(rank, tenant, now_ns)
                return grant
            reason = blocked
        return self._let_wait(bulkhead, live, now_ns, again, reason)

    def _let_wait(self, bulkhead: Bulkhead, live: LiveStep, now_ns: int, again: bool, blocked: str) -> Refusal | None:
        run, waiting = live.run, bulkhead.waiting
        start_ns = bulkhead.estimated_start_ns(run.rank, run.tenant, run.deadline_ns, now_ns)
        if not (live.step.may_wait or again):
            return Refusal(THROTTLED, "may_not_wait" if blocked == "no_slot" else blocked, start_ns)
        if not bulkhead.ever(run.rank, run.tenant):
            return Refusal(THROTTLED, "no_capacity")
        if start_ns > run.deadline_ns:
            reason = blocked if blocked == "dependency_throttled" else "start_beyond_deadline"
            return Refusal(THROTTLED, reason, start_ns)
        full = waiting.refusal(run.tenant)
        if full:
            displaced = waiting.displaced_by(run.rank, run.tenant)
            if displaced is None:
                return Refusal(THROTTLED, full, start_ns)
            waiting.remove(displaced)
            displaced.ref.displaced_ns = now_ns
            displaced.ref.wake(DISPLACED)
        live.estimated_ns = start_ns
        live.waiter = waiting.add(run.rank, run.tenant, run.deadline_ns, run.wish.priority, again, live)
        self._arm(bulkhead, now_ns)
        return None

    def leave(self, live: LiveStep) -> None:
        """A step waits no more: expired, cancelled, displaced."""
        if live.waiter is not None:
            self.bulkheads[live.step.dependency, live.step.operation].waiting.remove(live.waiter)
            live.waiter = None

    def told(self, live: LiveStep, failed: bool | None, now_ns: int) -> None:
        """The call that the step's slot was taken for has been answered; once a slot. failed: None if the answer says
        nothing about the dependency. The slot is still held."""
        grant = live.grant
        if grant is None or grant.told:
            return
        grant.told = True
        latency_ns = now_ns - grant.started_ns
        grant.bulkhead.circuit.end(grant.passed, now_ns, latency_ns, failed)
        if failed is not None:
            grant.bulkhead.slots.observed(grant.rank, latency_ns + live.queue_wait_ns, now_ns)
            if grant.bulkhead.adaptive:
                self._adapt(grant.bulkhead, grant.bulkhead.adaptive, latency_ns, failed, now_ns)

    def release(self, live: LiveStep, now_ns: int) -> None:
        """The step holds its slot no more, if it does."""
        grant = live.grant
        if grant is None:
            return
        self.told(live, None, now_ns)
        live.grant = None
        if grant.bulkhead.release(grant):
            self.pump(now_ns)

    def _adapt(self, bulkhead: Bulkhead, adaptive: Aimd, latency_ns: int, failed: bool, now_ns: int) -> None:
        before = adaptive.limit
        reason = adaptive.observe(now_ns, latency_ns, failed, bulkhead.slots.in_use)
        if reason:
            bulkhead.slots.limit = adaptive.limit
            self.events.limit(bulkhead, "raised" if adaptive.limit > before else "lowered", reason, now_ns)

    def pump(self, now_ns: int) -> None:
        """Starts all who wait and may start, in order; each is woken with its Grant."""
        crowded = [bulkhead for bulkhead in self.bulkheads.values() if bulkhead.waiting.size]
        while crowded:
            best: Waiter | None = None
            where: Bulkhead | None = None
            for bulkhead in crowded:
                if bulkhead.waiting.size and bulkhead.circuit.admits(now_ns):
                    waiter = self._first(bulkhead, now_ns)
                    if waiter is not None and (best is None or waiter.key < best.key):
                        best, where = waiter, bulkhead
            if best is None or where is None:
                break
            where.waiting.remove(best)
            live: LiveStep = best.ref
            live.waiter = None
            live.grant = where.start(best.rank, best.tenant, now_ns)
            live.wake(GO)
        for bulkhead in crowded:
            if bulkhead.waiting.size:
                self._arm(bulkhead, now_ns)
        for name, ramp in self.ramps.items():
            if ramp.on:
                ramp.settle(now_ns, self._backlog(name))

    def _first(self, bulkhead: Bulkhead, now_ns: int) -> Waiter | None:
        def may_start(waiter: Waiter) -> bool:
            bulkhead.demand(waiter.rank, now_ns)  # who waits still asks
            return bulkhead.blocked(waiter.rank, waiter.tenant, waiter.again, now_ns) is None

        return bulkhead.waiting.first(may_start)

    def _backlog(self, dependency: str) -> int:
        return self.bulkheads[dependency, READ].waiting.size + self.bulkheads[dependency, WRITE].waiting.size

    def _arm(self, bulkhead: Bulkhead, now_ns: int) -> None:
        at_ns = bulkhead.next_change_ns(now_ns)
        if at_ns is not None:
            self._arm_at(bulkhead.dependency, at_ns, now_ns)

    def _arm_at(self, dependency: str, at_ns: int, now_ns: int) -> None:
        armed = self._timers.get(dependency)
        if armed is not None:
            if now_ns < armed[0] <= at_ns:
                return
            armed[1].cancel()
        handle = get_running_loop().call_later((at_ns - now_ns) / 1e9, self._due, dependency, at_ns)
        self._timers[dependency] = (at_ns, handle)

    def _due(self, dependency: str, at_ns: int) -> None:
        del self._timers[dependency]
        now_ns = self.now_ns()
        if now_ns < at_ns:  # the loop rounds: never early
            self._arm_at(dependency, at_ns, now_ns)
            return
        circuit = self.circuits[dependency]
        circuit.refresh(now_ns)
        self.pump(now_ns)
        if circuit.state == OPEN:
            self._arm_at(dependency, circuit.open_until_ns, now_ns)

    def _on_circuit(self, dependency: str) -> Callable[[int, str, str | None], None]:
        def changed(now_ns: int, outcome: str, reason: str | None) -> None:
            self.events.circuit(dependency, outcome, reason, now_ns)
            if outcome == "closed":
                self.ramps[dependency].begin(now_ns)
            elif self.circuits[dependency].state == OPEN:
                self._arm_at(dependency, self.circuits[dependency].open_until_ns, now_ns)

        return changed

    def _on_lend(self, where: tuple[str, str] | None) -> OnLend:
        def changed(now_ns: int, outcome: str, rank: int, reason: str | None) -> None:
            slots = self.bulkheads[where].slots if where else self.ceiling
            self.events.lend(slots, where, outcome, rank, reason, now_ns)

        return changed

    def leftovers(self) -> dict[str, int]:
        """What calls and waits still hold: all zero when nothing is on its way."""
        return {
            "slots": sum(b.slots.in_use + sum(b.slots.own) for b in self.bulkheads.values()),
            "ceiling": self.ceiling.in_use,
            "waiting": sum(b.waiting.size for b in self.bulkheads.values()),
            "probes": sum(circuit.probes_out for circuit in self.circuits.values()),
        }
