"""When original calls are due: pure schedules in integer nanoseconds since the trial began.

even      the k-th call (k = 0, 1, ...) is due at the earliest t with N(t) >= k, where N(t) is the integral of the rate
          from the tenant's phase; within a segment of constant rate r that begins at s with N(s) = n:

              t_k = s + (k - n) / r                 [ns] = [ns] + [calls] / [calls per ns]

          computed in exact fractions and rounded down. Segments are half open; what is left of an interval at the end
          of a segment is carried into the next.
poisson   gaps are exponential in N(t) instead of 1: an inhomogeneous Poisson process, from a seeded Random.
recorded  as the log has it.

A pacer is an iterator of due instants, never decreasing. It never reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from random import Random

NS_PER_S = 1_000_000_000

Segment = tuple[int, int, Fraction]
"""(from_ns, to_ns, calls per second): half open, gapless, in order."""


def even(segments: Iterable[Segment], phase_ns: int = 0) -> Iterator[int]:
    """Due instants [ns] of evenly spaced calls over the segments; the first at `phase_ns`."""
    index = 0
    counted = Fraction(0)
    for begin, to_ns, rate in segments:
        from_ns = max(begin, phase_ns)
        if from_ns >= to_ns or rate == 0:
            continue
        # t = from + (index - counted) * gap, in integers over one denominator: no drift, and cheap.
        gap = Fraction(NS_PER_S) / rate
        first = (index - counted) * gap
        den = math.lcm(gap.denominator, first.denominator)
        offset, step, length = int(first * den), int(gap * den), (to_ns - from_ns) * den
        while offset < length:
            yield from_ns + offset // den
            index += 1
            offset += step
        counted += rate * (to_ns - from_ns) / NS_PER_S


def poisson(segments: Iterable[Segment], rng: Random, phase_ns: int = 0) -> Iterator[int]:
    """Due instants [ns] of a Poisson process whose rate follows the segments, none before `phase_ns`."""
    target = rng.expovariate(1.0)
    counted = 0.0
    for begin, to_ns, rate in segments:
        from_ns = max(begin, phase_ns)
        if from_ns >= to_ns or rate == 0:
            continue
        per_ns = float(rate) / NS_PER_S
        expected = per_ns * (to_ns - from_ns)
        while target < counted + expected:
            due = from_ns + int((target - counted) / per_ns)
            if due >= to_ns:
                break
            yield due
            target += rng.expovariate(1.0)
        counted += expected
