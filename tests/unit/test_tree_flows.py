"""The controller with delegation trees, in virtual time: what is refused and how, what is cut off, what comes back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from harness.simulate.virtual_loop import run_virtual
from stub_service.capacity import api
from stub_service.capacity.config import EnvelopeDefaults, from_json, to_json
from stub_service.capacity.cost_config import BucketLimits, ClassForecast, CostConfig
from stub_service.capacity.ports import DependencyAnswer, RunWish, Step
from stub_service.capacity.tree import TreeLimits
from tests.unit.capacity_bench import MS, OK, Bench, S, config, dependency

ENVELOPE = EnvelopeDefaults(deadline_ns=5 * S, attempts=100, parallel=10)
CAPACITY = config(envelope=ENVELOPE)
ONE = Step("s", "customer")


def used(tokens=0, bytes=0, **more):
    return DependencyAnswer(200, body={"value": "v", **more, "usage": {"tokens": tokens, "bytes": bytes}})


def flow(test, capacity=CAPACITY):
    """Runs `test(bench)`; afterwards every step has ended once, and nothing of anything is held."""

    async def main():
        bench = Bench(capacity)
        result = await test(bench)
        await asyncio.sleep(10)
        bench.ends_once()
        return result

    return run_virtual(main())


async def opened(bench, parent=None, attempts=10, **limits):
    wish = RunWish(parent_run=parent, attempts=attempts, tree=TreeLimits(**limits) if limits else None)
    return await bench.controller.open("A", wish, "0.1.1")


def steps(n, dependency="customer"):
    return [Step(f"s{i}", dependency) for i in range(n)]


def test_a_refusal_of_a_tree_is_typed_and_its_parent_ends_so():
    async def test(bench):
        root = (await opened(bench, attempts=100, fan_out=1)).run
        first = await opened(bench, root)
        second = await opened(bench, root)
        assert (second.run, second.outcome, second.reason) == (None, "budget_exhausted", "fan_out")
        bench.controller.finish(first.run)
        assert bench.controller.finish(root) == "budget_exhausted"
        assert bench.controller.view(root)["remaining"]["attempts"] == 100

    flow(test)


def test_a_batch_that_is_refused_costs_nothing():
    async def test(bench):
        run = (await opened(bench, credits=3)).run
        refused = await bench.submit(run, *steps(4))
        assert (refused.outcome, refused.reason) == ("budget_exhausted", "credits")
        assert {step.outcome for step in refused.steps} == {"budget_exhausted"}
        served = await bench.submit(run, *steps(3))
        assert served.outcome == "served"
        assert bench.controller.view(run)["tree"]["credits"] == 0
        assert bench.controller.view(run)["remaining"]["attempts"] == 7
        bench.controller.finish(run)

    flow(test)


def test_a_step_that_never_started_gives_its_credit_back():
    async def test(bench):
        run = (await opened(bench, credits=3)).run
        task = bench.start(run, *steps(3, "billing"))
        await asyncio.sleep(0.01)
        bench.controller.cancel(run)
        await task
        return [d.step for d in bench.seen("step", outcome="admitted")], bench.controller.view(run)["tree"]["credits"]

    capacity = replace(CAPACITY, dependencies=(dependency("customer"), dependency("billing", reads=1)))
    assert flow(test, capacity) == (["s0"], 2)


def test_an_answer_that_does_not_fit_is_not_handed_on_and_nothing_follows():
    async def test(bench):
        bench.answers["", "read"] = [used(bytes=600)]
        run = (await opened(bench, bytes=1000)).run
        served = await bench.one(run, ONE)
        cut = await bench.one(run, ONE)
        late = await bench.one(run, ONE)
        assert (served.outcome, served.body["value"]) == ("served", "v")
        assert (cut.outcome, cut.reason, cut.attempts, cut.body) == ("budget_exhausted", "bytes", 1, {})
        assert (late.outcome, late.reason, late.attempts) == ("budget_exhausted", "bytes", 0)
        assert bench.controller.finish(run) == "budget_exhausted"
        assert len(bench.calls) == 2

    flow(test)


def test_a_write_is_told_whatever_its_answer_brings():
    async def test(bench):
        bench.answers["", "write"] = [used(bytes=5000, committed=True)]
        run = (await opened(bench, bytes=1000)).run
        assert (await bench.one(run, Step("s", "customer", "write", idempotency_key="k"))).outcome == "served"
        assert (await bench.one(run, ONE)).reason == "bytes"
        bench.controller.finish(run)

    flow(test)


def test_steps_that_wait_do_not_start_once_the_tree_is_spent():
    async def test(bench):
        bench.answers["", "read"] = [used(tokens=100)]
        run = (await opened(bench, agent_tokens=100)).run
        result = await bench.submit(run, *steps(9))
        bench.controller.finish(run)
        return [step.outcome for step in result.steps].count("served"), {step.reason for step in result.steps}

    assert flow(test) == (4, {None, "agent_tokens"})


def test_a_follower_asks_again_when_what_it_follows_is_cut_off():
    async def test(bench):
        bench.answers["", "read"] = [used(bytes=600), OK]
        small, free = (await opened(bench, bytes=500)).run, (await opened(bench)).run
        shared = Step("s", "customer", coalesce="same")
        first, second = bench.start(small, shared), bench.start(free, shared)
        results = [(await task).steps[0] for task in (first, second)]
        bench.controller.finish(small)
        bench.controller.finish(free)
        return [(result.outcome, result.attempts) for result in results]

    assert flow(test) == [("budget_exhausted", 1), ("served", 1)]


@pytest.mark.parametrize("how", ["finish", "cancel"])
def test_a_session_is_free_when_nothing_of_its_branch_is_under_way(how):
    async def test(bench):
        root = (await opened(bench, attempts=100, sessions=2)).run
        child = (await opened(bench, root)).run
        task = bench.start(child, ONE)
        await asyncio.sleep(0.01)
        getattr(bench.controller, how)(child)
        assert (await opened(bench, root)).reason == "sessions"
        await task
        assert (await opened(bench, root)).outcome == "served"
        bench.controller.finish(root)

    flow(test)


def test_a_branch_whose_agent_is_gone_is_settled_at_its_deadline():
    async def test(bench):
        root = (await opened(bench, attempts=100, sessions=4)).run
        child = await bench.controller.open("A", RunWish(parent_run=root, attempts=10, deadline_ns=S), "0.2.1")
        task = bench.start(child.run, ONE)
        await task
        await asyncio.sleep(1.1)
        assert bench.controller.view(child.run)["outcome"] == "expired"
        assert bench.controller.view(root)["tree"]["sessions"] == 3
        assert bench.controller.leftovers()["branches"] == 1
        await asyncio.sleep(5)
        ends = bench.seen("run", outcome="expired")
        assert [(d.run, d.reason, d.request) for d in ends] == [(child.run, "deadline", "0.2.1"),
                                                               (root, "deadline", "0.1.1")]  # fmt: skip

    flow(test)


def test_without_limits_of_trees_nothing_of_them_is_said():
    async def test(bench):
        run = await opened(bench)
        assert run.tree is None
        assert "tree" not in bench.controller.view(run.run)
        assert "branches" not in bench.controller.leftovers()
        bench.controller.finish(run.run)

    flow(test)


COST = CostConfig(buckets=(BucketLimits("", 100.0, 1000),), classes=(ClassForecast("chat_turn", "short", 300),))
PRICED = config(cost=COST, envelope=replace(ENVELOPE, delegate_cost=300))


def test_a_delegation_claims_its_price_of_the_tenants_bucket():
    async def test(bench):
        root = await opened(bench, attempts=100)
        bucket = bench.controller.costs.bucket_of("A")
        children = [await opened(bench, root.run) for _ in range(3)]
        assert [(child.outcome, child.reason) for child in children] == [("served", None)] * 2 + [
            ("throttled", "tokens")
        ]
        assert 1.9 < children[2].retry_after_s < 2.1
        assert bucket.reserved == 900
        assert (await opened(bench, root.run, attempts=1000)).reason == "tokens"
        bench.controller.finish(root.run)
        assert bucket.reserved == 0

    flow(test, PRICED)


def test_a_delegation_that_is_refused_for_another_reason_claims_nothing():
    async def test(bench):
        root = await opened(bench, attempts=100, fan_out=1)
        assert (await opened(bench, root.run, attempts=1000)).reason == "attempts"
        assert bench.controller.costs.bucket_of("A").reserved == 300
        assert (await opened(bench, root.run)).outcome == "served"
        assert (await opened(bench, root.run)).reason == "fan_out"
        assert bench.controller.costs.bucket_of("A").reserved == 600
        assert bench.controller.runs[root.run].account.delegated == 300
        bench.controller.finish(root.run)

    flow(test, PRICED)


@pytest.mark.parametrize(
    ("delegate_cost", "learned"),
    [(300, 400), (500, 100), (0, 1000)],
    ids=["more than the prices", "less than the prices", "no price"],
)
def test_a_forecast_does_not_learn_what_delegations_claim_apart(delegate_cost, learned):
    """Itself 100 tokens, two sub-agents 450 each."""

    async def test(bench):
        root = await opened(bench, attempts=100)
        children = [(await opened(bench, root.run)).run for _ in range(2)]
        runs, costs = bench.controller.runs, bench.controller.costs
        for run, tokens in [(root.run, 100), *((child, 450) for child in children)]:
            costs.spend(runs[run], {"usage": {"tokens": tokens}})
        for run in (*children, root.run):
            bench.controller.finish(run)
        weight = costs.config.learning.weight
        assert costs.forecasts.factor("A", "chat_turn") == pytest.approx(1 + weight * (learned / 300 - 1))

    rich = replace(COST, buckets=(BucketLimits("", 100.0, 2000),))
    flow(test, config(cost=rich, envelope=replace(ENVELOPE, delegate_cost=delegate_cost)))


def test_a_tenant_that_pays_for_its_trees_may_go_on_delegating():
    """Each uses 1,200 of 2,000 tokens; were all of it learned, too, its sub-agents would be claimed on top of that."""

    async def test(bench):
        costs = bench.controller.costs
        for _ in range(20):
            root = await opened(bench, attempts=100)
            children = [await opened(bench, root.run) for _ in range(3)]
            assert [child.outcome for child in children] == ["served"] * 3
            for run in (*(child.run for child in children), root.run):
                costs.spend(bench.controller.runs[run], {"usage": {"tokens": 300}})
                bench.controller.finish(run)
            costs.buckets.clear()

    rich = replace(COST, buckets=(BucketLimits("", 100.0, 2000),))
    flow(test, config(cost=rich, envelope=replace(ENVELOPE, delegate_cost=300)))


def test_another_tenants_run_is_charged_nothing():
    async def test(bench):
        root = await opened(bench, attempts=100)
        stranger = await bench.controller.open("B", RunWish(parent_run=root.run, attempts=1))
        assert (stranger.run, stranger.reason) == (None, "unknown_parent_run")
        assert bench.controller.costs.bucket_of("A").reserved == 300
        bench.controller.finish(root.run)

    flow(test, PRICED)


def test_over_the_api_limits_are_asked_for_and_what_is_left_is_told():
    async def test(bench):
        body = b'{"depth": 1, "fan_out": 2, "payload": 500, "iterations": 3}'
        answer = await api.handle(bench.controller, "A", "POST", "/runs", body, {})
        assert answer.body["tree"] == {"depth": 1, "fan_out": 2, "payload": 500, "iterations": 3}
        shown = await api.handle(bench.controller, "A", "GET", f"/runs/{answer.body['run']}", b"", {})
        assert shown.body["tree"] == answer.body["tree"]
        bad = await api.handle(bench.controller, "A", "POST", "/runs", b'{"sessions": 0}', {})
        assert bad.body["message"].startswith("sessions: must be a whole number from 1 to")
        bench.controller.finish(answer.body["run"])

    flow(test)


def test_limits_travel_as_json():
    made = config(envelope=EnvelopeDefaults(tree=TreeLimits(depth=2, bytes=10), delegate_cost=5, tool_cost=0))
    assert from_json(to_json(made)) == made
    document = to_json(config())
    for name in ("tree", "delegate_cost", "tool_cost"):
        del document["envelope"][name]
    assert from_json(document) == config()
    assert made.envelope.prices.delegate == 5
    assert made.envelope.prices.tool == 0


def test_a_run_that_was_finished_at_once_leaves_no_timer():
    async def test(bench):
        run = (await opened(bench, sessions=1)).run
        timer = bench.controller.runs[run].branch.timer
        bench.controller.finish(run)
        assert timer.cancelled()
        assert bench.now_ns < 10 * MS

    flow(test)
