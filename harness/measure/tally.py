"""Counts of a whole trial, kept as calls end: what the tables of the worked example and the progress view show."""

from __future__ import annotations

from dataclasses import dataclass

from harness.ledger.call import Call
from harness.ledger.outcomes import ABANDONED, DROPPED, HELD_BACK, OPEN, REFUSED, SERVED


@dataclass(slots=True)
class TenantTally:
    """due: all that the tenant wanted. offered: what reached the service (due without held back and dropped)."""

    tenant: str
    due: int = 0
    served: int = 0
    refused: int = 0
    abandoned: int = 0
    replans: int = 0
    held_back: int = 0
    dropped: int = 0
    open: int = 0
    other: int = 0
    wait_ns: int = 0

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
        row = self.tenants[call.tenant_index]
        row.due += 1
        if call.round:
            row.replans += 1
        outcome = call.outcome
        if outcome == SERVED:
            row.served += 1
            if call.queue_wait_ns > 0:
                row.wait_ns += call.queue_wait_ns
        elif outcome in REFUSED:
            row.refused += 1
        elif outcome == ABANDONED:
            row.abandoned += 1
        elif outcome == HELD_BACK:
            row.held_back += 1
        elif outcome == OPEN:
            row.open += 1
        elif outcome == DROPPED:
            row.dropped += 1
        else:
            row.other += 1
