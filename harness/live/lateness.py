"""How late calls started, as counts in buckets that widen with the value: a quantile at any time in constant memory.
For who asks for less, the same in few buckets.

A quantile is the upper end of its bucket, at most 1/16 above the true value. The exact one is in the ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

_SUB = 4  # 2^4 buckets an octave
_PLACES = (64 << _SUB) + 1


class Lateness:
    def __init__(self) -> None:
        self._counts = [0] * _PLACES
        self.samples = 0
        self.max_ns = 0
        self.sum_ns = 0

    def add(self, late_ns: int) -> None:
        """What started early (a clock of another core) counts as on time."""
        self.samples += 1
        if late_ns <= 0:
            self._counts[0] += 1
            return
        self.max_ns = max(self.max_ns, late_ns)
        self.sum_ns += late_ns
        shift = max(0, late_ns.bit_length() - _SUB - 1)
        self._counts[(shift << _SUB) + (late_ns >> shift)] += 1

    def quantile(self, q: float) -> int:
        """[ns]; 0 without samples."""
        left = int(q * self.samples)
        for place, count in enumerate(self._counts):
            left -= count
            if left < 0:
                return min(self.max_ns, _upper(place))
        return self.max_ns

    def counts(self, edges_ns: Sequence[int]) -> list[int]:
        """In buckets with these upper ends, and one for all above. A value close to an end may count above it."""
        found = [0] * (len(edges_ns) + 1)
        for place, count in enumerate(self._counts):
            if count:
                found[bisect_left(edges_ns, _upper(place))] += count
        return found


def _upper(place: int) -> int:
    """The largest value that falls into a bucket."""
    shift = max(0, (place >> _SUB) - 1)
    return ((place - (shift << _SUB) + 1) << shift) - 1
