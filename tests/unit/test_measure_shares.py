"""Re-plan shares, fair shares and quantiles: small exact cases."""

from __future__ import annotations

import numpy as np
import pytest

from harness.measure.fair_share import jain, max_min
from harness.measure.quantiles import may_gate, quantile
from harness.measure.replans import inferred, shares_over_time


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_max_min_gives_the_small_ones_what_they_want_and_splits_the_rest():
    assert max_min([2, 2.6, 4, 5], 10) == pytest.approx([2, 2.6, 2.7, 2.7])
    assert max_min([5, 1], 100) == [5, 1]
    assert max_min([10, 10], 9, weights=[2, 1]) == pytest.approx([6, 3])
    assert max_min([], 5) == []
    assert max_min([3, 3], 0) == [0, 0]


def test_jain_barely_sees_one_of_fifty_that_gets_nothing():
    assert jain([1] * 49 + [0]) == pytest.approx(0.98)
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([0, 0]) is None
    assert jain([]) is None


def test_quantile_is_a_value_that_was_measured():
    values = np.arange(1, 101)
    assert [quantile(values, p) for p in (0.0, 0.5, 0.95, 0.99, 1.0)] == [1, 50, 95, 99, 100]
    assert quantile(ints(7), 0.99) == 7
    assert quantile(ints(), 0.5) is None


def test_percentiles_gate_from_enough_samples_only():
    assert [may_gate(0.95, n) for n in (299, 300)] == [False, True]
    assert [may_gate(0.99, n) for n in (999, 1000)] == [False, True]
    assert [may_gate(0.5, n) for n in (29, 30)] == [False, True]
    assert [may_gate(0.9, n) for n in (100, 101)] == [False, True]
    assert not may_gate(1.0, 10**9)


def test_replan_shares_per_tenant_and_window():
    made = shares_over_time(ints(0, 0, 0, 1), ints(0, 9, 10, 25), np.array([False, True, True, False]), 2, 10)
    assert made.calls.tolist() == [[2, 1, 0], [0, 0, 1]]
    assert made.replans.tolist() == [[1, 1, 0], [0, 0, 0]]
    assert made.total(0) == (2, 3)
    np.testing.assert_equal(made.window_shares(0, 2), [0.5, np.nan, np.nan])
    np.testing.assert_equal(made.window_shares(0, 1), [0.5, 1.0, np.nan])


def test_a_call_due_at_the_end_of_a_window_is_in_it():
    assert shares_over_time(ints(9), ints(9), np.array([True]), 10, 10).calls.shape == (10, 1)
    assert shares_over_time(ints(0), ints(10), np.array([True]), 1, 10).calls.tolist() == [[0, 1]]
    assert shares_over_time(ints(), ints(), np.zeros(0, bool), 2, 10).calls.tolist() == [[0], [0]]


def test_replan_windows_are_bounded_whatever_the_trial_lasts():
    made = shares_over_time(ints(0), ints(30 * 24 * 3600 * 10**9), np.array([True]), 100_000, 1)
    assert made.calls.size < 5_000_000
    assert made.total(0) == (1, 1)


def test_inferred_replans_follow_a_failure_of_the_same_identity_within_the_window():
    who = ints(1, 1, 1, 2, 1, 1)
    at = ints(0, 5, 5, 6, 15, 30)
    failed = np.array([True, False, True, False, False, False])
    assert inferred(who, at, failed, within_ns=10).tolist() == [False, True, True, False, True, False]
    shuffled = [4, 2, 0, 5, 1, 3]
    again = inferred(who[shuffled], at[shuffled], failed[shuffled], within_ns=10)
    assert again.tolist() == [True, True, False, False, True, False]
    assert inferred(ints(), ints(), np.zeros(0, bool), 10).tolist() == []
