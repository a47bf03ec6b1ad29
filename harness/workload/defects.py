"""Callers gone wrong, each for one check of the family `agent` to catch; and their twins, which look suspicious and are
right.

Each is laid over the callers of a trial, in virtual time or live, by replacing a part of the agents that have it
(agents.py); tenants that do not are left as they are. The service stays healthy. That a caller defect was laid stands
in the manifest, as `target.caller_defect`: the audit then holds no caller to its profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.errors import BadInput
from harness.ledger.call import Call
from harness.ledger.outcomes import REFUSED
from harness.profile.model import Profile
from harness.workload.agents import Agent
from harness.workload.budgets import Budgets
from harness.workload.replans import Planner
from harness.workload.replans import Sequence as Plan
from harness.workload.retries import Retries, WaitOnce
from harness.workload.source import CallSource
from harness.workload.throttles import ACCEPTS, AdaptiveThrottle
from stub_service.defects import registry
from stub_service.defects.registry import CALLER, DEFECTS, Defect, become

PER_TENANT, ROUNDS = "agent.budget_per_tenant", "agent.rounds_capped"
RETRY_BUDGET, THROTTLE = "agent.retry_budget", "agent.adaptive_throttle"
RESULT, AT_SOURCE = "agent.refusal_is_a_result", "agent.budget_at_source"
NS_PER_MS = 1_000_000


def is_of_callers(name: str | None) -> bool:
    """Whether a defect is one of callers: the service then has none."""
    return isinstance(name, str) and name in DEFECTS and DEFECTS[name].part == CALLER


def lay(name: str, callers: Sequence[CallSource], profile: Profile) -> None:
    """Raises BadInput on a name that is not one of these."""
    if not is_of_callers(name):
        raise BadInput(f"there is no defect of callers named {name!r:.80}; overload stub --list-defects shows them")
    registry.lay(name, callers, profile)


def _agents(callers: Sequence[CallSource], part: str) -> Iterator[tuple[Agent, Any]]:
    """Those that have the part, with it."""
    for caller in callers:
        if isinstance(caller, Agent) and getattr(caller, part) is not None:
            yield caller, getattr(caller, part)


def _becomes(part: str, kind: type) -> Callable[[Any, Any], None]:
    def lay_over(callers: Sequence[CallSource], profile: Profile) -> None:
        for _, one in _agents(callers, part):
            become(one, kind)

    return lay_over


# --- budgets


def _per_run_only(callers: Sequence[CallSource], profile: Profile) -> None:
    """The tenant's bucket is not asked: many runs, each within its own budget, go past it together."""
    for agent, budgets in _agents(callers, "budgets"):
        agent.budgets = Budgets([rule for rule in budgets.rules if rule.scope == "run"])


class ForgetsTheRun(Budgets):
    """Each call of a run finds its run's bucket full."""

    def refuses(self, run: int, now_ns: int) -> str | None:
        self.run_over(run)
        return super().refuses(run, now_ns)


class TenantFirst(Budgets):
    """Twin: the tenant is asked before the run, and gets its token back where the run refuses: still all or nothing."""

    def refuses(self, run: int, now_ns: int) -> str | None:
        self.rules = tuple(sorted(self.rules, key=lambda rule: rule.scope, reverse=True))
        return super().refuses(run, now_ns)


# --- rounds


class RoundsPerTool(Planner):
    """A tool that was not tried yet begins at round 1: each has its own count, and the cap holds for each alone."""

    def goes_on(self, call: Call) -> bool:
        return call.outcome in REFUSED and self._visits(call).get(call.tool, 0) < self.rule.rounds

    def round_of(self, parent: Call, tool: str | None) -> int:
        return min(self.rule.rounds, self._visits(parent).get(tool, 0) + 1)

    def _visits(self, call: Call) -> dict[str | None, int]:
        """How often the branch that ends with the call has been to each tool."""
        found: dict[str | None, int] = self._branches().get(call.seq, {})
        return found

    def _branches(self) -> dict[int, dict[str | None, int]]:
        made: dict[int, dict[str | None, int]] = self.__dict__.setdefault("branches", {})
        return made

    def tell(self, parent: Call, call: Call) -> None:
        visits = self._visits(parent)
        self._branches()[call.seq] = {**visits, call.tool: visits.get(call.tool, 0) + 1}


class TellsItsPlanner(Agent):
    """What RoundsPerTool needs to know."""

    __slots__ = ()

    def _next_of(self, planner: Planner, plan: Plan, now_ns: int) -> Call | None:
        call = super()._next_of(planner, plan, now_ns)
        if call is not None and isinstance(planner, RoundsPerTool):
            planner.tell(plan.parent, call)
        return call


def _rounds_per_tool(callers: Sequence[CallSource], profile: Profile) -> None:
    for agent, planner in _agents(callers, "planner"):
        become(planner, RoundsPerTool)
        become(agent, TellsItsPlanner)


class NotInSequence(Planner):
    """What follows one after another is taken for one round, however long it gets."""

    def goes_on(self, call: Call) -> bool:
        return call.outcome in REFUSED and (call.round < self.rule.rounds or self.rule.order == "sequence")

    def round_of(self, parent: Call, tool: str | None) -> int:
        return 1 if self.rule.order == "sequence" else super().round_of(parent, tool)


class OneRoundMore(Planner):
    """The cap is checked before the round is counted."""

    def goes_on(self, call: Call) -> bool:
        return call.outcome in REFUSED and call.round <= self.rule.rounds


def _plans_at_once(callers: Sequence[CallSource], profile: Profile) -> None:
    """Twin: no pause before a plan: many calls in a moment, and within the rounds."""
    for _, planner in _agents(callers, "planner"):
        planner.rule = replace(planner.rule, after_ns=0)


# --- retries


def _backoff_alone(callers: Sequence[CallSource], profile: Profile) -> None:
    """Longer and longer waits, and no budget: retries pile up, only later."""
    for _, retries in _agents(callers, "retries"):
        if isinstance(retries, Retries):
            retries.budget = None


class AttemptsNotCounted(Retries):
    """A request is tried until it is served, as long as the client has budget."""

    def again_ns(self, call: Call, end_ns: int) -> int | None:
        attempt, call.attempt = call.attempt, 1
        try:
            return super().again_ns(call, end_ns)
        finally:
            call.attempt = attempt


class TooEarly(Retries):
    """Its own backoff, whatever Retry-After says."""

    def due_ns(self, call: Call) -> int | None:
        stated, call.retry_after = call.retry_after, None
        try:
            return super().due_ns(call)
        finally:
            call.retry_after = stated


class InBursts(Retries):
    """Twin: retries wait for the next half second and leave together: bursts, and within the budget."""

    def due_ns(self, call: Call) -> int | None:
        due_ns, step_ns = super().due_ns(call), 500 * NS_PER_MS
        return None if due_ns is None else -(-due_ns // step_ns) * step_ns


# --- throttle


class RejectionsAccepted(AdaptiveThrottle):
    """What it rejects itself counts as accepted: the more it rejects, the better it thinks the service is."""

    def rejected(self, now_ns: int) -> None:
        super().rejected(now_ns)
        self.counts.add(ACCEPTS, now_ns)


class NoProbe(AdaptiveThrottle):
    """Half rejected is all rejected: nothing gets through any more that could tell that the service is well again."""

    def probability(self, requests: int, accepts: int) -> float:
        p = super().probability(requests, accepts)
        return 1.0 if p >= 0.25 else p


class RejectionsForgotten(AdaptiveThrottle):
    """What it rejects itself is no request: it rejects half as much as it should, and sends more, the more is asked."""

    def rejected(self, now_ns: int) -> None:
        """Not counted."""


class ColdWindow(AdaptiveThrottle):
    """Twin: it rejects nothing before it has seen a hundred requests."""

    def probability(self, requests: int, accepts: int) -> float:
        return super().probability(requests, accepts) if self.warm(requests) else 0.0

    def warm(self, requests: int) -> bool:
        self._warm = getattr(self, "_warm", False) or requests >= 100
        return self._warm


# --- refusals


def _refusal_as_error(callers: Sequence[CallSource], profile: Profile) -> None:
    """A refusal is an error like any other: the agent plans around it at once."""
    for agent, retries in _agents(callers, "retries"):
        if isinstance(retries, WaitOnce):
            agent.retries = None
            if agent.planner is not None:
                become(agent.planner, PlansAnyway)


class PlansAnyway(Planner):
    """Whatever a refusal is said to be."""

    def goes_on(self, call: Call) -> bool:
        return call.outcome in REFUSED and call.round < self.rule.rounds


def _waits_and_goes_around(callers: Sequence[CallSource], profile: Profile) -> None:
    """It waits as it was told, and does not wait for the answer with its other plan."""
    for agent, retries in _agents(callers, "retries"):
        if isinstance(retries, WaitOnce):
            become(agent, GoesAround)


class GoesAround(Agent):
    __slots__ = ()

    def on_outcome(self, call: Call) -> None:
        super().on_outcome(call)
        if call.retried and self.planner is not None and call.round < self.planner.rule.rounds:
            self._plan_anew(self.planner, call)


class Impatient(WaitOnce):
    """It waits, half as long as it was told."""

    def again_ns(self, call: Call, end_ns: int) -> int | None:
        due_ns = super().again_ns(call, end_ns)
        return None if due_ns is None else (call.done_ns + due_ns) // 2


class Patient(WaitOnce):
    """Twin: a little longer than it was told, and not all at the same instant."""

    def again_ns(self, call: Call, end_ns: int) -> int | None:
        due_ns = super().again_ns(call, end_ns)
        later_ns = None if due_ns is None else due_ns + call.seq * 7 % 200 * NS_PER_MS
        return None if later_ns is None or later_ns >= end_ns else later_ns


def _only(kind: type, base: type) -> Callable[[Any, Any], None]:
    """Of the two kinds of further attempts, the one that the defect is of."""

    def lay_over(callers: Sequence[CallSource], profile: Profile) -> None:
        for _, retries in _agents(callers, "retries"):
            if type(retries) is base:
                become(retries, kind)

    return lay_over


def _broken(name: str, about: str, lay_over: Callable[[Any, Any], None], *by: str, also: tuple[str, ...] = ()) -> None:
    DEFECTS[name] = Defect(name, about, by, lay_over, part=CALLER, also=also)


def _twin(name: str, about: str, lay_over: Callable[[Any, Any], None], *of: str) -> None:
    DEFECTS[name] = Defect(name, f"twin: {about}", (), lay_over, healthy=True, part=CALLER, twin_of=of)


_broken("budget_per_run_only", "each run keeps its budget, and nobody the tenant's", _per_run_only, PER_TENANT,
        also=(AT_SOURCE,))  # fmt: skip
_broken("run_budget_forgotten", "each call of a run finds a full budget", _becomes("budgets", ForgetsTheRun),
        PER_TENANT, also=(AT_SOURCE,))  # fmt: skip
_twin("twin_tenant_asked_first", "the tenant's budget is asked before the run's", _becomes("budgets", TenantFirst),
      PER_TENANT)  # fmt: skip
_broken("rounds_per_tool", "each tool has a count of rounds of its own", _rounds_per_tool, ROUNDS)
_broken("sequence_is_one_round", "calls made one after another count as one round", _becomes("planner", NotInSequence),
        ROUNDS)  # fmt: skip
_broken("one_round_too_many", "the cap is checked before the round is counted", _becomes("planner", OneRoundMore),
        ROUNDS)  # fmt: skip
_twin("twin_plans_at_once", "a failure is answered with a plan in the same instant", _plans_at_once, ROUNDS)
_broken("backoff_alone", "backoff without a budget: retries pile up, only later", _backoff_alone, RETRY_BUDGET)
_broken("attempts_not_counted", "a request is tried until it is served", _only(AttemptsNotCounted, Retries),
        RETRY_BUDGET)  # fmt: skip
_broken("retry_after_ignored_by_caller", "its own backoff, whatever Retry-After says", _only(TooEarly, Retries),
        RETRY_BUDGET)  # fmt: skip
_twin("twin_retries_in_bursts", "retries leave together twice a second", _only(InBursts, Retries), RETRY_BUDGET)
_broken("rejections_count_as_accepts", "its own rejections count as accepted",
        _becomes("throttle", RejectionsAccepted), THROTTLE)  # fmt: skip
_broken("rejections_not_counted", "its own rejections are no requests", _becomes("throttle", RejectionsForgotten),
        THROTTLE)  # fmt: skip
_broken("no_probe_let_through", "a throttled client lets nothing through", _becomes("throttle", NoProbe), THROTTLE,
        also=("fairness.recovers",))  # fmt: skip
_twin("twin_throttle_cold_window", "nothing is rejected before a hundred requests", _becomes("throttle", ColdWindow),
      THROTTLE)  # fmt: skip
_broken("refusal_as_error", "a refusal is an error, which invites a plan around it", _refusal_as_error, RESULT)
_broken("waits_and_goes_around", "it waits as told, and plans around the wait", _waits_and_goes_around, RESULT)
_broken("waits_half_as_long", "it tries again at half the stated delay", _only(Impatient, WaitOnce), RESULT)
_twin("twin_waits_longer", "it waits a little longer than it was told", _only(Patient, WaitOnce), RESULT)
