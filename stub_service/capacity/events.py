"""Every decision of the controller as one record, with what it was taken on: remaining limits, slots, queue, circuit.

The figures are those just after the decision. Writes nothing down itself: the driver's `record` does.
"""

from __future__ import annotations

from collections.abc import Callable

from stub_service.capacity.bulkhead import Bulkhead
from stub_service.capacity.ports import READBACK
from stub_service.capacity.records import WILL_RETRY, Decision
from stub_service.capacity.reserve import Slots
from stub_service.capacity.retry import OWNER
from stub_service.capacity.runs import LiveStep, Run, user_status

_CLASSES = ("interactive", "approval_resume", "autonomous", "maintenance")


class Events:
    """record: where decisions go. ceiling: whose slots `total_in_use` counts."""

    def __init__(self, record: Callable[[Decision], None], ceiling: Slots) -> None:
        self.record = record
        self.ceiling = ceiling

    def run(self, run: Run, outcome: str, reason: str | None, now_ns: int, request: str | None) -> None:
        """`opened`, or the run's own end."""
        envelope = run.envelope
        self.record(
            Decision(
                t_ns=now_ns,
                kind="run",
                outcome=outcome,
                reason=reason,
                run=run.id,
                parent_run=run.parent.id if run.parent else None,
                tenant=run.tenant,
                traffic_class=run.wish.traffic_class,
                task_class=run.wish.task_class,
                release=run.wish.release,
                deadline_ns=run.deadline_ns,
                remaining_ns=run.deadline_ns - now_ns,
                remaining_attempts=envelope.attempts,
                remaining_retry_tokens=envelope.retry_tokens,
                total_in_use=self.ceiling.in_use,
                request=request,
                user_status=WILL_RETRY if outcome == "opened" else user_status(outcome),
            )
        )

    def batch(
        self, run: Run, batch: str, round_: int, outcome: str, reason: str | None, now_ns: int, request: str | None
    ) -> None:
        """`admitted`, or refused whole."""
        envelope = run.envelope
        self.record(
            Decision(
                t_ns=now_ns,
                kind="batch",
                outcome=outcome,
                reason=reason,
                run=run.id,
                parent_run=run.parent.id if run.parent else None,
                tenant=run.tenant,
                traffic_class=run.wish.traffic_class,
                task_class=run.wish.task_class,
                release=run.wish.release,
                batch=batch,
                round=round_,
                deadline_ns=run.deadline_ns,
                remaining_ns=run.deadline_ns - now_ns,
                remaining_attempts=envelope.attempts,
                remaining_retry_tokens=envelope.retry_tokens,
                total_in_use=self.ceiling.in_use,
                request=request,
                user_status=WILL_RETRY if outcome == "admitted" else user_status(outcome),
            )
        )

    def step(
        self,
        live: LiveStep,
        bulkhead: Bulkhead | None,
        kind: str,
        outcome: str,
        reason: str | None,
        now_ns: int,
        *,
        status: str | None = None,
        delay_ns: int | None = None,
        retry_after: str | None = None,
        service_ns: int | None = None,
    ) -> None:
        """A decision about one step: of the kinds `step`, `retry`, `readback`, `late`."""
        run, step = live.run, live.step
        wish, envelope, dependency = run.wish, run.envelope, step.dependency
        slots = bulkhead.slots if bulkhead else None
        # By position, two for every step: so many names would take as long as everything else here.
        self.record(
            Decision(
                now_ns, kind, outcome, reason,
                run.id, run.parent.id if run.parent else None, run.tenant,
                wish.traffic_class, wish.task_class, wish.release,
                dependency, READBACK if kind == "readback" else step.operation, step.tool,
                live.batch, step.step, live.round, live.attempt, OWNER,
                live.queue_wait_ns, service_ns, delay_ns, retry_after,
                run.deadline_ns, run.deadline_ns - now_ns,
                envelope.attempts, envelope.budgets.get(dependency), envelope.retry_tokens,
                slots.limit if slots else None, slots.in_use if slots else None, self.ceiling.in_use,
                bulkhead.waiting.size if bulkhead else None, bulkhead.circuit.state if bulkhead else None,
                step.idempotency_key, live.leader, live.request, status,
            )
        )  # fmt: skip

    def circuit(self, dependency: str, outcome: str, reason: str | None, now_ns: int) -> None:
        state = "open" if outcome == "opened" else outcome
        self.record(
            Decision(
                t_ns=now_ns,
                kind="circuit",
                outcome=outcome,
                reason=reason,
                dependency=dependency,
                circuit=state,
                total_in_use=self.ceiling.in_use,
            )
        )

    def lend(
        self, slots: Slots, where: tuple[str, str] | None, outcome: str, rank: int, reason: str | None, now_ns: int
    ) -> None:
        """Of a bulkhead's reserve, or (where: None) of the ceiling's."""
        self.record(
            Decision(
                t_ns=now_ns,
                kind="lend",
                outcome=outcome,
                reason=reason,
                traffic_class=_CLASSES[rank],
                dependency=where[0] if where else None,
                operation=where[1] if where else None,
                limit=slots.limit,
                in_use=slots.in_use,
                total_in_use=self.ceiling.in_use,
            )
        )

    def limit(self, bulkhead: Bulkhead, outcome: str, reason: str, now_ns: int) -> None:
        """Of an adaptive limit."""
        self.record(
            Decision(
                t_ns=now_ns,
                kind="limit",
                outcome=outcome,
                reason=reason,
                dependency=bulkhead.dependency,
                operation=bulkhead.kind,
                limit=bulkhead.slots.limit,
                in_use=bulkhead.slots.in_use,
                total_in_use=self.ceiling.in_use,
            )
        )
