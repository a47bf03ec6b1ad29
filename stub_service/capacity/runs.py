"""A run and its steps as the controller holds them: state, envelope, what is on its way, what has ended.

    run:   open -> done | cancelled             (its outcome is told apart when it ends, once)
    step:  waits (in the run, behind a leader, for a slot, to retry) <-> runs -> ended, exactly once

A run keeps the result of every step, so that it can be read; the controller forgets runs that ended long ago.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stub_service.capacity.bulkhead import Bulkhead, Grant
from stub_service.capacity.envelope import Envelope
from stub_service.capacity.ports import Batch, RunWish, Step, StepResult
from stub_service.capacity.records import DONE as USER_DONE
from stub_service.capacity.records import NEEDS_PERSON as USER_NEEDS_PERSON
from stub_service.capacity.records import STOPPED, WILL_RETRY
from stub_service.capacity.reserve import RANK
from stub_service.capacity.tree import Branch

if TYPE_CHECKING:  # the accounts look at runs
    from stub_service.capacity.costs import Account

SERVED, COALESCED, THROTTLED = "served", "coalesced", "throttled"
UNAVAILABLE, EXPIRED, BUDGET_EXHAUSTED = "dependency_unavailable", "expired", "budget_exhausted"
CANCELLED, FAILED, NEEDS_PERSON = "cancelled", "failed", "needs_person"
QUEUED = "queued"
GOOD = frozenset((SERVED, COALESCED))

WORST_LAST = (SERVED, COALESCED, THROTTLED, UNAVAILABLE, EXPIRED, BUDGET_EXHAUSTED, CANCELLED, FAILED, NEEDS_PERSON)
_BADNESS = {outcome: position for position, outcome in enumerate(WORST_LAST)}

OPEN, ENDED_DONE, ENDED_CANCELLED = "open", "done", "cancelled"


def user_status(outcome: str) -> str:
    """What the user of the run is shown of an outcome."""
    if outcome in GOOD or outcome == "done":
        return USER_DONE
    if outcome == NEEDS_PERSON:
        return USER_NEEDS_PERSON
    return WILL_RETRY if outcome == QUEUED else STOPPED


def worst(results: tuple[StepResult, ...]) -> StepResult:
    """The step that says how the batch ended."""
    return results[0] if len(results) == 1 else max(results, key=lambda result: _BADNESS[result.outcome])


@dataclass(frozen=True, slots=True)
class Opened:
    """A run that may submit. budgets: (dependency, calls). cost: of a run that has an account. tree: what is left of
    the limits of its tree."""

    run: str | None
    deadline_ns: int
    attempts: int
    retry_tokens: int
    parallel: int
    budgets: tuple[tuple[str, int], ...]
    outcome: str = "served"
    reason: str | None = None
    cost: Mapping[str, Any] | None = None
    tree: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A run that was not opened. retry_after_s: when it may be asked for again, where that is known."""

    outcome: str
    reason: str | None
    user_status: str
    run: str | None = None
    retry_after_s: float | None = None


class Run:
    __slots__ = (
        "accepted_ns",
        "account",
        "active",
        "bad",
        "branch",
        "children",
        "deadline_ns",
        "envelope",
        "exhausted",
        "good_round",
        "id",
        "in_flight",
        "outcome",
        "parallel",
        "parent",
        "rank",
        "results",
        "state",
        "tenant",
        "unresolved",
        "waiting",
        "wish",
    )

    def __init__(
        self,
        run: str,
        tenant: str,
        wish: RunWish,
        envelope: Envelope,
        accepted_ns: int,
        deadline_ns: int,
        parallel: int,
        parent: Run | None,
    ) -> None:
        self.id = run
        self.tenant = tenant
        self.wish = wish
        self.rank = RANK[wish.traffic_class]
        self.envelope = envelope
        self.accepted_ns = accepted_ns
        self.deadline_ns = deadline_ns
        self.parallel = parallel
        self.parent = parent
        self.children: list[Run] = []
        self.state = OPEN
        self.outcome: str | None = None
        self.exhausted: str | None = None
        self.unresolved = False
        self.bad: tuple[int, str] | None = None
        self.good_round = -1
        self.in_flight = 0
        self.account: Account | None = None
        self.branch: Branch | None = None
        self.active: dict[LiveStep, None] = {}
        self.waiting: deque[LiveStep] = deque()
        self.results: list[tuple[str, StepResult]] = []

    def own_outcome(self, now_ns: int) -> str:
        """How the run itself ended, if it ends now."""
        if self.exhausted:
            return BUDGET_EXHAUSTED
        if self.unresolved:
            return NEEDS_PERSON
        if self.bad is None or self.bad[0] < self.good_round:
            return "done"
        return EXPIRED if self.bad[1] == EXPIRED or now_ns >= self.deadline_ns else FAILED

    def batch_ended(self, round_: int, outcome: str) -> None:
        """A re-plan that went well makes up for what went wrong in an earlier round."""
        if outcome in GOOD:
            self.good_round = max(self.good_round, round_)
        elif self.bad is None or round_ >= self.bad[0]:
            self.bad = (round_, outcome)


class LiveStep:
    """One step on its way. attempt: of the call that runs or ran last; 0 before the first. paid: how many its run has
    paid for. permit: it counts as one of the run's parallel steps. cut: what its answer did not fit into."""

    __slots__ = (
        "asked_ns",
        "attempt",
        "batch",
        "cut",
        "displaced_ns",
        "estimated_ns",
        "future",
        "grant",
        "leader",
        "paid",
        "permit",
        "queue_wait_ns",
        "request",
        "result",
        "round",
        "run",
        "service_ns",
        "state",
        "step",
        "waiter",
    )

    def __init__(self, run: Run, batch: Batch, step: Step, now_ns: int) -> None:
        self.run = run
        self.batch = batch.batch
        self.round = batch.round
        self.request = batch.request
        self.step = step
        self.attempt = 0
        self.paid = 1
        self.permit = False
        self.cut: str | None = None
        self.asked_ns = now_ns
        self.queue_wait_ns = 0
        self.service_ns: int | None = None
        self.estimated_ns: int | None = None
        self.displaced_ns: int | None = None
        self.grant: Grant | None = None
        self.waiter: Any = None
        self.leader: str | None = None
        self.future: Future[str] | None = None
        self.state = "waiting"
        self.result: StepResult | None = None

    def wake(self, signal: str) -> bool:
        """Ends the wait of the step, if it waits; the first signal counts."""
        if self.future is None or self.future.done():
            return False
        self.future.set_result(signal)
        return True

    @property
    def name(self) -> str:
        return f"{self.run.id}/{self.step.step}"


def remaining(run: Run) -> dict[str, Any]:
    envelope = run.envelope
    return {"attempts": envelope.attempts, "retry_tokens": envelope.retry_tokens, "budgets": dict(envelope.budgets)}


def view(run: Run) -> dict[str, Any]:
    """The run as its owner may read it."""
    cost = {"cost": run.account.view()} if run.account is not None else {}
    tree = {"tree": run.branch.view()} if run.branch is not None else {}
    return {
        "run": run.id,
        "tenant": run.tenant,
        "state": run.state,
        "outcome": run.outcome,
        "traffic_class": run.wish.traffic_class,
        "parent_run": run.parent.id if run.parent else None,
        "deadline_ns": run.deadline_ns,
        "remaining": remaining(run),
        "in_flight": run.in_flight,
        **cost,
        **tree,
        "steps": [_ended(batch, result) for batch, result in run.results] + [_active(live) for live in run.active],
    }


def _ended(batch: str, result: StepResult) -> dict[str, Any]:
    return {
        "batch": batch,
        "step": result.step,
        "outcome": result.outcome,
        "reason": result.reason,
        "attempts": result.attempts,
        "user_status": result.user_status,
        "queue_wait_ms": result.queue_wait_ns / 1e6,
    }


def _active(live: LiveStep) -> dict[str, Any]:
    shown: dict[str, Any] = {"batch": live.batch, "step": live.step.step, "outcome": QUEUED, "state": live.state}
    shown |= {"attempts": live.attempt, "user_status": WILL_RETRY, "deadline_ns": live.run.deadline_ns}
    if live.state == "queued":
        shown |= {"estimated_start_ns": live.estimated_ns, "cancel": f"/runs/{live.run.id}/cancel"}
    return shown


def bulkhead_key(step: Step) -> tuple[str, str]:
    return step.dependency, step.operation


Bulkheads = dict[tuple[str, str], Bulkhead]
