"""An agent runtime as a caller: what a steady tenant or a plain runaway (callers.py) does not have.

Around the same arrivals and ids: several budgets at once, a loop guard, adaptive throttling, retries under a budget,
re-plans into other tools, and a refusal that is a result and no error. Each is a part with one job (loops.py,
budgets.py, throttles.py, retries.py, replans.py), and an attribute, so that a defect can replace it (defects.py).

    due -> loop guard -> budgets -> throttle -> sent -> ended -> another attempt? -> else: other calls? -> over
             held_back, at any of the three: it ends there, and nothing follows from it

A retry is another attempt of the same call: it is due at `again_ns`, asks the same three, and the call ends with its
last attempt. Attempts and calls that follow from an outcome come before arrivals of the same instant.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from random import Random

from harness.ledger.call import Call
from harness.ledger.outcomes import HELD_BACK, REPLANNED
from harness.workload.budgets import BudgetRule, Budgets
from harness.workload.callers import NEVER, Arrival, Caller
from harness.workload.loops import LoopGuard
from harness.workload.replans import Planner, PlanRule
from harness.workload.replans import Sequence as Plan
from harness.workload.retries import Retries, RetryRule, WaitOnce
from harness.workload.throttles import ADAPTIVE_THROTTLE, AdaptiveThrottle

NOT_FOLLOWED = REPLANNED | {HELD_BACK}
"""After one of these a sequence is not carried on."""


class Agent(Caller):
    """One tenant. Parts that it does not have are None."""

    __slots__ = ("_later", "_left", "_order", "_sequences", "budgets", "loop", "planner", "retries", "throttle")

    def __init__(
        self,
        tenant: str,
        index: int,
        arrivals: Iterator[int | Arrival],
        end_ns: int,
        rng: Random,
        plan: PlanRule | None = None,
        budgets: Sequence[BudgetRule] = (),
        loop: LoopGuard | None = None,
        throttle: tuple[float, int] | None = None,
        retries: RetryRule | None = None,
    ) -> None:
        """throttle: K and the window [ns]. loop: fresh."""
        super().__init__(tenant, index, arrivals, end_ns)
        self.planner = Planner(plan) if plan else None
        self.budgets = Budgets(budgets) if budgets else None
        self.loop = loop
        self.throttle = AdaptiveThrottle(*throttle, rng) if throttle else None
        self.retries: Retries | WaitOnce | None = Retries(retries, rng) if retries else None
        if plan is not None and plan.refusals == "result":
            self.retries = WaitOnce()
        self._later: list[tuple[int, int, Call]] = []
        self._order = 0
        self._sequences: dict[int, Plan] = {}
        self._left: dict[int, int] = {}

    def take_arrival(self) -> Call:
        call = super().take_arrival()
        self._left[call.run] = 1
        self._ask(call, call.due_ns)
        return call

    def take_replan(self) -> Call:
        """The call, or the further attempt of one, due at `next_replan_ns`."""
        due_ns, _, call = heapq.heappop(self._later)
        self.next_replan_ns = self._later[0][0] if self._later else NEVER
        self._ask(call, due_ns)
        return call

    def on_outcome(self, call: Call) -> None:
        if self.throttle is not None:
            self.throttle.ended(call)
        if self.retries is not None:
            again_ns = self.retries.again_ns(call, self._end_ns)
            if again_ns is not None:
                call.retried = True
                self._plan_call(call.next_attempt(again_ns), again_ns)
                return
        self._over(call)

    def _ask(self, call: Call, now_ns: int) -> None:
        reason = self._held_back(call, now_ns)
        if reason is not None:
            call.outcome, call.reason, call.done_ns = HELD_BACK, reason, now_ns
            self._over(call)
            return
        if self.loop is not None:
            self.loop.leaves(call)
        if self.retries is not None:
            self.retries.sent(call, now_ns)

    def _held_back(self, call: Call, now_ns: int) -> str | None:
        if self.loop is not None and (reason := self.loop.refuses(call)) is not None:
            return reason
        if self.budgets is not None and (scope := self.budgets.refuses(call.run, now_ns)) is not None:
            return f"{scope}_budget"
        return ADAPTIVE_THROTTLE if self.throttle is not None and self.throttle.rejects(now_ns) else None

    def _over(self, call: Call) -> None:
        """The call has come to its end: what follows from it, and what need not be kept any longer."""
        plan = self._sequences.pop(call.seq, None)
        if plan is not None and call.outcome not in NOT_FOLLOWED:
            self._carry_on(plan, call.done_ns)
        if self.planner is not None and self.planner.goes_on(call):
            self._plan_anew(self.planner, call)
        self._forget(call)

    def _plan_anew(self, planner: Planner, call: Call) -> None:
        spent = self.loop.spent(call) if self.loop is not None else 0.0
        plan = Plan(call, planner.tools_after(call.tool), 0, spent)
        if planner.rule.order == "sequence":
            self._carry_on(plan, call.done_ns)
            return
        for _ in range(planner.rule.calls):
            self._next_of(planner, plan, call.done_ns)

    def _carry_on(self, plan: Plan, now_ns: int) -> None:
        planner = self.planner
        if planner is not None and plan.place < planner.rule.calls:
            made = self._next_of(planner, plan, now_ns)
            if made is not None:
                self._sequences[made.seq] = plan

    def _next_of(self, planner: Planner, plan: Plan, now_ns: int) -> Call | None:
        """The next call of a plan; None where it would be due when the trial is over."""
        due_ns, parent = now_ns + planner.rule.after_ns, plan.parent
        if due_ns >= self._end_ns:
            return None
        tool = plan.tools[plan.place % len(plan.tools)]
        plan.place += 1
        round_ = planner.round_of(parent, tool)
        call = Call(self.tenant, self.index, self._seq, due_ns, round_, parent.run, parent.id)
        self._seq += 1
        call.cost, call.method, call.tool = parent.cost, parent.method, tool
        call.path = parent.path if tool == parent.tool else None
        if self.loop is not None:
            self.loop.branches(call, plan.spent)
        self._left[call.run] += 1
        self._plan_call(call, due_ns)
        return call

    def _plan_call(self, call: Call, due_ns: int) -> None:
        self._order += 1
        heapq.heappush(self._later, (due_ns, self._order, call))
        self.next_replan_ns = self._later[0][0]

    def _forget(self, call: Call) -> None:
        """So that memory does not grow with the trial."""
        if self.loop is not None:
            self.loop.call_over(call)
        left = self._left[call.run] - 1
        if left:
            self._left[call.run] = left
            return
        del self._left[call.run]
        if self.budgets is not None:
            self.budgets.run_over(call.run)
        if self.loop is not None:
            self.loop.run_over(call.run)
