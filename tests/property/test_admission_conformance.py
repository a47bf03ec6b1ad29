"""Every admission policy keeps the rules of policy.py; policies that break one are found out by the same bench."""

from __future__ import annotations

from collections import Counter, OrderedDict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stub_service.admission.fair_queues import FairQueues
from stub_service.admission.policy import Ticket
from stub_service.admission.registry import POLICIES, build
from stub_service.admission.shared_fifo import SharedFifo
from stub_service.admission.shuffle_sharding import ShuffleSharded, deal
from stub_service.admission.tenant_cap import TenantCap
from stub_service.admission.weighted_queues import WeightedFairQueues
from stub_service.config import AdmissionConfig
from tests.property.admission_bench import MOST_WORKERS, TENANTS, Bench, Instant, promise_of, random_schedule

# Timings of a shared machine are no property of a policy.
patient = settings(deadline=None, max_examples=60)
places = st.lists(st.integers(0, 20), max_size=4).map(tuple)
instants = st.builds(
    Instant,
    st.one_of(st.none(), st.integers(0, MOST_WORKERS)),
    places,
    places,
    st.lists(st.integers(0, TENANTS - 1), max_size=8).map(tuple),
)
schedules = st.lists(instants, max_size=25)
bounds = st.integers(1, 5)


def configured(policy: str, queue: int, cap: int) -> AdmissionConfig:
    """`weighted` is fair_queues with weights; the shards are few, so that hands overlap."""
    weights = tuple((f"t{tenant}", 1 + (tenant * cap) % 4) for tenant in range(TENANTS)) if policy == "weighted" else ()
    name = "fair_queues" if weights else policy
    hand = min(cap, 3)
    return AdmissionConfig(
        name, queue=queue, queue_per_tenant=queue, cap=cap, weights=weights, queues=4, hand=hand, salt=queue
    )


ALL = [*POLICIES, "weighted"]


@pytest.mark.parametrize("policy", ALL)
@patient
@given(schedule=schedules, queue=bounds, cap=st.integers(1, 4))
def test_policy_keeps_every_rule(policy, schedule, queue, cap):
    config = configured(policy, queue, cap)
    assert Bench(build(config), promise_of(config)).run(schedule).broken == set()


@pytest.mark.parametrize("policy", ALL)
def test_policy_keeps_every_rule_in_long_floods(policy):
    rng = Random(7)
    for _ in range(40):
        config = configured(policy, rng.randint(1, 5), rng.randint(1, 4))
        assert Bench(build(config), promise_of(config)).run(random_schedule(rng)).broken == set()


class NaiveTenantCap:
    """The oracle: one list in order of arrival, scanned from the front for each take."""

    def __init__(self, queue, cap):
        self.bound, self.cap, self.queue, self.running = queue, cap, [], []

    @property
    def waiting(self):
        return len(self.queue)

    def startable(self, queue, free):
        """Those of `queue` that `free` workers would start, in order."""
        started = []
        for ticket in queue:
            runs = sum(other.tenant == ticket.tenant for other in self.running + started)
            if len(started) < free and runs < self.cap:
                started.append(ticket)
        return started

    def offer(self, ticket, free):
        starting = self.startable([*self.queue, ticket], free)
        if ticket not in starting and len(self.queue) + 1 - len(starting) > self.bound:
            return "queue_full"
        self.queue.append(ticket)
        return None

    def take(self):
        for ticket in self.startable(self.queue, 1):
            self.queue.remove(ticket)
            self.running.append(ticket)
            return ticket
        return None

    def discard(self, ticket):
        self.queue.remove(ticket)

    def finished(self, ticket):
        self.running.remove(ticket)

    def ahead_of(self, tenant):
        return len(self.queue)


class NaiveFairQueues:
    """The oracle: a list a tenant, and a list of tenants in the order of their turns."""

    def __init__(self, queue_per_tenant):
        self.bound, self.queues, self.turns = queue_per_tenant, {}, []

    @property
    def waiting(self):
        return sum(len(queue) for queue in self.queues.values())

    def would_start(self, tenant, free):
        queues, turns = {name: len(queue) for name, queue in self.queues.items()}, list(self.turns)
        started = 0
        while free and any(queues.values()):
            turn = turns.pop(0)
            turns.append(turn)
            if queues[turn]:
                queues[turn] -= 1
                free -= 1
                started += turn == tenant
        return started, free

    def offer(self, ticket, free):
        tenant = ticket.tenant
        started, idle = self.would_start(tenant, free)
        if not idle and len(self.queues.get(tenant, ())) - started >= self.bound:
            return "tenant_queue_full"
        if tenant not in self.queues:
            self.queues[tenant] = []
            self.turns.append(tenant)
        self.queues[tenant].append(ticket)
        return None

    def take(self):
        while self.waiting:
            turn = self.turns.pop(0)
            if not self.queues[turn]:
                del self.queues[turn]
                continue
            ticket = self.queues[turn].pop(0)
            if self.queues[turn]:
                self.turns.append(turn)
            else:
                del self.queues[turn]
            return ticket
        return None

    def discard(self, ticket):
        self.queues[ticket.tenant].remove(ticket)

    def finished(self, ticket):
        pass

    def ahead_of(self, tenant):
        return len(self.queues.get(tenant, ()))


class NaiveWeighted(NaiveFairQueues):
    """The oracle: a turn is a list of so many places in the round, all but the first of which are given up with it."""

    def __init__(self, queue_per_tenant, weights):
        super().__init__(queue_per_tenant)
        self.weights, self.used = weights, 0

    def step(self, queues, turns, used):
        """(tenant that is served next, used), from lengths and turns that it changes."""
        while not queues.get(turns[0]):
            turns.pop(0)
            used = 0
        turn = turns[0]
        queues[turn] -= 1
        used += 1
        if not queues[turn]:
            turns.pop(0)
            used = 0
        elif used == self.weights.get(turn, 1):
            turns.append(turns.pop(0))
            used = 0
        return turn, used

    def would_start(self, tenant, free):
        queues, turns, used = {name: len(queue) for name, queue in self.queues.items()}, list(self.turns), self.used
        started = 0
        while free and any(queues.values()):
            turn, used = self.step(queues, turns, used)
            started += turn == tenant
            free -= 1
        return started, free

    def take(self):
        if not self.waiting:
            return None
        lengths = {name: len(queue) for name, queue in self.queues.items()}
        turn, self.used = self.step(lengths, self.turns, self.used)
        ticket = self.queues[turn].pop(0)
        self.queues = {name: queue for name, queue in self.queues.items() if name in self.turns}
        return ticket


class NaiveSharded(NaiveFairQueues):
    """The oracle: fair queues whose tenants are numbers of queues; which one is joined is tried out one by one."""

    def __init__(self, config):
        super().__init__(config.queue)
        self.config = config

    def offer(self, ticket, free):
        hand = deal(ticket.tenant, self.config.queues, self.config.hand, self.config.salt)
        joined = min(hand, key=lambda queue: len(self.queues.get(queue, ())))
        if self.waiting >= free > 0 and len(self.queues.get(joined, ())) >= self.bound:
            joined = min(hand, key=lambda queue: len(self.queues.get(queue, ())) - self.would_start(queue, free)[0])
        ticket.queue = joined
        called, ticket.tenant = ticket.tenant, joined
        refused = super().offer(ticket, free)
        ticket.tenant = called
        return refused and "queue_full"

    def discard(self, ticket):
        self.queues[ticket.queue].remove(ticket)


ORACLES = {
    "weighted": lambda config: NaiveWeighted(config.queue_per_tenant, dict(config.weights)),
    "shuffle_sharded": NaiveSharded,
    "tenant_cap": lambda config: NaiveTenantCap(config.queue, config.cap),
    "fair_queues": lambda config: NaiveFairQueues(config.queue_per_tenant),
}


@pytest.mark.parametrize("policy", ORACLES)
@patient
@given(schedule=schedules, queue=bounds, cap=st.integers(1, 4))
def test_policy_decides_as_its_naive_oracle(policy, schedule, queue, cap):
    config = configured(policy, queue, cap)
    quick = Bench(build(config), promise_of(config)).run(schedule)
    naive = Bench(ORACLES[policy](config), promise_of(config)).run(schedule)
    assert naive.broken == set()
    assert quick.trace == naive.trace


@patient
@given(tenants=st.integers(2, 8), takes=st.integers(1, 200), queue=st.integers(1, 5), seed=st.integers(0, 99))
def test_fair_queues_serve_tenants_that_always_wait_within_one_of_each_other(tenants, takes, queue, seed):
    rng, policy = Random(seed), FairQueues(queue)
    bench = Bench(policy, promise_of(configured("fair_queues", queue, 1)), workers=0)
    served = {f"t{tenant}": 0 for tenant in range(tenants)}
    for _ in range(takes):
        for tenant in rng.sample(range(tenants), tenants):  # full queues, refilled in any order
            for _ in range(rng.randint(1, queue)):
                bench.offer(f"t{tenant}")
        served[policy_take(bench)] += 1
        assert max(served.values()) - min(served.values()) <= 1


@patient
@given(
    weights=st.lists(st.integers(1, 7), min_size=2, max_size=6),
    rounds=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_weighted_tenants_that_always_wait_are_served_by_their_weights_within_a_turn(weights, rounds, seed):
    rng = Random(seed)
    policy = WeightedFairQueues(9, {f"t{i}": weight for i, weight in enumerate(weights)})
    served = [0] * len(weights)
    for _ in range(rounds * sum(weights)):
        for tenant in rng.sample(range(len(weights)), len(weights)):
            while policy.offer(Ticket(f"t{tenant}", 1.0, None), 0) is None:
                pass
        served[int(policy.take().tenant[1:])] += 1
    assert served == [rounds * weight for weight in weights]


def test_a_tenant_that_was_idle_has_saved_nothing_up():
    policy = WeightedFairQueues(100, {"idle": 3})
    for _ in range(100):
        policy.offer(Ticket("busy", 1.0, None), 0)
    for _ in range(50):
        policy.take()
    for _ in range(100):
        policy.offer(Ticket("idle", 1.0, None), 0)
    assert [policy.take().tenant for _ in range(8)] == ["busy", "idle", "idle", "idle"] * 2


@given(
    tenant=st.text(max_size=20), queues=st.integers(1, 4096), hand=st.integers(1, 32), salt=st.integers(0, 2**63 - 1)
)
def test_a_hand_is_dealt_without_replacement_and_never_otherwise(tenant, queues, hand, salt):
    hand = min(hand, queues)
    cards = deal(tenant, queues, hand, salt)
    assert len(set(cards)) == hand
    assert set(cards) <= set(range(queues))
    assert deal(tenant, queues, hand, salt) == cards


def test_every_hand_is_as_likely_as_every_other():
    """Chi-squared over the 56 sets of 3 of 8 queues: 55 degrees of freedom, 99.99 % below 104."""
    tenants = 56 * 200
    counts = Counter(frozenset(deal(f"tenant-{i}", 8, 3, 1)) for i in range(tenants))
    assert len(counts) == 56
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 104


def test_another_salt_deals_other_hands():
    same = sum(set(deal(f"t{i}", 16, 3, 1)) == set(deal(f"t{i}", 16, 3, 2)) for i in range(1000))
    assert same < 10


def test_who_does_not_share_a_whole_hand_with_the_flood_keeps_a_queue():
    policy = ShuffleSharded(16, 3, 5, salt=4)
    while policy.offer(Ticket("flood", 1.0, None), 0) is None:
        pass
    full = set(policy.hand_of("flood"))
    for i in range(300):
        assert (policy.ahead_of(f"t{i}") > 0) == (set(policy.hand_of(f"t{i}")) <= full)


def policy_take(bench: Bench) -> str:
    ticket = bench.policy.take()
    bench.took(ticket)
    return ticket.tenant


# Broken on purpose: each breaks the rule that is named beside it.


class Lifo(SharedFifo):
    def take(self):
        if not self.waiting:
            return None
        self.waiting -= 1
        return self._queue.popitem(last=True)[0]


class LosesOne(SharedFifo):
    def take(self):
        ticket = super().take()
        if ticket is not None and ticket.ref % 7 == 0:
            return super().take()
        return ticket


class KeepsWhoLeft(SharedFifo):
    def discard(self, ticket):
        self.waiting -= 1


class OneTooMany(SharedFifo):
    def offer(self, ticket, free):
        return super().offer(ticket, free + 1)


class RefusesThoughFree(SharedFifo):
    def offer(self, ticket, free):
        return super().offer(ticket, 0)


class RefusesTooEarly(SharedFifo):
    def offer(self, ticket, free):
        return super().offer(ticket, free) or ("queue_full" if self.waiting > 2 * free + 1 else None)


class IdlesForALoneTicket(SharedFifo):
    def take(self):
        return super().take() if self.waiting > 1 else None


class CapOffByOne(TenantCap):
    def __init__(self, queue, cap):
        super().__init__(queue, cap + 1)


class CappedHeadBlocks(NaiveTenantCap):
    def startable(self, queue, free):
        return super().startable(queue[:1], free)


class NeverFreesTheCap(TenantCap):
    def finished(self, ticket):
        pass


class ForgetsItsPlace(FairQueues):
    """Round-robin that begins at the first tenant each time."""

    def take(self):
        self._turns = type(self._turns)(sorted(self._turns))
        return super().take()


class OneBoundForAll(FairQueues):
    def offer(self, ticket, free):
        return "tenant_queue_full" if self.waiting >= self._bound + free else super().offer(ticket, free)


class NeverEndsItsTurn(WeightedFairQueues):
    def _weight_of(self, key):
        return 10**6


class LongerTurns(WeightedFairQueues):
    def _weight_of(self, key):
        return super()._weight_of(key) + 5


class JoinsTheFirst(ShuffleSharded):
    def _shortest(self, hand):
        return hand[0]


class BoundForgotten(FairQueues):
    def offer(self, ticket, free):
        queue = self._queues.setdefault(ticket.tenant, OrderedDict())
        if not queue and ticket.tenant not in self._turns:
            self._turns.append(ticket.tenant)
        queue[ticket] = None
        self.waiting += 1


BROKEN = [
    ("shared_fifo", Lifo, "starvation"),
    ("shared_fifo", Lifo, "own_order"),
    ("shared_fifo", LosesOne, "conservation"),
    ("shared_fifo", KeepsWhoLeft, "conservation"),
    ("shared_fifo", OneTooMany, "bound"),
    ("shared_fifo", RefusesThoughFree, "refused_while_free"),
    ("shared_fifo", RefusesTooEarly, "refused_with_room"),
    ("shared_fifo", IdlesForALoneTicket, "work_conservation"),
    ("tenant_cap", CapOffByOne, "cap"),
    ("tenant_cap", CappedHeadBlocks, "work_conservation"),
    ("tenant_cap", NeverFreesTheCap, "work_conservation"),
    ("fair_queues", ForgetsItsPlace, "starvation"),
    ("fair_queues", OneBoundForAll, "refused_with_room"),
    ("fair_queues", BoundForgotten, "bound"),
    ("weighted", NeverEndsItsTurn, "starvation"),
    ("weighted", LongerTurns, "starvation"),
]


@pytest.mark.parametrize(("policy", "broken", "rule"), BROKEN, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_bench_finds_out_a_broken_policy(policy, broken, rule):
    rng, found = Random(11), set()
    for _ in range(30):
        config = configured(policy, 3, 2)
        weighted = (3, dict(config.weights))
        arguments = {"shared_fifo": (3,), "tenant_cap": (3, 2), "fair_queues": (3,), "weighted": weighted}[policy]
        found |= Bench(broken(*arguments), promise_of(config)).run(random_schedule(rng)).broken
    assert rule in found


def test_who_joins_another_queue_than_the_shortest_is_found_out_by_the_oracle():
    rng, config = Random(3), configured("shuffle_sharded", 2, 3)
    different = 0
    for _ in range(20):
        schedule = random_schedule(rng)
        wrong = Bench(JoinsTheFirst(config.queues, config.hand, config.queue, config.salt), promise_of(config))
        right = Bench(NaiveSharded(config), promise_of(config)).run(schedule)
        different += wrong.run(schedule).trace != right.trace
    assert different > 10


def test_a_policy_without_a_promise_is_not_accepted_silently():
    with pytest.raises(KeyError):
        promise_of(AdmissionConfig("something_new"))
