"""Agents, budgets and windows against counts by hand, for all that hypothesis can think of."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from harness.ledger.outcomes import SERVED, THROTTLED
from harness.workload.budgets import BudgetRule, Budgets
from harness.workload.callers import NEVER
from harness.workload.recent import RecentCounts
from harness.workload.retries import RetryRule
from tests.unit.test_agents import MS, RETRIED, S, agent, end


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), min_size=1, max_size=300), st.sampled_from((5, 10, 50)))
def test_in_no_window_are_there_more_retries_than_the_budget(calls, percent):
    """Against a count by hand, at each decision to retry."""
    rule = RetryRule(3, 10 * MS, RETRIED, Fraction(percent, 100), S)
    caller = agent(sorted(at * 10 * MS for at, _ in calls), retries=rule)
    refuse, sent, granted = {seq for seq, (_, no) in enumerate(calls) if no}, [], []
    while caller.next_ns != NEVER:
        now = caller.next_ns
        calls_now = caller.on_due(now)
        sent += [now for call in calls_now if call.attempt == 1]
        for call in calls_now:
            end(caller, call, THROTTLED if call.seq in refuse else SERVED, now + MS)
            if call.retried:
                granted.append(now + MS)
                width = S // 60
                begin = ((now + MS) // width - 59) * width
                retries = sum(at >= begin for at in granted)
                assert retries * 100 <= percent * sum(at >= begin for at in sent)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=80))
def test_both_budgets_are_asked_all_or_nothing_in_any_order(asks):
    """Against buckets by hand, in fractions."""
    rules = [BudgetRule(Fraction(3), 4, "tenant"), BudgetRule(Fraction(1), 2, "run")]
    budgets, levels = Budgets(rules), {}
    for at, run in sorted(asks):
        now = at * 100 * MS
        wanted = [("tenant", rules[0]), (run, rules[1])]
        for key, rule in wanted:
            level, before = levels.get(key, (Fraction(rule.burst), now if key != "tenant" else 0))
            levels[key] = (min(Fraction(rule.burst), level + rule.rate * (now - before) / S), now)
        grants = all(levels[key][0] >= 1 for key, _ in wanted)
        assert (budgets.refuses(run, now) is None) == grants
        if grants:
            for key, _ in wanted:
                levels[key] = (levels[key][0] - 1, now)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 1)), max_size=200), st.integers(1, 100))
def test_recent_counts_are_those_of_the_last_buckets(events, window):
    """Against a count by hand; what comes late goes where it belongs."""
    counts, seen, width, latest = RecentCounts(window), [], max(1, window // 60), 0
    for at, kind in events:
        counts.add(kind, at)
        latest = max(latest, at)
        seen.append((at // width, kind))
        newest = latest // width
        expected = tuple(sum(1 for place, one in seen if one == k and place > newest - 60) for k in (0, 1))
        assert counts.totals(latest) == expected
