"""Whatever runs do, a bucket's balance is that of what was used, and nothing that was claimed stays claimed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.simulate.virtual_loop import run_virtual
from stub_service.capacity.bucket import NS_PER_S, Bucket, Claim
from stub_service.capacity.config import EnvelopeDefaults
from stub_service.capacity.cost_config import BucketLimits, ClassForecast, CostConfig, Learning, SizeQueue
from stub_service.capacity.forecast import Forecasts, Hints
from stub_service.capacity.ports import DependencyAnswer, RunWish, Step
from stub_service.capacity.sessions import Sessions
from tests.unit.capacity_bench import MS, Bench, S, config

amounts = st.integers(1, 3000)


@given(
    st.integers(1, 5000), st.integers(1, 5000),
    st.lists(st.tuples(st.integers(0, 10**9), amounts, st.lists(amounts, max_size=3), st.booleans()), max_size=30),
)  # fmt: skip
def test_a_balance_is_the_refilled_burst_less_what_settled_claims_used(rate, burst, asks):
    """After every settlement, and with claims open in between."""
    bucket, now_ns, expected, last_ns = Bucket(rate, burst), 0, float(burst), 0
    waiting: list[tuple[Claim, list[int]]] = []
    for wait_ns, forecast, uses, settles in asks:
        now_ns += wait_ns
        expected = min(float(burst), expected + rate * (now_ns - last_ns) / NS_PER_S)
        last_ns = now_ns
        free = bucket.balance(now_ns) - bucket.reserved
        claim = bucket.reserve(forecast, now_ns)
        assert isinstance(claim, Claim) == (free >= forecast - 1e-6 and expected >= -1e-6)
        if isinstance(claim, Claim):
            waiting.append((claim, uses))
        if settles and waiting:
            ended, used = waiting.pop(0)
            for cost in used:
                bucket.spend(ended, cost)
            bucket.settle(ended, now_ns)
            expected -= sum(used)
        assert abs(bucket.balance(now_ns) - expected) < 1e-3
        assert bucket.reserved == sum(claim.held for claim, _ in waiting)


@given(st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 10**7)), max_size=40), st.integers(1, 5000))
def test_a_forecast_is_bounded_whatever_is_learned(learned, burst):
    learning = Learning()
    made = Forecasts([ClassForecast("chat_turn", "short", 500)], learning)
    for basis, actual in learned:
        made.learn("A", "chat_turn", basis, actual)
        assert learning.least <= made.factor("A", "chat_turn") <= learning.most
        assert 1 <= made.forecast("A", "chat_turn", 500, burst) <= burst


sizes = st.sampled_from(["short", "standard", "batch"])


@settings(max_examples=40)
@given(
    st.integers(3, 8), st.lists(st.tuples(st.sampled_from(["ask", "end", "leave"]), sizes), max_size=60),
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1)),
)  # fmt: skip
def test_sessions_stay_within_their_limit_and_what_is_kept_can_always_be_had(limit, moves, kept):
    async def main():
        queues = [SizeQueue(size, one, 3) for size, one in zip(("short", "standard", "batch"), kept, strict=True)]
        sessions, waiting = Sessions(limit, queues), []
        for move, size in moves:
            if move == "ask" and not sessions.take_at_once(size):
                waiter = sessions.join(size, 0)
                waiting += [waiter] if waiter is not None else []
            elif move == "end" and sessions.in_use[size]:
                sessions.give_back(size)
            elif move == "leave" and waiting:
                waiter = waiting.pop()
                if not waiter.future.done():
                    sessions.leave(waiter)
            assert 0 <= sessions.taken <= limit
            assert min(sessions.in_use.values()) >= 0
            for queue in queues:
                if sessions.in_use[queue.size_class] < queue.kept:
                    assert sessions.may_start(queue.size_class)
                    assert not sessions.waiting[queue.size_class]
            assert sessions.next_size() is None  # nobody waits who may start

    run_virtual(main())


COST = CostConfig(
    buckets=(BucketLimits("A", 500.0, 1500), BucketLimits("B", 300.0, 900)),
    classes=(ClassForecast("chat_turn", "short", 200), ClassForecast("deep_research", "batch", 200)),
    sessions=3, memory=4, tools=4, queues=(SizeQueue("short", 1, 2), SizeQueue("batch", 0, 2)), lease_ns=300 * MS,
)  # fmt: skip
CAPACITY = config(cost=COST, envelope=EnvelopeDefaults(deadline_ns=2 * S))
wishes = st.builds(
    Hints, depth=st.integers(1, 2), fan_out=st.integers(1, 3), tools=st.integers(0, 5), memory=st.integers(0, 5)
)
agents = st.tuples(
    st.sampled_from("AB"), st.integers(0, 1500), st.sampled_from(["chat_turn", "deep_research"]), wishes,
    st.lists(st.integers(0, 800), min_size=1, max_size=3), st.sampled_from(["finish", "cancel", "crash", "hang_up"]),
    st.integers(0, 300),
)  # fmt: skip


async def agent(bench, number, tenant, at_ms, request_class, hints, costs, end, patience_ms):
    await asyncio.sleep(at_ms / 1000)
    asks = asyncio.ensure_future(bench.controller.open(tenant, RunWish(request_class=request_class, forecast=hints)))
    if end == "hang_up":
        await asyncio.sleep(patience_ms / 1000)
        if not asks.done():
            asks.cancel()
            return
    opened = await asks
    if opened.run is None:
        return
    steps = [Step(f"{number}.{place}", "customer") for place in range(len(costs))]
    for step, cost in zip(steps, costs, strict=True):
        bench.answers[step.step, "read"] = [DependencyAnswer(200, body={"usage": {"tokens": cost}})]
    batch = bench.start(opened.run, *steps)
    if end == "cancel":
        await asyncio.sleep(patience_ms / 1000)
        bench.controller.cancel(opened.run)
    await batch
    if end == "finish":
        bench.controller.finish(opened.run)


@settings(max_examples=30)
@given(st.lists(agents, min_size=1, max_size=14))
def test_whatever_agents_do_every_account_is_settled_at_what_was_used_and_nothing_is_held(plans):
    async def main():
        bench = Bench(replace(CAPACITY))
        await asyncio.gather(*(agent(bench, number, *plan) for number, plan in enumerate(plans)))
        await asyncio.sleep(5)
        bench.ends_once()
        served = {}
        for step in bench.seen("step", outcome="served"):
            number, _, place = step.step.partition(".")
            served.setdefault(step.run, []).append(plans[int(number)][4][int(place)])
        late = {d.run for d in bench.seen("late")}
        rows = bench.seen("cost")
        admitted = [d.run for d in rows if d.outcome == "admitted"]
        settled = [d for d in rows if d.outcome == "settled"]
        assert sorted(d.run for d in settled) == sorted(admitted)
        for row in settled:
            if row.run not in late:
                assert row.actual == sum(served.get(row.run, []))
        assert all(d.sessions <= 3 and d.memory <= 4 and d.tools <= 4 for d in rows)

    run_virtual(main())
