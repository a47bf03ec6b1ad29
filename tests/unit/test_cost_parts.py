"""Buckets of cost, forecasts, sessions by size, and the context that claims all of it or nothing."""

from __future__ import annotations

import asyncio

import pytest

from harness.simulate.virtual_loop import run_virtual
from stub_service.capacity.bucket import Bucket, Claim, Short
from stub_service.capacity.context import AdmissionContext, Denied
from stub_service.capacity.cost_config import ClassForecast, Draw, Learning, SizeQueue, Usage
from stub_service.capacity.forecast import Forecasts, Hints
from stub_service.capacity.ports import DependencyAnswer
from stub_service.capacity.sessions import Pool, Sessions
from stub_service.dependency.usage import Usages, told
from stub_service.dependency.visits import Visit

S = 1_000_000_000


def taken(bucket: Bucket, forecast: int, now_ns: int = 0) -> Claim:
    claim = bucket.reserve(forecast, now_ns)
    assert isinstance(claim, Claim)
    return claim


def short(bucket: Bucket, forecast: int, now_ns: int = 0) -> Short:
    lacking = bucket.reserve(forecast, now_ns)
    assert isinstance(lacking, Short)
    return lacking


# --- buckets


def test_what_was_not_used_is_free_again_and_the_balance_is_what_was_used():
    bucket = Bucket(100, 1000)
    claim = taken(bucket, 800)
    assert short(bucket, 300) == Short(S, False)
    bucket.spend(claim, 150)
    bucket.settle(claim, 0)
    assert (bucket.balance(0), bucket.reserved) == (850, 0)


def test_five_at_once_reserve_no_more_than_there_is():
    bucket = Bucket(100, 1000)
    admitted = [isinstance(bucket.reserve(1000, 0), Claim) for _ in range(5)]
    assert admitted == [True, False, False, False, False]


def test_a_debt_admits_nothing_until_it_is_paid_by_time():
    bucket = Bucket(100, 1000)
    claim = taken(bucket, 1000)
    bucket.spend(claim, 1500)
    bucket.settle(claim, 0)
    assert bucket.balance(0) == -500
    assert short(bucket, 1) == Short(round(5.01 * S), True)
    assert short(bucket, 1, 5 * S - 1).debt is False  # a rounding error below zero is no debt
    assert taken(bucket, 1, round(5.02 * S))


def test_what_is_used_beyond_the_forecast_is_held_at_once():
    bucket = Bucket(100, 1000)
    claim = taken(bucket, 100)
    bucket.spend(claim, 700)
    assert bucket.reserved == 700
    assert isinstance(bucket.reserve(400, 0), Short)


def test_what_is_told_after_the_settlement_is_charged_all_the_same():
    bucket = Bucket(100, 1000)
    claim = taken(bucket, 100)
    bucket.settle(claim, 0)
    bucket.spend(claim, 40)
    bucket.settle(claim, 0)
    assert (bucket.balance(0), bucket.reserved) == (960, 0)


def test_a_bucket_holds_its_burst_at_most_whatever_is_reserved():
    bucket = Bucket(100, 1000)
    claim = taken(bucket, 600)
    assert bucket.balance(100 * S) == 1000
    bucket.settle(claim, 100 * S)
    assert bucket.balance(100 * S) == 1000


def test_the_stated_wait_is_enough_and_no_less_would_be():
    bucket = Bucket(7, 1000)
    bucket.settle(taken(bucket, 1000), 0)
    claim = taken(bucket, 990)
    bucket.spend(claim, 990)
    bucket.settle(claim, 0)
    wait_ns = short(bucket, 333).wait_ns
    assert isinstance(bucket.reserve(333, wait_ns - 1_000_000), Short)
    assert isinstance(bucket.reserve(333, wait_ns), Claim)


# --- forecasts


def forecasts(**learning) -> Forecasts:
    classes = [
        ClassForecast("chat_turn", "short", 100, floor=20),
        ClassForecast("tool_heavy", "standard", 200, per_tool=50),
        ClassForecast("deep_research", "batch", 300),
    ]
    return Forecasts(classes, Learning(**learning))


@pytest.mark.parametrize(
    ("request_class", "hints", "basis"),
    [
        ("chat_turn", Hints(depth=9, fan_out=9, tools=9), 100),
        ("tool_heavy", Hints(tools=4), 400),
        ("deep_research", Hints(depth=3, fan_out=5), 4500),
    ],
)
def test_each_class_has_a_basis_of_its_own(request_class, hints, basis):
    assert forecasts().basis(request_class, hints) == basis


def test_a_class_that_is_not_configured_has_a_forecast_all_the_same():
    assert Forecasts([], Learning()).basis("deep_research", Hints(depth=2, fan_out=2)) == 4000


def test_a_forecast_follows_a_persistent_error_and_stays_in_bounds():
    made = forecasts(weight=0.5, most=4.0)
    for _ in range(20):
        made.learn("A", "chat_turn", 100, 300)
    assert made.forecast("A", "chat_turn", 100, None) == 300
    assert made.forecast("B", "chat_turn", 100, None) == 100  # another tenant has learned nothing
    assert made.forecast("A", "tool_heavy", 200, None) == 200  # nor has another class
    for _ in range(50):
        made.learn("A", "chat_turn", 100, 100_000)
    assert made.factor("A", "chat_turn") == 4.0


def test_a_forecast_never_goes_above_the_burst_nor_below_the_floor():
    made = forecasts(weight=1.0, least=0.1)
    assert made.forecast("A", "deep_research", 300, 250) == 250
    made.learn("A", "chat_turn", 100, 1)
    assert made.forecast("A", "chat_turn", 100, None) == 20


# --- sessions


def test_what_is_kept_for_a_size_is_not_had_by_another():
    sessions = Sessions(4, [SizeQueue("short", kept=2)])
    assert [sessions.take_at_once("batch") for _ in range(3)] == [True, True, False]
    assert [sessions.take_at_once("short") for _ in range(3)] == [True, True, False]


def test_the_smallest_size_goes_first_and_nobody_overtakes_in_its_own():
    async def main():
        sessions = Sessions(1)
        assert sessions.take_at_once("batch")
        large, first, second = sessions.join("batch", 0), sessions.join("short", 1), sessions.join("short", 2)
        assert not sessions.take_at_once("short")
        let_in = []
        for _ in range(3):
            sessions.give_back("batch")
            let_in.append([waiter.future.done() for waiter in (large, first, second)])
            sessions.in_use = {"short": 0, "standard": 0, "batch": 1}
        return let_in

    assert run_virtual(main()) == [[False, True, False], [False, True, True], [True, True, True]]


def test_a_full_queue_takes_nobody_and_one_that_leaves_hands_on_what_it_was_given():
    async def main():
        sessions = Sessions(1, [SizeQueue("short", queue=2)])
        assert sessions.take_at_once("short")
        first, second = sessions.join("short", 0), sessions.join("short", 5)
        assert sessions.join("short", 6) is None
        assert sessions.oldest_ns(9) == 9
        sessions.give_back("short")
        assert first.future.done()
        sessions.leave(first)  # it was cancelled in that very moment
        assert second.future.done()
        sessions.leave(second)
        return sessions.taken, sessions.queued, sessions.oldest_ns(9)

    assert run_virtual(main()) == (0, 0, 0)


def test_a_pool_gives_all_or_nothing():
    pool = Pool(5)
    assert [pool.take(3), pool.take(3), pool.take(2)] == [True, False, True]
    pool.give_back(3)
    assert pool.in_use == 2
    assert Pool(None).take(10**9)


# --- the context


class Step:
    """A claim that says what it did. denies: it refuses; hangs: it waits for ever."""

    def __init__(self, name, log, denies=False, hangs=False):
        self.name, self.log, self.denies, self.hangs = name, log, denies, hangs

    async def take(self):
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.denies:
            return Denied("throttled", self.name)
        self.log.append(f"+{self.name}")
        return None

    def give_back(self):
        self.log.append(f"-{self.name}")


@pytest.mark.parametrize("at", range(4))
def test_refused_at_any_step_all_before_it_go_back_in_reverse(at):
    log = []
    context = AdmissionContext([Step(str(n), log, denies=n == at) for n in range(4)])
    denied = run_virtual(context.claim())
    assert denied == Denied("throttled", str(at))
    assert log == [f"+{n}" for n in range(at)] + [f"-{n}" for n in reversed(range(at))]
    context.release()
    assert log[2 * at :] == []


@pytest.mark.parametrize("at", range(4))
def test_cut_off_at_any_step_all_before_it_go_back(at):
    log = []

    async def main():
        context = AdmissionContext([Step(str(n), log, hangs=n == at) for n in range(4)])
        task = asyncio.get_running_loop().create_task(context.claim())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())
    assert log == [f"+{n}" for n in range(at)] + [f"-{n}" for n in reversed(range(at))]


def test_a_complete_context_holds_its_claims_until_its_release_and_gives_back_once():
    log = []
    context = AdmissionContext([Step("a", log), Step("b", log)])
    assert run_virtual(context.claim()) is None
    assert log == ["+a", "+b"]
    context.release()
    context.release()
    assert log == ["+a", "+b", "-b", "-a"]


# --- usage


def visit(tenant="A", tool="chat", operation="read"):
    return Visit("model", operation, tenant=tenant, tool=tool)


def test_usage_is_of_a_tenant_and_tool_and_repeats_with_the_seed():
    def drawn(seed):
        usages = Usages(
            [
                Usage("A", "model", "chat", Draw("lognormal", 400, 1.8, 20_000), Draw("fixed", 2000)),
                Usage("A", "model", "search", Draw("recorded", values=(3, 5))),
            ],
            seed,
        )
        return usages, [usages.of(visit()) for _ in range(500)]

    usages, some = drawn(1)
    assert [one.tokens for one in some] == [one.tokens for one in drawn(1)[1]]
    assert [one.tokens for one in some] != [one.tokens for one in drawn(2)[1]]
    assert {one.bytes for one in some} == {2000}
    assert max(one.tokens for one in some) > 1000 * min(one.tokens for one in some)
    assert max(one.tokens for one in some) <= 20_000
    assert [usages.of(visit(tool="search")).tokens for _ in range(3)] == [3, 5, 3]
    assert usages.of(visit("B")) is usages.of(visit(operation="readback")) is None


def test_an_answer_says_what_was_used():
    usages = Usages([Usage("A", "model", "chat", Draw("fixed", 7))], 1)
    answer = told(DependencyAnswer(200, body={"value": "v"}), usages.of(visit()))
    assert answer.body == {"value": "v", "usage": {"tokens": 7}}
    with pytest.raises(ValueError, match="unknown usage 'pareto'"):
        Usages([Usage("A", "model", "chat", Draw("pareto"))], 1)
