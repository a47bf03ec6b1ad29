"""Shadow mode: what another policy would have decided about the same arrivals, recorded and never enforced.

A second `SharedService`, with the shadow's policy, workers and service times of its own (drawn as the first one would
draw them), is fed each arrival and runs in virtual time beside the real one. It has its own tickets and queues, and is
only ever told: nothing that it does can reach a decision.

What it cannot know: how callers would have answered to its refusals. Re-plans follow what was really decided, and a
call leaves the shadow's queue when its deadline passes there, as far as one was told.

Instants as in the simulator: of one instant first ends and deadlines, then arrivals, then starts. So whatever starts at
an instant is known only once a later one is heard of.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from stub_service.admission.policy import Ticket
from stub_service.admission.service import SharedService

_WORKERS, _END, _DEADLINE = range(3)
NEVER_YET = -(2**63)

Tell = Callable[[Ticket, str, str | None, int], None]
"""(ticket, outcome, reason, instant [ns]): `throttled`, `expired` or `served`, the last at its start. Once a call; one
that still waits when the trial ends is not told of."""


def shadow_row(
    t_ns: int, about: dict[str, Any], policy: str, ticket: Ticket, outcome: str, reason: str | None
) -> dict[str, Any]:
    """A row of decisions.jsonl. about: which call it was."""
    row = {"t_ns": t_ns, **about, "part": "shadow", "policy": policy, "outcome": outcome}
    if reason is not None:
        row["reason"] = reason
    if outcome == "served":
        row["queue_wait_ns"] = ticket.started_ns - ticket.arrived_ns
    return row


class Shadow:
    """service: the one that decides nothing. epoch_ns: where its configuration's instants count from."""

    def __init__(self, service: SharedService, tell: Tell, epoch_ns: int = 0) -> None:
        self.service = service
        self._tell = tell
        self._heap: list[tuple[int, int, int, Any]] = []
        self._order = 0
        self._now = NEVER_YET
        self._epoch_ns = epoch_ns
        self.set_epoch(epoch_ns)

    def set_epoch(self, epoch_ns: int) -> None:
        """Changes of workers count from here; nothing that is under way moves."""
        self._epoch_ns = epoch_ns
        self._heap = [event for event in self._heap if event[1] != _WORKERS]
        self._heap += [(epoch_ns + at, _WORKERS, 0, None) for at in self.service.worker_changes()]
        heapq.heapify(self._heap)

    def arrive(self, tenant: str, cost: float, ref: Any, deadline_ns: int | None, now_ns: int) -> None:
        """deadline_ns: how long the call may wait; None: for ever. Instants must never decrease."""
        self.advance(now_ns)
        ticket = Ticket(tenant, cost, ref)
        reason = self.service.offer(ticket, now_ns)
        if reason is not None:
            self._tell(ticket, "throttled", reason, now_ns)
        elif deadline_ns is not None:
            self._push(now_ns + max(1, deadline_ns), _DEADLINE, ticket)

    def advance(self, now_ns: int) -> None:
        """Everything before `now_ns` happens, and of that instant what comes before arrivals."""
        heap = self._heap
        while self._now < now_ns:
            self._start(self._now)
            self._now = min(heap[0][0], now_ns) if heap else now_ns
            while heap and heap[0][0] <= self._now:
                self._happen(*heapq.heappop(heap))

    def _happen(self, at_ns: int, kind: int, _: int, ticket: Any) -> None:
        if kind == _WORKERS:
            self.service.set_time(at_ns - self._epoch_ns)
        elif kind == _END:
            self.service.finish(ticket)
        elif self.service.leave(ticket):
            self._tell(ticket, "expired", "queue_deadline", at_ns)

    def _start(self, now_ns: int) -> None:
        for ticket in self.service.start_ready(now_ns):
            self._tell(ticket, "served", None, now_ns)
            self._push(now_ns + ticket.service_ns, _END, ticket)

    def _push(self, at_ns: int, kind: int, ticket: Ticket) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at_ns, kind, self._order, ticket))
