"""The dependencies in virtual time: who is served when, what is committed, what is written down."""

from __future__ import annotations

import asyncio

import pytest

from harness.simulate.virtual_loop import now_ns, run_virtual
from stub_service.capacity.ports import DependencyAnswer
from stub_service.capacity.records import row
from stub_service.dependency.model import KNOWN_FOR_NS, Dependencies, Downstream
from stub_service.dependency.pool import WorkerPool
from tests.unit.dependency_bench import MS, S, call, dependency, fault, on_bench


def spans(bench):
    """(arrived, started, ended) of each arrival in ms, in the order in which they ended."""
    return [(a.t_ns // MS, a.started_ns // MS, a.ended_ns // MS) for a in bench.arrivals]


def test_workers_serve_first_come_first_served():
    async def flow(bench):
        return await asyncio.gather(*(bench.call(call(step=f"s{n}")) for n in range(5)))

    answers, bench = on_bench(flow, dependency(workers=2, service_ms=10))
    assert {answer.status for answer in answers} == {200}
    assert spans(bench) == [(0, 0, 10), (0, 0, 10), (0, 10, 20), (0, 10, 20), (0, 20, 30)]
    assert [a.step for a in bench.arrivals] == ["s0", "s1", "s2", "s3", "s4"]
    pool = bench.dependencies.by_name["billing"].pool
    assert (pool.in_use, pool.waiting) == (0, 0)


def test_an_arrival_has_every_field_of_its_call():
    async def flow(bench):
        return await bench.call(call("write", attempt=2, round=3, probe=True, idempotency_key="k", layer="client"))

    _, bench = on_bench(flow)
    assert row(bench.arrivals[0]) == {
        "t_ns": 0, "started_ns": 0, "ended_ns": 10 * MS, "dependency": "billing", "operation": "write", "status": 200,
        "run": "r1", "tenant": "A", "traffic_class": "autonomous", "tool": "tool", "step": "s1", "round": 3,
        "attempt": 2, "owner": "controller", "layer": "client", "idempotency_key": "k", "deadline_ns": 10 * S,
        "probe": True,
    }  # fmt: skip
    assert row(bench.effects[0]) == {
        "t_ns": 10 * MS, "dependency": "billing", "logical": "r1/s1", "run": "r1", "step": "s1", "tenant": "A",
        "attempt": 2, "idempotency_key": "k",
    }  # fmt: skip


def test_a_caller_that_leaves_while_served_keeps_the_worker_busy_and_the_write_commits():
    async def flow(bench):
        first = await bench.call(call("write", timeout_ms=4))
        in_use = bench.dependencies.in_flight()
        second = await bench.call(call("read", step="s2"))
        return first, in_use, second, now_ns()

    (first, in_use, second, end_ns), bench = on_bench(flow, dependency(workers=1, service_ms=10))
    assert first == DependencyAnswer(0)
    assert in_use == {"billing": (1, 0)}
    assert second.status == 200
    assert end_ns == 20 * MS
    assert spans(bench) == [(0, 0, 4), (4, 10, 20)]
    assert [a.status for a in bench.arrivals] == [0, 200]
    assert [effect.t_ns for effect in bench.effects] == [10 * MS]


def test_a_caller_that_leaves_the_queue_never_starts():
    async def flow(bench):
        first = asyncio.ensure_future(bench.call(call()))
        await asyncio.sleep(0)
        left = await bench.call(call("write", step="s2", timeout_ms=4))
        return left, (await first).status

    (left, first), bench = on_bench(flow, dependency(workers=1, service_ms=10))
    assert (left.status, first) == (0, 200)
    assert spans(bench) == [(0, 4, 4), (0, 0, 10)]
    assert bench.effects == []
    assert bench.dependencies.in_flight() == {"billing": (0, 0)}


def test_an_answer_at_the_very_timeout_is_too_late():
    async def flow(bench):
        return await bench.call(call(timeout_ms=10)), await bench.call(call(timeout_ms=10, timeout_ns=10 * MS + 1))

    (late, in_time), _ = on_bench(flow, dependency(service_ms=10))
    assert (late.status, in_time.status) == (0, 200)


def test_a_key_commits_once_for_its_tenant_and_answers_as_before():
    async def flow(bench):
        answers = await asyncio.gather(*(bench.call(call("write", idempotency_key="k")) for _ in range(3)))
        answers.append(await bench.call(call("write", step="s9", idempotency_key="k")))
        answers.append(await bench.call(call("write", tenant="B", idempotency_key="k")))
        return answers

    answers, bench = on_bench(flow)
    assert [answer.body["effect"] for answer in answers] == ["billing-1"] * 4 + ["billing-2"]
    assert [effect.tenant for effect in bench.effects] == ["A", "B"]


def test_a_commit_is_known_for_so_long_after_it_was_last_told_and_then_forgotten():
    one = Downstream(1, S)
    one.remember("a", {"n": 1}, 0)
    one.remember("b", {"n": 2}, 1)
    one.remember("a", {"n": 3}, KNOWN_FOR_NS)
    assert one.committed == {"a": {"n": 3}, "b": {"n": 2}}
    one.remember("c", {"n": 4}, KNOWN_FOR_NS + 2)
    assert one.committed == {"a": {"n": 3}, "c": {"n": 4}}
    one.remember("c", {"n": 5}, 3 * KNOWN_FOR_NS)
    assert one.committed == {"c": {"n": 5}}


def test_without_a_key_every_write_commits():
    async def flow(bench):
        return [await bench.call(call("write")) for _ in range(3)]

    _, bench = on_bench(flow)
    assert [effect.logical for effect in bench.effects] == ["r1/s1"] * 3


def test_a_read_back_tells_by_key_or_by_step():
    async def flow(bench):
        before = await bench.call(call("readback", idempotency_key="k"))
        await bench.call(call("write", idempotency_key="k"))
        after = [
            await bench.call(call("readback", **asked))
            for asked in (
                {"idempotency_key": "k"}, {}, {"idempotency_key": "other"}, {"step": "s2"},
                {"idempotency_key": "k", "tenant": "B"},
            )
        ]  # fmt: skip
        return [answer.body["committed"] for answer in (before, *after)]

    committed, bench = on_bench(flow)
    assert committed == [False, True, True, False, False, False]
    assert [a.readback for a in bench.arrivals] == [True, None, *[True] * 5]


def test_a_read_back_waits_for_the_write_that_is_under_way():
    async def flow(bench):
        gave_up = await bench.call(call("write", timeout_ms=4, idempotency_key="k"))
        return gave_up, await bench.call(call("readback", idempotency_key="k")), now_ns()

    (gave_up, told, end_ns), bench = on_bench(flow, dependency(workers=5, service_ms=10))
    assert gave_up.status == 0
    assert told.body == {"committed": True}
    assert end_ns == 20 * MS
    assert spans(bench)[-1] == (4, 10, 20)


def test_a_read_back_of_a_write_that_left_the_queue_is_told_that_nothing_was_committed():
    async def flow(bench):
        busy = asyncio.ensure_future(bench.call(call(step="s0")))
        await asyncio.sleep(0)
        await bench.call(call("write", timeout_ms=4))
        told = await bench.call(call("readback"))
        await busy
        return told.body

    told, bench = on_bench(flow, dependency(workers=1, service_ms=10))
    assert told == {"committed": False}
    assert bench.effects == []


def test_a_dependency_that_does_not_exist_is_a_key_error():
    async def flow(bench):
        with pytest.raises(KeyError):
            await bench.call(call(dependency="nope"))

    on_bench(flow)


def test_what_callers_left_behind_can_be_given_up():
    async def flow(bench):
        await bench.call(call("write", timeout_ms=4))
        given_up = bench.dependencies.stop()
        await bench.dependencies.settle()
        return given_up, bench.dependencies.in_flight(), now_ns()

    (given_up, in_flight, end_ns), bench = on_bench(flow, dependency(service_ms=10))
    assert (given_up, in_flight, end_ns) == (1, {"billing": (0, 0)}, 4 * MS)
    assert bench.effects == []


def test_a_worker_handed_to_one_that_gives_up_goes_to_the_next():
    async def main():
        pool = WorkerPool(1)
        await pool.take()
        first, second = asyncio.ensure_future(pool.take()), asyncio.ensure_future(pool.take())
        await asyncio.sleep(0)
        pool.give_back()  # to the first, which has not run since
        first.cancel()
        await second
        assert first.cancelled() or first.cancelling()
        assert (pool.in_use, pool.waiting) == (1, 0)
        pool.give_back()
        assert pool.in_use == 0

    run_virtual(main())


def test_a_pool_needs_a_worker():
    with pytest.raises(ValueError, match="at least one worker"):
        WorkerPool(0)


def test_rows_come_in_the_same_order_each_time():
    async def flow(bench):
        calls = [call("write", step=f"s{n}", timeout_ms=3 + n * 7 % 30) for n in range(40)]
        return await asyncio.gather(*(bench.call(one) for one in calls))

    faults = [fault("error", times=3, status=500), fault("hang", from_ns=20 * MS, to_ns=40 * MS)]
    first, second = (on_bench(flow, dependency(service_ms=5), faults=faults)[1].records for _ in range(2))
    assert first == second
    assert len({record.step for record in first if hasattr(record, "status")}) == 40


def test_no_timer_where_none_can_fire_changes_nothing(monkeypatch):
    async def flow(bench):
        async def later(place):
            await asyncio.sleep(place * 0.003)
            operation = ("read", "write", "readback")[place % 3]
            return await bench.call(call(operation, step=f"s{place // 3}", timeout_ms=9 + place % 9))

        return await asyncio.gather(*(later(place) for place in range(60)))

    answers, bench = on_bench(flow, dependency(workers=2, service_ms=8))
    assert {answer.status for answer in answers} == {0, 200}
    monkeypatch.setattr(Dependencies, "surely_within", lambda *_: False)
    with_timers, timed = on_bench(flow, dependency(workers=2, service_ms=8))
    assert (answers, bench.records) == (with_timers, timed.records)
