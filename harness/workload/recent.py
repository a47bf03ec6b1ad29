"""Counts over about the last W, in fixed memory: a ring of buckets of W / 60 each.

    total(t)  counts of what happened in the buckets (b - 60, b],  b = t // (W / 60)

so that it looks back over more than 59/60 of W and at most W. Given instants, it reads no clock. What is told late goes
to the bucket that it belongs to; what is older than W is forgotten at once.
"""

from __future__ import annotations

from harness.profile.model import WINDOW_BUCKETS


class RecentCounts:
    """Two kinds of events, 0 and 1."""

    __slots__ = ("_at", "_ring", "_totals", "_width_ns")

    def __init__(self, window_ns: int) -> None:
        self._width_ns = max(1, window_ns // WINDOW_BUCKETS)
        self._ring = ([0] * WINDOW_BUCKETS, [0] * WINDOW_BUCKETS)
        self._totals = [0, 0]
        self._at = 0

    def add(self, kind: int, now_ns: int) -> None:
        place = self._advance(now_ns)
        if self._at - place < WINDOW_BUCKETS:
            self._ring[kind][place % WINDOW_BUCKETS] += 1
            self._totals[kind] += 1

    def totals(self, now_ns: int) -> tuple[int, int]:
        """(events of kind 0, of kind 1) in the window that ends with the bucket of `now_ns`."""
        self._advance(now_ns)
        return self._totals[0], self._totals[1]

    def _advance(self, now_ns: int) -> int:
        place = now_ns // self._width_ns
        for gone in range(self._at + 1, min(place, self._at + WINDOW_BUCKETS) + 1):
            slot = gone % WINDOW_BUCKETS
            for kind, ring in enumerate(self._ring):
                self._totals[kind] -= ring[slot]
                ring[slot] = 0
        self._at = max(self._at, place)
        return place
