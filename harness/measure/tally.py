"""Counts of a trial, kept as calls end: what the tables of the worked example and the progress of a live trial show."""

from __future__ import annotations

from harness.ledger.call import Call
from harness.ledger.outcomes import ABANDONED, DROPPED, FAILED, HELD_BACK, OPEN, REFUSED, SERVED


class Ends:
    """Of how many calls came what. due: all that were wanted, each once, whatever became of it. wait_ns: queue waits of
    served calls, as the service told them."""

    __slots__ = (
        "abandoned", "dropped", "due", "failed", "held_back", "open", "other", "refused", "replans", "served",
        "wait_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.due = self.replans = self.wait_ns = 0
        self.served = self.refused = self.abandoned = self.failed = 0
        self.held_back = self.dropped = self.open = self.other = 0

    def end(self, outcome: str, wait_ns: int) -> None:
        """One call has ended. wait_ns: -1 where it is not known."""
        if outcome == SERVED:
            self.served += 1
            if wait_ns > 0:
                self.wait_ns += wait_ns
        elif outcome in REFUSED:
            self.refused += 1
        elif outcome == ABANDONED:
            self.abandoned += 1
        elif outcome == FAILED:
            self.failed += 1
        elif outcome == HELD_BACK:
            self.held_back += 1
        elif outcome == OPEN:
            self.open += 1
        elif outcome == DROPPED:
            self.dropped += 1
        else:
            self.other += 1


class TenantTally(Ends):
    """offered: what reached the service (due without held back and dropped)."""

    __slots__ = ("tenant",)

    def __init__(self, tenant: str) -> None:
        super().__init__()
        self.tenant = tenant

    @property
    def offered(self) -> int:
        return self.due - self.held_back - self.dropped

    @property
    def served_share(self) -> float | None:
        """Served over offered, leaving out calls still open; None without any."""
        ended = self.offered - self.open
        return self.served / ended if ended else None

    @property
    def mean_wait_ns(self) -> float | None:
        """Mean queue wait of served calls."""
        return self.wait_ns / self.served if self.served else None


class Tally:
    """`add` each call once, when it has ended."""

    def __init__(self, tenants: list[str]) -> None:
        self.tenants = [TenantTally(name) for name in tenants]

    def add(self, call: Call) -> None:
        if call.retried:
            return  # an attempt ended, the call goes on
        row = self.tenants[call.tenant_index]
        row.due += 1
        if call.round:
            row.replans += 1
        row.end(call.outcome or OPEN, call.queue_wait_ns)
