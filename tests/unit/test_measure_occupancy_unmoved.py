"""Levels of what is under way, and changes of shares, means and quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.intervals import newcombe, z_of
from harness.measure.occupancy import Peak, levels
from harness.measure.unmoved import Sample, mean_up, quantile_up, sample, share_up


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_a_slot_that_is_handed_over_is_counted_once():
    assert levels(ints(0, 10), ints(10, 20)).peak() == Peak(1, 0)
    assert levels(ints(0, 9), ints(10, 20)).peak() == Peak(2, 9)


def test_nothing_under_way_has_no_peak():
    assert levels(ints(), ints()).peak() == Peak(0, -1)
    assert levels(ints(5), ints(5)).peak() == Peak(0, -1)
    assert list(levels(ints(), ints()).at(ints(1, 2))) == [0, 0]


def test_a_window_sees_what_was_under_way_when_it_began():
    busy = levels(ints(0, 2), ints(100, 4))
    assert busy.peak() == Peak(2, 2)
    assert busy.peak(10, 20) == Peak(1, 10)
    assert busy.peak(100, 200) == Peak(0, -1)
    assert levels(ints(0, 10), ints(20, 20)).peak(5, 10) == Peak(1, 5)
    assert busy.peak(10, None) == busy.peak(None, 20) == Peak(2, 2)


def test_the_mean_is_over_time():
    assert levels(ints(0, 5), ints(10, 10)).mean(0, 10) == pytest.approx(1.5)
    assert levels(ints(0), ints(10)).mean(20, 30) == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40), st.integers(0, 80))
def test_levels_agree_with_counting(spans, instant):
    begins, ends = ints(*(a for a, _ in spans)), ints(*(a + n for a, n in spans))
    counted = sum(a <= instant < a + n for a, n in spans)
    assert levels(begins, ends).at(ints(instant))[0] == counted


def windows(before, after):
    """Two samples, evenly over a window of 1,000 each."""
    made = []
    for values in (after, before):
        at = np.linspace(0, 999, len(values)).astype(np.int64)
        made.append(Sample(at, np.array(values, dtype=np.int64), 0, 1000))
    return made


def rng():
    return np.random.default_rng(1)


def test_a_quantile_that_moved_by_a_constant_has_that_interval():
    interval = quantile_up(0.95, *windows([10] * 400, [15] * 400), 0.95, rng())
    assert (interval.low, interval.estimate, interval.high) == (5, 5, 5)


def test_a_tail_in_one_place_widens_the_interval():
    """Six percent of slow calls, all in one block: another trial might have had none of them in its p95."""
    after = [10] * 376 + [100] * 24
    interval = quantile_up(0.95, *windows([10] * 400, after), 0.95, rng())
    assert (interval.estimate, interval.low, interval.high) == (90, 0, 90)


def test_without_a_sample_there_is_no_quantile():
    assert quantile_up(0.95, *windows([], [1]), 0.95, rng()) is None
    assert quantile_up(0.95, *windows([1], []), 0.95, rng()) is None


def test_a_share_without_a_loss_keeps_a_width():
    interval = share_up(*windows([0] * 300, [0] * 300), 0.95, rng())
    assert (interval.low < 0 < interval.high < 0.01) is True


def test_a_share_against_an_empty_window_is_by_counting_alone():
    half = [0, 1] * 50
    for pair, counts in ((windows(half, []), (0, 0, 50, 100)), (windows([], half), (50, 100, 0, 0))):
        assert share_up(*pair, 0.95, rng()) == newcombe(*counts, z_of(0.95))


def test_a_mean_moves_by_what_was_added():
    assert mean_up(*windows([10] * 100, [12] * 100), 0.95, rng()).estimate == pytest.approx(2)


def test_a_sample_is_what_lies_in_the_window():
    assert list(sample(ints(1, 5, 9), ints(10, 50, 90), 5, 9).value) == [50]


def draws_by_hand(data, p, rng):
    """Blocks drawn with replacement, each written out and sorted; the nearest rank of them."""
    length = data.to_ns - data.from_ns
    blocks = [data.value[(data.at_ns - data.from_ns) * 24 // length == place] for place in range(24)]
    drawn = []
    for _ in range(500):
        values = sorted(value for place in rng.integers(0, 24, 24) for value in blocks[place])
        drawn.append(values[max(0, int(np.ceil(p * len(values))) - 1)])
    return np.array(drawn)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.95, 0.999])
def test_the_change_of_a_quantile_is_that_of_each_resample_written_out(p):
    made = np.random.default_rng(9)
    after, before = (
        Sample(np.sort(made.integers(300, 900, n)), made.integers(0, 10**6, n), 300, 900) for n in (150, 60)
    )
    drawn = draws_by_hand(after, p, one := rng()) - draws_by_hand(before, p, one)
    low, high = np.quantile(drawn, [1 - 0.9, 0.9])
    found = quantile_up(p, after, before, 0.9, rng())
    assert (found.low, found.high) == (min(found.estimate, low), max(found.estimate, high))


def test_a_window_without_time_has_no_mean():
    busy = levels(ints(0), ints(10))
    assert (busy.mean(5, 5), busy.mean(6, 5)) == (0.0, 0.0)
    assert busy.mean(5, 6) == 1.0
    assert levels(ints(2, 4), ints(8, 6)).mean(1, 9) == pytest.approx((2 + 2 * 2 + 2) / 8)


def test_what_ended_where_another_began_and_what_never_was():
    made = levels(ints(0, 5, 9), ints(5, 9, 3))  # the last ends before it begins
    assert (made.at_ns.tolist(), made.level.tolist()) == ([0, 5, 9], [1, 1, 0])
    assert made.at(ints(-1, 0, 4, 5, 8, 9)).tolist() == [0, 1, 1, 1, 1, 0]
    assert made.peak(9, 12) == Peak(0, -1)


def test_a_share_that_was_lost_in_one_place_is_less_sure_than_by_counting():
    """Twenty losses in a row, where Newcombe knows nothing of their being together."""
    lost = [0] * 190 + [1] * 20 + [0] * 190
    apart = [1 if place % 20 == 0 else 0 for place in range(400)]
    together, spread = (share_up(*windows([0] * 400, values), 0.95, rng()) for values in (lost, apart))
    assert together.estimate == spread.estimate == 0.05
    assert together.low < 0.02 < spread.low
