"""One attempt: what leaves for a dependency, and what its answer means. And the one way in which a step waits.

Never decides what follows from an answer: that is the flow's (steps.py) and the retry owner's.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable

from stub_service.capacity.bulkhead import Grant
from stub_service.capacity.ports import CallDependency, DependencyAnswer, DependencyCall
from stub_service.capacity.retry import OWNER
from stub_service.capacity.runs import EXPIRED, LiveStep
from stub_service.capacity.signals import signal_of

LAYER = "controller"
"""Who sends the attempts."""


async def send(call: CallDependency, live: LiveStep, operation: str, grant: Grant) -> DependencyAnswer:
    """Calls the dependency in the slot that was granted. A connection that broke is an answer with status 0."""
    run, step = live.run, live.step
    try:
        return await call(
            DependencyCall(
                dependency=step.dependency,
                operation=operation,
                run=run.id,
                step=step.step,
                attempt=live.attempt,
                owner=OWNER,
                layer=LAYER,
                round=live.round,
                tenant=run.tenant,
                traffic_class=run.wish.traffic_class,
                tool=step.tool,
                deadline_ns=run.deadline_ns,
                timeout_ns=grant.bulkhead.timeout_ns,
                probe=grant.passed.probe > 0,
                idempotency_key=step.idempotency_key,
            )
        )
    except OSError:  # TimeoutError is one, too
        return DependencyAnswer(0)


def answered_well(answer: DependencyAnswer) -> bool:
    return 200 <= answer.status < 400


def blames(answer: DependencyAnswer) -> bool | None:
    """Whether the answer is a failure of the dependency; None: it says nothing about its health (429)."""
    return None if answer.status == 429 else answer.status == 0 or answer.status >= 500


def failure_reason(answer: DependencyAnswer) -> str:
    return f"status_{answer.status}" if answer.status else "no_answer"


async def pause(live: LiveStep, until_ns: int, now_ns: Callable[[], int]) -> str:
    """Waits for `live.wake(signal)`; `expired` when until_ns has come, never before."""
    live.future = get_running_loop().create_future()
    try:
        return await signal_of(live.future, until_ns, now_ns, EXPIRED)
    finally:
        live.future = None
