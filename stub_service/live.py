"""The shared service in real time: the pure `SharedService`, with a clock, timers, evidence and metrics. No HTTP.

Every event (arrival, end, deadline, hang-up, change of workers) is one step: it is applied, then whatever may start
starts, so that no worker idles while a call that may start waits. Each accepted call gets exactly one terminal row.

Instants are CLOCK_MONOTONIC inside and count from the epoch in evidence and answers, so that a new epoch moves nothing
that is under way.

A call that starts on a worker which was freed late ends at the instant at which it would have ended had the worker been
freed on time (corrected by at most a tenth of its service time): timers are always late and never early, and without
this the service would have a little less capacity than its configuration says. What callers and evidence are told is
what was measured, not what was planned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from stub_service.admission.policy import WAITING, Ticket
from stub_service.admission.service import SharedService
from stub_service.admission.shadow import Shadow, shadow_row
from stub_service.metrics import Metrics, TenantFigures
from stub_service.timers import Timer, Timers

# Order of timers due at one instant, as in the simulator: workers change, ends, deadlines.
_WORKERS, _END, _DEADLINE = range(1, 4)
_MOST_CORRECTED = 10

Record = Callable[[dict[str, Any]], None]


class Asked(NamedTuple):
    """What a request says of itself. deadline_ns: how long it may wait in the queue. claimed: the tenant that it claims
    to be of, in a header."""

    call: str | None
    attempt_id: str | None
    round: int | None
    deadline_ns: int | None
    cost: float
    claimed: str | None = None


class Told(NamedTuple):
    """What the caller is to be answered. hold_ns: not before this long (a defect)."""

    status: int
    body: dict[str, Any]
    queue_ns: int = 0
    service_ns: int = 0
    retry_after: str | None = None
    hold_ns: int = 0


class Accepted:
    """One accepted call. `answer` is set once; the caller may be gone by then."""

    __slots__ = ("answer", "asked", "deadline", "figures", "gone", "ticket")

    def __init__(self, ticket: Ticket, asked: Asked, figures: TenantFigures, answer: asyncio.Future[Told]) -> None:
        self.ticket = ticket
        self.asked = asked
        self.figures = figures
        self.answer = answer
        self.deadline: Timer | None = None
        self.gone = False


class LiveService:
    """Belongs to one event loop. `record` takes evidence rows."""

    def __init__(
        self, service: SharedService, timers: Timers, metrics: Metrics, record: Record, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.service = service
        self._timers = timers
        self._metrics = metrics
        self._record = record
        self._loop = loop
        self._open: set[Accepted] = set()
        self._changes: list[Timer] = []
        self._epoch_ns = 0
        self._stopped = False
        self._shadow = Shadow(service.shadow, self._tell_shadow) if service.shadow is not None else None
        self.set_epoch(time.monotonic_ns())

    def now_ns(self) -> int:
        """Nanoseconds since the epoch; negative before it."""
        return time.monotonic_ns() - self._epoch_ns

    def set_epoch(self, monotonic_ns: int) -> None:
        """The trial begins at this instant of CLOCK_MONOTONIC: evidence and changes of workers count from there."""
        self._epoch_ns = monotonic_ns
        if self._shadow is not None:
            self._shadow.set_epoch(monotonic_ns)
        for timer in self._changes:
            self._timers.cancel(timer)
        self._changes = [
            self._timers.at(monotonic_ns + at, _WORKERS, self._change_workers, None)
            for at in self.service.worker_changes()
        ]
        self._change_workers(None, 0, time.monotonic_ns())

    def arrive(self, tenant: str, asked: Asked) -> Told | Accepted:
        """A call at the door: an answer if it is refused, else something to wait for. tenant: of its credential."""
        now_ns = time.monotonic_ns()
        tenant = self.service.charge(tenant, asked.claimed)
        figures = self._metrics.of(tenant)
        figures.offered += 1
        if self._stopped:
            figures.failed += 1
            row = self._row(tenant, asked, "failed", now_ns)
            self._record(row | {"reason": "stub_stopped", "status": 503})
            return _stopped(tenant)
        if self._shadow is not None:
            self._shadow.arrive(tenant, asked.cost, asked, asked.deadline_ns, now_ns)
        ticket = Ticket(tenant, asked.cost, None)
        reason = self.service.offer(ticket, now_ns)
        if reason is not None:
            return self._refuse(ticket, asked, figures, reason, now_ns)
        accepted = ticket.ref = Accepted(ticket, asked, figures, self._loop.create_future())
        figures.waiting += 1
        self._open.add(accepted)
        self._write(accepted, "queued", now_ns)
        self._start_ready(now_ns, now_ns)
        if asked.deadline_ns is not None and ticket.state == WAITING:
            accepted.deadline = self._timers.at(now_ns + asked.deadline_ns, _DEADLINE, self._expire, accepted)
        return accepted

    def hang_up(self, accepted: Accepted) -> None:
        """The caller is gone. A waiting call leaves the queue; a running one runs on."""
        accepted.gone = True
        if self.service.leave(accepted.ticket):
            now_ns = time.monotonic_ns()
            accepted.figures.cancelled += 1
            self._left_queue(accepted)
            self._write(
                accepted, "cancelled", now_ns, reason="caller_gone", queue_wait_ns=now_ns - accepted.ticket.arrived_ns
            )

    def stop(self) -> None:
        """Ends every open call as `failed`, so that none is left without a terminal row."""
        self._stopped = True
        now_ns = time.monotonic_ns()
        for accepted in sorted(self._open, key=lambda accepted: accepted.ticket.arrived_ns):
            if self.service.leave(accepted.ticket):
                accepted.figures.waiting -= 1
            else:
                accepted.figures.running -= 1
            accepted.figures.failed += 1
            self._write(accepted, "failed", now_ns, reason="stub_stopped", status=self._status(accepted, 503))
            self._answer(accepted, _stopped(accepted.ticket.tenant))
        self._open.clear()

    def _refuse(self, ticket: Ticket, asked: Asked, figures: TenantFigures, reason: str, now_ns: int) -> Told:
        answer = self.service.refusal(ticket, reason)
        figures.refuse(reason)
        self._record(self._row(ticket.tenant, asked, "throttled", now_ns) | {"reason": reason, "status": answer.status})
        return Told(answer.status, answer.body, 0, 0, answer.retry_after, answer.delay_ns)

    def _start_ready(self, now_ns: int, due_ns: int) -> None:
        """due_ns: when the worker should have become free."""
        for ticket in self.service.start_ready(now_ns):
            accepted: Accepted = ticket.ref
            figures = accepted.figures
            figures.running += 1
            wait_ns = now_ns - ticket.arrived_ns
            figures.started_after(wait_ns)
            self._write(accepted, "started", now_ns, queue_wait_ns=wait_ns)
            self._left_queue(accepted, ended=False)
            begin_ns = max(due_ns, ticket.arrived_ns, now_ns - ticket.service_ns // _MOST_CORRECTED)
            self._timers.at(begin_ns + ticket.service_ns, _END, self._end, accepted)
            due_ns = now_ns

    def _end(self, accepted: Accepted, due_ns: int, now_ns: int) -> None:
        ticket, figures = accepted.ticket, accepted.figures
        if accepted not in self._open:
            return  # ended by `stop`
        self.service.finish(ticket)
        self._open.discard(accepted)
        figures.running -= 1
        figures.served += 1
        queue_ns, service_ns = ticket.started_ns - ticket.arrived_ns, now_ns - ticket.started_ns
        extra: dict[str, Any] = {"queue_wait_ns": queue_ns, "service_ns": service_ns}
        if accepted.gone:
            extra["reason"] = "caller_gone"
        else:
            extra["status"] = 200
        self._write(accepted, "served", now_ns, **extra)
        if self._shadow is not None:
            self._shadow.advance(now_ns)
        body = {"outcome": "served", "reason": None, "tenant": ticket.tenant}
        self._answer(accepted, Told(200, body, queue_ns, service_ns))
        self._start_ready(now_ns, due_ns)

    def _expire(self, accepted: Accepted, _due_ns: int, now_ns: int) -> None:
        ticket = accepted.ticket
        if not self.service.leave(ticket):
            return
        wait_ns = now_ns - ticket.arrived_ns
        accepted.figures.expired += 1
        self._left_queue(accepted)
        self._write(accepted, "expired", now_ns, reason="queue_deadline", queue_wait_ns=wait_ns, status=504)
        body = {"outcome": "expired", "reason": "queue_deadline", "tenant": ticket.tenant}
        self._answer(accepted, Told(504, body, wait_ns))

    def _change_workers(self, _: None, _due_ns: int, now_ns: int) -> None:
        self.service.set_time(now_ns - self._epoch_ns)
        self._start_ready(now_ns, now_ns)

    def _left_queue(self, accepted: Accepted, ended: bool = True) -> None:
        accepted.figures.waiting -= 1
        accepted.ticket.ref = None  # no cycle stays: full collections are rare
        if accepted.deadline is not None:
            self._timers.cancel(accepted.deadline)
            accepted.deadline = None
        if ended:
            self._open.discard(accepted)

    def _answer(self, accepted: Accepted, told: Told) -> None:
        if not accepted.answer.done():
            accepted.answer.set_result(told)

    def _status(self, accepted: Accepted, status: int) -> int | None:
        return None if accepted.gone else status

    def _write(self, accepted: Accepted, outcome: str, now_ns: int, **extra: Any) -> None:
        row = self._row(accepted.ticket.tenant, accepted.asked, outcome, now_ns)
        for key, value in extra.items():
            if value is not None:
                row[key] = value
        self._record(row)

    def _tell_shadow(self, ticket: Ticket, outcome: str, reason: str | None, at_ns: int) -> None:
        about, policy = _about(ticket.tenant, ticket.ref), self.service.shadow_policy
        self._record(shadow_row(at_ns - self._epoch_ns, about, policy, ticket, outcome, reason))

    def _row(self, tenant: str, asked: Asked, outcome: str, now_ns: int) -> dict[str, Any]:
        service = self.service
        row: dict[str, Any] = {"t_ns": now_ns - self._epoch_ns, **_about(tenant, asked), "outcome": outcome}
        row["waiting"] = service.policy.waiting
        row["running"] = service.running
        row["workers"] = service.workers
        return row


def _about(tenant: str, asked: Asked) -> dict[str, Any]:
    """Which call a row is about."""
    about: dict[str, Any] = {}
    if asked.call is not None:
        about["call"] = asked.call
    if asked.attempt_id is not None:
        about["attempt_id"] = asked.attempt_id
    about["tenant"] = tenant
    if asked.round is not None:
        about["round"] = asked.round
    return about


def _stopped(tenant: str) -> Told:
    return Told(503, {"outcome": "failed", "reason": "stub_stopped", "tenant": tenant})
