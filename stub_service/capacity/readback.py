"""A write that was sent and not answered: whether it was committed is asked of the dependency before anything else.

    committed      the write is done: no retry, no token
    not_committed  proved absent: the retry owner may repeat it, with or without a key
    unknown        nobody can tell: a person must, if the step is high risk

The first look is taken at once, in the slot that the write still holds. While the circuit is open, or the answer tells
nothing, the slot is given back, and the next look waits for its own: at most `LOOKS` looks, and only while the deadline
leaves room. A look takes an attempt of the run, no budget and no retry token; it never repeats the write.
"""

from __future__ import annotations

from collections.abc import Callable

from stub_service.capacity.attempt import answered_well, blames, failure_reason, pause, send
from stub_service.capacity.bulkhead import Bulkhead
from stub_service.capacity.circuit import OPEN as CIRCUIT_OPEN
from stub_service.capacity.dispatch import GO, Dispatcher, Refusal
from stub_service.capacity.ports import READBACK, CallDependency
from stub_service.capacity.retry import RetryOwner
from stub_service.capacity.runs import EXPIRED, OPEN, LiveStep

COMMITTED, NOT_COMMITTED, UNKNOWN = "committed", "not_committed", "unknown"
LOOKS = 3
"""Most read-backs of one ambiguous write."""
_SHORTEST_WAIT_NS = 1_000_000


class ReadBack:
    """call: read anew for every look."""

    def __init__(
        self, dispatch: Dispatcher, retry: RetryOwner, call: Callable[[], CallDependency], now_ns: Callable[[], int]
    ) -> None:
        self.dispatch = dispatch
        self.retry = retry
        self.call = call
        self.now_ns = now_ns

    async def settle(self, live: LiveStep) -> str:
        """COMMITTED, NOT_COMMITTED or UNKNOWN. The step may hold a slot before, and after."""
        looks = 0
        why: str | None = "run_ended"
        while live.run.state == OPEN:
            why = self._barred(live)
            if why is None:
                looks += 1
                found = await self._look(live)
                if found != UNKNOWN or looks == LOOKS:
                    return found
            if not await self._next_slot(live, looks):
                break
        if not looks:
            self._record(live, UNKNOWN, why, None)
        return UNKNOWN

    def _barred(self, live: LiveStep) -> str | None:
        """Why no look may be taken now; None: it may, and its attempt is taken."""
        grant = live.grant
        if grant is None or grant.passed.generation != grant.bulkhead.circuit.generation:
            return "no_slot_or_circuit"
        return None if live.run.envelope.take_look() else "no_attempts"

    async def _look(self, live: LiveStep) -> str:
        grant = live.grant
        assert grant is not None
        started_ns = self.now_ns()
        answer = await send(self.call(), live, READBACK, grant)
        now_ns = self.now_ns()
        self.dispatch.told(live, blames(answer), now_ns)
        committed = answer.body.get("committed") if answered_well(answer) else None
        if not isinstance(committed, bool):
            self._record(live, UNKNOWN, failure_reason(answer), now_ns - started_ns)
            return UNKNOWN
        found = COMMITTED if committed else NOT_COMMITTED
        self._record(live, found, None, now_ns - started_ns)
        return found

    async def _next_slot(self, live: LiveStep, looks: int) -> bool:
        """Lets the slot go, waits, and asks for another; False: it is no use."""
        run, bulkhead, now_ns = live.run, self._bulkhead(live), self.now_ns()
        self.dispatch.release(live, now_ns)
        if run.envelope.attempts < 1:
            return False
        at_ns = now_ns + max(self.retry.backoff_ns(max(1, looks)), bulkhead.expected_ns, _SHORTEST_WAIT_NS)
        if bulkhead.circuit.state == CIRCUIT_OPEN:
            at_ns = max(at_ns, bulkhead.circuit.open_until_ns)
        if at_ns + bulkhead.expected_ns > run.deadline_ns:
            return False
        live.state = "settles"
        if await pause(live, at_ns, self.now_ns) != EXPIRED or run.state != OPEN:
            return False
        admitted = self.dispatch.admit(live, self.now_ns(), True)
        if admitted is None:
            signal = await pause(live, run.deadline_ns, self.now_ns)
            self.dispatch.leave(live)
            return signal == GO and run.state == OPEN
        # Refused: the circuit or the queue has no place now; the next round waits again while the deadline lets it.
        return not isinstance(admitted, Refusal) or self.now_ns() < run.deadline_ns

    def _bulkhead(self, live: LiveStep) -> Bulkhead:
        return self.dispatch.bulkheads[live.step.dependency, live.step.operation]

    def _record(self, live: LiveStep, found: str, reason: str | None, service_ns: int | None) -> None:
        bulkhead = self._bulkhead(live)
        self.dispatch.events.step(live, bulkhead, "readback", found, reason, self.now_ns(), service_ns=service_ns)
