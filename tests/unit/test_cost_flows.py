"""The controller with cost, in virtual time: who gets in, what is charged, and that everything comes back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from harness.simulate.virtual_loop import run_virtual
from stub_service.capacity import api
from stub_service.capacity.config import EnvelopeDefaults, from_json, to_json
from stub_service.capacity.cost_config import BucketLimits, ClassForecast, CostConfig, Draw, Quota, SizeQueue, Usage
from stub_service.capacity.forecast import Hints
from stub_service.capacity.ports import DependencyAnswer, RunWish, Step
from tests.unit.capacity_bench import MS, Bench, S, config

COST = CostConfig(
    buckets=(BucketLimits("A", 100.0, 1000), BucketLimits("", 100.0, 500)),
    classes=(ClassForecast("chat_turn", "short", 300), ClassForecast("deep_research", "batch", 300)),
    sessions=2,
    memory=3,
    tools=4,
    queues=(SizeQueue("short", queue=2),),
    lease_ns=400 * MS,
)
CAPACITY = config(cost=COST, envelope=EnvelopeDefaults(deadline_ns=5 * S))


def used(tokens, status=200):
    return DependencyAnswer(status, body={"value": "v", "usage": {"tokens": tokens}})


def flow(test, cost=COST, **changes):
    """Runs `test(bench)`; afterwards every step has ended once, and nothing of anything is held."""

    async def main():
        bench = Bench(replace(CAPACITY, cost=cost, **changes))
        result = await test(bench)
        await asyncio.sleep(10)
        bench.ends_once()
        return result

    return run_virtual(main())


def opening(bench, tenant="A", **wish):
    return bench.controller.open(tenant, RunWish(**wish), "0.1.1")


def told(bench, outcome=None):
    return [d for d in bench.seen("cost") if outcome in (None, d.outcome)]


def test_a_run_is_admitted_on_its_forecast_and_settled_at_what_it_used():
    async def test(bench):
        bench.answers["s", "read"] = [used(120)]
        opened = await opening(bench)
        assert opened.cost == {"request_class": "chat_turn", "forecast": 300, "used": 0, "settled": False}
        await bench.one(opened.run, Step("s", "customer"))
        assert bench.controller.view(opened.run)["cost"]["used"] == 120
        bench.controller.finish(opened.run)
        return [(d.outcome, d.run, d.forecast, d.actual, d.balance, d.reserved) for d in told(bench)]

    assert flow(test) == [
        ("admitted", "r1", 300, None, 1000, 300),
        ("settled", "r1", 300, 120, 880, 0),
    ]


def test_a_run_beyond_its_bucket_is_told_when_to_come_again_and_in_debt_that_it_is_exhausted():
    async def test(bench):
        bench.answers["s", "read"] = [used(1500)]
        first = await opening(bench, request_class="deep_research", forecast=Hints(1, 3))
        refused = await opening(bench)
        assert (refused.outcome, refused.reason, refused.retry_after_s) == ("throttled", "tokens", 2.0)
        await bench.one(first.run, Step("s", "customer"))
        bench.controller.finish(first.run)
        owing = await opening(bench)
        assert (owing.outcome, owing.reason) == ("budget_exhausted", "tokens")
        assert owing.retry_after_s == pytest.approx(8.0, abs=0.1)
        await asyncio.sleep(owing.retry_after_s)
        again = await opening(bench)
        bench.controller.finish(again.run)

    flow(test)


def test_no_bucket_is_shared():
    async def test(bench):
        runs = [await opening(bench, tenant, request_class="deep_research", forecast=Hints(1, 9)) for tenant in "BC"]
        assert [run.cost["forecast"] for run in runs] == [500, 500]
        for run in runs:
            bench.controller.finish(run.run)
        assert bench.controller.costs.bucket_of("B") is not bench.controller.costs.bucket_of("C")

    flow(test)


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"forecast": Hints(memory=4)}, "memory"),
        ({"forecast": Hints(tools=5, memory=3)}, "tools"),
        ({"request_class": "deep_research", "forecast": Hints(1, 3)}, "tokens"),
    ],
)
def test_after_a_thousand_refusals_at_a_step_every_pool_is_whole(wish, reason):
    async def test(bench):
        costs = bench.controller.costs
        holder = None
        if reason == "tokens":
            holder = await opening(bench)
        before = costs.leftovers()
        for _ in range(1000):
            refused = await opening(bench, **wish)
            assert (refused.run, refused.reason) == (None, reason)
        assert costs.leftovers() == before
        if holder is not None:
            bench.controller.finish(holder.run)
        whole = await opening(bench, request_class="deep_research", forecast=Hints(1, 9, tools=4, memory=3))
        assert whole.cost["forecast"] == 1000
        bench.controller.finish(whole.run)

    flow(test)


def test_after_a_thousand_refusals_for_want_of_a_session_the_buckets_are_whole():
    async def test(bench):
        holders = [await opening(bench, forecast=Hints(tools=0)) for _ in range(2)]
        waiting = [asyncio.ensure_future(opening(bench, "B", forecast=Hints(tools=0))) for _ in range(2)]
        await asyncio.sleep(0)
        for _ in range(1000):
            refused = await opening(bench, "B")
            assert (refused.outcome, refused.reason, refused.retry_after_s) == ("throttled", "sessions", 1.0)
        assert bench.controller.costs.bucket_of("B").reserved == 0
        for holder in holders:
            bench.controller.finish(holder.run)
        first, second = await asyncio.gather(*waiting)
        assert (first.outcome, second.reason) == ("served", "tokens")  # of 500 one forecast of 300 is free
        bench.controller.finish(first.run)

    flow(test)


def test_a_run_waits_for_its_session_and_its_deadline_counts_from_when_it_asked():
    async def test(bench):
        holders = [await opening(bench) for _ in range(2)]
        waits = asyncio.ensure_future(opening(bench, "B", deadline_ns=S))
        too_long = asyncio.ensure_future(opening(bench, "C", deadline_ns=100 * MS))
        await asyncio.sleep(0.2)
        assert ((await too_long).outcome, (await too_long).reason) == ("expired", "deadline")
        for holder in holders:
            bench.controller.finish(holder.run)
        opened = await waits
        assert opened.deadline_ns == S
        assert [d.queue_wait_ns for d in told(bench, "admitted")] == [0, 0, 200 * MS]
        assert [d.queue for d in told(bench, "queued")] == [1, 2]
        bench.controller.finish(opened.run)

    flow(test)


def test_a_flow_that_is_cut_off_while_it_waits_holds_nothing():
    async def test(bench):
        holders = [await opening(bench) for _ in range(2)]
        waits = asyncio.ensure_future(opening(bench))
        handed = asyncio.ensure_future(opening(bench))
        await asyncio.sleep(0.1)
        waits.cancel()
        await asyncio.sleep(0)
        bench.controller.finish(holders[0].run)
        handed.cancel()  # in the very moment in which it was given a session
        await asyncio.sleep(0)
        assert bench.controller.costs.leftovers()["sessions"] == 1
        bench.controller.finish(holders[1].run)

    flow(test)


@pytest.mark.parametrize("route", ["finish", "cancel", "crash", "deadline"])
def test_every_route_settles(route):
    async def test(bench):
        bench.answers["s", "read"] = [used(200)]
        opened = await opening(bench, deadline_ns=600 * MS)
        steps = bench.start(opened.run, Step("s", "customer"))
        await asyncio.sleep(0.02)
        if route == "cancel":
            bench.controller.cancel(opened.run)
            assert told(bench, "settled") == []  # its call is still under way, and will tell what it used
        await steps
        if route == "finish":
            bench.controller.finish(opened.run)
        await asyncio.sleep(1)
        (settled,) = told(bench, "settled")
        return settled.actual, settled.reason, settled.t_ns // MS

    lease = replace(COST, lease_ns=0) if route == "deadline" else COST
    expected = {
        "finish": (200, "done", 50), "cancel": (200, "cancelled", 50), "crash": (200, "expired", 450),
        "deadline": (200, "expired", 600),
    }  # fmt: skip
    assert flow(test, lease) == expected[route]


def test_a_run_with_a_call_under_way_is_not_taken_for_gone():
    async def test(bench):
        bench.takes_ns = 900 * MS
        bench.answers["s", "read"] = [used(200)]
        opened = await opening(bench)
        await bench.one(opened.run, Step("s", "customer"))
        assert bench.controller.view(opened.run)["state"] == "open"
        await asyncio.sleep(0.6)
        assert bench.controller.view(opened.run)["outcome"] == "expired"

    flow(test)


def test_failed_and_shared_calls_are_charged_once_or_not_at_all():
    async def test(bench):
        bench.answers["bad", "read"] = [DependencyAnswer(400)]
        bench.answers["a", "read"] = bench.answers["b", "read"] = [used(100)]
        opened = await opening(bench)
        shared = [Step(name, "customer", coalesce="same") for name in "ab"]
        await bench.submit(opened.run, *shared, Step("bad", "customer"))
        bench.controller.finish(opened.run)
        return told(bench, "settled")[0].actual

    assert flow(test) == 100


def test_a_sub_agent_is_charged_to_the_account_of_its_root():
    async def test(bench):
        bench.answers["c", "read"] = [used(70)]
        root = await opening(bench)
        child = await opening(bench, parent_run=root.run)
        await bench.one(child.run, Step("c", "customer"))
        bench.controller.finish(child.run)
        assert told(bench, "settled") == []
        bench.controller.finish(root.run)
        (settled,) = told(bench, "settled")
        assert (settled.run, settled.actual) == (root.run, 70)

    flow(test)


def test_a_run_that_cannot_be_opened_gives_all_back():
    async def test(bench):
        refused = await opening(bench, traffic_class="nonsense")
        assert refused.reason == "unknown_traffic_class"
        assert set(bench.controller.costs.leftovers().values()) == {0}

    flow(test)


@pytest.mark.parametrize("body", [{}, {"usage": 3}, {"usage": {"tokens": -1}}, {"usage": {"tokens": 1.5}},
                                  {"usage": {"tokens": True}}, {"usage": {"tokens": 10**30}}])  # fmt: skip
def test_a_usage_that_is_none_is_not_believed(body):
    async def test(bench):
        bench.answers["s", "read"] = [DependencyAnswer(200, body=body)]
        opened = await opening(bench)
        await bench.one(opened.run, Step("s", "customer"))
        bench.controller.finish(opened.run)
        return told(bench, "settled")[0].actual

    assert flow(test) == 0


def test_the_api_takes_the_class_and_its_hints_and_tells_when_to_come_again():
    async def main():
        bench = Bench(CAPACITY)
        body = b'{"request_class": "deep_research", "forecast": {"depth": 1, "fan_out": 3, "tools": 1}}'
        first = await api.handle(bench.controller, "A", "POST", "/runs", body, {})
        second = await api.handle(bench.controller, "A", "POST", "/runs", body, {})
        wrong = await api.handle(bench.controller, "A", "POST", "/runs", b'{"forecast": {"depth": 0}}', {})
        return first, second, wrong

    first, second, wrong = run_virtual(main())
    assert (first.status, first.body["cost"]["forecast"]) == (201, 900)
    assert (second.status, second.headers["Retry-After"], second.body["retry_after_s"]) == (429, "8", 8)
    assert (second.body["outcome"], second.body["reason"]) == ("throttled", "tokens")
    assert (wrong.status, wrong.body["field"]) == (400, "forecast.depth")


def test_a_configuration_travels_as_json():
    usages = (Usage("A", "customer", "t", Draw("recorded", values=(1, 2))), Usage("B", "customer", "t"))
    dependencies = tuple(replace(one, quota=Quota(10.0, 20)) for one in CAPACITY.dependencies)
    full = replace(CAPACITY, usages=usages, dependencies=dependencies)
    assert from_json(to_json(full)) == full
    bare = {key: value for key, value in to_json(config()).items() if key not in ("cost", "usages")}
    assert from_json(bare) == config()
