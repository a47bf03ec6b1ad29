"""One policy over recorded calls in virtual time: the very service of the stub, without callers that react.

    play(traffic, config) -> for each call: served, refused or abandoned, and how long it waited

Same order within an instant as the simulator (harness/simulate/driver.py): ends, abandonments, arrivals, starts; a test
holds the two against each other. Deterministic. Never re-plans: what callers would have done otherwise is not in a log.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stub_service.admission.policy import WAITING, Ticket
from stub_service.admission.service import SharedService
from stub_service.config import AdmissionConfig, ServiceTimeConfig, SharedServiceConfig

Ints = npt.NDArray[np.int64]

SERVED, REFUSED, ABANDONED = 0, 1, 2
NEVER = 2**63 - 1
MOST_WAIT_NS = 10**17
"""Three years: a longer wait is shown as that. Sums of waits stay far from where 64 bits end."""


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """One place a call. wait_ns: in the queue, until it started or was abandoned; 0 if it was refused.

    given_up: it was stopped before the end because `enough` said so; the columns are then no result.
    """

    outcome: npt.NDArray[np.uint8]
    wait_ns: Ints
    peak_waiting: int
    given_up: bool = False


def service_of(admission: AdmissionConfig, workers: int) -> SharedServiceConfig:
    """A service whose calls say how long each takes: their cost is in nanoseconds."""
    time = ServiceTimeConfig(distribution="recorded_cost", per_unit_ns=1)
    return SharedServiceConfig(((0, workers),), time, admission)


def play(
    tenants: Sequence[str],
    tenant: Sequence[int],
    due_ns: Sequence[int],
    service_ns: Sequence[int],
    config: SharedServiceConfig,
    patience_ns: int | None = None,
    enough: Callable[[int, int], bool] | None = None,
) -> Played:
    """due_ns never decreases. enough(tenant, outcome) is told of each loss; true ends it there.

    patience_ns: how long a caller waits to be started; None: for ever.
    """
    service = SharedService(config)
    policy, offer, finish, start_ready = service.policy, service.offer, service.finish, service.start_ready
    push, pop = heapq.heappush, heapq.heappop
    n = len(due_ns)
    outcome, wait = bytearray(n), array("q", bytes(8 * n))
    ends: list[tuple[int, int, Ticket]] = []
    patient: deque[Ticket] = deque()
    at = order = peak = 0
    next_due = due_ns[0] if n else NEVER
    while at < n or ends:
        now = ends[0][0] if ends and ends[0][0] <= next_due else next_due
        while ends and ends[0][0] == now:
            finish(pop(ends)[2])
        if patience_ns is not None:
            while patient and patient[0].arrived_ns + patience_ns <= now:
                ticket = patient.popleft()
                if ticket.state == WAITING:
                    service.leave(ticket)
                    outcome[ticket.ref] = ABANDONED
                    wait[ticket.ref] = patience_ns
                    if enough is not None and enough(tenant[ticket.ref], ABANDONED):
                        return _given_up(outcome, wait)
        while next_due == now:
            ticket = Ticket(tenants[tenant[at]], service_ns[at], at)
            if offer(ticket, now) is None:
                if patience_ns is not None:
                    patient.append(ticket)
            else:
                outcome[at] = REFUSED
                if enough is not None and enough(tenant[at], REFUSED):
                    return _given_up(outcome, wait)
            at += 1
            next_due = due_ns[at] if at < n else NEVER
        if policy.waiting:
            for ticket in start_ready(now):
                order += 1
                push(ends, (now + ticket.service_ns, order, ticket))
                if now != ticket.arrived_ns:
                    wait[ticket.ref] = min(now - ticket.arrived_ns, MOST_WAIT_NS)
            peak = max(peak, policy.waiting)
    return Played(np.frombuffer(outcome, dtype=np.uint8), np.frombuffer(wait, dtype=np.int64), peak)


def _given_up(outcome: bytearray, wait: array[int]) -> Played:
    return Played(np.frombuffer(outcome, dtype=np.uint8), np.frombuffer(wait, dtype=np.int64), 0, given_up=True)


def most_at_once(due_ns: Ints, service_ns: Ints) -> int:
    """Workers that would be busy at once if nobody ever waited: with so many, nobody does."""
    if not len(due_ns):
        return 0
    ends = np.sort(due_ns + service_ns)
    begun = np.arange(1, len(due_ns) + 1)
    return int((begun - np.searchsorted(ends, due_ns, side="right")).max())
