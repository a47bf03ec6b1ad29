"""Adaptive throttling: a client that is refused much sends less, without being told a limit.

Source: Site Reliability Engineering (Beyer et al., 2016), chapter 21, "Handling Overload". Over the last two minutes a
client counts its requests and how many of them the service accepted, and rejects a new one by itself with probability

    p = max(0, (requests - K accepts) / (requests + 1))

- A local rejection is a request and no accept: the more is asked of it, the more it rejects.
- p is below 1, always: some get through, and from their accepts it recovers by itself.
- K = 2 sends twice what is accepted. A smaller K sends less and finds out later that the service is well again.
- A request that was sent counts from when it has ended. (The book does not say. If those in flight counted, a client
  would reject most of its first requests, before the first answer has come.)

Accepted means served. It never waits, and never looks at why a call was refused.
"""

from __future__ import annotations

from random import Random

from harness.ledger.call import Call
from harness.ledger.outcomes import COALESCED, SERVED
from harness.workload.recent import RecentCounts

ADAPTIVE_THROTTLE = "adaptive_throttle"
REQUESTS, ACCEPTS = 0, 1
ACCEPTED = frozenset((SERVED, COALESCED))


class AdaptiveThrottle:
    """One client's. k: the book's K. rng: seeded."""

    def __init__(self, k: float, window_ns: int, rng: Random) -> None:
        self.k = k
        self.counts = RecentCounts(window_ns)
        self._rng = rng

    def rejects(self, now_ns: int) -> bool:
        """Whether the call that is due now must not be sent. Asked once an attempt."""
        p = self.probability(*self.counts.totals(now_ns))
        if p <= 0 or self._rng.random() >= p:
            return False
        self.rejected(now_ns)
        return True

    def probability(self, requests: int, accepts: int) -> float:
        return max(0.0, (requests - self.k * accepts) / (requests + 1))

    def rejected(self, now_ns: int) -> None:
        self.counts.add(REQUESTS, now_ns)

    def ended(self, call: Call) -> None:
        """An attempt that was sent has ended."""
        self.counts.add(REQUESTS, call.done_ns)
        if call.outcome in ACCEPTED:
            self.counts.add(ACCEPTS, call.done_ns)
