"""Deadlines gone wrong, for `v06.expiry` to catch: work that starts late, or whose end is not told as what it was.

Laid over the flow of a step: whoever waits beyond its deadline really is called when a slot comes free.
"""

from __future__ import annotations

from typing import Any

from stub_service.capacity.attempt import pause
from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.controller import Controller
from stub_service.capacity.dispatch import GO
from stub_service.capacity.events import Events
from stub_service.capacity.ports import StepResult
from stub_service.capacity.runs import EXPIRED, FAILED, OPEN, THROTTLED, LiveStep
from stub_service.capacity.steps import StepFlow
from stub_service.defects.registry import become, broken, twin

EXPIRY, DECISIONS, LEAKS = "v06.expiry", "trial.decisions_complete", "trial.leak_free"
HOUR_NS = 3_600_000_000_000
GRACE_NS = 150_000_000
SWEEP_NS = 100_000_000


class OnEnqueueOnly(StepFlow):
    """The deadline is looked at when a step begins to wait, and never again."""

    async def wait_for_slot(self, live: LiveStep) -> str:
        return await pause(live, self.now_ns() + HOUR_NS, self.now_ns)

    def stopped(self, live: LiveStep, signal: str, now_ns: int | None = None) -> StepResult | None:
        if signal == GO and live.queue_wait_ns and live.run.state == OPEN:
            return None
        return super().stopped(live, signal, now_ns)


class WithGrace(StepFlow):
    """Whoever gets a slot within 150 ms after its deadline starts all the same."""

    async def wait_for_slot(self, live: LiveStep) -> str:
        return await pause(live, live.run.deadline_ns + GRACE_NS, self.now_ns)

    def stopped(self, live: LiveStep, signal: str, now_ns: int | None = None) -> StepResult | None:
        in_grace = self.now_ns() < live.run.deadline_ns + GRACE_NS
        if signal == GO and live.queue_wait_ns and in_grace and live.run.state == OPEN:
            return None
        return super().stopped(live, signal, now_ns)


class LostWhenPutBack(StepFlow):
    """A step that waits for its second attempt has no deadline any more."""

    async def wait_for_slot(self, live: LiveStep) -> str:
        until_ns = self.now_ns() + HOUR_NS if live.attempt else live.run.deadline_ns
        return await pause(live, until_ns, self.now_ns)

    def stopped(self, live: LiveStep, signal: str, now_ns: int | None = None) -> StepResult | None:
        if signal == GO and live.attempt and live.run.state == OPEN:
            return None
        return super().stopped(live, signal, now_ns)


class DropsExpired(Events):
    """Whoever expires is taken out, and nothing is written down."""

    def step(self, live: LiveStep, bulkhead: Any, kind: str, outcome: str, *rest: Any, **more: Any) -> None:
        if (kind, outcome) != ("step", EXPIRED):
            super().step(live, bulkhead, kind, outcome, *rest, **more)


class AsError(StepFlow):
    """An expired step ends as any error does."""

    told = FAILED, "error"

    def end(self, live: LiveStep, outcome: str, reason: str | None, now_ns: int, **more: Any) -> StepResult:
        if outcome == EXPIRED:
            outcome, reason = self.told
        return super().end(live, outcome, reason, now_ns, **more)


class AsThrottled(AsError):
    """An expired step is told to come again."""

    told = THROTTLED, "queue_full"


class KeepsReservation(StepFlow):
    """What an expired step had reserved of its run's envelope is gone."""

    def end(self, live: LiveStep, outcome: str, reason: str | None, now_ns: int, **more: Any) -> StepResult:
        if outcome == EXPIRED:
            live.paid = live.attempt
        return super().end(live, outcome, reason, now_ns, **more)


class Sweeps(StepFlow):
    """Twin: expired steps are told at the next sweep of the queue, up to 100 ms late; none of them starts."""

    async def wait_for_slot(self, live: LiveStep) -> str:
        sweep_ns = -(-live.run.deadline_ns // SWEEP_NS) * SWEEP_NS
        return await pause(live, sweep_ns, self.now_ns)


def _flow(kind: type[StepFlow]) -> Any:
    def lay(controller: Controller, config: CapacityConfig) -> None:
        become(controller.flow, kind)

    return lay


def _drops(controller: Controller, config: CapacityConfig) -> None:
    become(controller.events, DropsExpired)


broken("expiry_checked_on_enqueue", "a deadline is looked at on enqueue only", _flow(OnEnqueueOnly), EXPIRY)
broken("expiry_with_grace", "work starts up to 150 ms after its deadline", _flow(WithGrace), EXPIRY)
broken("expiry_not_recorded", "expired work is dropped without a record", _drops, EXPIRY, DECISIONS, also=(LEAKS,))
broken("expiry_as_error", "expired work is recorded as a generic error", _flow(AsError), EXPIRY)
broken("expiry_as_throttled", "expired work is recorded as throttled", _flow(AsThrottled), EXPIRY)
broken("deadline_lost_when_put_back", "a retry waits without a deadline", _flow(LostWhenPutBack), EXPIRY)
broken("expired_keeps_reservation", "expired work returns nothing that it reserved", _flow(KeepsReservation), EXPIRY)
twin("twin_expiry_swept", "expired work is told up to 100 ms late, and never starts", _flow(Sweeps), EXPIRY)
