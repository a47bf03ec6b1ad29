"""What must hold of the capacity controller whatever is asked of it, in whatever order it answers.

Random runs, batches, answers, cancellations and callers that leave, on a virtual loop; the judge is what reached the
dependencies, not what the controller says of itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.simulate.virtual_loop import run_virtual
from stub_service.capacity.circuit import HALF_OPEN, Circuit
from stub_service.capacity.config import EnvelopeDefaults, Recovery, Reserve, TenantShare
from stub_service.capacity.ports import DependencyAnswer, RunWish, Step
from stub_service.capacity.reserve import NO, Slots
from stub_service.capacity.waiting import Waiting
from tests.unit.capacity_bench import ABSENT, COMMITTED, MS, NO_ANSWER, OK, Bench, S, circuit, config, dependency

RESERVES = (Reserve("interactive", 2, 1), Reserve("approval_resume", 1, 0))
SHARES = (TenantShare("A", 1, 3),)
QUICK = circuit(min_calls=5, open_ns=300 * MS, lease_ns=200 * MS)
CAPACITY = config(
    dependency("customer", reads=5, writes=5, queue=4, circuit=QUICK),
    dependency("billing", reads=5, writes=5, queue=4, circuit=QUICK),
    ceiling=8,
    reserves=RESERVES,
    shares=SHARES,
    tenant_queue=4,
    envelope=EnvelopeDefaults(2 * S, 8, 3, 2, (("billing", 5),)),
    recovery=Recovery(20.0, 100.0, S // 2),
)
GOOD_ANSWERS = (OK, OK, OK, OK)
BAD_ANSWERS = (
    DependencyAnswer(503),
    DependencyAnswer(400),
    DependencyAnswer(429, "0.3"),
    DependencyAnswer(429, "60"),
    DependencyAnswer(500, "0"),
    NO_ANSWER,
)
LOOKS = (COMMITTED, ABSENT, DependencyAnswer(500), NO_ANSWER)
CLASSES = ("interactive", "approval_resume", "autonomous", "maintenance")

steps = st.builds(
    Step,
    step=st.just("s"),
    dependency=st.sampled_from(("customer", "billing")),
    operation=st.sampled_from(("read", "read", "write")),
    idempotency_key=st.sampled_from((None, "k")),
    coalesce=st.sampled_from((None, None, "x")),
    may_wait=st.sampled_from((True, True, False)),
    high_risk=st.booleans(),
)
batches = st.tuples(st.integers(0, 400), st.lists(steps, min_size=1, max_size=5))
runs = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from("AB"),
        "traffic_class": st.sampled_from(CLASSES),
        "deadline_ms": st.sampled_from((120, 500, 2000, None)),
        "at_ms": st.integers(0, 600),
        "batches": st.lists(batches, min_size=1, max_size=3),
        "end": st.sampled_from(("finish", "finish", "cancel", "leave")),
        "end_ms": st.integers(0, 700),
        "child": st.booleans(),
    }
)
worlds = st.fixed_dictionaries(
    {
        "runs": st.lists(runs, min_size=1, max_size=12),
        "answers": st.lists(st.sampled_from(GOOD_ANSWERS + BAD_ANSWERS), min_size=1, max_size=30),
        "looks": st.lists(st.sampled_from(LOOKS), min_size=1, max_size=6),
        "takes_ms": st.lists(st.sampled_from((1, 20, 50, 250, 600)), min_size=1, max_size=8),
    }
)


class World(Bench):
    """Answers in turn, whoever asks."""

    def __init__(self, plan):
        super().__init__(CAPACITY)
        self.plan = plan
        self.bound = {}
        self.parents = {}

    async def call(self, call):
        turn = len(self.calls)
        answers = self.plan["looks"] if call.operation == "readback" else self.plan["answers"]
        answer = answers[turn % len(answers)]
        kind = "write" if call.operation == "readback" else call.operation
        keys = ((call.dependency, kind), "all", ("run", call.run), (call.dependency, "probe", call.probe))
        self.calls.append((self.now_ns, call))
        for key in keys:
            self.in_flight[key] += 1
            self.most_in_flight[key] = max(self.most_in_flight[key], self.in_flight[key])
        self.floors_kept(call)
        try:
            takes_ms = self.plan["takes_ms"][turn % len(self.plan["takes_ms"])]
            await asyncio.sleep((300 if answer.status == 0 else takes_ms) / 1e3)
            return answer
        finally:
            for key in keys:
                self.in_flight[key] -= 1

    def floors_kept(self, call):
        for bulkhead in self.controller.dispatch.bulkheads.values():
            slots = bulkhead.slots
            missing = sum(max(0, floor - own) for floor, own in zip(slots.floors, slots.own, strict=True))
            assert slots.in_use + missing <= slots.limit, (call, "a floor was lent")

    async def drive(self, plan, number):
        await asyncio.sleep(plan["at_ms"] / 1e3)
        deadline_ns = plan["deadline_ms"] and plan["deadline_ms"] * MS
        wish = {"traffic_class": plan["traffic_class"], "deadline_ns": deadline_ns}
        run = self.open(plan["tenant"], **wish)
        self.bound[run] = 8
        tasks = [
            self.loop.create_task(self.later(run, *batch, f"{number}.{n}")) for n, batch in enumerate(plan["batches"])
        ]
        if plan["child"]:
            tasks.append(self.loop.create_task(self.child(run, plan)))
        await asyncio.sleep(plan["end_ms"] / 1e3)
        if plan["end"] == "cancel":
            self.controller.cancel(run)
        if plan["end"] == "leave":
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=False) if plan["end"] != "leave" else await asyncio.wait(tasks)
        self.controller.finish(run)

    async def later(self, run, after_ms, chosen, name):
        await asyncio.sleep(after_ms / 1e3)
        named = [replace(step, step=f"s{n}") for n, step in enumerate(chosen)]
        result = await self.submit(run, *named, batch=name)
        assert len(result.steps) == len(named)
        return result

    async def child(self, parent, plan):
        opened = self.controller.open_run(plan["tenant"], RunWish(attempts=3, retry_tokens=1, parent_run=parent))
        if opened.run is None:
            return
        self.parents[opened.run] = parent
        await self.later(opened.run, *plan["batches"][0], "child")
        self.controller.finish(opened.run)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds)
def test_whatever_is_asked(plan):
    async def main():
        world = World(plan)
        await asyncio.gather(*(world.drive(run, number) for number, run in enumerate(plan["runs"])))
        await asyncio.sleep(5)
        return world

    judge(run_virtual(main()))


def judge(world):
    world.ends_once()
    budgets_hold(world)
    bounds_hold(world)
    retries_are_paid(world)
    for at_ns, call in world.calls:
        assert call.operation == "readback" or at_ns < call.deadline_ns, "started after its deadline"
    writes_are_settled_first(world)


def budgets_hold(world):
    """Of a run with its children: arrivals never over its attempts, work never over a dependency's budget."""
    spent, billed = Counter(), Counter()
    for _, call in world.calls:
        root = world.parents.get(call.run, call.run)
        spent[root] += 1
        billed[root] += call.dependency == "billing" and call.operation != "readback"
    assert all(count <= 8 for count in spent.values()), spent
    assert all(count <= 5 for count in billed.values()), billed


def bounds_hold(world):
    most = world.most_in_flight
    assert most["all"] <= 8
    for name in ("customer", "billing"):
        assert most[name, "read"] <= 5
        assert most[name, "write"] <= 5
    assert all(n <= 3 for key, n in most.items() if isinstance(key, tuple) and key[0] == "run")
    assert max((d.queue or 0 for d in world.decisions), default=0) <= 4


def retries_are_paid(world):
    """Repeats of calls, but not looks: at most the tokens of the run; each scheduled first."""
    repeats = Counter(
        world.parents.get(call.run, call.run)
        for _, call in world.calls
        if call.attempt > 1 and call.operation != "readback"
    )
    assert all(count <= 2 for count in repeats.values()), repeats
    assert sum(repeats.values()) <= len(world.seen("retry", outcome="scheduled"))


def writes_are_settled_first(world):
    """After a write without an answer, a look comes before any repeat; a committed one is told as served."""
    for found in world.seen("readback", outcome="committed"):
        same = [d for d in world.decisions if (d.run, d.batch, d.step) == (found.run, found.batch, found.step)]
        after = same[same.index(found) + 1 :]
        assert not [d for d in after if d.kind == "retry"]
        assert after[-1].outcome in ("served", "cancelled")
        if after[-1].outcome == "cancelled":
            assert after[-1].reason == "caller_gone"


move = st.sampled_from(("start", "end", "demand", "slow"))
moves = st.lists(
    st.tuples(move, st.integers(0, 3), st.sampled_from("ABC"), st.integers(0, 40)),
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(moves, st.integers(5, 12))
def test_slots_are_conserved_and_floors_and_shares_never_lent(chosen, limit):
    reserves = (Reserve("interactive", 3, 1), Reserve("autonomous", 1, 1))
    slots = Slots(limit, reserves, (TenantShare("A", 2, 9),), MS, lambda *_: None)
    held, now = [], 0
    for move, rank, tenant, wait in chosen:
        now += wait * MS
        if move == "demand":
            slots.demand(rank, now)
        elif move == "slow":
            slots.observed(rank, 10 * MS, now)
        elif move == "start" and (how := slots.may_start(rank, tenant, now)) != NO:
            slots.start(how, rank, tenant, now)
            held.append((how, rank, tenant))
            assert slots.in_use + sum(max(0, f - o) for f, o in zip(slots.floors, slots.own, strict=True)) <= limit
        elif move == "end" and held:
            slots.end(*held.pop(rank % len(held)))
        assert slots.in_use == len(held)
        assert slots.shares_unmet == max(0, 2 - slots.common["A"])
    for grant in held:
        slots.end(*grant)
    assert (slots.in_use, slots.own, slots.common) == (0, [0] * 4, {"A": 0})


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ABT"), st.integers(0, 9), st.booleans()), max_size=60))
def test_the_queue_is_bounded_and_keeps_its_order(asked):
    queue = Waiting(8, 5, {"T": 3})
    inside = []
    for rank, tenant, deadline, leaves in asked:
        if queue.refusal(tenant):
            gone = queue.displaced_by(rank, tenant)
            if gone is None:
                continue
            assert gone.rank > rank or (gone.rank == rank and tenant == "T" and gone.tenant != "T")
            queue.remove(gone)
            inside.remove(gone)
        inside.append(queue.add(rank, tenant, deadline, 0, False, None))
        if leaves:
            queue.remove(inside.pop(0))
        assert queue.size == len(inside) <= 8
        assert queue.by_tenant == Counter(w.tenant for w in inside)
        assert all(n <= (3 if t == "T" else 5) for t, n in queue.by_tenant.items())
    order = []
    while (first := queue.first(lambda _: True)) is not None:
        queue.remove(first)
        order.append(first)
    assert order == sorted(inside, key=lambda w: w.key)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.booleans(), st.integers(0, 700)), max_size=60),
    st.integers(1, 3),
)
def test_a_circuit_lets_nothing_through_while_open_and_few_while_half_open(asked, probes):
    changes = []
    made = Circuit(circuit(probes=probes), lambda now, outcome, _: changes.append((now, outcome)))
    now, out = 0, []
    for wait, action, failed, latency in asked:
        now += wait * MS
        if action and made.admits(now):
            assert not changes or changes[-1][1] != "opened"
            out.append((made.begin(now), now))
            assert made.probes_out <= probes
            assert (made.state == HALF_OPEN) == (out[-1][0].probe > 0)
        elif out:
            passed, _ = out.pop(0)
            made.end(passed, now, latency * MS, failed)
    for (at, outcome), (later, follows) in pairwise(changes):
        assert follows in {"opened": ("half_open",), "half_open": ("closed", "opened"), "closed": ("opened",)}[outcome]
        assert outcome != "opened" or later - at >= 2 * S
