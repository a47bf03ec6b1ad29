"""Change of a share, of a mean and of a quantile between two windows, with an interval: for "did not move" claims.

One-sided non-inferiority, as in `fairness.ordinary_unmoved`: the claim holds when the upper end is under the margin,
and is broken when the lower end is over it.

    share       hull of Newcombe's interval and the block bootstrap's
    mean        block bootstrap
    quantile    block bootstrap of the quantile: blocks of neighbouring calls, of 1/24 of the window each

Never uses a global generator: the caller gives a seeded one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.measure.blocks import change_of_means, series
from harness.measure.intervals import Interval, newcombe, z_of
from harness.measure.quantiles import quantile

Ints = npt.NDArray[np.int64]
BLOCKS = 24
RESAMPLES = 500


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Values measured in [from_ns, to_ns), each at an instant of it."""

    at_ns: Ints
    value: Ints
    from_ns: int
    to_ns: int

    def __len__(self) -> int:
        return len(self.value)


def sample(at_ns: Ints, value: Ints, from_ns: int, to_ns: int) -> Sample:
    """Those that lie in the window."""
    inside = (at_ns >= from_ns) & (at_ns < to_ns)
    return Sample(at_ns[inside], value[inside], from_ns, to_ns)


def share_up(after: Sample, before: Sample, confidence: float, rng: np.random.Generator) -> Interval:
    """Change of a share, values being 0 or 1; as a fraction."""
    counts = int(after.value.sum()), len(after), int(before.value.sum()), len(before)
    interval = newcombe(*counts, z_of(confidence))
    if not (counts[0] or counts[2]) or not (counts[1] and counts[3]):
        return interval
    return interval.hull(mean_up(after, before, confidence, rng))


def mean_up(after: Sample, before: Sample, confidence: float, rng: np.random.Generator) -> Interval:
    """Change of the mean, in the unit of the values."""
    first = series(after.at_ns, after.value, after.from_ns, after.to_ns)
    second = series(before.at_ns, before.value, before.from_ns, before.to_ns)
    return change_of_means(first, second, confidence, rng).change


def quantile_up(
    p: float, after: Sample, before: Sample, confidence: float, rng: np.random.Generator
) -> Interval | None:
    """Change of the p-quantile, in the unit of the values; None if either window is empty."""
    now, then = quantile(after.value, p), quantile(before.value, p)
    if now is None or then is None:
        return None
    drawn = _draws(after, p, rng) - _draws(before, p, rng)
    low, high = np.quantile(drawn, [1 - confidence, confidence])
    change = float(now - then)
    return Interval(change, min(change, float(low)), max(change, float(high)))


def _draws(data: Sample, p: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """The p-quantile (nearest rank) of each resample: blocks of time drawn with replacement."""
    block = np.minimum((data.at_ns - data.from_ns) * BLOCKS // max(1, data.to_ns - data.from_ns), BLOCKS - 1)
    order = np.argsort(data.value, kind="stable")
    ordered, of_block = data.value[order], block[order]
    drawn = np.empty(RESAMPLES)
    for place in range(RESAMPLES):
        weight = np.bincount(rng.integers(0, BLOCKS, BLOCKS), minlength=BLOCKS)[of_block]
        total = np.cumsum(weight)
        rank = max(1, int(np.ceil(p * total[-1])))
        drawn[place] = ordered[min(int(np.searchsorted(total, rank)), len(ordered) - 1)]
    return drawn
