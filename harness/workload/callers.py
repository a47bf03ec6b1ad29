"""The caller models: a steady tenant, and an agent that re-plans every refusal into more calls.

An event object without a clock: a driver (gevent live, the simulator in virtual time) asks `next_ns`, calls `on_due`
then, sends what comes back, and reports each end with `on_outcome`. The rules:

- original calls are due as the pacer says, nothing at or after `end_ns`;
- a refused or abandoned call of round r < R leads to n calls of round r + 1, due `after` later. One that would be due
  at or after `end_ns` is not made: the trial is over;
- with a budget, each call asks the bucket when it is due. Without a token it ends there, `held_back`, and nothing
  follows from it: the agent's own budget is not a refusal by the service;
- re-plans of an instant come before arrivals of that instant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from harness.ledger.call import Call
from harness.ledger.outcomes import HELD_BACK, REPLANNED
from harness.workload.budgets import BudgetRule, TokenBucket

NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Arrival:
    """An original call as the plan has it. cost: in the units of the recording, -1 unknown. body: JSON text."""

    due_ns: int
    cost: float = -1.0
    method: str | None = None
    path: str | None = None
    body: str | None = None


@dataclass(frozen=True, slots=True)
class ReplanRule:
    """n calls `after_ns` later, for at most `rounds` rounds."""

    calls: int
    after_ns: int
    rounds: int


class Caller:
    """One tenant. `arrivals` yields int (due_ns) or Arrival, never decreasing.

    part (k, n): of an open-loop tenant that is shared out, the calls k, k + n, k + 2 n, ... with the ids and instants
    that they have in the whole; only without re-plans and budget, which are kept for a tenant as a whole.
    """

    __slots__ = (
        "_arrivals", "_bucket", "_budget", "_end_ns", "_next", "_replan", "_replans", "_run_buckets", "_run_calls",
        "_seq", "_step", "index", "next_arrival_ns", "next_replan_ns", "tenant",
    )  # fmt: skip

    def __init__(
        self,
        tenant: str,
        index: int,
        arrivals: Iterator[int | Arrival],
        end_ns: int,
        replan: ReplanRule | None = None,
        budget: BudgetRule | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        first, step = part
        if step > 1 and (replan is not None or budget is not None):
            raise ValueError(f"tenant {tenant!r} has re-plans or a budget: it cannot be shared out by call")
        self.tenant = tenant
        self.index = index
        self._step = step
        self._arrivals = islice(arrivals, first, None, step) if step > 1 else arrivals
        self._end_ns = end_ns
        self._replan = replan if replan and replan.calls and replan.rounds else None
        self._budget = budget
        self._bucket = TokenBucket(budget.rate, budget.burst) if budget and budget.scope == "tenant" else None
        self._run_buckets: dict[int, TokenBucket] = {}
        self._run_calls: dict[int, int] = {}
        self._replans: deque[Call] = deque()
        self._seq = first
        self._next: int | Arrival | None = None
        self.next_replan_ns = NEVER
        self.next_arrival_ns = NEVER
        self._advance()

    @property
    def next_ns(self) -> int:
        """Earliest instant at which something is due; NEVER if nothing is planned (an outcome may yet change that)."""
        return min(self.next_arrival_ns, self.next_replan_ns)

    def on_due(self, now_ns: int) -> list[Call]:
        """All calls due by `now_ns`, in order. One whose `outcome` is set (held_back) must not be sent."""
        calls = []
        while self.next_ns <= now_ns:
            calls.append(self.take())
        return calls

    def take(self) -> Call:
        """The call due at `next_ns`."""
        return self.take_replan() if self.next_replan_ns <= self.next_arrival_ns else self.take_arrival()

    def take_arrival(self) -> Call:
        """The original call due at `next_arrival_ns`."""
        arrival = self._next
        seq = self._seq
        self._seq = seq + self._step
        call = Call(self.tenant, self.index, seq, self.next_arrival_ns, 0, seq, None)
        if isinstance(arrival, Arrival):
            call.cost, call.method, call.path = arrival.cost, arrival.method, arrival.path
            if arrival.body is not None:
                call.body = arrival.body.encode("utf-8", "replace")
        self._advance()
        if self._budget is not None:
            self._ask_budget(call)
        return call

    def take_replan(self) -> Call:
        """The re-plan due at `next_replan_ns`."""
        call = self._replans.popleft()
        self.next_replan_ns = self._replans[0].due_ns if self._replans else NEVER
        if self._budget is not None:
            self._ask_budget(call)
        return call

    def on_outcome(self, call: Call) -> None:
        """A call that was sent has ended: `outcome` and `done_ns` are set. May bring `next_replan_ns` forward."""
        rule = self._replan
        if rule is not None and call.outcome in REPLANNED and call.round < rule.rounds:
            self._plan_again(call, rule)
        if self._run_calls:
            self._settle(call)

    def _plan_again(self, call: Call, rule: ReplanRule) -> None:
        due = call.done_ns + rule.after_ns
        if due >= self._end_ns:
            return
        parent = call.id
        for _ in range(rule.calls):
            again = Call(self.tenant, self.index, self._seq, due, call.round + 1, call.run, parent)
            again.cost, again.method, again.path, again.body = call.cost, call.method, call.path, call.body
            self._seq += 1
            self._replans.append(again)
        if self._run_calls:
            self._run_calls[call.run] += rule.calls
        if self.next_replan_ns == NEVER:
            self.next_replan_ns = due

    def _advance(self) -> None:
        arrival: int | Arrival | None = next(self._arrivals, None)
        due = arrival.due_ns if isinstance(arrival, Arrival) else arrival
        if due is None or due >= self._end_ns:
            self._next, self.next_arrival_ns = None, NEVER
        else:
            self._next, self.next_arrival_ns = arrival, due

    def _ask_budget(self, call: Call) -> None:
        if self._bucket is not None:
            granted = self._bucket.take(call.due_ns)
        else:
            granted = self._run_bucket(call).take(call.due_ns)
        if not granted:
            call.outcome, call.reason, call.done_ns = HELD_BACK, f"{self._scope}_budget", call.due_ns
            if self._run_calls:
                self._settle(call)

    @property
    def _scope(self) -> str:
        return self._budget.scope if self._budget else "tenant"

    def _run_bucket(self, call: Call) -> TokenBucket:
        assert self._budget is not None
        if call.round == 0:
            self._run_buckets[call.run] = TokenBucket(self._budget.rate, self._budget.burst, call.due_ns)
            self._run_calls[call.run] = 1
        return self._run_buckets[call.run]

    def _settle(self, call: Call) -> None:
        """Forgets a run's bucket once none of its calls is left, so that memory does not grow with the trial."""
        left = self._run_calls[call.run] - 1
        if left:
            self._run_calls[call.run] = left
        else:
            del self._run_calls[call.run], self._run_buckets[call.run]
