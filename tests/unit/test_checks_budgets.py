"""agent.budget_at_source and agent.budget_per_tenant on rows written by hand, and the replay that both are held to."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from harness.checks.budget_per_tenant import _at_once
from harness.checks.budget_replay import counted_as_sent, grants, most_beyond, replay
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.profile.model import Budget
from tests.unit.attempt_rows import MS, S, finding, tried
from tests.unit.ledgers import written

SOURCE, BOTH = "agent.budget_at_source", "agent.budget_per_tenant"
ONE_PER_S = {"rate": "1/s", "burst": 2}
OF_RUN = {"rate": "1/s", "burst": 1, "scope": "run"}


def budget(rate="1/s", burst=2, scope="tenant"):
    return Budget.model_validate({"rate": rate, "burst": burst, "scope": scope})


def call(seq, at_ns, held="", tenant=0, **more):
    row = {**tried(f"{tenant}.{seq}", (at_ns, "served"))[0], "run": seq, "round": 0}
    if held:
        row |= {"outcome": "held_back", "reason": held, "attempt": 0, "sent_ns": -1}
    return row | more


def ledger(folder, mine, budgets=ONE_PER_S, others=(), theirs=None):
    """A has budgets; B has none, unless told."""
    profile = {"tenants": {"A": {"rate": "1/s", "budget": budgets}, "B": {"rate": "1/s", "budget": theirs}}}
    return written(folder / "t", {"A": list(mine), "B": list(others)}, profile)


# --- the replay


def granted(budgets, *asks):
    at_ns, runs = zip(*asks, strict=True)
    return grants(budgets, np.array(at_ns, dtype=np.int64), np.array(runs, dtype=np.int64)).tolist()


def test_a_bucket_is_full_at_first_and_holds_a_token_again_at_just_its_instant():
    assert granted([budget()], (0, 0), (0, 1), (S - 1, 2), (S, 3), (9 * S, 4), (9 * S, 5), (9 * S, 6)) == [
        True, True, False, True, True, True, False,
    ]  # fmt: skip


def test_a_rate_of_one_in_three_seconds_is_exact():
    a_third = Budget.model_construct(rate=Fraction(1, 3), burst=1, scope="tenant")
    assert granted([a_third], (0, 0), (3 * S - 1, 0), (3 * S, 0), (6 * S, 0)) == [True, False, True, True]


def test_each_run_has_a_full_bucket_of_its_own():
    own = [budget(burst=1, scope="run")]
    assert granted(own, (5, 7), (5, 8), (6, 7), (S + 4, 7), (S + 5, 7)) == [True, True, False, False, True]


def test_of_two_budgets_neither_spends_where_the_other_holds_back():
    both = [budget(burst=2), budget(burst=1, scope="run")]
    assert granted(both, (0, 7), (1, 7), (2, 8), (3, 9)) == [True, False, True, False]
    assert granted([budget(burst=1), budget(burst=2, scope="run")], (0, 7), (1, 7), (S, 7)) == [True, False, True]


@pytest.mark.parametrize("reason", ["loop_iterations", "branch_tokens"])
def test_what_a_loop_guard_held_back_never_asked_a_budget(tmp_path, reason):
    rows = [call(0, 0, reason), call(1, 1, reason), call(2, 2), call(3, 3), call(4, 4, "tenant_budget")]
    asks = replay(ledger(tmp_path, rows), "A", [budget()])
    assert (asks.held.tolist(), asks.allowed.tolist()) == ([False, False, True], [True, True, False])


def test_what_a_throttle_held_back_had_its_token(tmp_path):
    rows = [call(0, 0, "adaptive_throttle"), call(1, 1), call(2, 2, "tenant_budget")]
    asks = replay(ledger(tmp_path, rows), "A", [budget()])
    assert (asks.held.tolist(), asks.wrong.tolist()) == ([False, False, True], [])


def test_of_one_instant_the_budget_grants_the_first_whichever_row_that_is(tmp_path):
    rows = [call(0, 5, "tenant_budget"), call(1, 5), call(2, 5)]
    assert len(replay(ledger(tmp_path, rows), "A", [budget()]).wrong) == 0


def test_another_tenants_calls_ask_budgets_of_their_own(tmp_path):
    rows = [call(0, 0), call(1, 1)]
    asks = replay(ledger(tmp_path, rows, others=[call(i, 0, tenant=1) for i in range(9)]), "A", [budget()])
    assert (len(asks.places), len(asks.wrong)) == (2, 0)


@pytest.mark.parametrize(
    ("sent_s", "most"),
    [([], 0.0), ([7], 1.0), ([7, 7, 7], 3.0), ([7, 8, 9], 1.0), ([7, 7.5, 8], 2.0), ([1, 9, 9, 9.5], 2.5)],
)
def test_the_worst_window_is_counted_beyond_what_the_rate_allows_in_it(sent_s, most):
    assert most_beyond(Fraction(1), np.array([int(s * S) for s in sent_s], dtype=np.int64)) == pytest.approx(most)


def test_what_left_late_counts_as_sent_when_it_might_have_been(tmp_path):
    rows = [call(0, 0, sent_ns=90), call(1, 10, sent_ns=30), call(2, 20, sent_ns=20)]
    trial = ledger(tmp_path, rows)
    assert counted_as_sent(trial.attempts, np.arange(3), 50).tolist() == [20, 30, 50]


# --- at the source


def at_source(folder, rows, budgets=ONE_PER_S, others=(), theirs=None, params=None):
    return judge_one(ledger(folder, rows, budgets, others, theirs), SOURCE, params or {})


KEPT = [call(0, 0), call(1, 0), call(2, 0, "tenant_budget"), call(3, S)]


def test_a_budget_that_held_back_exactly_what_it_must_passes(tmp_path):
    verdict = at_source(tmp_path, KEPT)
    assert (verdict.word, verdict.add, verdict.witnesses) == (Word.PASS, "", ())
    assert verdict.sentence == "The budgets of A held back 1 calls, exactly those they must."
    assert (finding(verdict, "held back").samples, finding(verdict, "held back").bound) == (4, 1.0)


def test_without_a_budget_there_is_nothing_to_judge(tmp_path):
    verdict = judge_one(written(tmp_path / "t", {"A": [call(0, 0)]}), SOURCE, {})
    assert (verdict.word, verdict.samples, "budget" in verdict.add) == (Word.INCONCLUSIVE, 0, True)


def test_a_budget_that_had_nothing_to_hold_back_shows_nothing(tmp_path):
    verdict = at_source(tmp_path, [call(0, 0), call(1, 0)])
    assert verdict.word is Word.INCONCLUSIVE
    assert (verdict.sentence, "more load" in verdict.add) == ("A: its budget never had anything to hold back.", True)


@pytest.mark.parametrize(
    ("rows", "held", "expected"),
    [([call(0, 0), call(1, 0, "tenant_budget")], 1, 0), ([call(0, 0), call(1, 0), call(2, 0)], 0, 1)],
    ids=["for_nothing", "too_few"],
)
def test_a_call_that_was_held_back_for_nothing_or_let_go_fails_and_is_named(tmp_path, rows, held, expected):
    verdict = at_source(tmp_path, rows)
    assert (verdict.word, verdict.add, verdict.witnesses) == (Word.FAIL, "", (f"0.{len(rows) - 1}",))
    assert verdict.sentence == f"A: held back {held} of {len(rows)} calls, and its budget says {expected}."


def test_what_the_harness_may_be_late_is_allowed_at_the_rate(tmp_path):
    verdict = at_source(tmp_path, KEPT, {"rate": "4/s", "burst": 2}, params={"late": "250ms"})
    assert finding(verdict, "sent beyond the rate").bound == 2 + 1 + 4 * 0.25


@pytest.mark.parametrize(("n", "word"), [(3, Word.PASS), (4, Word.FAIL)])
def test_of_a_burst_of_two_three_at_once_may_be_lateness_and_four_are_not(tmp_path, n, word):
    verdict = at_source(tmp_path, [call(i, i * S, sent_ns=0) for i in range(n)], params={"late": "0s"})
    found = finding(verdict, "sent beyond the rate")
    assert (found.word, found.measured, found.bound, found.samples) == (word, float(n), 3.0, n)


def test_a_runs_budget_bounds_no_rate_of_the_tenant(tmp_path):
    verdict = at_source(tmp_path, [call(i, 0) for i in range(9)] + [call(9, 0, "run_budget", run=3)], OF_RUN)
    assert verdict.word is Word.PASS
    assert [f.quantity for f in verdict.findings] == ["held back", "re-plans sent"]


@pytest.mark.parametrize(("replans", "word"), [(0, Word.PASS), (1, Word.PASS), (2, Word.FAIL)])
def test_one_call_of_a_hundred_that_was_sent_may_follow_a_failure(tmp_path, replans, word):
    rows = [call(i, i * S, round=int(i < replans)) for i in range(98)]
    rows += [call(98, 97 * S), call(99, 97 * S)]
    rows += [call(100 + i, 97 * S, "tenant_budget", round=1) for i in range(20)]
    verdict = at_source(tmp_path, rows, {"rate": "1/s", "burst": 3})
    found = finding(verdict, "re-plans sent")
    assert (found.word, found.measured, found.samples) == (word, replans / 100, 100)
    assert ("the service refuses it still" in found.note) is (word is Word.FAIL)


def test_where_nothing_was_sent_no_replan_was(tmp_path):
    verdict = at_source(tmp_path, [call(0, 0, "tenant_budget")])
    assert (finding(verdict, "re-plans sent").word, finding(verdict, "re-plans sent").measured) == (Word.PASS, 0.0)


def test_the_worst_of_several_tenants_decides(tmp_path):
    theirs = [call(0, 0, tenant=1), call(1, 0, tenant=1), call(2, 0, tenant=1)]
    verdict = at_source(tmp_path, KEPT, others=theirs, theirs=ONE_PER_S)
    assert (verdict.word, verdict.sentence) == (Word.FAIL, "B: held back 0 of 3 calls, and its budget says 1.")


# --- of a tenant and of each of its runs


def per_tenant(folder, rows, budgets, others=(), params=None):
    given = {"runs": 2, "held": 1, **(params or {})}
    return judge_one(ledger(folder, rows, budgets, others), BOTH, given)


def test_one_budget_is_not_both(tmp_path):
    assert per_tenant(tmp_path, KEPT, [ONE_PER_S]).sentence.startswith("Cannot be judged: no tenant has a budget for")


TWO = [{"rate": "1/s", "burst": 3}, OF_RUN]
ROWS = [
    call(0, 0, done_ns=S), call(1, 0, done_ns=S), call(2, 0, "run_budget", run=1), call(3, 0, done_ns=S),
    call(4, 0, "tenant_budget"),
]  # fmt: skip


def test_runs_within_their_own_budgets_and_their_tenants_pass(tmp_path):
    theirs = [call(i, 0, "tenant_budget", tenant=1) for i in range(9)]
    verdict = per_tenant(tmp_path, ROWS, TWO, theirs)
    assert verdict.word is Word.PASS, verdict.sentence
    shown = {f.quantity: (f.measured, f.samples) for f in verdict.findings}
    assert shown == {
        "sent beyond the tenant's rate": (3.0, 3),
        "beyond its run's budget": (0.0, 3),
        "held back unlike the budgets": (0.0, 5),
        "runs at once": (3.0, 3),
        "held back by the tenant's budget": (1.0, 1),
        "held back by the run's budget": (1.0, 1),
    }


def test_a_call_beyond_its_runs_budget_fails_and_is_named(tmp_path):
    rows = [call(0, 0), call(1, 1, run=0), call(2, 2)]
    verdict = per_tenant(tmp_path, rows, [{"rate": "1/s", "burst": 1}, {**OF_RUN, "rate": "5/s"}])
    found = finding(verdict, "beyond its run's budget")
    assert (found.word, found.measured, found.samples) == (Word.FAIL, 1.0, 3)
    assert "1 calls were sent beyond the budget of their run" in verdict.sentence


@pytest.mark.parametrize(("n", "word"), [(3, Word.PASS), (4, Word.FAIL)])
def test_what_all_runs_sent_is_held_to_the_tenants_burst_and_one_call(tmp_path, n, word):
    rows = [call(i, i * S, sent_ns=0) for i in range(n)]
    verdict = per_tenant(tmp_path, rows, [{"rate": "1/s", "burst": 2}, OF_RUN], params={"late": "0s"})
    found = finding(verdict, "sent beyond the tenant's rate")
    assert (found.word, found.measured, found.bound) == (word, float(n), 3.0)


def test_what_the_harness_may_displace_is_allowed_at_the_tenants_rate(tmp_path):
    verdict = per_tenant(tmp_path, ROWS, [{"rate": "4/s", "burst": 2}, OF_RUN], params={"late": "250ms"})
    assert finding(verdict, "sent beyond the tenant's rate").bound == 2 + 1 + 4 * 0.25


@pytest.mark.parametrize(
    ("rows", "most"),
    [
        ([], 0),
        ([call(0, 0, done_ns=9)], 1),
        ([call(0, 0, done_ns=9), call(1, 5, done_ns=7), call(2, 6, done_ns=8)], 3),
        ([call(0, 0, done_ns=5), call(1, 5, done_ns=9)], 1),
        ([call(0, 0, done_ns=5), call(1, 9, done_ns=20, run=0), call(2, 6, done_ns=8)], 2),
        ([call(0, 0, done_ns=0), call(1, 0, done_ns=0, run=0)], 0),
        ([call(0, 0, done_ns=9), call(1, 3, "run_budget", done_ns=4), call(2, 3, tenant=1, done_ns=9)], 1),
        ([call(7, 1, done_ns=9), call(5, 2, done_ns=8), call(6, 20, done_ns=30)], 2),
        ([call(0, 0, done_ns=5), call(1, 6, done_ns=9), call(2, 7, done_ns=8)], 2),
    ],
    ids=["none", "one", "three", "in_turn", "between_its_calls", "no_time", "others", "any_order", "later"],
)  # fmt: skip
def test_a_run_is_under_way_from_its_first_call_that_left_to_the_end_of_its_last(tmp_path, rows, most):
    mine = [row for row in rows if row["call"].startswith("0.")]
    trial = ledger(tmp_path, mine, others=[row for row in rows if row["call"].startswith("1.")])
    assert _at_once(trial, "A") == most


def test_calls_of_a_millisecond_after_each_other_are_sent_within_a_rate_of_a_thousand():
    assert most_beyond(Fraction(1000), np.arange(5, dtype=np.int64) * MS) == pytest.approx(1.0)
