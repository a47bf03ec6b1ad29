"""A quantity of one window by itself, with its interval; and the change between two that were measured apart.

What is kept of a trial for later is an estimate and the ends of its interval, not the calls. Two such intervals give
the interval of their difference by squaring and adding the way to each end (MOVER: Zou and Donner 2008, Statistics in
Medicine 27:1693-1702; with Wilson's intervals it is Newcombe's method 10):

    low  = d - sqrt((e1 - l1)^2 + (u2 - e2)^2)        d = e1 - e2
    high = d + sqrt((u1 - e1)^2 + (e2 - l2)^2)

    share       hull of Wilson's interval and the block bootstrap's
    mean        block bootstrap
    quantile    bootstrap of blocks of neighbouring calls, over at most CANDIDATES values that were measured

Never uses a global generator: the caller gives a seeded one.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from harness.measure.blocks import block_length, deviations, series
from harness.measure.intervals import Interval, wilson, z_of
from harness.measure.quantiles import quantile
from harness.measure.unmoved import BLOCKS, Sample

RESAMPLES = 1000
CANDIDATES = 1000


def share_of(hits: Sample, confidence: float, rng: np.random.Generator) -> Interval:
    """Of values 0 and 1. Without samples everything is possible: [0, 1] around 0."""
    n, count = len(hits), int(hits.value.sum())
    interval = wilson(count, n, z_of(confidence))
    if count in (0, n):
        return interval
    hull = interval.hull(mean_of(hits, confidence, rng))
    return Interval(hull.estimate, max(0.0, hull.low), min(1.0, hull.high))


def mean_of(data: Sample, confidence: float, rng: np.random.Generator) -> Interval:
    """In the unit of the values; 0 without samples."""
    binned = series(data.at_ns, data.value, data.from_ns, data.to_ns)
    mean = binned.mean
    if not binned.sums.any():
        return Interval(mean, mean, mean)
    drawn = deviations(binned, block_length(binned), confidence, rng, RESAMPLES)
    low, high = np.quantile(drawn, [1 - confidence, confidence])
    return Interval(mean, mean + min(0.0, float(low)), mean + max(0.0, float(high)))


def quantile_of(data: Sample, p: float, confidence: float, rng: np.random.Generator) -> Interval | None:
    """The p-quantile (nearest rank), in the unit of the values; None without samples."""
    estimate = quantile(data.value, p)
    if estimate is None:
        return None
    ordered = np.sort(data.value)
    places = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), CANDIDATES)).round().astype(np.int64))
    candidates = np.unique(ordered[places])
    below = _counts_below(data, candidates)
    weights = rng.multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), size=RESAMPLES).astype(np.float64)
    totals = weights @ below
    ranks = np.ceil(p * totals[:, -1:])
    drawn = candidates[np.argmax(totals >= np.maximum(ranks, 1), axis=1)]
    low, high = np.quantile(drawn, [1 - confidence, confidence])
    return Interval(float(estimate), min(float(estimate), float(low)), max(float(estimate), float(high)))


def _counts_below(data: Sample, candidates: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """[block, candidate]: how many values of the block are at most the candidate."""
    block = np.minimum((data.at_ns - data.from_ns) * BLOCKS // max(1, data.to_ns - data.from_ns), BLOCKS - 1)
    place = np.searchsorted(candidates, data.value)
    width = len(candidates)
    cells = np.bincount(block * width + place, minlength=BLOCKS * width).reshape(BLOCKS, width)
    return np.asarray(np.cumsum(cells, axis=1), dtype=np.float64)


def difference(one: Interval, two: Interval) -> Interval:
    """The interval of `one - two`, which were measured independently of each other."""
    d = one.estimate - two.estimate
    low = d - math.hypot(one.estimate - one.low, two.high - two.estimate)
    high = d + math.hypot(one.high - one.estimate, two.estimate - two.low)
    return Interval(d, low, high)


def stretched(interval: Interval, factor: float) -> Interval:
    """Each end `factor` times as far from the estimate."""
    e = interval.estimate
    return Interval(e, e - factor * (e - interval.low), e + factor * (interval.high - e))
