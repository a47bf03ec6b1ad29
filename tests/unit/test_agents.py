"""The agent runtime as a caller: what is sent, held back, tried again and planned, at instants that a test chooses."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from harness.ledger.outcomes import ABANDONED, FAILED, HELD_BACK, SERVED, THROTTLED
from harness.workload.agents import Agent
from harness.workload.budgets import BudgetRule, Budgets
from harness.workload.callers import NEVER, Arrival
from harness.workload.loops import LoopGuard
from harness.workload.replans import PlanRule
from harness.workload.retries import RetryRule
from harness.workload.throttles import AdaptiveThrottle

S = 1_000_000_000
MS = 1_000_000
RETRIED = frozenset((THROTTLED, FAILED))


def agent(arrivals, end_ns=100 * S, **parts):
    return Agent("D", 3, iter(arrivals), end_ns, Random(1), **parts)


def end(caller, call, outcome, at, retry_after=None):
    call.outcome, call.done_ns, call.retry_after = outcome, at, retry_after
    caller.on_outcome(call)
    return call


def drive(caller, outcome, retry_after=None, most=1000):
    """Every call ends `outcome` 10 ms after it was due; all that came, in order."""
    made = []
    while caller.next_ns != NEVER and len(made) < most:
        now = caller.next_ns
        for call in caller.on_due(now):
            made.append(call)
            if call.outcome is None:
                end(caller, call, outcome, now + 10 * MS, retry_after)
    return made


# --- retries


def test_a_call_is_tried_three_times_with_one_id_and_ends_once():
    made = drive(agent([0], retries=RetryRule(3, 100 * MS, RETRIED)), THROTTLED)
    assert [(call.id, call.attempt, call.retried) for call in made] == [
        ("3.0", 1, True), ("3.0", 2, True), ("3.0", 3, False),
    ]  # fmt: skip
    assert [call.due_ns for call in made] == [0, 0, 0]
    waits = [made[i + 1].again_ns - made[i].done_ns for i in range(2)]
    assert 50 * MS <= waits[0] <= 150 * MS
    assert 100 * MS <= waits[1] <= 300 * MS


@pytest.mark.parametrize(("header", "waits_ns"), [("2", 2 * S), ("1.5", 1.5 * S), ("-1", 0), (None, 0)])
def test_no_retry_before_what_retry_after_says(header, waits_ns):
    first, second = drive(agent([0], retries=RetryRule(2, 100 * MS, RETRIED)), THROTTLED, header)
    assert second.again_ns - first.done_ns >= max(waits_ns, 50 * MS)
    assert second.again_ns - first.done_ns <= max(waits_ns, 150 * MS)


def test_a_date_cannot_be_counted_from_so_nothing_is_retried():
    (only,) = drive(agent([0], retries=RetryRule(3, 0, RETRIED)), THROTTLED, "Sun, 06 Nov 1994 08:49:37 GMT")
    assert not only.retried


def test_what_is_not_to_be_retried_is_not_and_nothing_is_due_when_the_trial_is_over():
    (only,) = drive(agent([0], retries=RetryRule(3, 0, RETRIED)), ABANDONED)
    assert not only.retried
    (only,) = drive(agent([0], end_ns=S, retries=RetryRule(3, 0, RETRIED)), THROTTLED, "1")
    assert not only.retried


def test_a_refusal_that_is_a_result_is_waited_out_tried_once_and_planned_around_never():
    caller = agent([0], plan=PlanRule(2, 50 * MS, 3, refusals="result"))
    first, second = drive(caller, THROTTLED, "2")
    assert (second.attempt, second.again_ns) == (2, first.done_ns + 2 * S)
    assert not second.retried
    (only,) = drive(agent([0], plan=PlanRule(2, 50 * MS, 3, refusals="result")), THROTTLED)
    assert not only.retried  # it does not say how long
    assert len(drive(agent([0], plan=PlanRule(2, 50 * MS, 1, refusals="result")), ABANDONED)) == 3


# --- plans


def test_a_plan_goes_to_the_other_tools_in_turn():
    made = drive(agent([0], plan=PlanRule(2, 50 * MS, 2, ("search", "fetch", "browse"))), THROTTLED)
    assert [(call.tool, call.round) for call in made] == [
        (None, 0), ("search", 1), ("fetch", 1), ("fetch", 2), ("browse", 2), ("browse", 2), ("search", 2),
    ]  # fmt: skip
    assert {call.run for call in made} == {0}


def test_a_sequence_goes_on_after_what_went_well_and_ends_with_what_failed():
    caller = agent([0], plan=PlanRule(3, 50 * MS, 1, ("search", "fetch"), "sequence"))
    (call,) = caller.on_due(0)
    end(caller, call, THROTTLED, 10 * MS)
    (search,) = caller.on_due(60 * MS)
    assert caller.next_ns == NEVER  # one after another
    end(caller, search, SERVED, 100 * MS)
    (fetch,) = caller.on_due(150 * MS)
    assert [(one.tool, one.round, one.parent) for one in (search, fetch)] == [("search", 1, "3.0"), ("fetch", 1, "3.0")]
    end(caller, fetch, THROTTLED, 200 * MS)
    assert caller.next_ns == NEVER  # it failed, at the last round


def test_what_is_retried_is_planned_around_only_when_it_has_ended():
    caller = agent([0], retries=RetryRule(2, 0, RETRIED), plan=PlanRule(1, 0, 1))
    made = drive(caller, THROTTLED)
    assert [(call.seq, call.attempt) for call in made] == [(0, 1), (0, 2), (1, 1), (1, 2)]


# --- budgets and loops


def test_of_several_budgets_none_loses_a_token_to_the_refusal_of_another():
    budgets = Budgets([BudgetRule(Fraction(1), 1, "tenant"), BudgetRule(Fraction(1, 100), 1, "run")])
    assert budgets.refuses(0, 0) is None
    assert budgets.refuses(1, 0) == "tenant"
    assert budgets.refuses(1, S) is None  # the run still had its token
    assert budgets.refuses(1, 2 * S) == "run"
    assert budgets.refuses(2, 2 * S) is None  # and the tenant its own


def test_a_loop_ends_after_its_iterations_and_a_branch_with_its_tokens():
    made = drive(agent([0], plan=PlanRule(2, MS, 9), loop=LoopGuard(4, None)), THROTTLED)
    sent = [call for call in made if call.outcome != HELD_BACK]
    assert len(sent) == 4
    assert {call.reason for call in made if call.outcome == HELD_BACK} == {"loop_iterations"}
    made = drive(agent([Arrival(0, cost=10.0)], plan=PlanRule(1, MS, 9), loop=LoopGuard(None, 35)), THROTTLED)
    assert [call.reason for call in made] == [None, None, None, "branch_tokens"]


def test_nothing_is_kept_of_a_run_that_is_over():
    rules = [BudgetRule(Fraction(10), 5, "run"), BudgetRule(Fraction(1000), 1000, "tenant")]
    caller = agent(range(0, 10 * S, S // 10), plan=PlanRule(2, MS, 2, (), "sequence"), budgets=rules,
                   loop=LoopGuard(5, 50), retries=RetryRule(2, MS, RETRIED))  # fmt: skip
    drive(caller, THROTTLED)
    assert caller._left == {}
    assert caller._sequences == {}
    assert caller.budgets._of_run == {}
    assert (caller.loop._of_run, caller.loop._of_branch) == ({}, {})


# --- throttle


def test_the_throttle_follows_the_book():
    throttle = AdaptiveThrottle(2.0, 120 * S, Random(1))
    assert throttle.probability(0, 0) == 0
    assert throttle.probability(100, 50) == 0
    assert throttle.probability(100, 25) == pytest.approx(50 / 101)
    assert throttle.probability(10**6, 0) < 1  # a probe gets through, always


def test_a_client_that_is_refused_everything_sends_little_and_recovers_when_served_again():
    caller = agent(range(0, 60 * S, 10 * MS), throttle=(2.0, 5 * S))
    sent = {"before": 0, "during": 0, "after": 0}
    while caller.next_ns != NEVER:
        now = caller.next_ns
        phase = "before" if now < 10 * S else "during" if now < 18 * S else "after"
        for call in caller.on_due(now):
            if call.outcome is None:
                sent[phase] += now < 10 * S or phase == "during" or now >= 50 * S
                # Half of a tenth is served while the service is in trouble.
                well = phase != "during" or call.seq % 20 == 0
                end(caller, call, SERVED if well else THROTTLED, now + 5 * MS)
    assert sent["before"] == 1000
    assert sent["during"] < 500  # of 800, though its window is still full of better days
    assert sent["after"] == 1000


def test_a_seeded_agent_repeats_itself_and_another_seed_does_not():
    def made(seed):
        caller = Agent("D", 0, iter(range(0, S, 10 * MS)), 9 * S, Random(seed), throttle=(1.1, S))
        return [call.outcome for call in drive(caller, THROTTLED)]

    assert made(1) == made(1)
    assert made(1) != made(2)
