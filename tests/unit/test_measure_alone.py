"""Intervals of one window by itself, and of the change between two that were measured apart."""

from __future__ import annotations

import numpy as np
import pytest

from harness.measure.alone import difference, mean_of, quantile_of, share_of, stretched
from harness.measure.intervals import Interval, newcombe, wilson, z_of
from harness.measure.unmoved import Sample

SECOND = 1_000_000_000


def sample(values, seconds: int = 100) -> Sample:
    values = np.asarray(values, dtype=np.int64)
    at = np.linspace(0, seconds * SECOND - 1, len(values)).astype(np.int64)
    return Sample(at, values, 0, seconds * SECOND)


def rng():
    return np.random.default_rng(1)


def test_of_wilson_intervals_the_difference_is_newcombes():
    z = z_of(0.95)
    made = difference(wilson(30, 300, z), wilson(5, 250, z))
    known = newcombe(30, 300, 5, 250, z)
    assert (made.low, made.high) == pytest.approx((known.low, known.high))


def test_a_share_without_a_loss_keeps_a_width():
    interval = share_of(sample(np.ones(320)), 0.95, rng())
    assert interval.high == 1.0
    assert 0.98 < interval.low < 0.995
    assert share_of(sample([]), 0.95, rng()) == Interval(0.0, 0.0, 1.0)


def test_losses_that_come_together_widen_a_share():
    spread, together = np.ones(1000), np.ones(1000)
    spread[::20] = 0
    together[:50] = 0
    assert share_of(sample(together), 0.95, rng()).low < share_of(sample(spread), 0.95, rng()).low - 0.02


def test_constant_values_have_no_width_and_no_call_no_quantile():
    constant = mean_of(sample(np.full(100, 7)), 0.95, rng())
    assert (constant.low, constant.estimate, constant.high) == pytest.approx((7, 7, 7))
    assert quantile_of(sample(np.full(100, 7)), 0.95, 0.95, rng()) == Interval(7.0, 7.0, 7.0)
    assert quantile_of(sample([]), 0.95, 0.95, rng()) is None
    assert mean_of(sample([]), 0.95, rng()) == Interval(0.0, 0.0, 0.0)


@pytest.mark.parametrize("p", [0.5, 0.95])
def test_the_interval_of_a_quantile_holds_it_as_often_as_it_says(p):
    draw = np.random.default_rng(3)
    truth = -np.log(1 - p) * 1e6
    inside = [
        (interval := quantile_of(sample(draw.exponential(1e6, 600)), p, 0.95, rng())).low <= truth <= interval.high
        for _ in range(60)
    ]
    assert 0.75 < np.mean(inside) <= 1.0


def test_the_interval_of_a_mean_holds_it_as_often_as_it_says():
    draw = np.random.default_rng(4)
    inside = [
        (interval := mean_of(sample(draw.exponential(1e6, 400)), 0.95, rng())).low <= 1e6 <= interval.high
        for _ in range(60)
    ]
    assert 0.78 < np.mean(inside) <= 1.0


def test_the_same_seed_gives_the_same_interval():
    data = sample(np.random.default_rng(5).exponential(1e6, 500))
    assert quantile_of(data, 0.95, 0.95, rng()) == quantile_of(data, 0.95, 0.95, rng())
    assert mean_of(data, 0.95, rng()) == mean_of(data, 0.95, rng())


def test_stretched():
    assert stretched(Interval(2.0, 1.0, 4.0), 2.0) == Interval(2.0, 0.0, 6.0)
    assert stretched(Interval(5.0, 2.0, 9.0), 3.0) == Interval(5.0, -4.0, 17.0)


@pytest.mark.parametrize("lost", [5, 295])
def test_a_share_stays_one_however_its_losses_come(lost):
    served = np.ones(300)
    served[:lost] = 0
    interval = share_of(sample(served), 0.95, rng())
    assert 0.0 <= interval.low <= interval.estimate == (300 - lost) / 300 <= interval.high <= 1.0


def by_hand(data: Sample, p: float, confidence: float, rng) -> Interval:
    """The same draws of 24 blocks, each written out and sorted."""
    length = data.to_ns - data.from_ns
    blocks = [data.value[(data.at_ns - data.from_ns) * 24 // length == place] for place in range(24)]
    drawn = []
    for weights in rng.multinomial(24, np.full(24, 1 / 24), size=1000):
        values = sorted(value for block, n in zip(blocks, weights, strict=True) for value in [*block] * n)
        drawn.append(values[max(0, int(np.ceil(p * len(values))) - 1)] if values else min(data.value))
    ordered = sorted(data.value)
    estimate = float(ordered[max(0, int(np.ceil(p * len(ordered))) - 1)])
    low, high = np.quantile(drawn, [1 - confidence, confidence])
    return Interval(estimate, min(estimate, float(low)), max(estimate, float(high)))


@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("n", [1, 2, 3, 30, 200])
def test_a_quantile_is_that_of_each_resample_written_out(n, p):
    draw = np.random.default_rng(n)
    at = np.sort(draw.integers(7 * SECOND, 12 * SECOND, n))
    data = Sample(at, draw.integers(0, 10**6, n), 7 * SECOND, 12 * SECOND)
    assert quantile_of(data, p, 0.9, rng()) == by_hand(data, p, 0.9, rng())
