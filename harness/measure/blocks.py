"""Intervals for what happens in clusters: a bootstrap that resamples blocks of time instead of single calls.

When a queue is full, the losses of one second come together; calls resampled one by one would hide that and make every
interval too narrow. So a window is cut into bins of equal time, each with a sum and a count (calls and their losses, or
their waits), and runs of neighbouring bins are resampled together.

Source: circular moving blocks, Politis and Romano 1992; block length from the autocorrelation of the data, Politis and
White 2004 with the correction of Patton, Politis and White 2009. With k blocks in a window the bootstrap is too narrow;
each deviation is therefore widened by t(k-1) / z and by sqrt(k / (k-1)).

Everything is aggregated per bin first, so that a million calls cost what a hundred do. Never uses a global generator:
the caller gives a seeded one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.measure.intervals import Interval, t_of, z_of

Floats = npt.NDArray[np.float64]

BINS = 240
LEAST_BLOCKS = 6
RESAMPLES = 2000
_AT_ONCE = 200_000  # starts drawn in one go: bounds the memory


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A window as bins of equal time: what was summed and how many calls there were, one place a bin."""

    sums: Floats
    counts: Floats

    @property
    def mean(self) -> float:
        """Sum over calls; 0 without any call."""
        n = float(self.counts.sum())
        return float(self.sums.sum()) / n if n else 0.0


def series(
    at_ns: npt.NDArray[np.int64], values: npt.NDArray[np.generic], from_ns: int, to_ns: int, bins: int = BINS
) -> Series:
    """Bins [from, to); calls outside of it are left out."""
    inside = (at_ns >= from_ns) & (at_ns < to_ns)
    place = (at_ns[inside] - from_ns) * bins // max(1, to_ns - from_ns)
    return Series(
        np.bincount(place, weights=values[inside].astype(np.float64), minlength=bins).astype(np.float64),
        np.bincount(place, minlength=bins).astype(np.float64),
    )


def block_length(data: Series) -> int:
    """Bins a block, from the data: long enough that blocks are nearly independent, at most a sixth of the window.

    The series is that of the ratio's influence, sum - mean * count per bin.
    """
    residual = data.sums - data.mean * data.counts
    n = len(residual)
    longest = max(1, n // LEAST_BLOCKS)
    residual = residual - residual.mean()
    variance = float(residual @ residual) / n
    if variance <= 0:
        return 1
    lags = min(n - 1, 2 * longest)
    covariance = np.array([float(residual[: n - k] @ residual[k:]) / n for k in range(lags + 1)])
    small = np.abs(covariance[1:] / variance) < 2 * math.sqrt(math.log10(n) / n)
    quiet = max(5, math.ceil(math.sqrt(math.log10(n))))
    cut = next((k for k in range(len(small) - quiet + 1) if small[k : k + quiet].all()), len(small) - 1)
    window = min(2 * max(1, cut), lags)
    lag = np.arange(-window, window + 1)
    t = np.abs(lag) / window
    taper = np.where(t <= 0.5, 1.0, 2 * (1 - t))
    spectrum = covariance[np.abs(lag)] * taper
    g, spread = float((spectrum * np.abs(lag)).sum()), float(spectrum.sum())
    if spread <= 0:
        return min(longest, max(1, cut))
    length = (2 * g * g / (4 / 3 * spread * spread)) ** (1 / 3) * n ** (1 / 3)
    return int(min(longest, max(1, math.ceil(length))))


def deviations(
    data: Series, length: int, confidence: float, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Floats:
    """Bootstrap draws of (mean* - its own centre), one place a resample, widened for the few blocks there are."""
    n = len(data.counts)
    blocks = max(2, n // length)
    sums, counts = _block_sums(data.sums, length), _block_sums(data.counts, length)
    drawn = np.empty(resamples)
    step = max(1, _AT_ONCE // blocks)
    for begin in range(0, resamples, step):
        starts = rng.integers(0, n, size=(min(step, resamples - begin), blocks))
        total = counts[starts].sum(axis=1)
        drawn[begin : begin + step] = np.where(total > 0, sums[starts].sum(axis=1) / np.maximum(total, 1), data.mean)
    widen = t_of(confidence, blocks - 1) / z_of(confidence) * math.sqrt(blocks / (blocks - 1))
    return np.asarray((drawn - drawn.mean()) * widen)


def _block_sums(values: Floats, length: int) -> Floats:
    """Sum of each circular block of `length` bins, by where it begins."""
    running = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[: length - 1])))))
    return np.asarray(running[length:] - running[:-length])


@dataclass(frozen=True, slots=True)
class BlockChange:
    """change: of the means, first minus second. blocks: of the window with fewer. length_bins: of that window."""

    change: Interval
    blocks: int
    length_bins: int


def change_of_means(first: Series, second: Series, confidence: float, rng: np.random.Generator) -> BlockChange:
    """Interval of mean(first) - mean(second), each end one-sided at `confidence`. The windows are independent."""
    spread = np.zeros(RESAMPLES)
    fewest, at_length = len(first.counts), 1
    for sign, data in ((1, first), (-1, second)):
        length = block_length(data)
        if len(data.counts) // length < fewest:
            fewest, at_length = len(data.counts) // length, length
        if data.sums.any():
            spread += sign * deviations(data, length, confidence, rng)
    d = first.mean - second.mean
    low, high = np.quantile(spread, [1 - confidence, confidence])
    return BlockChange(Interval(d, d + min(0.0, float(low)), d + max(0.0, float(high))), fewest, at_length)
