"""What has become of calls so far, as the parent is told twice a second (`progress`, ARCHITECTURE.md).

Kept as calls end, so that telling it takes no time from the schedule: of very many tenants those that the plan has
busiest have a tally each, and all others share one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from harness.ledger.outcomes import SERVED
from harness.measure.tally import Ends
from stub_service.exposition import BUCKETS_NS

Counts = dict[str, int | list[int]]
"""By name; lists are counts in buckets."""


class Tally(Ends):
    """Each call that is due is in flight, held back, or has ended in one way. wait_counts: queue waits, in buckets."""

    __slots__ = ("in_flight", "wait_counts")

    def __init__(self) -> None:
        super().__init__()
        self.in_flight = 0
        self.wait_counts = [0] * (len(BUCKETS_NS) + 1)

    def end(self, outcome: str, wait_ns: int) -> None:
        Ends.end(self, outcome, wait_ns)
        if wait_ns >= 0 and outcome == SERVED:
            self.wait_counts[bisect_left(BUCKETS_NS, wait_ns)] += 1

    def counts(self) -> Counts:
        return {
            "due": self.due,
            "served": self.served,
            "refused": self.refused,
            "abandoned": self.abandoned,
            "held_back": self.held_back,
            "in_flight": self.in_flight,
            "replans": self.replans,
            "failed": self.failed,
            "dropped": self.dropped,
            "other": self.other + self.open,
            "wait_ns": self.wait_ns,
            "wait_counts": self.wait_counts,
        }


def merged(progress: list[dict[str, Any]], now_ns: int) -> dict[str, Any]:
    """One event of several processes: counts of a tenant that is shared out add up; of p99s of lateness, the worst."""
    names = dict.fromkeys(name for one in progress for name in one.get("tenants", {}))
    tenants = {name: _added(one["tenants"].get(name, {}) for one in progress if "tenants" in one) for name in names}
    event = {"event": "progress", "now_ns": now_ns, "tenants": tenants}
    if any("rest" in one for one in progress):
        event["rest"] = _added(one.get("rest", {}) for one in progress)
    event["late_p99_ns"] = max((one.get("late_p99_ns", 0) for one in progress), default=0)
    keys = ("late_ns", "late_counts")
    return {**event, **_added({key: one[key] for key in keys if key in one} for one in progress)}


def _added(several: Iterable[Mapping[str, int | list[int]]]) -> Counts:
    sums: Counts = {}
    for counts in several:
        for key, value in counts.items():
            before = sums.get(key)
            if isinstance(value, list):
                known = before if isinstance(before, list) else [0] * len(value)
                sums[key] = [a + b for a, b in zip(known, value, strict=True)]
            else:
                sums[key] = value + (before if isinstance(before, int) else 0)
    return sums
