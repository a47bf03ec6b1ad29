"""The parts of the capacity controller, each by itself: exact, with given instants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stub_service.capacity.adaptive import Aimd
from stub_service.capacity.circuit import CLOSED, HALF_OPEN, OPEN, Circuit
from stub_service.capacity.coalesce import Coalescer
from stub_service.capacity.config import Adaptive, EnvelopeDefaults, Recovery, Reserve, Retry, TenantShare
from stub_service.capacity.envelope import Envelope, envelope_of
from stub_service.capacity.ports import DependencyAnswer, RunWish, Step
from stub_service.capacity.recovery import Ramp
from stub_service.capacity.reserve import COMMON, LENT, NO, OWN, Slots
from stub_service.capacity.retry import Failed, RetryOwner
from stub_service.capacity.retry_after import stated_wait_ns
from stub_service.capacity.throttled import Hold
from stub_service.capacity.waiting import Waiting
from tests.unit.capacity_bench import MS, S, circuit, reads

INTERACTIVE, APPROVAL, AUTONOMOUS, MAINTENANCE = range(4)


class TestEnvelope:
    def test_a_batch_is_taken_whole_or_not_at_all(self):
        envelope = Envelope(5, 2, {"customer": 3})
        assert envelope.take(reads(4)) == "budget:customer"
        assert envelope.take(reads(6, "other")) == "attempts"
        assert (envelope.attempts, envelope.budgets) == (5, {"customer": 3})
        assert envelope.take(reads(3)) is None
        assert (envelope.attempts, envelope.budgets) == (2, {"customer": 0})

    def test_a_retry_takes_a_token_an_attempt_and_budget(self):
        envelope = Envelope(2, 1, {"customer": 2})
        assert envelope.take_retry("customer") is None
        assert (envelope.attempts, envelope.retry_tokens, envelope.budgets) == (1, 0, {"customer": 1})
        assert envelope.take_retry("customer") == "retry_tokens"
        assert (envelope.attempts, envelope.budgets) == (1, {"customer": 1})

    def test_a_look_takes_an_attempt_alone(self):
        envelope = Envelope(1, 1, {"customer": 0})
        assert envelope.take_look()
        assert not envelope.take_look()
        assert envelope.retry_tokens == 1

    def test_a_child_is_carved_out_and_hands_back(self):
        parent = Envelope(10, 2, {"customer": 6, "billing": 4})
        child = parent.carve(RunWish(attempts=4, retry_tokens=1, budgets={"customer": 5}), EnvelopeDefaults())
        assert isinstance(child, Envelope)
        assert (child.attempts, child.budgets) == (4, {"customer": 5, "billing": 0})
        assert (parent.attempts, parent.retry_tokens, parent.budgets) == (6, 1, {"customer": 1, "billing": 4})
        child.take(reads(2))
        child.close()
        child.close()
        assert (parent.attempts, parent.retry_tokens, parent.budgets) == (8, 2, {"customer": 4, "billing": 4})
        child.give_back("customer")
        assert (parent.attempts, parent.budgets) == (9, {"customer": 5, "billing": 4})

    @pytest.mark.parametrize(
        ("wish", "missing"),
        [
            (RunWish(attempts=11), "attempts"),
            (RunWish(attempts=1, retry_tokens=3), "retry_tokens"),
            (RunWish(attempts=1, budgets={"customer": 7}), "budget:customer"),
        ],
    )
    def test_a_child_gets_nothing_that_is_not_there(self, wish, missing):
        parent = Envelope(10, 2, {"customer": 6})
        assert parent.carve(wish, EnvelopeDefaults()) == missing
        assert (parent.attempts, parent.retry_tokens, parent.budgets) == (10, 2, {"customer": 6})

    def test_what_a_child_leaves_out_is_the_default_cut_to_what_is_left(self):
        parent = Envelope(10, 1, {"customer": 1})
        child = parent.carve(RunWish(), EnvelopeDefaults(attempts=20, retry_tokens=2, budgets=(("customer", 6),)))
        assert isinstance(child, Envelope)
        assert (child.attempts, child.retry_tokens, child.budgets) == (10, 1, {"customer": 1})

    def test_what_a_run_leaves_out_is_the_default(self):
        envelope = envelope_of(
            RunWish(attempts=7, budgets={"billing": 1}), EnvelopeDefaults(budgets=(("customer", 6),))
        )
        assert (envelope.attempts, envelope.retry_tokens) == (7, 2)
        assert envelope.budgets == {"customer": 6, "billing": 1}


FOUR_FOR_INTERACTIVE = (Reserve("interactive", 4, 1),)


def slots(limit=10, reserves=FOUR_FOR_INTERACTIVE, shares=(), expected_ns=10 * MS):
    notes = []
    made = Slots(limit, reserves, shares, expected_ns, lambda *note: notes.append(note))
    return made, notes


def fill(made, rank, tenant="A", now_ns=0):
    """Starts as many as may; how they came."""
    ways = []
    while (how := made.may_start(rank, tenant, now_ns)) != NO:
        made.start(how, rank, tenant, now_ns)
        ways.append(how)
    return ways


class TestSlots:
    def test_unused_reserve_is_lent_down_to_the_floor(self):
        made, notes = slots()
        assert fill(made, AUTONOMOUS) == [COMMON] * 6 + [LENT] * 3
        assert notes == [(0, "lent", INTERACTIVE, None)]
        assert fill(made, INTERACTIVE) == [OWN]

    def test_demand_takes_it_back_at_once(self):
        made, notes = slots()
        for _ in range(8):
            made.start(made.may_start(AUTONOMOUS, "A", 0), AUTONOMOUS, "A", 0)
        made.demand(INTERACTIVE, 5)
        assert notes[-1] == (5, "taken_back", INTERACTIVE, "demand")
        assert made.may_start(AUTONOMOUS, "A", 5) == NO
        assert made.next_lending_ns(5) == 5 + 50 * MS
        assert made.may_start(AUTONOMOUS, "A", 5 + 50 * MS) == LENT

    def test_latency_takes_it_back_for_longer(self):
        made, notes = slots()
        made.start(made.may_start(INTERACTIVE, "A", 0), INTERACTIVE, "A", 0)
        fill(made, AUTONOMOUS, now_ns=S)
        made.observed(INTERACTIVE, 20 * MS, S)
        assert notes[-1][1] == "lent"
        made.observed(INTERACTIVE, 20 * MS + 1, S)
        assert notes[-1] == (S, "taken_back", INTERACTIVE, "latency")
        assert made.next_lending_ns(S) == S + 200 * MS

    def test_a_class_never_borrows_upwards(self):
        made, _ = slots(reserves=(Reserve("maintenance", 4, 1),))
        assert fill(made, INTERACTIVE) == [COMMON] * 6

    def test_ones_own_reserve_does_not_reach_into_anothers_floor(self):
        made, _ = slots(limit=5, reserves=(Reserve("interactive", 3, 1), Reserve("approval_resume", 1, 1)))
        assert fill(made, AUTONOMOUS) == [COMMON] + [LENT] * 2
        assert fill(made, INTERACTIVE) == [OWN]
        assert fill(made, APPROVAL) == [OWN]

    def test_a_share_is_never_lent(self):
        made, _ = slots(reserves=(), shares=(TenantShare("T", 3, 5),))
        assert fill(made, AUTONOMOUS, "A") == [COMMON] * 7
        assert fill(made, AUTONOMOUS, "T") == [COMMON] * 3

    def test_all_comes_back(self):
        made, _ = slots(shares=(TenantShare("T", 2, 5),))
        taken = []
        for rank, tenant in ((AUTONOMOUS, "A"), (AUTONOMOUS, "T"), (INTERACTIVE, "A")):
            taken += [(how, rank, tenant) for how in fill(made, rank, tenant)]
        assert made.in_use == 10
        for how, rank, tenant in reversed(taken):
            made.end(how, rank, tenant)
        assert (made.in_use, made.own, made.common, made.shares_unmet) == (0, [0] * 4, {"T": 0}, 2)

    def test_floors_and_shares_that_leave_nothing_are_seen(self):
        made, _ = slots(limit=3, shares=(TenantShare("T", 2, 5),))
        assert not made.ever(AUTONOMOUS, "A")
        assert made.ever(AUTONOMOUS, "T")
        assert made.ever(INTERACTIVE, "A")


class TestWaiting:
    def test_order_is_class_deadline_priority_arrival(self):
        queue = Waiting(10, 10, {})
        for rank, deadline, priority, name in (
            (2, 5, 0, "e"), (0, 9, 0, "d"), (0, 7, 0, "b"), (0, 7, 1, "a"), (0, 7, 0, "c"),
        ):  # fmt: skip
            queue.add(rank, name, deadline, priority, False, name)
        order = []
        while (waiter := queue.first(lambda _: True)) is not None:
            queue.remove(waiter)
            order.append(waiter.ref)
        assert order == ["a", "b", "c", "d", "e"]
        assert (queue.size, queue.by_tenant) == (0, {})

    def test_one_that_may_not_start_is_passed(self):
        queue = Waiting(10, 10, {})
        queue.add(0, "A", 1, 0, False, "first")
        second = queue.add(2, "B", 1, 0, False, "second")
        assert queue.first(lambda w: w.tenant == "B") is second

    def test_bounds(self):
        queue = Waiting(3, 2, {"T": 1})
        queue.add(2, "T", 1, 0, False, None)
        assert queue.refusal("T") == "tenant_queue_full"
        queue.add(2, "A", 1, 0, False, None)
        queue.add(2, "A", 1, 0, False, None)
        assert queue.refusal("A") == "tenant_queue_full"
        assert queue.refusal("B") == "queue_full"

    def test_a_higher_class_displaces_the_last_of_the_lowest(self):
        queue = Waiting(3, 3, {"T": 1})
        kept = queue.add(3, "T", 9, 0, False, "kept")
        queue.add(2, "A", 5, 0, False, "early")
        late = queue.add(2, "A", 7, 0, False, "late")
        assert queue.displaced_by(0, "B") is late
        assert queue.displaced_by(2, "B") is kept
        assert queue.displaced_by(3, "B") is None
        queue.remove(kept)
        queue.add(2, "B", 1, 0, False, "other")
        assert queue.displaced_by(2, "T") is late

    def test_a_full_tenant_displaces_its_own_only(self):
        queue = Waiting(10, 2, {})
        queue.add(2, "B", 99, 0, False, None)
        mine = queue.add(2, "A", 5, 0, False, None)
        queue.add(1, "A", 5, 0, False, None)
        assert queue.refusal("A") == "tenant_queue_full"
        assert queue.displaced_by(0, "A") is mine
        assert queue.displaced_by(2, "A") is None

    def test_ahead_counts_who_goes_before(self):
        queue = Waiting(10, 10, {})
        queue.add(0, "A", 50, 0, False, None)
        queue.add(2, "A", 10, 0, False, None)
        gone = queue.add(2, "A", 11, 0, False, None)
        queue.add(2, "A", 30, 0, False, None)
        queue.remove(gone)
        assert queue.ahead(2, 20) == 2
        assert queue.ahead(0, 10) == 0


class TestCircuit:
    def made(self, **changes):
        seen = []
        return Circuit(circuit(**changes), lambda now, outcome, reason: seen.append((now, outcome, reason))), seen

    def call(self, made, at_ns, failed=False, takes_ns=MS):
        assert made.admits(at_ns)
        passed = made.begin(at_ns)
        made.end(passed, at_ns + takes_ns, takes_ns, failed)

    def opened(self, **changes):
        made, seen = self.made(**changes)
        for n in range(4):
            self.call(made, n, failed=True)
        assert seen == [(3 + MS, "opened", "failures")]
        return made, seen

    def test_opens_on_the_share_of_failures_from_min_calls_on(self):
        made, seen = self.made()
        for n, failed in enumerate((True, True, False)):
            self.call(made, n, failed)
        assert seen == []
        self.call(made, 3, failed=False)
        assert made.state == CLOSED  # half of them failed, but the one that tips it must be a failure
        self.call(made, 4, failed=True)
        assert made.state == OPEN

    def test_opens_on_latency(self):
        made, seen = self.made()
        for n in range(4):
            self.call(made, n, takes_ns=500 * MS + 1)
        assert seen == [(500 * MS + 4, "opened", "latency")]

    def test_forgets_what_is_older_than_the_window(self):
        made, _ = self.made()
        for n in range(3):
            self.call(made, n, failed=True)
        self.call(made, 2 * S, failed=True)
        assert made.state == CLOSED

    def test_lets_nothing_through_until_the_cool_down_is_over(self):
        made, seen = self.opened()
        ends_ns = 3 + MS + 2 * S
        assert not made.admits(ends_ns - 1)
        assert made.next_ns() == ends_ns
        assert made.admits(ends_ns)
        assert seen[-1] == (ends_ns, "half_open", "cooled_down")

    def test_probes_are_bounded_and_the_rule_closes_it(self):
        made, seen = self.opened(probes=2, close_after=3)
        t = 5 * S
        assert made.admits(t)
        one = made.begin(t)
        two = made.begin(t)
        assert (one.probe, two.probe) == (1, 2)
        assert not made.admits(t)
        made.end(one, t + 1, 1, False)
        made.end(two, t + 1, 1, False)
        assert made.state == HALF_OPEN
        self.call(made, t + 2)
        assert seen[-1] == (t + 2 + MS, "closed", "recovered")

    @pytest.mark.parametrize(("failed", "takes_ns", "reason"), [(True, 1, "probe_failed"), (False, S, "probe_slow")])
    def test_a_probe_that_fails_or_is_slow_reopens(self, failed, takes_ns, reason):
        made, seen = self.opened()
        self.call(made, 5 * S, failed, takes_ns)
        assert seen[-1] == (5 * S + takes_ns, "opened", reason)
        assert made.next_ns() == 5 * S + takes_ns + 2 * S

    def test_a_lease_returns_the_place_of_a_probe_that_never_comes_back(self):
        made, _ = self.opened(close_after=1)
        assert made.admits(5 * S)
        lost = made.begin(5 * S)
        assert not made.admits(6 * S - 1)
        assert made.admits(6 * S)
        made.end(lost, 6 * S, 1, False)
        assert made.state == HALF_OPEN  # a late success proves nothing

    def test_stragglers_of_an_earlier_state_do_not_count(self):
        made, _ = self.made()
        straggler = made.begin(0)
        for n in range(4):
            self.call(made, n, failed=True)
        made.admits(5 * S)
        made.end(straggler, 5 * S, S, True)
        assert made.state == HALF_OPEN

    def test_a_probe_that_says_nothing_is_settled_without_a_verdict(self):
        made, _ = self.opened(close_after=1)
        made.admits(5 * S)
        made.end(made.begin(5 * S), 5 * S, 1, None)
        assert (made.state, made.probes_out) == (HALF_OPEN, 0)


class TestRamp:
    def test_does_nothing_until_an_outage_is_over(self):
        ramp = Ramp(Recovery(10.0, 100.0, S))
        assert ramp.next_ns(False, 7) == 7

    def test_spaces_starts_at_a_rate_that_ramps(self):
        ramp = Ramp(Recovery(10.0, 100.0, S))
        ramp.begin(0)
        assert ramp.next_ns(False, 0) == 0
        ramp.started(0)
        assert (ramp.next_ns(True, 0), ramp.next_ns(False, 0)) == (10 * MS, 100 * MS)
        assert ramp.rate_per_s(S // 2) == 55.0
        starts, now = 1, 0
        while now < 3 * S:
            if ramp.next_ns(False, now) <= now:
                ramp.started(now)
                starts += 1
            now += MS
        assert 240 <= starts <= 256  # 55 in the first second on average, 100 in each of the next two

    def test_no_more_than_the_tested_capacity_with_foreground(self):
        ramp = Ramp(Recovery(10.0, 100.0, S))
        ramp.begin(0)
        starts = 0
        for now in range(0, S, MS):
            while ramp.next_ns(True, now) <= now:
                ramp.started(now)
                starts += 1
        assert 100 <= starts <= 102

    def test_ends_when_the_ramp_is_over_and_nothing_waits(self):
        ramp = Ramp(Recovery(10.0, 100.0, S))
        ramp.begin(0)
        ramp.settle(S - 1, 0)
        ramp.settle(S, 1)
        assert ramp.on
        ramp.settle(S, 0)
        assert not ramp.on


class TestAdaptive:
    def made(self):
        return Aimd(Adaptive(4, 8, 1, 0.5, 100 * MS, S), 40)

    def test_stays_within_its_bounds(self):
        made = self.made()
        assert made.limit == 8
        for n in range(10):
            made.observe(2 * n * S, 200 * MS, False, 8)
            made.observe((2 * n + 1) * S, MS, False, 8)
        assert made.limit == 4

    def test_more_after_a_quiet_window_at_the_limit_much_less_after_trouble(self):
        made = self.made()
        made.observe(0, MS, True, 1)
        assert made.observe(S, MS, False, 1) == "errors"
        assert made.limit == 4
        made.observe(2 * S, MS, False, 4)
        assert made.observe(3 * S, MS, False, 1) == "quiet"
        assert made.limit == 5
        made.observe(4 * S, MS, False, 1)
        assert made.observe(5 * S, MS, False, 1) is None  # the limit was not reached: nothing was learnt


def failed(status=503, operation="read", attempt=1, key=None, retry_after=None, date=None, **changes):
    base = Failed(
        run="r1",
        step=Step("s", "customer", operation, idempotency_key=key),
        attempt=attempt,
        answer=DependencyAnswer(status, retry_after, date),
        deadline_ns=10 * S,
        expected_ns=50 * MS,
        circuit_closed=True,
    )
    return replace(base, **changes)


class TestRetry:
    owner = RetryOwner(Retry(100 * MS, 400 * MS, 0.5), 1)

    def plan(self, failure, envelope=None, now_ns=0):
        return self.owner.plan(failure, envelope or Envelope(5, 2, {}), now_ns)

    @pytest.mark.parametrize(
        ("failure", "denied"),
        [
            (failed(400), "not_retryable"),
            (failed(404), "not_retryable"),
            (failed(503, "write"), "not_repeatable"),
            (failed(503, circuit_closed=False), "circuit_open"),
            (failed(503, retry_after="10"), "retry_after_beyond_deadline"),
            (failed(429, retry_after="600"), "retry_after_beyond_deadline"),
            (failed(503, deadline_ns=60 * MS), "no_time"),
        ],
    )
    def test_each_rule_denies_and_spends_nothing(self, failure, denied):
        envelope = Envelope(5, 2, {"customer": 3})
        assert self.plan(failure, envelope).denied == denied
        assert (envelope.attempts, envelope.retry_tokens, envelope.budgets) == (5, 2, {"customer": 3})

    @pytest.mark.parametrize(
        ("envelope", "denied"),
        [
            (Envelope(0, 2, {}), "no_attempts"),
            (Envelope(5, 0, {}), "no_retry_tokens"),
            (Envelope(5, 2, {"customer": 0}), "no_budget:customer"),
        ],
    )
    def test_what_is_not_there_cannot_be_spent(self, envelope, denied):
        assert self.plan(failed(), envelope).denied == denied

    @pytest.mark.parametrize(
        "failure",
        [
            failed(429),
            failed(0),
            failed(503, "write", key="k"),
            failed(503, "write", proved_absent=True),
            failed(503, retry_after="9.9"),
        ],
    )
    def test_the_token_is_spent_with_the_decision(self, failure):
        envelope = Envelope(5, 2, {})
        assert self.plan(failure, envelope).denied is None
        assert (envelope.attempts, envelope.retry_tokens) == (4, 1)

    def test_delays_grow_are_bounded_and_jittered(self):
        for attempt, base_ms in ((1, 100), (2, 200), (3, 400), (9, 400)):
            delays = [self.plan(failed(attempt=attempt, run=f"r{n}")).delay_ns / MS for n in range(50)]
            assert base_ms * 0.5 <= min(delays) < base_ms * 0.7
            assert base_ms * 1.3 < max(delays) <= base_ms * 1.5

    def test_delays_are_seeded(self):
        other = RetryOwner(Retry(100 * MS, 400 * MS, 0.5), 2)
        assert self.plan(failed()) == self.plan(failed())
        assert other.plan(failed(), Envelope(5, 2, {}), 0) != self.plan(failed())

    @pytest.mark.parametrize("retry_after", ["2", "2.0"])
    def test_never_before_the_stated_instant_and_not_all_at_once(self, retry_after):
        delays = [self.plan(failed(429, retry_after=retry_after, run=f"r{n}")).delay_ns for n in range(20)]
        assert min(delays) >= 2 * S
        assert max(delays) <= 2 * S + 50 * MS
        assert len(set(delays)) == 20

    def test_jitter_never_makes_a_feasible_one_infeasible(self):
        plan = self.plan(failed(429, retry_after="9.95"))
        assert (plan.denied, plan.delay_ns) == (None, 9_950 * MS)

    @pytest.mark.parametrize("retry_after", ["0", "-1", "nan", "abc", "20, 30", "1696004817", "1_000", None])
    def test_what_states_nothing_means_the_backoff(self, retry_after):
        assert 50 * MS <= self.plan(failed(429, retry_after=retry_after)).delay_ns <= 150 * MS


DATE = "Thu, 24 Sep 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("header", "date", "wait_ns"),
    [
        ("20", None, 20 * S),
        ("1.5", None, 1_500 * MS),
        (" 3 ", None, 3 * S),
        ("0", None, 0),
        ("0.0000000001", None, 1),
        ("Thu, 24 Sep 2026 10:00:07 GMT", DATE, 7 * S),
        ("Thursday, 24-Sep-26 10:00:07 GMT", DATE, 7 * S),
        ("Thu Sep 24 10:00:07 2026", DATE, 7 * S),
        ("Thu Sep  3 10:00:07 2026", DATE, 0),
        ("Thu, 24 Sep 2026 10:00:07 GMT", None, None),
        ("Thu, 24 Sep 2026 10:00:07 GMT", "yesterday", None),
        ("Thu, 31 Sep 2026 10:00:07 GMT", DATE, None),
        ("2026-09-24T10:00:07Z", DATE, None),
        ("-10", None, None),
        ("inf", None, None),
        ("nan", None, None),
        ("abc", None, None),
        ("20, 30", None, None),
        ("1696004817", None, None),
        ("1_000", None, None),
        ("٣", None, None),
        ("1e3", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_retry_after_in_every_form(header, date, wait_ns):
    assert stated_wait_ns(header, date) == wait_ns


def test_a_hold_keeps_the_background_only():
    hold = Hold(otherwise_ns=100 * MS)
    hold.answered(DependencyAnswer(503, "9"), 0)
    assert not hold.blocks(AUTONOMOUS, False, 0)
    hold.answered(DependencyAnswer(429, "2"), 0)
    hold.answered(DependencyAnswer(429), 5)
    assert hold.until_ns == 2 * S
    assert hold.blocks(AUTONOMOUS, False, 2 * S - 1)
    assert hold.blocks(MAINTENANCE, False, 2 * S - 1)
    assert not hold.blocks(AUTONOMOUS, False, 2 * S)
    assert not hold.blocks(APPROVAL, False, 1)
    assert not hold.blocks(AUTONOMOUS, True, 1)  # a retry waits for its own answer's


class TestCoalescer:
    def test_equal_reads_of_one_tenant_only(self):
        coalescer = Coalescer(True)
        read = Step("s", "customer", coalesce="ticket")
        key = coalescer.key("A", read)
        assert key is not None
        assert coalescer.key("A", replace(read, step="other")) == key
        assert coalescer.key("B", read) != key
        assert coalescer.key("A", replace(read, tool="other")) != key
        assert coalescer.key("A", replace(read, operation="write")) is None
        assert coalescer.key("A", replace(read, coalesce=None)) is None
        assert Coalescer(False).key("A", read) is None

    def test_nobody_follows_a_lower_class_that_waits(self):
        coalescer = Coalescer(True)
        key = ("A", "customer", "call", "ticket")
        flight = coalescer.lead(key, "leader", AUTONOMOUS)
        assert coalescer.find(key, INTERACTIVE) is None
        assert coalescer.find(key, MAINTENANCE) is flight
        flight.started = True
        assert coalescer.find(key, INTERACTIVE) is flight
        assert coalescer.land(key, flight) == []
        assert coalescer.find(key, MAINTENANCE) is None
