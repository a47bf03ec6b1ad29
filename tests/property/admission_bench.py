"""One bench for every admission policy: schedules in, the rules of policy.py that were broken out.

The bench keeps a model of its own (which tickets wait, which run) and never looks inside a policy. What a refusal is
held against is a copy of the policy, from which the free workers take what they would have taken; so is an acceptance.

Under fair queues a ticket may be accepted because an idle worker would take it, and then lose that worker to another
tenant that arrives in the same instant. So its bound is exact when a ticket is accepted, and afterwards no more than
the idle workers of that instant above it.

Rules: conservation, bound, refused_while_free, refused_with_room, work_conservation, cap, starvation, own_order.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from stub_service.admission.policy import Policy, Ticket
from stub_service.config import AdmissionConfig

TENANTS = 5


@dataclass(frozen=True)
class Promise:
    """What a policy promises. starvation: most takes of others while a tenant that may start waits. own_order: calls of
    one tenant start in the order in which they came."""

    starvation: int
    bound: int | None = None
    bound_per_tenant: int | None = None
    cap: int = 10**9
    own_order: bool = True


MOST_WORKERS = 6
PROMISES = {
    "shared_fifo": lambda c: Promise(c.queue + MOST_WORKERS, bound=c.queue),
    "tenant_cap": lambda c: Promise(c.queue + MOST_WORKERS, bound=c.queue, cap=c.cap),
    "fair_queues": lambda c: Promise(_turns_of_others(c), bound_per_tenant=c.queue_per_tenant),
    # One tenant may fill a queue that another needs: what is refused is held against an oracle instead of a bound.
    "shuffle_sharded": lambda c: Promise((c.queue + MOST_WORKERS) * c.queues, own_order=False),
}


def _turns_of_others(config: AdmissionConfig) -> int:
    """Of all but the lightest, which waits for the turns of all others."""
    weights = dict(config.weights)
    return sum(sorted(weights.get(f"t{tenant}", 1) for tenant in range(TENANTS))[1:])


def promise_of(config: AdmissionConfig) -> Promise:
    """KeyError: a policy was added to the registry, and nobody has said what it promises."""
    return PROMISES[config.policy](config)


@dataclass(frozen=True)
class Instant:
    """Events of one instant, in the order in which they happen. Places are taken modulo what there is."""

    workers: int | None = None
    ends: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()
    offers: tuple[int, ...] = ()


@dataclass
class Bench:
    policy: Policy
    promise: Promise
    workers: int = 3
    broken: set[str] = field(default_factory=set)
    trace: list[object] = field(default_factory=list)
    waiting: dict[Ticket, None] = field(default_factory=dict)
    running: list[Ticket] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    made: int = 0

    def run(self, instants: list[Instant]) -> Bench:
        for instant in instants:
            self.step(instant)
            if "conservation" in self.broken:
                return self  # the model no longer says anything about the policy
        self.drain()
        return self

    def step(self, instant: Instant) -> None:
        if instant.workers is not None:
            self.workers = instant.workers
        for place in instant.ends:
            if self.running:
                self.policy.finished(self.running.pop(place % len(self.running)))
        for place in instant.leaves:
            if self.waiting:
                self.leave(list(self.waiting)[place % len(self.waiting)])
        for tenant in instant.offers:
            self.offer(f"t{tenant}")
        self.start()

    def leave(self, ticket: Ticket) -> None:
        try:
            self.policy.discard(ticket)
        except KeyError:  # it was accepted, and the policy no longer has it
            self.broken.add("conservation")
        del self.waiting[ticket]
        self.count()

    def offer(self, tenant: str) -> None:
        self.made += 1
        ticket = Ticket(tenant, 1.0, self.made)
        free = max(0, self.workers - len(self.running))
        reason = self.policy.offer(ticket, free)
        self.trace.append((self.made, reason))
        if reason is None:
            if not any(other.tenant == tenant for other in self.waiting):
                self.passed[tenant] = 0
            self.waiting[ticket] = None
        else:
            assert reason in ("queue_full", "tenant_queue_full")
        self.count()
        self.judge_offer(tenant, free, reason is None)

    def judge_offer(self, tenant: str, free: int, accepted: bool) -> None:
        clone = copy.deepcopy(self.policy) if free else self.policy
        started = Counter(ticket.tenant for _ in range(free) if (ticket := clone.take()) is not None)
        left = Counter(ticket.tenant for ticket in self.waiting) - started
        if accepted:
            if self.promise.bound is not None and left.total() > self.promise.bound:
                self.broken.add("bound")
            if self.promise.bound_per_tenant is not None and left[tenant] > self.promise.bound_per_tenant:
                self.broken.add("bound")
            return
        if started.total() < free and self.runs(tenant) + started[tenant] < self.promise.cap:
            self.broken.add("refused_while_free")
        if self.promise.bound is not None and left.total() < self.promise.bound:
            self.broken.add("refused_with_room")
        if self.promise.bound_per_tenant is not None and left[tenant] < self.promise.bound_per_tenant:
            self.broken.add("refused_with_room")

    def start(self) -> None:
        while len(self.running) < self.workers and self.policy.waiting:
            ticket = self.policy.take()
            if ticket is None:
                break
            self.took(ticket)
            if "conservation" in self.broken:
                return
        waiting = Counter(ticket.tenant for ticket in self.waiting)
        if len(self.running) < self.workers and any(self.runs(tenant) < self.promise.cap for tenant in waiting):
            self.broken.add("work_conservation")
        if self.promise.bound is not None and waiting.total() > self.promise.bound:
            self.broken.add("bound")
        most = self.promise.bound_per_tenant
        if most is not None and max(waiting.values(), default=0) > most + MOST_WORKERS:
            self.broken.add("bound")

    def took(self, ticket: Ticket) -> None:
        self.trace.append(ticket.ref)
        if ticket not in self.waiting:
            self.broken.add("conservation")
            return
        first = next(other for other in self.waiting if other.tenant == ticket.tenant)
        if self.promise.own_order and first is not ticket:
            self.broken.add("own_order")
        for tenant in {other.tenant for other in self.waiting} - {ticket.tenant}:
            self.passed[tenant] += self.runs(tenant) < self.promise.cap
            if self.passed[tenant] > self.promise.starvation:
                self.broken.add("starvation")
        self.passed[ticket.tenant] = 0
        del self.waiting[ticket]
        self.running.append(ticket)
        if self.runs(ticket.tenant) > self.promise.cap:
            self.broken.add("cap")
        self.count()

    def drain(self) -> None:
        """Every accepted ticket starts in the end, once, and the policy is then empty."""
        self.workers = MOST_WORKERS
        for _ in range(len(self.waiting) + 1):
            while self.running:
                self.policy.finished(self.running.pop())
            self.start()
        if self.waiting or self.policy.take() is not None:
            self.broken.add("conservation")

    def count(self) -> None:
        if self.policy.waiting != len(self.waiting):
            self.broken.add("conservation")

    def runs(self, tenant: str) -> int:
        return sum(ticket.tenant == tenant for ticket in self.running)


def random_schedule(rng: Random, instants: int = 60) -> list[Instant]:
    """Tenant 0 floods; the others come and go; callers give up; workers come and go; many things share an instant."""
    schedule = []
    for _ in range(instants):
        offers = [0] * rng.choice((0, 1, 2, 6)) + [rng.randrange(TENANTS) for _ in range(rng.choice((0, 0, 1, 3)))]
        rng.shuffle(offers)
        schedule.append(
            Instant(
                rng.randrange(MOST_WORKERS + 1) if rng.random() < 0.1 else None,
                tuple(rng.randrange(100) for _ in range(rng.choice((0, 1, 1, 3)))),
                tuple(rng.randrange(100) for _ in range(rng.choice((0, 0, 0, 1)))),
                tuple(offers),
            )
        )
    return schedule
