"""Confidence intervals of shares and of their differences, that keep a width when nothing was lost.

Source: Wilson 1927 (score interval); Newcombe 1998, Statistics in Medicine 17:873-890, method 10 (difference of two
independent shares from their Wilson intervals). With z of a one-sided 95 % (1.645) each end holds with 95 %.

    Wilson      (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)
    Newcombe    low  = d - sqrt((p1 - l1)^2 + (u2 - p2)^2)        d = p1 - p2
                high = d + sqrt((u1 - p1)^2 + (p2 - l2)^2)

A Wald interval must never be used here: without a loss it has no width, and would always pass. These treat calls as
independent; blocks.py is for losses that come in clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Interval:
    """low <= estimate <= high, all in the unit of the quantity."""

    estimate: float
    low: float
    high: float

    def hull(self, other: Interval) -> Interval:
        """The wider of both at either end, around this estimate."""
        return Interval(self.estimate, min(self.low, other.low), max(self.high, other.high))

    def times(self, factor: float) -> Interval:
        """The same in another unit; factor > 0."""
        return Interval(self.estimate * factor, self.low * factor, self.high * factor)


def z_of(confidence: float) -> float:
    """One-sided normal quantile: 0.95 -> 1.645."""
    return NormalDist().inv_cdf(confidence)


def t_of(confidence: float, freedom: int) -> float:
    """One-sided quantile of Student's t (Abramowitz and Stegun 26.7.5): within 1 % from 4 degrees of freedom on."""
    z, n = z_of(confidence), max(1, freedom)
    z2 = z * z
    return z * (
        1
        + (z2 + 1) / (4 * n)
        + (5 * z2**2 + 16 * z2 + 3) / (96 * n**2)
        + (3 * z2**3 + 19 * z2**2 + 17 * z2 - 15) / (384 * n**3)
    )


def wilson(hits: float, n: float, z: float) -> Interval:
    """Wilson's interval of hits / n. Without samples everything is possible: [0, 1] around 0.

    Fractions of a call occur only where a sample is scaled in thought (`factor_to_decide`).
    """
    if n == 0:
        return Interval(0.0, 0.0, 1.0)
    p, z2 = hits / n, z * z
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At p = 0 and 1 the end is exact, whatever rounding says.
    return Interval(p, 0.0 if hits == 0 else max(0.0, middle - half), 1.0 if hits == n else min(1.0, middle + half))


def newcombe(hits1: float, n1: float, hits2: float, n2: float, z: float) -> Interval:
    """Newcombe's interval of hits1 / n1 - hits2 / n2."""
    one, two = wilson(hits1, n1, z), wilson(hits2, n2, z)
    d = one.estimate - two.estimate
    low = d - math.hypot(one.estimate - one.low, two.high - two.estimate)
    high = d + math.hypot(one.high - one.estimate, two.estimate - two.low)
    return Interval(d, max(-1.0, low), min(1.0, high))


def lossless_needs(margin: float, z: float) -> int:
    """How many calls without one loss bring Wilson's upper end under the margin: z^2 / (n + z^2) < margin."""
    return math.floor(z * z * (1 - margin) / margin) + 1


def factor_to_decide(hits1: int, n1: int, hits2: int, n2: int, margin: float, z: float) -> float | None:
    """By how much to multiply both samples, shares unchanged, until Newcombe's interval leaves the margin.

    At least 1. None: not within a thousandfold (the change is as large as the margin itself).
    """

    def decided(k: float) -> bool:
        interval = newcombe(hits1 * k, n1 * k, hits2 * k, n2 * k, z)
        return interval.high < margin or interval.low > margin

    k = 1.0
    while not decided(k):
        k *= 1.1
        if k > 1000:
            return None
    return k
