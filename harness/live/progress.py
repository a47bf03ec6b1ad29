"""What has become of calls so far, as the parent is told twice a second (`progress`, ARCHITECTURE.md).

Kept as calls end, so that telling it takes no time from the schedule: of very many tenants those that the plan has
busiest have a tally each, and all others share one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from harness.ledger.outcomes import ABANDONED, DROPPED, FAILED, REFUSED, SERVED
from stub_service.exposition import BUCKETS_NS

Counts = dict[str, int | list[int]]
"""By name; lists are counts in buckets."""


class Tally:
    """due: calls, each once, whatever became of it. Each of them is in flight, held back, or has ended in one way.

    wait_ns, wait_counts: queue waits of served calls, as the service told them.
    """

    __slots__ = (
        "abandoned", "dropped", "due", "failed", "held_back", "in_flight", "other", "refused", "replans", "served",
        "wait_counts", "wait_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.due = self.replans = self.held_back = self.in_flight = 0
        self.served = self.refused = self.abandoned = self.failed = self.dropped = self.other = 0
        self.wait_ns = 0
        self.wait_counts = [0] * (len(BUCKETS_NS) + 1)

    def end(self, outcome: str, wait_ns: int) -> None:
        """A call that was to be sent has ended. wait_ns: -1 where it is not known."""
        if outcome == SERVED:
            self.served += 1
            if wait_ns >= 0:
                self.wait_counts[bisect_left(BUCKETS_NS, wait_ns)] += 1
                self.wait_ns += wait_ns
        elif outcome in REFUSED:
            self.refused += 1
        elif outcome == ABANDONED:
            self.abandoned += 1
        elif outcome == FAILED:
            self.failed += 1
        elif outcome == DROPPED:
            self.dropped += 1
        else:
            self.other += 1

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
            "other": self.other,
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
