from __future__ import annotations

from fractions import Fraction

from harness.ledger.outcomes import ABANDONED, FAILED, HELD_BACK, SERVED, THROTTLED
from harness.workload.callers import NEVER, Arrival, BudgetRule, Caller, ReplanRule

S = 1_000_000_000
RULE = ReplanRule(calls=2, after_ns=S // 2, rounds=3)


def end(caller, call, outcome, at):
    call.outcome, call.done_ns = outcome, at
    caller.on_outcome(call)


def test_steady_tenant_sends_what_is_due_and_stops_at_the_end():
    caller = Caller("A", 0, iter([0, S, 2 * S, 9 * S]), end_ns=2 * S)
    assert [call.due_ns for call in caller.on_due(5 * S)] == [0, S]
    assert caller.next_ns == NEVER


def test_each_refusal_leads_to_n_calls_until_the_round_cap():
    caller = Caller("D", 3, iter([0]), end_ns=100 * S, replan=RULE)
    total, now = 0, 0
    while caller.next_ns != NEVER:
        now = caller.next_ns
        for call in caller.on_due(now):
            total += 1
            assert call.round <= 3
            assert call.run == 0
            end(caller, call, THROTTLED if call.round % 2 else ABANDONED, now)
    assert total == 1 + 2 + 4 + 8
    assert now == 3 * S // 2


def test_a_replan_names_its_parent_and_keeps_its_cost():
    caller = Caller("D", 3, iter([Arrival(0, cost=7.0, path="/x")]), end_ns=100 * S, replan=RULE)
    (call,) = caller.on_due(0)
    end(caller, call, THROTTLED, 10)
    again = caller.on_due(10 + S // 2)
    assert [(c.parent, c.round, c.cost, c.path, c.due_ns) for c in again] == [("3.0", 1, 7.0, "/x", 10 + S // 2)] * 2
    assert len({c.id for c in again}) == 2


def test_success_and_plain_failure_lead_to_nothing():
    caller = Caller("D", 0, iter([0, 1]), end_ns=100 * S, replan=RULE)
    for call, outcome in zip(caller.on_due(1), (SERVED, FAILED), strict=True):
        end(caller, call, outcome, 5)
    assert caller.next_ns == NEVER


def test_no_replan_is_due_at_or_after_the_end():
    caller = Caller("D", 0, iter([0]), end_ns=S, replan=RULE)
    (call,) = caller.on_due(0)
    end(caller, call, THROTTLED, S // 2)
    assert caller.next_ns == NEVER


def test_replans_of_an_instant_come_before_arrivals():
    caller = Caller("D", 0, iter([0, S]), end_ns=9 * S, replan=RULE)
    (call,) = caller.on_due(0)
    end(caller, call, THROTTLED, S // 2)
    assert [c.round for c in caller.on_due(S)] == [1, 1, 0]


def test_tenant_budget_holds_back_and_nothing_follows():
    caller = Caller("D", 0, iter([0, 0, 0]), 9 * S, RULE, BudgetRule(Fraction(1), 2, "tenant"))
    calls = caller.on_due(0)
    assert [c.outcome for c in calls] == [None, None, HELD_BACK]
    assert caller.next_ns == NEVER


def test_run_budget_is_a_bucket_for_each_original_call_and_is_forgotten():
    caller = Caller("D", 0, iter([0, 0]), 99 * S, RULE, BudgetRule(Fraction(1, 100), 2, "run"))
    first, second = caller.on_due(0)
    end(caller, first, THROTTLED, 0)
    end(caller, second, SERVED, 0)
    again = caller.on_due(S // 2)
    assert [c.outcome for c in again] == [None, HELD_BACK]
    end(caller, again[0], SERVED, S)
    assert caller.next_ns == NEVER
    assert caller._run_buckets == {}
