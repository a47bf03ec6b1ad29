"""The one owner of admission, budgets, retries and circuits between agent runs and every dependency.

    submit:  cancelled? -> expired? -> budget_exhausted? (the whole batch, at once) -> each step by itself (steps.py)

The flows are plain coroutines over `now_ns`: live on the stub's loop, in tests on a loop with a virtual clock. Parts
are attributes (`dispatch` with its bulkheads and circuits, `flow` with retry owner, read-back and coalescer) that can
be replaced, and take now_ns.
Never trusts a tenant that it is told in a body, never starts a step that its batch has not paid for.
"""

from __future__ import annotations

from asyncio import gather, get_running_loop
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stub_service.capacity.coalesce import Coalescer
from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.context import Denied
from stub_service.capacity.costs import DEADLINE, LOOK_AGAIN_NS, Account, CostControl
from stub_service.capacity.dispatch import Dispatcher
from stub_service.capacity.envelope import Envelope, envelope_of
from stub_service.capacity.ports import Batch, BatchResult, CallDependency, RunWish, StepResult
from stub_service.capacity.records import CostDecision, Decision
from stub_service.capacity.reserve import RANK
from stub_service.capacity.retry import RetryOwner
from stub_service.capacity.runs import (
    BUDGET_EXHAUSTED,
    CANCELLED,
    ENDED_CANCELLED,
    ENDED_DONE,
    EXPIRED,
    FAILED,
    OPEN,
    LiveStep,
    Opened,
    Refused,
    Run,
    user_status,
    view,
    worst,
)
from stub_service.capacity.steps import StepFlow
from stub_service.capacity.tree import NO_LIMITS, Branch, Trees

KEPT_RUNS = 5_000
"""Ended runs that can still be read; older ones are forgotten, so that memory does not grow with time."""


class UnknownRun(KeyError):
    """No such run, or one that ended long ago."""


class Controller:
    def __init__(
        self,
        config: CapacityConfig,
        now_ns: Callable[[], int],
        call: CallDependency,
        record: Callable[[Decision | CostDecision], None],
    ) -> None:
        self.config = config
        self.now_ns = now_ns
        self.dispatch = Dispatcher(config, now_ns, record)
        self.events = self.dispatch.events
        retry, coalescer = RetryOwner(config.retry, config.seed), Coalescer(config.coalesce)
        self.flow = StepFlow(self.dispatch, retry, coalescer, call, now_ns)
        self.runs: dict[str, Run] = {}
        self._ended: dict[str, None] = {}
        self._opened = 0
        self.trees = Trees(config.envelope.tree, config.envelope.prices)
        self.costs: CostControl | None = None
        if config.cost is not None:
            self.costs = self.flow.costs = CostControl(config.cost, now_ns, record, self._vanished)

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(dependency.name for dependency in self.config.dependencies)

    async def open(self, tenant: str, wish: RunWish, request: str | None = None) -> Opened | Refused:
        """Opens a run once what it is going to cost is admitted: it may wait for a session of its size class."""
        costs = self.costs
        if costs is None:
            return self.open_run(tenant, wish, request)
        if wish.parent_run is not None:
            return self._open_sub_agent(costs, tenant, wish, request)
        asked_ns = self.now_ns()
        deadline_ns = asked_ns + (self.config.envelope.deadline_ns if wish.deadline_ns is None else wish.deadline_ns)
        account = await costs.admit(tenant, wish, deadline_ns, request)
        now_ns = self.now_ns()
        if isinstance(account, Denied):
            refused = self._refused(tenant, wish, account.outcome, account.reason, now_ns, request)
            return replace(refused, retry_after_s=None if account.wait_ns is None else account.wait_ns / 1e9)
        return self._open_with(account, tenant, replace(wish, deadline_ns=max(1, deadline_ns - now_ns)), request)

    def _open_sub_agent(self, costs: CostControl, tenant: str, wish: RunWish, request: str | None) -> Opened | Refused:
        """On the account of its parent; to delegate is an admission decision, at the price that is stated for it."""
        parent, price = self.runs.get(wish.parent_run or ""), self.config.envelope.delegate_cost or 0
        account = parent.account if parent is not None and parent.tenant == tenant else None
        denied = costs.delegate(account, price) if account is not None else None
        if denied is not None:
            refused = self._refused(tenant, wish, denied.outcome, denied.reason, self.now_ns(), request)
            return replace(refused, retry_after_s=None if denied.wait_ns is None else denied.wait_ns / 1e9)
        opened = self.open_run(tenant, wish, request)
        if account is not None and opened.run is not None:
            costs.began(account, self.runs[opened.run])
        elif account is not None:
            costs.not_delegated(account, price)
        return opened

    def _open_with(self, account: Account, tenant: str, wish: RunWish, request: str | None) -> Opened | Refused:
        assert self.costs is not None
        opened = self.open_run(tenant, wish, request)
        if opened.run is None:
            self.costs.abandon(account)
            return opened
        assert isinstance(opened, Opened)
        self.costs.began(account, self.runs[opened.run])
        return replace(opened, cost=account.view())

    def _vanished(self, run: Run, reason: str) -> None:
        """Nobody asks for the run any more: it ends, and is settled."""
        known = run.account or run.branch
        self._end(run, ENDED_CANCELLED, EXPIRED, known.request if known else None, reason)

    def open_run(self, tenant: str, wish: RunWish, request: str | None = None) -> Opened | Refused:
        """Opens a run of the authenticated tenant with its envelope."""
        now_ns = self.now_ns()
        if wish.traffic_class not in RANK:
            return self._refused(tenant, wish, FAILED, "unknown_traffic_class", now_ns, request)
        parent: Run | None = None
        if wish.parent_run is not None:
            parent = self.runs.get(wish.parent_run)
            if parent is None or parent.tenant != tenant:
                return self._refused(tenant, wish, FAILED, "unknown_parent_run", now_ns, request)
            if parent.state != OPEN:
                return self._refused(tenant, wish, CANCELLED, "run_ended", now_ns, request)
            if now_ns >= parent.deadline_ns:
                return self._refused(tenant, wish, EXPIRED, "deadline", now_ns, request)
        envelope = self.envelope_for(wish, parent)
        if isinstance(envelope, str):
            if parent is not None:
                parent.exhausted = parent.exhausted or envelope
            return self._refused(tenant, wish, BUDGET_EXHAUSTED, envelope, now_ns, request)
        branch = self.branch_for(wish, parent)
        if isinstance(branch, str):
            envelope.close()
            if parent is not None:
                parent.exhausted = parent.exhausted or branch
            return self._refused(tenant, wish, BUDGET_EXHAUSTED, branch, now_ns, request)
        run = self._admit_run(tenant, wish, envelope, parent, now_ns)
        self.events.run(run, "opened", None, now_ns, request)
        budgets = tuple(envelope.budgets.items())
        opened = Opened(run.id, run.deadline_ns, envelope.attempts, envelope.retry_tokens, run.parallel, budgets)
        if branch is None:
            return opened
        run.branch, branch.request = branch, request
        self._watch(run)
        return replace(opened, tree=branch.view())

    def branch_for(self, wish: RunWish, parent: Run | None) -> Branch | str | None:
        """A run's place in its tree, or what there is too little of for it; None: it is in none."""
        if parent is None or parent.branch is None:
            return self.trees.root(wish.tree)
        return parent.branch.delegate(wish.tree or NO_LIMITS)

    def _watch(self, run: Run, not_before_ns: int = 0) -> None:
        """A branch whose agent is gone is settled at its deadline all the same."""
        left_ns = max(run.deadline_ns, not_before_ns) - self.now_ns()
        assert run.branch is not None
        run.branch.timer = get_running_loop().call_later(max(0, left_ns) / 1e9, self.look_after, run)

    def look_after(self, run: Run) -> None:
        """At the deadline of a run of a tree: what is under way ends first."""
        now_ns = self.now_ns()
        if run.outcome is None and (run.active or now_ns < run.deadline_ns):
            self._watch(run, now_ns + LOOK_AGAIN_NS if run.active else 0)
        elif run.outcome is None:
            self._vanished(run, DEADLINE)

    def envelope_for(self, wish: RunWish, parent: Run | None) -> Envelope | str:
        """A run's envelope; a child's is carved out of its parent's, or what is missing for it."""
        defaults = self.config.envelope
        return envelope_of(wish, defaults) if parent is None else parent.envelope.carve(wish, defaults)

    def _admit_run(self, tenant: str, wish: RunWish, envelope: Envelope, parent: Run | None, now_ns: int) -> Run:
        defaults = self.config.envelope
        self._opened += 1
        deadline_ns = now_ns + (defaults.deadline_ns if wish.deadline_ns is None else wish.deadline_ns)
        parallel = max(1, defaults.parallel if wish.parallel is None else wish.parallel)
        if parent is not None:
            deadline_ns = min(deadline_ns, parent.deadline_ns)
            parallel = min(parallel, parent.parallel)
        run = Run(f"r{self._opened}", tenant, wish, envelope, now_ns, deadline_ns, parallel, parent)
        self.runs[run.id] = run
        if parent is not None:
            parent.children.append(run)
        return run

    def _refused(
        self, tenant: str, wish: RunWish, outcome: str, reason: str, now_ns: int, request: str | None
    ) -> Refused:
        known = wish.traffic_class if wish.traffic_class in RANK else None
        self.events.record(
            Decision(
                t_ns=now_ns,
                kind="run",
                outcome=outcome,
                reason=reason,
                parent_run=wish.parent_run,
                tenant=tenant,
                traffic_class=known,
                task_class=wish.task_class,
                release=wish.release,
                total_in_use=self.dispatch.ceiling.in_use,
                request=request,
                user_status=user_status(outcome),
            )
        )
        return Refused(outcome, reason, user_status(outcome))

    async def submit(self, run_id: str, batch: Batch) -> BatchResult:
        """The batch whole or not at all; answers when each of its steps has ended. Raises UnknownRun."""
        run = self._run(run_id)
        now_ns = self.now_ns()
        if run.account is not None:
            run.account.touched_ns = now_ns
        refused = self.refusal(run, batch, now_ns)
        if refused is not None:
            return self._refuse_batch(run, batch, *refused, now_ns)
        self.events.batch(run, batch.batch, batch.round, "admitted", None, now_ns, batch.request)
        lives = [LiveStep(run, batch, step, now_ns) for step in batch.steps]
        if len(lives) == 1:
            results: tuple[StepResult, ...] = (await self.flow.run(lives[0]),)
        else:
            results = tuple(await gather(*(self.flow.run(live) for live in lives)))
        if not results:
            return BatchResult(run.id, batch.batch, "served", None, user_status("served"), ())
        decisive = worst(results)
        run.batch_ended(batch.round, decisive.outcome)
        return BatchResult(run.id, batch.batch, decisive.outcome, decisive.reason, decisive.user_status, results)

    def refusal(self, run: Run, batch: Batch, now_ns: int) -> tuple[str, str] | None:
        """Why the batch is refused whole, in the stated order; None: what it needs has been taken."""
        if run.state != OPEN:
            return CANCELLED, "run_ended"
        for step in batch.steps:
            if (step.dependency, step.operation) not in self.dispatch.bulkheads:
                return FAILED, "unknown_dependency"
        if now_ns >= run.deadline_ns:
            return EXPIRED, "deadline"
        missing = run.envelope.take(batch.steps, batch.round)
        if not missing and run.branch is not None:
            missing = run.branch.admit(len(batch.steps))
            for step in batch.steps if missing else ():
                run.envelope.give_back(step.dependency)
        return (BUDGET_EXHAUSTED, missing) if missing else None

    def _refuse_batch(self, run: Run, batch: Batch, outcome: str, reason: str, now_ns: int) -> BatchResult:
        if outcome == BUDGET_EXHAUSTED:
            run.exhausted = run.exhausted or reason
        self.events.batch(run, batch.batch, batch.round, outcome, reason, now_ns, batch.request)
        status = user_status(outcome)
        results = []
        for step in batch.steps:
            live = LiveStep(run, batch, step, now_ns)
            result = live.result = StepResult(step.step, outcome, reason, status)
            bulkhead = self.dispatch.bulkheads.get((step.dependency, step.operation))
            self.events.step(live, bulkhead, "step", outcome, reason, now_ns, status=status)
            self.flow.note(run, batch.batch, result)
            results.append(result)
        if run.state == OPEN:
            run.batch_ended(batch.round, outcome)
        return BatchResult(run.id, batch.batch, outcome, reason, status, tuple(results))

    def cancel(self, run_id: str, request: str | None = None) -> str:
        """What waits goes, what runs starts nothing further, children likewise. Returns the run's outcome."""
        return self._end(self._run(run_id), ENDED_CANCELLED, CANCELLED, request)

    def finish(self, run_id: str, request: str | None = None) -> str:
        """The run submits nothing more; its own outcome, recorded once. What still waits is cancelled."""
        run = self._run(run_id)
        return self._end(run, ENDED_DONE, run.own_outcome(self.now_ns()), request)

    def _end(self, run: Run, state: str, outcome: str, request: str | None, reason: str | None = None) -> str:
        if run.outcome is not None:
            return run.outcome
        run.state, run.outcome = state, outcome
        for child in run.children:
            self._end(child, ENDED_CANCELLED, CANCELLED, request)
        run.children.clear()
        for live in list(run.active):
            live.wake(CANCELLED)
        run.envelope.close()
        reason = run.exhausted if outcome == BUDGET_EXHAUSTED else reason
        self.events.run(run, outcome, reason, self.now_ns(), request)
        if self.costs is not None:
            self.costs.seen(run, self.now_ns())
        if run.branch is not None and not run.active:
            run.branch.end()
        self._ended[run.id] = None
        if len(self._ended) > KEPT_RUNS:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            del self.runs[oldest]
        return outcome

    def view(self, run_id: str) -> dict[str, Any]:
        """The run as its owner may read it. Raises UnknownRun."""
        return view(self._run(run_id))

    def tenant_of(self, run_id: str) -> str | None:
        """Whose run it is; None: no such run."""
        run = self.runs.get(run_id)
        return run.tenant if run else None

    def _run(self, run_id: str) -> Run:
        run = self.runs.get(run_id)
        if run is None:
            raise UnknownRun(run_id)
        return run

    def leftovers(self) -> dict[str, int]:
        """What is still held: zero, every one, when nothing is on its way."""
        active = [live for run in self.runs.values() for live in run.active]
        return {
            **self.dispatch.leftovers(),
            "followers": len(self.flow.coalescer.flights),
            "permits": sum(run.in_flight for run in self.runs.values()),
            "reservations": sum(1 for live in active if live.attempt == 0),
            "retries": sum(1 for live in active if live.state == "retries"),
            "steps": len(active),
            **(self.costs.leftovers() if self.costs is not None else {}),
            **self.trees.leftovers(),
        }
