"""agent.retry_budget on rows written by hand: what counts as a retry, of which window, and what is let be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from harness.checks.judge import judge_one
from harness.checks.retry_budget import _worst
from harness.checks.verdict import Word
from tests.unit.attempt_rows import MS, S, finding, tried
from tests.unit.ledgers import written

CHECK = "agent.retry_budget"
BUDGET, EARLY, MANY, LET_BE = (
    "retries beyond the budget, worst window", "before Retry-After", "attempts beyond those of a request",
    "failed and let be",
)  # fmt: skip
TEN_PERCENT = {"attempts": 3, "budget": "10%", "window": "60s", "delay": "100ms"}


def judged(folder, mine, others=(), retries=TEN_PERCENT, params=None):
    profile = {"tenants": {"A": {"rate": "1/s", "retries": retries}, "B": {"rate": "1/s"}}}
    return judge_one(written(folder / "t", {"A": list(mine), "B": list(others)}, profile), CHECK, params or {})


def firsts(n, tenant=0, outcome="served"):
    """Calls a millisecond apart, from the beginning on, tried once."""
    return [row for i in range(n) for row in tried(f"{tenant}.{i}", (i * MS, outcome))]


def retries(n, from_ns=S, after=1000):
    """Calls before the trial's beginning by their first attempt, each retried once: they weigh as retries alone."""
    rows = []
    for i in range(n):
        first, again = tried(f"0.{after + i}", (from_ns + i * MS, "throttled"), (from_ns + i * MS + 1, "served"))
        rows += [{**first, "sent_ns": -1, "outcome": "held_back"}, again]
    return rows


# --- the budget of a window


@pytest.mark.parametrize(
    ("decided", "first", "window", "found"),
    [
        ([], [5], 600, (0.0, 0.0, 0)),
        ([600], [], 600, (1.0, 1.0, 0)),
        ([600], [9, 10, 600, 601], 600, (1 - 0.55 * 2, 0.5, 0)),
        ([600], [9, 10, 609], 600, (1 - 0.55, 1.0, 0)),
        ([5, 600, 604], [10], 600, (2 - 0.55, 2.0, 2)),
        ([9, 10, 600], [10], 600, (2 - 0.55, 2.0, 1)),
        ([60], [0, 1, 60], 60, (1 - 0.55 * 2, 0.5, 0)),
        ([60], [0, 1], 7, (1 - 0.55, 1.0, 0)),
    ],
    ids=["none", "alone", "whole_buckets", "first_after_it", "retries_leave", "worst_is_first", "narrow", "narrowest"],
)  # fmt: skip
def test_a_window_is_whole_buckets_that_end_with_the_decision(decided, first, window, found):
    """Sixty buckets, the last of which is the decision's, as far as it has come."""
    given = np.array(decided, dtype=np.int64), np.array(first, dtype=np.int64)
    assert _worst(*given, Fraction(1, 2), window, 0.1) == pytest.approx(found)


def test_a_tenth_above_the_budget_and_one_retry_are_within_it(tmp_path):
    assert finding(judged(tmp_path, firsts(100) + retries(12)), BUDGET).word is Word.PASS


def test_two_above_are_not_and_the_retries_of_that_window_are_named(tmp_path):
    late = tried("0.999", (90 * S, "throttled"), (90 * S + 1, "served"))
    verdict = judged(tmp_path, firsts(100) + retries(13) + late)
    assert verdict.word is Word.FAIL
    assert (finding(verdict, BUDGET).measured, finding(verdict, BUDGET).bound) == (2.0, 1.0)
    assert verdict.witnesses == tuple(f"0.{1000 + i}" for i in range(13))
    assert "13% of the calls of one window were retried, and 14% of all, where 10% may be" in verdict.sentence


def test_of_many_retries_the_last_before_the_worst_instant_are_named(tmp_path):
    assert judged(tmp_path, firsts(100) + retries(25)).witnesses == tuple(f"0.{1004 + i}" for i in range(20))


def test_one_call_that_is_tried_three_times_is_two_retries_of_one(tmp_path):
    verdict = judged(tmp_path, tried("0.0", (0, "throttled"), (S, "throttled"), (2 * S, "served")))
    assert finding(verdict, BUDGET).word is Word.FAIL
    assert "200% of the calls of one window were retried, and 200% of all" in verdict.sentence


def test_retries_are_no_first_attempts_of_which_others_may_be_a_tenth(tmp_path):
    rows = [row for i in range(20) for row in tried(f"0.{i}", (i * MS, "throttled"), (S + i * MS, "served"))]
    assert finding(judged(tmp_path, rows), BUDGET).measured == 20 - 2.2


def test_another_tenants_first_attempts_do_not_pay_for_retries(tmp_path):
    verdict = judged(tmp_path, firsts(10) + retries(4), firsts(500, 1))
    assert finding(verdict, BUDGET).measured == 4 - 1.1


@pytest.mark.parametrize(
    ("budget", "n", "word"), [("60%", 20, Word.PASS), (None, 12, Word.PASS), (None, 13, Word.FAIL)]
)
def test_a_client_without_a_budget_of_its_own_is_held_to_a_tenth(tmp_path, budget, n, word):
    verdict = judged(tmp_path, firsts(100) + retries(n), retries={**TEN_PERCENT, "budget": budget})
    assert finding(verdict, BUDGET).word is word


# --- attempts, and Retry-After


def test_a_fourth_attempt_of_three_fails_and_only_of_the_tenant_that_retries(tmp_path):
    four = [(i * S, "throttled") for i in range(4)]
    assert finding(judged(tmp_path, tried("0.0", *four)), MANY).word is Word.FAIL
    (tmp_path / "b").mkdir()
    verdict = judged(tmp_path / "b", tried("0.0", *four[:3]), tried("1.0", *four))
    assert (finding(verdict, MANY).word, finding(verdict, MANY).samples) == (Word.PASS, 3)


@pytest.mark.parametrize(("again_ns", "word"), [(2 * S - MS, Word.PASS), (2 * S - MS - 1, Word.FAIL)])
def test_a_retry_may_be_a_millisecond_early_and_no_more(tmp_path, again_ns, word):
    rows = tried("0.0", (0, "throttled"), (again_ns, "served"), retry_after="2")
    assert finding(judged(tmp_path, rows), EARLY).word is word


def test_neither_a_retry_that_nothing_was_stated_for_is_early_nor_one_of_another_tenant(tmp_path):
    theirs = tried("1.0", (0, "throttled"), (1, "served"), retry_after="2")
    verdict = judged(tmp_path, tried("0.0", (0, "throttled"), (1, "served")), theirs)
    assert finding(verdict, EARLY).word is Word.PASS


# --- what is let be


def refused(at_ns=S, attempt=1, **told):
    row = tried("0.0", (at_ns, "throttled"))[0]
    return [{**row, "attempt": attempt, **told}]


LAST_NS = 100 * S - 2 * 100 * MS * 2**3
"""From then on the longest wait before a retry is beyond the trial's end."""


@pytest.mark.parametrize(
    ("rows", "n"),
    [
        (refused(), 1),
        (refused(attempt=2), 1),
        (refused(attempt=3), 0),
        (refused(attempt=0), 0),
        (refused(outcome="served"), 0),
        (refused(retried=True), 0),
        (refused(LAST_NS - 1), 1),
        (refused(LAST_NS), 0),
        (refused(70 * S - 1, retry_after="30"), 1),
        (refused(70 * S, retry_after="30"), 0),
    ],
    ids=["refused", "twice", "last", "not_tried", "served", "retried", "in_time", "too_late", "told", "told_late"],
)  # fmt: skip
def test_a_call_is_let_be_that_might_have_been_tried_again_within_the_trial(tmp_path, rows, n):
    assert finding(judged(tmp_path, rows), LET_BE).measured == n


def test_what_another_tenant_lets_be_is_no_evidence(tmp_path):
    verdict = judged(tmp_path, firsts(1, outcome="throttled"), firsts(30, 1, "throttled"))
    assert finding(verdict, LET_BE).measured == 1
    assert verdict.word is Word.INCONCLUSIVE
