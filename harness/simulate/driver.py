"""The shared service and its callers in virtual time: an event loop over the very objects that run live.

Deterministic: same profile and seed, same calls in the same order. Events of one instant happen in this order, then by
sequence (tenants in the order of the profile):

    workers change, ends, abandonments, re-plans, arrivals, starts
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from harness.ledger.call import Call
from harness.ledger.outcomes import ABANDONED, FAILED, OPEN, SERVED, THROTTLED
from harness.profile.model import Profile
from harness.simulate.service import shared_service
from harness.workload.callers import NEVER, Caller
from harness.workload.claims import claimed_by
from harness.workload.plan import RecordedSource, no_recordings, service_caller
from stub_service.admission.policy import GONE, RUNNING, WAITING, Ticket
from stub_service.admission.service import SharedService
from stub_service.admission.shadow import Shadow, Tell
from stub_service.defects import registry as defects

_WORKERS, _END, _ANSWER, _ABANDON, _REPLAN, _ARRIVE = range(6)

CallSink = Callable[[Call], None]
"""Told of each call once, when it has ended (`outcome` and `done_ns` are set)."""

DecisionSink = Callable[[SharedService, Ticket, str, str | None, int], None]
"""Told of each decision: service, ticket, outcome (`queued`, `started`, `served`, ...), reason, now_ns."""


class Simulation:
    """One trial in virtual time. `run` may be called once. leftovers: what the service still holds; nothing is kept
    there that could leak."""

    leftovers: dict[str, Any] | None = None

    def __init__(
        self,
        profile: Profile,
        on_call: CallSink,
        on_decision: DecisionSink | None = None,
        recorded: RecordedSource = no_recordings,
        defect: str | None = None,
        on_shadow: Tell | None = None,
    ) -> None:
        config = shared_service(profile)
        self._service = SharedService(config)
        of_caller = defect is not None and defects.named(defect).part == defects.CALLER
        if defect is not None and not of_caller:
            defects.lay(defect, self._service, config)
        shadow = self._service.shadow
        self._shadow = Shadow(shadow, on_shadow) if shadow is not None and on_shadow is not None else None
        names = enumerate(profile.tenants)
        self._callers: list[Caller] = [service_caller(profile, name, index, recorded) for index, name in names]
        if defect is not None and of_caller:
            defects.lay(defect, self._callers, profile)
        self._patience = [profile.patience_of(name) for name in profile.tenants]
        self._claims = [tenant.claims for tenant in profile.tenants.values()]
        self._until_start = profile.patience_until == "start"
        self._limit_ns = profile.duration + profile.drain
        self._on_call = on_call
        self._on_decision = on_decision
        self._heap: list[tuple[int, int, int, Any]] = []
        self._order = 0
        self._replan_at = [NEVER] * len(self._callers)

    def run(self) -> int:
        """Runs the trial to its last event, or to the drain limit. Returns the instant [ns] at which it ended."""
        heap, service = self._heap, self._service
        for at in service.worker_changes():
            heapq.heappush(heap, (at, _WORKERS, 0, None))
        for caller in self._callers:
            if caller.next_arrival_ns != NEVER:
                heapq.heappush(heap, (caller.next_arrival_ns, _ARRIVE, caller.index, caller))
        now = 0
        handlers = (self._workers, self._end, self._answer, self._abandon, self._replan, self._arrive)
        pop, policy = heapq.heappop, service.policy
        while heap:
            now = heap[0][0]
            if now > self._limit_ns:
                now = self._limit_ns
                break
            while heap and heap[0][0] == now:
                _, kind, _, subject = pop(heap)
                handlers[kind](subject, now)
            if policy.waiting:
                self._start(now)
        if self._shadow is not None:
            self._shadow.advance(now + 1)
        self._leave_open(now)
        return now

    def _workers(self, _: None, now: int) -> None:
        self._service.set_time(now)

    def _arrive(self, caller: Caller, now: int) -> None:
        call = caller.take_arrival()
        if caller.next_arrival_ns != NEVER:
            heapq.heappush(self._heap, (caller.next_arrival_ns, _ARRIVE, caller.index, caller))
        self._send(caller, call, now)

    def _replan(self, caller: Caller, now: int) -> None:
        if now != self._replan_at[caller.index]:
            return  # something was planned earlier in the meantime
        call = caller.take_replan()
        self._replan_at[caller.index] = caller.next_replan_ns
        if caller.next_replan_ns != NEVER:
            heapq.heappush(self._heap, (caller.next_replan_ns, _REPLAN, caller.index, caller))
        self._send(caller, call, now)

    def _send(self, caller: Caller, call: Call, now: int) -> None:
        if call.outcome is not None:  # held back by its own budget
            self._on_call(call)
            return
        call.sent_ns = now
        claims, patience = self._claims[caller.index], self._patience[caller.index]
        charged = self._service.charge(call.tenant, claimed_by(call, claims) if claims is not None else None)
        if self._shadow is not None:
            self._shadow.arrive(charged, call.cost, call, patience, now)
        ticket = Ticket(charged, call.cost, call)
        reason = self._service.offer(ticket, now)
        if reason is not None:
            self._refuse(call, ticket, reason, now)
            return
        if self._on_decision:
            self._on_decision(self._service, ticket, "queued", None, now)
        if patience is not None:
            self._order += 1
            heapq.heappush(self._heap, (now + patience, _ABANDON, self._order, ticket))

    def _refuse(self, call: Call, ticket: Ticket, reason: str, now: int) -> None:
        answer = self._service.refusal(ticket, reason)
        call.status, call.retry_after, call.typed = answer.status, answer.retry_after, answer.typed
        if self._on_decision:
            self._on_decision(self._service, ticket, THROTTLED, reason, now)
        throttled = answer.status == 429
        call.reason = reason if throttled else f"status_{answer.status}"
        if answer.delay_ns:
            self._order += 1
            heapq.heappush(self._heap, (now + answer.delay_ns, _ANSWER, self._order, call))
        else:
            self._finish(call, THROTTLED if throttled else FAILED, now)

    def _answer(self, call: Call, now: int) -> None:
        """A refusal that was held back (a defect) is given at last."""
        self._finish(call, THROTTLED if call.status == 429 else FAILED, now)

    def _start(self, now: int) -> None:
        heap, push = self._heap, heapq.heappush
        for ticket in self._service.start_ready(now):
            if self._on_decision:
                self._on_decision(self._service, ticket, "started", None, now)
            self._order += 1
            push(heap, (now + ticket.service_ns, _END, self._order, ticket))

    def _end(self, ticket: Ticket, now: int) -> None:
        self._service.finish(ticket)
        if self._on_decision:
            self._on_decision(self._service, ticket, SERVED, None, now)
        call: Call = ticket.ref
        if call.outcome is None:
            call.queue_wait_ns = ticket.started_ns - ticket.arrived_ns
            call.service_ns = ticket.service_ns
            call.status = 200
            self._finish(call, SERVED, now)

    def _abandon(self, ticket: Ticket, now: int) -> None:
        state = ticket.state
        if state == GONE or (state == RUNNING and self._until_start):
            return
        call: Call = ticket.ref
        if self._service.leave(ticket) and self._on_decision:
            told = ("expired", "queue_deadline") if self._until_start else ("cancelled", "caller_gone")
            self._on_decision(self._service, ticket, *told, now)
        call.reason = "patience"
        if state == WAITING:
            call.queue_wait_ns = now - ticket.arrived_ns
        self._finish(call, ABANDONED, now)

    def _finish(self, call: Call, outcome: str, now: int) -> None:
        call.outcome, call.done_ns = outcome, now
        caller = self._callers[call.tenant_index]
        caller.on_outcome(call)
        if caller.next_replan_ns < self._replan_at[caller.index]:
            self._replan_at[caller.index] = caller.next_replan_ns
            heapq.heappush(self._heap, (caller.next_replan_ns, _REPLAN, caller.index, caller))
        self._on_call(call)

    def _leave_open(self, now: int) -> None:
        """Whatever has not ended by the drain limit ends `open`, in order of due."""
        left = [subject.ref for _, kind, _, subject in self._heap if kind == _END and subject.ref.outcome is None]
        left += [subject for _, kind, _, subject in self._heap if kind == _ANSWER]
        while (ticket := self._take_waiting()) is not None:
            left.append(ticket.ref)
        for call in sorted(left, key=lambda call: (call.due_ns, call.tenant_index, call.seq)):
            call.outcome, call.reason, call.done_ns = OPEN, "drain_limit", now
            self._on_call(call)

    def _take_waiting(self) -> Ticket | None:
        return self._service.policy.take() if self._service.policy.waiting else None
