"""The token bucket that a caller asks before a call leaves.

    level(t) = min(burst, level(t0) + rate * (t - t0))      [tokens] = [tokens] + [tokens/ns] * [ns]

It refills before it is asked, and is exact: the level is an integer in units of 1 / (10^9 * denominator of the rate)
tokens, so that 10/s asked every 25 ms for 40 s grants 409 and not 408 or 410. It starts full.
"""

from __future__ import annotations

from fractions import Fraction

NS_PER_S = 1_000_000_000


class TokenBucket:
    """rate: tokens per second, burst: most tokens it holds. A `now_ns` before the last adds nothing."""

    __slots__ = ("_at_ns", "_full", "_level", "_per_ns", "_token")

    def __init__(self, rate: Fraction, burst: int, now_ns: int = 0) -> None:
        self._per_ns = rate.numerator
        self._token = NS_PER_S * rate.denominator
        self._full = burst * self._token
        self._level = self._full
        self._at_ns = now_ns

    def take(self, now_ns: int) -> bool:
        """Takes one token if there is one; says whether it did."""
        level = self._level
        if now_ns > self._at_ns:
            level = min(self._full, level + (now_ns - self._at_ns) * self._per_ns)
            self._at_ns = now_ns
        if level < self._token:
            self._level = level
            return False
        self._level = level - self._token
        return True

    def level(self, now_ns: int) -> Fraction:
        """Tokens at `now_ns`, without taking any."""
        return Fraction(min(self._full, self._level + (now_ns - self._at_ns) * self._per_ns), self._token)
