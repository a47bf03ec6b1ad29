"""Intervals against published values, and the claims about evidence that the documentation makes."""

from __future__ import annotations

from math import ceil, log10, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from harness.measure.blocks import Series, block_length, change_of_means, deviations, series
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


def test_a_window_that_does_not_begin_at_zero_is_cut_alike():
    at, values = np.array([99, 100, 104, 109, 110, 119, 120]), np.array([9, 1, 2, 3, 4, 5, 9])
    made = series(at, values, 100, 120, bins=2)
    assert (made.sums.tolist(), made.counts.tolist()) == ([6, 9], [3, 2])
    nothing = series(at, values, 50, 50, bins=2)
    assert (nothing.sums.tolist(), nothing.mean) == ([0, 0], 0.0)


def _block_length_by_hand(data):
    """Politis and White 2004, as corrected in 2009, written out: flat-top taper, five quiet lags, a sixth at most."""
    mean = sum(data.sums) / sum(data.counts)
    x = [total - mean * count for total, count in zip(data.sums, data.counts, strict=True)]
    n, x = len(x), [value - sum(x) / len(x) for value in x]
    longest = max(1, n // 6)
    lags = min(n - 1, 2 * longest)
    covariance = [sum(x[i] * x[i + k] for i in range(n - k)) / n for k in range(lags + 1)]
    if covariance[0] <= 0:
        return 1
    small = [abs(covariance[k] / covariance[0]) < 2 * sqrt(log10(n) / n) for k in range(1, lags + 1)]
    cut = next((k for k in range(lags - 5 + 1) if all(small[k : k + 5])), lags - 1)
    window = min(2 * max(1, cut), lags)
    taper = [1.0 if k / window <= 0.5 else 2 * (1 - k / window) for k in range(window + 1)]
    g = 2 * sum(taper[k] * k * covariance[k] for k in range(1, window + 1))
    spread = covariance[0] + 2 * sum(taper[k] * covariance[k] for k in range(1, window + 1))
    if spread <= 0:
        return min(longest, max(1, cut))
    return min(longest, max(1, ceil((2 * g * g / (4 / 3 * spread * spread)) ** (1 / 3) * n ** (1 / 3))))


@pytest.mark.parametrize("phi", [-0.7, 0.0, 0.3, 0.6, 0.9, 0.97])
def test_the_block_length_is_the_published_one(phi):
    rng = np.random.default_rng(11)
    for n in (12, 18, 60, 240):
        for _ in range(8):
            data = Series(_autocorrelated(rng, phi, n) * 3 + 20, rng.integers(1, 4, n).astype(float))
            assert block_length(data) == _block_length_by_hand(data)


def test_what_never_changes_needs_no_blocks():
    assert block_length(Series(np.full(240, 5.0), np.full(240, 1.0))) == 1
    wave = Series(np.tile([1.0, -1.0], 120), np.ones(240))  # each value takes the next one back
    assert block_length(wave) == _block_length_by_hand(wave)


@pytest.mark.parametrize(("n", "length"), [(24, 1), (24, 4), (25, 4), (10, 9)])
def test_each_resample_is_a_mean_over_circular_blocks(n, length):
    rng = np.random.default_rng(2)
    data = Series(rng.normal(size=n), rng.integers(0, 3, n).astype(float))
    found = deviations(data, length, 0.9, np.random.default_rng(5), resamples=40)
    blocks = max(2, n // length)
    means = []
    for starts in np.random.default_rng(5).integers(0, n, size=(40, blocks)):
        bins = [(start + i) % n for start in starts for i in range(length)]
        calls = sum(data.counts[bins])
        means.append(sum(data.sums[bins]) / calls if calls else data.mean)
    wider = t_of(0.9, blocks - 1) / z_of(0.9) * sqrt(blocks / (blocks - 1))
    assert found == pytest.approx((np.array(means) - np.mean(means)) * wider)


def test_a_resample_without_a_call_is_the_mean_and_one_with_one_call_is_that_call():
    sums, counts = np.zeros(24), np.zeros(24)
    sums[[3, 17]], counts[[3, 17]] = [8.0, 1.0], 1.0
    found = deviations(Series(sums, counts), 1, 0.9, np.random.default_rng(5), resamples=200)
    means = []
    for starts in np.random.default_rng(5).integers(0, 24, size=(200, 24)):
        calls = counts[starts].sum()
        means.append(sums[starts].sum() / calls if calls else 4.5)
    assert {4.5, 8.0, 1.0} <= set(means)
    wider = t_of(0.9, 23) / z_of(0.9) * sqrt(24 / 23)
    assert found == pytest.approx((np.array(means) - np.mean(means)) * wider)


def test_a_change_tells_its_blocks_by_the_window_that_has_fewer():
    rng = np.random.default_rng(3)
    free, bound = (Series(50 + _autocorrelated(rng, phi), np.ones(240)) for phi in (0.0, 0.9))
    length = block_length(bound)
    assert length > block_length(free)
    for pair in ((free, bound), (bound, free)):
        change = change_of_means(*pair, 0.95, np.random.default_rng(1))
        assert (change.blocks, change.length_bins) == (240 // length, length)
        assert change.change.estimate == pytest.approx(pair[0].mean - pair[1].mean)
        assert change.change.low < change.change.estimate < change.change.high


def test_a_change_is_the_first_windows_resamples_less_the_seconds():
    """Waits with a tail to one side, so that adding for subtracting shows."""
    rng = np.random.default_rng(8)
    first, second = (Series(rng.exponential(size=240) ** 3, np.ones(240)) for _ in range(2))
    drawing = np.random.default_rng(1)
    spread = sum(sign * deviations(data, block_length(data), 0.9, drawing) for sign, data in ((1, first), (-1, second)))
    d, (low, high) = first.mean - second.mean, np.quantile(spread, [1 - 0.9, 0.9])
    found = change_of_means(first, second, 0.9, np.random.default_rng(1)).change
    assert (found.estimate, found.low, found.high) == (d, d + low, d + high)


def test_a_hull_is_as_wide_as_both_and_times_is_another_unit():
    assert Interval(1.0, 0.0, 2.0).hull(Interval(9.0, -1.0, 1.5)) == Interval(1.0, -1.0, 2.0)
    assert Interval(1.0, 0.0, 2.0).hull(Interval(9.0, 0.5, 3.0)) == Interval(1.0, 0.0, 3.0)
    assert Interval(1.0, -2.0, 3.0).times(10) == Interval(10.0, -20.0, 30.0)


@pytest.mark.parametrize(("z", "terms"), [(1.0, (2, 24, 24)), (2.0, (5, 147, 549))])
def test_t_of_few_freedoms_is_that_of_the_series(z, terms):
    """Abramowitz and Stegun 26.7.5: each term by itself."""
    for n in (1, 2, 7):
        series_of_n = 1 + terms[0] / (4 * n) + terms[1] / (96 * n * n) + terms[2] / (384 * n**3)
        assert t_of(NormalDist().cdf(z), n) == pytest.approx(z * series_of_n)
    assert t_of(0.9, 0) == t_of(0.9, 1)


def test_lossless_needs_is_the_first_count_that_is_enough():
    for margin in (0.002, 0.01, 0.05, 0.3):
        needs = lossless_needs(margin, ONE_SIDED)
        assert wilson(0, needs, ONE_SIDED).high < margin <= wilson(0, needs - 1, ONE_SIDED).high


def test_an_interval_of_a_share_is_exact_at_its_ends():
    assert (wilson(0, 7, 3.0).low, wilson(7, 7, 3.0).high) == (0.0, 1.0)
    assert (newcombe(0, 1, 1, 1, 3.0).low, newcombe(1, 1, 0, 1, 3.0).high) == (-1.0, 1.0)


def test_the_evidence_that_tells_is_found_in_steps_of_a_tenth():
    steps = next(k for k in range(80) if newcombe(1.1**k, 320 * 1.1**k, 0, 240 * 1.1**k, ONE_SIDED).high < 0.01)
    assert factor_to_decide(1, 320, 0, 240, 0.01, ONE_SIDED) == pytest.approx(1.1**steps)
    assert factor_to_decide(60, 1000, 0, 1000, 0.01, ONE_SIDED) == 1  # it is over the margin as it is
    factor = factor_to_decide(9, 400, 2, 250, 0.03, ONE_SIDED)
    highs = [newcombe(9 * k, 400 * k, 2 * k, 250 * k, ONE_SIDED).high for k in (factor / 1.1, factor)]
    assert highs[0] >= 0.03 > highs[1]
