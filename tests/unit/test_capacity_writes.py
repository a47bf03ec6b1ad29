"""Ambiguous writes in virtual time: the truth comes first, from the dependency; and a limit that adapts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stub_service.capacity.config import Adaptive
from stub_service.capacity.ports import DependencyAnswer, Step
from tests.unit.capacity_bench import ABSENT, COMMITTED, MS, NO_ANSWER, OK, S, circuit, config, dependency, flow, reads

WRITE = Step("w", "billing", "write", idempotency_key="k")
KEYLESS = replace(WRITE, idempotency_key=None)
BROKEN = DependencyAnswer(500)


def operations(bench):
    return [call.operation for _, call in bench.calls]


@pytest.mark.parametrize("step", [WRITE, KEYLESS])
def test_committed_is_served_and_costs_no_token(step):
    async def test(bench):
        bench.answers["w", "write"] = [NO_ANSWER]
        bench.answers["w", "readback"] = [COMMITTED]
        run = bench.open()
        result = await bench.one(run, step)
        assert (result.outcome, result.reason, result.attempts) == ("served", "read_back", 1)
        assert operations(bench) == ["write", "readback"]
        assert [d.outcome for d in bench.seen("readback")] == ["committed"]
        left = bench.controller.view(run)["remaining"]
        assert (left["attempts"], left["retry_tokens"]) == (18, 2)

    flow(test)


@pytest.mark.parametrize("step", [WRITE, KEYLESS])
def test_proved_absent_may_be_repeated_with_the_same_key(step):
    async def test(bench):
        bench.answers["w", "write"] = [NO_ANSWER, OK]
        bench.answers["w", "readback"] = [ABSENT]
        run = bench.open()
        result = await bench.one(run, step)
        assert (result.outcome, result.attempts) == ("served", 2)
        assert operations(bench) == ["write", "readback", "write"]
        assert {call.idempotency_key for _, call in bench.calls} == {step.idempotency_key}
        assert bench.controller.view(run)["remaining"]["retry_tokens"] == 1

    flow(test)


@pytest.mark.parametrize(("high_risk", "outcome"), [(True, "needs_person"), (False, "failed")])
def test_what_nobody_can_tell_is_not_repeated(high_risk, outcome):
    async def test(bench):
        bench.answers["w", "write"] = [NO_ANSWER]
        bench.answers["w", "readback"] = [BROKEN]
        run = bench.open()
        result = await bench.one(run, replace(WRITE, high_risk=high_risk))
        assert (result.outcome, result.reason) == (outcome, "unresolved")
        assert operations(bench) == ["write"] + ["readback"] * 3
        assert [d.outcome for d in bench.seen("readback")] == ["unknown"] * 3
        assert bench.controller.view(run)["remaining"]["retry_tokens"] == 2
        assert bench.controller.finish(run) == outcome

    flow(test)


def test_a_read_back_that_fails_once_is_asked_again():
    async def test(bench):
        bench.answers["w", "write"] = [NO_ANSWER]
        bench.answers["w", "readback"] = [BROKEN, COMMITTED]
        assert (await bench.one(bench.open(), WRITE)).outcome == "served"
        assert [d.outcome for d in bench.seen("readback")] == ["unknown", "committed"]

    flow(test)


def test_an_open_circuit_is_waited_for():
    async def test(bench):
        bench.answers["w", "write"] = [NO_ANSWER]
        bench.answers["w", "readback"] = [COMMITTED]
        assert (await bench.one(bench.open(), WRITE)).outcome == "served"
        assert [d.t_ns for d in bench.seen("circuit")] == [S, 3 * S]
        assert bench.sent(operation="readback") == [3_000]
        assert bench.calls[-1][1].probe

    billing = dependency("billing", circuit=circuit(min_calls=1))
    flow(test, config(billing))


def test_without_an_attempt_left_nothing_is_sent():
    async def test(bench):
        bench.answers["w", "write"] = [NO_ANSWER]
        result = await bench.one(bench.open(attempts=1), WRITE)
        assert (result.outcome, result.reason) == ("failed", "unresolved")
        assert operations(bench) == ["write"]
        assert [d.reason for d in bench.seen("readback")] == ["no_attempts"]

    flow(test)


def test_a_write_that_was_refused_is_not_ambiguous():
    async def test(bench):
        bench.answers["w", "write"] = [DependencyAnswer(503)]
        result = await bench.one(bench.open(), KEYLESS)
        assert (result.outcome, result.reason) == ("failed", "status_503")
        assert operations(bench) == ["write"]
        assert [d.reason for d in bench.seen("retry")] == ["not_repeatable"]

    flow(test)


def test_a_write_left_open_when_its_run_was_cancelled_is_unresolved():
    async def test(bench):
        bench.answers["w", "write"] = [NO_ANSWER]
        run = bench.open()
        task = bench.start(run, replace(WRITE, high_risk=True))
        await asyncio.sleep(0.5)
        bench.controller.cancel(run)
        assert (await task).outcome == "needs_person"
        assert operations(bench) == ["write"]

    flow(test)


def test_the_limit_adapts_within_its_bounds():
    async def test(bench):
        bench.takes_ns = 200 * MS
        run = bench.open(parallel=50, attempts=100)
        await bench.submit(run, *reads(30, prefix="slow"))
        lowered = bench.seen("limit", outcome="lowered")
        assert min(d.limit for d in lowered) == 2
        bench.takes_ns = 10 * MS
        await bench.submit(run, *reads(60, prefix="fast"))
        raised = bench.seen("limit", outcome="raised")
        assert raised
        assert max(d.limit for d in bench.seen("limit")) <= 6
        assert bench.most_in_flight["customer", "read"] <= 6

    adaptive = Adaptive(2, 6, 1, 0.5, 100 * MS, 50 * MS)
    flow(test, config(dependency("customer", reads=40, queue=60, adaptive=adaptive), tenant_queue=60))
