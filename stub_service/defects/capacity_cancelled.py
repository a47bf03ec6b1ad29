"""Runs that go on after they were cancelled, for `capacity.cancelled` to catch; and a twin that hangs up at once."""

from __future__ import annotations

from asyncio import CancelledError, Task, get_running_loop
from typing import Any

from stub_service.capacity.ports import READ, DependencyAnswer, DependencyCall, StepResult
from stub_service.capacity.runs import CANCELLED, ENDED_CANCELLED, SERVED, LiveStep, Run
from stub_service.defects.registry import broken, twin

STOPS, RETRIES, COMPLETE = "capacity.cancelled", "v05.one_retry_owner", "trial.decisions_complete"
HANGS_UP_AFTER_S = 0.005


def fan_out_after_cancel(controller: Any, config: Any) -> None:
    """The cancellation is written down, and nobody who works for the run is told: it goes on to submit, start and
    retry."""

    def cancel(run_id: str, request: str | None = None) -> str:
        run: Run = controller.runs[run_id]
        if run.outcome is None:
            run.outcome = CANCELLED
            controller.events.run(run, CANCELLED, None, controller.now_ns(), request)
        return run.outcome

    controller.cancel = cancel


def queue_not_emptied(controller: Any, config: Any) -> None:
    """What waits when its run is cancelled is left in the queue, and starts when its turn comes."""
    cancel, stopped = controller.cancel, controller.flow.stopped

    def left_waiting(run_id: str, request: str | None = None) -> str:
        run: Run = controller.runs[run_id]
        active, run.active = run.active, {}
        outcome: str = cancel(run_id, request)
        run.active = active
        return outcome

    def goes_on(live: LiveStep, signal: str, now_ns: int | None = None) -> StepResult | None:
        if live.run.state != ENDED_CANCELLED or signal == CANCELLED:
            ended: StepResult | None = stopped(live, signal, now_ns)
            return ended
        state, live.run.state = live.run.state, "open"
        try:
            ended = stopped(live, signal, now_ns)
        finally:
            live.run.state = state
        return ended

    controller.cancel, controller.flow.stopped = left_waiting, goes_on


def retried_after_cancel(controller: Any, config: Any) -> None:
    """A call that fails after its run was cancelled is tried again at once, by the flow that still has it in hand."""
    healthy = controller.flow.call

    async def call(asked: DependencyCall) -> DependencyAnswer:
        answer: DependencyAnswer = await healthy(asked)
        if answer.status >= 500 and controller.runs[asked.run].state == ENDED_CANCELLED:
            answer = await healthy(asked)
        return answer

    controller.flow.call = call


def late_result_used(controller: Any, config: Any) -> None:
    """A result that comes after the cancellation is used as any other: nobody looks whether it still may be."""
    healthy = controller.flow.late

    def late(live: LiveStep, answer: DependencyAnswer) -> StepResult:
        if 200 <= answer.status < 400:
            told: StepResult = controller.flow.end(live, SERVED, None, controller.now_ns(), answer=answer)
        else:
            told = healthy(live, answer)
        return told

    controller.flow.late = late


def hangs_up(controller: Any, config: Any) -> None:
    """Twin: reads that are on their way when their run is cancelled are hung up on, a moment later. They end sooner
    than they would, and nothing follows."""
    cancel, healthy = controller.cancel, controller.flow.call
    on_way: dict[str, dict[Task[DependencyAnswer], None]] = {}  # in order: a trial in virtual time is always the same

    async def call(asked: DependencyCall) -> DependencyAnswer:
        task: Task[DependencyAnswer] = get_running_loop().create_task(healthy(asked))
        if asked.operation != READ:
            return await task
        mine = on_way.setdefault(asked.run, {})
        mine[task] = None
        try:
            return await task
        except CancelledError:
            if not task.cancelled() or controller.runs[asked.run].state != ENDED_CANCELLED:
                raise
            return DependencyAnswer(0)
        finally:
            mine.pop(task, None)
            if not mine:
                on_way.pop(asked.run, None)

    def hang_up(run_id: str, request: str | None = None) -> str:
        outcome: str = cancel(run_id, request)
        for task in [*on_way.get(run_id, ())]:
            get_running_loop().call_later(HANGS_UP_AFTER_S, task.cancel)
        return outcome

    controller.cancel, controller.flow.call = hang_up, call


broken("fan_out_after_cancel", "a cancelled run goes on to submit, start and retry", fan_out_after_cancel, STOPS)
broken(
    "queue_not_emptied_by_cancel", "what waits when its run is cancelled starts all the same", queue_not_emptied, STOPS
)
broken(
    "retried_after_cancel",
    "a call that fails after the cancellation is tried again",
    retried_after_cancel,
    STOPS,
    also=(RETRIES, COMPLETE),
)
broken("late_result_used_unchecked", "a result that comes after the cancellation is used without a look",
       late_result_used, STOPS)  # fmt: skip
twin("twin_cancel_hangs_up", "reads on their way are hung up on when their run is cancelled", hangs_up, STOPS)
