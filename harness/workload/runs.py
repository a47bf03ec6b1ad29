"""The callers of a capacity layer: agent runs that open, submit batches, re-plan, start sub-agents, and finish.

An event object without a clock, driven like any other caller (source.py). One run:

    open -> its children open and its batches are submitted: one after another, or all at once (`parallel`)
         -> after a batch that was not all served: the re-plan batch, `after` later, round + 1, for `rounds` rounds
         -> once its batches and its children have ended: finish

- Runs begin as their group says, none at or after `end_ns`. What has begun is driven to its end, past `end_ns` too.
- A run that was not opened, or was answered without an id, is over: there is nothing to submit to.
- Children are opened first, and the first batch is submitted once each of those opens has ended.
- A batch that ends `cancelled` or `needs_person` is the last: the agent stops there, and finishes. Whatever else it
  ends with, the agent goes on with its plan: that the service must bear.
- `cancel_after` cancels the run from outside. The agent does not know, and goes on until the service tells it so: what
  the service then lets through is follow-up work after a cancellation. A cancelled run is not finished by its caller.
- `crash_after` lets the agent vanish: from then on its run asks for nothing, its sub-agents neither, and nobody
  finishes it. What is in flight then ends unheard.
- Ids are a matter of place alone: batch `b0`, its re-plans `b0.r1`, ..., steps `b0.0`, ... A write's key (`auto`) is
  run id and step, one for each logical step, whatever the attempt.
- In the ledger: an open of a tenant's own is original work (round 0, no parent). Every other call names as its parent
  the open call of its run (of its parent's run, for a child's open), and `run` is the sequence of its run's open.
- What is due at one instant comes in the order in which it was planned, new runs last.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from random import Random
from typing import Any, Literal

import orjson

from harness.ledger.call import Call
from harness.ledger.outcomes import CANCELLED, COALESCED, FAILED, NEEDS_PERSON, SERVED
from harness.profile.capacity import Batch, Child, Envelope, RunGroup, Step
from harness.workload import pacers
from harness.workload.callers import NEVER

OPEN_RUN, SUBMIT, CANCEL, FINISH = "open", "submit", "cancel", "finish"
ALL_SERVED = frozenset((SERVED, COALESCED))
LAST_WORD = frozenset((CANCELLED, NEEDS_PERSON))
"""Outcomes of a batch after which an agent submits nothing more."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,99}")


AUTO_KEY, NO_KEY = "auto", "none"


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one run does: a group's own runs, or a child's. batches: each with its steps as they are sent, the key still
    as the profile says it."""

    open_body: dict[str, Any]
    batches: tuple[tuple[dict[str, Any], ...], ...]
    parallel: bool = False
    replan: tuple[dict[str, Any], ...] = ()
    replan_after_ns: int = 0
    replan_rounds: int = 0
    cancel_after_ns: int = -1
    crash_after_ns: int = -1
    children: tuple[_Plan, ...] = ()


@dataclass(slots=True, eq=False)
class _Run:
    """One run while it lasts. left: its calls in flight or planned (a planned cancel left out), and its children that
    are not over. opening: children whose open call has not ended. run_id: empty until it is open. gone_ns: when its
    agent vanishes."""

    plan: _Plan
    parent: _Run | None = None
    open_seq: int = -1
    run_id: str = ""
    opening: int = 0
    next_batch: int = 0
    left: int = 0
    stopped: bool = False
    cancelled: bool = False
    finishing: bool = False
    gone_ns: int = NEVER

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.gone_ns = self.parent.gone_ns


@dataclass(order=True, slots=True)
class _Event:
    """A call that is planned. order: among those of one instant."""

    due_ns: int
    order: int
    action: str = field(compare=False)
    run: _Run = field(compare=False)
    batch: int = field(default=-1, compare=False)
    round: int = field(default=0, compare=False)


class RunCaller:
    """One tenant's agents. pace, phase_ns: of groups that begin with a rate; `poisson` draws from `rng`. finishes:
    whether the service is told that a run is over; not every service can be."""

    __slots__ = ("_begins", "_events", "_in_flight", "_order", "_seq", "finishes", "index", "tenant")

    def __init__(
        self,
        tenant: str,
        index: int,
        groups: Sequence[RunGroup],
        end_ns: int,
        rng: Random,
        pace: Literal["even", "poisson"] = "even",
        phase_ns: int = 0,
    ) -> None:
        self.tenant = tenant
        self.index = index
        self.finishes = True
        self._seq = 0
        self._order = 0
        self._events: list[_Event] = []
        self._in_flight: dict[int, _Event] = {}
        self._begins: list[tuple[int, int, Iterator[int], _Plan]] = []
        for place, begins in enumerate(begins_of(groups, end_ns, rng, pace, phase_ns)):
            self._begin_next(place, begins, _plan_of(groups[place]))

    @property
    def next_ns(self) -> int:
        planned = self._events[0].due_ns if self._events else NEVER
        return min(planned, self._begins[0][0]) if self._begins else planned

    def on_due(self, now_ns: int) -> list[Call]:
        calls = []
        while self.next_ns <= now_ns:
            calls.append(self.take())
        return calls

    def take(self) -> Call:
        """The call due at `next_ns`."""
        if self._events and (not self._begins or self._events[0].due_ns <= self._begins[0][0]):
            event = heapq.heappop(self._events)
            event.run.left += event.action == CANCEL
        else:
            due_ns, place, begins, plan = heapq.heappop(self._begins)
            self._begin_next(place, begins, plan)
            event = _Event(due_ns, 0, OPEN_RUN, _Run(plan, left=1))
            if plan.crash_after_ns >= 0:
                event.run.gone_ns = due_ns + plan.crash_after_ns
        self._forget_cancels()
        call = self._call(event)
        self._in_flight[call.seq] = event
        return call

    def on_outcome(self, call: Call) -> None:
        """The end of a call leads to what comes next in its run."""
        event = self._in_flight.pop(call.seq)
        run = event.run
        if event.action == OPEN_RUN:
            self._opened(run, call)
        elif event.action == SUBMIT:
            self._submitted(event, call)
        elif event.action == CANCEL:
            run.cancelled = call.outcome in ALL_SERVED
        self._one_less(run, call.done_ns)
        self._forget_cancels()

    def _begin_next(self, place: int, begins: Iterator[int], plan: _Plan) -> None:
        due_ns = next(begins, None)
        if due_ns is not None:
            heapq.heappush(self._begins, (due_ns, place, begins, plan))

    def _plan(self, due_ns: int, action: str, run: _Run, batch: int = -1, round_: int = 0) -> None:
        if due_ns >= run.gone_ns:
            return
        self._order += 1
        run.left += action != CANCEL
        heapq.heappush(self._events, _Event(due_ns, self._order, action, run, batch, round_))

    def _forget_cancels(self) -> None:
        """A run that finishes first is not cancelled any more."""
        while self._events and self._events[0].action == CANCEL and self._events[0].run.finishing:
            heapq.heappop(self._events)

    def _opened(self, run: _Run, call: Call) -> None:
        now_ns = call.done_ns
        if call.outcome == SERVED:
            run_id = call.answer.get("run") if call.answer else None
            if isinstance(run_id, str) and _RUN_ID.fullmatch(run_id):
                run.run_id = call.run_id = run_id
                self._start_children(run, now_ns)
                if run.plan.cancel_after_ns >= 0:
                    self._plan(max(now_ns, call.due_ns + run.plan.cancel_after_ns), CANCEL, run)
            else:
                call.outcome, call.reason = FAILED, "no_run_id"
        if run.parent is not None:
            run.parent.opening -= 1
            if not run.parent.opening:
                self._start_batches(run.parent, now_ns)

    def _start_children(self, run: _Run, now_ns: int) -> None:
        """They are opened before the first batch is submitted: what they carve out is then the same, live or not."""
        for plan in run.plan.children if now_ns < run.gone_ns else ():
            run.left += 1
            run.opening += 1
            self._plan(now_ns, OPEN_RUN, _Run(plan, parent=run))
        if not run.opening:
            self._start_batches(run, now_ns)

    def _start_batches(self, run: _Run, now_ns: int) -> None:
        self._next_batch(run, now_ns)
        while run.plan.parallel and run.next_batch < len(run.plan.batches):
            self._next_batch(run, now_ns)

    def _next_batch(self, run: _Run, now_ns: int) -> None:
        if run.next_batch < len(run.plan.batches):
            run.next_batch += 1
            self._plan(now_ns, SUBMIT, run, run.next_batch - 1)

    def _submitted(self, event: _Event, call: Call) -> None:
        run, plan, outcome = event.run, event.run.plan, call.outcome
        if outcome in LAST_WORD:
            run.stopped = True
        if run.stopped:
            return
        if outcome not in ALL_SERVED and event.round < plan.replan_rounds:
            self._plan(call.done_ns + plan.replan_after_ns, SUBMIT, run, event.batch, event.round + 1)
        else:
            self._next_batch(run, call.done_ns)

    def _one_less(self, run: _Run, now_ns: int) -> None:
        """A call or a child of the run has ended; after the last of them it finishes, and with that it is over."""
        run.left -= 1
        if run.left:
            return
        if run.run_id and not run.cancelled and not run.finishing and now_ns < run.gone_ns:
            run.finishing = True
            if self.finishes:
                self._plan(now_ns, FINISH, run)
            elif run.parent is not None:
                self._one_less(run.parent, now_ns)
        elif run.parent is not None:
            self._one_less(run.parent, now_ns)

    def _call(self, event: _Event) -> Call:
        run, seq = event.run, self._seq
        self._seq += 1
        if event.action == OPEN_RUN:
            run.open_seq = seq
            parent = run.parent
            call = Call(self.tenant, self.index, seq, event.due_ns, 0, seq, self._id(parent) if parent else None)
            call.path = "/runs"
            body = {**run.plan.open_body, "parent_run": parent.run_id} if parent else run.plan.open_body
        else:
            call = Call(self.tenant, self.index, seq, event.due_ns, event.round, run.open_seq, self._id(run))
            call.run_id = run.run_id
            call.path = f"/runs/{run.run_id}/{'steps' if event.action == SUBMIT else event.action}"
            body = _batch_body(event) if event.action == SUBMIT else {}
        call.method, call.action, call.body = "POST", event.action, orjson.dumps(body)
        return call

    def _id(self, run: _Run) -> str:
        return f"{self.index}.{run.open_seq}"


def begins_of(
    groups: Sequence[RunGroup], end_ns: int, rng: Random, pace: Literal["even", "poisson"] = "even", phase_ns: int = 0
) -> list[Iterator[int]]:
    """When the runs of each group begin [ns], all before `end_ns`."""
    return [_begins(group, end_ns, Random(f"{rng.random()}:{group.name}"), pace, phase_ns) for group in groups]


def _begins(group: RunGroup, end_ns: int, rng: Random, pace: str, phase_ns: int) -> Iterator[int]:
    if group.rate is None:
        at = group.at or 0
        return repeat(at, group.count if at < end_ns else 0)
    segment = (group.from_ns or 0, min(end_ns, group.to_ns if group.to_ns is not None else end_ns), group.rate)
    return pacers.poisson([segment], rng, phase_ns) if pace == "poisson" else pacers.even([segment], phase_ns)


def _plan_of(group: RunGroup) -> _Plan:
    again = group.replans
    return _Plan(
        open_body={**_open_body(group, group.name, group.envelope), **_cost_told(group)},
        batches=tuple(_steps(batch) for batch in group.batches),
        parallel=group.parallel,
        replan=_steps(again.batch) if again else (),
        replan_after_ns=again.after if again else 0,
        replan_rounds=again.rounds if again else 0,
        cancel_after_ns=group.cancel_after if group.cancel_after is not None else -1,
        crash_after_ns=group.crash_after if group.crash_after is not None else -1,
        children=tuple(_child(group, child) for child in group.children for _ in range(child.count)),
    )


def _child(group: RunGroup, child: Child) -> _Plan:
    body = _open_body(group, f"{group.name}.child", child.envelope)
    return _Plan(
        open_body=body,
        batches=tuple(_steps(batch) for batch in child.batches),
        children=tuple(_child(group, below) for below in child.children for _ in range(below.count)),
    )


def _open_body(group: RunGroup, task_class: str, envelope: Envelope) -> dict[str, Any]:
    body: dict[str, Any] = {"traffic_class": group.traffic_class, "task_class": task_class, "priority": group.priority}
    if envelope.deadline is not None:
        whole, rest = divmod(envelope.deadline, 1_000_000)
        body["deadline_ms"] = envelope.deadline / 1e6 if rest else whole
    limits = {name: getattr(envelope, name) for name in ("attempts", "parallel", "retry_tokens", "budgets")}
    return {**body, **{name: limit for name, limit in limits.items() if limit is not None}, **envelope.tree}


def _cost_told(group: RunGroup) -> dict[str, Any]:
    """What the agent says of the run's cost; nothing unless the profile does."""
    told: dict[str, Any] = {"request_class": group.request_class} if group.request_class is not None else {}
    if group.forecast is not None:
        told["forecast"] = {name: getattr(group.forecast, name) for name in ("depth", "fan_out", "tools", "memory")}
    return told


def _steps(batch: Batch) -> tuple[dict[str, Any], ...]:
    return tuple(_step(step) for step in batch.steps for _ in range(step.repeat))


def _step(step: Step) -> dict[str, Any]:
    wish: dict[str, Any] = {"dependency": step.dependency, "operation": step.operation, "tool": step.tool}
    if step.key == AUTO_KEY:
        if step.operation == "write":
            wish["idempotency_key"] = AUTO_KEY
    elif step.key != NO_KEY:
        wish["idempotency_key"] = step.key
    if step.coalesce is not None:
        wish["coalesce"] = step.coalesce
    if not step.may_wait:
        wish["may_wait"] = False
    if step.high_risk:
        wish["high_risk"] = True
    return wish


def _batch_body(event: _Event) -> dict[str, Any]:
    run, name = event.run, f"b{event.batch}"
    wishes = run.plan.batches[event.batch]
    if event.round:
        name, wishes = f"{name}.r{event.round}", run.plan.replan
    steps = []
    for place, wish in enumerate(wishes):
        step = {"step": f"{name}.{place}", **wish}
        if step.get("idempotency_key") == AUTO_KEY:
            step["idempotency_key"] = f"{run.run_id}/{name}.{place}"
        steps.append(step)
    return {"batch": name, "round": event.round, "wait": True, "steps": steps}
