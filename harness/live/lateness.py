"""How late calls started, as counts in buckets that widen with the value: a quantile at any time in constant memory.

A quantile is the upper end of its bucket, at most 1/16 above the true value. The exact one is in the ledger.
"""

from __future__ import annotations

_SUB = 4  # 2^4 buckets an octave
_PLACES = (64 << _SUB) + 1


class Lateness:
    def __init__(self) -> None:
        self._counts = [0] * _PLACES
        self.samples = 0
        self.max_ns = 0

    def add(self, late_ns: int) -> None:
        """What started early (a clock of another core) counts as on time."""
        self.samples += 1
        if late_ns <= 0:
            self._counts[0] += 1
            return
        self.max_ns = max(self.max_ns, late_ns)
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


def _upper(place: int) -> int:
    """The largest value that falls into a bucket."""
    shift = max(0, (place >> _SUB) - 1)
    return ((place - (shift << _SUB) + 1) << shift) - 1
