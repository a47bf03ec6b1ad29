"""Agent runs, the capacity controller and the dependencies behind it, in virtual time.

The very run callers, API, controller and dependencies that run live, on a loop whose time jumps (virtual_loop.py). A
call reaches the controller at the instant at which it is due, and its answer the caller at the instant at which it is
given: HTTP takes no time here.

Deterministic: same profile and seed, same rows in the same order. Of one instant: what is under way goes on first, then
calls that are due, tenants in the order in which their instants were planned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from harness.errors import BadInput
from harness.ledger.call import Call
from harness.ledger.outcomes import OPEN
from harness.profile.model import Profile
from harness.simulate.driver import CallSink
from harness.simulate.service import capacity_config
from harness.simulate.virtual_loop import VirtualLoop, run_virtual
from harness.workload.callers import NEVER
from harness.workload.plan import run_caller
from harness.workload.run_answers import judge_run
from harness.workload.runs import RunCaller
from stub_service.capacity import api
from stub_service.capacity.controller import Controller
from stub_service.capacity.records import Arrival, CostDecision, Decision, Effect
from stub_service.defects import registry as defects
from stub_service.dependency.model import Dependencies, in_process

RETURN_WITHIN_NS, RETURN_LOOK_NS = 500_000_000, 10_000_000
"""How long the controller may take to give back what it held, and how often it is looked at."""

Record = Decision | CostDecision | Arrival | Effect
RecordSink = Callable[[Record], None]
"""Told of each decision of the controller, arrival at a dependency, and effect, in the order in which they happen."""


def drop(record: Record) -> None:
    """Keeps nothing."""


class CapacitySimulation:
    """One trial in virtual time. `run` may be called once. Raises BadInput if the profile has no capacity layer, or
    tenants that call a shared service beside those with runs: their two clocks are not one."""

    def __init__(
        self, profile: Profile, on_call: CallSink, on_record: RecordSink = drop, defect: str | None = None
    ) -> None:
        self._config = capacity_config(profile)
        others = [name for name, tenant in profile.tenants.items() if not tenant.runs]
        if others:
            raise BadInput(
                f"tenant '{others[0]}' calls the shared service, and others have runs: in virtual time a trial has "
                "either kind; split the profile, or run it live (overload run)"
            )
        self._callers = [run_caller(profile, name, index) for index, name in enumerate(profile.tenants)]
        self._limit_ns = profile.duration + profile.drain
        self._on_call = on_call
        self._on_record = on_record
        self._defect = defect
        self._in_flight: dict[str, Call] = {}
        self._in_flight_of = [0] * len(self._callers)
        self._woken_at = [NEVER] * len(self._callers)
        self._busy = len(self._callers)
        self._over = False
        self.leftovers: dict[str, Any] | None = None

    def run(self) -> int:
        """Runs the trial until every run is over, or to the drain limit. Returns the instant [ns] at which it ended."""
        return run_virtual(self._main())

    async def _main(self) -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop, self._finished = loop, loop.create_future()
        dependencies = Dependencies(self._config, loop.now_ns, self._record, self._record)
        self._controller = Controller(self._config, loop.now_ns, in_process(dependencies), self._record)
        if self._defect is not None:
            defects.lay(self._defect, self._controller, self._config)
        loop.at_ns(self._limit_ns, self._finish)
        for caller in self._callers:
            self._plan(caller)
            self._see_whether_over(caller)
        await self._finished
        at_ns = loop.now_ns()
        if at_ns < self._limit_ns:
            await self._settle(dependencies)
            await self._returned()
        self._leave_open(at_ns)
        self.leftovers = self._controller.leftovers()
        self._over = True  # what is cancelled now is no part of the trial
        return at_ns

    async def _settle(self, dependencies: Dependencies) -> None:
        """Writes that callers have left behind commit all the same, up to the drain limit."""
        left_s = (self._limit_ns - self._loop.now_ns()) / 1e9
        await asyncio.wait([self._loop.create_task(dependencies.settle())], timeout=left_s)

    async def _returned(self) -> None:
        """What the controller gives back a moment after its answer is not left over: waits for it, for so long."""
        until_ns = min(self._limit_ns, self._loop.now_ns() + RETURN_WITHIN_NS)
        while any(self._controller.leftovers().values()) and self._loop.now_ns() < until_ns:
            await asyncio.sleep(RETURN_LOOK_NS / 1e9)

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)

    def _break(self, error: Exception) -> None:
        """The controller itself went wrong: told at once, and not at the drain limit."""
        if not self._finished.done():
            self._finished.set_exception(error)

    def _record(self, record: Record) -> None:
        if not self._over:
            self._on_record(record)

    def _plan(self, caller: RunCaller) -> None:
        due_ns = caller.next_ns
        if due_ns < self._woken_at[caller.index]:
            self._woken_at[caller.index] = due_ns
            self._loop.at_ns(due_ns, self._wake, caller, due_ns)

    def _wake(self, caller: RunCaller, due_ns: int) -> None:
        if due_ns != self._woken_at[caller.index]:
            return  # planned anew, earlier, in the meantime
        self._woken_at[caller.index] = NEVER
        while caller.next_ns <= due_ns and not self._finished.done():
            call = caller.take()
            self._in_flight[call.id] = call
            self._in_flight_of[caller.index] += 1
            self._loop.create_task(self._exchange(caller, call))
        self._plan(caller)

    async def _exchange(self, caller: RunCaller, call: Call) -> None:
        """One call from due to done."""
        call.sent_ns = self._loop.now_ns()
        call_id = call.id
        headers = {
            "Overload-Call": call_id,
            "Overload-Attempt": f"{call_id}.1",
            "Overload-Round": str(call.round),
        }
        try:
            answer = await api.handle(
                self._controller, call.tenant, call.method or "POST", call.path or "/", call.body or b"", headers
            )
        except Exception as error:
            self._break(error)
            return
        if self._finished.done():
            return  # it has ended `open`
        del self._in_flight[call_id]
        call.outcome = judge_run(call, answer.status, answer.body, answer.headers.get("Retry-After"))
        call.done_ns = self._loop.now_ns()
        caller.on_outcome(call)
        self._on_call(call)
        self._in_flight_of[caller.index] -= 1
        self._plan(caller)
        self._see_whether_over(caller)

    def _see_whether_over(self, caller: RunCaller) -> None:
        if not self._in_flight_of[caller.index] and caller.next_ns == NEVER:
            self._busy -= 1
            if not self._busy:
                self._finish()

    def _leave_open(self, now_ns: int) -> None:
        """Whatever has not ended by the drain limit ends `open`, in order of due."""
        for call in sorted(self._in_flight.values(), key=lambda call: (call.due_ns, call.tenant_index, call.seq)):
            call.outcome, call.reason, call.done_ns = OPEN, "drain_limit", now_ns
            self._on_call(call)
