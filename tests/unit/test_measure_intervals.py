"""Intervals against published values, and the claims about evidence that the documentation makes."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from harness.measure.blocks import block_length, change_of_means, series
from harness.measure.intervals import Interval, factor_to_decide, lossless_needs, newcombe, t_of, wilson, z_of

TWO_SIDED = NormalDist().inv_cdf(0.975)
ONE_SIDED = z_of(0.95)
WINDOW_NS = 40_000_000_000

# Newcombe 1998, Statistics in Medicine 17:873-890, table II, method 10 (from Wilson intervals, uncorrected).
NEWCOMBE_1998 = [
    ((56, 70, 48, 80), (0.0524, 0.3339)),
    ((9, 10, 3, 10), (0.1705, 0.8090)),
    ((6, 7, 2, 7), (0.0582, 0.8062)),
    ((5, 56, 0, 29), (-0.0381, 0.1926)),
    ((0, 10, 0, 20), (-0.1611, 0.2775)),
    ((0, 10, 0, 10), (-0.2775, 0.2775)),
    ((10, 10, 0, 20), (0.6791, 1.0)),
    ((10, 10, 0, 10), (0.6075, 1.0)),
]


@pytest.mark.parametrize(("counts", "ends"), NEWCOMBE_1998)
def test_newcombe_gives_the_published_intervals(counts, ends):
    interval = newcombe(*counts, TWO_SIDED)
    assert (interval.low, interval.high) == pytest.approx(ends, abs=6e-5)


def test_wilson_gives_the_published_intervals():
    # Newcombe 1998, Statistics in Medicine 17:857-872, table I, method 3.
    for hits, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        interval = wilson(hits, n, TWO_SIDED)
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=6e-5)


def test_nothing_lost_still_has_a_width():
    assert wilson(0, 320, ONE_SIDED).high == pytest.approx(0.0084, abs=5e-5)
    assert wilson(0, 0, ONE_SIDED) == Interval(0.0, 0.0, 1.0)


def test_320_calls_without_a_loss_are_just_enough_for_a_margin_of_one_point():
    assert newcombe(0, 320, 0, 240, ONE_SIDED).high == pytest.approx(0.0084, abs=5e-5)
    assert newcombe(1, 320, 0, 240, ONE_SIDED).high > 0.01
    needs = lossless_needs(0.01, ONE_SIDED)
    assert newcombe(0, needs, 0, 240, ONE_SIDED).high < 0.01 <= newcombe(0, needs - 1, 0, 240, ONE_SIDED).high


def test_factor_to_decide_is_the_evidence_that_tells():
    factor = factor_to_decide(1, 320, 0, 240, 0.01, ONE_SIDED)
    assert 1 < factor < 4
    assert newcombe(factor, 320 * factor, 0, 240 * factor, ONE_SIDED).high < 0.01
    assert factor_to_decide(0, 320, 0, 240, 0.01, ONE_SIDED) == 1
    assert factor_to_decide(10, 1000, 0, 1000, 0.01, ONE_SIDED) is None


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.132), (5, 2.015), (10, 1.812), (30, 1.697), (239, 1.651)])
def test_t_quantiles_are_those_of_the_table(freedom, quantile):
    assert t_of(0.95, freedom) == pytest.approx(quantile, rel=0.004)


def _words(n_burst, n_calm, loss, trials=200, clustered_s=None, seed=7):
    """Words of seeded trials that lose a share of the burst's calls and none of calm's."""
    rng = np.random.default_rng(seed)
    words = {"PASS": 0, "FAIL": 0, "INCONCLUSIVE": 0}
    for _ in range(trials):
        burst, calm = (np.sort(rng.integers(0, WINDOW_NS, n)) for n in (n_burst, n_calm))
        if clustered_s is None:
            lost = rng.random(n_burst) < loss
        else:  # losses come in stretches in which half of the calls are lost
            stretch = (burst // int(clustered_s * 1e9)).astype(int)
            lost = (rng.random(int(40 / clustered_s) + 1) < 2 * loss)[stretch] & (rng.random(n_burst) < 0.5)
        blocks = change_of_means(
            series(burst, lost, 0, WINDOW_NS), series(calm, np.zeros(n_calm), 0, WINDOW_NS), 0.95, rng
        )
        interval = newcombe(int(lost.sum()), n_burst, 0, n_calm, ONE_SIDED).hull(blocks.change)
        words["PASS" if interval.high < 0.01 else "FAIL" if interval.low > 0.01 else "INCONCLUSIVE"] += 1
    return words


def test_a_loss_of_two_percent_is_inconclusive_at_320_calls_and_fails_at_2000():
    thin, sized = _words(320, 240, 0.02), _words(2000, 1500, 0.02)
    assert thin["INCONCLUSIVE"] > 2 * thin["FAIL"]
    assert sized["FAIL"] >= 0.95 * 200
    assert thin["PASS"] == sized["PASS"] == 0


def test_no_loss_passes_and_a_loss_of_just_the_margin_is_rarely_called_either_way():
    assert _words(320, 240, 0.0, trials=5) == {"PASS": 5, "FAIL": 0, "INCONCLUSIVE": 0}
    at_margin = _words(2000, 1500, 0.01)
    assert at_margin["PASS"] <= 0.08 * 200
    assert at_margin["FAIL"] <= 0.08 * 200


def test_losses_in_clusters_make_it_less_sure():
    """Newcombe alone would FAIL a third of these trials, whose true loss is exactly the margin."""
    clustered = _words(2000, 1500, 0.01, clustered_s=2)
    assert clustered["FAIL"] <= 0.05 * 200
    assert _words(2000, 1500, 0.05, clustered_s=0.5)["FAIL"] >= 0.8 * 200


def _autocorrelated(rng, phi, n=240):
    noise = rng.normal(size=n)
    values = np.empty(n)
    values[0] = noise[0] / np.sqrt(1 - phi * phi)
    for i in range(1, n):
        values[i] = phi * values[i - 1] + noise[i]
    return values


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_block_interval_covers_the_true_change_of_dependent_waits(phi):
    rng, covered, trials = np.random.default_rng(3), 0, 200
    for _ in range(trials):
        at = np.arange(240) * (WINDOW_NS // 240)
        first, second = (series(at, 50 + _autocorrelated(rng, phi), 0, WINDOW_NS) for _ in range(2))
        change = change_of_means(first, second, 0.95, rng).change
        covered += change.low <= 0 <= change.high
    assert covered >= 0.85 * trials  # both ends at 95 %: 90 % in all


def test_block_length_follows_the_dependence_of_the_data():
    rng = np.random.default_rng(5)
    at = np.arange(240) * (WINDOW_NS // 240)
    lengths = [
        np.mean([block_length(series(at, _autocorrelated(rng, phi), 0, WINDOW_NS)) for _ in range(20)])
        for phi in (0.0, 0.5, 0.9)
    ]
    assert lengths[0] < lengths[1] < lengths[2] <= 40


def test_same_seed_same_interval_and_another_seed_another():
    at = np.arange(1000) * (WINDOW_NS // 1000)
    one, two = series(at, at % 7, 0, WINDOW_NS), series(at, at % 5, 0, WINDOW_NS)
    made = [change_of_means(one, two, 0.95, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_series_sums_per_bin_and_leaves_out_what_is_outside():
    made = series(np.array([0, 5, 9, 10, 20]), np.array([1, 2, 3, 4, 5]), 0, 20, bins=2)
    assert made.sums.tolist() == [6, 4]
    assert made.counts.tolist() == [3, 1]
    assert made.mean == 2.5
