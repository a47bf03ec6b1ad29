"""The flows of the capacity controller in virtual time: batches, runs, waiting, retries, coalescing, cancellation."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stub_service.capacity.config import EnvelopeDefaults, Reserve, TenantShare
from stub_service.capacity.ports import DependencyAnswer, RunWish, Step
from tests.unit.capacity_bench import MS, OK, S, circuit, config, dependency, flow, reads

BUSY = DependencyAnswer(503)
READ = Step("s", "customer")


def one_slot(**changes):
    return config(dependency("customer", reads=1, **changes), dependency("billing"))


class TestBatches:
    def test_a_step_that_is_admitted_at_once(self):
        async def test(bench):
            run = bench.open("A", task_class="ticket", release="7")
            result = await bench.submit(run, READ)
            assert (result.outcome, result.user_status, bench.now_ns) == ("served", "done", 50 * MS)
            (end,) = bench.seen("step", outcome="served")
            assert (end.run, end.tenant, end.traffic_class, end.task_class, end.release) == (
                run, "A", "autonomous", "ticket", "7",
            )  # fmt: skip
            assert (end.attempt, end.owner, end.queue_wait_ns, end.service_ns) == (1, "controller", 0, 50 * MS)
            assert (end.remaining_attempts, end.remaining_retry_tokens, end.remaining_ns) == (19, 2, 90 * S - 50 * MS)
            assert (end.limit, end.in_use, end.total_in_use, end.queue, end.circuit) == (4, 0, 0, 0, "closed")
            assert [d.kind for d in bench.decisions] == ["run", "batch", "step", "step"]
            assert bench.controller.finish(run) == "done"

        flow(test)

    def test_a_batch_that_asks_for_more_starts_nothing_and_the_run_ends_so(self):
        async def test(bench):
            run = bench.open(attempts=5)
            result = await bench.submit(run, *reads(6))
            assert (result.outcome, result.reason) == ("budget_exhausted", "attempts")
            assert {step.outcome for step in result.steps} == {"budget_exhausted"}
            assert (bench.calls, bench.now_ns) == ([], 0)
            assert (await bench.submit(run, *reads(5))).outcome == "served"
            assert bench.controller.finish(run) == "budget_exhausted"
            assert bench.controller.finish(run) == "budget_exhausted"
            (end,) = bench.seen("run", outcome="budget_exhausted")
            assert end.reason == "attempts"

        flow(test)

    def test_budgets_are_per_dependency(self):
        async def test(bench):
            run = bench.open(budgets={"customer": 2})
            result = await bench.submit(run, *reads(3), Step("b", "billing"))
            assert (result.outcome, result.reason) == ("budget_exhausted", "budget:customer")
            assert (await bench.submit(run, *reads(2), Step("b", "billing"))).outcome == "served"

        flow(test)

    def test_parallel_batches_do_not_overshoot(self):
        async def test(bench):
            run = bench.open(attempts=10)
            batches = [bench.start(run, *reads(4, prefix=f"{n}-"), batch=f"b{n}") for n in range(5)]
            outcomes = [(await batch).outcome for batch in batches]
            assert outcomes == ["served", "served", "budget_exhausted", "budget_exhausted", "budget_exhausted"]
            assert len(bench.calls) == 8

        flow(test)

    def test_no_more_than_parallel_at_once(self):
        async def test(bench):
            run = bench.open(parallel=2)
            batches = [bench.start(run, *reads(3, prefix=f"{n}-"), batch=f"b{n}") for n in range(2)]
            await asyncio.gather(*batches)
            assert bench.most_in_flight[run] == 2
            assert bench.now_ns == 150 * MS

        flow(test)

    def test_an_ended_run_takes_nothing_more(self):
        async def test(bench):
            run = bench.open()
            bench.controller.finish(run)
            result = await bench.submit(run, READ)
            assert (result.outcome, result.reason) == ("cancelled", "run_ended")

        flow(test)

    def test_after_the_deadline_a_batch_is_expired(self):
        async def test(bench):
            run = bench.open(deadline_ns=S)
            await asyncio.sleep(1)
            assert (await bench.submit(run, READ)).outcome == "expired"
            assert bench.controller.finish(run) == "expired"

        flow(test)

    def test_an_unknown_dependency_fails_whole(self):
        async def test(bench):
            result = await bench.submit(bench.open(), READ, Step("x", "nowhere"))
            assert (result.outcome, result.reason, bench.calls) == ("failed", "unknown_dependency", [])

        flow(test)

    @pytest.mark.parametrize(("replanned", "outcome"), [(True, "done"), (False, "failed")])
    def test_a_replan_that_goes_well_makes_up_for_a_failure(self, replanned, outcome):
        async def test(bench):
            bench.answers["s", "read"] = [DependencyAnswer(400), OK]
            run = bench.open()
            assert (await bench.submit(run, READ)).outcome == "failed"
            await bench.submit(run, READ if replanned else Step("other", "customer"), round=int(replanned))
            assert bench.controller.finish(run) == outcome

        flow(test)


class TestChildren:
    def test_a_child_spends_what_its_parent_then_lacks(self):
        async def test(bench):
            parent = bench.open(attempts=10)
            child = bench.open(attempts=6, parent_run=parent)
            assert (await bench.submit(parent, *reads(5))).outcome == "budget_exhausted"
            assert (await bench.submit(child, *reads(6))).outcome == "served"
            refused = bench.controller.open_run("A", RunWish(attempts=5, parent_run=parent))
            assert (refused.run, refused.outcome, refused.reason) == (None, "budget_exhausted", "attempts")
            assert (await bench.submit(parent, *reads(4, prefix="p"))).outcome == "served"
            assert len(bench.calls) == 10

        flow(test)

    def test_what_a_child_leaves_comes_back(self):
        async def test(bench):
            parent = bench.open(attempts=10)
            child = bench.open(attempts=6, parent_run=parent)
            await bench.submit(child, READ)
            bench.controller.finish(child)
            assert bench.controller.view(parent)["remaining"]["attempts"] == 9

        flow(test)

    def test_cancelling_the_parent_cancels_its_children(self):
        async def test(bench):
            parent = bench.open()
            child = bench.open(attempts=6, parent_run=parent)
            bench.controller.cancel(parent)
            assert bench.controller.view(child)["outcome"] == "cancelled"
            assert bench.controller.open_run("A", RunWish(parent_run=parent)).outcome == "cancelled"

        flow(test)

    def test_another_tenants_parent_is_unknown(self):
        async def test(bench):
            parent = bench.open("A")
            refused = bench.controller.open_run("B", RunWish(parent_run=parent))
            assert (refused.outcome, refused.reason) == ("failed", "unknown_parent_run")

        flow(test)


class TestWaiting:
    def test_waits_for_a_slot_and_says_when_it_should_start(self):
        async def test(bench):
            first, second = bench.open(), bench.open()
            task = bench.start(first, READ)
            waiting = bench.start(second, READ)
            await asyncio.sleep(0.01)
            (shown,) = bench.controller.view(second)["steps"]
            assert (shown["outcome"], shown["estimated_start_ns"]) == ("queued", 50 * MS)
            assert shown["cancel"] == f"/runs/{second}/cancel"
            await task
            assert (await waiting).steps[0].queue_wait_ns == 50 * MS
            assert bench.sent() == [0, 50]

        flow(test, one_slot())

    @pytest.mark.parametrize(
        ("step", "wish", "reason"),
        [
            (replace(READ, may_wait=False), {}, "may_not_wait"),
            (READ, {"deadline_ns": 40 * MS}, "start_beyond_deadline"),
        ],
    )
    def test_is_throttled_if_it_may_not_wait_or_would_start_too_late(self, step, wish, reason):
        async def test(bench):
            task = bench.start(bench.open(), READ)
            await asyncio.sleep(0)
            run = bench.open(**wish)
            result = await bench.one(run, step)
            assert (result.outcome, result.reason, result.retry_after_s) == ("throttled", reason, 0.05)
            assert bench.controller.view(run)["remaining"]["attempts"] == 20
            await task

        flow(test, one_slot())

    def test_expires_at_its_deadline_though_nothing_moves(self):
        async def test(bench):
            bench.takes_ns = 5 * S
            task = bench.start(bench.open(), READ)
            await asyncio.sleep(0)
            run = bench.open(deadline_ns=300 * MS)
            result = await bench.one(run, READ)
            assert (result.outcome, bench.now_ns) == ("expired", 300 * MS)
            assert result.queue_wait_ns == 300 * MS
            assert bench.controller.view(run)["remaining"]["attempts"] == 20
            await task
            assert len(bench.calls) == 1

        flow(test, one_slot())

    def test_the_queue_is_bounded_and_a_higher_class_displaces(self):
        async def test(bench):
            tasks = [bench.start(bench.open("A"), READ) for _ in range(3)]
            await asyncio.sleep(0)
            refused = await bench.one(bench.open("A"), READ)
            assert (refused.outcome, refused.reason) == ("throttled", "queue_full")
            urgent = bench.start(bench.open("B", traffic_class="interactive"), READ)
            results = [(await task).steps[0] for task in (*tasks, urgent)]
            assert [r.outcome for r in results] == ["served", "served", "throttled", "served"]
            assert results[2].reason == "displaced"
            assert [call.traffic_class for _, call in bench.calls] == ["autonomous", "interactive", "autonomous"]

        flow(test, one_slot(queue=2))

    def test_places_are_kept_for_a_tenant_with_a_share(self):
        async def test(bench):
            flood = [bench.start(bench.open("flood"), READ) for _ in range(6)]
            await asyncio.sleep(0)
            results = await asyncio.gather(*(bench.start(bench.open("T"), READ) for _ in range(3)))
            assert [r.outcome for r in results] == ["served"] * 3
            assert results[0].steps[0].queue_wait_ns == 0
            ended = [(await task).outcome for task in flood]
            assert ended.count("served") == 3

        shares = (TenantShare("T", 1, 4),)
        flow(test, config(dependency("customer", reads=2, queue=4), shares=shares))

    def test_reads_and_writes_have_slots_of_their_own(self):
        async def test(bench):
            tasks = [bench.start(bench.open(), Step("s", "customer", operation)) for operation in ("read", "write")]
            await asyncio.gather(*tasks)
            assert bench.now_ns == 50 * MS

        flow(test, one_slot())

    def test_one_ceiling_over_all(self):
        async def test(bench):
            steps = [Step("s", name, operation) for name in ("customer", "billing") for operation in ("read", "write")]
            tasks = [bench.start(bench.open(), step) for step in steps * 2]
            await asyncio.gather(*tasks)
            assert bench.most_in_flight["all"] == 3

        flow(test, replace(one_slot(), ceiling=3))

    def test_the_reserve_is_there_when_background_has_everything_else(self):
        async def test(bench):
            background = [bench.start(bench.open("A"), READ) for _ in range(8)]
            await asyncio.sleep(0)
            urgent = await bench.one(bench.open("B", traffic_class="interactive"), READ)
            assert urgent.queue_wait_ns == 0
            await asyncio.gather(*background)
            assert [d.outcome for d in bench.seen("lend", dependency="customer")] == ["lent", "taken_back"]

        flow(test, config(dependency("customer"), reserves=(Reserve("interactive", 2, 1),)))

    def test_what_can_never_start_is_refused_at_once(self):
        async def test(bench):
            result = await bench.one(bench.open("A"), READ)
            assert (result.outcome, result.reason) == ("throttled", "no_capacity")

        shares = (TenantShare("T", 1, 4),)
        flow(test, config(dependency("customer", reads=2), shares=shares, reserves=(Reserve("interactive", 1, 1),)))


class TestRetries:
    @pytest.mark.parametrize(("failures", "outcome"), [(1, "served"), (2, "served"), (3, "failed")])
    def test_attempts_follow_failures_and_tokens(self, failures, outcome):
        async def test(bench):
            bench.answers["s", "read"] = [BUSY] * failures + [OK]
            run = bench.open()
            result = await bench.one(run, READ)
            assert (result.outcome, result.attempts) == (outcome, min(3, failures + 1))
            assert len(bench.calls) == result.attempts
            assert {call.owner for _, call in bench.calls} == {"controller"}
            assert [call.attempt for _, call in bench.calls] == list(range(1, result.attempts + 1))
            left = bench.controller.view(run)["remaining"]
            assert (left["attempts"], left["retry_tokens"]) == (20 - result.attempts, 3 - result.attempts)
            if outcome == "failed":
                assert [d.reason for d in bench.seen("retry", outcome="denied")] == ["no_retry_tokens"]

        flow(test)

    def test_tokens_are_the_runs_not_the_steps(self):
        async def test(bench):
            bench.answers["", "read"] = [BUSY]
            result = await bench.submit(bench.open(retry_tokens=2), *reads(3))
            assert sum(step.attempts for step in result.steps) == 5

        flow(test)

    def test_retry_after_inside_the_deadline(self):
        async def test(bench):
            bench.answers["s", "read"] = [DependencyAnswer(429, "2"), OK]
            result = await bench.one(bench.open(), READ)
            assert (result.outcome, result.attempts) == ("served", 2)
            assert 2_050 <= bench.sent()[1] <= 2_075
            (scheduled,) = bench.seen("retry")
            assert (scheduled.retry_after, scheduled.user_status) == ("2", "will_retry")

        flow(test)

    def test_retry_after_beyond_the_deadline(self):
        async def test(bench):
            bench.answers["s", "read"] = [DependencyAnswer(429, "600")]
            result = await bench.one(bench.open(), READ)
            assert (result.outcome, result.reason) == ("throttled", "retry_after_beyond_deadline")
            assert (result.attempts, result.retry_after_s, bench.now_ns) == (1, 600.0, 50 * MS)

        flow(test)

    def test_no_slot_is_held_while_it_waits_to_retry(self):
        async def test(bench):
            bench.answers["s", "read"] = [DependencyAnswer(503, "3"), OK]
            task = bench.start(bench.open(), READ)
            await asyncio.sleep(0.06)
            assert (await bench.one(bench.open(), Step("other", "customer"))).queue_wait_ns == 0
            await task

        flow(test, one_slot())

    def test_a_retry_that_never_started_is_given_back(self):
        async def test(bench):
            bench.answers["s", "read"] = [BUSY, OK]
            run = bench.open(deadline_ns=400 * MS)
            task = bench.start(run, READ)
            await asyncio.sleep(0.055)
            bench.takes_ns = 5 * S
            other = bench.start(bench.open(), Step("long", "customer"))
            assert (await task).outcome == "expired"
            left = bench.controller.view(run)["remaining"]
            assert (left["attempts"], left["retry_tokens"]) == (19, 1)
            await other

        flow(test, one_slot())

    def test_429_keeps_the_background_away_until_it_has_passed(self):
        async def test(bench):
            bench.answers["s", "read"] = [DependencyAnswer(429, "2"), OK]
            first = bench.start(bench.open(retry_tokens=0), READ)
            await first
            late = bench.start(bench.open(), Step("late", "customer"))
            hurried = await bench.one(bench.open(), Step("hurried", "customer", may_wait=False))
            assert (hurried.outcome, hurried.reason) == ("throttled", "dependency_throttled")
            urgent = await bench.one(bench.open(traffic_class="interactive"), Step("urgent", "customer"))
            assert urgent.queue_wait_ns == 0
            await late
            assert bench.sent("late") == [2_050]

        flow(test)


class TestCircuit:
    def capacity(self, **changes):
        customer = dependency("customer", circuit=circuit(probes=1, close_after=2, **changes))
        return config(customer, dependency("billing"), envelope=EnvelopeDefaults(retry_tokens=0, parallel=100))

    def test_opens_refuses_cheaply_probes_and_closes(self):
        async def test(bench):
            bench.answers["bad", "read"] = [BUSY]
            for _ in range(4):
                await bench.one(bench.open(), Step("bad", "customer"))
            opened_ns = bench.now_ns
            calls = len(bench.calls)
            refused = await bench.one(bench.open(), READ)
            assert (refused.outcome, refused.reason) == ("dependency_unavailable", "circuit_open")
            assert refused.retry_after_s == 2.0
            assert (len(bench.calls), bench.now_ns) == (calls, opened_ns)
            assert (await bench.one(bench.open(), Step("s", "billing"))).outcome == "served"
            await asyncio.sleep(2)
            results = await asyncio.gather(*(bench.start(bench.open(), READ) for _ in range(5)))
            assert [r.outcome for r in results] == ["served"] + ["dependency_unavailable"] * 4
            assert [call.probe for _, call in bench.calls][-1]
            await bench.one(bench.open(), READ)
            assert (await bench.one(bench.open(), READ)).outcome == "served"
            assert not bench.calls[-1][1].probe
            changes = bench.seen("circuit")
            assert [d.outcome for d in changes] == ["opened", "half_open", "closed"]
            assert changes[1].t_ns == opened_ns + 2 * S

        flow(test, self.capacity())

    def test_those_who_wait_are_let_through_as_probes_not_all_at_once(self):
        async def test(bench):
            bench.answers["bad", "read"] = [BUSY]
            tasks = [bench.start(bench.open(), Step("bad", "customer")) for _ in range(4)]
            tasks += [bench.start(bench.open(), Step(f"w{n}", "customer")) for n in range(4)]
            await asyncio.gather(*tasks)
            starts = [at // MS for at, call in bench.calls if call.step.startswith("w")]
            assert starts == [2_050, 2_100, 2_150, 2_151]  # two probes, one by one; then the ramp of 1,000 a second

        flow(test, self.capacity(min_calls=1))


class TestCoalescing:
    SHARED = Step("s", "customer", coalesce="ticket-7")

    def test_equal_reads_share_one_call_and_followers_pay_nothing(self):
        async def test(bench):
            runs = [bench.open() for _ in range(3)]
            results = await asyncio.gather(*(bench.start(run, self.SHARED) for run in runs))
            assert [r.outcome for r in results] == ["served", "coalesced", "coalesced"]
            assert [r.steps[0].body for r in results] == [{"value": "v"}] * 3
            assert len(bench.calls) == 1
            assert [bench.controller.view(r)["remaining"]["attempts"] for r in runs] == [19, 20, 20]
            assert {d.coalesced_with for d in bench.seen("step", outcome="coalesced")} == {f"{runs[0]}/s"}

        flow(test)

    def test_never_writes_nor_other_tenants(self):
        async def test(bench):
            write = replace(self.SHARED, operation="write", idempotency_key="k")
            tasks = [bench.start(bench.open(tenant), self.SHARED) for tenant in ("A", "B")]
            tasks += [bench.start(bench.open("A"), write) for _ in range(2)]
            await asyncio.gather(*tasks)
            assert len(bench.calls) == 4

        flow(test)

    def test_when_the_leader_is_cancelled_in_the_queue_a_follower_leads(self):
        async def test(bench):
            blocker = bench.start(bench.open(), READ)
            leader, follower = bench.open(), bench.open()
            tasks = [bench.start(run, self.SHARED) for run in (leader, follower)]
            await asyncio.sleep(0.01)
            bench.controller.cancel(leader)
            results = await asyncio.gather(*tasks)
            assert [r.outcome for r in results] == ["cancelled", "served"]
            await blocker

        flow(test, one_slot())

    def test_a_follower_waits_no_longer_than_its_own_deadline(self):
        async def test(bench):
            bench.takes_ns = 2 * S
            leader = bench.start(bench.open(), self.SHARED)
            await asyncio.sleep(0)
            result = await bench.one(bench.open(deadline_ns=S), self.SHARED)
            assert (result.outcome, bench.now_ns) == ("expired", S)
            await leader

        flow(test)


class TestCancellation:
    def test_what_waits_goes_and_what_runs_is_thrown_away(self):
        async def test(bench):
            run = bench.open(parallel=5)
            task = bench.start(run, *reads(3))
            await asyncio.sleep(0.01)
            assert bench.controller.cancel(run) == "cancelled"
            await asyncio.sleep(0)
            assert len(bench.seen("step", outcome="cancelled")) == 2
            result = await task
            assert [step.outcome for step in result.steps] == ["cancelled"] * 3
            assert result.steps[0].body == {}
            assert [d.outcome for d in bench.seen("late")] == ["discarded"]
            assert len(bench.calls) == 1
            assert (await bench.submit(run, READ)).outcome == "cancelled"

        flow(test, one_slot())

    def test_no_retry_after_it(self):
        async def test(bench):
            bench.answers["s", "read"] = [BUSY]
            run = bench.open()
            task = bench.start(run, READ)
            await asyncio.sleep(0.01)
            bench.controller.cancel(run)
            assert (await task).outcome == "cancelled"
            assert len(bench.calls) == 1

        flow(test)

    def test_one_that_waits_to_retry_goes(self):
        async def test(bench):
            bench.answers["s", "read"] = [DependencyAnswer(503, "9")]
            run = bench.open()
            task = bench.start(run, READ)
            await asyncio.sleep(1)
            bench.controller.cancel(run)
            assert (await task).outcome == "cancelled"
            assert bench.now_ns == S

        flow(test)

    def test_a_write_that_ended_late_is_told_as_it_is(self):
        async def test(bench):
            run = bench.open()
            task = bench.start(run, Step("s", "customer", "write"))
            await asyncio.sleep(0.01)
            bench.controller.cancel(run)
            result = (await task).steps[0]
            assert (result.outcome, result.reason) == ("served", "late")

        flow(test)

    @pytest.mark.parametrize("after_s", [0.01, 0.06, 0.3])
    def test_a_caller_that_is_gone_leaves_nothing_behind(self, after_s):
        async def test(bench):
            bench.answers["s0", "read"] = [DependencyAnswer(503, "9")]
            blocker = bench.start(bench.open(), Step("other", "customer"))
            task = bench.start(bench.open(parallel=2), *reads(4))
            await asyncio.sleep(after_s)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert {d.reason for d in bench.seen("step", outcome="cancelled")} <= {"caller_gone"}
            await blocker

        flow(test, one_slot())
