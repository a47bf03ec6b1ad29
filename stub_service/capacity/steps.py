"""The way of one step: admission, the call, what an ambiguous write left behind, a retry, and exactly one end.

    waits in its run (parallel) -> follows an equal read? -> circuit, capacity (waits for a slot) -> the call
      -> answered well: served
      -> a write that may have been committed: read-back first; committed: served, unknown: needs_person or failed
      -> the retry owner says when: waits, asks for capacity again, calls again; or says no: failed, throttled

A step whose deadline passes, or whose run is cancelled, while it waits for anything ends there; one that is on its way
ends with its call, and nothing follows. Whatever happens, also when the caller is cancelled at any await, its slot is
given back, and its reservation if it never started.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable

from stub_service.capacity.attempt import answered_well, blames, failure_reason, pause, send
from stub_service.capacity.bulkhead import Bulkhead
from stub_service.capacity.coalesce import Coalescer, Flight, Key
from stub_service.capacity.costs import CostControl
from stub_service.capacity.dispatch import DISPLACED, GO, Dispatcher, Refusal
from stub_service.capacity.ports import WRITE, CallDependency, DependencyAnswer, StepResult
from stub_service.capacity.readback import COMMITTED, NOT_COMMITTED, UNKNOWN, ReadBack
from stub_service.capacity.records import WILL_RETRY
from stub_service.capacity.retry import Failed, RetryOwner
from stub_service.capacity.retry_after import stated_wait_ns
from stub_service.capacity.runs import (
    BUDGET_EXHAUSTED,
    CANCELLED,
    COALESCED,
    EXPIRED,
    FAILED,
    GOOD,
    NEEDS_PERSON,
    OPEN,
    QUEUED,
    SERVED,
    THROTTLED,
    LiveStep,
    Run,
    user_status,
)

LANDED = "landed"


class StepFlow:
    """Its parts are attributes, so that each can be replaced: `dispatch`, `retry`, `coalescer`, `readback`, `call`;
    and so is each of its public methods."""

    def __init__(
        self,
        dispatch: Dispatcher,
        retry: RetryOwner,
        coalescer: Coalescer,
        call: CallDependency,
        now_ns: Callable[[], int],
    ) -> None:
        self.dispatch = dispatch
        self.events = dispatch.events
        self.retry = retry
        self.coalescer = coalescer
        self.now_ns = now_ns
        self.call = call
        self.readback = ReadBack(dispatch, retry, lambda: self.call, now_ns)
        self.costs: CostControl | None = None

    async def run(self, live: LiveStep) -> StepResult:
        """From admission to the end; the batch has been paid for."""
        run = live.run
        run.active[live] = None
        try:
            if run.in_flight < run.parallel and not run.waiting:
                run.in_flight += 1
                live.permit = True
            else:
                stopped = await self._wait_in_run(live)
                if stopped:
                    return stopped
            key = self.coalescer.key(run.tenant, live.step)
            return await (self._admitted(live) if key is None else self._shared(live, key))
        except CancelledError:
            self._abandoned(live, CANCELLED, "caller_gone")
            raise
        except Exception:
            self._abandoned(live, FAILED, "controller_error")
            raise
        finally:
            run.active.pop(live, None)
            if live.permit:
                run.in_flight -= 1
            if run.waiting:
                self._next_in_run(run)
            if run.account is not None and self.costs is not None:
                self.costs.seen(run, self.now_ns())
            if run.branch is not None and run.state != OPEN and not run.active:
                run.branch.end()

    async def _wait_in_run(self, live: LiveStep) -> StepResult | None:
        run = live.run
        run.waiting.append(live)
        try:
            signal = await pause(live, run.deadline_ns, self.now_ns)
        finally:
            if live in run.waiting:
                run.waiting.remove(live)
        return self.stopped(live, signal)

    def _next_in_run(self, run: Run) -> None:
        while run.waiting and run.in_flight < run.parallel:
            first = run.waiting.popleft()
            if first.wake(GO):  # the permit is its own from now on, so that nobody slips in before it runs
                first.permit = True
                run.in_flight += 1

    async def _shared(self, live: LiveStep, key: Key) -> StepResult:
        """A read that may share its call: it follows the one on its way, or leads."""
        rank = live.run.rank
        while (flight := self.coalescer.find(key, rank)) is not None:
            result = await self._follow(live, flight)
            if result is not None:
                return result
        led = self.coalescer.lead(key, live, rank)
        if led is None:
            return await self._admitted(live)
        try:
            return await self._admitted(live, led)
        finally:
            for follower in self.coalescer.land(key, led):
                follower.wake(LANDED)

    async def _follow(self, live: LiveStep, flight: Flight) -> StepResult | None:
        """The leader's end, as this step's; None: it never started, or ended with its own run, so ask again."""
        flight.followers.append(live)
        live.state = "follows"
        leader: LiveStep = flight.leader
        signal = await pause(live, live.run.deadline_ns, self.now_ns)
        if signal != LANDED:
            return self.stopped(live, signal)
        stopped = self.stopped(live, GO)
        if stopped:
            return stopped
        result = leader.result
        if result is None or (result.outcome not in GOOD and result.attempts == 0):
            return None
        if result.outcome in (CANCELLED, EXPIRED, BUDGET_EXHAUSTED):
            return None
        live.leader = leader.name
        if result.outcome in GOOD:
            return self.end(live, COALESCED, None, self.now_ns(), answer_of=result)
        return self.end(live, result.outcome, result.reason, self.now_ns(), answer_of=result)

    async def _admitted(self, live: LiveStep, flight: Flight | None = None) -> StepResult:
        """Capacity, call, retry: until it ends."""
        again = False
        while True:
            proved_absent = False  # of each attempt anew
            ended = await self.acquire(live, again)
            if ended is not None:
                return ended
            if flight is not None:
                flight.started = True
            answer = await self._attempt(live)
            if live.run.state != OPEN:
                return self.late(live, answer)
            if answered_well(answer):
                if live.cut is not None and live.step.operation != WRITE:
                    return self.exhausted(live, live.cut, self.now_ns())
                return self.end(live, SERVED, None, self.now_ns(), answer=answer)
            if self.retry.ambiguous(live.step, answer.status):
                found = await self.readback.settle(live)
                if found != NOT_COMMITTED:
                    return self.settled(live, found, answer)
                proved_absent = True
            self.dispatch.release(live, self.now_ns())
            retried = await self._retry(live, answer, proved_absent)
            if retried is not None:
                return retried
            again = True

    async def acquire(self, live: LiveStep, again: bool) -> StepResult | None:
        """A slot for the step (None: it holds one, and is recorded as started), or its end."""
        now_ns = self.now_ns()
        stopped = self.stopped(live, GO, now_ns)
        if stopped:
            return stopped
        if live.run.branch is not None and (spent := live.run.branch.spent()) is not None:
            return self.exhausted(live, spent, now_ns)
        admitted = self.dispatch.admit(live, now_ns, again)
        bulkhead = self.dispatch.bulkheads[live.step.dependency, live.step.operation]
        if type(admitted) is Refusal:
            return self.end(live, admitted.outcome, admitted.reason, now_ns, retry_at_ns=admitted.retry_at_ns)
        if admitted is None:
            live.state = "queued"
            wait_ns = (live.estimated_ns or now_ns) - now_ns
            self.events.step(live, bulkhead, "step", QUEUED, None, now_ns, status=WILL_RETRY, delay_ns=wait_ns)
            signal = await self.wait_for_slot(live)
            live.queue_wait_ns += self.now_ns() - now_ns
            self.dispatch.leave(live)
            stopped = self.stopped(live, signal, live.displaced_ns if signal == DISPLACED else None)
            if stopped:
                return stopped
            if live.run.branch is not None and (spent := live.run.branch.spent()) is not None:
                return self.exhausted(live, spent, self.now_ns())
            # Its slot is its own since then: live, the loop may come back to it a little later.
            now_ns = live.grant.started_ns if live.grant is not None else self.now_ns()
        live.attempt += 1
        live.state = "running"
        self.events.step(live, bulkhead, "step", "admitted", None, now_ns)
        return None

    def exhausted(self, live: LiveStep, missing: str, now_ns: int) -> StepResult:
        """The tree has too little left: the step does not start, or its answer is not handed on."""
        live.run.exhausted = live.run.exhausted or missing
        return self.end(live, BUDGET_EXHAUSTED, missing, now_ns)

    async def wait_for_slot(self, live: LiveStep) -> str:
        """Until it has one (`go`), has no more time, or has to go."""
        return await pause(live, live.run.deadline_ns, self.now_ns)

    async def _attempt(self, live: LiveStep) -> DependencyAnswer:
        """One call, in the slot that the step holds."""
        grant = live.grant
        assert grant is not None
        answer = await send(self.call, live, live.step.operation, grant)
        now_ns = self.now_ns()
        live.service_ns = now_ns - grant.started_ns
        self.dispatch.told(live, blames(answer), now_ns)
        if self.costs is not None:
            self.costs.spend(live.run, answer.body)
        if live.run.branch is not None:
            live.cut = live.run.branch.take_in(answer.body)
        if answer.status == 429:
            grant.bulkhead.hold.answered(answer, now_ns)
        return answer

    def late(self, live: LiveStep, answer: DependencyAnswer) -> StepResult:
        """A result that came after its run had ended: nothing follows from it. What a write did is told all the same;
        a read is thrown away."""
        now_ns = self.now_ns()
        accepted = self.late_is_welcome(live)
        bulkhead = self._bulkhead(live)
        self.events.step(live, bulkhead, "late", "accepted" if accepted else "discarded", "run_ended", now_ns)
        if answered_well(answer) and (accepted or live.step.operation == WRITE):
            return self.end(live, SERVED, "late", now_ns, answer=answer)
        if self.retry.ambiguous(live.step, answer.status):
            return self.settled(live, UNKNOWN, answer)
        return self.end(live, CANCELLED, "late", now_ns)

    def late_is_welcome(self, live: LiveStep) -> bool:
        """Current state and authorization: a result is used only while its run, and those above it, are open."""
        run: Run | None = live.run
        while run is not None:
            if run.state != OPEN:
                return False
            run = run.parent
        return True

    def settled(self, live: LiveStep, found: str, answer: DependencyAnswer) -> StepResult:
        now_ns = self.now_ns()
        if found == COMMITTED:
            return self.end(live, SERVED, "read_back", now_ns)
        outcome = NEEDS_PERSON if live.step.high_risk else FAILED
        return self.end(live, outcome, "unresolved", now_ns, answer=answer)

    async def _retry(self, live: LiveStep, answer: DependencyAnswer, proved_absent: bool) -> StepResult | None:
        """Waits for the next attempt (None: it may ask for capacity again), or ends the step."""
        run, bulkhead = live.run, self._bulkhead(live)
        now_ns = self.now_ns()
        if run.state != OPEN:
            self.events.step(live, bulkhead, "retry", "denied", "run_ended", now_ns, retry_after=answer.retry_after)
            return self.end(live, CANCELLED, "run_ended", now_ns, answer=answer)
        failed = Failed(
            run=run.id,
            step=live.step,
            attempt=live.attempt,
            answer=answer,
            deadline_ns=run.deadline_ns,
            expected_ns=bulkhead.expected_ns,
            circuit_closed=bulkhead.circuit.state == "closed",
            proved_absent=proved_absent,
        )
        plan = self.retry.plan(failed, run.envelope, now_ns)
        if plan.denied:
            self.events.step(live, bulkhead, "retry", "denied", plan.denied, now_ns, retry_after=answer.retry_after)
            return self._given_up(live, answer, plan.denied, now_ns)
        live.paid += 1
        self.events.step(
            live,
            bulkhead,
            "retry",
            "scheduled",
            failure_reason(answer),
            now_ns,
            status=WILL_RETRY,
            delay_ns=plan.delay_ns,
            retry_after=answer.retry_after,
        )
        live.state = "retries"
        signal = await pause(live, now_ns + plan.delay_ns, self.now_ns)
        return None if signal == EXPIRED else self.stopped(live, signal)

    def _given_up(self, live: LiveStep, answer: DependencyAnswer, denied: str, now_ns: int) -> StepResult:
        reason = denied if denied == "retry_after_beyond_deadline" else failure_reason(answer)
        outcome = THROTTLED if answer.status == 429 else FAILED
        stated_ns = stated_wait_ns(answer.retry_after, answer.date)
        retry_at_ns = None if stated_ns is None else now_ns + stated_ns
        return self.end(live, outcome, reason, now_ns, answer=answer, retry_at_ns=retry_at_ns)

    def stopped(self, live: LiveStep, signal: str, now_ns: int | None = None) -> StepResult | None:
        """The end of a step that may not go on; None: it may."""
        now_ns = self.now_ns() if now_ns is None else now_ns
        run = live.run
        if signal == CANCELLED or run.state != OPEN:
            return self.end(live, CANCELLED, "run_ended", now_ns)
        if signal == EXPIRED or now_ns >= run.deadline_ns:
            return self.end(live, EXPIRED, "deadline", now_ns)
        return self.end(live, THROTTLED, DISPLACED, now_ns) if signal == DISPLACED else None

    def _bulkhead(self, live: LiveStep) -> Bulkhead:
        return self.dispatch.bulkheads[live.step.dependency, live.step.operation]

    def end(
        self,
        live: LiveStep,
        outcome: str,
        reason: str | None,
        now_ns: int,
        *,
        answer: DependencyAnswer | None = None,
        answer_of: StepResult | None = None,
        retry_at_ns: int | None = None,
    ) -> StepResult:
        """The one terminal outcome of the step."""
        run = live.run
        self.dispatch.release(live, now_ns)
        if live.attempt < live.paid:
            run.envelope.give_back(live.step.dependency)
            if run.branch is not None and not live.attempt:
                run.branch.give_back()
        status = user_status(outcome)
        body = answer.body if answer else answer_of.body if answer_of else {}
        wait_s = max(0, retry_at_ns - now_ns) / 1e9 if retry_at_ns is not None else None
        result = live.result = StepResult(
            live.step.step, outcome, reason, status, live.attempt, live.queue_wait_ns, wait_s, body
        )
        live.state = "ended"
        run.active.pop(live, None)
        self.note(run, live.batch, result)
        raw = answer.retry_after if answer else None
        self.events.step(
            live,
            self._bulkhead(live),
            "step",
            outcome,
            reason,
            now_ns,
            status=status,
            retry_after=raw,
            service_ns=live.service_ns,
        )
        return result

    def note(self, run: Run, batch: str, result: StepResult) -> None:
        run.results.append((batch, result))
        if result.outcome == NEEDS_PERSON:
            run.unresolved = True

    def _abandoned(self, live: LiveStep, outcome: str, reason: str) -> None:
        """The flow was cut off at an await."""
        self.dispatch.leave(live)
        if live.result is None:
            self.end(live, outcome, reason, self.now_ns())
