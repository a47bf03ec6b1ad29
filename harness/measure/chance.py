"""What chance alone may do, exactly: tails of the binomial and the hypergeometric distribution, and a bound on a count.

    hypergeometric    of a hand of H out of Q queues, F of which are flooded: P(at least k of the hand are flooded)
                      = sum_{j >= k} C(F, j) C(Q - F, H - j) / C(Q, H)
    binomial          of n tenants, each hurt with probability p by itself: P(at least k are hurt)

The number of tenants hurt by one flood is binomial, because each hand is dealt without regard to the others.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb, exp, lgamma, log, log1p


def hypergeometric_tail(queues: int, hand: int, flooded: int, at_least: int) -> float:
    """P(at least so many queues of a hand are among the flooded)."""
    hits = sum(comb(flooded, j) * comb(queues - flooded, hand - j) for j in range(at_least, min(hand, flooded) + 1))
    return float(Fraction(hits, comb(queues, hand)))


def binomial_tail(n: int, p: float, at_least: int) -> float:
    """P(at least so many of n)."""
    if at_least <= 0:
        return 1.0
    if at_least > n or p <= 0:
        return 0.0
    if p >= 1:
        return 1.0
    # The side that is shorter from the mean: no cancellation, and terms fall off quickly.
    if at_least > n * p:
        return min(1.0, _sum(n, p, range(at_least, n + 1)))
    return max(0.0, 1.0 - _sum(n, p, range(at_least - 1, -1, -1)))


def binomial_bound(n: int, p: float, chance: float) -> int:
    """The smallest count that so many or more occur with a probability of less than `chance`."""
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        if binomial_tail(n, p, middle) < chance:
            high = middle
        else:
            low = middle + 1
    return low


def _sum(n: int, p: float, counts: range) -> float:
    """Terms in the order of `counts`, from the mean outwards, until they no longer matter."""
    total = 0.0
    for k in counts:
        term = exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p))
        total += term
        if term < total * 1e-17:
            break
    return total
